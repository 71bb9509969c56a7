"""Consent to run what a model, a profile or a file of measures brings: Python code, a command.

A run keeps the consent that it was started with: in this user's state folder, not in its own, which anybody may have
put together. So what was copied from another machine is asked about again.
"""

import contextlib
import shlex
from collections.abc import Collection
from pathlib import Path
from typing import TYPE_CHECKING

from ftui.errors import ProfileError, RewardError, UsageError

if TYPE_CHECKING:  # pydantic, which `ftui --version` does without
    from ftui.profile.schema import Profile

REMOTE_CODE = "remote-code"
PUSH_COMMAND = "push-command"
MEASURES_CODE = "measures"
REWARD_CODE = "reward-code"
HOOKS = "hooks"
CONSENTS = {
    REMOTE_CODE: "run the Python code that comes with the model (model.trust_remote_code)",
    PUSH_COMMAND: "run the command of the profile's push.to",
    REWARD_CODE: "run the Python files that rewards.reward_funcs names, as they are now",
    HOOKS: "run the commands of the profile's [hooks]",
    MEASURES_CODE: "run the Python file of `ftui evaluate --measures`",
}
"""What `--allow` takes, and what it allows."""


def check_consents(profile: "Profile", allow: Collection[str], run_id: str | None = None) -> None:
    """Check that all that a profile brings to be run may run. `run_id`: of the run that goes on, or that a child is
    made from.

    Raises:
        ProfileError: `allow` lacks a consent, and that run has none to this code or command.
    """
    check_remote_code(profile, allow, run_id)
    check_push_command(profile, allow, run_id)
    check_reward_code(profile, allow, run_id)
    check_hooks(profile, allow, run_id)


def check_remote_code(profile: "Profile", allow: Collection[str], run_id: str | None = None) -> None:
    """Check that a model's own code may run. `run_id`: of the run that goes on, or that a child is made from.

    Raises:
        ProfileError: `allow` lacks the consent, and that run has none to this code.
    """
    if (code := _remote_code(profile)) is None or REMOTE_CODE in allow or _is_kept(run_id, code):
        return
    start = "start the run with: ftui --run P" if run_id is None else "go on with: ftui resume RUN"
    raise ProfileError(
        f"{profile.model.name_or_path} brings Python code, and model.trust_remote_code = true would run it here as"
        f" you{_asked_again(run_id)}.",
        hint=f"If you have read that code, {start} --allow {REMOTE_CODE}",
    )


def check_push_command(
    profile: "Profile", allow: Collection[str], run_id: str | None = None, *, command: str | None = None
) -> None:
    """Check that the command of a profile, which may come from elsewhere, may run. `run_id`: as `check_remote_code`.

    `command` is what takes the consent.

    Raises:
        ProfileError: `allow` lacks the consent, and that run has none to this command.
    """
    if (push := _push_command(profile)) is None or PUSH_COMMAND in allow or _is_kept(run_id, push):
        return
    command = command or ("ftui run P" if run_id is None else "ftui resume RUN")
    raise ProfileError(
        f"push.to would run a command here as you{_asked_again(run_id)}: {push[1].removeprefix('command:').strip()}",
        hint=f"If that is what you want, say so: {command} --allow {PUSH_COMMAND}",
    )


def check_reward_code(
    profile: "Profile", allow: Collection[str], run_id: str | None = None, *, is_new: bool = True
) -> None:
    """Check that the files with reward functions may run, as they are now. `run_id`: as `check_remote_code`.

    `is_new`: without one, a run is to be started; else something is only measured, once.

    Raises:
        ProfileError: `allow` lacks the consent, and that run has none to this very text.
    """
    if REWARD_CODE in allow:
        return
    for path in profile.rewards.code_files:
        if not _is_kept(run_id, _code_subject(path)):
            start = "start the run with: ftui --run P" if run_id is None else "go on with: ftui resume RUN"
            start = start if is_new else "add"
            raise ProfileError(
                f"{path} is Python code, and rewards.reward_funcs would run it here as you{_asked_again(run_id)}.",
                hint=f"If you have read that file, {start} --allow {REWARD_CODE}",
            )


def check_hooks(profile: "Profile", allow: Collection[str], run_id: str | None = None) -> None:
    """Check that the commands of `[hooks]` may run, as they are now. `run_id`: as `check_consents`.

    Raises:
        ProfileError: `allow` lacks the consent, and that run has none to these very commands.
    """
    if (hooks := _hooks(profile)) is None or HOOKS in allow or _is_kept(run_id, hooks):
        return
    lines = "\n".join(f"  hooks.{name}: {shlex.join(words)}" for name, words in profile.hooks.commands.items())
    start = "start the run with: ftui --run P" if run_id is None else "go on with: ftui resume RUN"
    raise ProfileError(
        f"[hooks] would run commands here as you{_asked_again(run_id)}:\n{lines}",
        hint=f"If that is what you want, {start} --allow {HOOKS}",
    )


def read_allowed_code(path: str, run_id: str) -> str:
    """The text of a file with reward functions, if somebody has consented to it for this run.

    Raises:
        RewardError: it cannot be read, or its text is not the one that was consented to.
    """
    from ftui.system.input_files import read_input

    try:
        data = read_input(Path(path))
        text = data.decode()
    except (OSError, UnicodeDecodeError) as error:
        raise RewardError(f"{path} cannot be read: {error}.") from error
    if not _is_kept(run_id, (REWARD_CODE, _hash(data))):
        raise RewardError(
            f"{path} is not the file that was allowed to run, or nobody has allowed it on this machine.",
            hint=f"If you have read it, go on with: ftui resume RUN --allow {REWARD_CODE}",
        )
    return text


def keep_consents(profile: "Profile", run_id: str) -> None:
    """Note for a run what the checks have let pass. A read-only home is no reason to fail: it is asked again, then."""
    from ftui.system.files import make_private_folder, replace_file

    for subject in (_remote_code(profile), _push_command(profile), *_reward_code(profile), _hooks(profile)):
        if subject is not None:
            with contextlib.suppress(OSError):
                place = _place(run_id, subject)
                make_private_folder(place.parent)
                replace_file(place, b"")


def _remote_code(profile: "Profile") -> tuple[str, ...] | None:
    model = profile.model
    return (REMOTE_CODE, model.name_or_path or "", model.revision or "") if model.trust_remote_code else None


def _push_command(profile: "Profile") -> tuple[str, ...] | None:
    to = profile.push.to
    return (PUSH_COMMAND, to) if to is not None and to.startswith("command:") else None


def _hooks(profile: "Profile") -> tuple[str, ...] | None:
    """Every word of every command: a change of one asks again."""
    commands = profile.hooks.commands
    return (HOOKS, *(word for name, words in commands.items() for word in (name, *words, ""))) if commands else None


def _reward_code(profile: "Profile") -> list[tuple[str, ...]]:
    return [_code_subject(path) for path in profile.rewards.code_files]


def _code_subject(path: str) -> tuple[str, ...]:
    """A file by its text: a change of it asks again. One that cannot be read is told of elsewhere."""
    from ftui.system.input_files import read_input

    try:
        return REWARD_CODE, _hash(read_input(Path(path)))
    except (OSError, ValueError):
        return REWARD_CODE, ""


def _hash(data: bytes) -> str:
    import hashlib

    return hashlib.sha256(data).hexdigest()


def _is_kept(run_id: str | None, subject: tuple[str, ...]) -> bool:
    return run_id is not None and _place(run_id, subject).exists()


def _place(run_id: str, subject: tuple[str, ...]) -> Path:
    import hashlib  # these take 7 ms, and most profiles bring nothing to run

    from ftui.system.user_folders import state_folder

    return state_folder() / "consents" / hashlib.sha256("\0".join((run_id, *subject)).encode()).hexdigest()


def _asked_again(run_id: str | None) -> str:
    return "" if run_id is None else ", which nobody has allowed for this run on this machine"


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
