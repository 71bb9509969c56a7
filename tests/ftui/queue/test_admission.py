"""Which run gets which cards: properties of the decision, apart from processes, and its words."""

import dataclasses

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ftui.queue.admission import Need, Slot, choose

GB = 10**9
A, B, C = (Slot(card, "cuda", memory=24 * GB, free=23 * GB) for card in "ABC")
CPU = Slot("cpu", "cpu", memory=32 * GB, free=20 * GB)

slots = st.lists(
    st.builds(
        Slot, card=st.sampled_from("ABCDEF"), kind=st.sampled_from(["cuda", "cuda", "cpu"]), title=st.just(""),
        memory=st.sampled_from([0, 24 * GB, 80 * GB]), free=st.sampled_from([None, GB, 23 * GB, 79 * GB]),
        is_taken=st.booleans(), has_others=st.booleans(),
    ),
    unique_by=lambda slot: slot.card, max_size=6,
)  # fmt: skip
needs = st.lists(
    st.builds(
        Need, run_id=st.integers(0, 99).map(str), kind=st.sampled_from(["cuda", "cuda", "cpu"]),
        num_cards=st.integers(1, 3), memory=st.sampled_from([None, GB, 20 * GB, 70 * GB, 900 * GB]),
        cards=st.sampled_from([None, frozenset("AB"), frozenset("C")]),
    ),
    unique_by=lambda need: need.run_id, max_size=6,
)  # fmt: skip


@given(needs, slots)
def test_each_card_goes_to_one_run_that_may_use_it(runs: list[Need], machine: list[Slot]) -> None:
    admission = choose(runs, machine)
    by_card = {slot.card: slot for slot in machine}
    handed_out = [card for cards in admission.starts.values() for card in cards]
    assert len(handed_out) == len(set(handed_out))
    assert {*admission.starts} ^ {*admission.reasons} == {need.run_id for need in runs}, (
        "each starts or waits for a reason"
    )
    for need in runs:
        for card in admission.starts.get(need.run_id, ()):
            slot = by_card[card]
            assert slot.kind == need.kind and (need.cards is None or card in need.cards)
            assert not slot.is_taken and not slot.has_others
            if need.memory is not None and slot.free is not None:
                assert slot.free >= min(need.memory, 0.95 * max(s.memory for s in machine if s.kind == slot.kind) - 1)
        if need.run_id in admission.starts:
            assert len(admission.starts[need.run_id]) == need.num_cards


@given(needs, slots)
def test_nobody_behind_a_run_changes_what_it_gets(runs: list[Need], machine: list[Slot]) -> None:
    whole = choose(runs, machine)
    for number in range(len(runs)):
        before = choose(runs[:number], machine)
        assert all(whole.starts.get(need.run_id) == before.starts.get(need.run_id) for need in runs[:number])


@given(st.lists(st.integers(1, 3), min_size=1, max_size=12), st.lists(st.integers(1, 4), min_size=12, max_size=12))
def test_every_run_is_started_however_many_small_ones_come_first(sizes: list[int], lengths: list[int]) -> None:
    """Three cards; a run ends after so many looks. With alike cards runs start in their order."""
    waiting = [Need(str(number), "cuda", size) for number, size in enumerate(sizes)]
    busy: dict[str, tuple[int, tuple[str, ...]]] = {}
    started: list[str] = []
    for _ in range(sum(lengths) + len(sizes)):
        busy = {run: (left - 1, cards) for run, (left, cards) in busy.items() if left > 1}
        taken = {card for _, cards in busy.values() for card in cards}
        admission = choose(waiting, [dataclasses.replace(slot, is_taken=slot.card in taken) for slot in (A, B, C)])
        for run, cards in admission.starts.items():
            assert not taken & {*cards}
            busy[run] = (lengths[int(run)], cards)
            started.append(run)
        waiting = [need for need in waiting if need.run_id not in admission.starts]
    assert started == [str(number) for number in range(len(sizes))]


def one(memory: int | None = GB, number: int = 1, **fields: object) -> Need:
    return dataclasses.replace(Need("one", "cuda", number, memory), **fields)  # type: ignore[arg-type]


def held_by(names: str) -> list[Slot]:
    pairs = zip((A, B, C), names, strict=True)
    return [dataclasses.replace(card, is_taken=True, holder=name) for card, name in pairs]


SMALL = Need("small", "cuda", 1, GB)


@pytest.mark.parametrize(
    ("runs", "machine", "starts", "reasons"),
    [
        ([one()], [A, B], {"one": ("A",)}, {}),
        ([one()], [dataclasses.replace(A, is_taken=True), B], {"one": ("B",)}, {}),
        ([one()], [dataclasses.replace(A, is_taken=True)], {}, {"one": "waits for a card"}),
        ([one()], [dataclasses.replace(A, is_taken=True, holder="big")], {}, {"one": "waits for a card: big has it"}),
        (
            [one(number=3)], held_by("baa"),
            {}, {"one": "waits for 3 cards: a and b have them"},
        ),
        (
            [one(number=3)], held_by("bac"),
            {}, {"one": "waits for 3 cards: a and 2 others have them"},
        ),
        ([one()], [dataclasses.replace(A, has_others=True)], {}, {"one": "other processes are on the card"}),
        ([one()], [CPU], {}, {"one": "no card it may use"}),
        ([one(kind="cpu")], [A, CPU], {"one": ("cpu",)}, {}),
        ([one(40 * GB)], [A, dataclasses.replace(B, memory=80 * GB, free=79 * GB)], {"one": ("B",)}, {}),
        ([one(20 * GB)], [dataclasses.replace(A, memory=80 * GB, free=79 * GB), B], {"one": ("B",)}, {}),
        ([one(22 * GB)], [dataclasses.replace(A, free=9 * GB)], {}, {"one": "needs 20.5 GiB free"}),
        ([one(900 * GB)], [A], {"one": ("A",)}, {}),  # never more than an empty card has
        ([one(number=2)], [A], {}, {"one": "needs 2 cards; it may use 1 of this machine"}),
        # a run of several cards keeps what it can have; only what is of no use to it goes to one behind it
        (
            [one(number=2), SMALL], [A, dataclasses.replace(B, is_taken=True)], {},
            {"one": "has 1 of 2 cards, waits for the rest", "small": "waits for a card"},
        ),
        (
            [one(9 * GB, 2), SMALL], [A, dataclasses.replace(B, free=2 * GB), dataclasses.replace(C, is_taken=True)],
            {"small": ("B",)}, {"one": "has 1 of 2 cards, waits for the rest"},
        ),
        ([one(number=9), SMALL], [A], {"small": ("A",)}, {"one": "needs 9 cards; it may use 1 of this machine"}),
    ],
)  # fmt: skip
def test_what_a_run_gets_or_waits_for(
    runs: list[Need], machine: list[Slot], starts: dict[str, tuple[str, ...]], reasons: dict[str, str]
) -> None:
    admission = choose(runs, machine)
    assert (admission.starts, admission.reasons) == (starts, reasons)
