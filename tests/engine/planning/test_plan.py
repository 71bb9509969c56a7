"""The plan as properties: every row once an epoch, the same from the same, rows of a step, packing within its room."""

import math
import os
import subprocess
import sys
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ftui.engine.planning.packing import pack
from ftui.engine.planning.plan import Plan, make_plan

LENGTHS = st.lists(st.integers(1, 40), min_size=1, max_size=120)
BATCHES = st.integers(1, 17)
STRATEGIES = st.sampled_from(["random", "group_by_length", "sequential"])
SEEDS = st.integers(0, 2**40)
ROOM = 40


def plan_of(lengths: list[int], batch: int, strategy: str, seed: int, **more: Any) -> Plan:
    options: dict[str, Any] = {"max_steps": None, "num_train_epochs": 3, **more}
    return make_plan(np.array(lengths), effective_batch=batch, strategy=strategy, seed=seed, **options)


def epoch(plan: Plan, number: int) -> list[list[tuple[int, ...]]]:
    first = number * plan.steps_per_epoch + 1
    return [plan.step(step) for step in range(first, first + plan.steps_per_epoch)]


@given(LENGTHS, BATCHES, STRATEGIES, SEEDS, st.booleans())
def test_every_sequence_comes_once_an_epoch(
    lengths: list[int], batch: int, strategy: str, seed: int, packed: bool
) -> None:
    plan = plan_of(lengths, batch, strategy, seed, packing_length=ROOM if packed else None)
    for number in range(3):
        seen = [index for step in epoch(plan, number) for row in step for index in row]
        assert sorted(seen) == list(range(len(lengths)))


@given(LENGTHS, BATCHES, STRATEGIES, SEEDS)
def test_a_plan_is_a_pure_function(lengths: list[int], batch: int, strategy: str, seed: int) -> None:
    """Asked in any order, by two plans: what a step holds depends on nothing but its number."""
    one, other = (plan_of(lengths, batch, strategy, seed) for _ in range(2))
    steps = list(range(1, one.max_steps + 1))
    assert [one.step(step) for step in steps] == [other.step(step) for step in reversed(steps)][::-1]


@given(LENGTHS, BATCHES, STRATEGIES, SEEDS, st.booleans(), st.data())
def test_the_tokens_of_steps_are_those_of_their_rows(
    lengths: list[int], batch: int, strategy: str, seed: int, packed: bool, data: st.DataObject
) -> None:
    plan = plan_of(lengths, batch, strategy, seed, packing_length=ROOM if packed else None)
    before = data.draw(st.integers(0, plan.max_steps))
    last = data.draw(st.integers(before, 2 * plan.max_steps))
    rows = [row for step in range(before + 1, last + 1) for row in plan.step(step)]
    assert plan.num_tokens(before, last) == sum(lengths[index] for row in rows for index in row)


@given(LENGTHS, BATCHES, STRATEGIES, SEEDS)
def test_steps_are_full_except_the_last_of_an_epoch(lengths: list[int], batch: int, strategy: str, seed: int) -> None:
    plan = plan_of(lengths, batch, strategy, seed)
    assert plan.max_steps == 3 * math.ceil(len(lengths) / batch)
    sizes = [len(step) for step in epoch(plan, 1)]
    assert sizes[:-1] == [batch] * (len(sizes) - 1)
    assert sizes[-1] == (len(lengths) % batch or batch)


@given(LENGTHS, BATCHES, STRATEGIES, SEEDS)
def test_within_a_step_the_longest_come_first(lengths: list[int], batch: int, strategy: str, seed: int) -> None:
    for step in epoch(plan_of(lengths, batch, strategy, seed), 0):
        its = [lengths[index] for (index,) in step]
        assert its == sorted(its, reverse=True)


@pytest.mark.parametrize("strategy", ["random", "group_by_length"])
def test_every_epoch_and_every_seed_has_its_own_order(strategy: str) -> None:
    lengths = list(range(1, 65))
    orders = [epoch(plan_of(lengths, 4, strategy, seed), number) for seed in (1, 2) for number in range(3)]
    assert all(a != b for i, a in enumerate(orders) for b in orders[:i])


def test_sequential_is_the_order_of_the_file() -> None:
    plan = plan_of([3, 9, 1, 7, 5], 2, "sequential", 1)
    assert [sorted(step) for step in epoch(plan, 2)] == [[(0,), (1,)], [(2,), (3,)], [(4,)]]


@pytest.mark.parametrize(
    ("max_steps", "num_train_epochs", "expected"), [(7, None, 7), (None, 2.5, 8), (None, None, 3), (None, 0.01, 1)]
)
def test_the_number_of_steps(max_steps: int | None, num_train_epochs: float | None, expected: int) -> None:
    plan = plan_of([1] * 10, 4, "random", 1, max_steps=max_steps, num_train_epochs=num_train_epochs)
    assert (plan.steps_per_epoch, plan.max_steps) == (3, expected)
    assert plan.epoch_of(3) == 1.0


def padding(plan: Plan, micro_batch: int) -> float:
    """Share of the positions of an epoch that hold no token."""
    length_of = dict(zip(plan.rows, plan.lengths.tolist(), strict=True))
    real = padded = 0
    for step in epoch(plan, 0):
        for start in range(0, len(step), micro_batch):
            its = [length_of[row] for row in step[start : start + micro_batch]]
            real, padded = real + sum(its), padded + max(its) * len(its)
    return 1 - real / padded


def test_group_by_length_needs_less_padding() -> None:
    lengths = np.random.default_rng(1).lognormal(4, 0.8, 600).astype(int).clip(1, 1000).tolist()
    grouped, shuffled = (padding(plan_of(lengths, 8, strategy, 1), 8) for strategy in ("group_by_length", "random"))
    assert grouped < 0.25 * shuffled


@given(LENGTHS)
def test_packing_keeps_every_sequence_once_within_the_room(lengths: list[int]) -> None:
    rows = pack(np.array(lengths), ROOM)
    assert sorted(index for row in rows for index in row) == list(range(len(lengths)))
    fills = [sum(lengths[index] for index in row) for row in rows]
    assert max(fills) <= ROOM
    assert not any(a + b <= ROOM for i, a in enumerate(fills) for b in fills[:i]), "two rows would fit into one"


def best_fit(lengths: list[int], room: int) -> list[tuple[int, ...]]:
    """The same rule, one sequence after the other; of rows that are equally full the one filled last."""
    rows: list[list[int]] = []
    by_space: list[list[list[int]]] = [[] for _ in range(room + 1)]
    for index in sorted(range(len(lengths)), key=lambda i: -lengths[i]):
        space = next((s for s in range(lengths[index], room + 1) if by_space[s]), None)
        row = by_space[space].pop() if space is not None else []
        rows += [row] if space is None else []
        row.append(index)
        by_space[(room if space is None else space) - lengths[index]].append(row)
    return [tuple(row) for row in rows]


@given(LENGTHS, st.integers(ROOM, 3 * ROOM))
def test_packing_many_at_once_is_packing_one_by_one(lengths: list[int], room: int) -> None:
    assert list(pack(np.array(lengths), room)) == best_fit(lengths, room)


@given(LENGTHS)
def test_a_packed_plan_knows_the_lengths_of_its_rows(lengths: list[int]) -> None:
    plan = plan_of(lengths, 3, "random", 1, packing_length=ROOM)
    assert list(plan.lengths) == [sum(lengths[index] for index in row) for row in plan.rows]


SCRIPT = """
import numpy as np
from ftui.engine.planning.plan import make_plan
lengths = np.random.default_rng(0).integers(1, 40, 200)
for strategy in ("random", "group_by_length", "sequential"):
    for room in (None, 64):
        plan = make_plan(lengths, effective_batch=6, max_steps=None, num_train_epochs=2, strategy=strategy, seed=9,
                         packing_length=room)
        print([plan.step(n) for n in range(1, plan.max_steps + 1)])
"""


def test_the_plan_does_not_depend_on_pythons_hash_seed() -> None:
    outputs = set()
    for seed in ("0", "1", "4242"):
        environment = os.environ | {"PYTHONHASHSEED": seed, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
        done = subprocess.run([sys.executable, "-c", SCRIPT], env=environment, capture_output=True, check=True)
        outputs.add(done.stdout)
    assert len(outputs) == 1
    assert outputs.pop().count(b"\n") == 6
