"""What the reference says of answers is told where a run has measured it, against the model's own logits."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from transformers import AutoModelForCausalLM

from ftui.dataset.row import RowView
from ftui.engine.inspection.browser import browse_report, open_browser, view_row
from ftui.engine.inspection.measured_reference import compare_sides
from ftui.profile.schema import Profile
from ftui.profile.serialize import to_toml
from ftui.runs.events import Noted
from ftui.runs.run_folder import Run
from tests.support.attempts import attempt, records
from tests.support.tiny import judged_answers, make_profile, preference_pairs, write_rows


def profile_of(stage: str, model: Path, rows: Path, /, **sections: dict[str, Any]) -> Profile:
    base: dict[str, dict[str, Any]] = {
        "run": {"stage": stage},
        "data": {"format": "kto" if stage == "kto" else "preference", "eval_num_rows": 4},
        "train": {"max_steps": 2, "per_device_train_batch_size": 4, "warmup_steps": 0},
    }
    merged = base | {name: base.get(name, {}) | values for name, values in sections.items()}
    return make_profile(model, rows, **merged)


def own_log_prob(model: Any, view: RowView) -> float:
    ids = torch.tensor([[token.id for token in view.tokens]])
    with torch.no_grad():
        log_probs = model(input_ids=ids).logits[0].double().log_softmax(-1)
    return sum(float(log_probs[n - 1, token.id]) for n, token in enumerate(view.tokens) if token.is_target)


@pytest.mark.slow
@pytest.mark.parametrize("stage", ["dpo", "kto"])
def test_rows_that_a_run_has_measured_say_so_and_others_do_not(stage: str, model_folder: Path, tmp_path: Path) -> None:
    """Of twelve rows a run of two steps has measured eight and the four set aside; another length has none."""
    rows = preference_pairs(14) if stage == "dpo" else judged_answers(14)
    path = write_rows(tmp_path / "rows.jsonl", rows)
    profile = profile_of(stage, model_folder, path)
    unmeasured = view_row(to_toml(profile), "number", lambda detail: None)
    assert unmeasured.compared is not None and unmeasured.compared.has_reference
    assert {side.log_prob for side in unmeasured.compared.sides} == {None}
    run = Run(tmp_path / "run")
    assert attempt(run, profile) == 0
    other = profile_of(stage, model_folder, path, data={"max_length": 250})
    open_browser(to_toml(other), lambda detail: None)
    assert open_browser(to_toml(other), lambda detail: None).log_probs is None
    model = AutoModelForCausalLM.from_pretrained(model_folder, dtype=torch.float32).eval()
    told, sums = 0, []
    for number in range(14):
        parts = [view_row(to_toml(profile), "number", lambda detail: None, number=number, part=n) for n in (0, 1)]
        views = parts[: 2 if stage == "dpo" else 1]
        assert views[0].compared is not None
        log_probs = [side.log_prob for side in views[0].compared.sides]
        if None not in log_probs:
            told += 1
            sums.append([own_log_prob(model, view) for view in views])
            assert log_probs == pytest.approx(sums[-1], abs=1e-3)
    assert told == 12
    notes = [one.message for one in records(run, Noted) if "likelier" in one.message]
    findings = [one for one in browse_report(to_toml(profile), lambda detail: None).findings if one.unit == "pairs"]
    found = [(one.count, one.total) for one in findings if one.name == "likelier_rejected"]
    if stage == "kto":
        assert not notes and not found
        return
    number = sum(chosen < rejected for chosen, rejected in sums)
    assert found == ([(number, 12)] if number else [])
    assert len(notes) == 1 and " of 8 pairs (" in notes[0]


def test_pairs_are_compared_whole_and_per_token() -> None:
    sums = np.array([-10.0, -12.0, -10.0, -9.0, -4.0, -3.0, np.nan, -1.0, -5.0, -5.0])
    its = compare_sides(sums, np.array([5, 5, 5, 4, 4, 2, 3, 3, 5, 5]))
    assert its.is_measured.tolist() == [True, True, True, False, True]
    assert its.are_rejected.tolist() == [False, True, True, False, False]
    assert its.are_rejected_per_token.tolist() == [False, False, False, False, False]
    assert its.describe() == (
        "before training the rejected answer is the likelier one in 2 of 4 pairs (50%), per token in 0 (0%)"
    )
