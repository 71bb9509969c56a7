"""Child runs: from which checkpoint, with which values, and that the parent stays as it is."""

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from ftui.errors import ProfileError, UsageError
from ftui.launch.fork import find_origin, fork, is_newest
from ftui.launch.open_run import create, stored_profile
from ftui.profile.layers import resolve
from ftui.runs import checkpoint_folders
from ftui.runs.checkpoint_folders import Manifest, publish, step_of
from ftui.runs.run_folder import Run, runs_root

PROFILE = '[run]\nstage = "sft"\n[model]\nname_or_path = "hub/model"\n[data]\ntrain = "rows.jsonl"\n'
Parent = Callable[..., Run]


@pytest.fixture
def path(tmp_path: Path) -> Path:
    path = tmp_path / "mine.toml"
    path.write_text(PROFILE)
    return path


@pytest.fixture
def parent(path: Path) -> Run:
    """A run with checkpoints 4, 8 (its best) and 12, all of which are whole."""
    run = Run(runs_root() / "mine")
    assert create(run, resolve(path))
    for step in (4, 8, 12):
        add(run, step, best=8 if step >= 8 else 4)
    return run


def add(run: Run, step: int, *, best: int, finite: bool = True) -> None:
    def fill(folder: Path) -> None:
        (folder / "weights.bin").write_bytes(bytes([step]) * 100)
        (folder / "resume").mkdir()
        (folder / "resume" / "state.json").write_text(json.dumps({"step": step, "best_step": best}))

    manifest = Manifest(
        run_id=run.read_facts().run_id, attempt=1, token="t", step=step, versions={}, fingerprints={}, dtypes={},
        finite=finite, created=0.0,
    )  # fmt: skip
    publish(run.checkpoints / f"checkpoint-{step}", manifest, fill)


@pytest.mark.parametrize("text", ["checkpoint-120", "120"])
def test_a_checkpoint_is_named_by_folder_or_step(text: str) -> None:
    assert step_of(text) == 120


@pytest.mark.parametrize("text", ["", "../checkpoint-4", "checkpoint-", "-4", "4.5", "best", "/checkpoint-4"])
def test_what_names_no_checkpoint_is_refused(text: str) -> None:
    with pytest.raises(UsageError, match="names no checkpoint"):
        step_of(text)


def test_the_newest_valid_one_is_where_an_ordinary_resume_goes_on(parent: Run) -> None:
    assert find_origin(parent, None).checkpoint.step == 12
    assert is_newest(find_origin(parent, "12")) and not is_newest(find_origin(parent, "8"))
    (parent.checkpoints / "checkpoint-12" / "weights.bin").write_bytes(b"\1" * 100)
    assert find_origin(parent, None).checkpoint.step == 8
    assert is_newest(find_origin(parent, "8"))
    add(parent, 16, best=8, finite=False)
    assert find_origin(parent, None).checkpoint.step == 8, "nobody continues from weights that are not finite"


def test_a_checkpoint_that_is_not_there_or_damaged_is_named(parent: Run) -> None:
    with pytest.raises(UsageError, match="has no checkpoint-5") as missing:
        find_origin(parent, "checkpoint-5")
    assert missing.value.hint == "There are: 4, 8, 12."
    (parent.checkpoints / "checkpoint-8" / "weights.bin").unlink()
    with pytest.raises(UsageError, match=r"checkpoint-8 of mine is damaged: weights.bin: missing"):
        find_origin(parent, "8")


def test_a_child_takes_its_checkpoint_and_the_best_one_with_it(parent: Run, path: Path) -> None:
    before = {p: p.read_bytes() for p in parent.folder.rglob("*") if p.is_file()}
    child, differences = fork(find_origin(parent, "12"), resolve(path), None, may_differ=False)
    assert (child.name, differences) == ("mine-2", [])
    assert [c.step for c in checkpoint_folders.checkpoints_in(child.checkpoints)] == [12, 8]
    facts = child.read_facts()
    assert facts.parent_run == parent.read_facts().run_id != facts.run_id
    assert (facts.parent_name, facts.parent_checkpoint, facts.fork) == ("mine", "checkpoint-12", False)
    for step in (8, 12):
        assert checkpoint_folders.fault(child.checkpoints / f"checkpoint-{step}", run_id=[facts.parent_run]) is None
    checkpoint_folders.discard(parent.checkpoints / "checkpoint-12")
    assert checkpoint_folders.fault(child.checkpoints / "checkpoint-12") is None, "the child needs its parent no more"
    left = {p: p.read_bytes() for p in before if p.exists()}
    assert left == {p: data for p, data in before.items() if "checkpoint-12" not in str(p)}


def test_other_values_are_refused_with_the_difference_unless_it_is_a_fork(parent: Run, path: Path) -> None:
    other = resolve(path, overrides=["train.learning_rate=0.5"])
    with pytest.raises(ProfileError, match=r"train.learning_rate: 0.0002 -> 0.5"):
        fork(find_origin(parent, None), other, None, may_differ=False)
    child, differences = fork(find_origin(parent, None), other, "bolder", may_differ=True)
    assert child.name == "bolder" and child.read_facts().fork
    assert differences == ["train.learning_rate: 0.0002 -> 0.5"]
    assert stored_profile(child).train.learning_rate == 0.5
    assert stored_profile(parent).train.learning_rate == 2e-4


def test_a_name_that_is_taken_is_refused_and_a_free_number_found(parent: Run, path: Path) -> None:
    origin = find_origin(parent, None)
    with pytest.raises(UsageError, match="There is a run named 'mine'"):
        fork(origin, resolve(path), "mine", may_differ=False)
    assert [fork(origin, resolve(path), None, may_differ=False)[0].name for _ in range(3)] == [
        "mine-2",
        "mine-3",
        "mine-4",
    ]
