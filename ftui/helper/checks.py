"""Whether a run of a profile would be refused: engine/check_profile.py, asked through the helper process."""

from ftui.errors import FtuiError
from ftui.helper.client import Helper
from ftui.profile.schema import Profile


def find_refusal(helper: Helper, profile: Profile) -> FtuiError | None:
    """Why the device of this machine cannot train it, whatever its rows are; `None`: it can."""
    try:
        helper.ask("check", profile=profile)
    except FtuiError as error:
        return error
    return None
