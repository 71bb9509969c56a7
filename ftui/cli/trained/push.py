"""`ftui push RUN[@WHAT] --to WHERE`: send a result to the hub, a folder or through a command, and verify it there."""

import os
import sys
from collections.abc import Collection
from contextlib import closing

import msgspec

from ftui.cli.terminal import LiveOutput
from ftui.errors import FINISHED, UsageError
from ftui.helper.client import Helper
from ftui.launch.open_run import stored_profile
from ftui.profile.consent import check_push_command
from ftui.profile.sections.push_target import COMMAND, HUB, PushSection, parse_target
from ftui.runs import describe
from ftui.runs.events import Pushed
from ftui.runs.run_folder import Run, find_run


def push(name: str, to: str | None, public: bool, overwrite: bool, allow: Collection[str]) -> int:
    """Push, and go on with a push that was cut short: what is there already is not sent again.

    Raises:
        FtuiError: there is no such run or target, or it did not arrive.
    """
    name, _, what = name.partition("@")
    run = find_run(name)
    section = find_section(run, to, public=public, overwrite=overwrite, allow=allow)
    with closing(Helper(allow)) as helper, LiveOutput(sys.stdout) as output:
        answer = helper.ask(
            "push", on_detail=output.draw, run=str(run.folder.absolute()), what=what or None, **section.model_dump()
        )
        for line in describe.event_lines(msgspec.convert(answer, Pushed)):
            output.print(line)
    return FINISHED


def find_section(run: Run, to: str | None, *, public: bool, overwrite: bool, allow: Collection[str]) -> PushSection:
    """Where a push goes, as typed or else as the run's profile says.

    Raises:
        UsageError: neither says it, or it is no target.
        ProfileError: the profile's is a command, and nobody has allowed it.
    """
    if to is not None:
        if not to.startswith((HUB, COMMAND)) and ("/" in to or to in (".", "..")) and to[:1] in "./":
            to = os.path.abspath(to)
        try:
            parse_target(to)
        except ValueError as error:
            raise UsageError(f"--to: {error}.", hint="`ftui push --help` shows the ways.") from error
        return PushSection(to=to, private=not public, overwrite=overwrite)
    profile = stored_profile(run)
    if profile.push.to is None:
        raise UsageError(f"Where to? The profile of {run.name} has no push.to.", hint="--to hub:OWNER/NAME, for one.")
    check_push_command(profile, allow)
    stored = profile.push
    return PushSection(to=stored.to, private=stored.private and not public, overwrite=stored.overwrite or overwrite)
