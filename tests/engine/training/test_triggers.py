"""When a run is evaluated, saved and stopped early, against transformers' own flow, step by step."""

import math
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any, get_args

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from pydantic import ValidationError
from transformers import EarlyStoppingCallback, TrainerControl, TrainerState, TrainingArguments
from transformers.trainer_callback import DefaultFlowCallback

from ftui.engine.planning.plan import make_plan
from ftui.engine.system.train_state import Setting, TrainState
from ftui.engine.training import loop
from ftui.engine.training.evaluate import note_evaluation
from ftui.engine.training.triggers import best_is_saved, evaluation_is_due, save_is_due
from ftui.errors import ProfileError
from ftui.measures import MEASURES
from ftui.profile.layers import resolve
from ftui.profile.schema import Profile, RunSection
from ftui.profile.sections.evaluation import CheckpointSection, EvalSection
from ftui.runs.events import CheckpointSaved, EvaluationDone
from ftui.runs.journal import Tail
from ftui.runs.run_folder import Run
from tests.support.refused import refused
from tests.support.tiny import chats, make_profile, train_run, write_rows

MAX_STEPS = 23
PER_EPOCH = 5


PLAN = make_plan(
    np.ones(PER_EPOCH, np.int32), effective_batch=1, max_steps=MAX_STEPS, num_train_epochs=None, strategy="sequential",
    seed=0,
)  # fmt: skip


def profile_of(**keys: Any) -> Profile:
    """`keys` are those of both sections."""
    sections = [
        section.model_validate({name: value for name, value in keys.items() if name in section.model_fields})
        for section in (EvalSection, CheckpointSection)
    ]
    profile = make_profile(Path("/model"), Path("/rows.jsonl"))
    return profile.model_copy(update={"eval": sections[0], "checkpoint": sections[1]})


def ours(profile: Profile, *settings: Setting) -> tuple[list[int], list[int]]:
    """Steps at which a run is evaluated and saved; the last is both, whatever is asked for."""
    evaluated, saved = [], []
    for step in range(1, MAX_STEPS + 1):
        state = TrainState(step=step, settings=list(settings))
        evaluated += [step] if evaluation_is_due(profile.eval, PLAN, state) else []
        saved += [step] if save_is_due(profile.checkpoint, PLAN, state, 0.0) or step == MAX_STEPS else []
    return evaluated, saved


def theirs(**keys: Any) -> tuple[list[int], list[int]]:
    arguments = TrainingArguments(use_cpu=True, max_steps=MAX_STEPS, **keys)
    flow, state, evaluated, saved = DefaultFlowCallback(), TrainerState(max_steps=MAX_STEPS), [], []
    state.compute_steps(arguments, MAX_STEPS)
    for step in range(1, MAX_STEPS + 1):
        state.global_step, state.epoch, control = step, step / PER_EPOCH, TrainerControl()
        flow.on_step_end(arguments, state, control)
        if step % PER_EPOCH == 0:
            flow.on_epoch_end(arguments, state, control)
        evaluated += [step] if control.should_evaluate or step == MAX_STEPS else []
        saved += [step] if control.should_save or step == MAX_STEPS else []
    return evaluated, saved


@pytest.mark.parametrize(
    "keys",
    [
        {"eval_strategy": "steps", "eval_steps": 4, "save_steps": 6},
        {"eval_strategy": "steps", "eval_steps": 0.1, "save_steps": 0.3},
        {"eval_strategy": "steps", "eval_steps": 1, "save_steps": 1, "eval_delay": 7},
        {"eval_strategy": "epoch", "save_strategy": "epoch"},
        {"eval_strategy": "epoch", "eval_delay": 2.5, "save_strategy": "no"},
        {"eval_strategy": "no", "save_strategy": "best"},
    ],
)
def test_evaluations_and_checkpoints_come_when_the_trainers_do(keys: dict[str, Any]) -> None:
    assert ours(profile_of(**keys)) == theirs(**keys)


def test_a_request_sets_the_period_whatever_the_strategy_is() -> None:
    settings = Setting(7, "eval_steps", 6), Setting(7, "save_steps", 8)
    profile = profile_of(eval_strategy="epoch", save_strategy="no")
    assert ours(profile, *settings) == ([5, 12, 18, MAX_STEPS], [8, 16, MAX_STEPS])


def test_minutes_save_beside_every_strategy_but_no() -> None:
    for strategy, due in (("steps", True), ("epoch", True), ("best", True), ("no", False)):
        section, state = profile_of(save_strategy=strategy, save_minutes=10.0).checkpoint, TrainState(step=3)
        assert [save_is_due(section, PLAN, state, minutes) for minutes in (9.9, 10.1)] == [False, due]
    assert ours(profile_of(save_strategy="steps", save_steps=None, save_minutes=None))[1] == [MAX_STEPS]


def test_the_best_is_saved_where_something_wants_it() -> None:
    cases = [("steps", False, False), ("steps", True, True), ("best", False, True), ("no", True, True)]
    for strategy, load_best, saved in cases:
        assert best_is_saved(profile_of(save_strategy=strategy, load_best_model_at_end=load_best)) is saved


def test_a_step_is_evaluated_once() -> None:
    section = profile_of(eval_strategy="steps", eval_steps=4).eval
    assert evaluation_is_due(section, PLAN, TrainState(step=4))
    assert not evaluation_is_due(section, PLAN, TrainState(step=4, evaluated_step=4))


losses = st.one_of(st.just(math.nan), st.integers(0, 8).map(lambda n: n / 4))


@given(
    st.lists(losses, min_size=1, max_size=12), st.sampled_from([0.0, 0.25, 0.4]),
    st.sampled_from(["loss", "perplexity", "mean_token_accuracy", "rewards/margins"]),
)  # fmt: skip
@example([1.0, 0.75, 0.5], 0.25, "loss")  # better by just the threshold is not better
def test_patience_is_counted_as_by_transformers(values: list[float], threshold: float, metric: Any) -> None:
    """Their callback looks before the Trainer notes a new best; a first loss of NaN is the one thing counted otherwise.

    They then have a best, which is infinite; here a loss of NaN costs patience from the first.
    """
    callback, state = EarlyStoppingCallback(1, threshold), TrainerState()
    greater = metric not in ("loss", "perplexity")  # transformers takes perplexity for better when it is greater
    run, arguments = TrainState(step=1), SimpleNamespace(greater_is_better=greater)
    section = EvalSection(metric_for_best_model=metric, early_stopping_threshold=threshold)
    if math.isnan(values[0]):
        values = [1.0, *values]
    for value in values:
        callback.check_metric_value(arguments, state, TrainerControl(), value)
        before = state.best_metric
        is_best = not math.isnan(value) and (before is None or (value > before if greater else value < before))
        state.best_metric = value if is_best else state.best_metric
        loss = value if metric == "loss" or math.isnan(value) else 1.0  # a loss that says nothing
        assert note_evaluation(run, loss, {metric: value}, section) == is_best
        assert run.bad_evaluations == callback.early_stopping_patience_counter


@pytest.mark.parametrize(
    ("section", "keys", "complaint"),
    [
        (
            EvalSection,
            {"eval_steps": 2.5},
            "eval_steps is a whole number of steps, or a share .* below 1, not 2.5",
        ),
        (CheckpointSection, {"save_steps": 1.5}, "save_steps is a whole number"),
        (EvalSection, {"eval_steps": 0}, "greater than 0"),
        (
            EvalSection,
            {"metric_for_best_model": "accuracy"},
            "'loss', 'mean_token_accuracy', 'perplexity', 'rewards.ac",
        ),
    ],
)
def test_wrong_periods_and_measures_are_refused(section: type[Any], keys: dict[str, Any], complaint: str) -> None:
    with pytest.raises(ValidationError, match=complaint):
        section.model_validate(keys)


def test_a_loss_is_better_when_it_is_less() -> None:
    assert "better when it is less" in refused(eval=EvalSection(greater_is_better=True))
    accuracy = EvalSection(metric_for_best_model="rewards/accuracies", greater_is_better=False)
    assert "better when it is greater" in refused(eval=accuracy, run=RunSection(stage="dpo"))
    perplexity = EvalSection(
        metric_for_best_model="perplexity", greater_is_better=True
    )  # as transformers would have it
    assert "better when it is less" in refused(eval=perplexity)


def test_a_measure_is_one_of_the_stage() -> None:
    """Exactly those whose table says that the stage has them can choose its best checkpoint."""
    for name, measure in MEASURES.items():
        for stage in get_args(RunSection.model_fields["stage"].annotation):
            values: dict[str, Any] = {"metric_for_best_model": f"eval_{name}", "greater_is_better": None}
            if not measure.chooses:
                with pytest.raises(ValidationError, match="mean_token_accuracy"):
                    EvalSection.model_validate(values)
                continue
            section = EvalSection.model_validate(values)
            assert section.metric_for_best_model == name
            if stage not in measure.stages:
                complaint = refused(eval=section, run=RunSection(stage=stage))
                assert f"stage {stage} does not measure metric_for_best_model = '{name}'" in complaint


@pytest.mark.parametrize(
    ("wish", "without", "complaint"),
    [
        ("checkpoint.save_strategy=best", [], "save_strategy = \"best\" needs evaluations: give data.eval"),
        ("train.lr_scheduler_type=reduce_lr_on_plateau", [], "reduce_lr_on_plateau. needs evaluations: give data.eval"),
        ("eval.early_stopping_patience=2", [], "eval.early_stopping_patience needs evaluations: give data.eval"),
        ("eval.early_stopping_patience=2", ["eval.eval_strategy=no", "data.eval_num_rows=2"], "set eval.eval_strategy"),
    ],
)  # fmt: skip
def test_what_needs_evaluations_says_so(wish: str, without: list[str], complaint: str, tmp_path: Any) -> None:
    profile = tmp_path / "p.toml"
    profile.write_text('[run]\nstage = "sft"\n[model]\nname_or_path = "a/b"\n[data]\ntrain = "rows.jsonl"\n')
    with pytest.raises(ProfileError, match=complaint):
        resolve(profile, overrides=[wish, *without])
    resolve(profile, overrides=[wish, "data.eval_num_rows=2"])


@pytest.mark.parametrize(
    ("strategy", "best_wanted", "tags"),
    [
        ("no", False, {"last"}),
        ("no", True, {"best", "last"}),
        ("best", False, {"best", "last"}),
        ("epoch", False, {"periodic", "last"}),
    ],
)
def test_a_run_saves_what_is_due(
    strategy: str, best_wanted: bool, tags: set[str], model_folder: Path, tmp_path: Path
) -> None:
    """The whole engine, read through its journal: 24 rows in steps of 8, twice, evaluated at every second step."""
    profile = make_profile(
        model_folder, write_rows(tmp_path / "rows.jsonl", chats(30)),
        data={"train": str(tmp_path / "rows.jsonl"), "eval_num_rows": 6},
        train={"per_device_train_batch_size": 8, "num_train_epochs": 2, "learning_rate": 1e-2, "precision": "fp32"},
        eval={"eval_strategy": "steps", "eval_steps": 0.3, "load_best_model_at_end": best_wanted},
        checkpoint={"save_strategy": strategy, "save_minutes": None},
    )  # fmt: skip
    train_run(tmp_path / "run", profile)
    records = list(Tail(Run(tmp_path / "run").journal).read())
    evaluations = [record for record in records if isinstance(record, EvaluationDone)]
    assert [record.step for record in evaluations] == [0, 2, 4, 6]
    due: dict[int, set[str]] = {6: {"last"}}
    for step in [3, 6] if "periodic" in tags else []:
        due.setdefault(step, set()).add("periodic")
    for record in evaluations:
        if record.best and "best" in tags:
            due.setdefault(record.step, set()).add("best")
    saved = {record.step: set(record.tags) for record in records if isinstance(record, CheckpointSaved)}
    assert saved == due
    assert any(record.best for record in evaluations)


def test_an_evaluation_waits_for_the_save_before_it(monkeypatch: pytest.MonkeyPatch) -> None:
    """When a save is recorded, old checkpoints go; were a better evaluation known by then, the best one on the disk
    would go, too, before the new one is there."""
    calls: list[str] = []

    class Checkpoints:
        last_save_time = math.inf

        def __getattr__(self, name: str) -> Callable[..., None]:
            return lambda *arguments, **options: calls.append(name)

    class BestYet:
        def evaluate(self) -> SimpleNamespace:
            calls.append("evaluate")
            return SimpleNamespace(best=True)

    for name, value in (("evaluation_is_due", True), ("best_is_saved", True), ("save_is_due", False), ("last_step", 9)):
        monkeypatch.setattr(loop, name, lambda *arguments, value=value: value)
    parts: Any = {"plan": None, "events": None, "control": SimpleNamespace(poll=lambda level: None)}
    profile: Any = SimpleNamespace(checkpoint=None, eval=SimpleNamespace(early_stopping_patience=None))
    steps: Any = {"evaluator": BestYet(), "checkpoints": Checkpoints()}
    assert loop.Loop(profile, state=TrainState(step=4), **parts, **steps)._between_steps() is None
    assert calls == ["collect", "finish", "evaluate", "start_save"]
