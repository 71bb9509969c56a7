"""A file that is begun anew is one file to its readers, whenever they look and whatever happens to its older parts."""

import gzip
import os
import tempfile
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ftui.runs.events import AnyRecord, Warned
from ftui.runs.journal import Tail, Writer
from ftui.system import segments
from ftui.system.files import UnsafePathError, replace_file
from ftui.system.segments import segments_before, total_bytes
from tests.support.examples import examples


def warned(records: list[AnyRecord]) -> list[str]:
    return [record.message for record in records if isinstance(record, Warned)]


def written(path: Path, number: int, *, longest: int = 300, keep: int | None = None) -> list[str]:
    """Messages appended by a writer of its own."""
    messages = [f"message {index}" for index in range(number)]
    writer = Writer(path, longest=longest, keep=keep)
    for message in messages:
        writer.write(Warned(message=message))
    writer.close()
    return messages


def older(path: Path) -> list[Path]:
    return sorted((path.parent / "segments").iterdir())


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "metrics.jsonl"


STEPS = st.lists(st.one_of(st.just("look"), st.just("reopen"), st.text(max_size=40)), max_size=40)


@settings(max_examples=examples(60))
@given(STEPS, st.integers(60, 600), st.data())
def test_readers_that_come_when_they_like_see_each_line_once(
    steps: list[str], longest: int, data: st.DataObject
) -> None:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "metrics.jsonl"
        writer, tail, seen, messages, offsets = Writer(path, longest=longest), Tail(path), list[str](), list[str](), [0]
        for step in steps:
            if step == "look":
                seen += warned(tail.read())
                offsets.append(tail.offset)
            elif step == "reopen":
                writer.close()
                writer = Writer(path, longest=longest)
            else:
                writer.write(Warned(message=step))
                messages.append(step)
        writer.close()
        assert seen + warned(tail.read()) == messages
        assert warned(Tail(path).read()) == messages
        assert tail.offset == total_bytes(path)
        assert tail.num_damaged == 0 and os.path.getsize(path) < longest + 400
        offset = data.draw(st.sampled_from(offsets))
        before = Tail(path)
        before.offset = offset
        assert messages[len(messages) - len(late := warned(before.read())) :] == late, "read on from a stored offset"


def test_a_full_disk_leaves_the_file_as_it_is(path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Any) -> None:
    def refuse(path: Path, data: bytes, *, durable: bool = False) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(segments, "replace_file", refuse)
    messages = written(path, 20)
    assert warned(Tail(path).read()) == messages
    assert "metrics.jsonl could not be begun anew: [Errno 28]" in capsys.readouterr().out
    monkeypatch.undo()
    assert warned(Tail(path).read()) == messages
    writer = Writer(path, longest=300)
    writer.write(Warned(message="room again"))
    writer.close()
    assert warned(Tail(path).read()) == [*messages, "room again"]
    assert len(older(path)) > 1 and total_bytes(path) > 900, "as long as they would have been"


def test_a_disk_that_is_full_at_the_second_segment_keeps_none(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    messages = written(path, 20, longest=10**6)

    def refuse(path: Path, data: bytes, *, durable: bool = False) -> None:
        if older(path.parent):
            raise OSError(28, "No space left on device")
        replace_file(path, data, durable=durable)

    monkeypatch.setattr(segments, "replace_file", refuse)
    written(path, 1)
    assert older(path) == [] and warned(Tail(path).read()) == [*messages, "message 0"]


def test_a_crash_between_segment_and_new_file_loses_and_doubles_nothing(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def crash(path: Path, start: int, old: int) -> int:
        raise OSError("killed here")

    monkeypatch.setattr(segments, "_put_in_place", crash)
    messages = written(path, 8)
    assert older(path), "the segment stands already"
    assert warned(Tail(path).read()) == messages
    monkeypatch.undo()
    writer = Writer(path, longest=300)
    writer.write(Warned(message="after"))
    writer.close()
    assert warned(Tail(path).read()) == [*messages, "after"]


def test_what_is_dropped_is_passed_over(path: Path) -> None:
    messages = written(path, 60, keep=2)
    assert len(older(path)) == 2
    rest = warned(Tail(path).read())
    assert 3 < len(rest) < 60 and rest == messages[-len(rest) :]


@pytest.mark.parametrize("damage", ["cut", "flipped", "gone", "another"])
def test_a_damaged_segment_takes_no_other_with_it(path: Path, damage: str) -> None:
    messages, victim = written(path, 60), older(path)[1]
    packed = victim.read_bytes()
    match damage:
        case "cut":
            victim.write_bytes(packed[: len(packed) // 2])
        case "flipped":
            victim.write_bytes(packed[:30] + bytes(byte ^ 0xFF for byte in packed[30:40]) + packed[40:])
        case "gone":
            victim.unlink()
        case _:
            victim.write_bytes(b"not compressed")
    tail = Tail(path)
    rest = warned(tail.read())
    assert tail.num_damaged >= 1 and tail.offset == total_bytes(path)
    assert set(messages) - set(rest) <= set(messages[3:10]), "only of the second segment"
    assert len(set(rest)) == len(rest)


@pytest.mark.parametrize("plant", ["link", "fifo", "folder"])
def test_what_stands_in_a_segments_place_is_refused(path: Path, plant: str) -> None:
    written(path, 60)
    victim = older(path)[0]
    victim.unlink()
    match plant:
        case "link":
            victim.symlink_to("/dev/zero")
        case "fifo":
            os.mkfifo(victim)
        case _:
            victim.mkdir()
    tail = Tail(path)
    for _ in range(2):  # and still when it is asked again
        with pytest.raises(UnsafePathError, match=victim.name):
            tail.read()


def test_a_bomb_is_unpacked_no_further_than_its_place(path: Path) -> None:
    written(path, 60)
    first, second = segments_before(path, 10**17)[:2]
    first.path.write_bytes(gzip.compress(b"\n" * (8 << 20)))
    assert sum(len(data) for _, data in segments.read_older(path, 0, second.start)) == first.end - first.start


def test_a_file_that_was_long_before_makes_several_segments(path: Path) -> None:
    messages = written(path, 60, longest=10**6)
    messages += written(path, 2)
    sizes = [segment.end - segment.start for segment in segments_before(path, total_bytes(path))]
    assert len(sizes) > 10 and all(300 <= size < 450 for size in sizes[:-1])
    assert warned(Tail(path).read()) == messages


def test_a_segment_is_unpacked_without_being_read_whole(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    messages = written(path, 60, longest=20_000) + written(path, 1, longest=100)
    monkeypatch.setattr("ftui.system.files.LONGEST_FILE", 50)
    monkeypatch.setattr(segments, "PACKED_PIECE", 10)
    monkeypatch.setattr(segments, "PIECE", 100)
    assert warned(Tail(path).read()) == messages
    _, first = next(segments.read_older(path, 0, 10**4))
    assert 0 < len(first) <= 300, "the first lines are there before the others"


def test_the_new_file_is_on_the_disk_before_it_is_in_place(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    synced, rename, heads = set[int](), Path.rename, list[bytes]()

    def move(self: Path, target: Path) -> Path:
        heads.append(self.read_bytes())
        assert self.stat().st_ino in synced
        return rename(self, target)

    monkeypatch.setattr(segments, "sync_open", lambda descriptor: synced.add(os.fstat(descriptor).st_ino))
    monkeypatch.setattr(Path, "rename", move)
    written(path, 10)
    assert heads and all(segments.HEAD.fullmatch(head) for head in heads)


@pytest.mark.parametrize("lost", ["all", "all but half a head"])
def test_a_file_that_a_power_loss_emptied_goes_on_from_its_last_segment(path: Path, lost: str) -> None:
    messages = written(path, 12)
    kept = {segment: segment.read_bytes() for segment in older(path)}
    messages = messages[: len(messages) - len(warned(Tail(path, offset=segments_of(path)[-1].end).read()))]
    path.write_bytes(b"" if lost == "all" else b'{"kind":"seg')
    messages += written(path, 4)
    assert warned(Tail(path).read()) == messages
    assert {segment: segment.read_bytes() for segment in kept} == kept


def segments_of(path: Path) -> list[segments.Segment]:
    with path.open("rb") as file:
        return segments_before(path, segments.segment_start(file.fileno()))


def test_a_file_without_a_head_overwrites_no_segment_of_another(path: Path) -> None:
    messages = written(path, 12)
    kept = {segment: segment.read_bytes() for segment in older(path)}
    lost = warned(Tail(path, offset=segments_of(path)[-1].end).read())
    path.unlink()
    with path.open("wb") as file:
        file.write(b'{"kind":"warned","message":"from another life"}\n')
    messages = [*messages[: len(messages) - len(lost)], "from another life", *written(path, 8)]
    assert {segment: segment.read_bytes() for segment in kept} == kept
    assert warned(Tail(path).read()) == messages


def test_a_move_that_a_crash_cut_short_is_finished(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    messages = written(path, 9, longest=10**6)
    before = path.read_bytes()
    descriptor = os.open(path, os.O_RDWR)
    os.close(segments.begin_anew(path, descriptor, keep=None, longest=300))
    kept = older(path)
    path.write_bytes(before[: before.index(b"\n") + 1])  # of what stood in the old file a power loss left one line
    messages += written(path, 1)
    assert warned(Tail(path).read()) == messages and older(path) == kept


@pytest.mark.parametrize("call", ["close", "unlink"])
def test_an_error_after_the_move_costs_no_line(path: Path, monkeypatch: pytest.MonkeyPatch, call: str) -> None:
    close, unlink = os.close, Path.unlink

    def fail_close(descriptor: int) -> None:
        is_replaced = os.fstat(descriptor).st_nlink == 0
        close(descriptor)
        if is_replaced:
            raise OSError(5, "Input/output error")

    def fail_unlink(self: Path, missing_ok: bool = False) -> None:
        if self.name.endswith(segments.SUFFIX):
            raise OSError(5, "Input/output error")
        unlink(self, missing_ok=missing_ok)

    if call == "close":
        monkeypatch.setattr(os, "close", fail_close)
    else:
        monkeypatch.setattr(Path, "unlink", fail_unlink)
    messages = written(path, 15, keep=None if call == "close" else 1)
    assert len(older(path)) > 1 and warned(Tail(path).read()) == messages
