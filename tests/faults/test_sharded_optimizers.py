"""Full fine-tuning of divided weights with each optimizer, accumulation and precision.

It trains as one process does, also where it goes on from a checkpoint, or the profile is refused before rows or weights
are read.

A few run always; `pytest tests/faults/test_sharded_optimizers.py --trials 1` tries the whole grid.
"""

from pathlib import Path
from typing import Any, get_args

import numpy as np
import pytest
from safetensors.numpy import load_file

from ftui.errors import ProfileError
from ftui.launch.open_run import create
from ftui.profile.layers import resolve
from ftui.profile.sections.optimizers import FROM_BITSANDBYTES, Optimizer
from ftui.runs.run_folder import Run
from ftui.supervisor.engine_process import LOST_RANK
from tests.faults.test_ranks import start_two
from tests.support.bench import Workbench, bench_at, resumed_from
from tests.support.driving import steps
from tests.support.tiny import column
from tests.support.zygote import Zygote, tail_of

pytestmark = pytest.mark.slow
REFUSED = ("adafactor", *FROM_BITSANDBYTES)
TRAINS = [name for name in get_args(Optimizer) if name not in REFUSED]
ARGS = {"sgd": "{momentum = 0.9, nesterov = true}", "rmsprop": "{momentum = 0.5, centered = true}"}
ALWAYS = {
    ("sgd", 1, "fp32", "all"), ("adagrad", 2, "bf16", "all"), ("rmsprop", 2, "fp32", "state"),
    ("adamw_torch", 2, "bf16", "state"),
}  # fmt: skip
WITHIN = {"fp32": 1e-5, "bf16": 2e-3, "fp16": 1e-3}
STEPS = 3


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    if "accumulation" in metafunc.fixturenames:
        grid = [(o, a, p, s) for o in TRAINS for a in (1, 2) for p in WITHIN for s in ("all", "state")]
        kept = grid if metafunc.config.getoption("trials") else [case for case in grid if case in ALWAYS]
        metafunc.parametrize(("optim", "accumulation", "precision", "shard"), kept)


def opened(bench: Workbench, name: str, *overrides: str) -> Run:
    run = bench.run(name)
    assert create(run, resolve(bench.profile(name, method="full"), overrides=overrides))
    return run


def keys(optim: str, accumulation: int, precision: str) -> tuple[str, ...]:
    """Two processes take `accumulation` rows each one by one, one process all of them: the same rows in each step."""
    args = (f"train.optim_args={ARGS[optim]}",) if optim in ARGS else ()
    return (
        f"train.optim={optim}", f"train.effective_batch={2 * accumulation}", "train.per_device_train_batch_size=1",
        f"train.precision={precision}", "train.learning_rate=2e-3", "train.lr_scheduler_type=constant",
        "train.warmup_steps=0", f"train.max_steps={STEPS}", "train.num_train_epochs=none",
        "train.gradient_accumulation_steps=1", "data.eval=none", "eval.sample_prompts=[]",
        f"checkpoint.save_steps={STEPS - 1}", *args,
    )  # fmt: skip


Tensors = dict[str, Any]


def far(one: Tensors, other: Tensors, base: Tensors | None = None) -> float:
    """How far two sets of tensors lie apart, as a share of the first (or of the way that it has gone from `base`)."""
    assert one.keys() == other.keys() and one
    moved = {name: value - base[name] for name, value in one.items()} if base else one
    return length({name: other[name] - value for name, value in one.items()}) / length(moved)


def length(tensors: Tensors) -> float:
    return float(np.sqrt(sum((value.astype(float) ** 2).sum() for value in tensors.values())))


def test_divided_weights_take_the_steps_of_one_process(
    optim: str, accumulation: int, precision: str, shard: str, bench_source: Path, memory: Path, zygote: Zygote
) -> None:
    bench, same = bench_at(bench_source, memory / "bench"), keys(optim, accumulation, precision)
    alone = opened(bench, "alone", *same)
    parts = opened(bench, "parts", *same, "hardware.num_processes=2", f"hardware.shard={shard}")
    assert zygote.start(alone, bench.env).wait() == 0, tail_of(alone)
    cut = start_two(zygote, bench, parts, hooks={"kill": ["optimizer", STEPS]}, victim=0)
    assert [engine.wait() for engine in cut] == [-9, LOST_RANK], tail_of(parts)
    assert [engine.wait() for engine in start_two(zygote, bench, parts, 2)] == [0, 0], tail_of(parts)
    assert resumed_from(parts) == f"checkpoints/checkpoint-{STEPS - 1}"
    one, two = (list({step.step: step for step in steps(run)}.values()) for run in (alone, parts))
    assert [step.attempt for step in two] == [*[1] * (STEPS - 1), 2] and len(one) == STEPS
    assert column(one, "num_tokens").tolist() == column(two, "num_tokens").tolist()
    within = WITHIN[precision]
    np.testing.assert_allclose(column(two, "loss"), column(one, "loss"), rtol=within)
    np.testing.assert_allclose(column(two, "grad_norm"), column(one, "grad_norm"), rtol=10 * within)
    base = load_file(bench.folder / "base" / "model.safetensors")
    weights, moments = (
        [load_file(run.checkpoints / f"checkpoint-{STEPS}" / name) for run in (alone, parts)]
        for name in ("model.safetensors", "resume/optimizer.safetensors")
    )
    assert far(weights[0], weights[1], base) < 10 * within
    assert moments[0].keys() == moments[1].keys()
    for kind in {name.partition(".")[2] for name in moments[0]}:
        own, other = ({name: value for name, value in of.items() if name.endswith(f".{kind}")} for of in moments)
        assert far(own, other) < (10 * within if kind != "step" else 1e-9), kind


@pytest.mark.parametrize("shard", ["all", "state"])
@pytest.mark.parametrize("optim", REFUSED)
def test_optimizers_of_whole_weights_are_refused_by_the_profile(
    optim: str, shard: str, bench_source: Path, memory: Path
) -> None:
    bench = bench_at(bench_source, memory / "bench")
    overrides = (*keys(optim, 1, "fp32"), "hardware.num_processes=2", f"hardware.shard={shard}")
    with pytest.raises(ProfileError, match=f'optim = "{optim}": it is built for whole weights only'):
        resolve(bench.profile("refused", method="full"), overrides=overrides)
    obeyed = "train.optim=adamw_torch_fused"
    assert resolve(bench.profile("obeyed", method="full"), overrides=(*overrides, obeyed))
