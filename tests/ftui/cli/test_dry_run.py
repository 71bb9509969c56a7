from pathlib import Path

import pytest

from ftui.cli import dry_run
from ftui.cli.dry_run import value_lines
from ftui.dataset.row_counts import RowCounts, count_lines
from ftui.errors import DataError, FtuiError
from ftui.profile.layers import ResolvedProfile, resolve
from ftui.runs.run_folder import runs_root
from ftui.text import toml_value
from tests.support.stand_in import answer_with, stand_in

COUNTS = {
    "num_train_rows": 800,
    "num_eval_rows": 80,
    "num_train_tokens": 123456,
    "num_target_tokens": 65432,
    "num_sequences": 800,
    "steps_per_epoch": 100,
    "max_steps": 400,
    "effective_batch": 8,
    "longest": 512,
    "num_cut": 3,
    "warnings": ["3 rows\x1b were cut"],
}


@pytest.fixture
def resolved(tmp_path: Path) -> ResolvedProfile:
    path = tmp_path / "p.toml"
    path.write_text('[run]\nstage = "sft"\n[model]\nname_or_path = "hub/\\u001bmodel"\n[data]\ntrain = "rows.jsonl"\n')
    overrides = ["train.seed=7", "adapter.target_modules=['q']", "eval.early_stopping_patience=none"]
    return resolve(path, overrides=overrides)


def test_every_key_has_its_value_and_origin(resolved: ResolvedProfile) -> None:
    lines = value_lines(resolved)
    assert lines[0] == f"profile {resolved.path}"
    assert "[train]" in lines and "[checkpoint]" in lines
    words = {line.split()[0]: line.split() for line in lines}
    assert words["stage"] == ["stage", '"sft"', "p.toml:2"]
    assert words["seed"] == ["seed", "7", "--set"]
    assert words["optim"] == ["optim", '"adamw_torch_fused"', "default"]
    assert words["max_grad_norm"][1] == "1.0"
    assert words["early_stopping_patience"] == ["early_stopping_patience", '"none"', "--set"]
    assert "\x1b" not in "".join(lines)


@pytest.mark.parametrize(
    ("value", "text"),
    [(None, '"none"'), (True, "true"), (1, "1"), (0.5, "0.5"), ("é", '"é"'), (("a", "b"), '["a", "b"]')],
)
def test_values_are_spelt_as_in_a_profile(value: object, text: str) -> None:
    assert toml_value(value) == text


def test_the_counts_come_from_the_engine(
    resolved: ResolvedProfile, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    answer_with(monkeypatch, {"answer": COUNTS})
    assert dry_run.preview(resolved) == 0
    output = capsys.readouterr().out
    assert "123,456" in output and "400" in output
    assert "warning: 3 rows\u241b were cut" in output
    assert not runs_root().exists()


def test_what_is_wrong_with_the_data_is_told_with_its_code(
    resolved: ResolvedProfile, monkeypatch: pytest.MonkeyPatch
) -> None:
    answer_with(monkeypatch, {"problem": {"message": "no rows", "hint": "add some", "exit_code": 31}})
    with pytest.raises(DataError, match="no rows") as refusal:
        dry_run.preview(resolved)
    assert refusal.value.hint == "add some"


def test_a_dry_run_that_crashes_shows_its_last_lines(
    resolved: ResolvedProfile, monkeypatch: pytest.MonkeyPatch
) -> None:
    stand_in(monkeypatch, "import sys; print('half', end=''); sys.exit('boom\\x1b')")
    with pytest.raises(FtuiError, match="boom") as failure:
        dry_run.preview(resolved)
    assert failure.value.exit_code == 70


def test_unknown_counts_are_not_zero() -> None:
    lines = count_lines(RowCounts(num_train_rows=5))
    assert lines[0].split()[-1] == "5"
    assert all(line.endswith("n/a") for line in lines[1:])
