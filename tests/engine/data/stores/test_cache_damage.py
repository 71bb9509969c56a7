"""What the cache holds is believed only as it was written; what changes while it is read is not kept at all."""

import json
import os
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from ftui.engine.data.load_rows import load_data
from ftui.engine.data.sources import ResolvedSource
from ftui.engine.data.stores import cache as room
from ftui.engine.data.stores import integrity
from ftui.engine.data.stores.cache import load_store
from ftui.engine.data.stores.duplicate_pairs import load_likely_pairs
from ftui.engine.data.stores.store import FILES, Store
from ftui.engine.data.tokens.encode import Encoder, stop_texts
from ftui.engine.inspection.report import make_report
from ftui.engine.models.files.fingerprints import file_hashes
from ftui.engine.system.sealed_files import read_sealed, write_sealed
from ftui.errors import DataError
from tests.support.tiny import MARKED, chats, make_profile, make_tokenizer, write_rows

TOKENIZER = make_tokenizer(MARKED)
ENCODER = Encoder(TOKENIZER, "sft", stop_texts(TOKENIZER, []))


@pytest.fixture
def rows(tmp_path: Path) -> Path:
    path = write_rows(tmp_path / "data" / "rows.jsonl", chats(40))
    os.utime(path, (1e9, 1e9))  # its hash is remembered
    return path


def tokenised(path: Path, cache: Path, tell: Callable[[str], None] = lambda detail: None) -> Store:
    return load_store(ResolvedSource("rows", (path,), "auto"), ENCODER, cache, tell)


def content(store: Store) -> dict[str, bytes]:
    return {name: (store.folder / name).read_bytes() for name in FILES}


def flip(path: Path, at: int) -> None:
    """As a bad disk does it: neither size nor time nor inode tell it."""
    stat, data = path.stat(), bytearray(path.read_bytes())
    data[at] ^= 1
    descriptor = os.open(path, os.O_WRONLY)
    os.pwrite(descriptor, bytes(data), 0)
    os.close(descriptor)
    os.utime(path, ns=(stat.st_atime_ns, stat.st_mtime_ns))
    assert path.stat().st_mtime_ns == stat.st_mtime_ns and path.stat().st_size == stat.st_size


@pytest.mark.parametrize("name", ["counts.json", *FILES])
def test_no_flipped_bit_is_believed(name: str, rows: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Anywhere in a file, by a process that has not looked yet: the same tokens are made again, in its place."""
    whole = tokenised(rows, tmp_path)
    folder, expected, counts = whole.folder, content(whole), whole.counts
    del whole  # it is mapped from the files
    size = (folder / name).stat().st_size
    places = {0, size // 3, size // 2, size - 1}
    if name == "counts.json":  # of which what is flipped is JSON still
        data = (folder / name).read_bytes()
        places |= {data.index(mark) + len(mark) for mark in (b'"longest":', b'"forms":["', b'":')}
    for at in places:
        flip(folder / name, at)
        monkeypatch.setattr(integrity, "_verified", set())
        told: list[str] = []
        again = tokenised(rows, tmp_path, told.append)
        assert content(again) == expected and again.counts == counts
        assert any("damaged" in detail for detail in told)
        told.clear()
        tokenised(rows, tmp_path, told.append)
        assert not any(detail.startswith("tokenising ") for detail in told)


def test_a_process_looks_once_and_again_where_a_file_was_written(
    rows: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tokenised(rows, tmp_path).folder
    looks: list[str] = []
    look = integrity._checksum

    def noted(path: Path, tick: Callable[[], None]) -> int:
        looks.append(path.name)
        return look(path, tick)

    monkeypatch.setattr(integrity, "_checksum", noted)
    tokenised(rows, tmp_path)
    assert looks == []
    (folder / "ids.bin").touch()
    tokenised(rows, tmp_path)
    assert sorted(looks) == sorted(FILES)


def test_an_entry_of_before_there_were_checksums_is_made_again(rows: Path, tmp_path: Path) -> None:
    whole = tokenised(rows, tmp_path)
    counts = json.loads((whole.folder / "counts.json").read_bytes())
    (whole.folder / "counts.json").write_text(
        json.dumps({k: v for k, v in counts.items() if k not in ("checks", "seal")})
    )
    assert tokenised(rows, tmp_path).counts == whole.counts


def test_what_was_compared_is_believed_only_as_it_was_written(model_folder: Path, rows: Path, tmp_path: Path) -> None:
    """The pairs of similar rows and the report beside the tokens: damaged anywhere they are made again."""
    profile = make_profile(model_folder, write_rows(tmp_path / "more.jsonl", chats(40) + chats(40)))

    def report() -> object:
        return make_report(load_data(profile, tmp_path, lambda detail: None), profile)

    expected = report()
    store = load_data(profile, tmp_path, lambda detail: None).stores[0]
    pairs = load_likely_pairs([store])
    kept = [path for path in store.folder.iterdir() if path.name.startswith(("pairs-", "report-"))]
    assert len(kept) == 2
    for path in kept:
        whole = path.read_bytes()
        for data in (b"", whole[:-1], whole[: len(whole) // 2], whole[:5] + b"7" + whole[6:], whole[:-9] + whole[-1:]):
            path.write_bytes(data)
            assert np.array_equal(load_likely_pairs([store]), pairs) and report() == expected
            assert path.read_bytes() == whole


# -- hashes of files


@pytest.mark.parametrize("damage", ["empty", "half", "digit", "zeros", "list", "no seal"])
def test_damaged_memories_of_hashes_are_forgotten(damage: str, rows: Path, tmp_path: Path) -> None:
    expected = file_hashes([rows], tmp_path, lambda: None)
    (memory,) = (tmp_path / "hashes").iterdir()
    whole = memory.read_bytes()
    digit = whole.index(expected[rows].encode())
    other = b"0" if whole[digit : digit + 1] != b"0" else b"1"
    memory.write_bytes({
        "empty": b"", "half": whole[: len(whole) // 2], "digit": whole[:digit] + other + whole[digit + 1 :],
        "zeros": bytes(len(whole)), "list": b"[]", "no seal": whole.partition(b"\n")[0].replace(b"0", b"1"),
    }[damage])  # fmt: skip
    assert file_hashes([rows], tmp_path, lambda: None) == expected
    assert memory.read_bytes() == whole


def test_a_seal_holds_any_bytes(tmp_path: Path) -> None:
    for data in (b"", b"\n", b"crc32 00000000\n", bytes(range(256))):
        write_sealed(tmp_path / "file", data)
        assert read_sealed(tmp_path / "file") == data
    assert read_sealed(tmp_path / "none") is None
    write_sealed(tmp_path / "no" / "folder", b"")  # costs its time again, no more


# -- files that change meanwhile


def changed(path: Path, how: str) -> None:
    data = path.read_bytes()
    match how:
        case "longer":
            path.write_bytes(data + data.partition(b"\n")[0] + b"\n")
        case "as long":
            path.write_bytes(data.replace(b"kernel", b"KERNEL"))
        case "as long, and no older":
            stat = path.stat()
            path.write_bytes(data.replace(b"kernel", b"KERNEL"))
            os.utime(path, ns=(stat.st_atime_ns, stat.st_mtime_ns))
        case "replaced":
            other = path.with_name("other")
            other.write_bytes(data.replace(b"kernel", b"KERNEL"))
            os.utime(other, ns=(0, path.stat().st_mtime_ns))
            other.rename(path)


@pytest.mark.parametrize("how", ["longer", "as long", "as long, and no older", "replaced"])
def test_what_changes_while_it_is_read_is_not_kept(
    how: str, rows: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Else the tokens of one content would be found under the hash of another, by every later run."""
    original, path = rows.read_bytes(), rows
    if how == "as long, and no older":  # within a tick of the clock
        now = time.time()
        os.utime(path, (now, now))
    fill = room._fill

    def late(work: object, *others: object) -> None:
        changed(path, how)
        fill(work, *others)  # type: ignore[arg-type]

    monkeypatch.setattr(room, "_fill", late)
    with pytest.raises(DataError, match=r"rows\.jsonl changed while its rows were read") as caught:
        tokenised(path, tmp_path)
    assert "Start again" in caught.value.hint
    assert list((tmp_path / "tokens").iterdir()) == []
    monkeypatch.setattr(room, "_fill", fill)
    after = tokenised(path, tmp_path)
    path.write_bytes(original)
    before = tokenised(path, tmp_path)
    assert before.counts.fingerprint != after.counts.fingerprint and content(before) != content(after)


def test_a_file_that_was_changed_and_given_its_old_time_is_another(rows: Path, tmp_path: Path) -> None:
    """As unpacking does it where an archive has one time for all its files."""
    before = tokenised(rows, tmp_path)
    changed(rows, "as long, and no older")
    assert rows.stat().st_mtime == 1e9
    after = tokenised(rows, tmp_path)
    assert before.counts.fingerprint != after.counts.fingerprint and content(before) != content(after)


def test_a_file_that_changes_while_it_is_hashed_is_not_remembered(
    rows: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    stat = rows.stat()

    def late(path: Path, tick: Callable[[], None]) -> str:
        path.write_bytes(path.read_bytes() + b"\n")
        os.utime(path, (2e9 - 1e9 + 1, 1e9 + 1))
        return "of a mixture"

    monkeypatch.setattr("ftui.engine.models.files.fingerprints.file_hash", late)
    file_hashes([rows], tmp_path, lambda: None)
    monkeypatch.undo()
    rows.write_bytes(rows.read_bytes()[:-1])
    os.utime(rows, ns=(stat.st_atime_ns, stat.st_mtime_ns))
    assert file_hashes([rows], tmp_path, lambda: None)[rows] != "of a mixture"
