"""One push from its start to its recorded end. Called again after a kill it goes on: all it relies on is asked anew."""

from collections.abc import Callable

from ftui.errors import FtuiError, LostRunError, ProfileError, PushError, UsageError
from ftui.profile.sections.around.push_target import PushSection, Target, parse_target
from ftui.runs.journal import Tail, Writer
from ftui.runs.records.push_records import PushBegan, Pushed, PushFailed
from ftui.runs.run_folder import Run
from ftui.system.files import try_lock
from ftui.system.process_id import this_process
from ftui.system.redact import redact

from . import to_command, to_folder
from .content import Content, find_content

Report = Callable[[str], object]
Stale = dict[str, str]
"""Files at a target that have to go, with hashes."""


def check_target(section: PushSection) -> None:
    """Refuse, before anything is paid for, what the push at the end of the run would be refused for.

    Raises:
        ProfileError: no token, no right, no program, or a folder that is not to be written to.
    """
    if section.to is None:
        return
    try:
        _check(parse_target(section.to), must_answer=False)
    except UsageError as error:
        raise ProfileError(f"push.to: {error.message}", hint=error.hint) from error


def _check(target: Target, *, must_answer: bool) -> None:
    match target.kind:
        case "hub":
            from .to_hub import check_account

            check_account(target.value, must_answer=must_answer)
        case "folder":
            to_folder.check_place(target.folder)
        case "command":
            to_command.check_program(target)


def push_result(
    run: Run, what: str | None, section: PushSection, report: Report, *, unless_done: bool = False
) -> Pushed:
    """Send what `what` names to `section.to`, verify it there, and record both.

    `unless_done`: nothing is done where the records have it already.

    Raises:
        UsageError: there is no such thing, or it may not be pushed there.
        PushError, DiskError: it did not arrive, or not whole.
        LostRunError: another process pushes something of this run.
    """
    assert section.to is not None, "whoever asks has a target"
    target, to = parse_target(section.to), redact(section.to)
    lock = try_lock(run.push_lock)
    if lock is None:
        raise LostRunError(f"Another process pushes something of {run.name}.", hint=f"See `ftui log {run.name}`.")
    try:
        content = find_content(run, what)
        before = [record for record in Tail(run.pushes).read() if getattr(record, "to", None) == to]
        done = next((one for one in reversed(before) if isinstance(one, Pushed) and one.seal == content.seal), None)
        if unless_done and done is not None:
            return done
        begun = [record for record in before if isinstance(record, PushBegan)]
        return _record(run, content, to, lambda: _open(content, target, section, begun),
                       lambda stale: _send(content, target, to, stale, report))  # fmt: skip
    finally:
        lock.close()


def _record(run: Run, content: Content, to: str, begin: Callable[[], Stale], send: Callable[[Stale], Pushed]) -> Pushed:
    writer = Writer(run.pushes)
    try:
        stale = begin()
        files = {name: content.hashes(name) for name in content.files}
        began = PushBegan(to=to, what=content.what, seal=content.seal, process=this_process(), files=files)
        writer.write(began, durable=True)
        pushed = send(stale)
        writer.write(pushed, durable=True)
    except FtuiError as error:
        _record_failure(writer, content, to, error)
        raise
    except OSError as error:  # another attempt has made another final/ meanwhile, or a disk fails
        failure = PushError(f"{content.what} cannot be read: {error}.", hint="Push again.")
        _record_failure(writer, content, to, failure)
        raise failure from error
    except Exception as error:  # of whatever library: without its end on record it would seem to go on for ever
        _record_failure(writer, content, to, PushError(f"{type(error).__name__}: {error}"))
        raise
    finally:
        writer.close()
    return pushed


def _record_failure(writer: Writer, content: Content, to: str, error: FtuiError) -> None:
    failed = PushFailed(to=to, what=content.what, message=redact(error.message), hint=redact(error.hint))
    writer.write(failed, durable=True)


def _open(content: Content, target: Target, section: PushSection, before: list[PushBegan]) -> Stale:
    """Everything that can be refused before the first byte is sent; the files there that have to go."""
    _check(target, must_answer=True)
    match target.kind:
        case "hub":
            from .to_hub import open_repository

            return open_repository(content, target.value, before, private=section.private, overwrite=section.overwrite)
        case "folder":
            return to_folder.open_folder(content, target.folder, before, overwrite=section.overwrite)
    return {}


def _send(content: Content, target: Target, to: str, stale: Stale, report: Report) -> Pushed:
    place, commit = to, ""
    match target.kind:
        case "hub":
            from .to_hub import send

            place, commit = send(content, target.value, stale, report)
        case "folder":
            to_folder.send(content, target.folder, stale, report)
            place = str(target.folder)
        case "command":
            to_command.send(content, target, report)
    return Pushed(
        to=to, what=content.what, seal=content.seal, place=place, num_files=len(content.files),
        num_bytes=content.num_bytes, verified=target.kind != "command", commit=commit,
    )  # fmt: skip
