"""A base that two ranks share: the run is that of two ranks that each have all of it, whatever happens to it."""

from pathlib import Path

import numpy as np
import pytest
from safetensors.numpy import load_file

from ftui.runs.events import EvaluationDone, Sampled
from ftui.runs.run_folder import Run
from tests.faults.test_ranks import GENERATE, TWO, opened, start_two
from tests.support.bench import bench_at, records
from tests.support.driving import steps
from tests.support.tiny import column
from tests.support.zygote import Zygote, tail_of

ALL = (*TWO, "hardware.shard=all")


@pytest.mark.parametrize(
    ("method", "more"),
    [
        ("lora", ()),
        ("lora", ("train.precision=bf16", "model.dtype=bfloat16")),
        ("qlora", ("train.activation_checkpointing=true",)),
    ],
)
def test_a_sharded_base_trains_as_a_whole_one(
    method: str, more: tuple[str, ...], bench_source: Path, memory: Path, zygote: Zygote
) -> None:
    bench = bench_at(bench_source, memory / "bench")
    bench.profile("whole", method=method), bench.profile("parts", method=method)
    keys = (f"adapter.method={method}", *GENERATE, *more)
    whole, parts = opened(bench, "whole", *keys, *TWO), opened(bench, "parts", *keys, *ALL)
    for run in (whole, parts):
        assert [engine.wait() for engine in start_two(zygote, bench, run)] == [0, 0], tail_of(run)
    one, two = steps(whole), steps(parts)
    assert len(one) == len(two) == 30
    for name in ("loss", "grad_norm"):
        np.testing.assert_allclose(column(two, name), column(one, name), rtol=0, atol=1e-6, err_msg=name)
    assert measured(parts) == measured(whole)
    weights = [load_file(run.final / "adapter_model.safetensors") for run in (whole, parts)]
    for name, tensor in weights[0].items():
        np.testing.assert_array_equal(weights[1][name], tensor, err_msg=name)


def measured(run: Run) -> list[object]:
    """Evaluations and samples, but for their times."""
    seen: list[object] = []
    for record in records(run):
        if isinstance(record, EvaluationDone):
            seen.append((record.step, record.loss, record.extras))
        elif isinstance(record, Sampled):
            seen.append((record.step, record.completion))
    return seen
