"""Real data sets, whole: form and number of rows, written down by hand, of every file that people have shown us.

The files lie beside the repository where this was made and stay there; elsewhere these tests say so and are skipped.
"""

import json
from pathlib import Path

import pytest

from ftui.engine.data.files.blocks import BadRow, parse_block, read_blocks
from ftui.engine.data.files.dataset_info import resolve_entry
from ftui.engine.data.files.raw_rows import Row
from ftui.engine.data.forms.detect_form import detect
from ftui.engine.data.forms.formats import ColumnNames, to_example
from ftui.engine.data.tokens.encode import Encoder, stop_texts
from ftui.engine.data.tokens.named_templates import set_template
from ftui.errors import DataError
from ftui.profile.paths import HUB_ID
from ftui.profile.sections.data import DataSource
from tests.support.data_rows import read_rows
from tests.support.tiny import make_tokenizer, seen

SHARED = Path(__file__).parents[4] / "shared"
ACCEPTED = {
    "realdata/alpaca_gsm8k.jsonl": ("alpaca", 2000),
    "realdata/alpaca_jargon_file.jsonl": ("alpaca", 2244),
    "realdata/alpaca_self_instruct.json": ("alpaca", 427),
    "realdata/alpaca_self_instruct.csv": ("alpaca", 427),
    "realdata/openai_messages_chitchat.jsonl": ("messages", 420),
    "realdata/openai_messages_gsm8k.jsonl": ("messages", 1319),
    "realdata/openai_tools_bfcl.jsonl": ("messages", 1172),
    "realdata/sharegpt_chitchat.jsonl": ("sharegpt", 520),
    "realdata/question_answer_gsm8k_native.jsonl": ("question_answer", 500),
    "realdata/gsm8k_test.parquet": ("question_answer", 1319),
    "realdata/corpus_sotu.jsonl": ("text", 50),
    "realdata/corpus_moby_dick.txt": ("text", 1),
    "realdata/messy/udhr_multilingual.jsonl": ("text", 24),
    "realdata/messy/udhr_french_utf8_bom_crlf.txt": ("text", 1),
    "realdata/messy/udhr_french_mojibake.txt": ("text", 1),
    "realdata/messy/sharegpt_missing_turns.json": ("sharegpt", 1),
    "peer_data/alpaca_en_demo.json": ("alpaca", 999),
    "peer_data/identity.json": ("alpaca", 91),
    "peer_data/c4_demo.jsonl": ("text", 300),
    "peer_data/glaive_toolcall_en_demo.json": ("sharegpt", 300),
    "peer_data/v1_sft_demo.jsonl": ("messages", 500),
    "peer_data/reason_tool_use_demo_50.jsonl": ("messages", 50),
}
PAIR, VERDICT = "a preference pair (chosen, rejected)", "an answer with a verdict"
REFUSED = {
    "realdata/preference_gsm8k_solutions.jsonl": f":1: {PAIR}",
    "realdata/preference_messages_gsm8k.jsonl": f":1: {PAIR}",
    "realdata/kto_gsm8k_solutions.jsonl": f":1: {VERDICT}",
    "realdata/messy/alpaca_damaged.jsonl": ":4:17: the JSON ends in the middle",
    "realdata/messy/udhr_russian_cp1251.txt": ":1: not UTF-8 (byte 0: 0xc2): it may be cp1251",
    "realdata/messy/udhr_japanese_shift_jis.txt": ":1: not UTF-8 (byte 0: 0x81): it may be cp932",
    "realdata/messy/udhr_german_utf16le_bom.txt": ":1: not UTF-8 (byte 0: 0xff) but UTF-16.",
    "realdata/messy/pyarrow_v0.7.1_no_text_column.parquet": ", row 1: no known form has the keys 'carat', 'cut'",
    "peer_data/dpo_en_demo.json": f", row 1: {PAIR}",
    "peer_data/kto_en_demo.json": f", row 1: {VERDICT}",
    "peer_data/mllm_demo.json": ", row 1: it has images: only text can be trained on",
    "peer_data/dataset_info.json": " is a list of data sets (LLaMA-Factory's dataset_info.json), not rows",
}
# What can be read once the profile says how: entries of dataset_info.json with their form and number of rows ...
DESCRIBED = {
    "identity": ("alpaca", 91),
    "alpaca_en_demo": ("alpaca", 999),
    "glaive_toolcall_en_demo": ("sharegpt", 300),
    "dpo_en_demo": ("preference", 300),
    "kto_en_demo": ("kto", 300),
    "c4_demo": ("text", 300),
}
# ... and why other entries are refused, of which there are so many.
UNREADABLE = {"only text can be trained on": 13, "there is no such file": 4, "from where nothing is read": 1}
UNREADABLE |= {"the hub's name": 1, "one folder": 1}
ENCODED = {
    "udhr_russian_cp1251.txt": ("cp1251", "\u0412\u0441\u0435"),
    "udhr_japanese_shift_jis.txt": ("shift_jis", "\u300e"),
    "udhr_german_utf16le_bom.txt": ("utf-16", "Die Allgemeine"),
}
DAMAGED = {  # line: fault, of messy/alpaca_damaged.jsonl; lines 6 to 8 are whole JSON, whatever stands in them
    4: "the JSON ends in the middle",
    10: "a JSON list, not an object",
    13: "not UTF-8 (byte 3998: 0xe9)",
    14: "the JSON ends in the middle",
}


def shared(name: str) -> Path:
    path = SHARED / name
    if not path.exists():
        pytest.skip(f"the real data set {path} is not on this machine")
    return path


@pytest.mark.parametrize("name", ACCEPTED)
def test_a_file_is_taken_as_it_is(name: str) -> None:
    rows = list(read_rows(shared(name)))
    form, num_rows = ACCEPTED[name]
    assert len(rows) == num_rows
    assert detect(rows[0]) == form
    assert len([to_example(row, form) for row in rows]) == num_rows


@pytest.mark.parametrize("name", REFUSED)
def test_a_file_is_refused_with_its_reason(name: str) -> None:
    path = shared(name)
    with pytest.raises(DataError) as caught:
        for found in read_rows(path):
            to_example(found, detect(found))
    assert caught.value.message.startswith(f"{path}{REFUSED[name]}")


@pytest.mark.parametrize("name", DESCRIBED)
def test_an_entry_of_dataset_info_is_read(name: str) -> None:
    info = shared("peer_data/dataset_info.json")
    source = resolve_entry(DataSource(path=str(info), subset=name))
    rows, shape = list(read_rows(Path(source.path))), ColumnNames(source.columns, source.roles)
    form, num_rows = DESCRIBED[name]
    assert source.format == form
    assert len([to_example(row, form, shape) for row in rows]) == num_rows


def test_every_entry_of_dataset_info_is_described_or_refused_by_name() -> None:
    info = shared("peer_data/dataset_info.json")
    reasons: list[str] = []
    for name in json.loads(info.read_text()):
        try:
            source = resolve_entry(DataSource(path=str(info), subset=name))
            assert HUB_ID.fullmatch(source.path) or name in DESCRIBED
        except DataError as error:
            assert error.message.startswith(f"{info}: {name!r} ")
            reasons.append(error.message)
    assert {why: sum(why in reason for reason in reasons) for why in UNREADABLE} == UNREADABLE
    assert len(reasons) == sum(UNREADABLE.values())


@pytest.mark.parametrize("name", ENCODED)
def test_an_encoding_that_is_told_is_read(name: str) -> None:
    encoding, words = ENCODED[name]
    (row,) = read_rows(shared(f"realdata/messy/{name}"), encoding=encoding)
    assert words in row.value["text"][:200]


def test_every_damaged_line_is_named() -> None:
    path = shared("realdata/messy/alpaca_damaged.jsonl")
    rows = [row for block in read_blocks([path]) for row in parse_block(block)]
    assert {row.where.number: row.reason for row in rows if isinstance(row, BadRow)} == DAMAGED
    assert [row.place for row in rows if isinstance(row, Row)] == [1, 2, 5, 6, 7, 8, 9, 11, 12]


def test_every_file_there_is_has_its_line_here() -> None:
    shared("realdata")
    there = [p for folder in ("realdata", "peer_data") for p in (SHARED / folder).rglob("*") if p.is_file()]
    names = {p.relative_to(SHARED).as_posix() for p in there if p.name != "SOURCES.md"}
    assert names == ACCEPTED.keys() | REFUSED.keys()


def test_u2028_does_not_cut_rows() -> None:
    assert len(shared("realdata/question_answer_gsm8k_native.jsonl").read_text().splitlines()) == 502


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "num_sequences"),
    [
        ("realdata/gsm8k_test.parquet", 1319),
        ("realdata/messy/udhr_multilingual.jsonl", 24),
        ("peer_data/glaive_toolcall_en_demo.json", 300),
        ("peer_data/reason_tool_use_demo_50.jsonl", 50),
    ],
)
def test_real_rows_become_sequences(name: str, num_sequences: int, tmp_path: Path) -> None:
    """Conversations with tools and reasoning among them: nothing is left out, nothing is cut."""
    tokenizer = make_tokenizer()
    set_template(tokenizer, "qwen")
    encoder = Encoder(tokenizer, "sft", stop_texts(tokenizer, []))
    counts = seen([shared(name)], encoder, tmp_path, max_length=100_000).counts
    assert (counts.num_rows, counts.num_sequences) == (ACCEPTED[name][1], num_sequences)
    assert (counts.num_cut, counts.num_without_target) == (0, 0)
