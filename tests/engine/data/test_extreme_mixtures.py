"""Weights, temperatures and epochs that hardly anybody means: nothing is lost or believed without a word."""

import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ftui.dataset.row_counts import count_lines
from ftui.engine.planning.curriculum_plan import CurriculumPlan
from ftui.engine.planning.mixing import MOST_REPEATED, MOST_STEPS, compute_shares, make_run_plan, temper_counts
from ftui.engine.planning.plan import SourceShare, make_plan
from ftui.engine.services.count_rows import count_profile
from ftui.errors import DataError
from ftui.profile.sections.curriculum import CurriculumStage
from ftui.profile.sections.data import DataSource
from tests.support.tiny import chats, completions, make_profile, write_rows


def sources(*tables: dict[str, Any]) -> list[Any]:
    class Named(DataSource):
        @property
        def name(self) -> str:
            return self.path

    return [Named.model_validate({"path": f"source{n}"} | table) for n, table in enumerate(tables)]


# -- temperatures


@given(
    sizes=st.lists(st.integers(0, 10**9), min_size=1, max_size=6),
    temperature=st.floats(1e-300, 1e300) | st.sampled_from([1e-9, 5e-324, 1.0, 1e308]),
)
def test_as_many_rows_whatever_the_temperature(sizes: list[int], temperature: float) -> None:
    """Larger sources never get fewer; the coldest mixture is the largest alone, the hottest an even one."""
    found = temper_counts(sizes, temperature)
    assert sum(found) == sum(sizes)
    assert all(count >= 0 and (size or not count) for size, count in zip(sizes, found, strict=True))
    for size, count in zip(sizes, found, strict=True):
        assert all(count >= other - 1 for its, other in zip(sizes, found, strict=True) if its <= size)
    if temperature < 1e-12 and any(sizes):
        assert all(size == max(sizes) or not count for size, count in zip(sizes, found, strict=True))
    if temperature == 1.0:
        assert found == sizes


def test_a_temperature_that_leaves_a_source_out_is_refused() -> None:
    """It was told as 41 sequences and were 2: the large source had vanished."""
    assert temper_counts([40, 1], 1e-9) == [41, 0]
    with pytest.raises(DataError, match="source1: weight 0 of 1 sequences leaves none") as caught:
        compute_shares(sources({}, {}), [40, 1], [40, 1], 1e-9)
    assert "data.mixing_temperature" in caught.value.hint


# -- weights


@pytest.mark.parametrize(
    "table", [{"weight": 1e6}, {"num_samples": 10**9}, {"num_samples": MOST_REPEATED + 401}], ids=str
)
def test_an_endless_epoch_is_refused_at_once(table: dict[str, Any]) -> None:
    begun = time.process_time()
    with pytest.raises(DataError, match=r"source1: [\d,]+ sequences in an epoch, of 40 that there are") as caught:
        compute_shares(sources({}, table), [40, 40], [40, 40], None)
    assert time.process_time() - begun < 1
    assert "num_train_epochs" in caught.value.hint


def test_repetitions_that_can_be_mixed_are_mixed() -> None:
    """However large the sources themselves are."""
    for table, size, per_epoch in (
        ({"weight": 1000.0}, 40, 40_000), ({"num_samples": 5_000_000}, 40, 5_000_000), ({}, 10**9, 10**9),
        ({"weight": 3.0}, 10**8, 3 * 10**8),
    ):  # fmt: skip
        (share,) = compute_shares(sources(table), [size], [size], None)
        assert share.per_epoch == per_epoch


@pytest.mark.parametrize(
    "section",
    [
        {"data": {"train": [{"path": "/a", "weight": 1e7}]}},
        {"data": {"train": [{"path": "/a", "num_samples": 3 * 10**9}]}},
        {"data": {"train": [{"path": "/a", "weight": 1e308}]}}, {"train": {"num_train_epochs": 1e12}},
        {"train": {"num_train_epochs": 1e308}}, {"train": {"max_steps": 10**30}},
        {"curriculum": [{"num_train_epochs": 1e12}]},
    ],
    ids=str,
)  # fmt: skip
def test_a_profile_cannot_ask_for_what_no_number_holds(section: dict[str, Any]) -> None:
    stages = section.pop("curriculum", None)
    with pytest.raises(ValueError, match="less than or equal to"):
        if stages:
            CurriculumStage.model_validate(stages[0])
        make_profile(Path("/m"), Path("/r"), **section)


@pytest.mark.parametrize("in_stages", [False, True])
def test_a_run_without_an_end_is_refused(in_stages: bool) -> None:
    stages: Any = (CurriculumStage(), CurriculumStage(num_train_epochs=1e9))
    profile = make_profile(Path("/m"), Path("/r"), train={"num_train_epochs": None if in_stages else 1e9})
    profile = profile.model_copy(update={"curriculum": stages if in_stages else ()})
    lengths = np.ones(9000, np.int32)
    shares = [SourceShare(9000)]
    with pytest.raises(DataError, match=r"The run would have [\d.e+]+ steps") as caught:
        make_run_plan(profile, lengths, lengths, shares)
    assert ("epochs of its stages" if in_stages else "train.num_train_epochs") in caught.value.hint
    plan = make_run_plan(profile, lengths[:9], lengths[:9], [SourceShare(9)])
    assert plan.max_steps <= MOST_STEPS and len(plan.step(plan.max_steps)) > 0
    assert plan.num_tokens(0, plan.max_steps) == 9 * (10**9 + in_stages)


# -- weights of packed rows


@given(
    lengths=st.lists(st.integers(1, 30), min_size=1, max_size=60),
    weight=st.floats(0.01, 3),
    fraction=st.floats(0.02, 1),
    room=st.integers(30, 400),
)
def test_no_source_vanishes_where_its_rows_are_packed(
    lengths: list[int], weight: float, fraction: float, room: int
) -> None:
    """What the weight leaves of its sequences is trained, though they fit into too few rows to leave any of those."""
    amounts = np.array([*lengths, 5])
    number = max(1, round(fraction * len(lengths)))
    ranks = np.full(len(amounts), -1)
    ranks[:number] = np.arange(number)
    plan = make_plan(
        amounts, effective_batch=4, max_steps=None, num_train_epochs=1, strategy="random", seed=1, packing_length=room,
        sources=[SourceShare(len(lengths), weight), SourceShare(1)], ranks=ranks,
    )  # fmt: skip
    assert plan.rows_per_epoch or round(weight * number) == 0
    if plan.rows_per_epoch:
        assert sum(len(plan.rows[int(row)]) for row in plan.order(0)) > 0


def test_a_small_stage_of_a_weighted_packed_source_has_rows(model_folder: Path, tmp_path: Path) -> None:
    weighted, one = write_rows(tmp_path / "a.jsonl", chats(40)), write_rows(tmp_path / "b.jsonl", completions(1))
    data = {"train": [{"path": str(weighted), "weight": 0.5}, str(one)], "packing": True, "max_length": 256}
    profile = make_profile(model_folder, weighted, data=data)
    profile = profile.model_copy(update={"curriculum": (CurriculumStage(fraction=0.1), CurriculumStage())})
    assert (count_profile(profile).max_steps or 0) >= 2
    lengths = np.full(41, 10, np.int32)
    plan = make_run_plan(profile, lengths, lengths, [SourceShare(40, 0.5), SourceShare(1)])
    assert isinstance(plan, CurriculumPlan)
    assert [sum(map(len, plan.stages[0].step(n + 1))) for n in range(plan.stages[0].max_steps)] == [2]


# -- what a dry run says of a curriculum


def test_a_dry_run_says_that_an_epoch_of_a_curriculum_is_a_mean_one(model_folder: Path, tmp_path: Path) -> None:
    rows = write_rows(tmp_path / "rows.jsonl", chats(40))
    plain = make_profile(model_folder, rows)
    staged = plain.model_copy(
        update={"curriculum": (CurriculumStage(fraction=0.1, num_train_epochs=3), CurriculumStage())}
    )
    for profile, word, others in ((plain, " per epoch", " per mean epoch"), (staged, " per mean epoch", " per epoch")):
        counts = count_profile(profile)
        lines = "\n".join(count_lines(counts))
        assert lines.count(word) == 4 and others not in lines
        (of_all,) = [line.split()[-1] for line in lines.splitlines() if line.startswith("tokens of all steps")]
        assert of_all == f"{counts.num_tokens:,}"
        assert (counts.num_tokens == counts.num_train_tokens) == (profile is plain)
