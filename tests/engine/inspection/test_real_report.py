"""What the report finds in real data sets: what people who looked at the files found, and nothing else.

The files lie beside the repository where this was made and stay there; elsewhere these tests say so and are skipped.
"""

from pathlib import Path
from typing import Any

import pytest

from ftui.dataset.report import Finding, Report, RowLocation
from ftui.engine.data.load_rows import load_data
from ftui.engine.inspection.report import make_report
from ftui.system.user_folders import cache_folder
from tests.support.tiny import make_profile

SMALL = Path(__file__).parents[3] / "profiles" / "quickstart" / "base"  # its tokenizer is soon through with them
SHARED = Path(__file__).parents[4] / "shared"
OF_LENGTH = {"truncated", "answers_cut_off", "too_long_for_model", "few_rows", "much_padding"}  # of model and profile
# Rows, and the findings on what is said in them.
EXPECTED: dict[str, tuple[int, dict[str, int]]] = {
    "peer_data/alpaca_en_demo.json": (999, {"placeholders": 1, "duplicate_rows": 14, "boilerplate": 6}),
    "peer_data/c4_demo.jsonl": (300, {"damaged_text": 4}),
    "peer_data/dpo_en_demo.json": (300, {"damaged_text": 1, "duplicate_rows": 5}),
    "peer_data/glaive_toolcall_en_demo.json": (
        300,
        {"duplicate_rows": 35, "similar_rows": 10, "repeated_prompts": 1},
    ),
    "peer_data/kto_en_demo.json": (300, {"boilerplate": 1, "repeated_prompts": 2}),
    "peer_data/identity.json": (
        91,
        {"placeholders": 85, "similar_rows": 1, "repeated_prompts": 2, "mixed_scripts": 1510},
    ),
    "peer_data/reason_tool_use_demo_50.jsonl": (50, {}),
    "peer_data/v1_sft_demo.jsonl": (
        500,
        {"placeholders": 51, "boilerplate": 2, "duplicate_rows": 1, "similar_rows": 1, "repeated_prompts": 1},
    ),
    "realdata/alpaca_gsm8k.jsonl": (2000, {}),
    "realdata/alpaca_jargon_file.jsonl": (2244, {}),
    "realdata/alpaca_self_instruct.csv": (427, {}),
    "realdata/alpaca_self_instruct.json": (427, {}),
    "realdata/corpus_moby_dick.txt": (1, {"joined_lines": 1}),
    "realdata/corpus_sotu.jsonl": (50, {}),
    "realdata/gsm8k_test.parquet": (1319, {}),
    "realdata/kto_gsm8k_solutions.jsonl": (1000, {}),
    "realdata/openai_messages_chitchat.jsonl": (420, {}),
    "realdata/openai_messages_gsm8k.jsonl": (1319, {}),
    "realdata/openai_tools_bfcl.jsonl": (1172, {"similar_rows": 2}),
    "realdata/preference_gsm8k_solutions.jsonl": (731, {}),
    "realdata/preference_messages_gsm8k.jsonl": (136, {}),
    "realdata/question_answer_gsm8k_native.jsonl": (500, {}),
    "realdata/sharegpt_chitchat.jsonl": (520, {}),
    "realdata/messy/alpaca_damaged.jsonl": (
        7,
        {"rows_skipped": 6, "empty_answers": 1, "damaged_text": 1, "duplicate_rows": 1, "unused_columns": 2},
    ),
    "realdata/messy/sharegpt_missing_turns.json": (1, {"empty_answers": 1}),
    "realdata/messy/udhr_french_mojibake.txt": (1, {"damaged_text": 1}),
    "realdata/messy/udhr_french_utf8_bom_crlf.txt": (1, {}),
    "realdata/messy/udhr_german_utf16le_bom.txt": (1, {}),
    "realdata/messy/udhr_japanese_shift_jis.txt": (1, {}),
    "realdata/messy/udhr_multilingual.jsonl": (24, {"mixed_scripts": 75822}),
    "realdata/messy/udhr_russian_cp1251.txt": (1, {}),
}
OPTIONS: dict[str, dict[str, Any]] = {
    "peer_data/dpo_en_demo.json": {"format": "preference"},
    "peer_data/kto_en_demo.json": {"format": "kto"},
    "realdata/kto_gsm8k_solutions.jsonl": {"format": "kto"},
    "realdata/preference_gsm8k_solutions.jsonl": {"format": "preference"},
    "realdata/preference_messages_gsm8k.jsonl": {"format": "preference"},
    "realdata/messy/alpaca_damaged.jsonl": {"on_bad_row": "skip"},
    "realdata/messy/udhr_german_utf16le_bom.txt": {"encoding": "utf-16"},
    "realdata/messy/udhr_japanese_shift_jis.txt": {"encoding": "shift_jis"},
    "realdata/messy/udhr_russian_cp1251.txt": {"encoding": "cp1251"},
}
STOPPING = {
    "realdata/messy/alpaca_damaged.jsonl": ["rows_skipped"],  # 6 of 13
    "peer_data/identity.json": ["placeholders"],  # {{name}} and {{author}} wait to be replaced
    "realdata/messy/sharegpt_missing_turns.json": ["empty_answers"],
    "realdata/messy/udhr_french_mojibake.txt": ["damaged_text"],
}


# Of stages that compare answers: what is found on top, and the share in which the longer answer is chosen.
COMPARED: dict[str, tuple[str, dict[str, int], float | None]] = {
    "realdata/preference_gsm8k_solutions.jsonl": ("dpo", {}, 0.53),
    "realdata/preference_messages_gsm8k.jsonl": ("dpo", {}, 0.57),
    "realdata/kto_gsm8k_solutions.jsonl": ("kto", {"unbalanced_verdicts": 400}, None),
    "peer_data/dpo_en_demo.json": ("dpo", {"placeholders": 1, "answer_in_prompt": 1}, 0.44),
    "peer_data/kto_en_demo.json": ("kto", {"damaged_text": 2, "repeated_prompts": 3}, None),
    "quickstart/pairs.jsonl": ("dpo", {}, 0.0),
    "quickstart/verdicts.jsonl": ("kto", {}, None),
}


def report_on(name: str, stage: str = "sft") -> Report:
    path = SMALL.parent / Path(name).name if name.startswith("quickstart") else SHARED / name
    if not path.is_file():
        pytest.skip(f"{path} is not here: real data stays outside of the repository")
    form = {} if stage == "sft" else {"format": "kto" if stage == "kto" else "preference"}
    data = {"max_length": 8192, "chat_template": "qwen", "dataset_num_proc": 1} | OPTIONS.get(name, {}) | form
    profile = make_profile(SMALL, path, run={"stage": stage}, data=data)
    return make_report(load_data(profile, cache_folder(Path()), lambda detail: None, weights=False), profile)


@pytest.mark.parametrize("name", EXPECTED)
def test_what_is_found_in_a_file(name: str) -> None:
    report = report_on(name)
    found = {one.name: one.count for one in report.findings if one.name not in OF_LENGTH}
    assert (report.num_rows, found) == EXPECTED[name]
    if report.num_rows > 1 or name in STOPPING:
        stopping = [one.name for one in report.stopping if one.name not in OF_LENGTH]
        assert stopping == STOPPING.get(name, [])


@pytest.mark.slow
@pytest.mark.parametrize("name", COMPARED)
def test_what_is_found_in_answers_that_are_compared(name: str) -> None:
    stage, more, share = COMPARED[name]
    report = report_on(name, stage)
    found = {one.name: one.count for one in report.findings if one.name not in OF_LENGTH}
    assert found == EXPECTED.get(name, (0, {}))[1] | more and not report.stopping
    facts = report.answers
    assert facts is not None and facts.are_pairs == (share is not None)
    if share is not None:
        assert round(facts.num_longer / (facts.num_chosen - facts.num_same), 2) == share


def test_examples_show_where_and_what() -> None:
    damaged = {one.name: one for one in report_on("realdata/messy/alpaca_damaged.jsonl").findings}
    assert [one.where.number for one in damaged["rows_skipped"].examples] == [4, 7, 8, 10, 13, 14]
    assert [one.where.number for one in damaged["empty_answers"].examples] == [6]
    (copy,) = damaged["duplicate_rows"].examples
    assert copy.like == RowLocation(str(SHARED / "realdata/messy/alpaca_damaged.jsonl"), 2)
    found = _of(report_on("peer_data/identity.json"), "placeholders")
    assert "{{name}}" in found.examples[0].excerpt and found.examples[0].where.unit == "row"


def _of(report: Report, name: str) -> Finding:
    return next(one for one in report.findings if one.name == name)
