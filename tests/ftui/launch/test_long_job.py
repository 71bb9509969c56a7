from pathlib import Path

import pytest

from ftui.errors import DiskFullError
from ftui.launch.long_job import disk_line
from ftui.system.volume import free_bytes


def test_a_place_that_cannot_be_looked_at_is_none(tmp_path: Path) -> None:
    """As a folder that may not be entered, where nobody but root can look; a name that is too long is one for all."""
    assert disk_line(tmp_path / ("x" * 300) / "out", 1) == disk_line(tmp_path, 1)


def test_room_is_asked_of_the_volume_of_a_folder_that_is_yet_to_be_made(tmp_path: Path) -> None:
    label, text = disk_line(tmp_path / "runs" / "mine" / "exports", 3 << 20)
    assert label == "disk" and text.startswith("3.0 MiB needed, ") and text.endswith(" free")
    assert list(tmp_path.iterdir()) == [], "asking leaves nothing"
    with pytest.raises(DiskFullError, match="needed"):
        disk_line(tmp_path / "yet" / "to be made", 10 * (free_bytes(tmp_path) or 1 << 60))
