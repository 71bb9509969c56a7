"""A curriculum against numpy by hand: which rows a stage learns, in which order, how often, at which rate; resumed."""

import math
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from safetensors.numpy import load_file
from transformers import AutoModelForCausalLM

from ftui.engine.optim.schedule import learning_rate_curve
from ftui.engine.planning.curriculum_plan import (
    CurriculumPlan,
    SequencePool,
    describe_stages,
    make_curriculum_plan,
    rank_sequences,
)
from ftui.engine.planning.mixing import compute_shares, make_run_plan, temper_counts
from ftui.engine.planning.plan import SourceShare
from ftui.engine.training.prepare import TrainingData, prepare
from ftui.errors import DataError, ModelError
from ftui.launch.open_run import create
from ftui.profile.layers import resolve
from ftui.profile.schema import Profile
from ftui.profile.sections.curriculum import CurriculumStage
from ftui.profile.sections.data import DataSection, DataSource
from ftui.profile.sections.train import TrainSection
from ftui.profile.serialize import to_toml
from ftui.runs.checkpoint_folders import Checkpoint
from ftui.runs.events import RunStarted, StageBegan, Step
from ftui.runs.run_folder import Run
from ftui.system.user_folders import cache_folder
from tests.support.attempts import attempt, killed_attempt, records
from tests.support.refused import refused
from tests.support.sameness import same_weights
from tests.support.tiny import chats, column, make_profile, train_run, write_rows

ROWS = st.lists(st.tuples(st.integers(1, 40), st.integers(1, 9), st.floats(0, 9, width=32)), min_size=1, max_size=90)
STAGES = st.fixed_dictionaries(
    {
        "sort_by": st.sampled_from(["length", "target_share", "loss"]),
        "order": st.sampled_from(["ascending", "descending"]),
        "fraction": st.sampled_from([0.01, 0.3, 0.5, 1.0]),
        "num_train_epochs": st.sampled_from([1.0, 2.0, 3.0]),
        "train_sampling_strategy": st.sampled_from([None, "random", "group_by_length", "sequential"]),
    }
)
ROOM = 64


def course_of(
    rows: list[tuple[int, int, float]], stages: list[dict[str, Any]], batch: int, **more: Any
) -> CurriculumPlan:
    lengths, targets, losses = (np.array(values) for values in zip(*rows, strict=True))
    sections = [CurriculumStage.model_validate(stage) for stage in stages]
    train = TrainSection(seed=3, max_steps=more.pop("max_steps", None))
    pool = SequencePool(lengths.astype(np.int32), targets.astype(np.int32), losses.astype(np.float32))
    return make_curriculum_plan(sections, pool, train, effective_batch=batch, **more)


def expected(rows: list[tuple[int, int, float]], stage: dict[str, Any]) -> list[int]:
    """The stage's sequences in their order, by Python's own sort."""
    amounts = [{"length": a, "target_share": b / a, "loss": c}[stage["sort_by"]] for a, b, c in rows]
    sign = 1 if stage["order"] == "ascending" else -1
    order = sorted(range(len(rows)), key=lambda index: (sign * amounts[index], index))
    assert sorted(order) == order or order == np.argsort(sign * np.array(amounts), kind="stable").tolist()
    return order[: max(1, round(stage["fraction"] * len(rows)))]


@given(ROWS, st.lists(STAGES, min_size=1, max_size=3), st.integers(1, 9), st.booleans())
def test_each_stage_trains_on_its_rows_so_many_times_and_no_others(
    rows: list[tuple[int, int, float]], stages: list[dict[str, Any]], batch: int, packed: bool
) -> None:
    course = course_of(rows, stages, batch, packing_length=ROOM if packed else None)
    step = 0
    for number, stage in enumerate(stages):
        its, plan = expected(rows, stage), course.stages[number]
        assert course.first_steps[number] == step + 1
        taken = [course.step(step + n) for n in range(1, plan.max_steps + 1)]
        assert {course.stage_at(step + n) for n in range(1, plan.max_steps + 1)} == {number}
        seen = Counter(index for each in taken for row in each for index in row)
        assert seen == Counter(dict.fromkeys(its, int(stage["num_train_epochs"])))
        if stage["train_sampling_strategy"] == "sequential" and not packed:
            for epoch in range(int(stage["num_train_epochs"])):
                parts = [its[start : start + batch] for start in range(0, len(its), batch)]
                here = taken[epoch * plan.steps_per_epoch : (epoch + 1) * plan.steps_per_epoch]
                assert [sorted(index for (index,) in each) for each in here] == [sorted(part) for part in parts]
        if not packed:
            assert plan.max_steps == stage["num_train_epochs"] * math.ceil(len(its) / batch)
        step += plan.max_steps
    assert course.max_steps == step
    assert course.epoch_of(step) == sum(stage["num_train_epochs"] for stage in stages)
    backwards = [course.step(n) for n in range(step, 0, -1)][::-1]
    assert backwards == [course.step(n) for n in range(1, step + 1)]


EASY_FIRST: list[dict[str, Any]] = [
    {"fraction": 0.5, "num_train_epochs": 2.0, "learning_rate": 1e-3},
    {"num_train_epochs": 0.5},
    {"sort_by": "loss", "order": "descending", "fraction": 0.25, "learning_rate": 1e-5},
]
TWENTY = [(10 + n, 1 + n % 5, float(n * 7 % 20)) for n in range(20)]


def test_epochs_and_steps_by_hand() -> None:
    """10 rows in steps of 4: 3 an epoch, 6 in all; half of 20 rows: 3 of 5; 5 rows: 2."""
    course = course_of(TWENTY, EASY_FIRST, 4)
    assert [stage.max_steps for stage in course.stages] == [6, 3, 2]
    assert [n for n in range(1, 12) if course.ends_epoch(n)] == [3, 6, 9, 11]
    assert [course.epoch_of(n) for n in (0, 3, 6, 9, 11)] == pytest.approx([0, 1, 2, 2.6, 3.6])
    assert course.stage_at(13) == 2 and len(course.step(12)) == 4  # a run that was made longer goes on in the last one
    assert course.steps_per_epoch == 3
    lengths = course.tokens
    total = sum(int(lengths[i]) for n in range(1, 12) for row in course.step(n) for i in row)
    assert course.sum_epoch(lengths) / 3 == pytest.approx(total / 11, rel=0.12)
    assert course.longest(2) == [(19,), (18,)]
    tokens = [sum(int(lengths[i]) for row in course.step(n) for i in row) for n in range(1, 15)]
    for before in range(14):
        assert [course.num_tokens(before, last) for last in range(before, 15)] == [
            sum(tokens[before:last]) for last in range(before, 15)
        ]


@pytest.mark.parametrize(("max_steps", "steps"), [(8, 8), (11, 11), (500, 11)])
def test_max_steps_ends_a_curriculum_sooner_and_not_later(max_steps: int, steps: int) -> None:
    assert course_of(TWENTY, EASY_FIRST, 4, max_steps=max_steps).max_steps == steps


@pytest.mark.parametrize("kind", ["cosine", "linear", "constant", "warmup_stable_decay"])
def test_a_stage_scales_one_curve_over_the_whole_run(kind: str) -> None:
    kwargs = {"num_decay_steps": 3} if kind == "warmup_stable_decay" else None
    given = {"lr_scheduler_type": kind, "lr_scheduler_kwargs": kwargs, "learning_rate": 2e-4, "warmup_steps": 2.0}
    train = TrainSection.model_validate(given)
    course = course_of(TWENTY, EASY_FIRST, 4)
    plain, rate = learning_rate_curve(train, 11), learning_rate_curve(train, 11, course.peak_rate)
    factors = [5.0] * 6 + [1.0] * 3 + [0.05] * 2
    for step, factor in enumerate(factors, start=1):
        assert rate(step) == pytest.approx(plain(step) * factor, rel=1e-12)


def test_a_stage_has_a_rate_of_its_own_beside_a_rate_of_zero() -> None:
    train = TrainSection(learning_rate=0.0, lr_scheduler_type="constant", warmup_steps=0.0)
    rate = learning_rate_curve(train, 11, course_of(TWENTY, EASY_FIRST, 4).peak_rate)
    assert [rate(step) for step in (1, 7, 10)] == [1e-3, 0.0, 1e-5]


def test_equal_rows_stay_as_they_stand() -> None:
    for order in ("ascending", "descending"):
        section = CurriculumStage.model_validate({"order": order, "fraction": 0.5})
        ranks = rank_sequences(np.arange(4000, dtype=np.int32) % 2, section)
        wanted = np.arange(order == "descending", 4000, 2)
        assert ranks[wanted].tolist() == list(range(2000)) and (ranks >= 0).sum() == 2000


def test_packed_rows_stand_by_the_mean_of_their_sequences() -> None:
    stage = {"train_sampling_strategy": "sequential"}
    course = course_of(TWENTY, [stage], 1, packing_length=ROOM)
    ranks = rank_sequences(course.tokens, CurriculumStage())
    means = [np.mean([ranks[i] for i in course.step(n)[0]]) for n in range(1, course.max_steps + 1)]
    assert means == sorted(means) and len(means) < 20


def test_sources_keep_their_weights_in_a_stage() -> None:
    sources = [SourceShare(10, 2.0), SourceShare(10, 0.5)]
    course = course_of(TWENTY, [{"fraction": 0.7}], 5, sources=sources)
    seen = Counter(i for n in range(1, course.max_steps + 1) for row in course.step(n) for i in row)
    assert seen == Counter({**dict.fromkeys(range(10), 2), **{i: 1 for i in seen if i >= 10}})
    assert set(seen) < set(range(14)) and sum(seen.values()) == 22
    with pytest.raises(DataError, match="Stage 1 of the curriculum has no rows in an epoch"):
        course_of(TWENTY, [{"fraction": 0.05}], 5, sources=[SourceShare(10, 0.2), SourceShare(10)])


# -- mixtures


@given(st.lists(st.integers(1, 10**6), min_size=1, max_size=8), st.floats(0.2, 20))
def test_a_temperature_evens_sizes_out_and_keeps_their_sum(sizes: list[int], temperature: float) -> None:
    counts = temper_counts(sizes, temperature)
    assert sum(counts) == sum(sizes)
    powers = np.array(sizes, dtype=float) ** (1 / temperature)
    wanted = powers / powers.sum() * sum(sizes)
    assert np.abs(np.array(counts) - wanted).max() < 1 + 1e-6
    assert temper_counts(sizes, 1.0) == sizes


def named(*sources: dict[str, Any]) -> list[Any]:
    class Named:
        def __init__(self, source: DataSource) -> None:
            self.name, self.weight, self.num_samples = source.path, source.weight, source.num_samples

    return [Named(DataSource(**source)) for source in sources]


@given(st.integers(1, 3000), st.integers(1, 9000))
def test_num_samples_is_the_rows_of_an_epoch(num_rows: int, num_samples: int) -> None:
    (share,) = compute_shares(named({"path": "a", "num_samples": num_samples}), [num_rows], [num_rows], None)
    assert share.per_epoch == num_samples
    (share,) = compute_shares(named({"path": "a"}), [num_rows], [num_rows], 3.0)
    assert share.per_epoch == num_rows


def test_mixing_by_hand() -> None:
    three = named({"path": "a"}, {"path": "b"}, {"path": "c"})
    shares = compute_shares(three, [100, 25, 4], [100, 25, 4], 2.0)  # roots 10, 5, 2 of 17
    assert [share.per_epoch for share in shares] == [76, 38, 15]
    with pytest.raises(DataError, match="c: weight 0 of 1 sequences leaves none in an epoch") as error:
        compute_shares(named({"path": "b"}, {"path": "c"}), [1000, 1], [1000, 1], 0.5)
    assert "data.mixing_temperature" in error.value.hint


def test_a_profile_says_how_sources_are_mixed(model_folder: Path, rows: Path, tmp_path: Path) -> None:
    few = write_rows(tmp_path / "few.jsonl", chats(12))

    def mixed(**data: Any) -> TrainingData:
        return prepare(make_profile(model_folder, rows, data=data), cache_folder(Path()), lambda detail: None)

    found = mixed(train=[str(rows), str(few)], mixing_temperature=2.0)  # roots of 48 and 12: two to one
    assert [share.per_epoch for share in found.shares] == [40, 20]
    assert found.plan.rows_per_epoch == 60 == len(found.train.indices)
    found = mixed(train=[{"path": str(rows), "num_samples": 7}, {"path": str(few), "num_samples": 30}])
    for epoch in range(3):
        first = epoch * found.plan.steps_per_epoch
        steps = [found.plan.step(first + n) for n in range(1, found.plan.steps_per_epoch + 1)]
        seen = Counter(index for step in steps for row in step for index in row)
        assert sum(n for index, n in seen.items() if index < 48) == 7 == len([i for i in seen if i < 48])
        assert sorted(n for index, n in seen.items() if index >= 48) == [2] * 6 + [3] * 6


TWO = (DataSource(path="a"), DataSource(path="b"))


@pytest.mark.parametrize(
    ("data", "complaint"),
    [
        ({"train": (DataSource(path="a", weight=2.0), TWO[1]), "mixing_temperature": 2.0}, "and a has weight"),
        ({"train": (TWO[0], DataSource(path="b", num_samples=3)), "mixing_temperature": 2.0}, "and b has num_samples"),
        ({"train": (DataSource(path="a", weight=2.0, num_samples=3),)}, "num_samples and weight both say"),
        ({"train": "a", "mixing_temperature": 2.0}, "mixes several sources, and data.train is one"),
        ({"train": "a", "eval": (DataSource(path="b", num_samples=3),)}, "num_samples is for training rows"),
    ],
)
def test_mixtures_that_contradict_themselves_are_refused(data: dict[str, Any], complaint: str) -> None:
    assert complaint in refused(data=DataSection.model_validate(data))


def test_weights_beside_a_temperature_are_told_once_with_their_sources() -> None:
    each = (
        DataSource(path="a", weight=2.0),
        DataSource(path="b", weight=3.0),
        DataSource(path="c"),
        DataSource(path="d", num_samples=3),
    )
    told = refused(data=DataSection.model_construct(train=each, mixing_temperature=2.0))
    assert told.endswith("and a has weight, b has weight, d has num_samples") and "\n" not in told


def test_a_curriculum_has_the_epochs() -> None:
    stages: Any = (CurriculumStage(),)
    told = refused(curriculum=stages, train=TrainSection(num_train_epochs=2.0))
    assert "each stage of the curriculum has num_train_epochs of its own" in told


# -- whole runs

STAGED: list[dict[str, Any]] = [
    {"fraction": 0.4, "num_train_epochs": 2, "learning_rate": 2e-3},
    {"sort_by": "loss", "order": "descending", "fraction": 0.6, "train_sampling_strategy": "sequential"},
    {"num_train_epochs": 0.5, "learning_rate": 5e-4},
]


@pytest.fixture(scope="module")
def rows(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_rows(tmp_path_factory.mktemp("rows") / "chats.jsonl", chats(48))


def staged(model: Path, rows: Path, stages: list[dict[str, Any]], /, **sections: dict[str, Any]) -> Profile:
    train = {"per_device_train_batch_size": 4, "learning_rate": 1e-3} | sections.pop("train", {})
    made = make_profile(model, rows, train=train, **sections)
    return made.model_copy(update={"curriculum": tuple(CurriculumStage.model_validate(s) for s in stages)})


def plain_losses(model_folder: Path, prepared: TrainingData) -> np.ndarray:
    """transformers' own loss, a row at a time, its labels those that are trained on."""
    model = AutoModelForCausalLM.from_pretrained(model_folder, dtype=torch.float32).eval()
    found = []
    for index in prepared.train.indices:
        sequence = prepared.train.sequences[int(index)]
        ids = torch.from_numpy(np.asarray(sequence.input_ids, dtype=np.int64))[None]
        labels = torch.where(torch.from_numpy(np.asarray(sequence.targets, dtype=bool))[None], ids, -100)
        with torch.no_grad():
            found.append(float(model(input_ids=ids, labels=labels).loss))
    return np.array(found)


@pytest.mark.parametrize("method", ["full", "lora"])
def test_a_run_trains_on_its_stages(model_folder: Path, rows: Path, tmp_path: Path, method: str) -> None:
    """Losses are transformers', the steps those of a plan made with them; the journal says where stages begin."""
    profile = staged(model_folder, rows, STAGED, adapter={"method": method})
    steps = train_run(tmp_path / "run", profile)
    run = Run(tmp_path / "run")
    found = prepare(profile, cache_folder(Path()), lambda detail: None)
    losses = load_file(run.losses)["losses"]
    np.testing.assert_allclose(losses, plain_losses(model_folder, found), rtol=2e-5)
    targets = found.train.sequences.num_targets[found.train.indices]
    plan = make_run_plan(profile, found.train.sequences.lengths[found.train.indices], targets, found.shares, losses)
    assert isinstance(plan, CurriculumPlan)
    assert [stage.max_steps for stage in plan.stages] == [10, 8, 6]
    chosen = [[i for row in plan.step(n) for i in row] for n in range(1, 25)]
    assert column(steps, "num_target_tokens").tolist() == [int(targets[its].sum()) for its in chosen]
    hardest = np.argsort(-losses.astype(np.float64), kind="stable")[:29]
    assert [sorted(its) for its in chosen[10:18]] == [sorted(hardest[n : n + 4].tolist()) for n in range(0, 29, 4)]
    began = records(run, StageBegan)
    assert [(one.step, one.number, one.of) for one in began] == [(1, 1, 3), (11, 2, 3), (19, 3, 3)]
    assert began[1].words == "the 60 % of the rows with the highest loss, highest loss first, 1 epoch"
    (started,) = records(run, RunStarted)
    assert started.stages == [1, 11, 19]
    assert (started.max_steps, started.num_tokens_ahead) == (24, column(steps, "num_tokens").sum())
    plain = learning_rate_curve(profile.train, 24)
    rates = [plain(n) * factor for n, factor in enumerate([2] * 10 + [1] * 8 + [0.5] * 6, start=1)]
    np.testing.assert_allclose(column(steps, "learning_rate"), rates, rtol=1e-12)
    mean = column(steps, "num_tokens").mean()
    assert started.num_train_tokens / started.steps_per_epoch == pytest.approx(mean, rel=0.1)


@pytest.mark.slow
def test_killed_in_every_stage_it_ends_the_same(
    model_folder: Path, rows: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    sections: dict[str, Any] = {"adapter": {"method": "lora", "lora_dropout": 0.1}, "checkpoint": {"save_steps": 4}}
    profile = staged(model_folder, rows, STAGED, **sections)
    whole, cut = Run(tmp_path / "whole"), Run(tmp_path / "cut")
    assert attempt(whole, profile) == 0
    killed_attempt(cut, profile, 6, monkeypatch)
    monkeypatch.setattr("ftui.engine.training.measure_log_probs.target_log_probs", None)  # the losses are read
    killed_attempt(cut, profile, 13, monkeypatch, 2)
    killed_attempt(cut, profile, 21, monkeypatch, 3)
    assert attempt(cut, profile, 4) == 0
    assert [one.reproducibility for one in records(cut, RunStarted)] == [None, "EXACT", "EXACT", "EXACT"]
    figures = [{r.step: (r.loss, r.learning_rate, r.epoch) for r in records(run, Step)} for run in (whole, cut)]
    assert figures[0] == figures[1]
    same_weights(cut.final, whole.final)
    told = [(one.attempt, one.number) for one in records(cut, StageBegan)]
    assert told == [(1, 1), (2, 1), (2, 2), (3, 2), (3, 3), (4, 3)]


@pytest.mark.slow
def test_other_losses_are_another_run(
    model_folder: Path, rows: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    profile = staged(model_folder, rows, STAGED, checkpoint={"save_steps": 4})
    run = Run(tmp_path / "run")
    killed_attempt(run, profile, 6, monkeypatch)
    data = bytearray(run.losses.read_bytes())
    data[-1] ^= 1
    run.losses.write_bytes(data)  # damaged: measured again, to the same numbers
    assert attempt(run, profile, 2) == 0
    run.losses.unlink()
    with monkeypatch.context() as patch, pytest.raises(ModelError, match="the base model's loss on the rows"):
        patch.setattr(
            "ftui.engine.training.measure_log_probs.BatchLogProbs.__call__",
            lambda self, split, rows: np.zeros(split.num_targets[[n for row in rows for n in row]].sum(), np.float32),
        )
        attempt(run, profile, 3)


def test_a_child_takes_the_losses_with_the_checkpoint(
    model_folder: Path, rows: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("ftui.launch.open_run.link_copy", lambda source, target: None)
    profile = staged(model_folder, rows, STAGED)
    (tmp_path / "p.toml").write_text(to_toml(profile))
    parent, child = Run(tmp_path / "parent"), Run(tmp_path / "child")
    checkpoint = parent.checkpoints / "checkpoint-4"
    parent.folder.mkdir()
    parent.losses.write_bytes(b"measured")
    assert create(child, resolve(tmp_path / "p.toml"), inherited=[Checkpoint(checkpoint, 4)])
    assert child.losses.read_bytes() == b"measured"


@pytest.mark.slow
def test_micro_batches_of_any_size_train_the_same(model_folder: Path, rows: Path, tmp_path: Path) -> None:
    found = []
    for size, times in ((8, 1), (4, 2), (1, 8)):
        train = {"per_device_train_batch_size": size, "gradient_accumulation_steps": times}
        profile = staged(model_folder, rows, STAGED, train=train, eval={"per_device_eval_batch_size": 3 + size})
        found.append(train_run(tmp_path / f"run{size}", profile))
    for other in found[1:]:
        assert column(other, "num_tokens").tolist() == column(found[0], "num_tokens").tolist()
        np.testing.assert_allclose(column(other, "loss"), column(found[0], "loss"), rtol=1e-4)


def test_nothing_is_measured_where_the_order_does_not_ask_for_it(
    model_folder: Path, rows: Path, tmp_path: Path
) -> None:
    """All rows, shuffled: whatever they are sorted by, it is the same stage."""
    train_run(tmp_path / "run", staged(model_folder, rows, [{"sort_by": "loss"}]))
    assert not Run(tmp_path / "run").losses.exists()


def test_every_stage_is_told_before_the_start() -> None:
    """Its steps, its sequences and its rate; a stage that train.max_steps leaves no step says so."""
    rows = [(10 + number, 5, 1.0) for number in range(40)]
    stages: list[dict[str, Any]] = [
        {"fraction": 0.25, "num_train_epochs": 2.0, "learning_rate": 1e-3},
        {"sort_by": "target_share", "order": "descending", "fraction": 0.5},
        {},
    ]
    train = TrainSection(seed=3, learning_rate=1.0)
    assert describe_stages(course_of(rows, stages, 5), train) == [
        "steps 1 to 4: the 25 % of the rows with the fewest tokens, 2 epochs of 10 sequences, learning rate 0.001",
        "steps 5 to 8: the 50 % of the rows with the largest trained share, 1 epoch of 20 sequences, learning rate 1",
        "steps 9 to 16: all rows, 1 epoch of 40 sequences, learning rate 1",
    ]
    told = describe_stages(course_of(rows, stages, 5, max_steps=6), train)
    assert told[1].startswith("steps 5 to 6: ") and told[2].startswith("never: train.max_steps is 6: all rows")
