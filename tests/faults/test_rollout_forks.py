"""Children of runs that sample their answers, from a checkpoint between two steps on one rollout, in whole programs."""

from pathlib import Path

import pytest

from ftui.launch.fork import find_origin, fork
from ftui.launch.open_run import create
from ftui.profile.layers import resolve
from ftui.runs.events import RunStarted, Step
from ftui.runs.journal import Tail
from ftui.runs.run_folder import Run
from tests.support.bench import Workbench, bench_at, records
from tests.support.cuts import Life, watch_to_end
from tests.support.drawn_runs import BENCH, BY_MODEL, NORMALISED, STEERED, prepare_prompts
from tests.support.sameness import measured, rollouts_of, same_weights
from tests.support.zygote import Zygote

OVERRIDES = {
    "grpo": ("grpo.steps_per_generation=3", "grpo.num_iterations=2", "grpo.beta=0.1"),
    "ppo": (*STEERED, *NORMALISED, *BY_MODEL, "ppo.num_mini_batches=3"),
}
OTHERS = {"grpo": ["grpo.temperature=0.5"], "ppo": ["ppo.kl_coef=0.5"]}
COMMON = ("eval.sample_prompts=[]", "train.warmup_steps=0", "checkpoint.save_steps=4", "checkpoint.save_total_limit=20")
MIDDLE = 8
"""A step in the middle of a rollout, which lasts for six steps: two passes over three."""


@pytest.fixture
def trials(request: pytest.FixtureRequest) -> None:
    if not request.config.getoption("--trials"):
        pytest.skip("with --trials only: new interpreters, whose engine does what another test shows")


@pytest.fixture(params=OVERRIDES)
def parent(request: pytest.FixtureRequest, bench_source: Path, memory: Path, zygote: Zygote) -> Life:
    """A run that nobody touched, at its end."""
    bench, stage = bench_at(bench_source, memory / "bench"), request.param
    run = bench.run("parent")
    overrides = [*prepare_prompts(bench, stage, "lora"), *OVERRIDES[stage], *COMMON]
    overrides = [one.replace(BENCH, str(bench.folder)) for one in overrides]
    assert create(run, resolve(bench.profile("parent"), overrides=overrides))
    life = Life(bench, run, zygote)
    watch_to_end(life)
    return life


def same_from(middle: int, child: Run, run: Run) -> None:
    """All that the child has measured is what its parent measured after that step, and so is what it made."""
    assert measured(child) == {step: figures for step, figures in measured(run).items() if step > middle}
    same_weights(child.final, run.final)
    own, others = rollouts_of(child), rollouts_of(run)
    assert own and own == {name: others[name] for name in own}


@pytest.mark.slow
def test_a_child_in_the_middle_of_a_rollout_is_its_parent(parent: Life, zygote: Zygote) -> None:
    """Also where it is killed as it samples; with other values it goes a way of its own from its first step on."""
    bench, run = parent.bench, parent.run
    origin = find_origin(run, f"checkpoint-{MIDDLE}")
    child, differences = fork(origin, resolve(run.profile), "child", may_differ=False)
    assert not differences
    life = Life(bench, child, zygote)
    assert life.start({"kill": ["generating", 9]}).wait() == -9
    assert life.start().wait() == 0
    same_from(MIDDLE, child, run)

    stage = resolve(run.profile).profile.run.stage
    other = resolve(run.profile, overrides=OTHERS[stage])
    forked, differences = fork(origin, other, "other", may_differ=True)
    assert differences
    assert zygote.start(forked, bench.env).wait() == 0
    begun, first = (next(r for r in log(forked) if isinstance(r, kind)) for kind in (RunStarted, Step))
    assert isinstance(begun, RunStarted) and begun.reproducibility == "NOT EXACT"
    assert isinstance(first, Step) and first.step == MIDDLE + 1
    assert first.extras.get("objective/kl_coef", 0.5) == 0.5, "not the coefficient that its parent was steered to"
    assert measured(forked)[MIDDLE + 1] != measured(run)[MIDDLE + 1]


def log(run: Run) -> list[object]:
    return [*records(run), *Tail(run.metrics).read()]


@pytest.mark.slow
@pytest.mark.parametrize("parent", ["ppo"], indirect=True)
def test_the_command_resumes_from_a_checkpoint(trials: None, parent: Life) -> None:
    bench: Workbench = parent.bench
    result = bench.ftui("resume", "parent", "--from", str(MIDDLE), "--name", "told")
    assert result.returncode == 0, result.stderr
    same_from(MIDDLE, bench.run("told"), parent.run)
