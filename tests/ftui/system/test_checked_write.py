"""A file that the disk changes on the way is not taken for written, whichever way its content is made."""

import hashlib
from collections.abc import Callable
from pathlib import Path

import pytest

from ftui.system import checked_write
from ftui.system.checked_write import MiswrittenError, write_checked, write_hashed
from ftui.system.files import write_all

PIECES = [b"a" * 5000, b"", b"b" * 70_000]
Writer = Callable[[Path], tuple[int, str]]
WRITERS = [lambda path: write_checked(path, lambda: PIECES), lambda path: write_hashed(path, PIECES)]
LIES = [lambda data: data[:-1], lambda data: bytes(len(data)), lambda data: data[:9] + b"x" + data[10:]]


@pytest.mark.parametrize("write", WRITERS, ids=["checked", "hashed"])
@pytest.mark.parametrize("lie", LIES, ids=["short", "zeros", "one byte"])
def test_a_disk_that_lies_is_found_out(
    write: Writer, lie: Callable[[bytes], bytes], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert write(tmp_path / "honest") == (75_000, hashlib.sha256(b"".join(PIECES)).hexdigest())
    name = "write_all"
    assert hasattr(checked_write, name)
    monkeypatch.setattr(checked_write, name, lambda file, data: write_all(file, lie(bytes(data)) if data else b""))
    with pytest.raises(MiswrittenError, match="lying reads back from the disk as something else"):
        write(tmp_path / "lying")
