"""Reward functions that misbehave in whole runs of stages grpo and ppo: the run goes on, or pauses with words."""

from pathlib import Path

import psutil
import pytest

from ftui.launch.open_run import create
from ftui.profile.consent import keep_consents
from ftui.profile.layers import resolve
from ftui.runs.events import ControlApplied, PhaseChanged, Warned
from ftui.runs.records.rollout_records import RolloutMade
from tests.support.bench import bench_at, records
from tests.support.cuts import Life, answer
from tests.support.drawn_runs import BENCH, prepare_prompts
from tests.support.sameness import measured
from tests.support.zygote import Zygote

CODE = """
import os, pathlib, sys, time
folder = pathlib.Path({folder!r})
def bad(completions, **_):
    calls = folder / "calls"
    number = int(calls.read_text()) + 1
    calls.write_text(str(number))
    good = [float(len(one) % 3) for one in completions]
    match number:
        case 1:
            raise KeyError("no such thing")
        case 11:
            if os.fork() == 0:
                (folder / "forked").write_text(str(os.getpid()))
                time.sleep(600)
        case 3:
            if os.fork() == 0:
                return good  # twice
        case 4:
            sys.stdout.write("x" * 10_000_000)
        case 5:
            return [float("nan"), *good[1:]]
        case 6:
            return [None, *good[1:]]
        case 7:
            time.sleep(600)
        case 8:
            return good[1:]
        case 9:
            return None
        case 10:
            os._exit(3)
    return good
"""
OVERRIDES = {"grpo": ("train.max_steps=12",), "ppo": ("train.max_steps=24",)}
WARNINGS = [
    "reward bad fails (FILE, line 11): KeyError: 'no such thing': these 4 answers go without it",
    "reward bad gave NaN or infinity for 1 of 4 answers: not counted",
    "reward bad gave no answer in 1.5 s: these 4 answers go without it",
    "reward bad ended with exit code 3: these 4 answers go without it",
]
PAUSES = ["Reward bad gives 3 rewards for 4 answers.", "Reward bad gives None, and not a list of 4 rewards."]


@pytest.mark.slow
@pytest.mark.parametrize("stage", OVERRIDES)
def test_a_run_outlives_a_function_that_does_all_of_it(
    stage: str, bench_source: Path, memory: Path, zygote: Zygote, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It raises, forks and answers twice, prints 10 MB, gives NaN and None, sleeps, gives too few and nothing at all,
    exits, and leaves a child behind."""
    bench = bench_at(bench_source, memory / "bench")
    code = bench.folder / "rewards.py"
    code.write_text(CODE.format(folder=str(bench.folder)))
    (bench.folder / "calls").write_text("0")
    profile = bench.profile("judged")
    profile.write_text(profile.read_text().replace("num_train_epochs = 3\n", ""))
    rewards = (f'rewards.reward_funcs=["{code}:bad", "format"]', "rewards.timeout_seconds=1.5")
    overrides = [*prepare_prompts(bench, stage, "lora"), *OVERRIDES[stage], *rewards, "eval.sample_prompts=[]"]
    resolved = resolve(profile, overrides=[one.replace(BENCH, str(bench.folder)) for one in overrides])
    life = Life(bench, bench.run("judged"), zygote)
    assert create(life.run, resolved)
    monkeypatch.setenv("XDG_STATE_HOME", bench.env["XDG_STATE_HOME"])
    keep_consents(resolved.profile, life.run.read_facts().run_id)

    engine = life.start()
    for number in range(1, len(PAUSES) + 1):
        while len([r for r in records(life.run) if is_pause(r)]) < number:
            assert engine.poll() is None, "it has ended"
            engine.wait_a_little()
        assert isinstance(answer(life, engine, life.send("continue")), ControlApplied)
    assert engine.wait() == 0
    found = records(life.run)
    paused = [r.detail for r in found if isinstance(r, PhaseChanged) and is_pause(r)]
    assert [words.split(" `ftui continue")[0] for words in paused] == PAUSES
    warned = [r.message.replace(str(code), "FILE") for r in found if isinstance(r, Warned) and "reward" in r.message]
    assert warned == WARNINGS
    made = [r for r in found if isinstance(r, RolloutMade)]
    assert len(made) == 12 and int((bench.folder / "calls").read_text()) == 12 + len(PAUSES)
    assert max(measured(life.run)) == resolved.profile.train.max_steps
    assert (
        life.run.rewards_log.stat().st_size < 400_000
        and b"prints more than is kept" in life.run.rewards_log.read_bytes()
    )
    assert is_gone(int((bench.folder / "forked").read_text()))


def is_gone(pid: int) -> bool:
    try:
        return psutil.Process(pid).status() == psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return True


def is_pause(record: object) -> bool:
    return isinstance(record, PhaseChanged) and record.phase == "held"
