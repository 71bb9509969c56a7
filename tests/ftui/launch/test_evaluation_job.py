"""What `ftui evaluate` checks before a process is asked: that a folder of results holds those of this evaluation."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from ftui.cli.main import main
from ftui.errors import UsageError
from ftui.launch.evaluation_job import RESULTS, SETTINGS, EvaluationOptions, PlannedEvaluation, plan_evaluation


@pytest.fixture
def plan(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., PlannedEvaluation]:
    """Evaluations of two models into the same folder."""
    monkeypatch.chdir(tmp_path)
    for name in ("first", "second"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "config.json").write_text("{}")
    for name, text in (("rows.jsonl", "a"), ("others.jsonl", "b")):
        (tmp_path / name).write_text(json.dumps({"text": text}) + "\n")
    Path("measures.py").write_text("def f(answer, row):\n    return 1.0\n")

    def plan(model: str = "first", data: str = "rows.jsonl", **options: Any) -> PlannedEvaluation:
        return plan_evaluation(Path(model), None, EvaluationOptions(data=Path(data), out=Path("out"), **options))

    return plan


def measured(planned: PlannedEvaluation) -> Path:
    planned.folder.mkdir()
    (planned.folder / SETTINGS).write_text(planned.request.settings)
    (planned.folder / RESULTS).write_text("")
    return planned.folder


@pytest.mark.parametrize(("options", "key"), [
    ({"model": "second"}, "model, profile, sides"), ({"data": "others.jsonl"}, "data, profile, sha256"),
    ({"num_rows": 3}, "num_rows"), ({"max_new_tokens": 8}, "max_new_tokens"),
    ({"measures": Path("measures.py"), "allow": ["measures"]}, "sha256"),
    ({"overrides": ("data.max_length=9",)}, "profile"),
])  # fmt: skip
def test_figures_of_another_evaluation_are_not_taken(
    plan: Callable[..., PlannedEvaluation], options: dict[str, Any], key: str
) -> None:
    folder = measured(plan())
    with pytest.raises(UsageError, match=rf"out holds another evaluation \(it differs in .*{key}") as caught:
        plan(**options)
    assert "another --out" in caught.value.hint
    assert plan().folder == plan(device="cpu").folder == folder, "it goes on, wherever it is computed"


def test_weights_that_were_trained_again_are_others(plan: Callable[..., PlannedEvaluation]) -> None:
    measured(plan())
    Path("first/model.safetensors").write_bytes(b"new")
    with pytest.raises(UsageError, match=r"differs in sides\)"):
        plan()


@pytest.mark.parametrize("settings", [None, "{", "[]"])
def test_rows_of_which_nothing_says_what_they_are(plan: Callable[..., PlannedEvaluation], settings: str | None) -> None:
    folder = measured(plan())
    (folder / SETTINGS).unlink()
    if settings is not None:
        (folder / SETTINGS).write_text(settings)
    with pytest.raises(UsageError, match=f"{SETTINGS} cannot be read"):
        plan()


@pytest.mark.parametrize("option", [
    ["--device", "cpu"], ["--max-new-tokens", "64"], ["--max-new-tokens", "256"], ["--allow", "measures"],
    ["--rows", "0"], ["--json"],
])  # fmt: skip
def test_a_run_in_progress_is_not_asked_where_rows_were_forgotten(
    option: list[str], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("ftui.cli.control.order", lambda verb, name: 0)
    assert main(["evaluate", "mine"]) == 0
    assert main(["evaluate", "mine", *option]) == UsageError.exit_code
    assert "There are no rows to evaluate on." in capsys.readouterr().err
