"""The report on answers that are compared: each finding by rows that have it, and not by rows that nearly do."""

import itertools
import random
import tomllib
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from msgspec import structs

from ftui.cli.preview import report_lines, row_lines
from ftui.dataset.report import Finding, Report
from ftui.dataset.row import AnswerSide, ComparedAnswers, RowView
from ftui.dataset.row_text import PART_HERE, Signs, comparison_lines, layout_row
from ftui.engine.data.load_rows import LoadedData, load_data
from ftui.engine.inspection.browser import view_row
from ftui.engine.inspection.report import contradictions, make_report
from ftui.engine.inspection.report.duplicates import Matches
from ftui.engine.training.prepare import prepare
from ftui.errors import DataError
from ftui.profile.schema import Profile
from ftui.profile.serialize import to_toml
from ftui.system.user_folders import cache_folder
from tests.support.tiny import TEXT, Rows, judged_answers, make_profile, preference_pairs, write_rows

WORDS = TEXT.split()
PAIRS = preference_pairs(60)
LONG = "the daemon forks quietly and then it ran away"


def says(role: str, content: str) -> dict[str, str]:
    return {"role": role, "content": content}


def pair(asked: str, chosen: str, rejected: str) -> dict[str, Any]:
    answers = {"chosen": [says("assistant", chosen)], "rejected": [says("assistant", rejected)]}
    return {"prompt": [says("user", asked)], **answers}


def talks(chosen: str, rejected: str) -> dict[str, Any]:
    """Whole conversations, their turns parted by |."""
    roles = itertools.cycle(("user", "assistant"))
    sides = {"chosen": chosen, "rejected": rejected}
    return {key: [says(next(roles), words) for words in text.split("|")] for key, text in sides.items()}


def verdict(asked: str, answer: str, good: bool) -> dict[str, Any]:
    return {"prompt": [says("user", asked)], "completion": [says("assistant", answer)], "label": good}


def plain(prompt: str, chosen: str, rejected: str) -> dict[str, Any]:
    return {"prompt": prompt, "chosen": chosen, "rejected": rejected}


def profile_of(stage: str, model: Path, rows: Path, /, **sections: dict[str, Any]) -> Profile:
    form = {"format": "kto" if stage == "kto" else "preference"}
    return make_profile(model, rows, run={"stage": stage}, **sections | {"data": form | sections.get("data", {})})


def reported(stage: str, model: Path, rows: Path, /, **sections: dict[str, Any]) -> tuple[Report, LoadedData]:
    profile = profile_of(stage, model, rows, **sections)
    its = load_data(profile, cache_folder(Path()), lambda detail: None, weights=False)
    return make_report(its, profile), its


def found_in(report: Report, name: str) -> Finding | None:
    return next((one for one in report.findings if one.name == name), None)


# finding: (its severity, how many have it, rows that have the fault, rows that nearly do); beside sixty good pairs.
FAULTS: dict[str, tuple[str, int, Rows, Rows]] = {
    "identical_answers": (
        "warning",
        3,
        [pair("a", "it ran", "it ran"), pair("b", "it ran ", "\nit ran"), talks("a|it reads", "a|it reads")],
        [pair("a", "it ran", "it ran."), pair("b", "it ran", "It ran"), talks("a|it|b|no", "a|it|b|yes")],
    ),
    "contradictions": (
        "warning",
        2,
        [
            *(pair("a", "it ran", "no"), pair("a", "no", "it ran")),
            *(talks("b|it|c|so", "b|it|c|no"), talks("b|it|c|no", "b|it|c|so")),
        ],
        [pair("a", "it ran", "no"), pair("b", "no", "it ran"), pair("a", "it ran", "never"), pair("a", "it ran", "no")],
    ),
    "chosen_and_rejected": (
        "note",
        3,
        [pair("a", "it ran", "it reads"), pair("a", "it reads", "no"), pair("a", "no", "never")],
        [pair("a", "it ran", "it reads"), pair("b", "it reads", "no"), pair("a", "it ran", "no")],
    ),
    "prompts_differ": (
        "warning",
        3,
        [talks("a|it ran", "b|it reads"), talks("a|it|c|so", "b|it|c|no"), talks("a|it|c|so", "c|no")],
        [talks("a|it ran|b|so", "a|no|c|never"), talks("a|it|b|so", "a|it|b|no"), pair("a", "it", "no")],
    ),
    "empty_rejected": (
        "warning",
        2,
        [pair("a", "it ran", ""), pair("b", "it ran", " \n")],
        [pair("a", "it ran", "0"), pair("b", "", "it ran"), pair("b", " ", "")],
    ),
    "empty_answers": (
        "warning",
        2,
        [pair("a", "", "it ran"), pair("b", " \n", "it ran")],
        [pair("a", "it ran", ""), pair("b", "no", " ")],
    ),
    "boilerplate": (
        "warning",
        2,
        [pair("a", "As an AI language model, I cannot.", "it ran")] * 2,
        [pair("a", "it ran", "As an AI language model, I cannot.")] * 2,
    ),
    "end_on_one_side": (
        "warning",
        2,
        [plain("Q: a", " it ran<|im_end|>\n", " no"), plain("Q: b", " no", " it ran<|im_end|> ")],
        [plain("Q: a", " it ran<|im_end|>", " no"), plain("Q: b", " no<|im_end|>\n", " it ran<|im_end|>\n")],
    ),
    "answer_in_prompt": (
        "warning",
        4,
        [pair(f"{n} {LONG} {end}", LONG, "no") for n, end in enumerate(["", " ?", "or not", "\n"])],
        [
            pair("the daemon or the shell", "the daemon", "the shell"),
            *(pair(f"{LONG}, or {LONG[4:]}?", LONG, LONG[4:]), pair(f"{LONG}?", "no", LONG)),
        ],
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", FAULTS)
def test_pairs_with_a_fault_are_found_and_others_are_not(name: str, model_folder: Path, tmp_path: Path) -> None:
    severity, number, faulty, nearly = FAULTS[name]
    bad, _ = reported("dpo", model_folder, write_rows(tmp_path / "bad.jsonl", [*PAIRS, *faulty]))
    found = found_in(bad, name)
    assert found is not None and (found.severity, found.count, found.total) == (severity, number, 60 + len(faulty))
    assert all(60 < example.where.number <= 60 + len(faulty) for example in found.examples)
    good, _ = reported("dpo", model_folder, write_rows(tmp_path / "good.jsonl", [*PAIRS, *nearly]))
    assert found_in(good, name) is None


@pytest.mark.parametrize("name", ["identical_answers", "prompts_differ", "end_on_one_side", "answer_in_prompt"])
def test_what_makes_most_pairs_senseless_stops_a_run_that_does_not_allow_it(
    name: str, model_folder: Path, tmp_path: Path
) -> None:
    one = FAULTS[name][2][0]
    rows = write_rows(tmp_path / "rows.jsonl", [*PAIRS[:5], *[one] * 6])
    with pytest.raises(DataError) as caught:
        prepare(profile_of("dpo", model_folder, rows), cache_folder(Path()), lambda detail: None)
    assert f'allow = ["{name}"]' in caught.value.hint and f"first {rows}:6" in caught.value.message
    profile = profile_of("dpo", model_folder, rows, data={"allow": [name]})
    assert prepare(profile, cache_folder(Path()), lambda detail: None).warnings[0].startswith("6 of 11 ")


def test_both_orders_of_each_pair_stop_a_run_but_several_verdicts_do_not(model_folder: Path, tmp_path: Path) -> None:
    """They cancel each other out; verdicts may be those of several people."""
    swapped = [one | {"chosen": one["rejected"], "rejected": one["chosen"]} for one in PAIRS]
    report, _ = reported("dpo", model_folder, write_rows(tmp_path / "pairs.jsonl", [*PAIRS, *swapped]))
    found = found_in(report, "contradictions")
    assert found is not None and (found.severity, found.count, found.total) == ("error", 60, 120)
    assert [(one.where.number, one.like and one.like.number) for one in found.examples] == [(61, 1), (62, 2), (63, 3)]
    judged = judged_answers(30)
    rows = write_rows(tmp_path / "judged.jsonl", [*judged, *(one | {"label": not one["label"]} for one in judged)])
    report, _ = reported("kto", model_folder, rows)
    found = found_in(report, "contradictions")
    assert found is not None and (found.severity, found.count) == ("warning", 30) and not report.stopping
    assert found_in(report, "chosen_and_rejected") is None


def test_contradictions_are_those_that_comparing_each_with_each_finds() -> None:
    chance = random.Random(3)
    for number in [0, 1, *(chance.randint(2, 40) for _ in range(60))]:
        sides = [(chance.randint(0, 5), chance.randint(0, 5)) for _ in range(number)]
        opposites = [[i for i, its in enumerate(sides) if its == (other, one) and one != other] for one, other in sides]
        contradicting = [(j, its[0]) for j, its in enumerate(opposites) if its and its[0] < j]
        pairs = [j for j, (one, other) in enumerate(sides) if 0 != one != other != 0 and not opposites[j]]
        better, worse = {sides[j][0] for j in pairs}, {sides[j][1] for j in pairs}
        ranked = [j for j in pairs if sides[j][0] in worse or sides[j][1] in better]
        found, found_ranked = contradictions.find_contradictions(_Columns(sides), number)  # type: ignore[arg-type]
        assert found == Matches(len(contradicting), contradicting[:3])
        assert found_ranked.count == len(ranked) and [row for row, _ in found_ranked.examples] == ranked[:3]
        for row, like in found_ranked.examples:
            assert sides[like][0] == sides[row][1] or sides[like][1] == sides[row][0]


class _Columns:
    def __init__(self, sides: list[tuple[int, int]]) -> None:
        both = np.array(sides, dtype=np.uint64).reshape(-1, 2)
        self._sides = {"chosen": both[:, 0], "rejected": both[:, 1]}

    def column(self, name: str) -> np.ndarray:
        return self._sides[name]


@pytest.mark.parametrize(("num_longer", "num_shorter", "num_same", "is_told"), [
    (40, 0, 20, True), (44, 16, 0, True), (43, 17, 0, False), (30, 30, 0, False), (0, 60, 0, False), (29, 0, 30, False),
])  # fmt: skip
def test_a_verdict_that_follows_length_is_told(
    num_longer: int, num_shorter: int, num_same: int, is_told: bool, model_folder: Path, tmp_path: Path
) -> None:
    rows = [pair(f"a {n}", f"it ran {n}" + " away" * 3, "no") for n in range(num_longer)]
    rows += [pair(f"b {n}", "no", f"it ran {n}" + " away" * 3) for n in range(num_shorter)]
    rows += [pair(f"c {n}", "x", "y") for n in range(num_same)]
    path = write_rows(tmp_path / "rows.jsonl", rows)
    report, _ = reported("dpo", model_folder, path)
    found = found_in(report, "longer_chosen")
    assert (found is not None) == is_told
    assert report.answers is not None
    told = (report.answers.num_longer, report.answers.num_same, report.answers.num_chosen)
    assert told == (num_longer, num_same, num_longer + num_shorter + num_same)
    assert "pairs of unequal length" in " ".join(" ".join(report_lines("rows", report)).split())
    if found is not None:
        assert (found.severity, found.count, found.total) == ("warning", num_longer, num_longer + num_shorter)
        assert "preference.ld_alpha" in found.fix
        obeyed, _ = reported("dpo", model_folder, path, preference={"ld_alpha": 0.5})
        again = found_in(obeyed, "longer_chosen")
        assert again is not None and "preference" not in again.fix, "advice that is taken already"


def test_pairs_that_are_cut_on_one_side_or_before_they_part(model_folder: Path, tmp_path: Path) -> None:
    """Counted anew from the whole sequences."""
    rows = [pair("a", "it ran " * n, "it ran " * m) for n, m in itertools.product((2, 9, 12, 30, 31), repeat=2)]
    path = write_rows(tmp_path / "rows.jsonl", rows)
    for limit in (40, 64):
        report, its = reported("dpo", model_folder, path, data={"max_length": limit})
        store = its.stores[0]
        sides = [[store[2 * n], store[2 * n + 1]] for n in range(len(rows))]
        cut = [[one.targets[limit:].any() for one in pair] for pair in sides]
        same = [np.array_equal(one.input_ids[:limit], other.input_ids[:limit]) for one, other in sides]
        found, identical = found_in(report, "cut_on_one_side"), found_in(report, "identical_answers")
        assert found is not None and found.count == sum(one != other for one, other in cut) > 0
        assert identical is not None and identical.count == sum(same) > 5


@pytest.mark.parametrize(("good", "bad", "weights", "fix"), [
    (40, 20, {}, "undesirable_weight = 2"),
    (10, 50, {}, "desirable_weight = 5"),
    (7, 50, {}, "desirable_weight = 7.2"),
    (53, 7, {}, "undesirable_weight = 7.5"),
    (30, 30, {"desirable_weight": 4.0}, "desirable_weight = 1"),
    (30, 30, {"undesirable_weight": 1.5}, "undesirable_weight = 1"),
    (40, 20, {"desirable_weight": 3.0}, "undesirable_weight = 6"),
    (20, 40, {"desirable_weight": 3.0}, "desirable_weight = 2"),
    (32, 30, {}, None), (40, 30, {}, None), (30, 40, {}, None), (50, 10, {"undesirable_weight": 4.0}, None),
])  # fmt: skip
def test_obeying_the_advice_on_unbalanced_verdicts_balances_them(
    good: int, bad: int, weights: dict[str, float], fix: str | None, model_folder: Path, tmp_path: Path
) -> None:
    rows = [verdict(f"a {n}", f"it ran {n}", n < good) for n in range(good + bad)]
    path = write_rows(tmp_path / "rows.jsonl", rows)
    report, _ = reported("kto", model_folder, path, preference=weights)
    found = found_in(report, "unbalanced_verdicts")
    assert (None if found is None else found.fix) == (None if fix is None else f"Set preference.{fix}.")
    if found is None:
        return
    assert (found.severity, found.count, found.total) == ("warning", good, good + bad)
    obeyed = weights | tomllib.loads(found.fix.removeprefix("Set preference.").removesuffix("."))
    ratio = obeyed.get("desirable_weight", 1) * good / (obeyed.get("undesirable_weight", 1) * bad)
    assert 1 <= ratio <= 4 / 3
    report, _ = reported("kto", model_folder, path, preference=obeyed)
    assert found_in(report, "unbalanced_verdicts") is None


def test_verdicts_count_as_often_as_their_source_comes(model_folder: Path, tmp_path: Path) -> None:
    paths = [
        write_rows(tmp_path / f"{label}.jsonl", [verdict(f"a {n}", f"it ran {n}", label) for n in range(number)])
        for label, number in ((True, 20), (False, 40))
    ]
    for weight, is_told in ((1.0, True), (2.0, False)):
        sources = [{"path": str(paths[0]), "weight": weight}, {"path": str(paths[1])}]
        report, _ = reported("kto", model_folder, tmp_path, data={"train": sources})
        assert (found_in(report, "unbalanced_verdicts") is not None) == is_told


@pytest.mark.parametrize("label", [True, False])
def test_verdicts_of_one_kind_are_told(label: bool, model_folder: Path, tmp_path: Path) -> None:
    rows = write_rows(tmp_path / "rows.jsonl", [verdict(f"a {n}", f"it ran {n}", label) for n in range(60)])
    report, _ = reported("kto", model_folder, rows)
    found = found_in(report, "unbalanced_verdicts")
    assert found is not None and found.severity == "warning" and "preference." not in found.fix
    assert ("none is bad" if label else "none is good") in found.message


def test_prompts_to_evaluate_on_that_are_trained_on(model_folder: Path, tmp_path: Path) -> None:
    """Copies are told as such; rows set aside go to one side with all that ask the same."""
    train = write_rows(tmp_path / "train.jsonl", [pair(f"why {n}", f"it ran {n}", "no") for n in range(60)])
    apart = [pair(f"why {n}", "never", "so") for n in (1, 2)] + [
        pair("why 3", "it ran 3", "no"),
        pair("who", "it", "no"),
    ]
    report, _ = reported("dpo", model_folder, train, data={"eval": str(write_rows(tmp_path / "eval.jsonl", apart))})
    found, copies = found_in(report, "leaked_prompts"), found_in(report, "leaked_rows")
    assert found is not None and (found.severity, found.count, found.total) == ("warning", 2, 4)
    assert [(one.where.number, one.like and one.like.number) for one in found.examples] == [(1, 2), (2, 3)]
    assert copies is not None and copies.count == 1
    several = [pair(f"why {n % 20}", f"it ran {n}", f"no {n}") for n in range(60)]
    for stage, rows in (
        ("dpo", several),
        ("kto", [verdict(f"why {n % 20}", f"it ran {n}", n > 30) for n in range(60)]),
    ):
        path = write_rows(tmp_path / f"{stage}.jsonl", rows)
        report, its = reported(stage, model_folder, path, data={"eval_num_rows": 12})
        assert its.evaluation is not None and its.evaluation.num_rows == 12
        assert found_in(report, "leaked_prompts") is None
    one = write_rows(tmp_path / "one.jsonl", [pair("why", f"it ran {n}", f"no {n}") for n in range(60)])
    report, _ = reported("dpo", model_folder, one, data={"eval_num_rows": 12})
    found = found_in(report, "leaked_prompts")
    assert found is not None and found.count == 12 and "than may be set aside" in found.fix


def test_several_answers_to_one_prompt_are_no_fault_where_they_are_compared(model_folder: Path, tmp_path: Path) -> None:
    rows = write_rows(tmp_path / "rows.jsonl", [pair(f"why {n % 20}", f"it ran {n}", f"no {n}") for n in range(60)])
    for stage, severity in (("dpo", "note"), ("sft", "warning")):
        report, _ = reported(stage, model_folder, rows)
        found = found_in(report, "repeated_prompts")
        assert found is not None and found.severity == severity and ("best one" in found.fix) == (stage == "sft")
        assert (report.answers is None) == (stage == "sft")


@pytest.mark.parametrize("stage", ["dpo", "orpo"])
def test_a_pair_is_shown_with_both_sides_and_the_place_where_they_part(
    stage: str, model_folder: Path, tmp_path: Path
) -> None:
    rows = [pair("a", "it ran away", "it ran badly into it"), pair("why", "no", "never"), pair("b", "so", "so")]
    path = write_rows(tmp_path / "rows.jsonl", [*rows, pair("c", "the page " * 40, "the page " * 40 + "so")])
    profile = to_toml(profile_of(stage, model_folder, path, data={"max_length": 64}))
    for number in range(4):
        sides = [view_row(profile, "number", lambda detail: None, number=number, part=part) for part in (0, 1)]
        seen = [[token.id for token in one.tokens if not token.is_cut] for one in sides]
        differ = [n for n, ids in enumerate(itertools.zip_longest(*seen)) if len(set(ids)) > 1]
        for one in sides:
            assert one.compared is not None and one.compared.has_reference == (stage == "dpo")
            assert one.compared.parting == (differ[0] if differ else None)
            assert [side.label for side in one.compared.sides] == [1, -1]
            numbers = [(side.num_tokens, side.num_target_tokens) for side in one.compared.sides]
            assert numbers == [(len(ids), its.num_target_tokens) for ids, its in zip(seen, sides, strict=True)]
            lines = list(row_lines(one, 200, Signs()))
            assert any(line.startswith(PART_HERE) for line in lines) == bool(differ)
            where = f"they part at token {differ[0] + 1}" if differ else "they do not differ"
            told = " ".join(lines)
            assert where in told and ("not measured" in told) == (stage == "dpo")
            laid = [line for line in layout_row(one, 80, Signs()) if line.pieces and line.pieces[0].text == PART_HERE]
            assert [line.first for line in laid] == differ[:1]


def test_the_reference_is_told_in_numbers_where_it_is_measured() -> None:
    def lines(*log_probs: float | None, has_reference: bool = True) -> list[str]:
        labels = (1, -1) if len(log_probs) > 1 else (-1,)
        sides = [AnswerSide(label, 30, 10, value) for label, value in zip(labels, log_probs, strict=True)]
        its = ComparedAnswers(sides, 20, has_reference)
        return comparison_lines(structs.replace(VIEW, compared=its))

    numbers = "chosen 10 of 30 tokens trained, rejected 10 of 30; they part at token 21"
    both = "reference: ln p -20.0 and -35.0 (-2.00 and -3.50 a token), log-ratio +15.0: it prefers the chosen one"
    assert lines(-20.0, -35.0) == [numbers, both]
    assert lines(-20.0, -5.0)[1].endswith("log-ratio -15.0: it prefers the rejected one")
    assert lines(-20.0, -20.0)[1].endswith("log-ratio +0.0: it prefers neither")
    assert lines(-20.0, None)[1].startswith("reference: not measured on this row")
    assert lines(None, None, has_reference=False) == [numbers]
    assert lines(-20.0) == ["reference: ln p -20.0 (-2.00 a token)"]
    assert comparison_lines(VIEW) == []


VIEW = RowView(
    number=0, num_rows=1, where=None, source="", form="", part=0, num_parts=1, tokens=[], turns=[], num_tokens=0,  # type: ignore[arg-type]
    num_target_tokens=0, max_length=64, raw="",
)  # fmt: skip
