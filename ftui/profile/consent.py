"""Consent to run what a model, a profile or a file of measures brings: Python code, a command."""

from collections.abc import Collection
from pathlib import Path
from typing import TYPE_CHECKING

from ftui.errors import ProfileError, UsageError

if TYPE_CHECKING:  # pydantic, which `ftui --version` does without
    from ftui.profile.schema import Profile

REMOTE_CODE = "remote-code"
PUSH_COMMAND = "push-command"
MEASURES_CODE = "measures"
CONSENTS = {
    REMOTE_CODE: "run the Python code that comes with the model (model.trust_remote_code)",
    PUSH_COMMAND: "run the command of the profile's push.to",
    MEASURES_CODE: "run the Python file of `ftui evaluate --measures`",
}
"""What `--allow` takes, and what it allows."""


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


def check_push_command(
    profile: "Profile", allow: Collection[str], before: "Profile | None" = None, *, command: str = "ftui run P"
) -> None:
    """Check that the command of a profile, which may come from elsewhere, may run. `before`: as `check_remote_code`.

    `command` is what takes the consent.

    Raises:
        ProfileError: `allow` lacks the consent, and `before` did not name that command.
    """
    to = profile.push.to
    if to is None or not to.startswith("command:") or PUSH_COMMAND in allow:
        return
    if before is None or before.push.to != to:
        raise ProfileError(
            f"push.to would run a command here as you: {to.removeprefix('command:').strip()}",
            hint=f"If that is what you want, say so: {command} --allow {PUSH_COMMAND}",
        )


def check_measures(path: Path, allow: Collection[str]) -> None:
    """Check that a file of measures may run.

    Raises:
        UsageError: `allow` lacks the consent.
    """
    if MEASURES_CODE not in allow:
        raise UsageError(
            f"{path} is Python code, and --measures would run it here as you.",
            hint=f"If you know what it does, add: --allow {MEASURES_CODE}",
        )
