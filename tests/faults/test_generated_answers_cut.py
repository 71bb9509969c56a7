"""A run that answers evaluation rows, killed while it does: resumed, it answers the same, and chooses the same."""

from pathlib import Path

from ftui.launch.open_run import create
from ftui.profile.layers import resolve
from ftui.runs.events import EvaluationDone
from ftui.runs.run_folder import Run
from tests.support.bench import bench_at, records
from tests.support.cuts import Life
from tests.support.sameness import same_runs
from tests.support.zygote import Zygote

GENERATES = (
    "eval.generate=true", "eval.generate_max_new_tokens=8", 'eval.metric_for_best_model="token_f1"',
    "train.num_train_epochs=2",
)  # fmt: skip


def figures(run: Run) -> dict[int, EvaluationDone]:
    """What the last attempt to evaluate each step measured."""
    return {record.step: record for record in records(run) if isinstance(record, EvaluationDone)}


def answers(run: Run) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in run.evaluations.iterdir()}


def test_killed_while_it_answers_and_the_same_in_the_end(bench_source: Path, memory: Path, zygote: Zygote) -> None:
    lives = []
    for name in ("killed", "whole"):
        bench = bench_at(bench_source, memory / name)
        run = bench.run(name)
        assert create(run, resolve(bench.profile(name), overrides=GENERATES))
        lives.append(Life(bench, run, zygote))
    killed, whole = lives
    number = len((killed.bench.folder / "held_out.jsonl").read_text().splitlines())
    assert killed.start({"kill": ["answer", 2]}).wait() == -9  # before the first step
    assert len(answers(killed.run)["step-0.jsonl"].splitlines()) == 2
    assert killed.start({"kill": ["answer", 2 * number + 1]}).wait() == -9
    assert len(answers(killed.run)["step-10.jsonl"].splitlines()) == 1
    assert killed.start().wait() == 0
    assert whole.start().wait() == 0
    same_runs(killed.run, whole.run)
    ours, theirs = figures(killed.run), figures(whole.run)
    assert {step: (one.extras, one.best) for step, one in ours.items()} == {
        step: (one.extras, one.best) for step, one in theirs.items()
    }
    assert len(theirs[20].extras) > 6
    assert answers(killed.run) == answers(whole.run)
