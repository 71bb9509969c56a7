"""What would happen to what was chosen, and that it is what happens: folders, profiles and facts, without a screen."""

import json
import os
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace

import pytest

from ftui.errors import FtuiError, ProfileError, UsageError
from ftui.launch import open_run
from ftui.launch.open_run import stored_profile, with_run_name
from ftui.profile.consent import keep_consents
from ftui.profile.layers import resolve
from ftui.profile.serialize import to_toml
from ftui.runs.events import RunFailed, RunStopped
from ftui.runs.records.record import Record
from ftui.runs.records.supervisor_records import EngineStarted
from ftui.runs.run_folder import Run, runs_root
from ftui.supervisor import spawn
from ftui.system.process_id import this_process
from ftui.tui.state import launch_plan
from ftui.tui.state.launch_plan import (
    LaunchOptions,
    LaunchPlan,
    carry_out,
    check_new_name,
    fitting_options,
    plan_launch,
    split_overrides,
    with_overrides,
)
from ftui.tui.state.resolved_values import Value
from tests.support import shelf

PROFILE = '[run]\nstage = "sft"\n[model]\nname_or_path = "hub/model"\n[data]\ntrain = "rows.jsonl"\n'
FAILED = RunFailed(message="row 3 is empty", hint="", exit_code=31, error="")


@pytest.fixture(autouse=True)
def places(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Nobody's own runs, no supervisor, and a machine whose logind ends nothing."""
    monkeypatch.setenv("FTUI_RUNS", str(tmp_path / "runs"))
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    for room in (open_run, spawn):
        monkeypatch.setattr(room, "launch", lambda run, lock=None, cards=(): None)
    monkeypatch.setattr(launch_plan, "kills_on_logout", lambda: None)
    before = os.umask(0o022)
    yield
    os.umask(before)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    path = tmp_path / "mine.toml"
    path.write_text(PROFILE)
    path.with_name("rows.jsonl").touch()
    return path


def with_profile(run: Run, path: Path) -> Run:
    run.profile.write_text(to_toml(with_run_name(resolve(path).profile, run.name)))
    return run


@pytest.fixture
def parked(path: Path) -> Run:
    """With checkpoints 4, 8 and 12 of 40 steps."""
    return ended(path, RunStopped(step=12, reason="on request", exit_code=11))


def ended(path: Path, record: Record | None) -> Run:
    run = with_profile(shelf.trained(runs_root() / "mine"), path)
    if record is not None:
        shelf.tell(run.journal, record)
    return run


def happens(options: LaunchOptions) -> tuple[LaunchPlan, Run]:
    plan = plan_launch(options)
    return plan, carry_out(options, plan)


def changed(plan: LaunchPlan) -> list[Value]:
    return [value for value in plan.values if value.before is not None]


def test_a_profile_without_a_run_starts_one(path: Path) -> None:
    plan, run = happens(LaunchOptions(path, overrides=("train.max_steps=30",)))
    assert plan.act == "start" and run == Run(runs_root() / "mine")
    assert plan.sentence == f"Starts a new run mine in {run.folder}."
    assert stored_profile(run).train.max_steps == 30
    assert run.read_facts().profile_name == "mine"
    [value] = changed(plan)
    assert (value.name, value.text, value.before, value.origin) == ("train.max_steps", "30", '"none"', "--set")
    assert "Number of steps" in value.meaning


def test_every_value_has_its_origin_section_by_section(path: Path) -> None:
    values = plan_launch(LaunchOptions(path)).values
    origins = {value.name: value.origin for value in values}
    assert origins["run.stage"] == "mine.toml:2" and origins["train.seed"] == "default"
    sections = [value.section for value in values]
    assert len(set(sections)) == sum(a != b for a, b in zip(["", *sections], sections, strict=False))
    assert next(value.text for value in values if value.name == "run.name") == '"mine"'


@pytest.mark.parametrize(
    ("record", "words"),
    [
        (RunStopped(step=12, reason="", exit_code=11), "was parked at step 0/40"),
        (RunStopped(step=12, reason="", exit_code=10), "was stopped at step 0/40"),
        (RunStopped(step=12, reason="", exit_code=20), "was pre-empted at step 0/40"),
        (FAILED, "failed at step 0/40"),
        (None, "was lost at step 0/40"),
    ],
)
def test_a_run_that_does_not_live_goes_on(path: Path, record: Record | None, words: str) -> None:
    there = ended(path, record)
    for options in (LaunchOptions(run=there), LaunchOptions(run=there, checkpoint=12), LaunchOptions(path)):
        plan, run = happens(options)
        assert (plan.act, run) == ("resume", there)
        assert plan.sentence == f"mine {words}: it continues from checkpoint-12."
        assert changed(plan) == []


def test_a_command_to_push_with_is_refused_before_anybody_presses_start(path: Path) -> None:
    push = "push.to=command:rclone copy {folder} remote:x"
    with pytest.raises(ProfileError, match="would run a command here") as caught:
        plan_launch(LaunchOptions(path, overrides=(push,)))
    assert "ftui run P --allow push-command" in caught.value.hint
    run = with_profile(shelf.living(runs_root() / "mine"), path)
    assert plan_launch(LaunchOptions(path, overrides=(push,))).act == "attach", "which runs nothing"
    text = to_toml(with_run_name(resolve(path, overrides=(push,)).profile, "other"))
    other = shelf.trained(runs_root() / "other")
    other.profile.write_text(text)
    with pytest.raises(ProfileError, match="nobody has allowed for this run on this machine") as caught:
        plan_launch(LaunchOptions(run=other))
    assert "ftui resume RUN --allow push-command" in caught.value.hint
    keep_consents(stored_profile(other), other.read_facts().run_id)
    assert plan_launch(LaunchOptions(run=other)).act == "resume", "it was consented to"
    assert run.name == "mine"


def test_a_run_that_never_started_starts(path: Path) -> None:
    run = with_profile(shelf.opened(runs_root() / "mine"), path)
    sentence = "mine was opened and never started: it starts from its first step."
    assert plan_launch(LaunchOptions(run=run)).sentence == sentence


def test_a_living_run_is_attached_to_and_keeps_what_it_has(path: Path) -> None:
    there = with_profile(shelf.living(runs_root() / "mine"), path)
    before = there.profile.read_text()
    plan, run = happens(LaunchOptions(path, overrides=("train.seed=7",)))
    assert (plan.act, run) == ("attach", there)
    assert plan.sentence.endswith(": enter attaches to it.") and "mine is running (" in plan.sentence
    assert plan.notes == ("A run that is running keeps what it started with; this differs in train.seed.",)
    assert there.profile.read_text() == before


def test_a_finished_run_is_followed_by_a_new_one(path: Path) -> None:
    with_profile(shelf.finished(runs_root() / "mine"), path)
    plan, run = happens(LaunchOptions(path))
    assert plan.act == "again" and run.name == "mine-2"
    assert plan.sentence == f"mine has finished; a new run mine-2 is started in {run.folder}."
    assert stored_profile(run).run.name == "mine-2" and run.read_facts().parent_run is None
    assert plan_launch(LaunchOptions(path)).sentence.startswith(
        "mine has finished; mine-2 was opened and never started"
    )


def test_other_conduct_goes_on_with_the_same_run(path: Path, parked: Run) -> None:
    plan, run = happens(LaunchOptions(run=parked, overrides=("checkpoint.save_steps=7",)))
    assert (plan.act, run) == ("resume", parked)
    assert [(value.name, value.before) for value in changed(plan)] == [("checkpoint.save_steps", "200")]
    assert stored_profile(run).checkpoint.save_steps == 7


@pytest.mark.parametrize(("checkpoint", "act", "is_fork"), [(None, "resume", False), (8, "fork", False)])
def test_another_number_of_processes_goes_on_with_the_same_batch(
    parked: Run, checkpoint: int | None, act: str, is_fork: bool
) -> None:
    batch = stored_profile(parked).effective_batch
    plan, run = happens(LaunchOptions(run=parked, checkpoint=checkpoint, overrides=("hardware.num_processes=2",)))
    assert plan.act == act and plan.resolved.profile == stored_profile(run)
    assert stored_profile(run).effective_batch == batch and stored_profile(run).hardware.num_processes == 2
    assert [value.name for value in changed(plan)] == ["train.effective_batch", "hardware.num_processes"]
    assert run.read_facts().fork is is_fork
    if act == "resume":
        assert plan.notes[0].startswith(f"A step keeps its {batch} sequences")


def test_other_weights_make_a_child_run(path: Path, parked: Run) -> None:
    for options in (
        LaunchOptions(run=parked, overrides=("train.seed=7",)),
        LaunchOptions(path, overrides=("train.seed=8",)),
    ):
        before = parked.profile.read_text()
        plan, run = happens(options)
        assert plan.act == "fork"
        assert plan.sentence == f"A child run {run.name} continues from checkpoint-12 of mine, which stays as it is."
        assert "cannot resume with different training values" in plan.notes[0]
        facts = run.read_facts()
        assert (facts.parent_name, facts.parent_checkpoint, facts.fork) == ("mine", "checkpoint-12", True)
        assert stored_profile(run).train.seed == int(options.overrides[0][-1])
        assert parked.profile.read_text() == before
    assert run.name == "mine-3"


def test_other_weights_before_the_first_checkpoint_just_begin(path: Path) -> None:
    there = with_profile(shelf.opened(runs_root() / "mine"), path)
    plan, run = happens(LaunchOptions(run=there, overrides=("train.seed=7",)))
    assert (plan.act, run) == ("resume", there) and stored_profile(run).train.seed == 7


def test_an_older_checkpoint_makes_a_child_run(parked: Run) -> None:
    plan, run = happens(LaunchOptions(run=parked, checkpoint=8))
    assert plan.sentence == "A child run mine-2 continues from checkpoint-8 of mine, which stays as it is."
    assert plan.notes == () and changed(plan) == []
    facts = json.loads(run.facts.read_bytes())
    assert (facts["parent_checkpoint"], facts["fork"]) == ("checkpoint-8", False)
    assert [path.name for path in run.checkpoints.iterdir()] == ["checkpoint-8"]


def test_the_newest_checkpoint_of_a_finished_run_makes_a_child_run(path: Path) -> None:
    there = with_profile(shelf.finished(runs_root() / "mine"), path)
    assert plan_launch(LaunchOptions(run=there, checkpoint=12)).act == "fork"


def test_a_child_of_a_living_run_is_warned_of(path: Path) -> None:
    there = with_profile(shelf.living(runs_root() / "mine"), path)
    assert plan_launch(LaunchOptions(run=there, checkpoint=8)).notes == (
        "mine is running: both would share this machine.",
    )


def test_a_damaged_checkpoint_is_passed_over(parked: Run) -> None:
    (parked.checkpoints / "checkpoint-12" / "weights.bin").unlink()
    shelf.folder_of(parked, 16, finite=False)
    assert plan_launch(LaunchOptions(run=parked)).sentence.endswith("continues from checkpoint-8.")
    with pytest.raises(UsageError, match="checkpoint-12 of mine is damaged"):
        happens(LaunchOptions(run=parked, checkpoint=12))


def test_without_a_whole_checkpoint_other_weights_are_refused(parked: Run) -> None:
    for step in (4, 8, 12):
        (parked.checkpoints / f"checkpoint-{step}" / "weights.bin").unlink()
    with pytest.raises(UsageError, match="no valid checkpoint"):
        plan_launch(LaunchOptions(run=parked, overrides=("train.seed=7",)))


def test_a_name_makes_another_run(path: Path, parked: Run) -> None:
    plan, run = happens(LaunchOptions(path, name="other"))
    assert (plan.act, run) == ("start", Run(runs_root() / "other"))
    assert [(value.name, value.origin) for value in plan.values][1] == ("run.name", "--name")
    plan, run = happens(LaunchOptions(run=parked, name="child"))
    assert (plan.act, run.name) == ("fork", "child") and run.read_facts().parent_name == "mine"
    assert plan_launch(LaunchOptions(run=parked, name="mine")).act == "resume"


def test_a_name_for_a_finished_run_starts_with_its_profile(path: Path) -> None:
    there = with_profile(shelf.finished(runs_root() / "mine"), path)
    plan, run = happens(LaunchOptions(run=there, name="other"))
    assert plan.act == "start" and not run.checkpoints.exists()


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("mine", "There is a run mine: it was parked at step 0/40."),
        ("folder", "exists and is not a run"),
        ("A b", "cannot name a run"),
        ("../x", "cannot name a run"),
    ],
)
def test_a_name_that_is_taken_or_unsafe_is_explained(tmp_path: Path, parked: Run, name: str, words: str) -> None:
    other = tmp_path / "other.toml"
    other.write_text(PROFILE)
    (runs_root() / "folder").mkdir()
    with pytest.raises(UsageError, match=words):
        check_new_name(LaunchOptions(other), name)


def test_its_own_name_may_be_given_back(path: Path, parked: Run) -> None:
    for options in (LaunchOptions(path, name="x"), LaunchOptions(run=parked)):
        assert check_new_name(options, " mine ") == "mine"
        assert check_new_name(options, "free") == "free"


def test_several_values_stand_in_one_line(path: Path) -> None:
    text = 'train.max_steps=5  adapter.target_modules=["a b", "c"] data.train = my rows.jsonl'
    new = split_overrides(text)
    assert new == ("train.max_steps=5", 'adapter.target_modules=["a b", "c"]', "data.train = my rows.jsonl")
    assert plan_launch(LaunchOptions(path, overrides=new)).resolved.profile.adapter.target_modules == ("a b", "c")
    with_overrides(LaunchOptions(path), text)
    assert split_overrides("  ") == ()


@pytest.mark.parametrize(
    ("text", "words"),
    [("max_steps=3", "write section.key=value"), ("train.lr=1", "no such key"), ("train.seed=x", "train.seed")],
)
def test_a_value_that_does_not_fit_is_refused(path: Path, text: str, words: str) -> None:
    with pytest.raises(FtuiError, match=words):
        with_overrides(LaunchOptions(path), text)


def test_an_override_may_be_what_makes_a_profile_whole(tmp_path: Path) -> None:
    path = tmp_path / "half.toml"
    path.write_text(PROFILE.replace('train = "rows.jsonl"', ""))
    with pytest.raises(ProfileError, match=r"data\.train"):
        plan_launch(LaunchOptions(path))
    assert plan_launch(LaunchOptions(path, overrides=("data.train=x.jsonl",))).act == "start"


def test_what_has_changed_meanwhile_is_not_done(path: Path, parked: Run) -> None:
    shown = plan_launch(LaunchOptions(run=parked))
    with_profile(shelf.finished(runs_root() / "other"), path)
    shelf.tell(parked.journal, RunStopped(step=12, reason="", exit_code=11), attempt=1)
    shelf.tell(parked.supervisor_log, EngineStarted(identity=this_process()), attempt=2)
    assert carry_out(LaunchOptions(run=parked), shown) == parked, "it lives by now: that is attached to"
    with pytest.raises(UsageError, match="Things have changed"):
        carry_out(LaunchOptions(run=Run(runs_root() / "other")), shown)


def test_a_logout_that_would_end_it_is_warned_of(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(launch_plan, "kills_on_logout", lambda: "systemd ends everything")
    assert plan_launch(LaunchOptions(path)).notes == ("systemd ends everything",)
    with_profile(shelf.living(runs_root() / "mine"), path)
    assert plan_launch(LaunchOptions(path)).notes == ()


@pytest.mark.parametrize(
    ("num_cards", "keys", "changes"),
    [
        (4, ("hardware.shard=all",), ()),
        (0, (), ()),  # on a CPU
        (2, (), ("hardware.num_processes=2",)),
        (1, ("hardware.shard=all",), ("hardware.num_processes=1", "hardware.shard=none")),
        (3, ("hardware.shard=all", "hardware.dp_shard_size=2"),
         ("hardware.num_processes=3", "hardware.dp_shard_size=none")),
    ],
)  # fmt: skip
def test_a_run_that_wakes_among_fewer_gpus_is_proposed_what_fits(
    num_cards: int, keys: tuple[str, ...], changes: tuple[str, ...], path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """And that is obeyed: the changed run can be planned."""
    added = '\n[adapter]\nmethod = "lora"\n'
    path.write_text(PROFILE + added)
    run = with_profile(shelf.trained(runs_root() / "mine"), path)
    run.profile.write_text(
        to_toml(with_run_name(resolve(path, overrides=("hardware.num_processes=4", *keys)).profile, run.name))
    )
    shelf.tell(run.journal, RunStopped(step=12, reason="on request", exit_code=11))
    machine = SimpleNamespace(cards=[SimpleNamespace(kind="cuda")] * num_cards)
    machine.card = SimpleNamespace(kind="cuda" if num_cards else "cpu")
    monkeypatch.setattr(launch_plan, "find_machine", lambda: machine)
    plan = plan_launch(LaunchOptions(run=run))
    fitting = fitting_options(LaunchOptions(run=run), plan)
    assert (plan.act, fitting.overrides) == ("resume", changes)
    again = plan_launch(fitting)
    assert again.act == "resume" and fitting_options(fitting, again) == fitting
