"""Hooks: each event once, on record before it runs, and what goes wrong in words."""

import os
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from ftui.errors import DiskFullError
from ftui.hooks.hook_events import HookEvent, ending_of, environment_of
from ftui.hooks.hook_runner import CUT_SHORT, HookRunner
from ftui.hooks.hook_settings import HookSettings, read_hook_settings
from ftui.hooks.run_command import run_command
from ftui.runs.events import CheckpointSaved, EvaluationDone
from ftui.runs.journal import Tail, Writer
from ftui.runs.records.hook_records import JOURNAL, HookBegan, HookEnded
from ftui.runs.run_folder import Run
from ftui.runs.state import RunState

SAY = ["sh", "-c", 'echo "$FTUI_EVENT $FTUI_STEP $FTUI_EVAL_LOSS" >> said']


@pytest.fixture
def run(make_run: Any) -> Run:
    made: Run = make_run("mine")
    made.hooks.mkdir()
    return made


def saved(step: int) -> CheckpointSaved:
    return CheckpointSaved(step=step, path=f"checkpoints/checkpoint-{step}", tags=[], num_bytes=1, seconds=0.1)


def evaluated(step: int) -> EvaluationDone:
    return EvaluationDone(step=step, epoch=0.1, loss=1.5, num_target_tokens=1, seconds=0.1, best=True)


def runner(run: Run, **commands: list[str]) -> HookRunner:
    return HookRunner(run, HookSettings(commands), Writer(run.hooks / JOURNAL))


def hook_records(run: Run) -> list[Any]:
    return Tail(run.hooks / JOURNAL).read()


def said(run: Run) -> list[str]:
    path = run.folder / "said"
    return path.read_text().split("\n")[:-1] if path.exists() else []


def test_each_event_runs_its_command_once_whoever_looks(run: Run, append: Any) -> None:
    (run.checkpoints / "checkpoint-3").mkdir(parents=True)
    hooks = runner(run, checkpoint=SAY, evaluated=SAY)
    append(run.journal, evaluated(3), saved(3), attempt=1)
    hooks.look()
    hooks.look()
    assert said(run) == ["evaluated 3 1.5", "checkpoint 3 "]
    runner(run, checkpoint=SAY, evaluated=SAY).look()  # another process, after this one was killed
    assert len(said(run)) == 2
    append(run.journal, evaluated(3), attempt=2)  # the same step of another attempt is another event
    runner(run, checkpoint=SAY, evaluated=SAY).look()
    assert said(run)[2:] == ["evaluated 3 1.5"]
    assert [(record.event, record.attempt) for record in hook_records(run) if isinstance(record, HookBegan)] == [
        ("evaluated", 1), ("checkpoint", 1), ("evaluated", 2),
    ]  # fmt: skip


def test_a_checkpoint_that_is_gone_by_now_has_no_hook(run: Run, append: Any) -> None:
    append(run.journal, saved(3), attempt=1)
    runner(run, checkpoint=SAY).look()
    assert said(run) == [] and hook_records(run) == []


def test_one_that_was_cut_short_is_told_and_not_repeated(run: Run, append: Any) -> None:
    append(run.journal, evaluated(3), attempt=1)
    append(run.hooks / JOURNAL, HookBegan(event="evaluated", step=3, command=SAY), attempt=1)
    runner(run, evaluated=SAY).look()
    *_, ended = hook_records(run)
    assert isinstance(ended, HookEnded) and ended.problem == CUT_SHORT and said(run) == []


def test_what_cannot_be_put_on_record_does_not_run_until_it_can(
    run: Run, append: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*arguments: Any, **options: Any) -> None:
        raise DiskFullError("full", hint="")

    append(run.journal, evaluated(3), attempt=1)
    hooks = runner(run, evaluated=SAY)
    with monkeypatch.context() as patch:
        patch.setattr(Writer, "write", full)
        hooks.look()
        assert said(run) == []
    hooks.look()
    assert said(run) == ["evaluated 3 1.5"]


@pytest.mark.parametrize(
    ("words", "problem"),
    [
        (["true"], ""),
        (["sh", "-c", "exit 3"], "ended with exit code 3"),
        (["sh", "-c", "kill -9 $$"], "was killed by SIGKILL"),
        (["no-such-program-at-all"], "could not be started"),
        (["echo", "$NO_SUCH_VARIABLE"], "was not run: there is no environment variable NO_SUCH_VARIABLE"),
        (["sh", "-c", "sleep 600 & sleep 600"], "was ended after"),
    ],
)
def test_what_goes_wrong_is_told(words: list[str], problem: str, tmp_path: Path) -> None:
    found = run_command(words, {}, tmp_path, 0.5 if "ended after" in problem else 60.0)
    assert found.startswith(problem) and bool(found) == bool(problem)


def test_a_variable_stays_one_word_and_no_shell_reads_it(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    code = "import sys; print(sys.argv[1:])"
    assert run_command([sys.executable, "-c", code, "$IT", "${IT}", "a$IT"], {"IT": "x; rm *"}, tmp_path, 60.0) == ""
    assert capsys.readouterr().out == "['x; rm *', 'x; rm *', 'a$IT']\n"


def test_its_output_is_bounded(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run_command([sys.executable, "-c", "print(('x' * 1023 + '\\n') * 3000)"], {}, tmp_path, 60.0) == ""
    assert 1 << 20 <= len(capsys.readouterr().out) < (1 << 20) + 2048


def test_a_command_that_leaves_something_running_has_ended(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("ftui.hooks.run_command.AFTER_SECONDS", 0.05)
    begun = time.monotonic()
    assert run_command(["sh", "-c", "sleep 600 & echo $! > pid"], {}, tmp_path, 300.0) == ""
    assert time.monotonic() - begun < 60
    os.kill(int((tmp_path / "pid").read_text()), 9)


def test_what_a_command_learns_of_the_end(run: Run) -> None:
    run.final.mkdir()
    event = ending_of(run, RunState(phase="finished", exit_code=0, attempt=2, step=9))
    assert environment_of(run, event) == {
        "FTUI_RUN": str(run.folder), "FTUI_NAME": "mine", "FTUI_EVENT": "ended", "FTUI_ATTEMPT": "2",
        "FTUI_STEP": "9", "FTUI_PHASE": "finished", "FTUI_EXIT": "0", "FTUI_FINAL": str(run.final),
    }  # fmt: skip
    assert ending_of(run, RunState(phase="failed", exit_code=51)).name == "failed"
    assert ending_of(run, RunState(phase="parked", exit_code=11)).name == "ended"


def test_what_is_read_of_the_profile(run: Run) -> None:
    assert read_hook_settings(run) == HookSettings()
    run.profile.write_text(
        '[push]\nto = "hub:us/mine"\n[notify]\nurls = ["env:NTFY"]\n[hooks]\nended = ["a", "b"]\nthen_stop = ["c"]\n'
        'timeout_minutes = 0.5\nthen_stop_after = ["finished", "parked"]\nthen_stop_requires = "none"\n'
    )
    settings = read_hook_settings(run)
    assert (settings.commands, settings.then_stop, settings.timeout_seconds) == ({"ended": ["a", "b"]}, ("c",), 30.0)
    assert settings.required("finished") == ("pushed", "verified") and settings.required("parked") == ()
    assert settings.addresses == ("NTFY",)
    assert HookSettings(push_to="command:x {folder}").required("finished") == ("pushed",)
    assert HookSettings(push_to="hub:a/b", requires=("hooks",)).required("parked") == ("hooks",)


def test_an_event_is_the_same_when_it_is_read_again() -> None:
    first, again = (HookEvent("checkpoint", 1, 3, {"FTUI_CHECKPOINT": where}) for where in ("/a", "/b"))
    assert first.key == again.key != HookEvent("checkpoint", 2, 3).key
