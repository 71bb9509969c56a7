"""Checkpoints as files: what is written comes back bit for bit, and every kind of damage is found and named."""

import json
import os
import random
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.torch import load_file, save_file

from ftui.engine.optim.optimizer_state import flatten_state, nest_state
from ftui.engine.system.rng import RngState
from ftui.runs import checkpoint_folders
from ftui.runs.checkpoint_folders import MANIFEST, Checkpoint, FileEntry, Manifest

RUN_ID = "0123456789abcdef"
CPU = torch.device("cpu")
FILES = ("config.json", "model.safetensors", "resume/optimizer.safetensors", "resume/state.json")


def trained() -> tuple[torch.nn.Module, torch.optim.AdamW]:
    """A small module after three steps of an optimizer with two groups, one of them in another precision."""
    torch.manual_seed(2)
    module = torch.nn.Sequential(torch.nn.Linear(5, 7), torch.nn.Linear(7, 3).to(torch.bfloat16))
    groups = [
        {"params": list(module[0].parameters()), "weight_decay": 0.1, "lr": 1e-3},
        {"params": list(module[1].parameters()), "weight_decay": 0.0, "lr": 1e-2},
    ]
    optimizer = torch.optim.AdamW(groups, betas=(0.8, 0.95))
    for number in range(3):
        one_step(module, optimizer, number)
    return module, optimizer


def one_step(module: torch.nn.Module, optimizer: torch.optim.Optimizer, seed: int) -> None:
    generator = torch.Generator().manual_seed(seed)
    for weight in module.parameters():
        weight.grad = torch.randn(weight.shape, generator=generator).to(weight.dtype)
    optimizer.step()


def same(one: Any, other: Any) -> bool:
    if isinstance(one, torch.Tensor):
        return one.dtype == other.dtype and torch.equal(one, other)
    return bool(one == other)


def test_an_optimizers_state_comes_back_bit_for_bit(tmp_path: Path) -> None:
    module, optimizer = trained()
    state = optimizer.state_dict()
    tensors, plain = flatten_state(state)
    save_file(tensors, tmp_path / "optimizer.safetensors")
    (tmp_path / "optimizer.json").write_text(json.dumps(plain))
    back = nest_state(
        load_file(tmp_path / "optimizer.safetensors"), json.loads((tmp_path / "optimizer.json").read_text())
    )
    assert back["state"].keys() == state["state"].keys() == {0, 1, 2, 3}
    for index, values in state["state"].items():
        assert back["state"][index].keys() == values.keys() == {"step", "exp_avg", "exp_avg_sq"}
        assert all(same(value, back["state"][index][name]) for name, value in values.items())

    other, fresh = trained()
    fresh.load_state_dict(back)
    for group, its in zip(optimizer.param_groups, fresh.param_groups, strict=True):
        assert {k: v for k, v in group.items() if k not in ("params", "betas")} == {
            k: v for k, v in its.items() if k not in ("params", "betas")
        }
        assert tuple(group["betas"]) == tuple(its["betas"])
    one_step(module, optimizer, 9)
    one_step(other, fresh, 9)
    assert all(same(a, b) for a, b in zip(module.parameters(), other.parameters(), strict=True))


def test_values_of_an_optimizer_that_are_no_tensors_come_back() -> None:
    state = {"state": {3: {"count": 5, "moment": torch.ones(2)}}, "param_groups": [{"params": [3]}]}
    tensors, plain = flatten_state(state)
    assert tensors.keys() == {"3.moment"}
    back = nest_state(tensors, json.loads(json.dumps(plain)))
    assert back["state"][3]["count"] == 5
    assert torch.equal(back["state"][3]["moment"], torch.ones(2))


def draws() -> tuple[list[float], list[float], list[float], float]:
    return (
        [random.random() for _ in range(700)],
        np.random.standard_normal(700).tolist(),
        torch.randn(700).tolist(),
        random.gauss(0, 1),
    )


def test_random_generators_go_on_where_they_were(tmp_path: Path) -> None:
    for seed in (random.seed, np.random.seed, torch.manual_seed):
        seed(6)
    random.gauss(0, 1)  # leaves a second value waiting inside
    np.random.standard_normal(3)
    state = RngState.capture(CPU)
    save_file(state.tensors(), tmp_path / "rng.safetensors")
    (tmp_path / "rng.json").write_text(json.dumps(state.plain()))
    expected = draws()
    assert draws() != expected
    back = RngState.rebuild(load_file(tmp_path / "rng.safetensors"), json.loads((tmp_path / "rng.json").read_text()))
    back.restore(CPU)
    assert draws() == expected


def fill(folder: Path) -> None:
    (folder / "resume").mkdir(mode=0o700)
    (folder / "config.json").write_text('{"model_type": "llama"}')
    weights = {"w": torch.arange(8, dtype=torch.float32), "b": torch.ones(3)}
    save_file(weights, folder / "model.safetensors", metadata={"format": "pt"})
    save_file({"0.exp_avg": torch.full((6,), 0.5)}, folder / "resume" / "optimizer.safetensors")
    (folder / "resume" / "state.json").write_text('{"step": 3}')


def manifest(step: int, *, run_id: str = RUN_ID, finite: bool = True) -> Manifest:
    return Manifest(
        run_id=run_id, attempt=1, token="t", step=step, versions={}, fingerprints={"data": "x"},
        dtypes={"float32": 2}, finite=finite, created=0.0,
    )  # fmt: skip


def publish(root: Path, step: int, **facts: Any) -> Checkpoint:
    path = root / f"checkpoint-{step}"
    checkpoint_folders.publish(path, manifest(step, **facts), fill)
    return Checkpoint(path, step)


def delete(path: Path) -> None:
    path.unlink()


def empty(path: Path) -> None:
    path.write_bytes(b"")


def halve(path: Path) -> None:
    os.truncate(path, path.stat().st_size // 2)


def cut_one_byte(path: Path) -> None:
    os.truncate(path, path.stat().st_size - 1)


def lengthen(path: Path) -> None:
    path.write_bytes(path.read_bytes() + b"\0")


def zero_the_tail(path: Path) -> None:
    """As after a power cut: the file has its length, but its second half never reached the disk."""
    data = path.read_bytes()
    path.write_bytes(data[: len(data) // 2] + bytes(len(data) - len(data) // 2))


def flip_a_bit(path: Path, position: int = -1, bit: int = 0) -> None:
    data = bytearray(path.read_bytes())
    data[position] ^= 1 << bit
    path.write_bytes(data)


SHORTENED: tuple[Callable[[Path], None], ...] = (delete, empty, halve, cut_one_byte, lengthen)
DAMAGES = (*SHORTENED, zero_the_tail, flip_a_bit)


def test_a_checkpoint_is_whole_private_and_says_what_it_holds(tmp_path: Path) -> None:
    before = os.umask(0)
    try:
        checkpoint = publish(tmp_path / "checkpoints", 3)
    finally:
        os.umask(before)
    assert checkpoint_folders.fault(checkpoint.path) is None
    assert checkpoint_folders.fault(checkpoint.path, quick=True, run_id=RUN_ID) is None
    found = checkpoint_folders.read_manifest(checkpoint.path)
    assert tuple(found.files) == FILES
    for name, entry in found.files.items():
        path = checkpoint.path / name
        assert entry == FileEntry(path.stat().st_size, checkpoint_folders.file_hash(path))
    for path in (checkpoint.path, *checkpoint.path.rglob("*")):
        assert path.stat().st_mode & 0o777 == (0o700 if path.is_dir() else 0o600), path
    assert [path.name for path in (tmp_path / "checkpoints").iterdir()] == ["checkpoint-3"]


@pytest.mark.parametrize("damage", DAMAGES)
@pytest.mark.parametrize("name", FILES)
def test_damage_is_found_and_the_file_named(name: str, damage: Callable[[Path], None], tmp_path: Path) -> None:
    checkpoint = publish(tmp_path, 3)
    damage(checkpoint.path / name)
    reason = checkpoint_folders.fault(checkpoint.path)
    assert reason is not None
    assert reason.startswith(f"{name}: ")
    if damage in SHORTENED:
        assert checkpoint_folders.fault(checkpoint.path, quick=True) == reason


@pytest.mark.parametrize("damage", [delete, empty, halve, cut_one_byte, zero_the_tail])
def test_a_damaged_manifest_is_named(damage: Callable[[Path], None], tmp_path: Path) -> None:
    checkpoint = publish(tmp_path, 3)
    damage(checkpoint.path / MANIFEST)
    reason = checkpoint_folders.fault(checkpoint.path, quick=True)
    assert reason is not None
    assert reason.startswith(f"{MANIFEST}: ")


@pytest.mark.slow
@pytest.mark.parametrize("name", FILES)
def test_every_flipped_bit_is_found(name: str, tmp_path: Path) -> None:
    """Each bit of each file, the headers of the safetensors too, whatever the flip makes of them."""
    checkpoint = publish(tmp_path, 3)
    path = checkpoint.path / name
    whole = path.read_bytes()
    for position in range(len(whole)):
        for bit in range(8):
            flip_a_bit(path, position, bit)
            reason = checkpoint_folders.fault(checkpoint.path)
            assert reason is not None, f"bit {bit} of byte {position}"
            assert reason.startswith(f"{name}: ")
            path.write_bytes(whole)
    assert checkpoint_folders.fault(checkpoint.path) is None


def test_a_foreign_or_newer_checkpoint_is_refused(tmp_path: Path) -> None:
    checkpoint = publish(tmp_path, 3, run_id="feedfeedfeedfeed")
    assert checkpoint_folders.fault(checkpoint.path, run_id=RUN_ID) == "belongs to another run (feedfeedfeedfeed)"
    path = checkpoint.path / MANIFEST
    path.write_bytes(path.read_bytes().replace(b'"format": 2', b'"format": 3'))
    assert checkpoint_folders.fault(checkpoint.path) == "written by a newer ftui (format 3, this one reads 2)"


@pytest.mark.parametrize("damage", DAMAGES)
def test_the_newest_valid_one_is_the_next(damage: Callable[[Path], None], tmp_path: Path) -> None:
    for step in (10, 9, 100):
        publish(tmp_path, step)
    (tmp_path / "checkpoint-latest").mkdir()
    (tmp_path / "quarantine").mkdir()
    found, rejected = checkpoint_folders.newest_valid(tmp_path, RUN_ID)
    assert found is not None
    assert (found.step, rejected) == (100, [])
    damage(tmp_path / "checkpoint-100" / "model.safetensors")
    found, rejected = checkpoint_folders.newest_valid(tmp_path, RUN_ID)
    assert found is not None
    assert found.step == 10
    ((bad, reason),) = rejected
    assert bad.step == 100
    assert reason.startswith("model.safetensors: ")
    moved = checkpoint_folders.quarantine(bad)
    assert (moved.parent.name, bad.path.exists(), moved.exists()) == ("quarantine", False, True)
    found, rejected = checkpoint_folders.newest_valid(tmp_path, RUN_ID)
    assert rejected == []


def test_the_newest_is_judged_by_its_step_not_by_clocks_and_only_in_this_run(tmp_path: Path) -> None:
    for step in (1, 2, 3):
        publish(tmp_path, step)
        os.utime(tmp_path / f"checkpoint-{step}", (1e9 - step, 1e9 - step))
    publish(tmp_path, 4, run_id="another")
    publish(tmp_path, 5, finite=False)
    found, rejected = checkpoint_folders.newest_valid(tmp_path, RUN_ID)
    assert found is not None
    assert found.step == 3
    assert [(c.step, reason) for c, reason in rejected] == [
        (5, "holds NaN or infinite weights"),
        (4, "belongs to another run (another)"),
    ]
    assert checkpoint_folders.newest_valid(tmp_path / "nowhere", RUN_ID) == (None, [])


@pytest.mark.parametrize(
    ("keep", "protected", "left"),
    [(2, (), [5, 4]), (1, (), [5, 4]), (0, (), [5, 4]), (3, (), [5, 4, 3]), (2, (1,), [5, 4, 1]), (2, (5,), [5, 4, 3])],
)
def test_rotation_keeps_two_and_the_protected(
    keep: int, protected: tuple[int, ...], left: list[int], tmp_path: Path
) -> None:
    made = {step: publish(tmp_path, step) for step in (3, 1, 5, 2, 4)}
    removed = checkpoint_folders.rotate(tmp_path, keep=keep, protected=protected)
    assert [c.step for c in checkpoint_folders.checkpoints_in(tmp_path)] == left
    assert {c.step for c in removed} == made.keys() - set(left)
    assert len(list(tmp_path.iterdir())) == len(left), "nothing half-deleted is left"


def test_sweeping_takes_what_a_kill_left_and_nothing_else(tmp_path: Path) -> None:
    publish(tmp_path, 1)
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    (elsewhere / "precious").write_text("x")
    for name in (".partial-checkpoint-2-aa", ".trash-checkpoint-1-bb"):
        shutil.copytree(tmp_path / "checkpoint-1", tmp_path / name)
    (tmp_path / ".partial-checkpoint-2-aa" / "link").symlink_to(elsewhere)
    (tmp_path / "quarantine").mkdir()
    checkpoint_folders.sweep(tmp_path)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["checkpoint-1", "elsewhere", "quarantine"]
    assert (elsewhere / "precious").exists(), "links are removed, never followed"
    checkpoint_folders.sweep(tmp_path / "nowhere")


def test_a_full_disk_leaves_nothing(tmp_path: Path) -> None:
    publish(tmp_path, 1)

    def fill_half(folder: Path) -> None:
        fill(folder)
        raise OSError(28, "No space left on device")

    with pytest.raises(OSError, match="No space left"):
        checkpoint_folders.publish(tmp_path / "checkpoint-2", manifest(2), fill_half)
    assert [path.name for path in tmp_path.iterdir()] == ["checkpoint-1"]


def test_a_kill_leaves_nothing_under_a_final_name(tmp_path: Path) -> None:
    def die(folder: Path) -> None:
        fill(folder)
        raise KeyboardInterrupt  # stands for anything that is no error of the disk

    with pytest.raises(KeyboardInterrupt):
        checkpoint_folders.publish(tmp_path / "checkpoint-2", manifest(2), die)
    assert checkpoint_folders.checkpoints_in(tmp_path) == []
    checkpoint_folders.sweep(tmp_path)
    assert list(tmp_path.iterdir()) == []


def test_publishing_again_replaces_the_folder_whole(tmp_path: Path) -> None:
    """Only final/ is ever written twice; what the old one held and the new one does not must be gone."""

    def fill_other(folder: Path) -> None:
        (folder / "adapter.json").write_text("{}")

    checkpoint_folders.publish(tmp_path / "final", manifest(1), fill)
    checkpoint_folders.publish(tmp_path / "final", manifest(2), fill_other)
    assert sorted(path.name for path in (tmp_path / "final").iterdir()) == [MANIFEST, "adapter.json"]
    assert checkpoint_folders.fault(tmp_path / "final") is None
    assert [path.name for path in tmp_path.iterdir()] == ["final"]


def test_what_somebody_put_into_a_checkpoint_is_never_deleted(tmp_path: Path) -> None:
    """Rotation deletes what the manifest names and nothing else; links are removed, not followed."""
    outside = tmp_path / "outside"
    outside.mkdir()
    (outside / "precious").write_text("mine")
    for step in (1, 2, 3):
        publish(tmp_path / "checkpoints", step)
    first = tmp_path / "checkpoints" / "checkpoint-1"
    (first / "notes.txt").write_text("mine")
    (first / "link").symlink_to(outside)
    removed = checkpoint_folders.rotate(tmp_path / "checkpoints", keep=2, protected=())
    assert [checkpoint.step for checkpoint in removed] == [1]
    checkpoint_folders.sweep(tmp_path / "checkpoints")
    assert (outside / "precious").read_text() == "mine"
    (left,) = (tmp_path / "checkpoints").glob(".trash-*")
    assert sorted(p.name for p in left.iterdir()) == ["link", "notes.txt"]
    assert [c.step for c in checkpoint_folders.checkpoints_in(tmp_path / "checkpoints")] == [3, 2]
