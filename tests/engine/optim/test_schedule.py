"""The learning rate's curve, step by step against transformers' own."""

import inspect
import math
from pathlib import Path
from typing import Any, cast, get_args

import msgspec
import pytest
import torch
from hypothesis import given as given_values
from hypothesis import strategies as st
from pydantic import ValidationError
from torch.optim.lr_scheduler import ReduceLROnPlateau
from transformers import SchedulerType, TrainingArguments, get_scheduler
from transformers.optimization import TYPE_TO_SCHEDULER_FUNCTION

from ftui.engine.optim.plateau import note_metric, remaining_share
from ftui.engine.optim.schedule import learning_rate_curve, warmup_steps
from ftui.engine.system.train_state import TrainState
from ftui.engine.training.prepare import prepare
from ftui.errors import ProfileError
from ftui.profile.layers import resolve
from ftui.profile.sections.schedulers import NOT_OFFERED, PLATEAU, TAKES, Scheduler, explicit_values
from ftui.profile.sections.train import TrainSection
from ftui.profile.serialize import fingerprint, to_toml, weights_difference
from ftui.system.user_folders import cache_folder
from tests.support.refused import refused
from tests.support.tiny import chats, make_profile, write_rows

MAX_STEPS = 37
CURVES: list[tuple[str, dict[str, Any]]] = [
    ("linear", {}),
    ("cosine", {}),
    ("cosine", {"num_cycles": 1.5}),
    ("cosine_with_restarts", {}),
    ("cosine_with_restarts", {"num_cycles": 3}),
    ("polynomial", {}),
    ("polynomial", {"power": 2.0, "lr_end": 1e-5}),
    ("constant_with_warmup", {}),
    ("inverse_sqrt", {}),
    ("inverse_sqrt", {"timescale": 50}),
    ("cosine_with_min_lr", {"min_lr": 3e-5}),
    ("cosine_with_min_lr", {"min_lr_rate": 0.1, "num_cycles": 0.75}),
    ("cosine_warmup_with_min_lr", {"min_lr": 3e-5}),
    ("cosine_warmup_with_min_lr", {"min_lr_rate": 0.1, "warmup_lr_rate": 0.2}),
    ("warmup_stable_decay", {"num_decay_steps": 9}),
    ("warmup_stable_decay", {"num_decay_steps": 5, "num_stable_steps": 3, "min_lr_ratio": 0.1}),
    ("warmup_stable_decay", {"num_decay_steps": 9, "warmup_type": "cosine", "decay_type": "1-sqrt"}),
    ("warmup_stable_decay", {"num_decay_steps": 9, "warmup_type": "1-sqrt", "decay_type": "linear"}),
    ("warmup_stable_decay", {"num_decay_steps": 9, "num_cycles": 1.5}),
]


def section(kind: str, kwargs: dict[str, Any], **more: Any) -> TrainSection:
    return TrainSection.model_validate({"lr_scheduler_type": kind, "lr_scheduler_kwargs": kwargs or None, **more})


@pytest.mark.filterwarnings("ignore:Both num_training_steps and num_stable_steps")  # theirs, told both
@pytest.mark.parametrize("warmup", [0, 0.1, 0.5, 1, 5, 28])
@pytest.mark.parametrize(("kind", "kwargs"), CURVES)
def test_the_curve_is_that_of_transformers(kind: str, kwargs: dict[str, Any], warmup: float) -> None:
    """Step by step as the Trainer takes it: the rate is read, the optimizer steps, the schedule steps."""
    curve = learning_rate_curve(section(kind, kwargs, warmup_steps=float(warmup), learning_rate=3e-4), MAX_STEPS)
    optimizer = torch.optim.AdamW([torch.nn.Parameter(torch.ones(1))], lr=3e-4)
    num_warmup = TrainingArguments(warmup_steps=warmup, use_cpu=True).get_warmup_steps(MAX_STEPS)
    schedule = get_scheduler(kind, optimizer, num_warmup, MAX_STEPS, scheduler_specific_kwargs=kwargs)
    for step in range(1, MAX_STEPS + 1):
        assert curve(step) == schedule.get_last_lr()[0], f"step {step}"
        optimizer.step()
        schedule.step()


def test_every_curve_of_transformers_is_offered_or_refused_with_a_reason() -> None:
    assert set(get_args(Scheduler)) | NOT_OFFERED.keys() == {kind.value for kind in SchedulerType}
    assert {kind for kind, _ in CURVES} | {"constant", PLATEAU} == set(get_args(Scheduler)) == TAKES.keys()
    for kind in NOT_OFFERED:
        with pytest.raises(ValidationError, match=f"{kind} is not offered: it needs the loss of every earlier step"):
            TrainSection.model_validate({"lr_scheduler_type": kind})


def test_each_curve_takes_what_transformers_function_takes() -> None:
    ours = {"optimizer", "num_warmup_steps", "num_training_steps", "last_epoch", "mode"}
    for kind, names in TAKES.items():
        function = ReduceLROnPlateau if kind == PLATEAU else TYPE_TO_SCHEDULER_FUNCTION[SchedulerType(kind)]
        theirs = inspect.signature(cast(Any, function)).parameters
        assert set(names) == set(theirs) - ours, kind


@pytest.mark.parametrize(
    ("kind", "kwargs", "complaint"),
    [
        ("cosine", {"power": 2.0}, 'power is not for lr_scheduler_type = "cosine", which takes num_cycles'),
        ("linear", {"num_cycles": 2}, 'lr_scheduler_type = "linear", which takes nothing'),
        ("cosine_with_min_lr", {}, "needs one of lr_scheduler_kwargs.min_lr and min_lr_rate"),
        ("cosine_with_min_lr", {"min_lr": 1e-5, "min_lr_rate": 0.1}, "needs one of"),
        ("cosine_with_min_lr", {"min_lr": 1.0}, "min_lr = 1 must be less than learning_rate = 0.0003"),
        ("polynomial", {"lr_end": 3e-4}, "lr_end = 0.0003 must be less than learning_rate"),
        ("warmup_stable_decay", {"min_lr_ratio": 0.1}, "needs lr_scheduler_kwargs.num_decay_steps"),
    ],
)
def test_details_that_do_not_fit_are_refused(kind: str, kwargs: dict[str, Any], complaint: str) -> None:
    assert complaint in refused(train=section(kind, kwargs, learning_rate=3e-4))


def test_a_misspelt_detail_is_refused() -> None:
    with pytest.raises(ValidationError, match="num_cycle"):
        section("cosine", {"num_cycle": 2})


@given_values(
    st.lists(st.one_of(st.just(math.nan), st.integers(1, 20).map(lambda n: n / 8)), max_size=14), st.booleans()
)
def test_a_plateau_lowers_the_rate_as_the_trainer_does(values: list[float], greater: bool) -> None:
    """Theirs sees every evaluation but that of step 0; ours is put together anew from the saved state each time."""
    kwargs = {"factor": 0.5, "patience": 1, "cooldown": 1, "threshold": 0.05, "min_lr": 2e-5}
    train = section(PLATEAU, kwargs, learning_rate=3e-4, warmup_steps=0.0)
    optimizer = torch.optim.AdamW([torch.nn.Parameter(torch.ones(1))], lr=3e-4)
    mode = {"mode": "max"} if greater else {}  # which its user has to know
    schedule = get_scheduler(PLATEAU, optimizer, scheduler_specific_kwargs=kwargs | mode)
    curve, state = learning_rate_curve(train, MAX_STEPS), TrainState()
    note_metric(state, train, 0.01, greater_counts=greater)
    for step, value in enumerate(values, start=1):
        state.step = step
        note_metric(state, train, value, greater_counts=greater)
        note_metric(state, train, None, greater_counts=greater)
        schedule.step(value)
        state = msgspec.json.decode(msgspec.json.encode(state), type=TrainState)
        assert curve(step + 1) * remaining_share(state, train) == pytest.approx(
            optimizer.param_groups[0]["lr"], rel=1e-12
        )


def test_a_curve_longer_than_the_run_is_refused() -> None:
    train = section("warmup_stable_decay", {"num_decay_steps": 30}, warmup_steps=8.0)
    learning_rate_curve(train, 38)
    with pytest.raises(ProfileError, match="8 steps of warm-up \\+ 30 of decay, the run 37"):
        learning_rate_curve(train, 37)


def test_constant_without_warmup_never_moves() -> None:
    train = TrainSection(lr_scheduler_type="constant", warmup_steps=0.0, learning_rate=3e-4)
    assert {learning_rate_curve(train, MAX_STEPS)(step) for step in range(1, MAX_STEPS + 1)} == {3e-4}


def test_constant_warms_up_when_asked() -> None:
    train = TrainSection(lr_scheduler_type="constant", warmup_steps=4.0, learning_rate=1.0)
    assert [learning_rate_curve(train, MAX_STEPS)(step) for step in range(1, 7)] == [0, 0.25, 0.5, 0.75, 1, 1]


def test_the_curve_remembers_nothing() -> None:
    """Asked backwards it says the same: a resumed run needs no schedule's state."""
    curve = learning_rate_curve(TrainSection(), MAX_STEPS)
    steps = range(1, MAX_STEPS + 1)
    assert [curve(step) for step in steps] == [curve(step) for step in reversed(steps)][::-1]


@pytest.mark.parametrize("warmup", [0, 0.01, 0.03, 0.5, 0.999, 1, 2, 100])
def test_warmup_is_a_share_or_a_number_of_steps(warmup: float) -> None:
    theirs = TrainingArguments(warmup_steps=warmup, use_cpu=True)
    for max_steps in (1, 10, 33, 1000):
        assert warmup_steps(TrainSection(warmup_steps=float(warmup)), max_steps) == theirs.get_warmup_steps(max_steps)


def test_it_is_refused_before_the_model_is_loaded(model_folder: Path, tmp_path: Path) -> None:
    rows = write_rows(tmp_path / "rows.jsonl", chats(10))
    train = {"lr_scheduler_type": "warmup_stable_decay", "lr_scheduler_kwargs": {"num_decay_steps": 9}, "max_steps": 4}
    with pytest.raises(ProfileError, match="9 of decay, the run 4"):
        prepare(make_profile(model_folder, rows, train=train), cache_folder(tmp_path), lambda detail: None)


def test_details_survive_the_profile_of_a_run(tmp_path: Path) -> None:
    """Written by hand in any of TOML's ways or by --set, and read again from the copy in the run's folder."""
    head = '[run]\nstage = "sft"\n[model]\nname_or_path = "a/b"\n[data]\ntrain = "rows.jsonl"\n[train]\n'
    path, copied = tmp_path / "p.toml", tmp_path / "copied.toml"
    path.write_text(
        head + 'lr_scheduler_type = "cosine_with_min_lr"\nlr_scheduler_kwargs = { min_lr_rate = 0.1 }\noptim = "sgd"\n'
        "[train.optim_args]\nmomentum = 0.9\n"
    )
    profile = resolve(path, overrides=["train.lr_scheduler_kwargs.num_cycles=2", "eval.eval_steps=0.2"]).profile
    copied.write_text(to_toml(profile))
    assert resolve(copied).profile == profile
    assert explicit_values(profile.train.lr_scheduler_kwargs) == {"min_lr_rate": 0.1, "num_cycles": 2}
    assert explicit_values(profile.train.optim_args) == {"momentum": 0.9}
    assert (profile.eval.eval_steps, profile.checkpoint.save_steps) == (0.2, 200)
    assert "save_steps = 200\n" in copied.read_text()
    other = resolve(path, overrides=["train.lr_scheduler_kwargs.num_cycles=3"]).profile
    assert weights_difference(profile, other)[0].startswith("train.lr_scheduler_kwargs.num_cycles: 2.0 -> 3.0")
    assert fingerprint(profile) != fingerprint(other)
