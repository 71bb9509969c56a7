"""Temporary folders: what a kill left is deleted by a later process, and nothing else is."""

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from ftui.system.scratch import make_scratch, scratch, sweep_scratch

KILLED = """
import os, signal, sys
from pathlib import Path
from ftui.system.scratch import make_scratch
(make_scratch("save", Path(sys.argv[1])) / "tokenizer.json").write_text("{}")
os.kill(os.getpid(), signal.SIGKILL)
"""


def test_what_a_kill_left_is_deleted_when_the_next_one_begins(tmp_path: Path) -> None:
    killed = subprocess.run([sys.executable, "-c", KILLED, str(tmp_path)])
    assert killed.returncode == -signal.SIGKILL
    (left,) = tmp_path.iterdir()
    assert (left / "tokenizer.json").exists()
    with scratch("save", tmp_path) as folder:
        assert list(tmp_path.iterdir()) == [folder]
    assert list(tmp_path.iterdir()) == []


def test_those_of_running_processes_stay(tmp_path: Path) -> None:
    ours = make_scratch("save", tmp_path)
    (ours / "tokenizer.json").write_text("{}")
    sweep_scratch("save", tmp_path)
    assert (ours / "tokenizer.json").exists()


@pytest.mark.parametrize(
    ("old", "new", "is_swept"),
    [
        ("", "", False),
        ("-{pid}-", "-999999999-", True),  # no such process
        ("-{started}-", "-1-", True),  # another process has had this number since
        ("-{namespace}-", "-1-", False),  # of another container: nobody here can see whether it runs
        ("ftui-save-", "ftui-helper-", False),
        ("ftui-save-", "ftui-", False),
        ("ftui-save-", "somebody-save-", False),
    ],
)
def test_only_names_of_ended_processes_are_swept(tmp_path: Path, old: str, new: str, is_swept: bool) -> None:
    ours = make_scratch("save", tmp_path)
    _, _, namespace, pid, started, _ = ours.name.split("-")
    old = old.format(namespace=namespace, pid=pid, started=started)
    left = ours.rename(ours.with_name(ours.name.replace(old, new)))
    (left / "inside").mkdir()
    sweep_scratch("save", tmp_path)
    assert left.exists() != is_swept


@pytest.mark.parametrize("kind", ["link to a folder", "file"])
def test_a_link_and_a_file_of_such_a_name_are_left_alone(tmp_path: Path, kind: str) -> None:
    other = tmp_path / "other"
    other.mkdir()
    (other / "kept").write_text("x")
    ours = make_scratch("save", tmp_path)
    place = ours.with_name(ours.name.replace(f"-{os.getpid()}-", "-999999999-"))
    if kind == "file":
        place.write_text("x")
    else:
        place.symlink_to(other)
    sweep_scratch("save", tmp_path)
    assert os.path.lexists(place) and (other / "kept").exists()


def test_a_place_that_is_not_there_has_nothing_to_sweep(tmp_path: Path) -> None:
    sweep_scratch("save", tmp_path / "nowhere")
