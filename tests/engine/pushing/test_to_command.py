"""A push through a command ends with whoever asked for it."""

import threading
import time
from pathlib import Path

import pytest

from ftui.errors import FtuiError
from ftui.helper.client import Helper
from ftui.runs.run_folder import Run
from ftui.system.files import try_lock
from ftui.system.process_id import identity_of


@pytest.mark.parametrize("how", ["interrupt", "close", "kill"])
def test_a_silent_command_ends_with_the_push(how: str, run: Run, tmp_path: Path) -> None:
    """A read from its output waits for ever, and it has a child of its own, as scripts around rclone have."""
    note = tmp_path / "pid"
    script = tmp_path / "upload"
    script.write_text(f"sleep 600 & echo $! > {note}.new; mv {note}.new {note}; wait")
    helper = Helper()

    def push() -> None:
        with pytest.raises(FtuiError):
            helper.ask(
                "push", run=str(run.folder), what=None, to=f"command:sh {script} {{folder}}", private=True,
                overwrite=False,
            )  # fmt: skip

    asker = threading.Thread(target=push)
    asker.start()
    _wait_for(note.exists)
    if how == "kill":  # as the system does where memory runs out
        assert helper._process is not None
        helper._process.kill()
    else:
        getattr(helper, how)()
    asker.join()
    helper.close()
    _wait_for(lambda: identity_of(int(note.read_text())) is None)
    lock = try_lock(run.push_lock)
    assert lock is not None
    lock.close()
    if how == "interrupt":
        assert not list(run.folder.glob("ftui-push-*")), "what was half made is removed"


def _wait_for(is_true: object) -> None:
    deadline = time.monotonic() + 60
    while not is_true():  # type: ignore[operator]
        assert time.monotonic() < deadline
        time.sleep(0.01)
