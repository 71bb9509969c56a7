"""What was changed on the way is changed at the same steps again, however often the run is cut."""

from collections.abc import Sequence

from hypothesis import given
from hypothesis import strategies as st

from ftui.engine.system.train_state import MICRO_BATCH, Setting, TrainState
from ftui.runs.events import ControlApplied, MicroBatchChanged

NAMES = ("learning_rate_factor", "max_steps")


def replay(*journals: Sequence[object]) -> TrainState:
    """The state after these journals, one after the other."""
    state = TrainState()
    for records in journals:
        state.replay(records)
    return state


def test_a_newer_wish_replaces_what_was_to_come() -> None:
    """Set for step 16, cut, resumed at 9, and set otherwise for step 10: what was meant for 16 no longer counts."""
    state = TrainState()
    state.change(Setting(16, "learning_rate_factor", 0.5))
    state.change(Setting(10, "learning_rate_factor", 0.25))
    assert [state.value_at("learning_rate_factor", step) for step in (9, 10, 20)] == [None, 0.25, 0.25]


def test_both_kinds_of_records_count_from_their_step() -> None:
    records = [
        ControlApplied(request="a", verb="set", step=4, settings={"max_steps": 9}),
        ControlApplied(request="b", verb="hold", step=5),
        MicroBatchChanged(step=7, old=4, new=2, place="the backward pass"),
    ]
    state = replay(records)
    assert state.settings == [Setting(5, "max_steps", 9), Setting(7, MICRO_BATCH, 2)]
    assert state.value_at(MICRO_BATCH, 6) is None


wishes = st.lists(st.tuples(st.integers(0, 30), st.sampled_from(NAMES), st.integers(1, 5)), max_size=8)


@given(wishes, st.integers(0, 8), st.integers(0, 30))
def test_replaying_over_a_checkpoint_changes_nothing(wishes: list[tuple[int, str, int]], saved: int, step: int) -> None:
    """A checkpoint holds the first of them; the journal all. The result is that of the journal alone."""
    records = [ControlApplied(request="x", verb="set", step=s, settings={name: v}) for s, name, v in wishes]
    whole = replay(records)
    assert replay(records[:saved], records) == whole
    assert replay(records, records) == whole
    for name in NAMES:
        given_until_then = [(i, v) for i, (s, n, v) in enumerate(wishes) if n == name and s < step]
        if given_until_then and not any(n == name and s >= step for s, n, _ in wishes):
            assert whole.value_at(name, step) is not None
