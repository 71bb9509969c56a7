"""Nothing is called saved before it is on the disk; nothing is deleted before its successor has been read back."""

import os
from pathlib import Path
from typing import Any

import pytest

from ftui.runs import checkpoint_folders
from ftui.runs.checkpoint_folders import Checkpoint, Manifest, checkpoints_in, publish, read_manifest
from ftui.runs.run_folder import Run
from ftui.system.checked_write import MiswrittenError, Pieces, write_checked
from tests.support.tiny import chats, make_profile, train_run, write_rows

MANIFEST = Manifest(
    run_id="r", attempt=1, token="t", step=4, versions={}, fingerprints={}, dtypes={}, finite=True, created=0.0
)


def fill(folder: Path) -> None:
    (folder / "weights.bin").write_bytes(os.urandom(100))
    (folder / "resume").mkdir()
    (folder / "resume" / "state.json").write_bytes(b"{}")


def test_every_file_and_folder_is_synced_before_the_rename_and_the_parent_after(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen: list[tuple[str, str]] = []
    fsync, rename = os.fsync, os.rename

    def noting_fsync(descriptor: int) -> None:
        seen.append(("sync", Path(os.readlink(f"/proc/self/fd/{descriptor}")).name))
        fsync(descriptor)

    def noting_rename(source: Any, target: Any, **options: Any) -> None:
        seen.append(("rename", Path(target).name))
        rename(source, target, **options)

    monkeypatch.setattr(os, "fsync", noting_fsync)
    monkeypatch.setattr(os, "rename", noting_rename)
    target = tmp_path / "checkpoints" / "checkpoint-4"
    publish(target, MANIFEST, fill)
    assert checkpoint_folders.fault(target) is None
    published = seen.index(("rename", "checkpoint-4"))
    before = {name for what, name in seen[:published] if what == "sync"}
    files = {path.name for path in target.rglob("*")} - {"MANIFEST.json"}
    assert files == {"weights.bin", "resume", "state.json"}
    assert files <= before
    manifest = seen.index(("sync", "MANIFEST.json"))
    assert files - {"resume"} <= {name for what, name in seen[:manifest] if what == "sync"}
    assert any(name.startswith(".partial-") for what, name in seen[manifest:published] if what == "sync")
    assert ("sync", "checkpoints") in seen[published:]


@pytest.fixture
def saving(model_folder: Path, tmp_path: Path) -> Any:
    rows = write_rows(tmp_path / "rows.jsonl", chats(24))
    sections: dict[str, dict[str, Any]] = {
        "train": {"precision": "fp32", "seed": 5, "max_steps": 6, "per_device_train_batch_size": 4},
        "checkpoint": {"save_steps": 1, "save_minutes": None, "save_total_limit": 2},
    }
    return make_profile(model_folder, rows, **sections)


def test_nothing_goes_before_the_newest_has_been_read_back(
    saving: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    read_back: set[str] = set()
    rotations = []
    rotate = checkpoint_folders.rotate

    def writing(path: Path, pieces: Pieces) -> tuple[int, str]:
        result = write_checked(path, pieces)
        read_back.add(result[1])
        return result

    def rotating(root: Path, **options: Any) -> list[Checkpoint]:
        newest = checkpoints_in(root)[0]
        entries = read_manifest(newest.path).files.values()
        rotations.append((newest.step, {entry.sha256 for entry in entries} <= read_back))
        return rotate(root, **options)

    monkeypatch.setattr(checkpoint_folders, "write_checked", writing)
    monkeypatch.setattr(checkpoint_folders, "rotate", rotating)
    train_run(tmp_path / "run", saving)
    assert rotations == [(step, True) for step in range(1, 7)]
    assert [c.step for c in checkpoints_in(Run(tmp_path / "run").checkpoints)] == [6, 5]


def test_a_checkpoint_that_reads_back_wrong_costs_no_older_one(
    saving: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def writing(path: Path, pieces: Pieces) -> tuple[int, str]:
        if "checkpoint-4" in str(path) and path.name == "optimizer.safetensors":
            raise MiswrittenError(f"{path.name} reads back as something else")
        return write_checked(path, pieces)

    monkeypatch.setattr(checkpoint_folders, "write_checked", writing)
    with pytest.raises(MiswrittenError, match="reads back as something else"):
        train_run(tmp_path / "run", saving)
    monkeypatch.undo()
    present = checkpoints_in(Run(tmp_path / "run").checkpoints)
    assert [c.step for c in present] == [3, 2]
    assert all(checkpoint_folders.fault(c.path) is None for c in present)
