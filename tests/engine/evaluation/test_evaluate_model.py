"""What becomes of rows that do not fit into memory, or of which nothing finite can be said."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pytest
import torch

from ftui.engine.evaluation import evaluate_model as module
from ftui.engine.evaluation.row_sums import RowSums, sum_rows
from ftui.engine.generation.answer_prompts import FinishedAnswer
from ftui.engine.models.files.fingerprints import weights_fingerprint
from ftui.errors import ModelError, UsageError
from ftui.evaluation.results import RowAnswer, RowLoss, find_gaps, read_results
from ftui.helper.evaluation_facts import EvaluationFacts, EvaluationRequest, EvaluationSide
from ftui.profile.serialize import to_toml
from tests.support.tiny import chats, make_profile, write_rows

NUM_ROWS = 9


def evaluate(model_folder: Path, folder: Path, **options: Any) -> tuple[EvaluationFacts, list[RowLoss | RowAnswer]]:
    rows = write_rows(folder / "rows.jsonl", chats(NUM_ROWS))
    profile = make_profile(
        model_folder, rows, adapter={"method": "full"}, train={"precision": "fp32"}, hardware={"device": "cpu"}
    )
    results = folder / "out" / "rows.jsonl"
    request = EvaluationRequest([EvaluationSide("model", None)], str(results), "{}", **options)
    facts = module.evaluate_model(lambda detail: None, to_toml(profile), msgspec.to_builtins(request))
    return facts, read_results(results)


def test_batches_are_halved_where_memory_runs_out(
    model_folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    sizes = []

    def short_of_memory(speaker: Any, batch: Any, num_targets: np.ndarray, base: Any = None) -> RowSums:
        sizes.append(len(num_targets))
        if len(num_targets) > 1:
            raise torch.OutOfMemoryError("out of memory")
        return sum_rows(speaker, batch, num_targets, base)

    (tmp_path / "whole").mkdir()
    _, whole = evaluate(model_folder, tmp_path / "whole")
    monkeypatch.setattr(module, "sum_rows", short_of_memory)
    (tmp_path / "small").mkdir()
    _, small = evaluate(model_folder, tmp_path / "small", batch_size=4)
    assert sizes == [4, 2, *[1] * NUM_ROWS], "and it stays with what fits"
    before, after = ({one.number: one.nats for one in found if isinstance(one, RowLoss)} for found in (whole, small))
    assert len(before) == NUM_ROWS and after == pytest.approx(before, rel=1e-5)


def test_a_row_that_does_not_fit_alone_is_told(
    model_folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: Any) -> RowSums:
        raise torch.OutOfMemoryError("out of memory")

    monkeypatch.setattr(module, "sum_rows", fail)
    facts, found = evaluate(model_folder, tmp_path, num_rows=3)
    assert facts.num_rows == 3
    assert [one.problem for one in found if isinstance(one, RowLoss)] == ["memory"] * 3
    assert find_gaps(found) == ["model: the row does not fit into memory on 3 rows, which are left out"]


def test_what_lacked_memory_is_measured_where_there_is_more(
    model_folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: Any) -> RowSums:
        raise torch.OutOfMemoryError("out of memory")

    def answer_none(model: Any, prompts: Sequence[Any], *_: Any, **options: Any) -> list[FinishedAnswer]:
        return [FinishedAnswer(number, (), "memory") for number in range(len(prompts))]

    with monkeypatch.context() as patch:
        patch.setattr(module, "sum_rows", fail)
        patch.setattr(module, "answer_prompts", answer_none)
        facts, small = evaluate(model_folder, tmp_path, num_rows=3, max_new_tokens=2)
    assert len(find_gaps(small)) == 2 and facts.num_questions > 0
    _, found = evaluate(model_folder, tmp_path, num_rows=3, max_new_tokens=2)
    assert find_gaps(found) == [] and len(found) == 2 * len(small)


def test_two_at_once_do_not_write_into_one_folder(tmp_path: Path) -> None:
    request = EvaluationRequest([EvaluationSide("model", None)], str(tmp_path / "out" / "rows.jsonl"), "{}")
    with module._results(request):
        with pytest.raises(UsageError, match=f"Another evaluation is at work in {tmp_path / 'out'}"):
            module._results(request).__enter__()
        assert (tmp_path / "out" / "rows.jsonl").is_file()
    with module._results(request):
        pass


def test_another_base_than_that_of_the_run_is_refused(model_folder: Path, tmp_path: Path) -> None:
    trained_on = weights_fingerprint(model_folder, tmp_path, lambda: None)
    assert evaluate(model_folder, tmp_path, trained_on=trained_on)[1]
    with pytest.raises(ModelError, match=f"is not the one that was trained on: .* of the run {'0' * 12}"):
        evaluate(model_folder, tmp_path, trained_on="0" * 64)


def test_a_loss_that_is_not_finite_is_told(model_folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def not_a_number(speaker: Any, batch: Any, num_targets: np.ndarray, base: Any = None) -> RowSums:
        sums = sum_rows(speaker, batch, num_targets, base)
        sums.nats[0] = np.nan
        return sums

    monkeypatch.setattr(module, "sum_rows", not_a_number)
    _, found = evaluate(model_folder, tmp_path, batch_size=NUM_ROWS)
    assert sum(one.problem == "not finite" for one in found if isinstance(one, RowLoss)) == 1


def test_answers_are_measured_once(model_folder: Path, tmp_path: Path) -> None:
    facts, found = evaluate(model_folder, tmp_path, max_new_tokens=3)
    answers = [one for one in found if isinstance(one, RowAnswer)]
    assert facts.num_questions == len(answers) > 0 and all("token_f1" in one.scores for one in answers)
    _, again = evaluate(model_folder, tmp_path, max_new_tokens=3)
    assert again == found
