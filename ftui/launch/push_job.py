"""`ftui push`, for commands and screens: what is sent where, as typed or as the profile says, and what came of it."""

import os
from collections.abc import Collection
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from ftui.errors import UsageError
from ftui.helper.chat_session import BASE, find_side
from ftui.launch.long_job import LongJob, Rows, disk_line
from ftui.launch.open_run import stored_profile
from ftui.profile.consent import check_push_command
from ftui.profile.sections.around.push_target import COMMAND, HUB, PushSection, parse_target
from ftui.runs.manifest import fault, read_manifest
from ftui.runs.records.push_records import Pushed
from ftui.runs.run_folder import Run
from ftui.runs.state import RunState
from ftui.runs.status import run_is_running
from ftui.system.redact import redact
from ftui.text import shown
from ftui.units import size

if TYPE_CHECKING:
    from ftui.helper.client import Helper, OnDetail

FINAL = "final"
RESUME = "resume/"  # what only a resumed run needs of a checkpoint


def push_job(
    run: Run, what: str | None, to: str | None, *, public: bool = False, overwrite: bool = False,
    allow: Collection[str] = (),
) -> LongJob:  # fmt: skip
    """Work that sends a result (`what`: as `find_folder`), and goes on where it was cut short.

    Raises:
        FtuiError: there is no such result or target, it is damaged, or there is no room in a folder.
    """
    section = find_section(run, to, public=public, overwrite=overwrite, allow=allow)
    folder = find_folder(run, what)
    sizes = [entry.size for file, entry in read_manifest(folder).files.items() if not file.startswith(RESUME)]
    files = f"{len(sizes)} file{'s' * (len(sizes) != 1)}, {size(sum(sizes))}"
    plan = [("sends", f"{folder.name}: {files}"), ("to", redact(str(section.to)))]
    target = parse_target(str(section.to))
    if target.kind == "hub":
        plan.append(("seen by", "you only, if it is new" if section.private else "everybody, if it is new"))
    elif target.kind == "folder":  # the push itself asks for the room of what is missing
        plan.append(("disk", f"{size(sum(sizes))} at most: what is there already is not sent again"))
    else:  # a command gets copies, since it may change what it is given
        plan.append(disk_line(run.folder, sum(sizes)))

    def work(helper: "Helper", on_detail: "OnDetail") -> Rows:
        answer = helper.ask(
            "push", on_detail=on_detail, run=str(run.folder.absolute()), what=what, **section.model_dump()
        )
        return result_rows(msgspec.convert(answer, Pushed))

    return LongJob(f"push {run.name}@{folder.name} to {redact(str(section.to))}", plan, work)


def find_section(run: Run, to: str | None, *, public: bool, overwrite: bool, allow: Collection[str]) -> PushSection:
    """Where a push goes, as typed or else as the run's profile says.

    Raises:
        UsageError: neither says it, or it is no target.
        ProfileError: the profile's is a command, and nobody has allowed it.
    """
    if to is not None:
        return PushSection(to=check_target(to), private=not public, overwrite=overwrite)
    profile = stored_profile(run)
    if profile.push.to is None:
        raise UsageError(f"Where to? The profile of {run.name} has no push.to.", hint="--to hub:OWNER/NAME, for one.")
    check_push_command(profile, allow, command="ftui push RUN")
    stored = profile.push
    return PushSection(to=stored.to, private=stored.private and not public, overwrite=stored.overwrite or overwrite)


def check_target(to: str) -> str:
    """A target as a person types it; a folder from here becomes one from the root.

    Raises:
        UsageError: it is none.
    """
    to = to.strip()
    if not to.startswith((HUB, COMMAND)) and ("/" in to or to in (".", "..")) and to[:1] in "./":
        to = os.path.abspath(to)
    try:
        parse_target(to)
    except ValueError as error:
        raise UsageError(f"--to: {error}.", hint="`ftui push --help` shows the ways.") from error
    return to


def find_folder(run: Run, what: str | None) -> Path:
    """What is pushed: `final` (`None`), `checkpoint-N`, N or the name of an export.

    Raises:
        UsageError: there is none, or it is damaged.
    """
    if what is None and not run.final.is_dir():
        raise UsageError(f"{run.name} has no final/ yet.", hint=f"Name a checkpoint: ftui push {run.name}@checkpoint-N")
    if what == BASE:
        raise UsageError("The base is not what the run has made.")
    export = run.exports / (what or "").removeprefix("exports/")
    if what and "/" not in export.name and export.parent == run.exports and os.path.isdir(export):
        if problem := fault(export, quick=True):
            hint = "Remove that folder, and make it again."
            raise UsageError(f"{export.name} of {run.name} is damaged: {problem}.", hint=hint)
        return export
    folder = find_side(run, what or FINAL).folder
    assert folder is not None, "only the base has none"
    return folder


def result_rows(pushed: Pushed) -> Rows:
    """What has arrived."""
    rows = [
        ("place", pushed.place),
        ("files", f"{pushed.num_files}, {size(pushed.num_bytes)}"),
        ("verified", "every hash was asked for there" if pushed.verified else "nothing says whether all of it arrived"),
    ]
    return [*rows, ("commit", pushed.commit)] if pushed.commit else rows


def describe_push(run: Run, state: RunState, target: str | None) -> list[str]:
    """The line about the push at the end of a run that has finished, where its profile names a target."""
    if target is None or state.phase != "finished":
        return []
    to = redact(target)
    last = next((push for push in reversed(state.pushes) if (push.to, push.what) == (to, FINAL)), None)
    again = f"`ftui push {run.name}` goes on"
    if last is not None and last.place:
        return [f"  pushed      {shown(last.place)}" + (f" (commit {last.commit[:12]})" if last.commit else "")]
    if last is not None and last.problem:
        return [f"  push        failed: {shown(last.problem)} {again}"]
    is_at_work = run_is_running(run) if last is None else last.is_at_work
    standing = f"is under way: `ftui log {run.name}`" if is_at_work else f"has not ended: {again}"
    return [f"  push        to {shown(to)} {standing}"]
