"""What is wrong with rows is named for what it is, with a way out that works."""

import json
import re
import tomllib
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from ftui.engine.data.files.raw_rows import Row
from ftui.engine.data.forms.detect_form import detect_form
from ftui.engine.data.forms.formats import Chat, ColumnNames, Example, to_example
from ftui.engine.data.tokens.encode import Encoder, stop_texts
from ftui.engine.inspection.report.special_token_text import describe_special_tokens
from ftui.errors import DataError
from tests.support.data_rows import read_rows
from tests.support.tiny import make_profile, make_tokenizer, seen, write_rows

POINTER = b"version https://git-lfs.github.com/spec/v1\noid sha256:0123\nsize 12345\n"
PAGE = b"\n<!DOCTYPE html>\n<html><head><title>Not found</title></head></html>\n"
USER, ASSISTANT, SYSTEM = (
    {"role": r, "content": c} for r, c in (("user", "why?"), ("assistant", "so"), ("system", "be"))
)


@pytest.mark.parametrize(
    "name", ["a.jsonl", "a.json", "a.csv", "a.parquet", "a.arrow", "a.txt", "a.jsonl.gz", "a.csv.zst"]
)
def test_what_was_never_downloaded_is_named(name: str, tmp_path: Path) -> None:
    (tmp_path / name).write_bytes(POINTER)
    with pytest.raises(DataError, match="is a pointer of Git LFS") as caught:
        list(read_rows(tmp_path / name))
    assert "git lfs pull" in caught.value.hint
    (tmp_path / name).write_bytes(PAGE)
    if name == "a.txt":  # somebody's text
        assert len(list(read_rows(tmp_path / name))) == 1
        return
    with pytest.raises(DataError, match="is a web page"):
        list(read_rows(tmp_path / name))


@pytest.mark.parametrize(
    ("row", "reason", "hint"),
    [
        ({"prompt": "a", "completion": float("nan")}, "'completion' is not a string (NaN)", "fillna"),
        ({"instruction": "a", "input": float("nan"), "output": "b"}, "'input' is not a string (NaN)", "fillna"),
        ({"question": "a", "answer": 4}, "'answer' is not a string (number)", "as text"),
        ({"question": "a", "answer": True}, "'answer' is not a string (boolean)", "as text"),
        ({"instruction": "a", "output": ["b", "c"]}, "'output' is not a string (list)", "as one text"),
        ({"question": "a", "answer": {"text": "b"}}, "'answer' is not a string (object)", "a column of its own"),
        (
            {"messages": [USER, {"role": "assistant", "content": None}]},
            "message 2 of 'messages' has no content",
            "tool_calls",
        ),
        (
            {"image": {"bytes": "x", "path": "y"}, "caption": "a cat"},
            "no known form",
            "'image' holds pictures or sound",
        ),
        ({"messages": [USER, ASSISTANT], "images": ["a.png"]}, "it has images", 'data.columns = {images = ""}'),
        ({"messages": [USER, ASSISTANT], "Photo": {"bytes": "", "path": "a"}}, "it has Photo", '{Photo = ""}'),
        ({"question": "a", "answer": "b", "audio": "a.wav"}, "it has audio", 'data.columns = {audio = ""}'),
        ({"image": "a.png", "query": "a", "response": "b"}, "no known form", 'answer = "response"'),
        ({"instruction": "a", "output": None}, "'output' is missing", "It is null: write its text"),
        (
            {"messages": [{"role": "user", "content": [{"type": "image"}]}, ASSISTANT]},
            "has a part that is no text (image)",
            "without such parts",
        ),
    ],
)
def test_a_cell_that_is_no_text(row: dict[str, Any], reason: str, hint: str, tmp_path: Path) -> None:
    path = tmp_path / "rows.jsonl"
    path.write_text(json.dumps(row) + "\n")
    rows = list(read_rows(path))
    detected = detect_form(rows)
    assert reason in detected.problem and hint in detected.hint
    if columns := re.search(r"data\.columns = (\{.*?\})", detected.hint):
        shape = ColumnNames(tomllib.loads(f"columns = {columns[1]}")["columns"])
        if "image" in row and "query" in row:
            shape = ColumnNames({**shape.columns, "image": ""})
        assert detect_form(rows, shape).checked().form
        make_profile(tmp_path, path, data={"columns": dict(shape.columns)})  # a profile may say so
    if "NaN" in reason:  # obeyed
        path.write_text(json.dumps({key: "" if value != value else value for key, value in row.items()}) + "\n")
        assert detect_form(list(read_rows(path))).checked().form


@pytest.mark.parametrize(
    ("row", "expected"),
    [
        ({"prompt": [USER], "completion": "so"}, Chat([USER, ASSISTANT])),
        ({"prompt": [SYSTEM, USER], "completion": "so"}, Chat([SYSTEM, USER, ASSISTANT])),
        ({"prompt": "why?", "completion": [ASSISTANT]}, Chat([USER, ASSISTANT])),
        ({"prompt": "why?", "completion": [ASSISTANT], "system": "be"}, Chat([SYSTEM, USER, ASSISTANT])),
        (
            {"prompt": [USER, ASSISTANT, USER], "completion": "so"},
            Chat([USER, ASSISTANT, USER, ASSISTANT], untrained=frozenset({1})),
        ),
    ],
)
def test_a_prompt_of_turns_may_have_a_completion_of_text(row: dict[str, Any], expected: Example) -> None:
    it = Row(Path("rows.jsonl"), 1, row)
    assert to_example(it, detect_form([it]).checked().form) == expected


@pytest.mark.parametrize(
    ("row", "unused"),
    [
        ({"system": "col", "messages": [SYSTEM, USER, ASSISTANT]}, ("system",)),
        (
            {"system_prompt": "col", "conversations": [{"from": "system", "value": "be"}, USER, ASSISTANT]},
            ("system_prompt",),
        ),
        ({"system": "be", "messages": [USER, ASSISTANT]}, ()),
        ({"system": "", "messages": [SYSTEM, USER, ASSISTANT]}, ()),
    ],
)
def test_a_system_column_that_a_system_turn_beats_is_noted(row: dict[str, Any], unused: tuple[str, ...]) -> None:
    assert detect_form([Row(Path("rows.jsonl"), 1, row)]).unused == unused


@pytest.mark.parametrize("suffix", ["parquet", "arrow"])
@pytest.mark.parametrize("picture", [{"bytes": b"\xff", "path": "y"}, [{"bytes": b"\xff", "path": None}] * 2])
def test_pictures_in_a_table_have_a_way_out(suffix: str, picture: Any, tmp_path: Path) -> None:
    """A column of them is named and can be dropped; a row without one is a row of text."""
    path = tmp_path / f"rows.{suffix}"
    empty: list[Any] | None = [] if isinstance(picture, list) else None
    table = pa.Table.from_pylist([{"shown": cell, "messages": [USER, ASSISTANT]} for cell in (picture, empty)])
    if suffix == "parquet":
        pq.write_table(table, path)
    else:
        with pa.OSFile(str(path), "wb") as file, pa.ipc.new_stream(file, table.schema) as writer:
            writer.write_table(table)
    rows = list(read_rows(path))
    with pytest.raises(DataError, match="row 1: it has shown: only text") as caught:
        to_example(rows[0], "messages")
    assert to_example(rows[1], "messages") == Chat([USER, ASSISTANT])
    columns = tomllib.loads(caught.value.hint.partition("data.")[2].rstrip("."))["columns"]
    shape = ColumnNames(columns)
    assert [to_example(row, detect_form(rows, shape).form, shape) for row in rows] == [Chat([USER, ASSISTANT])] * 2


def test_a_number_that_is_none_among_texts_is_called_so(tmp_path: Path) -> None:
    path = tmp_path / "rows.jsonl"
    path.write_text('{"question": "a", "answer": "b"}\n{"question": "a", "answer": NaN}\n')
    rows = list(read_rows(path))
    with pytest.raises(DataError, match=r"not a string \(NaN here, a string in line 1\)") as caught:
        to_example(rows[1], "question_answer")
    assert "fillna" in caught.value.hint


@pytest.mark.parametrize(
    ("name", "data", "what", "way"),
    [
        ("a.csv", b"PK\x03\x04\x14\0", "a ZIP archive or a spreadsheet", "saved as CSV"),
        ("a.jsonl", b"\x1f\x8b\x08\0", "packed by gzip", "end in .gz"),
        ("a.json", b"\x28\xb5\x2f\xfd\0", "packed by zstd", "end in .zst"),
        ("a.jsonl", b"PAR1\x15\0", "a Parquet file", "end in .parquet"),
        ("a.parquet", b"ARROW1\0\0", "an Arrow file", "end in .arrow"),
        ("a.txt", b"%PDF-1.7\n", "a PDF document", "text first"),
        ("a.jsonl", b"SQLite format 3\0", "a SQLite database", "as CSV"),
        ("a.jsonl.gz", b"BZh91AY&SY", "packed by bzip2", "bzip2 -d"),
        ("a.jsonl.zst", b"\x1f\x8b\x08\0", "packed by gzip", "end in .gz"),
    ],
)
def test_a_file_of_another_kind_is_named(name: str, data: bytes, what: str, way: str, tmp_path: Path) -> None:
    (tmp_path / name).write_bytes(data)
    with pytest.raises(DataError, match=f"{name} is {what}, not what its name says") as caught:
        list(read_rows(tmp_path / name))
    assert way in caught.value.hint


def test_a_part_of_a_character_is_told_by_its_bytes(tmp_path: Path) -> None:
    tokenizer = make_tokenizer()
    rows = write_rows(tmp_path / "rows.jsonl", [{"text": f"\u20ac {n}"} for n in range(8)])
    encoder = Encoder(tokenizer, "sft", stop_texts(tokenizer, []))
    begins, *_ = describe_special_tokens(tokenizer, seen([rows], encoder, tmp_path / "cache"))
    assert begins.startswith("rows begin with the byte 0xe2") and "\ufffd" not in begins
