"""What the engine's loop costs beside a bare torch loop over the very same batches (goal: below 2 %).

    python -m tests.bench.step_overhead [--steps 10] [--rounds 5] [--precision auto]

From the top of the repository, on a quiet machine. SmolLM2-135M-Instruct, LoRA r 16 on all linear layers, 8 rows a
step. In every round both train in a process of their own, one after the other. Both times include all between the ends
of two steps; the two first steps are left out. Their losses must be the same, or the loops did not do the same.
"""

import argparse
import json
import statistics
import tempfile
import time
from contextlib import nullcontext
from itertools import pairwise
from pathlib import Path
from typing import Any

from tests.support import real

BATCH, WARM_UP = 8, 2
Steps = list[tuple[float, float]]  # wall seconds and loss of every step after the first


def engine(folder: Path, sections: dict[str, dict[str, Any]]) -> Steps:
    steps = real.train(real.open_run(folder / "run", sections))
    return [(now.time - before.time, now.loss or 0.0) for before, now in pairwise(steps)]


def bare(folder: Path, sections: dict[str, dict[str, Any]]) -> Steps:
    from ftui.engine.system.environment import settle_environment

    settle_environment()
    import torch

    from ftui.engine.models.load_model import load_model
    from ftui.engine.models.methods import apply_method, storage_dtype
    from ftui.engine.optim.schedule import learning_rate_curve
    from ftui.engine.system.device import find_hardware
    from ftui.engine.training.collate import collate
    from ftui.engine.training.prepare import prepare
    from ftui.profile.schema import Profile
    from tests.support.losses import summed_loss

    profile = Profile.model_validate_json(json.dumps(sections, default=str))
    hardware = find_hardware(profile)
    prepared = prepare(profile, folder / "cache", lambda detail: None)
    plan, sequences, pad = prepared.plan, prepared.train.sequences, int(prepared.tokenizer.pad_token_id or 0)
    assert prepared.folder is not None
    torch.manual_seed(profile.train.seed)
    loaded = load_model(prepared.folder, profile.model, storage_dtype(profile, hardware))
    model = apply_method(loaded, profile, hardware, prepared).to(hardware.device).train()
    rows = [[[sequences[i] for i in row] for row in plan.step(number + 1)] for number in range(plan.max_steps)]
    batches = [collate(step, pad).to(hardware.device) for step in rows]
    weights = [weight for weight in model.parameters() if weight.requires_grad]
    rate = learning_rate_curve(profile.train, plan.max_steps)
    optimizer = torch.optim.AdamW(weights, weight_decay=0.0)
    narrow = torch.autocast(hardware.device.type, torch.bfloat16) if hardware.precision == "bf16" else nullcontext()

    found, end = [], time.perf_counter()
    for number, batch in enumerate(batches, start=1):
        optimizer.param_groups[0]["lr"] = rate(number)
        with narrow:
            loss = summed_loss(model, batch) / len(batch.target_ids)
        loss.backward()
        torch.nn.utils.clip_grad_norm_(weights, 1.0)
        optimizer.step()
        optimizer.zero_grad()
        value = float(loss.detach())
        found.append(((now := time.perf_counter()) - end, value))
        end = now
    return found[1:]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--steps", type=int, default=10, help="steps measured")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--precision", choices=("auto", "bf16", "fp32"), default="auto")
    parser.add_argument("--worker", nargs=2, help=argparse.SUPPRESS)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        if options.worker:
            loop = {"engine": engine, "bare": bare}[options.worker[0]]
            print(json.dumps(loop(Path(name), json.loads(options.worker[1]))))
            return
        rows = Path(name) / "rows.jsonl"
        real.write_sample(real.INSTRUCTIONS, rows, num_rows=(WARM_UP + options.steps) * BATCH, seed=0)
        compare(_sections(rows, options.precision), options.rounds)


def _sections(rows: Path, precision: str) -> dict[str, dict[str, Any]]:
    return {
        "run": {"stage": "sft"},
        "model": {"name_or_path": real.smollm2()},
        "data": {"train": rows},
        "train": {
            "per_device_train_batch_size": BATCH, "train_sampling_strategy": "group_by_length", "precision": precision,
        },
    }  # fmt: skip


def compare(sections: dict[str, dict[str, Any]], rounds: int) -> None:
    overheads, times = [], []
    for number in range(rounds):
        names = ("engine", "bare") if number % 2 == 0 else ("bare", "engine")
        worker = json.dumps(sections, default=str)
        found = {name: real.fresh_process("tests.bench.step_overhead", "--worker", name, worker) for name in names}
        pairs = list(zip(found["engine"], found["bare"], strict=True))
        difference = max(abs(ours[1] - its[1]) for ours, its in pairs)
        ours, its = (sum(step[0] for step in found[name][WARM_UP - 1 :]) for name in ("engine", "bare"))
        overheads.append(100 * (ours / its - 1))
        times.append([[step[0] for step in found[name][WARM_UP - 1 :]] for name in ("engine", "bare")])
        print(
            f"round {number + 1}: {ours:.2f} s, bare {its:.2f} s: {overheads[-1]:+.2f} %; losses {difference:.1e} apart"
        )
    fastest = [sum(min(steps) for steps in zip(*loops, strict=True)) for loops in zip(*times, strict=True)]
    print(
        f"overhead: median {statistics.median(overheads):+.2f} % ({min(overheads):+.2f} to {max(overheads):+.2f}); "
        f"by the fastest time of every step {100 * (fastest[0] / fastest[1] - 1):+.2f} %"
    )


if __name__ == "__main__":
    main()
