"""The report on the rows: each finding is made by rows that have the fault, and not by rows that nearly do."""

import random
import textwrap
import tomllib
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from msgspec import structs
from tokenizers import Tokenizer, models, pre_tokenizers
from transformers import PreTrainedTokenizerFast

from ftui.cli.preview import report_lines
from ftui.dataset.report import Finding, Report
from ftui.dataset.report_text import describe_fix, percent
from ftui.engine.data.load_rows import LoadedData, load_data
from ftui.engine.inspection.report import findings, make_report
from ftui.engine.inspection.report.lengths import cut_losses, histogram
from ftui.engine.inspection.report.row_index import RowIndex
from ftui.engine.planning.plan import Plan
from ftui.engine.system.sealed_files import read_sealed, write_sealed
from ftui.engine.training.prepare import prepare
from ftui.errors import DataError
from ftui.profile.sections.data import TEMPLATE_MARKS
from ftui.system.user_folders import cache_folder
from tests.support.tiny import PLAIN, TEXT, Rows, chats, completions, make_profile, make_tokenizer, write_rows

WORDS = TEXT.split()
GOOD = chats(60)


def chat(question: str, answer: str) -> dict[str, Any]:
    return {"messages": [{"role": "user", "content": question}, {"role": "assistant", "content": answer}]}


def reported(model: Path, rows: Path, /, **sections: dict[str, Any]) -> tuple[Report, LoadedData]:
    profile = make_profile(model, rows, **sections)
    its = load_data(profile, cache_folder(Path()), lambda detail: None, weights=False)
    return make_report(its, profile), its


def found_in(report: Report, name: str) -> Finding | None:
    return next((one for one in report.findings if one.name == name), None)


def long_chat(number: int, changed: int = 0) -> dict[str, Any]:
    """A conversation of fifty words; of the forty of its answer, some changed."""
    chance = random.Random(number)
    words = [chance.choice(WORDS) for _ in range(40)]
    asked = " ".join(words[:10])
    for place in range(changed):
        words[10 + place] = f"{number}x{place}"
    return chat(f"why does {asked}", " ".join(words))


ASKS = {"role": "user", "content": "a"}
SAYS = {"role": "assistant", "content": "b"}
RULES = {"role": "system", "content": "c"}

# name: (how bad it is, rows that have the fault, rows that nearly do); beside sixty rows without any.
FAULTS: dict[str, tuple[str, Rows, Rows]] = {
    "empty_answers": ("warning", [chat("a", " \n")], [chat("a", "0"), chat("", "b")]),
    "placeholders": (
        "warning",
        [chat("who are you", "I am {{name}}"), chat("a", "TODO"), chat("a", "[Insert name here]")],
        [chat("a", "${{ github.ref }}"), chat("a", "```\n{{ x }}\n```"), chat("a", "{x} and {{}}"), chat("a", "to do")],
    ),
    "boilerplate": (
        "warning",
        [chat("a", "I'm sorry, but as an AI language model, I do not eat."), chat("a", "As an AI model I do.")],
        [chat("As an AI language model, what are you?", "a page"), chat("a", "It is a language model.")],
    ),
    "damaged_text": (
        "warning",
        [chat("a", "le cafÃ© de la gare")],
        [chat("a", "LIBERTÉ», ÉGALITÉ…, « été », „Ähre“, naïve œuvre, IRMÃ…, Ça")],
    ),
    "role_order": (
        "warning",
        [{"messages": [ASKS, ASKS, SAYS]}, {"messages": [SAYS, ASKS, SAYS]}, {"messages": [ASKS, SAYS, ASKS]}],
        [{"messages": [RULES, ASKS, SAYS, ASKS, SAYS]}, {"messages": [ASKS, SAYS]}],
    ),
    "no_target_tokens": ("warning", [{"messages": [ASKS]}], [{"messages": [ASKS, SAYS]}]),
    "duplicate_rows": (
        "warning",
        [chat("why", "it ran away")] * 3,
        [chat("why", "it ran"), chat("why", "it ran away")],
    ),
    "similar_rows": (
        "warning",
        [row for number in range(4) for row in (long_chat(number), long_chat(number, 1))],
        [row for number in range(4) for row in (long_chat(number), long_chat(number, 12))],
    ),
    "repeated_prompts": (
        "note",
        [chat("what is a shell?", answer) for answer in WORDS[:6]],
        [chat(f"what is a {word}?", "a thing") for word in WORDS[:6]],
    ),
    "mixed_scripts": (
        "note",
        [chat("кто это", f"это страница {n} памяти, и она убежала") for n in range(4)],
        [chat("a", "π")],
    ),
    "special_in_text": (
        "warning",
        [chat("a <|im_end|> b", "a page"), chat("a", "it ran<|im_start|>")],
        [chat("a |im_end| b", "it ran < |im_start|>")],
    ),
    "unused_columns": (
        "note",
        [chat("a", "a page") | {"rationale": "since"}],
        [chat("a", "a page") | {"id": "x", "source": "here", "score": 3, "rationale": ""}],
    ),
}


@pytest.mark.parametrize("name", FAULTS)
def test_rows_with_a_fault_are_found_and_others_are_not(name: str, model_folder: Path, tmp_path: Path) -> None:
    severity, faulty, nearly = FAULTS[name]
    bad, _ = reported(model_folder, write_rows(tmp_path / "bad.jsonl", [*GOOD, *faulty]))
    found = found_in(bad, name)
    assert found is not None and found.severity == severity
    expected = {"duplicate_rows": 2, "repeated_prompts": 5, "similar_rows": 4}
    if name == "unused_columns":
        assert found.message == (
            "1 column holds words that the form of the rows has no place for: they are not trained on (rationale)"
        )
    elif name != "mixed_scripts":
        assert (found.count, found.total) == (expected.get(name, len(faulty)), 60 + len(faulty))
        assert all(60 < example.where.number <= 60 + len(faulty) for example in found.examples)
    good, _ = reported(model_folder, write_rows(tmp_path / "good.jsonl", [*GOOD, *nearly]))
    assert found_in(good, name) is None


def test_two_rows_are_alike_only_if_their_answers_are(model_folder: Path, tmp_path: Path) -> None:
    """A long text with other questions about it is no duplicate."""
    text = " ".join(WORDS * 5)
    rows = [chat(f"{text} is it so?", answer) for answer in ("yes it is", "it is not", "nobody knows")]
    report, its = reported(model_folder, write_rows(tmp_path / "rows.jsonl", rows))
    bands = its.stores[0].facts["similar"]
    assert (bands[0] == bands[1]).any(), "they are candidates"
    assert found_in(report, "similar_rows") is None


def test_what_makes_many_rows_bad_makes_a_run_stop(model_folder: Path, tmp_path: Path) -> None:
    rows = write_rows(tmp_path / "rows.jsonl", [*GOOD[:6], chat("a", ""), chat("b", ""), *[chat("c", "{{x}}")] * 9])
    with pytest.raises(DataError) as caught:
        prepare(make_profile(model_folder, rows), cache_folder(Path()), lambda detail: None)
    assert caught.value.exit_code == 31
    assert "9 of 17 rows hold a placeholder" in caught.value.message and f"first {rows}:9: " in caught.value.message
    assert "Replace it by what it stands for" in caught.value.message
    assert 'write allow = ["placeholders"] below [data]' in caught.value.hint
    profile = make_profile(model_folder, rows, data={"allow": ["placeholders"]})
    warned = prepare(profile, cache_folder(Path()), lambda detail: None).warnings
    assert warned[0].startswith("9 of 17 rows hold a placeholder")
    assert any(
        line == "2 of 17 rows have an empty answer: the model would learn to say nothing, first rows.jsonl:7"
        for line in warned
    )


def test_warnings_are_few(model_folder: Path, tmp_path: Path) -> None:
    every = [Finding(f"f{n}", "warning", 1, 9, f"{n}") for n in range(11)] + [Finding("note", "note", 1, 9, "note")]
    report, _ = reported(model_folder, write_rows(tmp_path / "rows.jsonl", GOOD))
    told = findings.warnings(structs.replace(report, findings=every))
    assert told == [*map(str, range(8)), "and 3 more: ftui preview"]


def test_rows_that_are_skipped_are_told(model_folder: Path, tmp_path: Path) -> None:
    rows = write_rows(tmp_path / "rows.jsonl", GOOD)
    rows.write_bytes(b'{"messages": [}\n' + rows.read_bytes())
    report, _ = reported(model_folder, rows, data={"on_bad_row": "skip"})
    found = found_in(report, "rows_skipped")
    assert found is not None and (found.count, found.total, found.severity) == (1, 61, "warning")
    assert str(found.examples[0].where) == f"{rows}:1" and found.examples[0].excerpt


def test_what_is_cut_and_what_other_lengths_would_lose(model_folder: Path, tmp_path: Path) -> None:
    """Counted anew from the whole sequences; a cut that only hits a question loses no answer."""
    last_asked = chat("a", "b")
    last_asked["messages"].append({"role": "user", "content": "the page " * 40})
    rows = write_rows(tmp_path / "rows.jsonl", [*GOOD, last_asked])
    report, its = reported(model_folder, rows, data={"max_length": 64})
    store = its.stores[0]
    whole = [store[number] for number in range(len(store.lengths))]
    too_long = [row for row in whole if len(row.input_ids) > 64]
    truncated, cut_off = found_in(report, "truncated"), found_in(report, "answers_cut_off")
    assert truncated is not None and truncated.count == len(too_long)
    assert cut_off is not None and cut_off.count == sum(row.targets[64:].any() for row in too_long) == len(too_long) - 1
    for limit in (8, 64, 100, 10_000):
        (told,) = cut_losses([store], [limit])
        lost = [row.targets[limit:] for row in whole if len(row.input_ids) > limit]
        assert told.num_cut == len(lost)
        assert told.num_lost_tokens == sum(len(part) for part in lost)
        assert told.num_lost_target_tokens == sum(int(part.sum()) for part in lost)
    assert [other.max_length for other in report.other_lengths] == [64, 256], "the model sees no more"
    longest, _ = reported(model_folder, rows, data={"max_length": max(len(row.input_ids) for row in whole)})
    assert found_in(longest, "truncated") is None and found_in(longest, "answers_cut_off") is None


def test_a_run_warns_once_of_rows_that_are_cut(model_folder: Path, tmp_path: Path) -> None:
    """Unless there are others than those that are cut in an answer."""
    long, asks = chat("why", "page " * 90), chat("why", "so")
    asks["messages"].append({"role": "user", "content": "the page " * 200})
    for rows, told in (([*GOOD[:9], long], 1), ([*GOOD[:9], long, asks], 2)):
        report, _ = reported(model_folder, write_rows(tmp_path / "rows.jsonl", rows), data={"max_length": 256})
        assert found_in(report, "truncated") is not None and found_in(report, "answers_cut_off") is not None
        assert sum(" cut" in line for line in findings.warnings(report)) == told


def test_most_answers_cut_off_stop_a_run(model_folder: Path, tmp_path: Path) -> None:
    report, _ = reported(model_folder, write_rows(tmp_path / "rows.jsonl", GOOD), data={"max_length": 24})
    assert [one.name for one in report.stopping] == ["no_target_tokens", "answers_cut_off"]
    assert report.lengths[-1][1] > 256
    assert report.stopping[0].fix.endswith(" data.max_length = 256 is all that the model sees.")
    report, _ = reported(model_folder, write_rows(tmp_path / "short.jsonl", GOOD[:8]), data={"max_length": 24})
    longest = int(report.lengths[-1][1])
    assert longest < 256
    assert report.stopping[0].fix.endswith(f" data.max_length = {longest} holds all of them.")
    documents = write_rows(tmp_path / "text.jsonl", [{"text": text["prompt"]} for text in completions(9)])
    report, _ = reported(model_folder, documents, data={"max_length": 24})
    assert found_in(report, "truncated") is not None and not report.stopping, "plain text has no answers"


def test_rows_longer_than_the_model_sees(model_folder: Path, tmp_path: Path) -> None:
    """Its 256 positions; one row is just as long, one is longer by a token."""
    rows = write_rows(tmp_path / "rows.jsonl", [chat("a", "x" * n) for n in (200, 239, 240)])
    report, its = reported(model_folder, rows)
    longer = int((its.stores[0].lengths > 256).sum())
    found = found_in(report, "too_long_for_model")
    assert 256 in its.stores[0].lengths and longer
    assert found is not None and found.count == longer


def test_rows_to_evaluate_on_that_are_trained_on(model_folder: Path, tmp_path: Path) -> None:
    train = write_rows(tmp_path / "train.jsonl", [*GOOD, *(long_chat(n) for n in range(2))])
    apart = chats(90)[60:]
    fresh = [row for row in apart if row not in GOOD]
    leaks = write_rows(tmp_path / "leaks.jsonl", [*fresh, GOOD[3], long_chat(0, 1)])
    clean = write_rows(
        tmp_path / "clean.jsonl", [*fresh, chat(GOOD[3]["messages"][0]["content"], "no"), long_chat(1, 12)]
    )
    report, _ = reported(model_folder, train, data={"eval": str(leaks)})
    found = found_in(report, "leaked_rows")
    assert found is not None and (found.count, found.total, found.severity) == (2, len(fresh) + 2, "warning")
    assert [str(example.where) for example in found.examples] == [f"{leaks}:{len(fresh) + n}" for n in (1, 2)]
    assert str(found.examples[0].like) == f"{train}:4"
    report, _ = reported(model_folder, train, data={"eval": str(clean)})
    assert found_in(report, "leaked_rows") is None
    report, _ = reported(model_folder, train, data={"eval": str(train)})
    assert [one.name for one in report.stopping] == ["leaked_rows"]


def test_rows_set_aside_are_not_trained_on_whatever_repeats(model_folder: Path, tmp_path: Path) -> None:
    """Copies go to one side with the row they are copies of; only more copies than there is room for are parted."""
    rows = [row for number, row in enumerate(GOOD) for _ in range(1 + number % 3)]
    path = write_rows(tmp_path / "rows.jsonl", rows)
    report, its = reported(model_folder, path, data={"eval_fraction": 0.3})
    assert its.evaluation is not None
    content = its.stores[0].facts["content"]
    assert its.evaluation.num_rows == round(0.3 * len(rows))
    assert not np.isin(content[its.evaluation.indices], content[its.train.indices]).any()
    assert found_in(report, "leaked_rows") is None
    report, its = reported(model_folder, write_rows(path, [GOOD[0]] * 40), data={"eval_num_rows": 3})
    found = found_in(report, "leaked_rows")
    assert found is not None and (found.count, found.total) == (3, 3)


def test_lines_above_the_header_of_a_csv_file_are_told(model_folder: Path, tmp_path: Path) -> None:
    rows = "".join(f"Say {number} now;Number {number}.\n" for number in range(5))
    for name, above in (("a", "# exported\n\n"), ("b", "# exported\n\n"), ("c", ""), ("d", "Report\n")):
        (tmp_path / f"{name}.csv").write_text(f"{above}instruction;output\n{rows}")
    report, _ = reported(model_folder, tmp_path)
    found = [one for one in report.findings if one.name == "lines_passed_over"]
    assert [one.severity for one in found] == ["note", "note"]
    first, second = (one.message for one in found)
    assert "a.csv" in first and "b.csv" in first and "c.csv" not in first + second
    assert first.endswith("lines 1 to 2 are passed over; the header was found in line 3: instruction, output")
    assert "d.csv: line 1 is passed over; the header was found in line 2" in second
    text = " ".join(" ".join(report_lines("rows", report)).split())  # wherever the lines of a long path are broken
    assert "line 3: instruction, output" in text


@pytest.mark.parametrize(("method", "enough"), [("full", 1000), ("lora", 50)])
def test_few_rows_for_the_method(method: str, enough: int, model_folder: Path, tmp_path: Path) -> None:
    for number in (enough - 1, enough):
        path = write_rows(tmp_path / f"{number}.jsonl", [chat(f"what is {n}", "a page") for n in range(number)])
        found = found_in(reported(model_folder, path, adapter={"method": method})[0], "few_rows")
        assert (found is not None) == (number < enough)
        assert found is None or found.severity == "warning", "it never stops a run"
        assert found is None or ("adapter" in found.fix) == (method == "full"), "advice that is not taken already"


@pytest.mark.parametrize(
    ("data", "answer", "number", "detail"),
    [
        ({"eval_fraction": 0.01}, "a page", 1, "one says nothing about others"),
        ({"eval_fraction": 0.1}, "a page", 10, "under 0.63 of the spread"),
        ({"eval_num_rows": 29}, "a page of many words " * 8, 29, "under 0.37 of the spread"),
        ({"eval_num_rows": 30}, "a page of many words " * 8, None, ""),
        ({"eval_num_rows": 30}, "a", 30, "target tokens"),
        ({}, "a page", None, ""),
    ],
)
def test_too_few_rows_to_evaluate_on(
    data: dict[str, Any], answer: str, number: int | None, detail: str, model_folder: Path, tmp_path: Path
) -> None:
    rows = write_rows(tmp_path / "rows.jsonl", [chat(f"what is {n}", f"{answer} {n}") for n in range(100)])
    found = found_in(reported(model_folder, rows, data=data)[0], "few_eval")
    assert (None if found is None else found.count) == number
    assert found is None or (found.severity == "warning" and detail in found.message)


@pytest.mark.parametrize(("number", "is_few"), [(29, True), (30, False)])
def test_too_few_prompts_to_reward(number: int, is_few: bool, model_folder: Path, tmp_path: Path) -> None:
    """Their answers are sampled: the rows have no target tokens."""
    rows = write_rows(tmp_path / "rows.jsonl", [{"prompt": f"what is {n}", "answer": "1"} for n in range(100)])
    report, _ = reported(
        model_folder, rows, run={"stage": "grpo"}, data={"eval_num_rows": number},
        rewards={"reward_funcs": ["exact_answer"]}, grpo={"num_generations": 2, "max_completion_length": 8},
        train={"effective_batch": 2},
    )  # fmt: skip
    found = found_in(report, "few_eval")
    assert (found is not None) == is_few and (found is None or "spread of their rewards" in found.message)


def test_more_rows_to_evaluate_on_than_to_learn_from(model_folder: Path, tmp_path: Path) -> None:
    rows = write_rows(tmp_path / "rows.jsonl", GOOD)
    for number, is_much in ((30, False), (31, True)):
        report, _ = reported(model_folder, rows, data={"eval_num_rows": number})
        assert (found_in(report, "much_eval") is not None) == is_much


def test_padding_is_that_of_the_runs_own_batches(model_folder: Path, tmp_path: Path) -> None:
    """Counted again on the batches of the plan."""
    rows = write_rows(tmp_path / "rows.jsonl", [*GOOD, *(chat("a", "b" * 200) for _ in range(3))])
    train = {"per_device_train_batch_size": 3, "gradient_accumulation_steps": 2}
    for strategy, data in (
        ("random", {}),
        ("group_by_length", {}),
        ("sequential", {}),
        ("random", {"eval_num_rows": 20}),
    ):
        sections: dict[str, dict[str, Any]] = {"train": train | {"train_sampling_strategy": strategy}}
        told = []
        for packing in (False, True):
            profile = make_profile(model_folder, rows, data={"packing": packing} | data, **sections)
            made = prepare(profile, cache_folder(Path()), lambda detail: None)
            lengths, places = made.train.sequences.lengths[made.train.indices], 0
            for step in range(1, made.plan.max_steps + 1):
                sizes = [int(lengths[list(row)].sum()) for row in made.plan.step(step)]
                places += sum(len(sizes[n : n + 3]) * max(sizes[n : n + 3]) for n in range(0, len(sizes), 3))
            told.append(1 - int(lengths.sum()) / places)
        joined, _ = reported(model_folder, rows, data=data, **sections)
        assert joined.padding is not None and joined.padding.as_set == 0 and found_in(joined, "much_padding") is None
        report, _ = reported(model_folder, rows, data=data | {"padding_free": False}, **sections)
        assert report.padding is not None
        assert (report.padding.without_packing, report.padding.with_packing) == pytest.approx(told)
        assert report.padding.as_set == report.padding.without_packing
        found = found_in(report, "much_padding")
        assert (found is not None) == (told[0] >= 0.1) and (found is None or found.severity == "note" or told[0] > 0.29)
        assert found is None or f"({percent(told[0])} without packing, {percent(told[1])} with it)" in found.message


def test_a_sources_share_of_an_epoch_is_that_of_the_run(model_folder: Path, tmp_path: Path) -> None:
    """Of answers judged bad none is trained on, nor of rows set aside: num_samples counts the others."""
    judged = [row | {"label": number % 5 == 0} for number, row in enumerate(completions(60))]
    one = {"path": str(write_rows(tmp_path / "judged.jsonl", judged)), "format": "kto"}
    other = str(write_rows(tmp_path / "rows.jsonl", GOOD))
    for wanted, num_apart in ((1, None), (6, None), (24, None), (5, 30)):
        data = {"train": [one | {"num_samples": wanted}, other], "eval_num_rows": num_apart}
        made = prepare(make_profile(model_folder, tmp_path, data=data), cache_folder(Path()), lambda detail: None)
        assert isinstance(made.plan, Plan)
        trained = made.train.indices[made.plan.order(0)] < made.train.sequences.bounds[1]
        report, _ = reported(model_folder, tmp_path, data=data)
        assert trained.sum() == wanted and report.sources[0].share == pytest.approx(trained.mean())


def test_where_nothing_is_trained_on_the_reason_is_told(model_folder: Path, tmp_path: Path) -> None:
    judged = [row | {"label": False} for row in completions(5)]
    rows = write_rows(tmp_path / "judged.jsonl", judged)
    report, _ = reported(model_folder, rows, data={"format": "kto"})
    assert report.special[0] == "no row is trained on, so that none begins or ends"
    assert not any(line.split() == ["lengths"] for line in report_lines("judged", report))
    with pytest.raises(DataError, match="None of the 5 rows") as caught:
        prepare(make_profile(model_folder, rows, data={"format": "kto"}), cache_folder(Path()), lambda detail: None)
    assert caught.value.hint.startswith("All of their answers were found bad")


def test_nothing_to_learn_is_not_offered_to_be_allowed(model_folder: Path, tmp_path: Path) -> None:
    """No run starts without a token to train on, whatever data.allow says."""
    asked = write_rows(tmp_path / "asked.jsonl", [{"messages": [{"role": "user", "content": TEXT}]}] * 3)
    report, _ = reported(model_folder, asked, data={"max_length": 16})
    none = found_in(report, "no_target_tokens")
    assert none is not None and none.severity == "error" and describe_fix(none) == none.fix
    assert report.special[0].startswith("no row is trained on") and found_in(report, "few_rows") is None
    with pytest.raises(DataError) as caught:
        findings.refuse_errors(report)
    assert "data.allow" not in caught.value.hint
    some = write_rows(tmp_path / "some.jsonl", [*chats(1), *[{"messages": [{"role": "user", "content": "a"}]}] * 3])
    most = found_in(reported(model_folder, some)[0], "no_target_tokens")
    assert most is not None and 'data.allow = ["no_target_tokens"]' in describe_fix(most)


def saved(folder: Path, tokenizer: PreTrainedTokenizerFast, model: Path) -> Path:
    """A model's folder with another tokenizer."""
    folder.mkdir()
    (folder / "config.json").write_bytes((model / "config.json").read_bytes())
    tokenizer.save_pretrained(folder)
    return folder


BEGINS = "{{ bos_token }}" + PLAIN


def test_what_the_tokenizer_does_to_the_ends_of_rows(model_folder: Path, tmp_path: Path) -> None:
    """Two tokens at the start, none at the end, one token for two things; beside those that are as they should be."""
    rows = write_rows(tmp_path / "rows.jsonl", GOOD)
    names = ("two_bos", "no_eos", "pad_is_eos", "unlike_template")

    def seen(name: str, tokenizer: PreTrainedTokenizerFast, **data: Any) -> tuple[list[str], Report]:
        report, _ = reported(saved(tmp_path / name, tokenizer, model_folder), rows, data=data)
        return [one.name for one in report.findings if one.name in names], report

    assert seen("plain", make_tokenizer())[0] == []
    found, report = seen("once", make_tokenizer(BEGINS, bos=True))
    assert found == [] and report.special[0] == "rows begin with the token that starts a text, <s> (3)"
    found, report = seen("twice", make_tokenizer("{{ bos_token }}" + BEGINS, bos=True))
    assert found == ["two_bos"] and [one.name for one in report.stopping] == ["two_bos"]
    padded = make_tokenizer()
    padded.pad_token = padded.eos_token
    found, report = seen("padded", padded)
    assert found == ["pad_is_eos"] and not report.stopping
    assert report.special[1:] == [
        "the last trained token of each row that is not cut is <|im_end|> (2)",
        "padding is <|im_end|> (2), which also ends a text: it is trained at the end of a row and never beyond it, "
        "for padding is told by its place",
    ]
    assert seen("same", make_tokenizer(), chat_template="chatml")[0] == []
    assert seen("other", make_tokenizer(), chat_template="vicuna")[0] == ["unlike_template"]


@pytest.mark.parametrize("known", [(), ("<end_of_turn>",), ("<start_of_turn>",), ("<mine>",)])
def test_obeying_the_advice_on_missing_marks_gives_the_template_all_its_marks(
    known: tuple[str, ...], model_folder: Path, tmp_path: Path
) -> None:
    """What the profile names already stays in the advice."""
    rows = write_rows(tmp_path / "rows.jsonl", GOOD)
    data = {"chat_template": "gemma"}
    report, its = reported(model_folder, rows, data=data, model={"extra_special_tokens": list(known)})
    (found,) = [one for one in report.findings if one.name == "missing_marks"]
    assert found.severity == "warning" and found.count == 2 - len(set(known) & {"<start_of_turn>", "<end_of_turn>"})
    advice = tomllib.loads(found.message.partition("; model.")[2].partition(" makes tokens")[0])
    assert set(advice["extra_special_tokens"]) == {*known, "<start_of_turn>", "<end_of_turn>"}
    obeyed, its = reported(model_folder, rows, data=data, model=advice)
    assert not [one for one in obeyed.findings if one.name == "missing_marks"]
    ids = {its.tokenizer.convert_tokens_to_ids(mark) for mark in ("<start_of_turn>", "<end_of_turn>")}
    assert ids <= set(its.stores[0].ids.tolist()) and its.tokenizer.eos_token == "<end_of_turn>"


def test_tokens_the_model_does_not_have(model_folder: Path, tmp_path: Path) -> None:
    rows = write_rows(tmp_path / "rows.jsonl", [*GOOD, chat("a", "~")])
    whole, its = reported(model_folder, rows)
    assert found_in(whole, "outside_vocabulary") is None
    folder = saved(tmp_path / "small", make_tokenizer(), model_folder)
    highest = int(its.stores[0].ids.max())
    config = (folder / "config.json").read_text()
    size = f'"vocab_size": {len(its.tokenizer)}'
    assert size in config
    (folder / "config.json").write_text(config.replace(size, f'"vocab_size": {highest + 1}'))
    assert found_in(reported(folder, rows)[0], "outside_vocabulary") is None
    (folder / "config.json").write_text(config.replace(size, f'"vocab_size": {highest}'))
    found = found_in(reported(folder, rows)[0], "outside_vocabulary")
    having = {
        int(row) for row, n in zip(its.stores[0].rows, range(61), strict=True) if highest in its.stores[0][n].input_ids
    }
    assert found is not None and (found.severity, found.count) == ("error", len(having))


def test_the_report_is_made_once(model_folder: Path, tmp_path: Path) -> None:
    """What takes long stands beside the tokens; another length is counted anew, damage does not matter."""
    rows = write_rows(tmp_path / "rows.jsonl", [*GOOD, *GOOD[:3]])
    first, its = reported(model_folder, rows)
    kept = sorted(its.stores[0].folder.glob("report-*"))
    assert len(kept) == 1
    other = (read_sealed(kept[0]) or b"").replace(b'"duplicates":[3,', b'"duplicates":[2,')
    write_sealed(kept[0], other)
    again, _ = reported(model_folder, rows)
    assert [found.count for found in map(_duplicates, (first, again))] == [3, 2]
    for damaged in (b"{", other):  # half of it; and what stands under no seal, though it can be read
        kept[0].write_bytes(damaged)
        assert reported(model_folder, rows)[0] == first


def _duplicates(report: Report) -> Finding:
    found = found_in(report, "duplicate_rows")
    assert found is not None
    return found


def test_rows_that_came_as_tokens(model_folder: Path, tmp_path: Path) -> None:
    """They may lack the end; texts always get it."""
    ends = int(make_tokenizer().eos_token_id)
    rows = [{"input_ids": [9, 10 + n, 11, ends], "labels": [-100, 10 + n, 11, ends]} for n in range(9)]
    report, _ = reported(model_folder, write_rows(tmp_path / "ending.jsonl", rows))
    assert found_in(report, "no_eos") is None
    for row in rows:
        row["labels"] = [*row["labels"][:3], -100]
    report, _ = reported(model_folder, write_rows(tmp_path / "open.jsonl", rows))
    assert [one.name for one in report.stopping] == ["no_eos"]


def test_characters_the_tokenizer_does_not_know(model_folder: Path, tmp_path: Path) -> None:
    known = {token: number for number, token in enumerate(["[UNK]", "</s>", *WORDS])}
    backend = Tokenizer(models.WordLevel({word: number for number, word in enumerate(known)}, unk_token="[UNK]"))
    backend.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    tokenizer = PreTrainedTokenizerFast(tokenizer_object=backend, unk_token="[UNK]", eos_token="</s>", pad_token="</s>")
    folder = saved(tmp_path / "words", tokenizer, model_folder)
    rows = [{"prompt": "the kernel ", "completion": f"{word} page"} for word in WORDS[:8]]
    report, _ = reported(folder, write_rows(tmp_path / "known.jsonl", rows))
    assert found_in(report, "unknown_tokens") is None
    report, _ = reported(folder, write_rows(tmp_path / "unknown.jsonl", [*rows, rows[0] | {"completion": "nobody"}]))
    found = found_in(report, "unknown_tokens")
    assert found is not None and (found.count, found.total, found.severity) == (1, 9, "warning")


def test_lines_that_are_joined_are_told(model_folder: Path, tmp_path: Path) -> None:
    lines = textwrap.wrap(" ".join(WORDS * 30), 70)
    for name, text in (("wrapped.txt", "\n".join(lines)), ("whole.txt", " ".join(lines))):
        (tmp_path / name).write_text(text + "\n")
        report, _ = reported(model_folder, tmp_path / name, run={"stage": "pretrain"})
        found = found_in(report, "joined_lines")
        assert (found is not None) == (name == "wrapped.txt")
        assert found is None or found.severity == "note"
        assert found_in(report, "truncated") is None, "plain text is split"


def test_one_very_long_row_leaves_the_bars_of_the_others_apart() -> None:
    lengths = np.concatenate([np.arange(10, 810), np.array([370_140])])
    bars = histogram(lengths)
    assert sum(rows for _, rows in bars) == 801 and bars[-1][0] == 370_140 and len(bars) <= 20
    assert max(rows for _, rows in bars) < 100, "not all in one"
    assert histogram(np.arange(1, 1001)) == [(50 * n, 50) for n in range(1, 21)]


def test_tokens_of_many_rows_are_those_of_each(model_folder: Path, tmp_path: Path) -> None:
    """In any order, over several sources, whole or from both ends."""
    files = [write_rows(tmp_path / f"{name}.jsonl", [long_chat(number) for number in range(9)]) for name in "ab"]
    _, its = reported(model_folder, files[0], data={"train": [{"path": str(file)} for file in files]})
    rows, chance = RowIndex(its.sources, its.stores), np.random.default_rng(1)
    whole = [(store[n].input_ids, store[n].targets) for store in its.stores for n in range(9)]
    for most in (7, 20, 10_000):
        for both in (False, True):
            wanted = chance.integers(0, 18, 30)
            ids, trained, sizes = rows.tokens_of(wanted, most, from_both_ends=both)
            parts = []
            for ends in (whole[n] for n in wanted):
                head = most // 2 if both and len(ends[0]) > most else most
                kept = np.arange(len(ends[0])) < head
                kept |= (np.arange(len(ends[0])) >= len(ends[0]) - (most - head)) & (head < most)
                parts.append([end[kept] for end in ends])
            assert np.array_equal(ids, np.concatenate([part[0] for part in parts]))
            assert np.array_equal(trained, np.concatenate([part[1] for part in parts]))
            assert sizes.tolist() == [len(part[0]) for part in parts] and max(sizes) <= most
    assert [len(each) for each in rows.tokens_of(wanted[:0], 7)] == [0, 0, 0]


def test_a_column_that_differs_in_case_is_asked_about(model_folder: Path, tmp_path: Path) -> None:
    rows = [{"instruction": f"count {n}", "output": f"{n} it is", "Input": "slowly"} for n in range(60)]
    report, _ = reported(model_folder, write_rows(tmp_path / "rows.jsonl", rows))
    finding = found_in(report, "unused_columns")
    assert finding is not None and finding.severity == "warning"
    assert finding.fix == 'Is data.columns = {input = "Input"} meant?'
    obeyed, _ = reported(model_folder, tmp_path / "rows.jsonl", data={"columns": {"input": "Input"}})
    assert found_in(obeyed, "unused_columns") is None and obeyed.num_tokens > report.num_tokens


@pytest.mark.parametrize("template", ["gemma", "llama3", "phi"])
@pytest.mark.parametrize("tokens", [0, 1])
def test_marks_of_a_template_that_are_no_tokens_are_told_everywhere(
    template: str, tokens: int, model_folder: Path, tmp_path: Path
) -> None:
    """Obeyed, the advice keeps what is there already and makes tokens of all."""
    rows = write_rows(tmp_path / "rows.jsonl", GOOD)
    there = list(TEMPLATE_MARKS[template][:tokens])
    sections: dict[str, dict[str, Any]] = {"data": {"chat_template": template, "allow": ["answers_cut_off"]}}
    own = {"name_or_path": str(model_folder), "extra_special_tokens": there}
    report, _ = reported(model_folder, rows, **sections, model=own)
    finding = found_in(report, "missing_marks")
    assert finding is not None and finding.severity == "warning"
    profile = make_profile(model_folder, rows, **sections, model=own)
    assert finding.message in prepare(profile, cache_folder(Path()), lambda detail: None).warnings
    advice = tomllib.loads("tokens = " + finding.message.partition("tokens = ")[2].partition(" makes")[0])["tokens"]
    assert advice == list(TEMPLATE_MARKS[template])
    obeyed, its = reported(model_folder, rows, **sections, model=own | {"extra_special_tokens": advice})
    assert found_in(obeyed, "missing_marks") is None
    assert its.tokenizer.eos_token == TEMPLATE_MARKS[template][-1]
