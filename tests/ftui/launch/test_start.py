"""The table of `ftui --run P`, and what is written when a run is made or resumed."""

import os
import shlex
import stat
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import msgspec
import pytest

from ftui.errors import LostRunError, ProfileError, UsageError
from ftui.launch import open_run as opening
from ftui.launch.open_run import check_moved_files, create, decide, open_run, pending_changes, resume, stored_profile
from ftui.profile.layers import ResolvedProfile, resolve
from ftui.profile.serialize import weights_difference
from ftui.runs import status
from ftui.runs.events import RunFailed, RunFinished
from ftui.runs.records.supervisor_records import EngineStarted
from ftui.runs.run_folder import Run, all_runs, runs_root
from ftui.runs.state import how_to_continue
from ftui.runs.status import read_status
from ftui.supervisor.spawn import launch
from ftui.system.process_id import Identity, this_process
from tests.support.events import make_run_started, make_run_stopped


@pytest.fixture
def profile(tmp_path: Path) -> Any:
    """Makes a resolved profile: `profile("train.seed=1")`."""
    path = tmp_path / "p.toml"
    path.write_text('[run]\nstage = "sft"\n[model]\nname_or_path = "hub/model"\n[data]\ntrain = "rows.jsonl"\n')
    path.with_name("rows.jsonl").touch()

    def make(*overrides: str) -> ResolvedProfile:
        return resolve(path, overrides=overrides)

    return make


@pytest.fixture
def ended(make_run: Any, append: Any, dead: Identity) -> Any:
    """Makes a run whose only attempt came to this end (None: to none), in training unless told otherwise."""

    def make(record: Any, name: str = "mine", *, has_begun: bool = True) -> Run:
        run: Run = make_run(name)
        append(run.supervisor_log, EngineStarted(identity=dead), attempt=1)
        if has_begun:
            append(run.journal, make_run_started(), attempt=1)
        if record is not None:
            append(run.journal, record, attempt=1)
        return run

    return make


FINISHED = RunFinished(step=1, reason="", final="final")
FAILED = RunFailed(message="m", hint="", exit_code=31, error="")


@pytest.mark.parametrize(
    ("record", "decision"),
    [
        (FINISHED, "finished"),
        (make_run_stopped(10), "finished"),
        (make_run_stopped(11), "resume"),
        (make_run_stopped(20), "resume"),
        (make_run_stopped(21), "resume"),
        (FAILED, "resume"),
        (None, "resume"),
    ],
)
def test_what_is_done_about_a_run_that_does_not_live(ended: Any, record: Any, decision: str) -> None:
    run = ended(record)
    assert decide(run.folder) == (run, decision)


@pytest.mark.parametrize(
    "record",
    [
        *(RunFailed(message="m", hint="", exit_code=code, error="") for code in (30, 31, 32, 33, 40, 41, 43, 70)),
        make_run_stopped(10, step=0, reason="stopped before training began"),
        make_run_stopped(10, step=0, reason="aborted before training began"),
        make_run_stopped(11, step=0, reason="parked before training began"),
        make_run_stopped(21, step=0, reason="pre-empted (SIGTERM) before training began"),
        None,
    ],
)
def test_a_run_that_never_began_to_train_does_not_hold_its_name(record: Any, ended: Any, profile: Any) -> None:
    """Whatever kept it from that was mended in the profile: the same name starts it with the new values."""
    run = ended(record, has_begun=False)
    run.profile.write_bytes(profile("model.name_or_path=hub/misspelt").path.read_bytes())
    assert decide(run.folder) == (run, "resume")
    resume(run, profile("model.name_or_path=hub/right", "train.learning_rate=0.1").profile)
    assert stored_profile(run).model.name_or_path == "hub/right"
    assert record is not None or "starts it again" in how_to_continue(read_status(run).state)


def test_an_absent_run_is_started() -> None:
    assert decide(runs_root() / "mine")[1] == "start"


def test_a_living_run_is_attached_to(make_run: Any, append: Any, living: Identity) -> None:
    run = make_run("mine")
    append(run.supervisor_log, EngineStarted(identity=living), attempt=1)
    assert decide(run.folder) == (run, "attach")
    assert decide(run.folder, again=True) == (run, "attach")


def test_again_goes_on_to_the_first_name_that_is_not_over(ended: Any) -> None:
    first = ended(FINISHED)
    assert decide(first.folder, again=True) == (Run(runs_root() / "mine-2"), "start")
    second = ended(make_run_stopped(20), "mine-2")
    assert decide(first.folder, again=True) == (second, "resume")
    ended(FINISHED, "mine-3")
    assert decide(first.folder, again=True) == (second, "resume")
    long = ended(FINISHED, "x" * 64)
    assert decide(long.folder, again=True)[0].name == "x" * 62 + "-2"


def test_a_run_that_beats_on_another_machine_is_refused(
    make_run: Any, append: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(status, "BEAT_SECONDS", 0.01)
    run = make_run("mine")
    append(run.supervisor_log, EngineStarted(identity=msgspec.structs.replace(this_process(), boot="x")), attempt=1)
    run.beat.write_bytes(b"1")
    assert decide(run.folder)[1] == "resume"
    monkeypatch.setattr(time, "sleep", lambda seconds: run.beat.write_bytes(b"2"))
    with pytest.raises(LostRunError, match="another machine"):
        decide(run.folder)


def test_a_run_is_made_whole_private_and_known(profile: Any) -> None:
    os.umask(0)
    run = Run(runs_root() / "mine")
    assert create(run, profile("train.seed=7"))
    modes = {path.name: stat.S_IMODE(path.stat().st_mode) for path in run.folder.iterdir()}
    assert modes == {"profile.toml": 0o600, "run.json": 0o600}
    assert stat.S_IMODE(run.folder.stat().st_mode) == stat.S_IMODE(runs_root().stat().st_mode) == 0o700
    stored = stored_profile(run)
    assert stored.train.seed == 7
    assert stored.run.name == "mine"
    assert stored.data.train == str(run.folder.parents[1] / "rows.jsonl")
    facts = run.read_facts()
    assert (facts.name, facts.profile_name, len(facts.run_id)) == ("mine", "p", 16)
    assert all_runs() == [run]


def test_the_loser_of_a_race_finds_the_winners_run(profile: Any) -> None:
    run = Run(runs_root() / "mine")
    assert create(run, profile())
    winner = run.facts.read_bytes()
    assert not create(run, profile("train.seed=7"))
    assert run.facts.read_bytes() == winner
    assert [path.name for path in runs_root().iterdir()] == ["mine"]


def test_a_folder_that_is_not_a_run_is_not_touched(profile: Any) -> None:
    folder = runs_root() / "mine"
    folder.mkdir(parents=True)
    (folder / "thesis.txt").write_text("x")
    with pytest.raises(UsageError, match="not a run"):
        create(Run(folder), profile())
    assert [path.name for path in runs_root().iterdir()] == ["mine"]


def test_resuming_takes_over_what_does_not_touch_the_weights(profile: Any) -> None:
    run = Run(runs_root() / "mine")
    create(run, profile())
    (run.checkpoints / "checkpoint-5").mkdir(parents=True)
    resume(run, profile("log.logging_steps=3", "data.train=moved/rows.jsonl").profile)
    assert stored_profile(run).log.logging_steps == 3
    assert str(stored_profile(run).data.train).endswith("moved/rows.jsonl")
    assert stored_profile(run).run.name == "mine"


@pytest.mark.parametrize(
    "overrides",
    [
        ["train.per_device_train_batch_size=8", "train.optim=sgd"],
        ["train.max_steps=none", "train.num_train_epochs=2.5", 'eval.sample_prompts=["a b", "c"]'],
        ["data.train=other.jsonl", "adapter.method=lora", "adapter.rank_pattern={q_proj = 4}"],
        ['data.train=["rows.jsonl", "b.jsonl"]', 'curriculum=[{order = "ascending"}, {fraction = 0.5}]'],
    ],
)
def test_the_command_for_a_moved_file_keeps_what_was_set(
    overrides: list[str], profile: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    for name in ("other.jsonl", "b.jsonl", "now/eval.jsonl"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).touch()
    asked = profile(*overrides, "data.eval=eval.jsonl")
    with pytest.raises(ProfileError) as refused:
        check_moved_files(asked, "ftui", "resume", "mine", "--fork")
    words = shlex.split(refused.value.hint.partition(": ")[2].partition("\n")[0].replace("PLACE", "now"))
    assert words[:4] == ["ftui", "resume", "mine", "--fork"] and not set(words[4::2]) - {"--set"}
    obeyed = profile(*[override for override in overrides if "data.train" in override], *words[5::2])
    assert not obeyed.missing_files and not weights_difference(asked.profile, obeyed.profile)


def test_resuming_with_other_weights_is_refused_with_the_difference(profile: Any) -> None:
    run = Run(runs_root() / "mine")
    create(run, profile())
    (run.checkpoints / "checkpoint-5").mkdir(parents=True)
    before = run.profile.read_bytes()
    with pytest.raises(ProfileError, match=r"train\.learning_rate: 0\.0002 -> 0\.1") as caught:
        resume(run, profile("train.learning_rate=0.1").profile)
    assert "--name" in caught.value.hint
    assert run.profile.read_bytes() == before


def test_before_its_first_checkpoint_a_run_may_still_change(profile: Any) -> None:
    run = Run(runs_root() / "mine")
    create(run, profile())
    resume(run, profile("train.learning_rate=0.1").profile)
    assert stored_profile(run).train.learning_rate == 0.1


def test_what_a_living_run_does_not_take_over(profile: Any) -> None:
    run = Run(runs_root() / "mine")
    create(run, profile())
    assert pending_changes(run, profile().profile) == []
    assert pending_changes(run, profile("log.logging_steps=3").profile) == ["log.logging_steps"]


def test_opening_starts_a_supervisor_only_where_one_is_needed(
    profile: Any, monkeypatch: pytest.MonkeyPatch, append: Any, living: Identity, dead: Identity
) -> None:
    launched: list[Run] = []
    monkeypatch.setattr(opening, "launch", lambda run, lock, cards: launched.append(run))
    folder = runs_root() / "mine"
    opened = open_run(folder, profile())
    assert (opened.decision, opened.history, launched) == ("start", 0, [opened.run])
    opened = open_run(folder, profile())
    assert (opened.decision, opened.history, len(launched)) == ("resume", 0, 2)
    append(opened.run.supervisor_log, EngineStarted(identity=dead), attempt=1)
    opened = open_run(folder, profile())
    assert (opened.before.phase, opened.history, len(launched)) == ("lost", 1, 3)
    append(opened.run.supervisor_log, EngineStarted(identity=living), attempt=2)
    opened = open_run(folder, profile())
    assert (opened.decision, opened.history, len(launched)) == ("attach", 1, 3)


def test_a_supervisor_is_launched_apart_from_this_terminal(make_run: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    run = make_run("mine")
    seen: dict[str, Any] = {}
    real = subprocess.Popen

    def spy(command: list[str], **options: Any) -> Any:
        seen.update(options, command=command)
        code = "import os, sys; print(os.getsid(0) == os.getpid(), sys.stdin.read() == '', os.getcwd())"
        return real([sys.executable, "-S", "-c", code], **options)

    monkeypatch.setattr(subprocess, "Popen", spy)
    for name, value in (("FTUI_CACHE", "cache"), ("HF_HOME", "/hub"), ("HF_HUB_CACHE", "")):
        monkeypatch.setenv(name, value)
    assert launch(run).wait(60) == 0
    told = [seen["env"][name] for name in ("FTUI_CACHE", "HF_HOME", "HF_HUB_CACHE")]
    assert told == [str(Path.cwd() / "cache"), "/hub", ""], "as they are meant here, not in the run's folder"
    assert seen["command"] == [sys.executable, "-P", "-m", "ftui.supervisor", str(run.folder)]
    log = run.folder / "supervisor.log"
    assert log.read_text() == f"True True {run.folder}\n"
    assert stat.S_IMODE(log.stat().st_mode) == 0o600
