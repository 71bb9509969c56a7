"""What a sweep gives to others: the best profile with the origin of each value, a study that Optuna reads."""

import csv
import io
from collections.abc import Callable
from pathlib import Path

import optuna
import pytest

from ftui.cli.many.sweep_command import print_best, print_results
from ftui.errors import UsageError
from ftui.profile.layers import resolve
from ftui.sweep.repeats import is_no_difference, repeated_trials
from ftui.sweep.results.hand_over import best_profile, export_optuna
from ftui.sweep.results.sweep_results import csv_of, view_sweep
from ftui.sweep.sweep_files import SweepFiles, TrialAsked, TrialPromoted, TrialReached

MakeSweep = Callable[..., SweepFiles]


@pytest.fixture
def searched(make_sweep: MakeSweep) -> SweepFiles:
    """Three trials: one finished, one parked at its first rung, one that diverged."""
    files = make_sweep()
    with files.changing() as pen:
        for number, (rate, r) in enumerate([(1e-4, 8), (5e-5, 16), (1e-3, 32)]):
            point, derived = {"train.learning_rate": rate, "adapter.r": r}, {"adapter.lora_alpha": 2 * r}
            pen.write(TrialAsked(trial=number, point=point, derived=derived))
        pen.write(TrialReached(trial=0, rung=0, step=10, value=0.9, seconds=5.0))
        pen.write(TrialReached(trial=1, rung=0, step=10, value=0.8, seconds=5.0))
        pen.write(TrialReached(trial=2, rung=0, step=3, value=None, seconds=2.0, ended="diverged"))
        for rung, (step, value) in enumerate([(30, 0.7), (90, 0.6)], 1):
            pen.write(TrialPromoted(trial=1, rung=rung, attempts=rung))
            pen.write(TrialReached(trial=1, rung=rung, step=step, value=value, seconds=45.0))
    return files


def test_the_best_profile_says_where_its_values_come_from(searched: SweepFiles, tmp_path: Path) -> None:
    text = best_profile(view_sweep(searched))
    assert "run found-001, eval loss 0.6 at step 90" in text
    assert "learning_rate = 5e-05 # searched by random: trial 1 of 3" in text
    assert "lora_alpha = 32 # follows: 2 * adapter.r" in text
    assert "max_steps = 90 # the last rung" in text
    (tmp_path / "best.toml").write_text(text)
    profile = resolve(tmp_path / "best.toml").profile
    assert (profile.train.learning_rate, profile.adapter.r, profile.adapter.lora_alpha) == (5e-5, 16, 32)
    assert (profile.train.max_steps, profile.checkpoint.park_at_step) == (90, None)


def test_it_is_written_once(searched: SweepFiles, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert print_best("found", tmp_path / "best.toml") == 0
    assert f"ftui run {tmp_path / 'best.toml'}" in capsys.readouterr().out
    with pytest.raises(UsageError, match="exists"):
        print_best("found", tmp_path / "best.toml")


def test_optuna_reads_what_was_exported(searched: SweepFiles, tmp_path: Path) -> None:
    assert export_optuna(view_sweep(searched), tmp_path / "study.db") == 3
    study = optuna.load_study(study_name=None, storage=f"sqlite:///{tmp_path / 'study.db'}")
    assert study.best_value == 0.6 and study.best_params == {"train.learning_rate": 5e-5, "adapter.r": 16}
    states = [trial.state.name for trial in study.trials]
    assert states == ["PRUNED", "COMPLETE", "FAIL"]
    assert study.trials[1].intermediate_values == {10: 0.8, 30: 0.7, 90: 0.6}
    assert study.best_trial.user_attrs["run"] == "found-001"
    with pytest.raises(UsageError, match="exists"):
        export_optuna(view_sweep(searched), tmp_path / "study.db")


def test_results_as_tables(searched: SweepFiles, capsys: pytest.CaptureFixture[str]) -> None:
    rows = list(csv.DictReader(io.StringIO(csv_of(view_sweep(searched)))))
    assert [row["rank"] for row in rows] == ["2", "1", ""]
    assert (rows[1]["loss@10"], rows[1]["loss@90"], rows[0]["loss@90"]) == ("0.8", "0.6", "")
    assert rows[2]["standing"] == "diverged"
    assert print_results("found") == 0
    out = capsys.readouterr().out
    assert out.index("found-001") < out.index("found-000") < out.index("found-002")


@pytest.mark.parametrize(("values", "verdict"), [((0.61, 0.61, 0.63), True), ((0.9, 0.9, 0.91), False)])
def test_what_seeds_scatter_as_much_as_trials_differ_is_no_difference(
    make_sweep: MakeSweep, values: tuple[float, float, float], verdict: bool
) -> None:
    files = make_sweep(more="[repeat]\ntop = 2\nseeds = 3\n")
    with files.changing() as pen:
        for number, value in enumerate([0.6, values[0]]):
            pen.write(TrialAsked(trial=number, point={"train.learning_rate": 1e-4, "adapter.r": 8}, bracket=2))
            pen.write(TrialReached(trial=number, rung=2, step=90, value=value, seconds=1.0))
        for number, (of, value) in enumerate([(0, 0.62), (0, 0.61), (1, values[1]), (1, values[2])], 2):
            asked = TrialAsked(trial=number, point={}, derived={"train.seed": 43}, bracket=2, repeat_of=of)
            pen.write(asked)
            pen.write(TrialReached(trial=number, rung=2, step=90, value=value, seconds=1.0))
    view = view_sweep(files)
    best, other = repeated_trials(view.plan, view.ladder, view.state)
    assert (best.trial.number, len(best.values), len(other.values)) == (0, 3, 3)
    assert is_no_difference(other, best) == verdict
