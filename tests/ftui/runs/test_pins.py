import os
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ftui.errors import DiskError, DiskFullError
from ftui.runs.pins import read_pins, write_pins
from ftui.runs.run_folder import Run


def test_pins_come_back(make_run: Any) -> None:
    run = make_run()
    assert read_pins(run) == frozenset()
    write_pins(run, [30, 10, 10])
    assert run.pins.read_bytes() == b'{"steps":[10,30]}'
    assert read_pins(run) == {10, 30}
    write_pins(run, read_pins(run) - {10})
    assert read_pins(run) == {30}
    assert run.pins.stat().st_mode & 0o777 == 0o600


def test_no_room_keeps_the_old_ones(make_run: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    run = make_run()
    write_pins(run, [1])

    def refuse(descriptor: int, data: bytes) -> int:
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr(os, "write", refuse)
        with pytest.raises(DiskFullError):
            write_pins(run, [1, 2])
    assert read_pins(run) == {1}
    assert [p.name for p in run.folder.iterdir() if "pins" in p.name] == ["pins.json"]
    with pytest.raises(DiskError):
        write_pins(Run(run.folder / "nowhere"), [1])


@given(st.one_of(st.binary(), st.sampled_from([b'{"steps":"x"}', b'{"steps":[1.5]}', b"[]", b'{"steps":[1', b"\xff"])))
def test_a_damaged_file_pins_nothing(tmp_path_factory: pytest.TempPathFactory, content: bytes) -> None:
    folder: Path = tmp_path_factory.mktemp("run")
    (folder / "pins.json").write_bytes(content)
    assert read_pins(Run(folder)) == frozenset()
