"""`[push]`: where the result goes when the run has finished. Also read from `ftui push --to`."""

import re
import shlex
from pathlib import Path
from typing import Literal, NamedTuple

from pydantic import field_validator

from ftui.profile.consent import PUSH_COMMAND
from ftui.profile.sections.fields import Section, conduct

HUB = "hub:"
COMMAND = "command:"
FOLDER_WORD = "{folder}"
_REPO = re.compile(r"[A-Za-z0-9](?:[\w.-]*\w)?/[A-Za-z0-9](?:[\w.-]{0,94}\w)?", re.ASCII)
_WAYS = "hub:OWNER/NAME, a folder that begins with / or ~/, or 'command:PROGRAM ARGUMENTS {folder}'"


class Target(NamedTuple):
    """Where a push goes: a repository `owner/name`, a folder, or a command line."""

    kind: Literal["hub", "folder", "command"]
    value: str

    @property
    def folder(self) -> Path:
        """That of a target that is one."""
        return Path(self.value).expanduser()

    def command(self, folder: Path) -> list[str]:
        """The words of a target that is a command, with the folder in its place."""
        return [word.replace(FOLDER_WORD, str(folder)) for word in shlex.split(self.value)]


def parse_target(text: str) -> Target:
    """What `hub:owner/name`, a folder or `command:rclone copy {folder} remote:x` means.

    Raises:
        ValueError: it is none of them, in words.
    """
    if text.startswith(HUB):
        name = text.removeprefix(HUB)
        if not _REPO.fullmatch(name) or "--" in name or ".." in name or name.endswith(".git"):
            raise ValueError(f"{name!r} is no name on the hub; write hub:OWNER/NAME")
        return Target("hub", name)
    if text.startswith(COMMAND):
        command = text.removeprefix(COMMAND).strip()
        try:
            words = shlex.split(command)
        except ValueError as error:
            raise ValueError(f"the command cannot be read: {error}") from error
        if not words or not any(FOLDER_WORD in word for word in words[1:]):
            raise ValueError("the command needs {folder} among its arguments: command:rclone copy {folder} remote:x")
        return Target("command", command)
    if text.startswith(("/", "~/")) and "\0" not in text:
        return Target("folder", text)
    meant = f"; hub:{text} is a repository" if _REPO.fullmatch(text) else ""
    raise ValueError(f"{text!r} is no target: write {_WAYS}{meant}")


class PushSection(Section):
    """`[push]`: where the result goes when the run has finished. Training is over by then: nothing can harm it."""

    to: str | None = conduct(
        None,
        description=f"`hub:OWNER/NAME`, a folder (`/mnt/volume/x`, `~/x`), or `command:rclone copy {FOLDER_WORD}"
        f" remote:x` (no shell; needs `--allow {PUSH_COMMAND}`). Pushed when the run has finished, and verified.",
    )

    private: bool = conduct(True)
    """Make a new repository on the hub private, and refuse one that is there and public."""

    overwrite: bool = conduct(False)
    """Replace files of the same names that this run has not pushed. Other files are never touched."""

    @field_validator("to")
    @classmethod
    def _is_a_target(cls, text: str | None) -> str | None:
        if text is not None:
            parse_target(text)
        return text
