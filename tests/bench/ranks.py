"""Two ranks of ftui beside accelerate (DDP, FSDP2) and a bare FSDP2 loop: the same model, rows, order and threads.

    python -m tests.bench.ranks [--method lora] [--shape small] [--steps 10] [--rounds 3] [--only ftui ddp]

From the top of the repository. In every round each contestant trains once in processes of its own, two ranks with one
thread each. What is compared is from the start of the fourth step to that of the last: start, loading and saving count
for nobody. CPU seconds are those of both ranks; wall seconds mean something on a quiet machine only. With `full` losses
must agree, or they did not do the same; with `lora` to a thousandth, as each draws its own adapter. On a machine with
GPUs each rank has one.
"""

import argparse
import json
import os
import re
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any, NamedTuple

from ftui.supervisor.engine_process import rank_environment
from tests.bench.gpu import FULL, LORA, SHAPES, Sections, make_model, merged
from tests.support import real
from tests.support.zygote import free_port

WORLD, BATCH, FEW = 2, 4, 3
SHAPES["small"] = {
    "hidden_size": 256, "intermediate_size": 1024, "num_hidden_layers": 6, "num_attention_heads": 4,
    "num_key_value_heads": 2, "vocab_size": 8192,
}  # fmt: skip
METHODS: dict[str, Sections] = {"lora": LORA, "full": FULL}
OWN: dict[str, Sections] = {"ftui": {}, "ftui_shard": {"hardware": {"shard": "all"}}}
CONTESTANTS = (*OWN, "ddp", "fsdp2", "accelerate_fsdp2")


class Cost(NamedTuple):
    """Seconds of both ranks' CPUs and of the clock, the loss of the last step, the most resident bytes of a rank."""

    cpu: float
    wall: float
    loss: float
    peak: int


def sections_of(model: Path, rows: Path, method: str, steps: int) -> Sections:
    return merged(
        {
            "run": {"stage": "sft"},
            "model": {"name_or_path": str(model), "dtype": "float32"},
            "data": {"train": str(rows), "max_length": 256},
            "train": {
                "per_device_train_batch_size": BATCH, "gradient_accumulation_steps": 1, "max_steps": steps,
                "train_sampling_strategy": "sequential", "lr_scheduler_type": "constant", "warmup_steps": 0,
                "precision": "fp32", "learning_rate": 1e-4,
            },
            "checkpoint": {"save_strategy": "no", "save_minutes": None},
            "hardware": {"num_processes": WORLD, "num_threads": 1},
        },
        METHODS[method],
    )  # fmt: skip


def run_ranks(name: str, folder: Path, sections: Sections) -> Cost:
    """A contestant in two processes; each leaves what its clocks showed at the start of every step."""
    folder.mkdir(parents=True)
    told = folder / "run"
    if name in OWN:
        told = real.open_run(folder / "run", merged(sections, OWN[name])).folder
    command = [sys.executable, "-m", "tests.bench.ranks", "--worker", name, str(told), json.dumps(sections)]
    environment, port = os.environ | {"OMP_NUM_THREADS": "1", "FTUI_CACHE": str(folder / "cache")}, free_port()
    with (folder / "output.txt").open("w") as log:
        ranks = [
            subprocess.Popen(
                command, stdout=log, stderr=log, cwd=real.ROOT, env=rank_environment(rank, WORLD, port, environment)
            )
            for rank in range(WORLD)
        ]
        codes = [rank.wait() for rank in ranks]
    assert codes == [0] * WORLD, f"{name} failed:\n{(folder / 'output.txt').read_text()[-3000:]}"
    marks = [json.loads((folder / f"marks{rank}.json").read_text()) for rank in range(WORLD)]
    steps = len(marks[0]["cpu"]) - 1 - FEW  # the last mark begins a step
    cpu = sum(its["cpu"][-1] - its["cpu"][FEW] for its in marks) / steps
    return Cost(
        cpu, (marks[0]["wall"][-1] - marks[0]["wall"][FEW]) / steps, marks[0]["loss"], max(its["peak"] for its in marks)
    )


class Marks:
    """Readings of this process's clocks, one at the start of each step and one at the end of the last."""

    def __init__(self) -> None:
        self.cpu: list[float] = []
        self.wall: list[float] = []

    def read(self) -> None:
        self.cpu.append(time.process_time())
        self.wall.append(time.perf_counter())

    def write(self, folder: Path, loss: float) -> None:
        path = folder / f"marks{os.environ['RANK']}.json"
        peak = int(re.search(r"VmHWM:\s+(\d+)", Path("/proc/self/status").read_text())[1]) << 10  # type: ignore[index]
        path.write_text(json.dumps({"cpu": self.cpu, "wall": self.wall, "loss": loss, "peak": peak}))


def train_ours(folder: Path) -> None:
    """One rank of ftui. A step ends where the next one begins; a last reading stands where its passes end."""
    from ftui.engine.__main__ import main as run_engine
    from ftui.engine.training.forward_backward import ForwardBackward
    from ftui.runs.events import Step
    from ftui.runs.journal import Tail

    marks, plain = Marks(), ForwardBackward.run

    def run(self: ForwardBackward, *arguments: Any) -> Any:
        marks.read()
        return plain(self, *arguments)

    setattr(ForwardBackward, "run", run)  # noqa: B010 (its type is kept)
    code = run_engine([str(folder)])
    steps = [record for record in Tail(folder / "metrics.jsonl").read() if isinstance(record, Step)]
    marks.write(folder.parent, steps[-1].loss or 0.0)
    raise SystemExit(code)


def train_theirs(name: str, folder: Path, sections: Sections) -> None:
    """One rank of a peer, on ftui's own batches, padded."""
    import torch
    import torch.distributed as dist
    from accelerate import Accelerator, DistributedType, FullyShardedDataParallelPlugin
    from peft import get_peft_model
    from torch.distributed.fsdp import fully_shard
    from torch.distributed.tensor import DTensor
    from transformers import AutoModelForCausalLM

    from tests.bench.gpu import ALPHA, RANK
    from tests.bench.throughput.workers.hugging_face import lora

    rank, on_gpu = int(os.environ["RANK"]), torch.cuda.is_available()
    torch.set_num_threads(1)
    device = torch.device("cuda" if on_gpu else "cpu")
    batches, totals = batches_of(rank, folder, sections)
    model: Any = AutoModelForCausalLM.from_pretrained(sections["model"]["name_or_path"], dtype=torch.float32)
    if sections.get("adapter", {}).get("method") != "full":
        torch.manual_seed(0)
        model = get_peft_model(model, lora(RANK, ALPHA))
    accelerator = None
    if name == "ddp":
        accelerator = Accelerator(cpu=not on_gpu)
    elif name == "accelerate_fsdp2":
        layer = type((model.get_base_model() if hasattr(model, "get_base_model") else model).model.layers[0]).__name__
        plugin = FullyShardedDataParallelPlugin(
            fsdp_version=2, auto_wrap_policy="transformer_based_wrap", transformer_cls_names_to_wrap=[layer],
            reshard_after_forward=True, cpu_ram_efficient_loading=False,
        )  # fmt: skip
        accelerator = Accelerator(cpu=not on_gpu, fsdp_plugin=plugin)
        if not on_gpu:  # accelerate 1.15 takes the plugin on GPUs only, and would go on with DDP without a word
            vars(accelerator.state)["distributed_type"] = DistributedType.FSDP
            vars(accelerator.state)["fsdp_plugin"] = plugin
    else:
        dist.init_process_group("nccl" if on_gpu else "gloo")
        for layer in [*(model.get_base_model() if hasattr(model, "get_base_model") else model).model.layers, model]:
            fully_shard(layer)
    rate = sections["train"]["learning_rate"]
    weights = [weight for weight in model.parameters() if weight.requires_grad]
    optimizer: Any = torch.optim.AdamW(weights, lr=rate, weight_decay=0.0, fused=True)
    if accelerator is not None:
        model, optimizer = accelerator.prepare(model, optimizer)
        weights = [
            weight for weight in model.parameters() if weight.requires_grad
        ]  # FSDP2 has put others in their place
    else:
        model.to(device)
    assert {isinstance(weight, DTensor) for weight in weights} == {name != "ddp"}, "divided, but for DDP"
    loss, marks = torch.zeros(1), Marks()
    for (ids, labels), total in zip(batches, totals, strict=True):
        marks.read()
        its = model(input_ids=ids.to(device), labels=labels.to(device), num_items_in_batch=total).loss
        accelerator.backward(its * WORLD) if accelerator else (its * WORLD).backward()
        torch.nn.utils.clip_grad_norm_(weights, 1.0)
        optimizer.step()
        optimizer.zero_grad()
        loss = its.detach().clone()
        dist.all_reduce(loss)
    marks.write(folder.parent, float(loss))
    dist.destroy_process_group()


def batches_of(rank: int, folder: Path, sections: Sections) -> tuple[list[tuple[Any, Any]], list[int]]:
    """The ids and labels of this rank's micro-batch in each step, and the trained tokens of all ranks in it."""
    import torch

    from ftui.engine.distributed.process_group import ProcessGroup
    from ftui.engine.training.prefetch import Prefetcher
    from ftui.engine.training.prepare import prepare
    from ftui.profile.schema import Profile

    data = prepare(Profile.model_validate_json(json.dumps(sections)), folder / f"cache{rank}", lambda detail: None)
    batches, totals = [], []
    with Prefetcher(data, ProcessGroup(rank, WORLD)) as prefetcher:
        for step in range(1, data.plan.max_steps + 1):
            made, _ = prefetcher.get(step, BATCH)
            (batch,) = made.batches
            labels = torch.full_like(batch.input_ids, -100)
            labels.view(-1)[batch.predictors + 1] = batch.target_ids
            batches.append((batch.input_ids, labels))
            totals.append(made.num_target_tokens)
    return batches, totals


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--method", choices=METHODS, default="lora")
    parser.add_argument("--shape", choices=SHAPES, default="small")
    parser.add_argument("--steps", type=int, default=10, help="beside the first three")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--only", nargs="+", choices=CONTESTANTS, default=list(CONTESTANTS))
    parser.add_argument("--worker", nargs=3, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.worker:
        name, folder, sections = options.worker
        train_ours(Path(folder)) if name in OWN else train_theirs(name, Path(folder), json.loads(sections))
        return
    costs: dict[str, list[Cost]] = {name: [] for name in options.only}
    with tempfile.TemporaryDirectory() as top:
        model, rows = make_model(Path(top) / "model", options.shape), Path(top) / "rows.jsonl"
        real.write_sample(real.INSTRUCTIONS, rows, num_rows=WORLD * BATCH * (FEW + options.steps), seed=0)
        for number in range(options.rounds):
            for name in options.only if number % 2 == 0 else options.only[::-1]:
                sections = sections_of(model, rows, options.method, FEW + options.steps)
                cost = run_ranks(name, Path(top) / f"{name}{number}", sections)
                costs[name].append(cost)
                figures = f"{cost.cpu:.3f} CPU s, {cost.wall:.3f} s a step, loss {cost.loss:.6f}, {cost.peak >> 20} MiB"
                print(f"round {number + 1} {name:16} {figures}", flush=True)
    for name, its in costs.items():
        cpu = sorted(cost.cpu for cost in its)
        print(f"{name:16} CPU s a step: best {cpu[0]:.3f}, median {statistics.median(cpu):.3f}, worst {cpu[-1]:.3f}")


if __name__ == "__main__":
    main()
