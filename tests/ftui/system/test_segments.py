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
from ftui.system.files import UnsafePathError
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
    assert len(older(path)) == 1


def test_a_crash_between_segment_and_new_file_loses_and_doubles_nothing(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def crash(path: Path, head: bytes) -> int:
        raise OSError("killed here")

    monkeypatch.setattr(segments, "_put_in_place", crash)
    messages = written(path, 8)
    assert len(older(path)) == 1, "the segment stands already"
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
