"""What the report says in words: of special tokens, of sources that lose their rows, of scripts, of mixtures."""

import json
from pathlib import Path
from typing import Any

import pytest
from msgspec import structs

from ftui.dataset.report import SourceFacts
from ftui.dataset.report_text import length_facts, padding_text, rows_text, source_facts, totals
from ftui.engine.data.facts.scripts import count_scripts, join_japanese
from ftui.engine.inspection.report import findings
from ftui.engine.training.prepare import prepare
from ftui.errors import DataError
from ftui.system.user_folders import cache_folder
from tests.engine.inspection.test_report import GOOD, chat, found_in, reported
from tests.support.tiny import TEXT, chats, completions, make_profile, write_rows

JAPANESE = "すべての人間は、生まれながらにして自由であり、かつ、尊厳と権利とについて平等である。"
CHINESE = "人人生而自由、在尊严和权利上一律平等。他们赋有理性和良心。"
WORDS = ("apple", "Dog", "under", "Zebra", "quick", "Moby")


def text_rows(tmp_path: Path, texts: list[str]) -> Path:
    return write_rows(tmp_path / "texts.jsonl", [{"text": text} for text in texts])


def pretraining(model: Path, rows: Path, **data: Any) -> Any:
    return reported(model, rows, run={"stage": "pretrain"}, data=data)[0]


def test_rows_that_begin_with_their_own_text_are_not_said_to_begin_alike(model_folder: Path, tmp_path: Path) -> None:
    different = pretraining(model_folder, text_rows(tmp_path, [f"{word} and a page of {TEXT[:40]}" for word in WORDS]))
    assert different.special[0].startswith("rows begin with their own text; ")
    alike = pretraining(model_folder, text_rows(tmp_path, ["page of memory", "page that ran away"]))
    assert alike.special[0].startswith("rows begin with 'p"), "as text in quotes, not as the tokenizer spells it"


def test_ends_are_told_of_rows_that_have_one(model_folder: Path, tmp_path: Path) -> None:
    rows = write_rows(tmp_path / "rows.jsonl", [chat("a", "b"), chat("why", " ".join(TEXT.split() * 9))])
    report, _ = reported(model_folder, rows)
    assert report.special[1] == "the last trained token of each row that is not cut is <|im_end|> (2)"
    short, _ = reported(model_folder, rows, data={"max_length": 12})
    assert short.special[0] == "no row is trained on, so that none begins or ends"
    long = write_rows(tmp_path / "long.jsonl", [chat("why", " ".join(TEXT.split() * 9))])
    cut, _ = reported(model_folder, long, data={"max_length": 40})
    assert cut.special[1] == "every row is cut, so that no end of one is trained on"


def test_a_text_that_is_split_has_one_beginning_and_one_end(model_folder: Path, tmp_path: Path) -> None:
    path = tmp_path / "book.txt"
    path.write_text(TEXT * 20)
    report = pretraining(model_folder, path, max_length=32, eval_fraction=0.1)
    assert report.special[0].startswith("rows begin with '") and "each row is <|im_end|>" in report.special[1]
    there = report.num_sequences + report.num_eval_parts
    parts = round(0.1 * there)
    assert there > 20 and report.num_eval_parts == parts
    assert dict(totals(report))["rows"] == f"1 to train on, {parts} of its {there} parts to evaluate on"
    whole = pretraining(model_folder, text_rows(tmp_path, [f"{n} {TEXT}" for n in range(20)]), eval_fraction=0.1)
    assert whole.num_eval_parts == 0 and dict(totals(whole))["rows"] == "18 to train on, 2 to evaluate on"


def test_rows_to_train_on_are_those_of_the_dry_run(model_folder: Path, tmp_path: Path) -> None:
    """Whether rows are set aside or others are named: rows, tokens and trained ones are those that a run learns."""
    rows, others = write_rows(tmp_path / "rows.jsonl", GOOD), write_rows(tmp_path / "others.jsonl", chats(65)[60:])
    for apart, train, evaluation in (({"eval_fraction": 0.1}, 54, 6), ({"eval": str(others)}, 60, 5)):
        report, _ = reported(model_folder, rows, data=apart)
        assert dict(totals(report))["rows"] == f"{train} to train on, {evaluation} to evaluate on"
        made = prepare(make_profile(model_folder, rows, data=apart), cache_folder(Path()), lambda detail: None)
        assert (report.num_train_rows, report.num_tokens) == (made.train.num_rows, made.train.num_tokens)
        assert report.num_target_tokens == made.train.num_target_tokens == made.epoch_target_tokens
        assert report.num_rows == 60 == sum(bar for _, bar in report.histogram), "lengths are those of all"


def test_answers_judged_bad_are_counted(model_folder: Path, tmp_path: Path) -> None:
    judged = [row | {"label": number % 3 == 0} for number, row in enumerate(completions(9))]
    report, _ = reported(model_folder, write_rows(tmp_path / "judged.jsonl", judged), data={"format": "kto"})
    assert dict(totals(report))["rows"] == rows_text(report) == "3 to train on, 6 judged bad and not trained on"


def test_a_source_that_loses_most_of_its_rows_is_named_with_the_cause(model_folder: Path, tmp_path: Path) -> None:
    long = [chat(TEXT * 20 + str(number), "so") for number in range(6)]
    tools = write_rows(tmp_path / "tools.jsonl", [*long, *chats(4)])
    many = write_rows(tmp_path / "many.jsonl", GOOD)
    report, _ = reported(model_folder, many, data={"train": [str(many), str(tools)]})
    found = found_in(report, "no_target_tokens")
    assert found is not None and (found.severity, found.count, found.total) == ("error", 6, 70)
    assert "(6 of 10 in tools.jsonl)" in found.message
    assert "fills data.max_length" in found.fix and "assistant" not in found.fix
    mute = write_rows(tmp_path / "mute.jsonl", [{"messages": [{"role": "user", "content": "a"}]}, *chats(4)])
    found = found_in(reported(model_folder, mute)[0], "no_target_tokens")
    assert found is not None and found.severity == "warning"
    assert "data.max_length" not in found.fix and "assistant" in found.fix
    only = write_rows(tmp_path / "both.jsonl", [{"messages": [{"role": "user", "content": "a"}]}, *long[:1], *chats(9)])
    found = found_in(reported(model_folder, only)[0], "no_target_tokens")
    assert found is not None and found.fix.startswith("1: Are there turns") and "1: What stands before" in found.fix


def test_every_row_that_cannot_be_read_is_named(model_folder: Path, tmp_path: Path) -> None:
    path = tmp_path / "rows.jsonl"
    path.write_text("".join(f"{json.dumps(row)}\n" for row in GOOD) + '{"messages": \n' * 25)
    with pytest.raises(DataError) as stopped:
        reported(model_folder, path)
    assert 'data.on_bad_row = "skip"' in stopped.value.hint
    found = found_in(reported(model_folder, path, data={"on_bad_row": "skip"})[0], "rows_skipped")
    assert found is not None and [one.where.number for one in found.examples] == list(range(61, 81))
    assert found.severity == "warning" and '"stop"' not in found.fix
    path.write_text("".join(f"{json.dumps(row)}\n" for row in GOOD[:40]) + '{"messages": \n' * 25)
    found = found_in(reported(model_folder, path, data={"on_bad_row": "skip"})[0], "rows_skipped")
    assert found is not None and found.severity == "error", "25 of 65"
    assert "(the first 20: the JSON ends in the middle)" in found.message and not any(
        one.excerpt for one in found.examples
    )


def test_a_reason_of_all_rows_that_are_left_out_is_told_once_with_its_fix(model_folder: Path, tmp_path: Path) -> None:
    """Of several reasons each stands beside its place; cut to the line, they need to stand in full once."""
    tools = [chat("a", "b") | {"tools": [{"type": "function", "function": {"name": "f"}}]}] * 3
    rows = write_rows(tmp_path / "rows.jsonl", [*GOOD, *tools])
    found = found_in(reported(model_folder, rows, data={"on_bad_row": "skip"})[0], "rows_skipped")
    assert found is not None and "(it has tools, and the chat template has no place for them)" in found.message
    assert "data.chat_template" in found.fix and [one.excerpt for one in found.examples] == [""] * 3
    rows.write_text(rows.read_text() + '{"messages": \n')
    found = found_in(reported(model_folder, rows, data={"on_bad_row": "skip"})[0], "rows_skipped")
    assert found is not None and "(3: it has tools" in found.message and "; 1: the JSON ends" in found.message
    assert found.fix.startswith("Mend them") and all(one.excerpt for one in found.examples)


def test_excerpts_tell_rows_apart_that_begin_alike(model_folder: Path, tmp_path: Path) -> None:
    """What many rows begin with, or what the template adds, is no sign of any of them."""
    rules = {"role": "system", "content": " ".join(TEXT.split() * 5)}
    rows: list[Any] = [{"messages": [rules, *chat(f"why {n}", "so")["messages"]]} for n in range(3)]
    rows.append({"messages": [rules, *chat("first", "page")["messages"], *chat("fault?", "")["messages"]]})
    rows += [rows[1], {"messages": [rules, {"role": "user", "content": "unheard"}]}]
    report, _ = reported(model_folder, write_rows(tmp_path / "rows.jsonl", rows), data={"max_length": 512})
    told = {one.name: [example.excerpt for example in one.examples] for one in report.findings}
    assert told["empty_answers"] == ["fault?"] and told["duplicate_rows"] == ["why 1"]
    assert told["no_target_tokens"] == ["unheard"]
    copies = found_in(pretraining(model_folder, text_rows(tmp_path, ["page of memory"] * 2)), "duplicate_rows")
    assert copies is not None and [one.excerpt for one in copies.examples] == ["page of memory"]


def test_kana_among_han_is_one_language(model_folder: Path, tmp_path: Path) -> None:
    assert join_japanese(count_scripts([JAPANESE])) == {"Japanese": sum(map(str.isalpha, JAPANESE))}
    both = join_japanese(count_scripts([CHINESE * 20, "の"]))
    assert list(both) == ["Han", "Kana"], "Chinese with a single sign stays what it is"
    rows = write_rows(tmp_path / "rows.jsonl", [chat(JAPANESE, f"{n}{JAPANESE}") for n in range(8)])
    report, _ = reported(model_folder, rows)
    assert found_in(report, "mixed_scripts") is None and report.scripts == [("Japanese", 1.0)]


def test_what_a_weight_and_a_temperature_do_is_told(model_folder: Path, tmp_path: Path) -> None:
    few, many = write_rows(tmp_path / "few.jsonl", GOOD[:10]), write_rows(tmp_path / "many.jsonl", GOOD[10:50])

    def shares(*train: Any, **data: Any) -> list[float | None]:
        report, _ = reported(model_folder, few, data={"train": train, **data})
        return [source.share for source in report.sources]

    assert shares(str(few), str(many)) == [None, None]
    assert shares({"path": str(few), "weight": 4}, str(many)) == [0.5, 0.5]
    assert shares(str(few), str(many), mixing_temperature=2) == pytest.approx([1 / 3, 2 / 3], abs=0.02)
    told = source_facts(SourceFacts("few", "text", 1.0, 1, 0, 6813, 6813, weight=4, share=0.5))
    assert told == "text, 1 row, 6,813 tokens, weight 4, 50% of an epoch"


def test_what_says_nothing_new_is_not_said(model_folder: Path, tmp_path: Path) -> None:
    one, _ = reported(model_folder, write_rows(tmp_path / "one.jsonl", GOOD[:1]))
    (fact,) = length_facts(one)
    assert fact == ("all", f"{one.lengths[0][1]:.0f}")
    assert one.padding is not None and "packing" not in padding_text(one)
    padded = structs.replace(one, padding=structs.replace(one.padding, with_packing=0.005))
    assert padding_text(padded).endswith("of the places in a micro-batch; with packing 0.5%"), "the other stands first"


def test_one_of_many_is_told_in_the_singular() -> None:
    one = findings.make_finding("repeated_prompts", 1, 500)
    assert one.message == "1 of 500 rows asks what an earlier row asks and answers something else"
    assert findings.make_finding("truncated", 1, 9).message == "1 of 9 rows is longer than data.max_length and is cut"
