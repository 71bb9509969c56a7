"""The token cache: found again by content, never by name; and what is mapped from the disk is what was encoded."""

import json
import os
import shutil
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from transformers import AutoTokenizer

from ftui.dataset.report import RowLocation
from ftui.engine.data.files.blocks import SIZE
from ftui.engine.data.forms.column_names import ColumnNames
from ftui.engine.data.forms.detect_form import detect
from ftui.engine.data.sources import ResolvedSource
from ftui.engine.data.stores.cache import SKIPPING, ReadOptions, bad_rows_error, load_store
from ftui.engine.data.stores.sequences import Sequences
from ftui.engine.data.stores.store import FILES, Skipped
from ftui.engine.data.tokens.encode import Encoder, stop_texts
from ftui.errors import DataError
from tests.support.data_rows import read_rows
from tests.support.tiny import MARKED, PLAIN, chats, completions, make_tokenizer, seen, write_rows


@pytest.fixture
def encoder() -> Encoder:
    tokenizer = make_tokenizer(PLAIN)
    return Encoder(tokenizer, "sft", stop_texts(tokenizer, []))


@pytest.fixture
def rows(tmp_path: Path) -> Path:
    return write_rows(tmp_path / "data" / "rows.jsonl", chats(30))


@pytest.fixture
def kept(tmp_path: Path) -> Path:
    return tmp_path / "cache"


def was_read(paths: list[Path], encoder: Encoder, kept: Path, form: str = "auto") -> bool:
    """Whether the rows had to be read and tokenised, that is, were not in the cache."""
    details: list[str] = []
    load_store(ResolvedSource("rows", tuple(paths), form), encoder, kept, details.append)
    return any(detail.startswith("tokenising") for detail in details)


def same(one: Sequences, other: Sequences) -> bool:
    pairs = [(one[i], other[i]) for i in range(len(one))]
    return len(one) == len(other) and all(
        np.array_equal(a.input_ids, b.input_ids) and np.array_equal(a.targets, b.targets) for a, b in pairs
    )


def test_mapped_values_are_those_of_the_encoder(encoder: Encoder, rows: Path, kept: Path, tmp_path: Path) -> None:
    """Two files of two forms; more rows than one batch of the cache."""
    more = write_rows(tmp_path / "more.jsonl", completions(700))
    direct = []
    for path in (rows, more):
        read = list(read_rows(path))
        direct += list(encoder.encode(read, detect(read[0])))
    for _ in range(2):  # as it is built, and as it is found
        store = load_store(ResolvedSource("rows", (rows, more), "auto"), encoder, kept, lambda detail: None)
        assert len(store.lengths) == len(direct) == 730
        for index, expected in enumerate(direct):
            found = store[index]
            assert found.input_ids.dtype == np.int32
            assert found.targets.dtype == bool
            assert np.array_equal(found.input_ids, expected.input_ids)
            assert np.array_equal(found.targets, expected.targets)
        assert store.lengths.tolist() == [len(s.input_ids) for s in direct]
        assert store.num_targets.tolist() == [s.num_targets for s in direct]
        assert store.facts["file"].tolist() == [0] * 30 + [1] * 700
        assert store.facts["place"].tolist() == [*range(1, 31), *range(1, 701)]
        data = more.read_bytes()
        assert all(data[at - 1 : at] == b"\n" for at in store.facts["offset"][31:])
        counts = store.counts
        assert (counts.num_rows, counts.num_sequences, counts.num_skipped) == (730, 730, 0)
        assert counts.num_tokens == sum(len(s.input_ids) for s in direct)
        assert counts.num_target_tokens == sum(s.num_targets for s in direct)
        assert counts.longest == max(len(s.input_ids) for s in direct)
        assert (counts.forms, counts.confidence) == (["messages", "prompt_completion"], 1.0)
        assert counts.scripts.keys() == {"Latin"}


def test_the_same_bytes_are_found_wherever_they_lie(encoder: Encoder, rows: Path, kept: Path, tmp_path: Path) -> None:
    assert was_read([rows], encoder, kept)
    assert not was_read([rows], encoder, kept)
    moved = tmp_path / "elsewhere" / "other-name.jsonl"
    moved.parent.mkdir()
    shutil.copy(rows, moved)
    os.utime(moved, (1, 1))
    assert not was_read([moved], encoder, kept)


def test_the_same_tokenizer_is_known_wherever_it_lies(encoder: Encoder, rows: Path, kept: Path, tmp_path: Path) -> None:
    assert was_read([rows], encoder, kept)
    encoder.tokenizer.save_pretrained(tmp_path / "tokenizer")
    reloaded = AutoTokenizer.from_pretrained(tmp_path / "tokenizer", local_files_only=True)
    assert not was_read([rows], replace(encoder, tokenizer=reloaded), kept)


def test_whatever_changes_the_tokens_is_read_again(encoder: Encoder, rows: Path, kept: Path, tmp_path: Path) -> None:
    """One byte of the rows, their order, the template, the tokens, the stage, the stops, the form, the columns."""
    assert was_read([rows], encoder, kept)
    byte = tmp_path / "byte.jsonl"
    byte.write_bytes(rows.read_bytes().replace(b"the", b"thE", 1))
    assert was_read([byte], encoder, kept)
    assert was_read([byte, rows], encoder, kept)
    assert was_read([rows, byte], encoder, kept)
    assert was_read([rows], replace(encoder, tokenizer=make_tokenizer(MARKED)), kept)
    assert was_read([rows], replace(encoder, tokenizer=make_tokenizer(PLAIN, bos=True)), kept)
    assert was_read([rows], replace(encoder, stops=encoder.stops | {"</s>"}), kept)
    assert was_read([rows], replace(encoder, loss_on="last"), kept)
    assert was_read([rows], encoder, kept, form="messages")
    other = ResolvedSource("rows", (rows,), "auto", shape=ColumnNames({}, {"bot": "assistant"}), encoding="cp1252")
    whole = ResolvedSource("rows", (rows,), "auto")
    sources = (whole, other, replace(whole, encoding="cp1252"))
    known = {load_store(one, encoder, kept, print).counts.fingerprint for one in sources}
    assert len(known | {load_store(whole, encoder, kept, print, ReadOptions(skips=True)).counts.fingerprint}) == 4
    text = write_rows(tmp_path / "text.jsonl", [{"text": "the cache ran away"}])
    assert was_read([text], encoder, kept)
    assert was_read([text], replace(encoder, stage="pretrain"), kept)
    as_json = tmp_path / "text.txt"
    shutil.copy(text, as_json)
    assert was_read([as_json], encoder, kept), "the same bytes as another kind of file are other rows"
    assert not was_read([rows], encoder, kept)


def test_the_fingerprint_of_the_data_is_that_of_its_tokens(encoder: Encoder, rows: Path, kept: Path) -> None:
    """Checkpoints keep it: other caches must agree about it, other lengths must not; they read nothing again."""
    one, other = (seen([rows], encoder, kept / name, max_length=128).counts.fingerprint for name in "ab")
    assert one == other
    assert seen([rows], encoder, kept / "a", max_length=100).counts.fingerprint != one
    assert not was_read([rows], encoder, kept / "a")


@pytest.mark.parametrize("name", ["counts.json", *FILES])
@pytest.mark.parametrize("damage", ["delete", "empty", "shorten"])
def test_a_damaged_cache_is_built_again(name: str, damage: str, encoder: Encoder, rows: Path, kept: Path) -> None:
    found = ResolvedSource("rows", (rows,), "auto")
    whole = load_store(found, encoder, kept, lambda detail: None)
    values = [whole[index] for index in range(30)]
    path = whole.folder / name
    data = path.read_bytes()
    path.unlink()  # and not truncated in place: `whole` is mapped from it
    if damage != "delete":
        path.write_bytes(b"" if damage == "empty" else data[:-1])
    assert was_read([rows], encoder, kept)
    again = load_store(found, encoder, kept, lambda detail: None)
    assert all(np.array_equal(a.input_ids, again[i].input_ids) for i, a in enumerate(values))


def test_two_runs_may_fill_the_cache_at_once(encoder: Encoder, rows: Path, kept: Path) -> None:
    def build(number: int) -> Sequences:
        return seen([rows], encoder, kept)

    with ThreadPoolExecutor(4) as threads:
        first, *others = threads.map(build, range(4))
    assert all(same(first, other) for other in others)
    assert len(list((kept / "tokens").iterdir())) == 1


def test_a_bad_row_leaves_nothing_behind(encoder: Encoder, rows: Path, kept: Path) -> None:
    with rows.open("ab") as file:
        file.write(json.dumps({"messages": "no list"}).encode() + b"\n")
    with pytest.raises(DataError, match=r"rows\.jsonl:31: 'messages' is not a list of messages"):
        was_read([rows], encoder, kept)
    assert list((kept / "tokens").iterdir()) == []


def test_the_cache_is_private(encoder: Encoder, rows: Path, kept: Path) -> None:
    was_read([rows], encoder, kept)
    for path in kept.rglob("*"):
        assert path.stat().st_mode & 0o077 == 0, path


def test_it_is_told_how_far_the_reading_is(encoder: Encoder, kept: Path, tmp_path: Path) -> None:
    path = write_rows(tmp_path / "many.jsonl", completions(2 * SIZE + 3))
    details: list[str] = []
    load_store(ResolvedSource("rows", (path,), "auto"), encoder, kept, details.append)
    told = [detail for detail in details if detail.startswith("tokenising")]
    assert [part for detail in told for part in detail.split(" · ")[1:2]] == ["512 rows", "1024 rows", "1027 rows"]
    assert told[0].startswith(("tokenising 49 %", "tokenising 50 %"))
    assert told[-1] == "tokenising 100 % · 1027 rows"


def test_a_file_is_hashed_once(encoder: Encoder, rows: Path, kept: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    os.utime(rows, (1e9, 1e9))  # one that was written just now may be written again without a new time
    assert was_read([rows], encoder, kept)
    monkeypatch.setattr(
        "ftui.engine.models.files.fingerprints.file_hash", lambda path, tick: pytest.fail(f"{path} is read again")
    )
    assert not was_read([rows], encoder, kept)


@pytest.mark.parametrize(
    ("others", "lines"),
    [
        ([], ["rows:3: no answer."]),
        ([5], ["rows:3: no answer. One more was found near it:", "  rows:5: no answer."]),
        ([5, 8], ["rows:3: no answer. 2 more were found near it:", "  rows:5: no answer.", "  rows:8: no answer."]),
        (
            range(4, 10),
            ["rows:3: no answer. 6 more were found near it:"]
            + [f"  rows:{n}: no answer." for n in range(4, 8)]
            + ["  and 2 more"],
        ),
    ],
)
def test_bad_rows_are_told_together(others: Sequence[int], lines: list[str]) -> None:
    bad = [Skipped(RowLocation("rows", n, "line"), "no answer", f"rows:{n}: no answer.") for n in (3, *others)]
    error = bad_rows_error(bad)
    assert error.message.split("\n") == lines and error.hint == SKIPPING
