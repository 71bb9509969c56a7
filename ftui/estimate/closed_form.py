"""Peak memory of a run in closed form: pure arithmetic, under 5 ms, no torch.

It counts what the path of this engine holds at each of its wide moments (peak.py), and takes the widest.
tests/engine/simulate/test_closed_form.py compares it with the simulation of that path.
"""

from dataclasses import replace

from ftui.estimate.peak import MemoryPoint, memory_points, stored_bytes
from ftui.estimate.placement.frozen_base import place_base
from ftui.estimate.result import PARTS, Memory
from ftui.estimate.setup import TrainingSetup
from ftui.estimate.states import FP32, gradient_bytes, moment_bytes, weight_bytes
from ftui.estimate.trained import find_trained
from ftui.hardware.devices import GiB, MiB

FRAGMENTED = 1.09
"""Reserved by torch's allocator over what tensors take, at the peak. PEFT's runs on an L40S: 1.09; 79 runs on T4s: 1.06
at the 10th percentile, median 1.125, 1.32 at the 90th, 1.49 at most (fitcheck-llm 0.3.1, data/measurements). Nothing in
closed form tells where in between a run is: the simulation replays the allocator."""
# Shares of `process` for low and high, by the number of doubts. Wider than the simulation's: see FRAGMENTED.
RANGES = ((0.88, 1.2), (0.8, 1.25), (0.7, 1.35))
HELD_BY_HEAP, ON_CPU = 1.2, (0.85, 1.25)
"""Resident over what tensors take on a CPU, and the range: 8 real runs had 1.03 to 1.48 (engine/simulate/heap.py)."""
ENGINE_BYTES = 385 * MiB
"""Resident memory of an engine on a CPU before it has a model, where engine/simulate/host.py has not measured it: its
answer with 1 and with 2 threads (torch 2.13 for CPUs, transformers 5.24, PEFT 0.21, bitsandbytes 0.50, x86-64)."""
LIBRARIES = 256 * MiB
"""Of cuBLAS and its like, as they are first used on a GPU (not measured by us)."""
PINNED = 4 / 3
"""Of powers of two over what they are taken for, where the sizes are any."""
HOST_BYTES = 2 * GiB
"""Beside a GPU: the same, with the libraries of CUDA and pinned pages."""


def num_trainable(setup: TrainingSetup) -> int:
    """Elements of all weights that are trained."""
    return find_trained(setup).total


def memory(setup: TrainingSetup) -> Memory:
    """The peak of one device."""
    stages = memory_points(setup)
    peak = max(stages, key=lambda stage: stage.total)
    allocated, on_cpu = peak.total, setup.card.kind == "cpu"
    needed = round(allocated * (HELD_BY_HEAP if on_cpu else FRAGMENTED))
    reserved = needed if on_cpu else max(needed, _with_evaluation(setup, stages))
    context = ENGINE_BYTES if on_cpu else setup.card.context
    parts = {name: peak.parts.get(name, 0) for name in PARTS}
    parts |= {"fragmentation": reserved - allocated, "context": context}
    process, doubts = reserved + context, unvalidated(setup)
    low, high = ON_CPU if on_cpu and not doubts else RANGES[min(len(doubts), 2)]
    movable = moment_bytes(setup, find_trained(setup)) if setup.optim.startswith("paged") else 0
    left_in_heap = place_base(setup, find_trained(setup)).left_in_heap
    return Memory(
        allocated=allocated, reserved=reserved, process=process, low=round((needed + context - movable) * low),
        high=round(process * high) + left_in_heap, breakdown=parts, phase=peak.phase, basis="closed form",
        unvalidated=doubts,
    )  # fmt: skip


def phase_peaks(setup: TrainingSetup) -> tuple[int, int]:
    """Bytes of a process at the peak of generating, and of a step, where a run samples its answers."""
    held = HELD_BY_HEAP if setup.card.kind == "cpu" else FRAGMENTED
    context = ENGINE_BYTES if setup.card.kind == "cpu" else setup.card.context
    totals = {True: 0, False: 0}
    for point in memory_points(setup):
        is_generating = point.phase == "generation"
        totals[is_generating] = max(totals[is_generating], round(point.total * held) + context)
    return totals[True], totals[False]


def _with_evaluation(setup: TrainingSetup, stages: list[MemoryPoint]) -> int:
    """Bytes reserved when a wider batch is evaluated: blocks of a training step are too small for its tensors, and are
    kept beside them while the card has room (`low` is without them)."""
    if not setup.evaluates_loss or setup.eval_batch <= setup.micro_batch:
        return 0
    lasting = stages[-1].lasting
    return max(stage.total for stage in stages[:-1]) + stages[-1].total - lasting


def unvalidated(setup: TrainingSetup) -> tuple[str, ...]:
    """What of a setup has never been compared with a measurement, in the words of engine/simulate/profile_memory.py."""
    facts = {
        "Apple's GPU": setup.card.kind == "mps",
        "autocast on a GPU": setup.card.kind == "cuda" and setup.compute != FP32,
        "8-bit weights": setup.is_8bit,
        f"the optimizer {setup.optim}": not setup.optim.startswith("adamw_torch"),
        "compiled layers": setup.is_compiled,
        "Liger's kernels": setup.has_liger,
        "several processes": setup.num_processes > 1 and setup.parallel == "ddp",
        f"{setup.parallel}, which ftui itself does not run": setup.parallel != "ddp",
        "a part in host memory": bool(setup.offload or setup.activation_offload),
        "mixtures of experts": any(layer.experts is not None for layer in setup.shape.layers),
        "packed rows": setup.packing,
    }
    return tuple(text for text, is_so in facts.items() if is_so)


def answering_memory(setup: TrainingSetup, tokens: int, sides: int = 1) -> int:
    """Bytes of a process that answers with the model: its weights as they are loaded, keys and values of conversations
    of `tokens` for each side, the widest moment of a prompt of that length, and the process itself.

    Adapters of two sides stand on one base; where all weights are trained, each side is a model.
    """
    shape, (weights, constants, beside) = setup.shape, weight_bytes(setup, find_trained(setup))
    models = (weights + constants) * (1 if setup.is_lora else sides) + beside * sides
    casts = setup.compute * shape.num_parameters if setup.trained > setup.compute and not setup.is_lora else 0
    per_token = 2 * shape.num_kv_heads * shape.head_dim * setup.compute
    kept = sides * per_token * sum(min(tokens, layer.window or tokens) for layer in shape.layers)
    widest = tokens * (2 * shape.width + 4 * shape.hidden_size) * setup.compute + FP32 * shape.vocab_size
    held = HELD_BY_HEAP if setup.card.kind == "cpu" else FRAGMENTED
    context = ENGINE_BYTES if setup.card.kind == "cpu" else setup.card.context + LIBRARIES
    return round((models + casts + kept + widest) * held) + context


def comparing_memory(setup: TrainingSetup) -> int:
    """Bytes of a process that compares a merged model with base and adapter: one after the other, in float32."""
    in_floats = replace(setup, method="lora", is_8bit=False, storage=FP32, trained=FP32, compute=FP32)
    return answering_memory(in_floats, setup.length)


def host_memory(setup: TrainingSetup) -> int:
    """RAM of one machine at the peak of loading and training, all its processes together, in bytes.

    An unquantised model is read into RAM in the type it is stored in, then moved to the device; a quantised one is read
    straight to the device, tensor by tensor. What a checkpoint holds passes through RAM whole.
    """
    if setup.card.kind == "cpu":
        return memory(setup).process * setup.num_processes
    trained = find_trained(setup)
    weights, _, _ = weight_bytes(setup, trained)
    widest = max((inputs * outputs for layer in setup.shape.layers for inputs, outputs in layer.linears.values()))
    loading = FP32 * widest if setup.is_quantised else weights
    placement = place_base(setup, trained)
    if placement.way == "divided":  # each process reads its own rows, and two tensors beside them
        loading = 2 * FP32 * widest
    elif placement.way == "offloaded":
        loading -= min(loading, placement.on_host)
    loading = max(loading, setup.scoring or 0)
    moments = moment_bytes(setup, trained)
    saving = moments + gradient_bytes(setup, trained)  # weights are as large as their gradients
    if setup.method == "full" and setup.shard != "none":  # a checkpoint is written tensor by tensor, and read in slices
        loading = saving = 2 * FP32 * widest
    kept = offloaded_bytes(setup) + reference_bytes(setup)
    return (HOST_BYTES + max(loading, saving) + kept) * setup.num_processes


def reference_bytes(setup: TrainingSetup) -> int:
    """Of the trained weights as the run began, which a process keeps in host memory where it is held to them."""
    return gradient_bytes(setup, find_trained(setup)) if setup.keeps_reference else 0


def lacks_host_memory(setup: TrainingSetup) -> bool:
    """Whether what is offloaded finds no room on the machine, as far as it is known."""
    if setup.host_memory is None or not (setup.offload or setup.activation_offload or setup.keeps_reference):
        return False
    return host_memory(setup) > setup.host_memory


def offloaded_bytes(setup: TrainingSetup) -> int:
    """Of what one process keeps in host memory in place of a card's: layers, moments, stored activations.

    torch takes pinned memory in powers of two: as much as half of it may be beside a tensor.
    """
    trained = find_trained(setup)
    placement, moments = place_base(setup, trained), moment_bytes(setup, trained)
    paged = moments if setup.optim.startswith("paged") else 0
    pinned = sum(1 << (rows.size - 1).bit_length() for layer in placement.base.layers for rows in layer if rows.size)
    base = 0 if not placement.on_host else pinned if setup.card.kind == "cuda" else placement.on_host
    state = moments * PINNED if setup.moments_on_host else 0
    stored = setup.num_tokens * stored_bytes(setup, trained) * PINNED
    return round(base + paged + state + stored)
