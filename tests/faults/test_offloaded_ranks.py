"""Two ranks with parts in host memory: the bits of two without."""

from pathlib import Path

from tests.faults.test_ranks import GENERATE, TWO, opened, start_two
from tests.support.bench import bench_at
from tests.support.driving import steps
from tests.support.sameness import same_weights
from tests.support.tiny import column
from tests.support.zygote import Zygote, tail_of

ON_HOST = ('hardware.offload=["base","state"]', "train.activation_offload=true")


def test_two_ranks_with_parts_in_host_memory_train_to_the_same_bits(
    bench_source: Path, memory: Path, zygote: Zygote
) -> None:
    bench = bench_at(bench_source, memory / "bench")
    bench.profile("plain", method="lora"), bench.profile("moved", method="lora")
    keys = (
        *GENERATE, *TWO, "adapter.method=lora", "train.activation_checkpointing=true", "train.max_steps=4",
        "train.num_train_epochs=none", "eval.eval_steps=2",
    )  # fmt: skip
    plain, moved = opened(bench, "plain", *keys), opened(bench, "moved", *keys, *ON_HOST)
    for run in (plain, moved):
        assert [engine.wait() for engine in start_two(zygote, bench, run)] == [0, 0], tail_of(run)
    for name in ("loss", "grad_norm"):
        assert column(steps(moved), name).tolist() == column(steps(plain), name).tolist()
    same_weights(plain.final, moved.final)
