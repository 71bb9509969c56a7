"""Real data sets, whole: form and number of rows, written down by hand, of every file that people have shown us.

The files lie beside the repository where this was made and stay there; elsewhere these tests say so and are skipped.
"""

from pathlib import Path

import pytest

from ftui.engine.data.cache import tokenised
from ftui.engine.data.encode import Encoder, stop_texts
from ftui.engine.data.formats import detect, to_example
from ftui.engine.data.named_templates import take_template
from ftui.engine.data.sources import read_rows
from ftui.errors import DataError
from tests.support.tiny import make_tokenizer

SHARED = Path(__file__).parents[3] / "shared"
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
    "peer_data/alpaca_en_demo.json": ("alpaca", 999),
    "peer_data/identity.json": ("alpaca", 91),
    "peer_data/c4_demo.jsonl": ("text", 300),
    "peer_data/glaive_toolcall_en_demo.json": ("sharegpt", 300),
    "peer_data/v1_sft_demo.jsonl": ("messages", 500),
    "peer_data/reason_tool_use_demo_50.jsonl": ("messages", 50),
}
PAIR, VERDICT = "a preference pair (chosen, rejected)", "an answer with a verdict ('label', as KTO has them)"
REFUSED = {
    "realdata/preference_gsm8k_solutions.jsonl": f", line 1: {PAIR}",
    "realdata/preference_messages_gsm8k.jsonl": f", line 1: {PAIR}",
    "realdata/kto_gsm8k_solutions.jsonl": f", line 1: {VERDICT}",
    "realdata/messy/alpaca_damaged.jsonl": ", line 4, column 17: not JSON",
    "realdata/messy/udhr_russian_cp1251.txt": ", line 1: not UTF-8",
    "realdata/messy/udhr_japanese_shift_jis.txt": ", line 1: not UTF-8",
    "realdata/messy/udhr_german_utf16le_bom.txt": ", line 1: not UTF-8",
    "realdata/messy/sharegpt_missing_turns.json": " holds one JSON object, not a list of rows",
    "realdata/messy/pyarrow_v0.7.1_no_text_column.parquet": ", row 1: no known form has the keys 'carat', 'cut'",
    "peer_data/dpo_en_demo.json": f", row 1: {PAIR}",
    "peer_data/kto_en_demo.json": f", row 1: {VERDICT}",
    "peer_data/mllm_demo.json": ", row 1: it has images: only text can be learned",
    "peer_data/dataset_info.json": " is a list of data sets (LLaMA-Factory's dataset_info.json), not rows",
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


def test_every_file_there_is_has_its_line_here() -> None:
    shared("realdata")
    there = [p for folder in ("realdata", "peer_data") for p in (SHARED / folder).rglob("*") if p.is_file()]
    names = {p.relative_to(SHARED).as_posix() for p in there if p.name != "SOURCES.md"}
    assert names == ACCEPTED.keys() | REFUSED.keys()


def test_u2028_does_not_cut_rows() -> None:
    assert len(shared("realdata/question_answer_gsm8k_native.jsonl").read_text().splitlines()) == 502


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
    take_template(tokenizer, "qwen")
    encoder = Encoder(tokenizer, "sft", 100_000, stop_texts(tokenizer, []))
    counts = tokenised([shared(name)], "auto", encoder, tmp_path, lambda num_rows: None).counts
    assert (counts.num_rows, counts.num_sequences) == (ACCEPTED[name][1], num_sequences)
    assert (counts.num_cut, counts.num_without_target) == (0, 0)
