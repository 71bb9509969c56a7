"""Rows on the disk as they are, and what a model sees of them at some max_length: cut, split, or left out."""

import gzip
import json
import os
import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from pyarrow import parquet

from ftui.engine.data.facts.row_facts import FACTS
from ftui.engine.data.files.blocks import read_blocks
from ftui.engine.data.forms.column_names import ColumnNames
from ftui.engine.data.load_rows import load_data
from ftui.engine.data.sources import ResolvedSource
from ftui.engine.data.stores import cache as room
from ftui.engine.data.stores.cache import ReadOptions, load_store
from ftui.engine.data.stores.reading_meter import Meter
from ftui.engine.data.stores.sequences import Sequences, cut_to_length, join_sources
from ftui.engine.data.stores.store import FILES, EncodedBlock, Store, StoreCounts, StoreWriter
from ftui.engine.data.tokens.encode import Encoder, stop_texts
from ftui.engine.training.prepare import prepare
from ftui.errors import DataError, DiskFullError
from ftui.system.user_folders import cache_folder
from tests.support.tiny import MARKED, Rows, chats, completions, make_profile, make_tokenizer, write_rows

TOKENIZER = make_tokenizer(MARKED)
ENCODER = Encoder(TOKENIZER, "sft", stop_texts(TOKENIZER, []))
COUNTS = StoreCounts(
    num_rows=0, num_skipped=0, num_sequences=0, num_tokens=0, num_target_tokens=0, longest=0, forms=[], confidence=1,
    skipped=[], scripts={}, sources=[], fingerprint="",
)  # fmt: skip
MASKS = st.lists(st.lists(st.booleans(), min_size=1, max_size=40), min_size=1, max_size=30)


def store_of(folder: Path, masks: list[list[bool]]) -> Store:
    """Sequences with these targets, whose tokens are their own numbers."""
    flat = np.array([one for mask in masks for one in mask], dtype="u1")
    (folder / "targets.bin").write_bytes(flat.tobytes())
    counts = replace_struct(COUNTS, num_rows=len(masks), num_sequences=len(masks), num_tokens=len(flat))
    lengths = np.array([len(mask) for mask in masks], dtype="<i4")
    num_targets = np.array([sum(mask[1:]) for mask in masks], dtype="<i4")
    rows = np.arange(len(masks), dtype="<i4")
    ids = np.arange(len(flat), dtype="<i4")
    labels, margins, facts = np.zeros(len(rows), "i1"), np.zeros(len(rows), "<f4"), np.zeros(len(masks), FACTS)
    return Store(folder, counts, lengths, num_targets, rows, labels, margins, facts, ids, flat)


def replace_struct(counts: StoreCounts, **values: Any) -> StoreCounts:
    return StoreCounts(**{name: getattr(counts, name) for name in StoreCounts.__struct_fields__} | values)


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(masks=MASKS, max_length=st.integers(2, 45))
def test_cut_sequences_are_the_beginnings_of_whole_ones(
    masks: list[list[bool]], max_length: int, tmp_path: Path
) -> None:
    store = store_of(tmp_path, masks)
    seen = cut_to_length(store, "sft", max_length)
    cut = [(number, mask[:max_length]) for number, mask in enumerate(masks)]
    kept = [(number, mask) for number, mask in cut if any(mask[1:])]
    assert seen.rows.tolist() == [number for number, _ in kept]
    assert seen.lengths.tolist() == [len(mask) for _, mask in kept]
    assert seen.num_targets.tolist() == [sum(mask[1:]) for _, mask in kept]
    for index, (number, mask) in enumerate(kept):
        assert seen[index].targets.tolist() == mask
        assert seen[index].input_ids.tolist() == store[number].input_ids[:max_length].tolist()
    counts = seen.counts
    assert counts.num_cut == sum(len(mask) > max_length for mask in masks)
    assert (counts.num_sequences, counts.num_without_target) == (len(kept), len(masks) - len(kept))
    assert (counts.num_tokens, counts.longest) == (sum(seen.lengths), max(seen.lengths, default=0))
    assert counts.num_target_tokens == sum(seen.num_targets)


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(sizes=st.lists(st.integers(1, 60), min_size=1, max_size=20), max_length=st.integers(8, 20))
def test_long_texts_are_split_without_losing_a_token(sizes: list[int], max_length: int, tmp_path: Path) -> None:
    """Pieces follow one another, none too long, none of one token (which would be predicted from nothing)."""
    store = store_of(tmp_path, [[True] * size for size in sizes])
    seen = cut_to_length(store, "pretrain", max_length)
    assert all(2 <= length <= max_length for length in seen.lengths)
    for number, size in enumerate(sizes):
        pieces = [seen[int(index)] for index in np.flatnonzero(seen.rows == number)]
        if size == 1:
            assert pieces == []
            continue
        assert np.concatenate([p.input_ids for p in pieces]).tolist() == store[number].input_ids.tolist()
        assert len(pieces) == -(-size // max_length)
    assert seen.num_targets.tolist() == (seen.lengths - 1).tolist()
    assert seen.counts.num_cut == sum(size > max_length for size in sizes)


def test_rows_that_cannot_be_trained_on_are_left_out_and_counted(tmp_path: Path) -> None:
    rows: Rows = chats(40)
    for number in (0, *range(5, 29)):
        rows[number] = {"messages": 3}
    path = write_rows(tmp_path / "rows.jsonl", rows)
    with path.open("ab") as file:
        file.write(b'{"messages": [\n\xff{}\n')
    found = ResolvedSource("rows", (path,), "messages")
    counts = load_store(found, ENCODER, tmp_path / "cache", print, ReadOptions(skips=True)).counts
    assert (counts.num_rows, counts.num_skipped, len(counts.skipped)) == (15, 27, 20)
    assert str(counts.skipped[0].where) == f"{path}:1"
    assert counts.skipped[0].reason == "'messages' is not a list of messages"
    assert counts.skipped[1].message == f"{path}:6: 'messages' is not a list of messages."
    alone = write_rows(tmp_path / "alone.jsonl", [row for row in rows if row["messages"] != 3])
    whole = load_store(ResolvedSource("rows", (alone,), "messages"), ENCODER, tmp_path / "cache", print)
    skipping = load_store(found, ENCODER, tmp_path / "cache", lambda detail: None, ReadOptions(skips=True))
    assert skipping.ids.tolist() == whole.ids.tolist()
    assert skipping.facts["place"].tolist() == [n for n, row in enumerate(rows, start=1) if row["messages"] != 3]
    with pytest.raises(DataError, match=r"rows\.jsonl:1: 'messages' is not a list of messages"):
        load_store(found, ENCODER, tmp_path / "cache", print)


def test_rows_left_out_stand_where_the_file_is_now(tmp_path: Path) -> None:
    """Tokens are found by what is in a file: it may have another name by then, and the old one be gone."""
    first = write_rows(tmp_path / "first" / "rows.jsonl", [*chats(3), {"messages": 3}])
    second = write_rows(tmp_path / "beside.jsonl", [*chats(2), {"messages": 4}])
    manner = ReadOptions(skips=True)
    load_store(ResolvedSource("rows", (first, second), "messages"), ENCODER, tmp_path / "cache", print, manner)
    later = (first.rename(tmp_path / "moved.jsonl"), second.rename(tmp_path / "too.jsonl"))
    told: list[str] = []
    counts = load_store(
        ResolvedSource("rows", later, "messages"), ENCODER, tmp_path / "cache", told.append, manner
    ).counts
    assert not any(detail.startswith("tokenising ") for detail in told)
    assert [str(one.where) for one in counts.skipped] == [f"{later[0]}:4", f"{later[1]}:3"]
    assert counts.skipped[0].message == f"{later[0]}:4: 'messages' is not a list of messages."
    assert counts.sources == [str(path) for path in later]


@pytest.mark.parametrize("stage", ["sft", "pretrain"])
def test_a_row_that_is_padding_alone_is_seen_nowhere(stage: str, tmp_path: Path) -> None:
    """Wherever it stands beside rows that are split: its attention mask leaves no token of it."""
    padding = {"input_ids": [5, 6], "attention_mask": [0, 0]}
    others: Rows = [{"input_ids": [5, 6, 7], "attention_mask": [1, 1, 1]}, {"input_ids": [5] * 40}]
    encoder = replace(ENCODER, stage=stage)

    def seen_of(rows: Rows) -> Sequences:
        found = ResolvedSource("rows", (write_rows(tmp_path / "rows.jsonl", rows),), "auto")
        return cut_to_length(load_store(found, encoder, tmp_path / "cache", print), stage, 8)

    wanted = seen_of(others)
    for place in range(3):
        seen = seen_of([*others[:place], padding, *others[place:]])
        assert seen.num_targets.tolist() == wanted.num_targets.tolist()
        assert seen.lengths.tolist() == wanted.lengths.tolist() and place not in seen.rows.tolist()
        assert seen.counts.num_without_target == 1


def test_where_all_are_left_out_it_is_an_error(tmp_path: Path) -> None:
    path = write_rows(tmp_path / "rows.jsonl", [{"text": "a"}, {"text": 1}])
    found = ResolvedSource("rows", (path,), "text")
    encoder = replace(ENCODER, stage="sft", loss_on="assistant")
    assert load_store(found, encoder, tmp_path / "cache", print, ReadOptions(skips=True)).counts.num_skipped == 1
    path.write_bytes(b"{\n[\n")
    with pytest.raises(DataError, match=r"All 2 rows of .*rows\.jsonl were left out\. The first: .*rows\.jsonl:1:"):
        load_store(found, encoder, tmp_path / "cache", print, ReadOptions(skips=True))


def test_a_run_is_told_what_was_left_out(model_folder: Path, tmp_path: Path) -> None:
    path = write_rows(tmp_path / "rows.jsonl", [*chats(40), {"messages": 3}])
    profile = make_profile(model_folder, path, data={"on_bad_row": "skip"})
    found = prepare(profile, cache_folder(tmp_path), print)
    assert found.train.num_rows == 40
    assert any("1 of the 41 rows" in warning or "left out" in warning for warning in found.warnings), found.warnings


def test_another_length_is_another_data_set_and_reads_nothing_again(model_folder: Path, tmp_path: Path) -> None:
    path = write_rows(tmp_path / "rows.jsonl", chats(60))
    prints = set()
    for max_length in (40, 64, 128):
        details: list[str] = []
        found = load_data(make_profile(model_folder, path, data={"max_length": max_length}), tmp_path, details.append)
        prints.add(found.train.sequences.counts.fingerprint)
        assert found.train.sequences.counts.longest <= max_length
        assert any(detail.startswith("tokenising") for detail in details) == (max_length == 40)
    assert len(prints) == 3


def test_data_can_be_looked_at_without_weights(model_folder: Path, tmp_path: Path) -> None:
    """Tokenizer and config alone; also where nothing is trained on, which is what a look is for."""
    bare = tmp_path / "bare"
    bare.mkdir()
    for path in model_folder.iterdir():
        if path.suffix != ".safetensors":
            os.link(path, bare / path.name)
    rows = write_rows(tmp_path / "rows.jsonl", [{"messages": [{"role": "user", "content": "why?"}]}] * 3)
    profile = make_profile(bare, rows, data={"eval_fraction": 0.5})
    found = load_data(profile, tmp_path, lambda detail: None, weights=False)
    assert (found.stores[0].counts.num_rows, len(found.train.indices), found.longest) == (3, 0, 256)
    with pytest.raises(DataError, match=r"None of the 3 rows of .*rows\.jsonl has a token to train on"):
        load_data(make_profile(model_folder, rows), tmp_path, lambda detail: None)


def test_there_must_be_room(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Told after the first rows, from what they took; and when the disk is full all the same."""
    found = ResolvedSource("rows", (write_rows(tmp_path / "rows.jsonl", completions(1200)),), "auto")
    load_store(
        ResolvedSource("few", (write_rows(tmp_path / "few.jsonl", completions(9)),), "auto"), ENCODER, tmp_path, print
    )
    size = sum((load_store(found, ENCODER, tmp_path / "other", print).folder / name).stat().st_size for name in FILES)
    asked: list[int] = []
    monkeypatch.setattr(room, "check_room", lambda folder, num_bytes: asked.append(num_bytes))
    full = OSError(28, os.strerror(28))

    def add(sink: StoreWriter, portion: EncodedBlock, before: Any = StoreWriter.add) -> None:
        before(sink, portion)
        if sink.num_rows > 1000:
            raise full

    monkeypatch.setattr(StoreWriter, "add", add)
    with pytest.raises(DiskFullError, match="the disk is full") as caught:
        load_store(found, ENCODER, tmp_path, print)
    assert "`ftui cache --prune --all` frees" in caught.value.hint
    assert len(asked) == 1 and 0.4 * size < asked[0] < 0.8 * size
    assert len(list((tmp_path / "tokens").iterdir())) == 1, "only that of the few rows"


def test_counts_are_plain_json(tmp_path: Path) -> None:
    """`ftui cache` reads them without the engine."""
    found = ResolvedSource("rows", (write_rows(tmp_path / "rows.jsonl", completions(9)),), "auto")
    counts = json.loads((load_store(found, ENCODER, tmp_path, print).folder / "counts.json").read_bytes())
    assert (counts["num_rows"], counts["sources"]) == (9, [str(tmp_path / "rows.jsonl")])


def test_a_cache_without_room_for_a_folder_is_full(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It is not the rows that cannot be read."""
    path = write_rows(tmp_path / "rows.jsonl", chats(3))
    cache, mkdir = tmp_path / "cache", Path.mkdir
    cache.mkdir()

    def full(folder: Path, *args: Any, **options: Any) -> None:
        if folder.is_relative_to(cache):
            raise OSError(28, os.strerror(28), str(folder))
        mkdir(folder, *args, **options)

    monkeypatch.setattr(Path, "mkdir", full)
    with pytest.raises(DiskFullError, match=r"Tokens could not be written: the disk is full, [0-9.]+ \w+ free"):
        load_store(ResolvedSource("rows", (path,), "auto"), ENCODER, cache, print)


def test_the_share_that_is_read_is_told_where_it_can_be_known(tmp_path: Path) -> None:
    rows = completions(600)
    lines = write_rows(tmp_path / "rows.jsonl", rows)
    (tmp_path / "rows.json").write_text(json.dumps(rows))
    (tmp_path / "packed.jsonl.gz").write_bytes(gzip.compress(lines.read_bytes()))
    parquet.write_table(pyarrow.Table.from_pylist(rows), tmp_path / "rows.parquet")
    for name, first in (
        ("rows.jsonl", r"8\d % · 512 rows"), ("rows.json", r"8\d % · 512 rows"), ("rows.parquet", "85 % · 512 rows"),
        ("packed.jsonl.gz", "512 rows"),
    ):  # fmt: skip
        details: list[str] = []
        load_store(ResolvedSource("rows", (tmp_path / name,), "auto"), ENCODER, tmp_path / name[-3:], details.append)
        told = [detail for detail in details if detail.startswith("tokenising")]
        assert re.fullmatch(f"tokenising {first}( · [0-9.]+ s left)?", told[0]), told
        assert told[-1].endswith("600 rows")


def test_more_processes_are_asked_for_only_where_they_pay(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    path = write_rows(tmp_path / "rows.jsonl", [{"n": 100 + number} for number in range(100)])
    now = [100.0]
    monkeypatch.setattr("ftui.engine.system.pace.time.monotonic", lambda: now[0])
    meter = Meter([path], lambda detail: None)
    (block,) = read_blocks((path,))
    tenth = replace(block, places=block.places[:10], offsets=block.offsets[:10], texts=block.texts[:10])
    now[0] = 100.3
    meter.took(tenth)
    assert not meter.pays(8), "the first rows say little"
    now[0] = 100.7
    meter.took(tenth)
    assert (round(meter.share or 0, 1), meter.pays(8), meter.pays(2)) == (0.1, True, True)
    assert meter.detail() == "tokenising 10 % · 20 rows · 6.4 s left", "10 % of it took 0.7 s"
    now[0] = 100.9
    half = replace(block, places=block.places[:50], offsets=block.offsets[:50], texts=block.texts[:50])
    meter.took(half)
    assert not meter.pays(8), "what is left is done before they are there"


def test_the_margin_of_a_pair_stands_with_both_its_answers(tmp_path: Path) -> None:
    """The second pair loses its answers at this length; another margin column is another entry of the cache."""
    pairs = [{"prompt": "why? ", "chosen": "so", "rejected": "no"} | {"margin": n, "by": -n} for n in (1.5, 2.5, 3.5)]
    pairs[1]["prompt"] = "why? " * 40
    path, encoder = write_rows(tmp_path / "pairs.jsonl", pairs), replace(ENCODER, stage="rm")
    for shape, sign in ((ColumnNames(), 1), (ColumnNames({"margin": "by"}), -1)):
        for _ in range(2):  # as it is made, and as it is found
            source = ResolvedSource("pairs", (path,), "preference", shape=shape)
            store = load_store(source, encoder, tmp_path / "cache", lambda detail: None)
            assert store.margins.tolist() == [sign * n for n in (1.5, 1.5, 2.5, 2.5, 3.5, 3.5)]
            assert [store[n].margin for n in range(2)] == [sign * 1.5] * 2
        seen = join_sources([cut_to_length(store, "rm", 64)] * 2)
        assert seen.margins.tolist() == [sign * n for n in (1.5, 1.5, 3.5, 3.5)] * 2
        assert [(seen[n].label, seen[n].margin) for n in (2, 3)] == [(1, sign * 3.5), (-1, sign * 3.5)]
