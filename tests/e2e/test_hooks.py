"""Hooks, notices and the end of the machine as people use them: a real run, a webhook, a stand-in for the stop."""

import json
from pathlib import Path

import pytest

from ftui.runs.journal import Tail
from ftui.runs.records.hook_records import JOURNAL, StopBegan, StopEnded, StopPlanned
from ftui.runs.run_folder import Run
from tests.ftui.notices.test_follow_run import service
from tests.ftui.supervisor.test_supervisor import until
from tests.support.bench import Workbench

CANARY = "canary-4711"
HOOKS = """
[hooks]
started = ["sh", "-c", "echo $FTUI_EVENT $FTUI_STEP >> said; echo $HOOK_ADDRESS; cat /proc/[0-9]*/cmdline >> words"]
checkpoint = ["sh", "-c", "test -d $FTUI_CHECKPOINT && echo $FTUI_EVENT $FTUI_STEP >> said"]
ended = ["sh", "-c", "echo $FTUI_EVENT $FTUI_PHASE >> said; exit 3"]
then_stop = ["touch", "$STOPPED"]
then_stop_seconds = 10
[notify]
urls = "env:HOOK_ADDRESS"
events = ["started", "ended", "hook_failed", "then_stop"]
"""


@pytest.mark.slow
def test_a_run_with_hooks_tells_of_itself_and_stops_its_machine(workbench: Workbench) -> None:
    profile, run, stopped = workbench.profile("mine"), workbench.run("mine"), workbench.folder / "stopped"
    profile.write_text(profile.read_text() + HOOKS)
    short = ("--set", "train.max_steps=4", "--set", "eval.eval_on_start=false")
    with service(200) as (port, got):
        env = {"HOOK_ADDRESS": f"json://{CANARY}:{CANARY}@127.0.0.1:{port}/{CANARY}", "STOPPED": str(stopped)}
        tested = workbench.ftui("notify", str(profile), cwd=None, **env)
        assert tested.returncode == 0 and got.pop()["title"] == "mine: a test of ftui"
        refused = workbench.ftui("run", str(profile), *short, cwd=None, **env)
        assert refused.returncode == 30 and "--allow hooks" in refused.stderr
        unset = workbench.ftui("run", str(profile), *short, "--allow", "hooks")
        assert unset.returncode == 30 and "then_stop names $STOPPED" in unset.stderr

        done = workbench.ftui("run", str(profile), *short, "--allow", "hooks", cwd=None, **env)
        assert done.returncode == 0 and "ftui keep mine" in done.stdout, done.stderr
        until(lambda: any(isinstance(record, StopEnded) for record in Tail(run.hooks / JOURNAL).read()))
        until(lambda: len(got) == 4)
    assert stopped.exists(), "a hook that fails is told, and only what is required counts"
    assert (run.folder / "said").read_text().splitlines() == ["started 0", "checkpoint 4", "ended finished"]
    assert [message["title"].removeprefix("mine") for message in got] == [
        " is training", " has finished", ": a hook has failed", ": the end of this machine",
    ]  # fmt: skip
    times = {type(record): record.time for record in Tail(run.hooks / JOURNAL).read()}
    assert times[StopBegan] >= times[StopPlanned] + 9
    assert "hooks.ended ended with exit code 3" in workbench.ftui("log", "mine").stdout
    assert workbench.ftui("status", "mine", "--short").stdout == "mine finished\n"
    assert_not_told(run, workbench.folder)


def assert_not_told(run: Run, folder: Path) -> None:
    """The address stands in no file and in no process's words, though a hook printed it."""
    assert "***" in (run.hooks / "process.log").read_text()
    files = [path for path in folder.rglob("*") if path.is_file()]
    assert len(files) > 20 and [path for path in files if CANARY.encode() in path.read_bytes()] == []
    sent = json.loads((run.notices / "process.json").read_text())
    assert sent["waiting"] == [] and not sent["note"]
