"""Old rollouts are let go, never one that a checkpoint is on; what a checkpoint is on goes with it into a child run."""

from pathlib import Path

import pytest

from ftui.rollouts.kept_rollouts import ENDINGS, copy_rollout, remove_old_rollouts, rollout_of
from ftui.rollouts.rollout_lines import rollout_name


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    folder = tmp_path / "rollouts"
    folder.mkdir()
    for number in range(8):
        for ending in ENDINGS[:3]:
            (folder / f"{rollout_name(number)}{ending}").write_text(f"{number}{ending}")
    return folder


def checkpoint(folder: Path, step: int, rollout: int | None) -> Path:
    path = folder.parent / "checkpoints" / f"checkpoint-{step}"
    (path / "resume").mkdir(parents=True)
    (path / "resume" / "state.json").write_text(
        "{}" if rollout is None else f'{{"step": {step}, "rollout": {rollout}}}'
    )
    return path


def numbers(folder: Path) -> list[int]:
    return sorted(int(path.name[:6]) for path in folder.glob("*.jsonl"))


def test_the_newest_and_those_of_checkpoints_stay(folder: Path) -> None:
    checkpoints = [checkpoint(folder, 3, 1), checkpoint(folder, 12, 5)]
    assert remove_old_rollouts(folder, 2, checkpoints, 7) == [0, 2, 3, 4]
    assert numbers(folder) == [1, 5, 6, 7]
    assert len(list(folder.iterdir())) == 4 * 3


def test_a_run_that_would_go_on_from_its_beginning_has_all(folder: Path) -> None:
    assert remove_old_rollouts(folder, 1, [], 7) == []
    assert remove_old_rollouts(folder, 1, [checkpoint(folder, 1, None)], 7) == []
    assert remove_old_rollouts(folder, 8, [checkpoint(folder, 9, 7)], 7) == []
    assert numbers(folder) == list(range(8)) and remove_old_rollouts(folder.parent / "none", 1, [], 0) == []


def test_a_fork_whose_rollouts_take_more_steps_keeps_the_one_it_is_on(folder: Path) -> None:
    """Its parent was at a rollout of a higher number, which came along."""
    inherited = checkpoint(folder, 8, 6)
    assert remove_old_rollouts(folder, 1, [inherited], 2) == [0, 1, 3, 4, 5]
    assert numbers(folder) == [2, 6, 7]


def test_a_child_gets_what_its_checkpoint_is_on(folder: Path, tmp_path: Path) -> None:
    own = tmp_path / "child" / "rollouts"
    own.parent.mkdir()
    copy_rollout(folder, own, checkpoint(folder, 2, None))
    assert not own.exists()
    copy_rollout(folder, own, checkpoint(folder, 5, 2))
    assert {path.name: path.read_text() for path in own.iterdir()} == {
        f"000002{ending}": f"2{ending}" for ending in ENDINGS[:3]
    }
    copy_rollout(folder, own, checkpoint(folder, 90, 44))  # complete, and let go
    assert len(list(own.iterdir())) == 3
    assert rollout_of(tmp_path / "nowhere") is None
