"""A fork goes on from its parent's state with other values, says so, and refuses what cannot fit."""

from pathlib import Path
from typing import Any

import msgspec
import pytest

from ftui.engine.checkpoints.resume import reset_fork
from ftui.engine.recipe import train
from ftui.engine.runtime.control_flags import Control
from ftui.engine.runtime.event_writer import EventWriter
from ftui.engine.runtime.request_inbox import RequestInbox
from ftui.engine.system.train_state import Setting, TrainState
from ftui.errors import DataError, ModelError, ProfileError
from ftui.launch.fork import describe_epochs
from ftui.profile.layers import resolve
from ftui.profile.serialize import to_toml
from ftui.runs.checkpoint_folders import checkpoints_in, discard, link_copy
from ftui.runs.events import RunStarted, Step, Warned
from ftui.runs.journal import Tail
from ftui.runs.run_folder import Run, RunFacts
from tests.support.tiny import chats, make_profile, train_run, write_rows

SECTIONS: dict[str, dict[str, Any]] = {
    "adapter": {"method": "lora", "r": 4},
    "train": {"precision": "fp32", "seed": 5, "max_steps": 6, "learning_rate": 1e-3},
    "checkpoint": {"save_steps": 3, "save_minutes": None},
}


@pytest.fixture
def parent(model_folder: Path, tmp_path: Path) -> Run:
    rows = write_rows(tmp_path / "rows.jsonl", chats(24))
    train_run(tmp_path / "parent", make_profile(model_folder, rows, **SECTIONS))
    return Run(tmp_path / "parent")


def child(parent: Run, model: Path, *, rows: Path | None = None, fork: bool = True, **changes: Any) -> Run:
    """Train a child from checkpoint-3 with changed keys (`section__key=value`)."""
    sections = {name: dict(values) for name, values in SECTIONS.items()}
    for key, value in changes.items():
        section, _, name = key.partition("__")
        sections[section][name] = value
    run = Run(parent.folder.with_name("child"))
    run.folder.mkdir()
    profile = make_profile(model, rows or parent.folder.parent / "rows.jsonl", **sections)
    run.profile.write_text(to_toml(profile))
    facts = RunFacts(
        run_id="fedcba9876543210", name="child", created=0.0, profile_name="test",
        parent_run=parent.read_facts().run_id, parent_name="parent", parent_checkpoint="checkpoint-3", fork=fork,
    )  # fmt: skip
    run.facts.write_bytes(msgspec.json.encode(facts))
    link_copy(parent.checkpoints / "checkpoint-3", run.checkpoints / "checkpoint-3")
    events, control = EventWriter(run, attempt=1, token="test"), Control()
    control.open(RequestInbox(run, events))
    assert train(run, profile, events, control) == 0
    return run


def steps(run: Run) -> list[Step]:
    return [record for record in Tail(run.metrics).read() if isinstance(record, Step)]


def begun(run: Run) -> RunStarted:
    return next(record for record in Tail(run.journal).read() if isinstance(record, RunStarted))


def test_a_child_with_the_same_values_is_its_parent(parent: Run, model_folder: Path) -> None:
    run = child(parent, model_folder, fork=False)
    assert [(s.step, s.loss, s.grad_norm) for s in steps(run)] == [
        (s.step, s.loss, s.grad_norm) for s in steps(parent)[3:]
    ]
    assert (begun(run).reproducibility, begun(run).resumed_from) == ("EXACT", "checkpoints/checkpoint-3")


def test_a_fork_goes_on_with_other_values_and_says_so(parent: Run, model_folder: Path) -> None:
    run = child(parent, model_folder, train__learning_rate=5e-3, train__max_steps=8)
    assert [s.step for s in steps(run)] == [4, 5, 6, 7, 8]
    assert steps(run)[0].loss == steps(parent)[3].loss, "the fourth step begins from the same weights"
    assert steps(run)[0].learning_rate > 2 * steps(parent)[3].learning_rate
    assert begun(run).reproducibility == "NOT EXACT" and "profile" in begun(run).reproducibility_reasons[0]


@pytest.mark.parametrize(
    ("batch", "epochs"),
    [(2, 1), (8, 1), (8, 3)]
    + [pytest.param(batch, epochs, marks=pytest.mark.slow) for batch in (1, 3, 4, 16) for epochs in (1, 3)],
)
def test_the_epochs_of_a_fork_are_those_of_the_rows_seen(
    batch: int, epochs: int, parent: Run, model_folder: Path
) -> None:
    """Its parent saw 12 of 24 rows in three steps; it says what it comes to before it starts, and comes to that."""
    changes: dict[str, Any] = {
        "train__per_device_train_batch_size": batch,
        "train__num_train_epochs": epochs,
        "train__max_steps": None,
    }
    if epochs * 24 / batch <= 3:
        with pytest.raises(ProfileError, match="would end at step"):
            child(parent, model_folder, **changes)
        return
    run = child(parent, model_folder, **changes)
    per_epoch, before = -(-24 // batch), steps(parent)[2].epoch
    assert before == 0.5
    assert [s.epoch for s in steps(run)] == pytest.approx(
        [before + n / per_epoch for n in range(1, len(steps(run)) + 1)]
    )
    (origin,) = [c for c in checkpoints_in(parent.checkpoints) if c.step == 3]
    words = describe_epochs(parent, origin, resolve(run.profile).profile, ["train.per_device_train_batch_size"])
    assert (words == "") == (batch == 4)
    assert not words or f"after {steps(run)[-1].epoch:.2f}" in words
    assert [r.message for r in Tail(run.journal).read() if isinstance(r, Warned) and "epochs" in r.message] == (
        [words] if words else []
    )
    assert begun(run).epoch_shift == pytest.approx(before - 3 / per_epoch)


def test_killed_after_it_was_forked_it_counts_on(parent: Run, model_folder: Path) -> None:
    run = child(parent, model_folder, train__per_device_train_batch_size=2, train__max_steps=9)
    whole = [step.epoch for step in steps(run)]
    discard(run.checkpoints / "checkpoint-9")
    events, control = EventWriter(run, attempt=2, token="test"), Control()
    control.open(RequestInbox(run, events))
    assert train(run, resolve(run.profile).profile, events, control) == 0
    again = [step.epoch for step in steps(run) if step.attempt == 2]
    assert again and again == whole[-len(again) :]


def test_other_rows_need_a_fork(parent: Run, model_folder: Path, tmp_path: Path) -> None:
    other = write_rows(tmp_path / "other.jsonl", chats(30))
    with pytest.raises(DataError, match="the training rows changed"):
        child(parent, model_folder, rows=other, fork=False)
    (tmp_path / "child").rename(tmp_path / "refused")
    assert "data" in begun(child(parent, model_folder, rows=other)).reproducibility_reasons[0]


def test_weights_of_another_shape_are_refused_by_name(parent: Run, model_folder: Path) -> None:
    with pytest.raises(ModelError, match="does not fit the forked model"):
        child(parent, model_folder, adapter__r=8)


def test_an_end_before_the_beginning_is_refused(parent: Run, model_folder: Path) -> None:
    with pytest.raises(ProfileError, match="would end at step 3"):
        child(parent, model_folder, train__max_steps=3)


def test_another_optimizer_begins_with_new_moments(parent: Run, model_folder: Path) -> None:
    """From AdamW to SGD and its momentum: neither has anything that the other could go on from."""
    run = child(parent, model_folder, train__optim="sgd", train__optim_args={"momentum": 0.9})
    assert [step.step for step in steps(run)] == [4, 5, 6]


def test_what_requests_and_a_plateau_made_of_the_rate_stays_with_the_parent() -> None:
    state = TrainState(plateau={"rate": 1e-5}, settings=[Setting(3, "learning_rate_factor", 0.5)], best_loss=1.0)
    reset_fork(state, ["profile"])
    assert (state.plateau, state.settings, state.best_loss) == ({}, [], 1.0)


def test_a_fork_has_patience_of_its_own() -> None:
    """That of a parent that was stopped early is at its end."""
    state = TrainState(bad_evaluations=3, bad_steps=2)
    reset_fork(state, ["profile"])
    assert (state.bad_evaluations, state.bad_steps) == (0, 0)


def test_a_best_of_another_reward_model_or_measure_is_forgotten() -> None:
    """Another function, weight or metric gives values on another scale; the same go on."""

    def best() -> TrainState:
        return TrainState(best_metric=9.0, best_step=2, bad_evaluations=1, evaluated_step=3, measured_by="one")

    state = best()
    reset_fork(state, ["profile", "reward_model"])
    assert (state.best_metric, state.best_step, state.evaluated_step) == (None, None, -1)
    state = best()
    state.measure_by("one")
    assert (state.best_metric, state.best_step, state.bad_evaluations) == (9.0, 2, 1)
    state.measure_by("other")
    assert (state.best_metric, state.best_step, state.bad_evaluations) == (None, None, 0)
    assert (state.evaluated_step, state.measured_by) == (-1, "other")
