"""The token cache: found again by content, never by name; and what is mapped from the disk is what was encoded."""

import json
import os
import shutil
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from transformers import AutoTokenizer

from ftui.engine.data import cache as room
from ftui.engine.data.cache import cache_folder, tokenised
from ftui.engine.data.encode import Encoder, stop_texts
from ftui.engine.data.formats import detect
from ftui.engine.data.sequences import FILES, Sequences
from ftui.engine.data.sources import read_rows
from ftui.errors import DataError
from tests.support.tiny import MARKED, PLAIN, chats, completions, make_tokenizer, write_rows


@pytest.fixture
def encoder() -> Encoder:
    tokenizer = make_tokenizer(PLAIN)
    return Encoder(tokenizer, "sft", 128, stop_texts(tokenizer, []))


@pytest.fixture
def rows(tmp_path: Path) -> Path:
    return write_rows(tmp_path / "data" / "rows.jsonl", chats(30))


@pytest.fixture
def kept(tmp_path: Path) -> Path:
    return tmp_path / "cache"


def was_read(paths: list[Path], encoder: Encoder, kept: Path, form: str = "auto") -> bool:
    """Whether the rows had to be read and tokenised, that is, were not in the cache."""
    ticks: list[int] = []
    tokenised(paths, form, encoder, kept, ticks.append)
    return bool(ticks)


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
        sequences = tokenised([rows, more], "auto", encoder, kept, lambda num_rows: None)
        assert len(sequences) == len(direct) == 730
        for index, expected in enumerate(direct):
            found = sequences[index]
            assert found.input_ids.dtype == np.int32
            assert found.targets.dtype == bool
            assert np.array_equal(found.input_ids, expected.input_ids)
            assert np.array_equal(found.targets, expected.targets)
        assert sequences.lengths.tolist() == [len(s.input_ids) for s in direct]
        assert sequences.num_targets.tolist() == [s.num_targets for s in direct]
        counts = sequences.counts
        assert (counts.num_rows, counts.num_sequences) == (730, 730)
        assert counts.num_tokens == sum(len(s.input_ids) for s in direct)
        assert counts.num_target_tokens == sum(s.num_targets for s in direct)
        assert counts.num_cut == sum(s.cut for s in direct) > 0
        assert counts.longest == max(len(s.input_ids) for s in direct) == 128


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
    """One byte of the rows, their order, the template, the tokens, the room, the stage, the stops, the form."""
    assert was_read([rows], encoder, kept)
    byte = tmp_path / "byte.jsonl"
    byte.write_bytes(rows.read_bytes().replace(b"the", b"thE", 1))
    assert was_read([byte], encoder, kept)
    assert was_read([byte, rows], encoder, kept)
    assert was_read([rows, byte], encoder, kept)
    assert was_read([rows], replace(encoder, tokenizer=make_tokenizer(MARKED)), kept)
    assert was_read([rows], replace(encoder, tokenizer=make_tokenizer(PLAIN, bos=True)), kept)
    assert was_read([rows], replace(encoder, max_length=127), kept)
    assert was_read([rows], replace(encoder, stops=encoder.stops | {"</s>"}), kept)
    assert was_read([rows], replace(encoder, loss_on="last"), kept)
    assert was_read([rows], encoder, kept, form="messages")
    text = write_rows(tmp_path / "text.jsonl", [{"text": "the cache ran away"}])
    assert was_read([text], encoder, kept)
    assert was_read([text], replace(encoder, stage="pretrain"), kept)
    as_json = tmp_path / "text.txt"
    shutil.copy(text, as_json)
    assert was_read([as_json], encoder, kept), "the same bytes as another kind of file are other rows"
    assert not was_read([rows], encoder, kept)


def test_the_fingerprint_of_the_data_is_that_of_its_tokens(encoder: Encoder, rows: Path, kept: Path) -> None:
    """Checkpoints keep it: other caches must agree about it, other tokens must not."""
    one, other = (tokenised([rows], "auto", encoder, kept / name, print).counts.fingerprint for name in "ab")
    assert one == other
    shorter = tokenised([rows], "auto", replace(encoder, max_length=100), kept / "a", print).counts.fingerprint
    assert shorter != one


@pytest.mark.parametrize("name", ["counts.json", *FILES])
@pytest.mark.parametrize("damage", ["delete", "empty", "shorten"])
def test_a_damaged_cache_is_built_again(name: str, damage: str, encoder: Encoder, rows: Path, kept: Path) -> None:
    whole = tokenised([rows], "auto", encoder, kept, lambda num_rows: None)
    values = [whole[index] for index in range(len(whole))]
    path = kept / "tokens" / whole.counts.fingerprint / name
    data = path.read_bytes()
    path.unlink()  # and not truncated in place: `whole` is mapped from it
    if damage != "delete":
        path.write_bytes(b"" if damage == "empty" else data[:-1])
    assert was_read([rows], encoder, kept)
    again = tokenised([rows], "auto", encoder, kept, lambda num_rows: None)
    assert all(np.array_equal(a.input_ids, again[i].input_ids) for i, a in enumerate(values))


def test_two_runs_may_fill_the_cache_at_once(encoder: Encoder, rows: Path, kept: Path) -> None:
    def build(number: int) -> Sequences:
        return tokenised([rows], "auto", encoder, kept, lambda num_rows: None)

    with ThreadPoolExecutor(4) as threads:
        first, *others = threads.map(build, range(4))
    assert all(same(first, other) for other in others)
    assert len(list((kept / "tokens").iterdir())) == 1


def test_a_bad_row_leaves_nothing_behind(encoder: Encoder, rows: Path, kept: Path) -> None:
    with rows.open("ab") as file:
        file.write(json.dumps({"messages": "no list"}).encode() + b"\n")
    with pytest.raises(DataError, match=r"rows\.jsonl, line 31: 'messages' is not a list of messages"):
        was_read([rows], encoder, kept)
    assert list((kept / "tokens").iterdir()) == []


def test_the_cache_is_private(encoder: Encoder, rows: Path, kept: Path) -> None:
    was_read([rows], encoder, kept)
    for path in kept.rglob("*"):
        assert path.stat().st_mode & 0o077 == 0, path


def test_where_the_cache_lies(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FTUI_CACHE", str(tmp_path / "chosen"))
    assert cache_folder(tmp_path / "fallback") == tmp_path / "chosen"
    monkeypatch.delenv("FTUI_CACHE")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "home"))
    assert cache_folder(tmp_path / "fallback") == tmp_path / "home" / "ftui"
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "file"))
    assert cache_folder(tmp_path / "fallback") == tmp_path / "fallback"
    assert (tmp_path / "fallback").stat().st_mode & 0o777 == 0o700


def test_rows_are_counted_while_they_are_read(encoder: Encoder, kept: Path, tmp_path: Path) -> None:
    path = write_rows(tmp_path / "many.jsonl", completions(room.BATCH + 3))
    ticks: list[int] = []
    tokenised([path], "auto", encoder, kept, ticks.append)
    assert ticks == [room.BATCH, room.BATCH + 3]
