"""Runs cut up to eight times by anything that can cut a run: they end bit for bit like one that nobody touched.

A few trials run always; `pytest tests/faults/test_cuts.py --trials 100` draws a hundred, every second of them with a
stage, a method, an optimizer, one or two ranks and what these share drawn, too. The id of one (`lora-16`) is its
configuration and seed: `--trials 1 --first-seed 16 -k lora` draws the same schedule again. `-k "grpo or ppo"` are those
that sample their answers.
"""

import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

import pytest

from ftui.launch.open_run import create
from ftui.profile.layers import resolve
from ftui.runs.events import ControlApplied
from ftui.runs.journal import Writer
from ftui.runs.run_folder import Run
from tests.faults.conftest import Account
from tests.support.bench import STAGES, Workbench, bench_at, compare_answers, records
from tests.support.cuts import (
    OF_ROLLOUTS,
    Act,
    Gate,
    Life,
    Part,
    answer,
    carry_out,
    check_requests,
    schedule,
    watch_to_end,
)
from tests.support.drawn_runs import (
    BENCH,
    BY_MODEL,
    NORMALISED,
    OF_STAGES,
    STEERED,
    DrawnRun,
    draw_run,
    prepare_prompts,
    prepare_rows,
)
from tests.support.sameness import executed, measured, same_runs
from tests.support.zygote import Zygote, tail_of

SAVE_STEPS = 4
MOST_AGAIN = 2 * SAVE_STEPS  # steps after a kill: a save that was under way is lost, too, and the next waits for it
FRESH = ("lora", "full", "packing")  # whose reference comes from an interpreter of its own


@dataclass(frozen=True)
class Configuration:
    """`request`: a `set` sent before the first cut. `killed_in`: where the first attempt dies, and in which pass."""

    method: str = "full"
    packing: bool = False
    overrides: tuple[str, ...] = ()
    request: bool = False
    killed_in: tuple[str, int] | None = None
    stage: str = "sft"


CONFIGURATIONS = {
    "lora": Configuration("lora"),
    "full": Configuration(),
    "packing": Configuration(packing=True),
    "by_length": Configuration(overrides=("train.train_sampling_strategy=group_by_length",)),
    "linear": Configuration("lora", overrides=("train.lr_scheduler_type=linear", "train.warmup_steps=5")),
    "cosine": Configuration(overrides=("train.lr_scheduler_type=cosine", "train.warmup_steps=0.3")),
    "warmup": Configuration("lora", overrides=("train.lr_scheduler_type=constant_with_warmup", "train.warmup_steps=9")),
    "early": Configuration(
        overrides=("eval.early_stopping_patience=3", "eval.early_stopping_threshold=1000"),
        killed_in=("optimizer", 17),  # two evaluations into the patience
    ),
    "factor": Configuration("lora", request=True),
    "qlora": Configuration("qlora", overrides=("train.optim=paged_adamw_8bit", "train.neftune_noise_alpha=5")),
    "curriculum": Configuration("lora", overrides=STAGES),
    "fp16": Configuration(overrides=("train.precision=fp16", "train.optim=adafactor")),
    "dpo": Configuration("lora", packing=True, stage="dpo", killed_in=("measuring", 4)),
    "kto": Configuration("full", overrides=("data.padding_free=true",), stage="kto", killed_in=("measuring", 30)),
    "dpo_evaluation": Configuration("full", stage="dpo", killed_in=("evaluation", 2)),
    "dpo_joined": Configuration("qlora", overrides=("data.padding_free=true",), stage="dpo", request=True),
    "rm": Configuration("lora", packing=True, stage="rm"),
    "grpo": Configuration(
        "lora",
        stage="grpo",
        overrides=("grpo.steps_per_generation=3", "grpo.num_iterations=2", "grpo.beta=0.1"),
        killed_in=("generating", 5),
    ),
    "grpo_each": Configuration("full", stage="grpo", killed_in=("scoring", 4)),
    "grpo_qlora": Configuration(
        "qlora",
        stage="grpo",
        overrides=("grpo.steps_per_generation=3", "grpo.importance_sampling_level=sequence"),
        killed_in=("rollout", 3),
    ),
    "grpo_dynamic": Configuration(
        "lora",
        stage="grpo",
        overrides=("grpo.dynamic_sample=true", "grpo.max_resample_times=2", "grpo.steps_per_generation=3"),
        killed_in=("scoring", 3),
    ),
    "ppo": Configuration(
        "lora", stage="ppo", overrides=(*STEERED, *NORMALISED, "ppo.num_mini_batches=3"), killed_in=("values", 5)
    ),
    "ppo_by_model": Configuration("lora", stage="ppo", overrides=BY_MODEL, killed_in=("scoring", 3)),
    "ppo_full": Configuration(
        "full", stage="ppo", overrides=("ppo.whiten_rewards=true", *BY_MODEL), killed_in=("generating", 9)
    ),
    "ppo_qlora": Configuration(
        "qlora",
        stage="ppo",
        overrides=(*STEERED, *NORMALISED, *BY_MODEL, "ppo.kl_estimator=k3"),
        killed_in=("rollout", 2),
    ),
    "kto_packed": Configuration("lora", packing=True, stage="kto", killed_in=("evaluation", 2)),
}
ALWAYS = [
    ("lora", 3), ("full", 1), ("packing", 2), ("by_length", 4), ("fp16", 5), ("cosine", 6), ("warmup", 7),
    ("early", 8), ("factor", 9), ("qlora", 10), ("curriculum", 11), ("dpo", 12), ("kto", 13),
    ("rm", 14), ("ppo", 15), ("grpo", 16), ("drawn41", 62),
]  # fmt: skip


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    if "seed" not in metafunc.fixturenames:
        return
    trials, first = metafunc.config.getoption("trials"), metafunc.config.getoption("first_seed")
    names = list(CONFIGURATIONS)
    drawn = [
        (f"drawn{seed // 2}" if seed % 2 else names[seed // 2 % len(names)], seed, 8)
        for seed in range(first, first + trials)
    ]
    cases = drawn or [(name, seed, 3) for name, seed in ALWAYS]
    metafunc.parametrize(("name", "seed", "most"), cases, ids=[f"{_title(name)}-{seed}" for name, seed, _ in cases])


def _title(name: str) -> str:
    return name if name in CONFIGURATIONS else f"{name}_{stage_of(name)}"


def stage_of(name: str) -> str:
    """That of a configuration, or of a run that is drawn by its number."""
    found = CONFIGURATIONS.get(name)
    return drawn_as(name).stage if found is None else found.stage


def kind_of(name: str) -> str:
    """Stage, method and ranks of a configuration, or of a run that is drawn."""
    if (found := CONFIGURATIONS.get(name)) is not None:
        return f"{found.stage}, {found.method}"
    drawn = drawn_as(name)
    ranks = "" if drawn.size == 1 else f", {drawn.size} ranks, shard {drawn.shard}"
    return f"{drawn.stage}, {drawn.method}{ranks}"


@dataclass
class References:
    """Runs that nobody touched, each made once."""

    source: Path
    folder: Path
    zygote: Zygote

    def run(self, name: str, changes: tuple[tuple[int, float], ...] = ()) -> Run:
        """That of a configuration; `changes`: factors of the learning rate, and the step after which each came."""
        place = self.folder / "-".join([name, *(f"{step}x{factor}" for step, factor in changes)])
        if place.exists():
            return Run(place / "runs" / name)
        bench = bench_at(self.source, place)
        run = make_run(bench, name)
        if changes:
            journal = Writer(run.journal)
            for step, factor in changes:
                settings = {"learning_rate_factor": factor}
                journal.write(ControlApplied(request="", verb="set", step=step, settings=settings))
            journal.close()
        if name in FRESH:
            command = [sys.executable, "-P", "-m", "ftui.engine", str(run.folder)]
            subprocess.run(command, env=bench.env | {"PYTHONHASHSEED": "4711"}, check=True, timeout=300)
        else:
            assert Life(bench, run, self.zygote, size_of(name)).start().wait() == 0, tail_of(run)
        return run


@pytest.fixture(scope="module")
def references(bench_source: Path, tmp_path_factory: pytest.TempPathFactory, zygote: Zygote) -> References:
    return References(bench_source, tmp_path_factory.mktemp("references"), zygote)


def make_run(bench: Workbench, name: str) -> Run:
    if (configuration := CONFIGURATIONS.get(name)) is None:
        return make_drawn_run(bench, name)
    profile = bench.profile(name, method=configuration.method, packing=configuration.packing)
    run, overrides = bench.run(name), configuration.overrides
    if configuration.stage in OF_STAGES:
        overrides = (*prepare_prompts(bench, configuration.stage, configuration.method), *overrides)
    elif configuration.stage != "sft":
        overrides = (*overrides, *compare_answers(bench, configuration.stage, method=configuration.method))
    assert create(run, resolve(profile, overrides=[one.replace(BENCH, str(bench.folder)) for one in overrides]))
    return run


def size_of(name: str) -> int:
    """How many ranks train a configuration."""
    return 1 if name in CONFIGURATIONS else drawn_as(name).size


def drawn_as(name: str) -> DrawnRun:
    return draw_run(int(name.removeprefix("drawn")))


def make_drawn_run(bench: Workbench, name: str) -> Run:
    drawn = drawn_as(name)
    print(drawn, *drawn.overrides)
    profile = bench.profile(name, method=drawn.profile_method, packing=drawn.packing)
    run = bench.run(name)
    overrides = [*prepare_rows(bench, drawn), *drawn.overrides]
    assert create(run, resolve(profile, overrides=[one.replace(BENCH, str(bench.folder)) for one in overrides]))
    return run


def test_cut_anywhere_and_the_same_in_the_end(
    bench_source: Path, memory: Path, zygote: Zygote, references: References, account: Account,
    name: str, seed: int, most: int,
) -> None:  # fmt: skip
    bench = bench_at(bench_source, memory / "bench")
    configuration = CONFIGURATIONS.get(name, Configuration())
    places = OF_ROLLOUTS if stage_of(name) in OF_STAGES else {}
    size = size_of(name)
    life, parts = Life(bench, make_run(bench, name), zygote, size), schedule(seed, most, places, size=size)
    print(f"{name}, seed {seed}:", *parts, sep="\n")
    account.name = f"{name}-{seed}"
    account.row = f"lives: {kind_of(name)}"
    account.figures.update(trials=1, failed=1)
    if configuration.request:
        change_rate(life)
    if killed_in := configuration.killed_in:
        carry_out(life, Part((), Act("place"), killed_in))
    if not any(carry_out(life, part) for part in parts):  # up to the one that was too late to cut anything
        watch_to_end(life)
    account.figures.update(attempts=life.number, kills=life.kills, requests=len(life.requests))
    check_requests(life)
    changes = changes_of(life.run)
    reference = references.run(name, changes)
    total = max(measured(reference))
    account.figures.update(steps=total, again=executed(life.run) - total)
    assert executed(life.run) <= total + life.kills * MOST_AGAIN
    same_runs(life.run, reference)
    for step, figures in measured(references.run(name)).items():
        factor = next((factor for before, factor in reversed(changes) if step > before), 1.0)
        assert measured(life.run)[step][2] == figures[2] * factor
    del account.figures["failed"]


def change_rate(life: Life) -> None:
    """The first attempt: halve the learning rate in the middle of it, and kill it before the next checkpoint."""
    gate = Gate(life.bench.folder / "gate", 11)  # two micro-batches a step: five steps are done
    engine = life.start(gate.hooks)
    while engine.poll() is None and not (measured(life.run) and max(measured(life.run)) >= 5):
        engine.wait_a_little()
    identity = life.send("set", learning_rate_factor=0.5)
    gate.let_through(2)
    assert answer(life, engine, identity) is not None
    engine.kill(9)
    life.kills += engine.wait() == -9


def changes_of(run: Run) -> tuple[tuple[int, float], ...]:
    """Every factor that a request has set, and the step after which it counts."""
    found = [r for r in records(run) if isinstance(r, ControlApplied)]
    return tuple((r.step, r.settings["learning_rate_factor"]) for r in found if r.settings)


def test_early_stopping_does_stop_early(references: References) -> None:
    assert max(measured(references.run("early"))) == 20, "the fourth evaluation, whatever the losses are"


def test_a_schedule_is_drawn_from_its_seed() -> None:
    assert schedule(5, 8) == schedule(5, 8) != schedule(6, 8)
    assert Part((), Act("end")) not in schedule(5, 8)
