"""Files of a control group, as containers show them."""

from pathlib import Path

from ftui.hardware.cgroup import counter, read_number


def test_control_group_files(tmp_path: Path) -> None:
    (tmp_path / "memory.max").write_text("max\n")
    (tmp_path / "memory.current").write_text("4096\n")
    (tmp_path / "memory.events").write_text("low 0\noom 1\noom_kill 2\n")
    assert read_number(tmp_path, "memory.max") is None
    assert read_number(tmp_path, "memory.current") == 4096
    assert read_number(tmp_path, "absent") is read_number(None, "memory.max") is None
    assert counter(tmp_path, "memory.events", "oom_kill") == 2
    assert counter(tmp_path, "memory.events", "absent") is counter(tmp_path, "absent", "x") is None
    assert counter(None, "memory.events", "oom_kill") is None
