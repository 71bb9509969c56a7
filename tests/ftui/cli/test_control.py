"""`ftui stop RUN` and the like for a run that has finished and only pushes: nobody reads its inbox any more."""

import subprocess
import sys
import time
from collections.abc import Callable, Iterator

import pytest

from ftui.cli.control import change, on_checkpoint, order
from ftui.errors import UsageError
from ftui.runs.run_folder import Run, runs_root
from ftui.system.process_id import identity_of
from tests.support.replayed import write_summaries
from tests.support.shelf import finished


@pytest.fixture
def pusher() -> Iterator["subprocess.Popen[bytes]"]:
    process = subprocess.Popen([sys.executable, "-S", "-c", "import time; time.sleep(600)"])
    yield process
    process.kill()
    process.wait()


@pytest.fixture
def run(pusher: "subprocess.Popen[bytes]") -> Run:
    made = finished(runs_root() / "mine")
    write_summaries(made, time=time.time(), supervisor=identity_of(pusher.pid))
    return made


@pytest.mark.parametrize("verb", ["stop", "abort"])
def test_what_ends_a_run_ends_its_push(
    verb: str, run: Run, pusher: "subprocess.Popen[bytes]", capsys: pytest.CaptureFixture[str]
) -> None:
    assert order(verb, "mine") == 0
    assert pusher.poll() is not None and "`ftui push mine` goes on" in capsys.readouterr().out
    assert not list(run.inbox.glob("*"))


def test_other_requests_are_refused(run: Run, pusher: "subprocess.Popen[bytes]") -> None:
    asks: list[Callable[[], int]] = [
        lambda: order("pause", "mine"), lambda: change("mine", ["max_steps=9"]),
        lambda: on_checkpoint("pin", "mine", "checkpoint-8"),
    ]  # fmt: skip
    for ask in asks:
        with pytest.raises(UsageError, match="has finished, and its result is being pushed") as refusal:
            ask()
        assert "`ftui stop mine`" in refusal.value.hint
    assert not list(run.inbox.glob("*")) and pusher.poll() is None
