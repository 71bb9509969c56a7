"""Nothing is called saved before it is on the disk; nothing is deleted before its successor has been read back."""

import os
from pathlib import Path
from typing import Any

import pytest

from ftui.errors import DiskError
from ftui.runs import checkpoint_folders
from ftui.runs.checkpoint_folders import Checkpoint, Manifest, checkpoints_in, publish
from ftui.runs.run_folder import Run
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
    order: list[tuple[str, int]] = []
    fault, rotate = checkpoint_folders.fault, checkpoint_folders.rotate

    def reading(folder: Path, **options: Any) -> str | None:
        result = fault(folder, **options)
        if not options.get("quick") and result is None:
            order.append(("proven", int(folder.name.split("-")[1])))
        return result

    def rotating(root: Path, **options: Any) -> list[Checkpoint]:
        order.append(("rotate", checkpoints_in(root)[0].step))
        return rotate(root, **options)

    monkeypatch.setattr(checkpoint_folders, "fault", reading)
    monkeypatch.setattr(checkpoint_folders, "rotate", rotating)
    train_run(tmp_path / "run", saving)
    rotations = [i for i, (what, _) in enumerate(order) if what == "rotate"]
    assert len(rotations) == 6
    for index in rotations:
        assert ("proven", order[index][1]) in order[:index]
    assert [c.step for c in checkpoints_in(Run(tmp_path / "run").checkpoints)] == [6, 5]


def test_a_checkpoint_that_reads_back_wrong_costs_no_older_one(
    saving: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    fault = checkpoint_folders.fault

    def reading(folder: Path, **options: Any) -> str | None:
        return (
            "it was damaged" if folder.name == "checkpoint-4" and not options.get("quick") else fault(folder, **options)
        )

    monkeypatch.setattr(checkpoint_folders, "fault", reading)
    with pytest.raises(DiskError, match="reads back wrong: it was damaged"):
        train_run(tmp_path / "run", saving)
    monkeypatch.undo()
    present = checkpoints_in(Run(tmp_path / "run").checkpoints)
    assert [c.step for c in present][-2:] == [3, 2]
    assert all(checkpoint_folders.fault(c.path) is None for c in present)
