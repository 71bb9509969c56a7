"""What DeepSpeed's own engine keeps and gives back: two gloo ranks, ZeRO 1 to 3, on CPUs.

    python -m tests.bench.deepspeed_state [--stages 1 2 3] [--lora]

From the top of the repository, with DeepSpeed installed (it is no dependency of ftui; at its first start it compiles
C++). A small Llama trains for twelve steps: by a loop that sums the gradients; by DeepSpeed's engine; and by an engine
that is new after six steps and gets weights and moments of the old one through its safe accessors alone. Told are the
largest differences of a loss. docs/scale.md has what came of it.
"""

import argparse
import json
import os
import subprocess
import sys
from typing import Any

from ftui.supervisor.engine_process import rank_environment
from tests.support.real import ROOT
from tests.support.zygote import free_port

WORLD, STEPS, HALF, RATE = 2, 12, 6, 1e-2
STATES = ("exp_avg", "exp_avg_sq")


def make_model(*, has_adapter: bool) -> Any:
    import torch
    from peft import LoraConfig, get_peft_model
    from transformers import LlamaConfig, LlamaForCausalLM

    torch.manual_seed(0)
    model: Any = LlamaForCausalLM(
        LlamaConfig(
            vocab_size=512, hidden_size=64, intermediate_size=128, num_hidden_layers=2, num_attention_heads=4,
            num_key_value_heads=2,
        )
    )  # fmt: skip
    return get_peft_model(model, LoraConfig(r=8, target_modules="all-linear")) if has_adapter else model


def batch(step: int, rank: int) -> Any:
    import torch

    return torch.randint(0, 512, (2, 32), generator=torch.Generator().manual_seed(WORLD * step + rank))


def trained(model: Any) -> list[Any]:
    return [weight for weight in model.parameters() if weight.requires_grad]


def plain_losses(rank: int, *, has_adapter: bool) -> list[float]:
    """Of a loop that sums the gradients over the ranks."""
    import torch
    import torch.distributed as dist

    model, losses = make_model(has_adapter=has_adapter), []
    optimizer = torch.optim.AdamW(trained(model), lr=RATE)
    for step in range(STEPS):
        loss = model(input_ids=batch(step, rank), labels=batch(step, rank)).loss
        loss.backward()
        for weight in trained(model):
            dist.all_reduce(weight.grad)
            weight.grad /= WORLD
        torch.nn.utils.clip_grad_norm_(trained(model), 1.0)
        optimizer.step()
        optimizer.zero_grad()
        losses.append(mean(loss.detach()))
    return losses


def mean(loss: Any) -> float:
    import torch.distributed as dist

    dist.all_reduce(loss)
    return float(loss) / WORLD


def make_engine(stage: int, *, has_adapter: bool) -> Any:
    import deepspeed  # type: ignore[import-not-found, unused-ignore]
    import torch

    model = make_model(has_adapter=has_adapter)
    config = {
        "train_micro_batch_size_per_gpu": 2, "gradient_clipping": 1.0, "zero_allow_untested_optimizer": True,
        "zero_force_ds_cpu_optimizer": False, "zero_optimization": {"stage": stage},
    }  # fmt: skip
    optimizer = torch.optim.AdamW(trained(model), lr=RATE)
    return deepspeed.initialize(model=model, optimizer=optimizer, config=config)[0]


def engine_losses(engine: Any, rank: int, steps: range) -> list[float]:
    losses = []
    for step in steps:
        loss = engine(input_ids=batch(step, rank), labels=batch(step, rank)).loss
        engine.backward(loss)
        engine.step()
        losses.append(mean(loss.detach().clone()))
    return losses


def pass_on(old: Any, new: Any) -> int:
    """Weights and moments from one engine to another by the safe accessors; returns how many tensors they gave.

    A moment can be set only after a step was taken: one without a loss comes first.
    """
    from deepspeed.utils import (  # type: ignore[import-not-found, unused-ignore]
        safe_get_full_fp32_param,
        safe_get_full_optimizer_state,
        safe_set_full_fp32_param,
        safe_set_full_optimizer_state,
    )

    ids = batch(0, 0)
    new.backward(new(input_ids=ids, labels=ids).loss * 0)
    new.step()
    number = 0
    for source, target in zip(trained(old.module), trained(new.module), strict=True):
        if (values := safe_get_full_fp32_param(source)) is not None:
            safe_set_full_fp32_param(target, values.clone())
            number += 1
        for name in STATES:
            if (values := safe_get_full_optimizer_state(source, name)) is not None:
                safe_set_full_optimizer_state(target, values.clone(), name)
                number += 1
    return number


def work(stage: int, *, has_adapter: bool) -> None:
    import deepspeed
    import torch

    torch.set_num_threads(1)
    deepspeed.init_distributed("gloo")
    rank = int(os.environ["RANK"])
    plain = plain_losses(rank, has_adapter=has_adapter)
    engine = make_engine(stage, has_adapter=has_adapter)
    whole = engine_losses(engine, rank, range(STEPS))
    old = make_engine(stage, has_adapter=has_adapter)
    first = engine_losses(old, rank, range(HALF))
    new = make_engine(stage, has_adapter=has_adapter)
    number, wanted = pass_on(old, new), len(trained(old.module)) * (1 + len(STATES))
    rest = engine_losses(new, rank, range(HALF, STEPS))
    if rank == 0:
        told = {
            "same_as_plain": max(abs(a - b) for a, b in zip(whole, plain, strict=True)),
            "repeats": max(abs(a - b) for a, b in zip(first, whole, strict=False)),
            "given": f"{number} of {wanted}",
            "resumed": max(abs(a - b) for a, b in zip(rest, whole[HALF:], strict=True)),
        }
        print("\nTOLD " + json.dumps(told), flush=True)


def measure(stage: int, *, has_adapter: bool) -> dict[str, Any]:
    command = [sys.executable, "-m", "tests.bench.deepspeed_state", "--worker", str(stage)]
    environment, port = os.environ | {"OMP_NUM_THREADS": "1", "DS_ACCELERATOR": "cpu"}, free_port()
    ranks = [
        subprocess.Popen(
            [*command, *["--lora"] * has_adapter], cwd=ROOT, env=rank_environment(rank, WORLD, port, environment),
            stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
        )
        for rank in range(WORLD)
    ]  # fmt: skip
    outputs = [rank.communicate()[0] for rank in ranks]
    lines = [line for line in outputs[0].splitlines() if line.startswith("TOLD ")]
    assert lines, f"ZeRO {stage} failed:\n{outputs[0][-2000:]}\n{outputs[1][-2000:]}"
    told: dict[str, Any] = json.loads(lines[0].removeprefix("TOLD "))
    return told


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--stages", type=int, nargs="+", default=[1, 2, 3])
    parser.add_argument("--lora", action="store_true", help="an adapter beside a frozen base, instead of all weights")
    parser.add_argument("--worker", type=int, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.worker is not None:
        return work(options.worker, has_adapter=options.lora)
    for stage in options.stages:
        told = measure(stage, has_adapter=options.lora)
        apart = f"beside a plain loop {told['same_as_plain']:.1e}, repeated {told['repeats']:.1e}"
        print(f"ZeRO {stage}: {apart}, given {told['given']}, resumed {told['resumed']:.1e}", flush=True)


if __name__ == "__main__":
    main()
