"""Child runs: from which checkpoint, with which values, and that the parent stays as it is."""

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from ftui.errors import ProfileError, UsageError
from ftui.launch.fork import describe_epochs, find_origin, fork, is_newest
from ftui.launch.open_run import create, stored_profile
from ftui.profile.layers import resolve
from ftui.profile.serialize import weights_difference
from ftui.runs import checkpoint_folders
from ftui.runs.checkpoint_folders import Manifest, publish, step_of
from ftui.runs.journal import Writer
from ftui.runs.run_folder import Run, runs_root
from tests.support.events import make_run_started

PROFILE = '[run]\nstage = "sft"\n[model]\nname_or_path = "hub/model"\n[data]\ntrain = "rows.jsonl"\n'
Parent = Callable[..., Run]


@pytest.fixture
def path(tmp_path: Path) -> Path:
    path = tmp_path / "mine.toml"
    path.write_text(PROFILE)
    path.with_name("rows.jsonl").touch()
    return path


@pytest.fixture
def parent(path: Path) -> Run:
    """A run with checkpoints 4, 8 (its best) and 12, all of which are whole."""
    run = Run(runs_root() / "mine")
    assert create(run, resolve(path))
    for step in (4, 8, 12):
        add(run, step, best=8 if step >= 8 else 4)
    return run


def add(run: Run, step: int, *, best: int, finite: bool = True, epoch: float | None = None) -> None:
    def fill(folder: Path) -> None:
        (folder / "weights.bin").write_bytes(bytes([step]) * 100)
        (folder / "resume").mkdir()
        (folder / "resume" / "state.json").write_text(json.dumps({"step": step, "best_step": best, "epoch": epoch}))

    manifest = Manifest(
        run_id=run.read_facts().run_id, attempt=1, token="t", step=step, versions={}, fingerprints={}, dtypes={},
        finite=finite, created=0.0,
    )  # fmt: skip
    publish(run.checkpoints / f"checkpoint-{step}", manifest, fill)


@pytest.mark.parametrize(
    ("overrides", "words"),
    [
        ([], ""),
        (["train.learning_rate=1e-5"], ""),
        (
            ["train.per_device_train_batch_size=4"],
            "ends at step 400 after 22.50, not 20; --set train.max_steps=350 ends",
        ),
        (
            ["train.gradient_accumulation_steps=2"],
            "ends at step 100 after 15.00, not 20; --set train.max_steps=125 ends",
        ),
        (["hardware.num_processes=2"], "ends at step 100 after 15.00, not 20"),
        (["train.num_train_epochs=3"], ""),
        (["train.per_device_train_batch_size=4", "train.num_train_epochs=4"], "after 6.50, not 4."),
        (["train.per_device_train_batch_size=4", "train.max_steps=100"], "ends at step 100 after 7.50 epochs."),
        (["train.per_device_train_batch_size=4", "data.max_length=64"], ""),
        (["train.per_device_train_batch_size=32"], "after 8.33, not 20; --set train.max_steps=95 ends it after 20."),
    ],
)
def test_a_fork_with_another_batch_says_how_many_epochs_it_comes_to(
    overrides: list[str], words: str, path: Path
) -> None:
    """Five epochs are trained: 50 steps of 8 sequences, 10 steps an epoch. One that would end before says so itself."""
    path.write_text(PROFILE + "[train]\nnum_train_epochs = 20\nper_device_train_batch_size = 8\n")
    run = Run(runs_root() / "mine")
    assert create(run, resolve(path))
    add(run, 50, best=50, epoch=5.0)
    journal = Writer(run.journal, attempt=1, token="t")
    journal.write(make_run_started(steps_per_epoch=10, effective_batch=8, num_sequences=80))
    journal.close()
    profile = resolve(path, overrides=overrides).profile
    differences = weights_difference(stored_profile(run), profile)
    told = describe_epochs(run, find_origin(run, None).checkpoint, profile, differences)
    assert words in told and bool(told) == bool(words)
    assert not told or told.startswith("5.00 epochs are trained at step 50")


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


@pytest.mark.parametrize(
    ("name", "may_differ", "command"),
    [
        (None, True, "ftui resume mine --from=checkpoint-8 --fork --set"),
        ("bolder", True, "ftui resume mine --from=checkpoint-8 --fork --name=bolder --set"),
        (None, False, "ftui resume mine --from=checkpoint-8 --set"),
    ],
)
def test_the_command_for_a_moved_file_makes_the_same_child(
    name: str | None, may_differ: bool, command: str, parent: Run, path: Path
) -> None:
    path.with_name("rows.jsonl").unlink()
    with pytest.raises(ProfileError) as refused:
        fork(find_origin(parent, "8"), resolve(path), name, may_differ=may_differ)
    assert f"{command} data.train=PLACE/rows.jsonl" in refused.value.hint


def test_a_name_that_is_taken_is_refused_and_a_free_number_found(parent: Run, path: Path) -> None:
    origin = find_origin(parent, None)
    with pytest.raises(UsageError, match="There is a run named 'mine'"):
        fork(origin, resolve(path), "mine", may_differ=False)
    assert [fork(origin, resolve(path), None, may_differ=False)[0].name for _ in range(3)] == [
        "mine-2",
        "mine-3",
        "mine-4",
    ]
