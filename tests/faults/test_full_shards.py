"""Full fine-tuning of weights that two ranks share: the run is that of two ranks that each have all of them."""

import signal
from collections import Counter
from functools import partial
from pathlib import Path
from typing import Any, cast

import numpy as np
import pytest
import torch
from safetensors.numpy import load_file
from transformers import AutoModelForCausalLM

from ftui.errors import PARKED, PREEMPTED_SAVED
from ftui.launch.open_run import create, resume
from ftui.profile.layers import resolve
from ftui.runs.events import RunStarted
from ftui.runs.requests import Park, new_id, write_request
from ftui.runs.run_folder import Run
from ftui.supervisor.engine_process import LOST_RANK
from tests.faults.test_ranks import GENERATE, TWO, start_two
from tests.faults.test_shards import measured
from tests.support.bench import Workbench, bench_at, newest, records, resumed_from
from tests.support.driving import steps, wait_until
from tests.support.pickle_watch import MEANT
from tests.support.sameness import same_runs
from tests.support.zygote import Hooks, Zygote, tail_of

FULL = ("train.learning_rate=2e-3", "train.max_steps=20", "train.num_train_epochs=none", *TWO)
UNEVEN = ("train.per_device_train_batch_size=1", "train.effective_batch=3", "train.activation_checkpointing=true")
pytestmark = pytest.mark.slow


def opened_full(bench: Workbench, name: str, *overrides: str) -> Run:
    run = bench.run(name)
    assert create(run, resolve(bench.profile(name, method="full"), overrides=(*FULL, *overrides)))
    return run


def train(zygote: Zygote, bench: Workbench, run: Run, attempt: int = 1, size: int = 2) -> None:
    engines = start_two(zygote, bench, run, attempt, size=size)
    assert [engine.wait() for engine in engines] == [0] * size, tail_of(run)


def has_taken(run: Run, attempt: int, number: int) -> bool:
    return [step.attempt for step in steps(run)].count(attempt) == number


def same_losses(run: Run, expected: Run, *, within: float = 1e-5) -> None:
    one, two = ({step.step: step for step in steps(each)} for each in (expected, run))
    assert one.keys() == two.keys() and len(one) == 20
    for number, step in one.items():
        assert two[number].loss == pytest.approx(step.loss, rel=within), number
        assert two[number].grad_norm == pytest.approx(step.grad_norm, rel=10 * within), number


@pytest.mark.parametrize(
    ("shard", "more"), [("all", UNEVEN), ("state", ("eval.load_best_model_at_end=true", "train.max_grad_norm=0.5"))]
)
def test_divided_weights_train_as_whole_ones(
    shard: str, more: tuple[str, ...], bench_source: Path, memory: Path, zygote: Zygote
) -> None:
    """Also with a rank that has a row less than the other in each step. The result is one for transformers."""
    bench = bench_at(bench_source, memory / "bench")
    whole = opened_full(bench, "whole", *GENERATE, *more)
    parts = opened_full(bench, "parts", *GENERATE, *more, f"hardware.shard={shard}")
    for run in (whole, parts):
        train(zygote, bench, run)
    same_losses(parts, whole)
    assert len(measured(parts)) == len(measured(whole)) > 3
    loaded, info = cast(Any, AutoModelForCausalLM).from_pretrained(parts.final, output_loading_info=True)
    assert not any(info.values()), "each weight has its place and its shape"
    stored = load_file(parts.final / "model.safetensors")
    assert {weight.dtype for weight in loaded.parameters()} == {torch.float32}
    for name, weight in loaded.named_parameters():
        np.testing.assert_array_equal(weight.detach().numpy(), stored[name], err_msg=name)
    for folder in (whole.final, whole.checkpoints / "checkpoint-20"):
        other = parts.folder / folder.relative_to(whole.folder)
        names = sorted(path.relative_to(folder) for path in folder.rglob("*.safetensors"))
        assert names == sorted(path.relative_to(other) for path in other.rglob("*.safetensors"))
        one, two = (load_file(place / "model.safetensors") for place in (folder, other))
        assert one.keys() == two.keys()
        for name, tensor in one.items():
            np.testing.assert_allclose(two[name], tensor, atol=2e-4, err_msg=name)
        assert (other / "config.json").read_bytes() == (folder / "config.json").read_bytes()


def test_divided_weights_resume_exactly_and_at_other_sizes(bench_source: Path, memory: Path, zygote: Zygote) -> None:
    """Killed on one rank, then on the other; and parked, whole on one rank for a while, divided in the other way and
    pre-empted, and by three ranks in the end, one of which has two rows of a step's four."""
    bench = bench_at(bench_source, memory / "bench")
    divided = "hardware.shard=all"
    straight, cut = opened_full(bench, "straight", divided), opened_full(bench, "cut", divided)
    train(zygote, bench, straight)
    for attempt, (victim, place) in enumerate([(1, ["backward", 7]), (0, ["optimizer", 5])], start=1):
        engines = start_two(zygote, bench, cut, attempt, hooks={"kill": place}, victim=victim)
        assert [engine.wait() for engine in engines] == [-9 if r == victim else LOST_RANK for r in (0, 1)], tail_of(cut)
    expected = newest(cut)
    train(zygote, bench, cut, 3)
    assert resumed_from(cut) == expected is not None
    assert next(r for r in reversed(records(cut)) if isinstance(r, RunStarted)).reproducibility == "EXACT"
    same_runs(cut, straight)

    moved, gate = opened_full(bench, "moved", divided), bench.folder / "gate"
    lives: list[tuple[int, str, Hooks, list[int]]] = [
        (2, "all", {"gate": ["updating", str(gate), 7]}, [PARKED, 0]),
        (1, "none", {"kill": ["backward", 6]}, [-9]),
        (2, "state", {"gate": ["updating", str(gate), 2]}, [PREEMPTED_SAVED, 0]),
        (3, "all", {}, [0, 0, 0]),
    ]
    for attempt, (size, mode, hooks, codes) in enumerate(lives, start=1):
        keys = (f"hardware.num_processes={size}", f"hardware.shard={mode}")
        resume(moved, resolve(moved.profile, overrides=keys).profile)
        gate.write_text("0")
        saved = newest(moved)
        engines = start_two(zygote, bench, moved, attempt, hooks=hooks, victim=0, size=size)
        if "gate" in hooks:
            wait_until(partial(has_taken, moved, attempt, int(hooks["gate"][2]) - 1))
            if codes[0] == PARKED:
                write_request(moved, Park(id=new_id(), attempt=attempt, token=f"t{attempt}"))
            else:
                engines[0].kill(signal.SIGTERM)
            gate.write_text("99")
        assert [engine.wait() for engine in engines] == codes, tail_of(moved)
        assert resumed_from(moved) == saved
        if "gate" in hooks:
            assert newest(moved) == f"checkpoints/checkpoint-{steps(moved)[-1].step}"
    same_losses(moved, straight)
    started = [r for r in records(moved) if isinstance(r, RunStarted)]
    assert [start.reproducibility for start in started] == [None, *["SAME STATE"] * 3]
    assert "shard: all -> none" in started[1].reproducibility_reasons
    assert any(reason.startswith("processes: 2 -> 3 (") for reason in started[3].reproducibility_reasons)
    one, two = ({step.step: step for step in steps(run)} for run in (straight, moved))
    for first in (min(number for number, step in two.items() if step.attempt == attempt) for attempt in (2, 3, 4)):
        assert two[first].loss == pytest.approx(one[first].loss, rel=1e-6), first
    assert sum(step.attempt == 4 for step in two.values()) >= 10, "steps of three ranks"


def test_ranks_write_and_read_no_pickle(bench_source: Path, memory: Path, zygote: Zygote) -> None:
    """Neither in a file nor among each other: from before they meet until they end, over a save and a resume."""
    bench = bench_at(bench_source, memory / "bench")
    run, seen = opened_full(bench, "watched", "hardware.shard=all", "train.max_steps=5"), bench.folder / "seen"
    lives: list[tuple[Hooks, list[int]]] = [({"kill": ["backward", 5]}, [-9, -9]), ({}, [0, 0])]
    for attempt, (hooks, codes) in enumerate(lives, start=1):
        watch: Hooks = {"watch_pickle": [str(seen)], **hooks}
        engines = start_two(zygote, bench, run, attempt, hooks=watch, victim=None)
        assert [engine.wait() for engine in engines] == codes, tail_of(run)
    assert resumed_from(run) == "checkpoints/checkpoint-4"
    found = [line.split()[0] for line in seen.read_text().splitlines()]
    assert Counter(found) == Counter(MEANT * 4), seen.read_text()
    files = [path for folder in (run.checkpoints, run.final) for path in folder.rglob("*") if path.is_file()]
    assert {path.suffix for path in files} == {".safetensors", ".json", ".jinja", ".md"}
