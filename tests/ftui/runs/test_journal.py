import json
import math
import os
import tempfile
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ftui.errors import DiskError, DiskFullError
from ftui.runs.events import AnyRecord, EvaluationDone, PhaseChanged, Sampled, Step, Warned
from ftui.runs.journal import Tail, Writer, encode
from tests.support.events import make_step


def warned(records: list[AnyRecord]) -> list[str]:
    return [record.message for record in records if isinstance(record, Warned)]


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "journal.jsonl"


def test_what_is_written_is_read_once(path: Path) -> None:
    writer, tail = Writer(path, attempt=3, token="ab"), Tail(path)
    assert tail.read() == []
    writer.write(Warned(message="one"), durable=True)
    (record,) = tail.read()
    assert isinstance(record, Warned)
    assert (record.message, record.attempt, record.token) == ("one", 3, "ab")
    assert record.time > 0
    assert tail.read() == []
    writer.write(Warned(message="two"))
    writer.close()
    assert warned(tail.read()) == ["two"]


def test_a_missing_file_has_no_records(path: Path) -> None:
    assert Tail(path).read() == []


def test_a_torn_last_line_waits_for_its_end(path: Path) -> None:
    line = encode(Warned(message="whole"))
    path.write_bytes(line + line[:10])
    tail = Tail(path)
    assert warned(tail.read()) == ["whole"]
    with path.open("ab") as file:
        file.write(line[10:])
    assert warned(tail.read()) == ["whole"]
    assert tail.num_damaged == 0


def test_a_writer_cuts_the_torn_line_its_predecessor_left(path: Path) -> None:
    line = encode(Warned(message="whole"))
    path.write_bytes(line + b'{"kind":"warned","mess' + b"x" * 100_000)
    writer = Writer(path)
    writer.write(Warned(message="next"))
    writer.close()
    tail = Tail(path)
    assert warned(tail.read()) == ["whole", "next"]
    assert tail.num_damaged == 0


def test_a_file_of_nothing_but_a_torn_line_becomes_empty(path: Path) -> None:
    path.write_bytes(b"{" * 200_000)
    Writer(path).close()
    assert path.read_bytes() == b""


def test_unknown_newer_and_damaged_lines_are_told_apart(path: Path) -> None:
    lines = [
        b'{"kind":"from_the_future","v":1}',
        b'{"kind":"warned","v":2,"message":7}',
        b'{"kind":"warned","v":1,"message":7}',
        b"\x00\x00\x00",
        b"[" * 100_000,
        b'{"kind":"warned","v":1,"message":"good","added_later":1}',
    ]
    path.write_bytes(b"".join(line + b"\n" for line in lines))
    tail = Tail(path)
    assert warned(tail.read()) == ["good"]
    assert (tail.num_unknown, tail.num_damaged) == (2, 3)


def test_every_line_says_the_version_of_its_form() -> None:
    assert json.loads(encode(Warned(message="x")))["v"] == 1


def test_line_separators_inside_text_do_not_cut_a_record(path: Path) -> None:
    text = "a\u2028b\u2029c\u0085d\x0be\x1cf\ng"
    writer = Writer(path)
    writer.write(Sampled(step=0, prompt=text, completion=text))
    writer.close()
    (record,) = Tail(path).read()
    assert isinstance(record, Sampled)
    assert record.prompt == record.completion == text


def test_non_finite_numbers_are_named() -> None:
    step = make_step(1, loss=math.nan)
    step = type(step)(**{f: getattr(step, f) for f in step.__struct_fields__} | {"extras": {"a": math.inf, "b": 1.0}})
    line = json.loads(encode(step))
    assert line["loss"] is None
    assert line["extras"] == {"a": None, "b": 1.0}
    assert line["non_finite"] == ["loss", "a"]


def test_a_non_finite_evaluation_survives_the_journey(path: Path) -> None:
    writer = Writer(path)
    writer.write(EvaluationDone(step=1, epoch=1.0, loss=-math.inf, num_target_tokens=1, seconds=1.0, best=False))
    writer.close()
    (record,) = Tail(path).read()
    assert isinstance(record, EvaluationDone)
    assert record.loss is None
    assert record.non_finite == ["loss"]


def test_a_short_write_is_cut_back(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    writer = Writer(path)
    writer.write(Warned(message="one"))
    before = path.read_bytes()
    real = os.write
    with monkeypatch.context() as patch:
        patch.setattr(os, "write", lambda descriptor, data: real(descriptor, data[:5]))
        with pytest.raises(DiskFullError, match="disk is full"):
            writer.write(Warned(message="two"))
    assert path.read_bytes() == before
    writer.write(Warned(message="three"))
    writer.close()
    assert warned(Tail(path).read()) == ["one", "three"]


@pytest.mark.parametrize("call", ["write", "fsync"])
@pytest.mark.parametrize(("number", "full"), [(28, True), (122, True), (27, True), (5, False), (30, False)])
def test_a_refused_write_says_whether_room_would_help(
    call: str, number: int, full: bool, path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    writer = Writer(path)

    def refuse(*arguments: Any) -> int:
        raise OSError(number, os.strerror(number))

    with monkeypatch.context() as patch:
        patch.setattr(os, call, refuse)
        with pytest.raises(DiskError, match=os.strerror(number)) as caught:
            writer.write(Warned(message="two"), durable=True)
    assert isinstance(caught.value, DiskFullError) is full
    writer.write(Warned(message="three"))
    writer.close()
    assert warned(Tail(path).read())[-1] == "three"


def test_a_volume_without_fsync_still_takes_records(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(descriptor: int) -> None:
        raise OSError(22, "Invalid argument")

    monkeypatch.setattr(os, "fsync", refuse)
    writer = Writer(path)
    writer.write(Warned(message="one"), durable=True)
    writer.close()
    assert warned(Tail(path).read()) == ["one"]


def test_a_long_file_can_be_read_in_pieces(path: Path) -> None:
    messages = [str(number) * (number * 7 % 50 + 1) for number in range(200)]
    path.write_bytes(b"".join(encode(Warned(message=message)) for message in messages) + b'{"torn')
    tail, seen, before = Tail(path), list[str](), -1
    while tail.offset != before:
        before = tail.offset
        seen += warned(tail.read(limit=64))
    assert seen == messages


@given(st.lists(st.text(st.characters(exclude_categories=["Cs"]))), st.data())
def test_reading_does_not_depend_on_where_the_file_is_cut(messages: list[str], data: st.DataObject) -> None:
    whole = b"".join(encode(Warned(message=message)) for message in messages)
    cuts = sorted(data.draw(st.lists(st.integers(0, len(whole)))))
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "x"
        tail, seen, start = Tail(path), list[str](), 0
        for end in [*cuts, len(whole)]:
            with path.open("ab") as file:
                file.write(whole[start:end])
            start = end
            seen += warned(tail.read())
    assert seen == messages
    assert tail.num_damaged == 0


def test_kinds_are_in_the_past_tense_and_defaults_take_no_room() -> None:
    assert json.loads(encode(PhaseChanged(phase="training"))) == {"kind": "phase_changed", "v": 1, "phase": "training"}
    assert Step.__struct_config__.tag == "step"
