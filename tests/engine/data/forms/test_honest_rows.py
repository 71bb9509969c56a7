"""Rows that are as they should be stop no run, however odd they look; and those like them that are bad still do."""

import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from ftui.dataset.report import Finding, Report
from ftui.engine.data.load_rows import load_data
from ftui.engine.inspection.report import make_report
from ftui.system.user_folders import cache_folder
from tests.support.tiny import TEXT, Rows, chats, make_profile, make_tokenizer, write_rows

WORDS = [f"{word}{end}" for word in TEXT.split() for end in ("", "s", "ing", "er")]


def reported(model: Path, rows: Path, /, **sections: dict[str, Any]) -> Report:
    profile = make_profile(model, rows, **sections)
    return make_report(load_data(profile, cache_folder(Path()), lambda detail: None, weights=False), profile)


def found_in(report: Report, name: str) -> Finding | None:
    return next((one for one in report.findings if one.name == name), None)


def chat(question: str, answer: str, system: str = "") -> dict[str, Any]:
    given = [{"role": "system", "content": system}] if system else []
    return {"messages": [*given, {"role": "user", "content": question}, {"role": "assistant", "content": answer}]}


def some(number: int, chance: random.Random) -> str:
    return " ".join(chance.choice(WORDS) for _ in range(number))


def passages(chance: random.Random) -> Rows:
    """Few passages, many questions on each, yes or no."""
    texts = [some(150, chance) for _ in range(4)]
    return [chat(f"{texts[n % 4]} is {some(9, chance)}?", chance.choice(["yes", "no"])) for n in range(40)]


def few_shot(chance: random.Random) -> Rows:
    """One long beginning for all, then a word to sort."""
    shots = some(220, chance)
    return [chat(f"{shots} Word: {word}x{n}", chance.choice(["noun", "verb"])) for n, word in enumerate(WORDS[:40])]


def refusals(chance: random.Random) -> Rows:
    """Different questions about one text, all of which it does not answer, in the same words."""
    text, words = some(150, chance), "the page does not say it, so I cannot tell you more than that it ran away badly"
    return [chat(f"{text} why {some(9, chance)}?", words) for _ in range(40)]


def long_documents(chance: random.Random) -> Rows:
    """Answers stand behind more tokens than it would be cheap to compare."""
    texts = [some(2500, chance) for _ in range(2)]
    return [chat(f"{texts[n % 2]} {some(12, chance)}?", some(12, chance)) for n in range(8)]


def texts_in_system(chance: random.Random) -> Rows:
    """One question for all, about what the system says."""
    return [chat("Is it spam?", chance.choice(["yes", "no"]), some(40, chance)) for _ in range(40)]


def with_a_licence(chance: random.Random) -> Rows:
    licence = some(4500, chance)
    return [{"text": f"{licence} {some(2500, chance)}"} for _ in range(4)]


@pytest.mark.parametrize(
    ("kind", "loss_on"),
    [
        (passages, "assistant"), (few_shot, "assistant"), (refusals, "assistant"), (long_documents, "assistant"),
        (texts_in_system, "assistant"), (with_a_licence, "assistant"), (passages, "everything"),
        (few_shot, "everything"),
    ],
)  # fmt: skip
def test_rows_that_share_what_they_are_about_are_not_the_same(
    kind: Callable[[random.Random], Rows], loss_on: str, model_folder: Path, tmp_path: Path
) -> None:
    rows = kind(random.Random(3))
    part = len(rows) // 4
    train, apart = write_rows(tmp_path / "train.jsonl", rows[part:]), write_rows(tmp_path / "eval.jsonl", rows[:part])
    options: dict[str, Any] = {"max_length": 100_000, "loss_on": loss_on, "eval": str(apart)}
    report = reported(model_folder, train, data=options)
    assert found_in(report, "leaked_rows") is None and found_in(report, "similar_rows") is None
    leaks = write_rows(tmp_path / "leaks.jsonl", [*rows[:part], rows[part]])
    found = found_in(reported(model_folder, train, data=options | {"eval": str(leaks)}), "leaked_rows")
    assert found is not None and found.count == 1


def test_rows_that_ask_and_say_the_same_are_leaks_in_any_dress(model_folder: Path, tmp_path: Path) -> None:
    """Of another form, with another system turn, with marks beside the turns, in other letters and spaces."""
    chance = random.Random(4)
    asked = [(f"What is {some(3, chance)}?", some(2, chance)) for _ in range(40)]
    train = write_rows(tmp_path / "train.jsonl", [{"instruction": q, "output": a} for q, a in asked])
    others: list[Rows] = [
        [{"prompt": q, "completion": f" {a}"} for q, a in asked],
        [chat(q, a, f"{some(60, chance)}") for q, a in asked],
        [chat(q.upper(), f"{a} \n") for q, a in asked],
        [{"conversations": [{"from": "human", "value": q}, {"from": "gpt", "value": a}]} for q, a in asked],
    ]
    for number, rows in enumerate(others):
        apart = write_rows(tmp_path / f"{number}.jsonl", rows)
        found = found_in(reported(model_folder, train, data={"eval": str(apart)}), "leaked_rows")
        assert found is not None and (found.severity, found.count) == ("error", 40)


def test_what_stands_beside_the_turns_does_not_hide_a_copy(model_folder: Path, tmp_path: Path) -> None:
    rows = [chat("why", "it ran away")] * 3
    marked = [
        {"messages": [turn | {"id": f"{n}{m}", "time": n} for m, turn in enumerate(row["messages"])]}
        for n, row in enumerate(rows)
    ]
    found = found_in(reported(model_folder, write_rows(tmp_path / "rows.jsonl", marked)), "duplicate_rows")
    assert found is not None and found.count == 2
    marked[0]["messages"][1]["content"] = "it forks"
    found = found_in(reported(model_folder, write_rows(tmp_path / "rows.jsonl", marked)), "duplicate_rows")
    assert found is not None and found.count == 1


def test_a_pair_is_what_is_trained_on_of_it(model_folder: Path, tmp_path: Path) -> None:
    """The better answer: copies of it are copies, and what is wrong with the other one is not trained on."""
    pairs = [{"prompt": "why", "chosen": "it ran away", "rejected": f"{{{{name}}}} {n}"} for n in range(4)]
    path = write_rows(tmp_path / "rows.jsonl", pairs)
    report = reported(model_folder, path, data={"format": "preference"})
    found = found_in(report, "duplicate_rows")
    assert found is not None and found.count == 3 and found_in(report, "placeholders") is None


def test_answers_judged_bad_are_not_looked_at(model_folder: Path, tmp_path: Path) -> None:
    def judged(answers: list[str], *, good: bool) -> Rows:
        return [{"prompt": f"why {n // 2}", "completion": answer, "label": good} for n, answer in enumerate(answers)]

    bad = ["TODO", "TODO", "", "caf\u00c3\u00a9", "As an AI language model, no.", "no", "no"] * 3
    good = [{"prompt": f"how {n}", "completion": f"so {n}", "label": True} for n in range(9)]
    path = write_rows(tmp_path / "rows.jsonl", [*judged(bad, good=False), *good])
    report = reported(model_folder, path, data={"format": "kto"})
    assert not report.stopping
    assert {one.name for one in report.findings} <= {"few_rows", "much_padding"}
    report = reported(model_folder, write_rows(tmp_path / "good.jsonl", judged(bad, good=True)), data={"format": "kto"})
    names = {one.name for one in report.findings}
    assert {"placeholders", "empty_answers", "damaged_text", "boilerplate", "duplicate_rows"} <= names


NOT_FILLED = ["{{name}}", "TODO", "I am {{name}}, an AI assistant made by {{author}}.", "[Insert answer here]"]
MEANT = [
    "null",
    "Use <p>{{ message }}</p> in the page.",
    "Hi {{first_name}},\nI am {{sender}} and write to you about {{topic}}.",
    "My name is {{sender_name}} and I ran away.",
]


@pytest.mark.parametrize("answer", NOT_FILLED + MEANT)
def test_templates_are_meant_and_answers_that_are_missing_are_not(
    answer: str, model_folder: Path, tmp_path: Path
) -> None:
    rows = [chat(f"what is {n}", answer) for n in range(20)]
    report = reported(model_folder, write_rows(tmp_path / "rows.jsonl", rows))
    found = found_in(report, "placeholders")
    assert found is not None and found.count == 20
    assert found.severity == ("error" if answer in NOT_FILLED else "warning")
    known = [chat(f"{n}: say {answer} and nothing else", answer) for n in range(20)]
    assert not reported(model_folder, write_rows(tmp_path / "known.jsonl", known)).stopping, "it is asked for"


def test_wiki_text_has_braces(model_folder: Path, tmp_path: Path) -> None:
    rows = [{"text": text} for n in range(9) for text in (f"The page {n}.\n{{{{reflist}}}}", "{{stub}}", "I am {{AI}}")]
    report = reported(model_folder, write_rows(tmp_path / "rows.jsonl", rows), run={"stage": "pretrain"})
    found = found_in(report, "placeholders")
    assert found is not None and found.severity == "warning" and not report.stopping


def test_pieces_of_a_text_end_anywhere(model_folder: Path, tmp_path: Path) -> None:
    """Where they are answers (stage sft), they do not."""
    path = write_rows(tmp_path / "rows.jsonl", [{"input_ids": [9, 10 + n, 11, 12]} for n in range(9)])
    assert found_in(reported(model_folder, path, run={"stage": "pretrain"}), "no_eos") is None
    assert [one.name for one in reported(model_folder, path).stopping] == ["no_eos"]


def test_patterns_of_letters_are_no_damage(model_folder: Path, tmp_path: Path) -> None:
    rows = [chat(f"match {n}", "[a-zA-Z\u00e4\u00f6\u00fc\u00c4\u00d6\u00dc\u00df]+") for n in range(9)]
    assert found_in(reported(model_folder, write_rows(tmp_path / "rows.jsonl", rows)), "damaged_text") is None


def test_rows_set_aside_never_stop_the_run_that_set_them_aside(model_folder: Path, tmp_path: Path) -> None:
    path = write_rows(tmp_path / "rows.jsonl", [chat("why", "it ran")] * 60)
    report = reported(model_folder, path, data={"eval_fraction": 0.1})
    found = found_in(report, "leaked_rows")
    assert found is not None and (found.severity, found.count) == ("warning", 6) and not report.stopping
    report = reported(model_folder, path, data={"eval": str(path)})
    assert [one.name for one in report.stopping] == ["leaked_rows"]


def test_padding_is_told_in_percent(model_folder: Path, tmp_path: Path) -> None:
    path = write_rows(tmp_path / "rows.jsonl", chats(60))
    report = reported(model_folder, path, data={"padding_free": False}, train={"per_device_train_batch_size": 4})
    found = found_in(report, "much_padding")
    assert found is not None and report.padding is not None
    assert found.message.startswith(
        f"{report.padding.as_set:.0%} of places in the micro-batches of an epoch hold padding"
    )


def test_the_tokenizer_makes_long_rows_of_these() -> None:
    """Else the answers of long documents would be looked at however few tokens are."""
    assert len(make_tokenizer()(long_documents(random.Random(3))[0]["messages"][0]["content"]).input_ids) > 4096
