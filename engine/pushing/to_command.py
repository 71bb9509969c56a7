"""Through a command (rclone, rsync, aws s3 cp ...): its words, no shell; its exit code decides."""

import os
import shutil
import subprocess
from collections.abc import Callable

from ftui.errors import PushError, UsageError
from ftui.profile.sections.around.push_target import Target
from ftui.system.files import open_private, write_all
from ftui.system.redact import redact
from ftui.system.scratch import scratch
from ftui.system.volume import disk_error

from .content import Content
from .to_folder import copy_missing

LAST_LINES = 5
LONGEST_LINE = 500


def check_program(target: Target) -> None:
    """See that the program is here.

    Raises:
        UsageError: it is not.
    """
    program = target.command(target.folder)[0]
    if shutil.which(program) is None:
        raise UsageError(
            f"There is no program {program!r} here to push with.", hint="Install it, or change the target."
        )


def send(content: Content, target: Target, report: Callable[[str], object]) -> None:
    """Run the command on a folder with copies of the files; what it prints goes to push.log, redacted.

    Copies, since a command may change what it is given, and second names of the run's files would change those.

    Raises:
        DiskError: the volume of the run has no room for them.
        PushError: it ended with another exit code than 0, with its last lines.
    """
    with scratch("push", content.run.folder) as parent:
        folder = parent / content.run.name
        folder.mkdir()
        words = target.command(folder)
        try:
            copy_missing(content, folder, report)
        except OSError as error:
            raise disk_error(
                error, f"{content.what} cannot be copied for {words[0]}", folder, content.num_bytes
            ) from error
        log = open_private(content.run.push_log, os.O_WRONLY | os.O_APPEND)
        try:
            code, lines = _run(words, lambda line: write_all(log, f"{line}\n".encode()), report)
        finally:
            os.close(log)
    if code:
        ending = f"was killed by signal {-code}" if code < 0 else f"ended with exit code {code}"
        said = "\n".join(f"  {line}" for line in lines)
        raise PushError(f"{words[0]} {ending}.", hint=f"Its last lines, of {content.run.push_log}:\n{said}")


def _run(words: list[str], write: Callable[[str], object], report: Callable[[str], object]) -> tuple[int, list[str]]:
    """Its exit code and last lines."""
    try:
        process = subprocess.Popen(words, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
    except OSError as error:
        raise PushError(f"{words[0]} cannot be started: {error}.") from error
    last: list[str] = []
    with process:  # in our process group, with which whoever ends us ends its children
        assert process.stdout is not None, "it is a pipe"
        try:
            for raw in process.stdout:
                line = redact(raw.decode(errors="backslashreplace").rstrip("\r\n"))[:LONGEST_LINE]
                write(line)
                last = [*last, line][-LAST_LINES:]
                report(f"{words[0]}: {line}")
            process.wait()
        except BaseException:  # whoever waits for us has gone
            process.kill()
            raise
    return process.returncode, last
