"""The first rows, before all are read: as they are shown afterwards, and without a look at the rest."""

import gzip
import json
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import msgspec
import pyarrow as pa
import pytest
from pyarrow import parquet

from ftui.dataset.row import RowView
from ftui.engine.data.files import blocks
from ftui.engine.inspection import browser, first_rows
from ftui.errors import DataError
from ftui.profile.serialize import to_toml
from tests.support.tiny import make_profile

ROWS = [
    {"instruction": f"Is {n} odd, \u201cor\u201d not?", "output": "yes" if n % 2 else "no,\nit is not"}
    for n in range(1500)
]


def lines(rows: list[dict[str, Any]]) -> bytes:
    return "".join(json.dumps(row) + "\n" for row in rows).encode()


def commas(rows: list[dict[str, Any]]) -> bytes:
    cells = ("instruction", "output")
    return "\n".join([",".join(cells), *(",".join(f'"{row[name]}"' for name in cells) for row in rows), ""]).encode()


def table(rows: list[dict[str, Any]]) -> bytes:
    sink = pa.BufferOutputStream()
    parquet.write_table(pa.Table.from_pylist(rows), sink)
    return bytes(sink.getvalue())


FILES: dict[str, Callable[[list[dict[str, Any]]], bytes]] = {
    "rows.jsonl": lines,
    "rows.json": lambda rows: json.dumps(rows).encode(),
    "rows.csv": commas,
    "rows.parquet": table,
    "rows.jsonl.gz": lambda rows: gzip.compress(lines(rows)),
    "folder/rows.jsonl": lines,
}


@pytest.fixture(scope="module")
def bare(model_folder: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Config and tokenizer, no weights."""
    folder = tmp_path_factory.mktemp("bare")
    for path in model_folder.iterdir():
        if path.suffix != ".safetensors":
            shutil.copy(path, folder)
    return folder


@pytest.fixture
def profile(bare: Path, tmp_path: Path) -> Callable[..., str]:
    def made(name: str, content: bytes, **data: Any) -> str:
        path = tmp_path / name
        path.parent.mkdir(exist_ok=True)
        path.write_bytes(content)
        rows = path.parent if path.parent != tmp_path else path
        return to_toml(make_profile(bare, rows, data={"max_length": 128} | data))

    return made


@pytest.mark.parametrize("name", FILES)
def test_they_are_those_of_the_store(name: str, profile: Callable[..., str], monkeypatch: pytest.MonkeyPatch) -> None:
    text, num_blocks = profile(name, FILES[name](ROWS)), 0
    read_blocks = blocks.read_blocks

    def counted(*given: Any, **named: Any) -> Iterator[Any]:
        nonlocal num_blocks
        for block in read_blocks(*given, **named):
            num_blocks += 1
            yield block

    monkeypatch.setattr("ftui.engine.data.stores.tasks.read_blocks", counted)
    views = first_rows.view_first_rows(text, 3, lambda detail: None)
    assert num_blocks == 1, "of three"
    assert msgspec.convert(msgspec.to_builtins(views), list[RowView]) == views, "they go over a pipe"
    browser._open_browsers.clear()
    stored = [browser.view_row(text, "number", lambda detail: None, number=number) for number in range(3)]
    assert views == [msgspec.structs.replace(one, num_rows=0, num_first=3) for one in stored]
    assert {one.num_rows for one in stored} == {1500}


def test_a_fault_further_on_is_said_by_who_reads_it(profile: Callable[..., str]) -> None:
    text = profile("rows.jsonl", lines(ROWS) + b"{damaged\n")
    assert len(first_rows.view_first_rows(text, 5, lambda detail: None)) == 5
    with pytest.raises(DataError, match=r"rows\.jsonl:1501"):
        browser.view_row(text, "number", lambda detail: None)


@pytest.mark.parametrize(
    ("content", "numbers"),
    [
        (lines(ROWS[:2]), [1, 2]),
        (b'{"instruction": 1, "output": "a"}\n' + lines(ROWS[:3]), [2, 3, 4]),
        (lines([{"instruction": "a", "output": "b " * 200_000}, *ROWS[:3]]), []),
        (lines([ROWS[0], {"instruction": "a", "output": "b " * 200_000}, *ROWS[:3]]), [1]),
    ],
)
def test_which_rows(content: bytes, numbers: list[int], profile: Callable[..., str]) -> None:
    views = first_rows.view_first_rows(profile("rows.jsonl", content), 3, lambda detail: None)
    assert [view.where.number for view in views] == numbers
    assert [view.num_first for view in views] == [len(numbers)] * len(numbers)


def test_a_single_text_is_left_to_who_shows_its_parts(profile: Callable[..., str]) -> None:
    text = profile("text.txt", b"The kernel forks. " * 200, format="text").replace('"sft"', '"pretrain"')
    assert first_rows.view_first_rows(text, 3, lambda detail: None) == []


def test_rows_of_no_known_form_are_an_error(profile: Callable[..., str]) -> None:
    with pytest.raises(DataError, match="no known form"):
        first_rows.view_first_rows(profile("rows.jsonl", b'{"a": 1}\n'), 3, lambda detail: None)
