"""Steering a run that lives, from the command line: every letter, the ways a run ends, and the ways it goes on."""

import json
import os
import signal
import subprocess
import sys

import pytest

from ftui.runs import checkpoint_folders
from ftui.runs.events import ControlApplied, ControlRefused, EvaluationDone, RunStarted, RunStopped, Sampled
from ftui.runs.journal import Tail
from ftui.runs.records.supervisor_records import EngineEnded, Restarting
from ftui.runs.requests import Set, new_id, write_request
from ftui.runs.run_folder import Run
from tests.support.bench import Workbench, newest, records
from tests.support.driving import LONG, is_running, last, started, status, steps, wait_for_end, wait_until

OTHER_RATE = ("--set", "train.learning_rate=0.1")


def following(bench: Workbench, name: str) -> "subprocess.Popen[str]":
    """`ftui --run` in the foreground: starts the run, or attaches to it."""
    command = [sys.executable, "-m", "ftui", "--run", str(bench.profile(name)), *LONG]
    return subprocess.Popen(command, cwd=bench.folder, env=bench.env, stdout=subprocess.PIPE, text=True)


def began(bench: Workbench, name: str, number: int) -> "subprocess.Popen[str]":
    """The same, once the run has made a number of steps."""
    process, run = following(bench, name), bench.run(name)
    wait_until(lambda: run.metrics.exists() and len(steps(run)) >= number)
    return process


def test_every_letter_is_obeyed_and_answered_once(workbench: Workbench) -> None:
    run = started(workbench, "told")

    def say(*words: str) -> str:
        result = workbench.ftui(*words)
        assert result.returncode == 0, result.stderr
        return result.stdout

    assert "paused at step" in say("hold", "told")
    frozen = len(steps(run))
    assert workbench.ftui("pause", "told").returncode == 2, "it is held already"
    assert "loss" in say("evaluate", "told")
    assert "What is row 5?" in say("sample", "told", "What is row 5?")
    say("checkpoint", "told")
    kept = last(run, ControlApplied)
    assert kept.detail == f"checkpoint-{kept.step}" and kept.step == frozen
    assert json.loads(run.pins.read_bytes()) == {"steps": [frozen]}
    refused = workbench.ftui("delete", "told", f"checkpoint-{frozen}")
    assert refused.returncode == 2 and "pinned" in refused.stderr
    oldest = checkpoint_folders.checkpoints_in(run.checkpoints)[-1]
    say("delete", "told", str(oldest.step))
    assert not oldest.path.exists()
    assert len(steps(run)) == frozen, "a held run takes no step"
    assert last(run, EvaluationDone).requested and last(run, Sampled).requested

    old = Set(id=new_id(), attempt=last(run, RunStarted).attempt, token="0123456789abcdef", max_steps=13)
    write_request(run, old)
    wait_until(lambda: any(isinstance(r, ControlRefused) and r.request == old.id for r in records(run)))
    assert "meant for attempt" in last(run, ControlRefused).reason

    assert workbench.ftui("set", "told", "learning_rate=1").returncode == 2
    say("continue", "told")
    say("set", "told", "learning_rate_factor=0.5", "save_steps=7")
    change = last(run, ControlApplied)
    wait_until(lambda: steps(run)[-1].step > change.step + 1)
    rates = {r.step: r.learning_rate for r in steps(run)}
    assert rates[change.step + 1] == pytest.approx(0.5 * rates[change.step], rel=0.01)
    too_late = workbench.ftui("set", "told", "max_steps=3")
    assert too_late.returncode == 2 and "is under way" in too_late.stderr

    say("park", "told")
    parked = wait_for_end(workbench, run)
    assert (parked["state"]["phase"], parked["state"]["exit_code"]) == ("parked", 11)
    nobody = workbench.ftui("hold", "told")
    assert nobody.returncode == 2 and "is not running" in nobody.stderr
    say("unpin", "told", str(frozen))
    say("delete", "told", f"checkpoint-{frozen}")
    assert not (run.checkpoints / f"checkpoint-{frozen}").exists()
    answers = [r.request for r in records(run) if isinstance(r, ControlApplied | ControlRefused)]
    assert len(answers) == len(set(answers)) == 12
    assert steps(run)[-1].step > 13, "it did not end the run"
    assert list(run.inbox.iterdir()) == []


def test_a_renamed_run_resumes_exactly_and_its_child_outlives_it(workbench: Workbench) -> None:
    run = started(workbench, "old")
    assert "is running" in workbench.ftui("rename", "old", "new").stderr
    assert "is running" in workbench.ftui("remove", "old", "--yes").stderr
    assert workbench.ftui("park", "old").returncode == 0
    wait_for_end(workbench, run)
    expected = newest(run)
    assert workbench.ftui("rename", "old", "new").returncode == 0
    renamed = workbench.run("new")
    assert workbench.ftui("resume", "new", "--detach").returncode == 0
    begun = len(steps(renamed))
    wait_until(lambda: len(steps(renamed)) > begun + 4)
    resumed = last(renamed, RunStarted)
    assert (resumed.resumed_from, resumed.reproducibility) == (expected, "EXACT")
    numbers = [r.step for r in steps(renamed)]
    assert numbers == list(range(1, len(numbers) + 1)) and not run.folder.exists()
    assert workbench.ftui("park", "new").returncode == 0
    wait_for_end(workbench, renamed)

    refused = workbench.ftui("resume", "new", *OTHER_RATE)
    assert refused.returncode == 30 and "train.learning_rate: 0.02 -> 0.1" in refused.stderr
    assert workbench.ftui("resume", "new", "--fork", "--name", "child", "--detach").returncode == 0
    child = workbench.run("child")
    wait_until(lambda: bool(steps(child)))
    assert last(child, RunStarted).resumed_from == newest(renamed)
    said = workbench.ftui("remove", "new", "--yes")
    assert said.returncode == 0 and "child continued from a checkpoint of it" in said.stdout, said.stderr
    assert not renamed.folder.exists()
    assert workbench.ftui("park", "child").returncode == 0
    wait_for_end(workbench, child)
    assert workbench.ftui("archive", "child").returncode == 0 and "child" not in workbench.ftui("runs").stdout
    begun = len(steps(child))
    assert workbench.ftui("resume", "child", "--detach").returncode == 0
    wait_until(lambda: len(steps(child)) > begun)
    assert last(child, RunStarted).reproducibility == "EXACT" and "child" in workbench.ftui("runs").stdout
    assert workbench.ftui("abort", "child").returncode == 0
    wait_for_end(workbench, child)


def test_the_ways_on_and_off(workbench: Workbench) -> None:
    """Stop what its starter has left alone; then a child from an older checkpoint with another rate, aborted."""
    run = workbench.run("life")
    process = began(workbench, "life", 12)
    process.send_signal(signal.SIGQUIT)
    output, _ = process.communicate(timeout=30)
    assert process.returncode == 0 and "the run life keeps running" in output
    before = len(steps(run))
    wait_until(lambda: len(steps(run)) > before)

    assert workbench.ftui("stop", "life").returncode == 0
    stopped = wait_for_end(workbench, run)
    assert (stopped["state"]["phase"], stopped["state"]["exit_code"]) == ("stopped", 10)
    assert checkpoint_folders.fault(run.final) is None
    over = workbench.ftui("--run", str(workbench.folder / "life.toml"), *LONG)
    assert over.returncode == 10 and "ftui resume life" in over.stdout

    present = [c.step for c in checkpoint_folders.checkpoints_in(run.checkpoints)]
    child = workbench.run("life-2")
    forked = workbench.ftui("resume", "life", "--from", str(present[1]), *OTHER_RATE, "--fork", "--detach")
    assert forked.returncode == 0, forked.stderr
    wait_until(lambda: len(steps(child)) > 4)
    begun = last(child, RunStarted)
    assert begun.reproducibility == "NOT EXACT" and "profile" in begun.reproducibility_reasons[0]
    assert steps(child)[0].learning_rate > 2 * steps(run)[-1].learning_rate
    assert steps(child)[0].step == present[1] + 1
    assert child.read_facts().parent_checkpoint == f"checkpoint-{present[1]}"
    assert child.read_facts().parent_run == run.read_facts().run_id
    assert [c.step for c in checkpoint_folders.checkpoints_in(run.checkpoints)] == present, "the parent stays as it is"
    assert workbench.ftui("abort", "life-2").returncode == 0
    assert wait_for_end(workbench, child)["state"]["reason"].startswith("aborted")


def read_to(process: "subprocess.Popen[str]", words: str) -> None:
    """Read what it prints to the line with these words."""
    assert process.stdout is not None
    assert any(words in line for line in process.stdout), f"{words!r} was not printed"


@pytest.mark.parametrize("presses", [1, 2])
def test_ctrl_c_ends_the_run_and_says_how(workbench: Workbench, presses: int) -> None:
    process, run = began(workbench, "keys", 6), workbench.run("keys")
    if presses == 1:
        who_only_attached_leaves_it(workbench, run)
    engine = status(workbench, "keys")["engine"]["pid"]
    os.kill(engine, signal.SIGSTOP)  # it hears of both at once, and has not ended before the second
    for words in ("saves a checkpoint and ends", "again: the run ends now")[:presses]:
        process.send_signal(signal.SIGINT)
        read_to(process, words)
    os.kill(engine, signal.SIGCONT)
    output, _ = process.communicate(timeout=60)
    assert process.returncode == 10, output
    ended = last(run, RunStopped)
    if presses == 1:
        assert ended.checkpoint == newest(run) and ended.final == "final"
    assert is_running(status(workbench, "keys")) is False


def who_only_attached_leaves_it(workbench: Workbench, run: Run) -> None:
    attached = following(workbench, run.name)
    assert attached.stdout is not None and "attached to it" in attached.stdout.readline()
    attached.stdout.readline()  # of a step: from now on it follows the run
    attached.send_signal(signal.SIGINT)
    output, _ = attached.communicate(timeout=30)
    assert attached.returncode == 130 and f"the run {run.name} keeps running" in output
    before = len(steps(run))
    wait_until(lambda: len(steps(run)) > before)


def test_a_crashed_engine_is_started_again(workbench: Workbench) -> None:
    """Its reader sees the restart, waits for it, and ends with the run's own code."""
    process, run = began(workbench, "hurt", 12), workbench.run("hurt")
    engine = status(workbench, "hurt")["engine"]["pid"]
    os.kill(engine, signal.SIGSTOP)
    expected = newest(run)
    os.kill(engine, signal.SIGSEGV)
    os.kill(engine, signal.SIGCONT)
    wait_until(lambda: any(isinstance(r, EngineEnded) for r in Tail(run.supervisor_log).read()))
    wait_until(lambda: last(run, RunStarted).attempt == 2)
    again = last(run, RunStarted)
    assert (again.resumed_from, again.reproducibility) == (expected, "EXACT")
    ended, restarting = [r for r in Tail(run.supervisor_log).read() if isinstance(r, EngineEnded | Restarting)]
    assert isinstance(ended, EngineEnded) and ended.signal == "SIGSEGV"
    assert ended.last_lines and "Segmentation fault" in run.engine_log.read_text()
    assert isinstance(restarting, Restarting) and restarting.number == 1
    assert workbench.ftui("hold", "hurt").returncode == 0  # or it is beyond its end before it hears of it
    assert workbench.ftui("set", "hurt", f"max_steps={steps(run)[-1].step + 3}").returncode == 0
    assert workbench.ftui("continue", "hurt").returncode == 0
    output, _ = process.communicate(timeout=60)
    assert process.returncode == 0, output
    assert "hurt finished" in output and "again in" in output
