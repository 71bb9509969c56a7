import math
from pathlib import Path
from typing import get_args

import pytest

from ftui.evaluation.lm_eval_results import TaskFigure
from ftui.evaluation.result_text import result_rows
from ftui.evaluation.results import MeasureLine, Part, RowAnswer, RowLoss, find_gaps, read_results, summarise
from ftui.runs.journal import Writer


def loss(number: int, side: str, nats: float | None, size: int, right: int = 0, part: Part = "data") -> RowLoss:
    return RowLoss(
        part=part, number=number, where=f"f.jsonl:{number + 1}", side=side, nats=nats, num_targets=size,
        num_right=right, kl_nats=0.5 * size if part == "forgetting" and side != "base" else None,
        problem="not finite" if nats is None else "",
    )  # fmt: skip


def answer(number: int, side: str, **scores: float) -> RowAnswer:
    return RowAnswer(number=number, where="", side=side, reference="", answer="", ending="stop", scores=scores)


def lines(table: list[MeasureLine]) -> dict[str, MeasureLine]:
    return {line.name: line for line in table}


def test_means_are_over_the_tokens() -> None:
    (table,) = summarise([loss(0, "a", 2.0, 1, 1), loss(1, "a", 12.0, 9, 3)], ["a"])
    found = lines(table.lines)
    assert found["loss"].values == [1.4] and found["mean_token_accuracy"].values == [0.4]
    assert found["perplexity"].values == [pytest.approx(math.exp(1.4))]
    assert found["loss"].difference is None and "kl" not in found


def test_sides_are_compared_on_the_rows_that_both_have() -> None:
    rows = [loss(n, "a", 2.0 * (n + 1), n + 1) for n in range(12)] + [
        loss(n, "b", 3.0 * (n + 1), n + 1) for n in range(11)
    ]
    answers = [answer(n, "a", token_f1=1.0, mine=0.5) for n in range(12)] + [
        answer(n, "b", mine=0.5) for n in range(12)
    ]
    (table,) = summarise([*rows, *answers], ["a", "b"], ["mine"])
    found = lines(table.lines)
    assert found["loss"].num_rows == 11 and found["loss"].difference
    assert found["loss"].difference.mean == pytest.approx(-1.0) and found["loss"].verdict == "better"
    assert found["token_f1"].values == [1.0, None] and found["token_f1"].verdict == ""
    assert found["mine"].verdict == "the same on every row"


def test_what_is_not_there_is_left_out_and_told() -> None:
    rows = [loss(0, "a", None, 4), loss(1, "a", 6.0, 3)]
    (table,) = summarise(rows, ["a"])
    assert lines(table.lines)["loss"].values == [2.0] and lines(table.lines)["loss"].num_rows == 1
    assert find_gaps(rows) == ["a: the loss is NaN or infinite on 1 rows, which are left out"]
    assert find_gaps([*rows, loss(0, "a", 1.0, 4)]) == [], "measured again"


def test_forgetting_is_against_the_base() -> None:
    rows = [
        one for n in range(12)
        for one in (loss(n, "a", 4.0, 2, part="forgetting"), loss(n, "base", 3.0, 2, part="forgetting"))
    ]  # fmt: skip
    (table,) = summarise(rows, ["a", "b"])
    assert table.part == "forgetting" and table.sides == ["a", "base"]
    assert lines(table.lines)["loss"].verdict == "worse" and lines(table.lines)["kl"].values == [0.5, None]


def test_results_are_read_back_but_for_a_torn_line(tmp_path: Path) -> None:
    path = tmp_path / "rows.jsonl"
    assert read_results(path) == []
    path.touch()
    writer = Writer(path)
    written = [loss(0, "a", 1.5, 2), answer(0, "a", bleu=3.0)]
    for one in written:
        writer.write(one)
    writer.close()
    with path.open("ab") as file:
        file.write(b'{"kind":"row_loss","pa')
    found = read_results(path)
    assert [(type(one), one.side) for one in found] == [(RowLoss, "a"), (RowAnswer, "a")]
    assert isinstance(found[0], RowLoss) and found[0].nats == 1.5


def test_lines_have_as_many_words_each() -> None:
    rows = [loss(n, side, 2.0, 1, part=part) for n in range(12) for side in ("a", "base") for part in get_args(Part)]
    tables = summarise(rows, ["a"])
    lm_eval = [TaskFigure("arc", "acc", 0.5, 0.01, "m"), TaskFigure("gsm8k", "exact_match", 0.25, None, "m")]
    found = result_rows(tables, lm_eval, ["a note " * 20])
    assert len({len(row) for row in found}) == 1
    assert ("arc", "acc", "0.5000 ± 0.0100", "", "", "") in found
    assert ("gsm8k", "exact_match", "0.2500", "", "", "") in found
    of_note = [row for row in found if row[0] in ("note", "")]
    assert " ".join(row[-1].strip() for row in of_note).split() == ("a note " * 20).split() and len(of_note) > 1
    heads = [row for row in found if row[0] in ("measure", "forgetting")]
    assert heads == [("measure", "a", "rows", "", "", ""), ("forgetting", "a", "base", "rows", "difference", "")]
