from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ftui.engine.rewards.reward_table import reward_table
from ftui.engine.rollouts import rollout_files
from ftui.engine.rollouts.rollout import Rollout
from ftui.engine.rollouts.rollout_files import read_rollout, remove_answers, write_rollout
from ftui.errors import DataError
from ftui.system.files import replace_file

TEXTS = st.text(st.characters(exclude_categories=["Cs"]), max_size=12)


@st.composite
def rollouts(draw: st.DrawFn) -> Rollout:
    groups, size, scored = draw(st.integers(0, 4)), draw(st.integers(1, 4)), draw(st.booleans())
    random = np.random.default_rng(draw(st.integers(0, 1 << 32)))
    number = groups * size

    def ragged(count: int) -> list[np.ndarray]:
        return [random.integers(0, 1 << 31, random.integers(0, 9)).astype(np.int32) for _ in range(count)]

    completion_ids = ragged(number)
    values = random.normal(size=(2, number))
    values[random.random((2, number)) < 0.3] = np.nan
    return Rollout(
        step=draw(st.integers(0, 1 << 40)), seed=draw(st.integers(0, (1 << 62) - 1)), group_size=size,
        rows=np.arange(groups), prompt_ids=ragged(groups), completion_ids=completion_ids,
        log_probs=[random.normal(size=len(ids)).astype(np.float32) for ids in completion_ids],
        is_complete=random.random(number) < 0.5,
        prompts=[draw(TEXTS) for _ in range(groups)], completions=[draw(TEXTS) for _ in range(number)],
        rewards=reward_table(["a", "b/c"], [1.0, 0.5], values.tolist()) if scored else None,
        advantages=random.normal(size=number).astype(np.float32) if scored else None,
    )  # fmt: skip


def assert_same(one: Rollout, other: Rollout) -> None:
    assert (one.step, one.seed, one.group_size) == (other.step, other.seed, other.group_size)
    assert (one.prompts, one.completions) == (other.prompts, other.completions)
    for name in ("prompt_ids", "completion_ids", "log_probs"):
        arrays, others = getattr(one, name), getattr(other, name)
        assert [a.dtype for a in arrays] == [a.dtype for a in others]
        assert [a.tobytes() for a in arrays] == [a.tobytes() for a in others]
    assert np.array_equal(one.is_complete, other.is_complete) and np.array_equal(one.rows, other.rows)
    assert (one.rewards is None) == (other.rewards is None)
    if one.rewards is not None and other.rewards is not None:
        assert one.rewards.names == other.rewards.names
        assert np.array_equal(one.rewards.values, other.rewards.values, equal_nan=True)
        assert np.array_equal(one.rewards.totals, other.rewards.totals, equal_nan=True)
    assert (one.advantages is None) == (other.advantages is None)
    if one.advantages is not None and other.advantages is not None:
        assert np.array_equal(one.advantages, other.advantages)


@given(rollout=rollouts())
def test_what_is_written_is_read(tmp_path_factory: pytest.TempPathFactory, rollout: Rollout) -> None:
    folder = tmp_path_factory.mktemp("run") / "rollouts"
    wanted = write_rollout(folder, 7, rollout)
    is_scored = rollout.rewards is not None
    assert_same(read_rollout(folder, 7, wanted, is_scored=is_scored), rollout)
    assert write_rollout(folder, 7, rollout) == wanted, "the same bytes each time"


def a_rollout(scored: bool = True) -> Rollout:
    table = reward_table(["f"], [1.0], [[1.0, None]]) if scored else None
    return Rollout(
        step=3, seed=5, group_size=2, rows=np.array([4]), prompt_ids=[np.array([1, 2], np.int32)],
        completion_ids=[np.array([3], np.int32), np.array([4, 5], np.int32)],
        log_probs=[np.array([-1.0], np.float32), np.array([-2.0, -3.0], np.float32)],
        is_complete=np.array([True, False]), prompts=["p"], completions=["a", "b"], rewards=table,
        advantages=np.zeros(2, np.float32) if scored else None,
    )  # fmt: skip


@pytest.mark.parametrize("ending", ["safetensors", "jsonl"])
def test_a_byte_that_changed_or_is_missing_is_noticed(tmp_path: Path, ending: str) -> None:
    folder = tmp_path / "rollouts"
    wanted = write_rollout(folder, 1, a_rollout())
    path = folder / f"000001.{ending}"
    whole = path.read_bytes()
    for place in {0, 7, 8, len(whole) // 3, len(whole) // 2, len(whole) - 1}:
        damaged = bytearray(whole)
        damaged[place] ^= 1
        for content in (bytes(damaged), whole[:place]):
            path.write_bytes(content)
            with pytest.raises(DataError, match=path.name):
                read_rollout(folder, 1, wanted)
    path.unlink()
    with pytest.raises(DataError, match="cannot be read") as error:
        read_rollout(folder, 1, wanted)
    assert "--from" in error.value.hint


def test_answers_stay_until_their_scores_are_on_the_disk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Cut at each write of the scored one: either it is there, or the unscored one is whole."""
    folder, real = tmp_path / "rollouts", replace_file
    for cut in range(2):
        unscored = write_rollout(folder, 1, a_rollout(scored=False))
        writes = iter(range(9))

        def failing(path: Path, data: bytes, *, durable: bool, at: int = cut, count: object = writes) -> None:
            if next(count) == at:  # type: ignore[call-overload]
                raise OSError(28, "No space left on device")
            real(path, data, durable=durable)

        monkeypatch.setattr(rollout_files, "replace_file", failing)
        with pytest.raises(OSError, match="No space"):
            write_rollout(folder, 1, a_rollout())
        monkeypatch.setattr(rollout_files, "replace_file", real)
        assert_same(read_rollout(folder, 1, unscored, is_scored=False), a_rollout(scored=False))
    wanted = write_rollout(folder, 1, a_rollout())
    remove_answers(folder, 1)
    assert {path.name for path in folder.iterdir()} == {"000001.safetensors", "000001.jsonl"}
    assert_same(read_rollout(folder, 1, wanted), a_rollout())


def test_other_people_cannot_read_it(tmp_path: Path) -> None:
    folder = tmp_path / "rollouts"
    write_rollout(folder, 1, a_rollout())
    assert folder.stat().st_mode & 0o777 == 0o700
    assert {path.stat().st_mode & 0o777 for path in folder.iterdir()} == {0o600}
