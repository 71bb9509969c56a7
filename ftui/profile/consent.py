"""Consent to run the Python code that a model brings."""

from collections.abc import Collection
from typing import TYPE_CHECKING

from ftui.errors import ProfileError

if TYPE_CHECKING:  # pydantic, which `ftui --version` does without
    from ftui.profile.schema import Profile

REMOTE_CODE = "remote-code"
"""What `--allow` takes."""


def check_remote_code(profile: "Profile", allow: Collection[str], before: "Profile | None" = None) -> None:
    """Check that a model's own code may run. A run keeps the consent that it was started with: `before` is its profile.

    Raises:
        ProfileError: `allow` lacks the consent, and `before` did not run that code.
    """
    model = profile.model
    if not model.trust_remote_code or REMOTE_CODE in allow:
        return
    if before is not None and before.model.trust_remote_code:
        then = before.model
        if (then.name_or_path, then.revision) == (model.name_or_path, model.revision):
            return
    raise ProfileError(
        f"{model.name_or_path} brings Python code, and model.trust_remote_code = true would run it here as you.",
        hint=f"If you have read that code, start the run with: ftui --run P --allow {REMOTE_CODE}",
    )
