"""Whatever bytes a file of any kind holds: rows, named faults or a `DataError` come out, soon and in little memory."""

import gzip
import io
import json
from collections.abc import Callable
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import zstandard
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from ftui.engine.data.files.blocks import BadRow, parse_block, read_blocks, reread_row
from ftui.engine.data.files.raw_rows import Row
from ftui.engine.data.files.streams import KINDS
from ftui.errors import DataError
from tests.support.examples import examples

PACKERS: dict[str, Callable[[bytes], bytes]] = {
    "": bytes,
    ".gz": gzip.compress,
    ".zst": zstandard.ZstdCompressor(write_checksum=True).compress,
}
TEXTS = st.text(max_size=8) | st.sampled_from(["", "a\nb", 'x "y"', "\u2028", "é", "\ud83d", "\0", "a,b;c\td|e"])
VALUES = st.recursive(
    TEXTS | st.none() | st.booleans() | st.floats() | st.integers(-(10**30), 10**30),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(TEXTS, inner, max_size=3),
    max_leaves=6,
)
ROWS = st.lists(st.dictionaries(st.sampled_from(["text", "a", "messages"]), VALUES, max_size=3), max_size=6)
MARKS = [b'"', b"{", b"}", b"[", b"]", b",", b":", b"\n", b"\r", b"\r\n", b"\0", b"\xff", b"\\", b" ", b"\n\n", b"NaN"]
BLOWS = [b"\\ud83d", b"1e999", b'{"data": [', b'"a": 1, "a": 2', b"\xef\xbb\xbf", b"\xff\xfe", b"[" * 200, b"9" * 5000]
PIECES = st.binary(max_size=6) | st.sampled_from(MARKS + BLOWS)


def written(kind: str, rows: list[dict[str, Any]]) -> bytes:
    lone = [json.loads(json.dumps(row)) for row in rows]  # keys once
    match kind:
        case ".jsonl":
            return b"".join(json.dumps(row).encode() + b"\n" for row in lone)
        case ".json":
            return json.dumps(lone, indent=len(rows) % 2 or None).encode()
        case ".txt":
            return "\n\n".join(str(row) for row in lone).encode(errors="replace")
        case ".parquet":
            file = io.BytesIO()
            texts = [{"text": json.dumps(row), "data": b"\xff", "number": 1.5} for row in lone]
            pq.write_table(pa.Table.from_pylist(texts or [{"text": ""}]), file, compression="none")
            return file.getvalue()
    cut = "\t" if kind == ".tsv" else ","
    lines = [cut.join(json.dumps(str(value))[:20] for value in (row.get("a"), row.get("text"))) for row in lone]
    return "\n".join([cut.join(("a", "text")), *lines]).encode()


@st.composite
def files(draw: st.DrawFn) -> tuple[str, bytes]:
    """A file's name and content: right rows, hurt here and there, packed, and hurt again."""
    kind, packer = draw(st.sampled_from(KINDS)), draw(st.sampled_from(sorted(PACKERS)))
    data = draw(st.binary(max_size=40)) if draw(st.integers(0, 9)) == 0 else written(kind, draw(ROWS))
    data = hurt(draw, data)
    if draw(st.integers(0, 9)) == 0:
        data = data.decode(errors="replace").encode(draw(st.sampled_from(["utf-16", "utf-16-le", "utf-32", "utf-7"])))
    packed = PACKERS[packer](data)
    return f"rows{kind}{packer}", hurt(draw, packed) if packer and draw(st.booleans()) else packed


def hurt(draw: st.DrawFn, data: bytes) -> bytes:
    for _ in range(draw(st.integers(0, 3))):
        start = draw(st.integers(0, len(data)))
        end = min(len(data), start + draw(st.sampled_from([0, 0, 1, 4, 1000])))
        data = data[:start] + draw(PIECES) + data[end:]
    return data


@given(files(), st.sampled_from([None, None, None, "cp1252", "utf-16", "shift_jis", "utf-7", "no-such"]))
@settings(max_examples=examples(600), deadline=3000, suppress_health_check=[HealthCheck.too_slow])
def test_any_bytes(tmp_path_factory: pytest.TempPathFactory, file: tuple[str, bytes], encoding: str | None) -> None:
    path = tmp_path_factory.getbasetemp() / "fuzz" / file[0]  # others look for files in the folders above theirs
    path.parent.mkdir(exist_ok=True)
    path.write_bytes(file[1])
    found: list[tuple[Row | BadRow, int]] = []
    try:
        for block in read_blocks([path], encoding=encoding, size=3):
            assert block.texts or block.bad
            offsets = dict(zip(block.places, block.offsets, strict=True))
            found += [(row, offsets.get(place_of(row), -1)) for row in parse_block(block)]
    except DataError as error:
        assert str(path) in error.message and error.message.endswith(".")
    places = [place_of(row) for row, _ in found]
    assert places == sorted(places) and all(place > 0 for place in places)
    for row, offset in found:
        if isinstance(row, BadRow):
            assert str(path) in row.error().message
        else:
            json.dumps(row.value, ensure_ascii=False).encode()
            again, _ = reread_row(path, row.place, offset, encoding=encoding)
            assert repr(again.value) == repr(row.value)


def place_of(row: Row | BadRow) -> int:
    return row.place if isinstance(row, Row) else row.where.number
