"""The peak memory of a profile on a card: the path that this engine takes is simulated with the installed libraries."""

import tempfile
from dataclasses import replace
from pathlib import Path
from typing import Any

from ftui.errors import NotSimulatedError
from ftui.estimate.result import PARTS, Memory
from ftui.hardware.devices import Card
from ftui.profile.schema import Profile
from ftui.system.user_folders import cache_folder

from ..check_profile import check_profile
from ..models.joined_rows import can_join
from ..models.quantization import is_packed, number_of
from .allocator import Allocator
from .depth import UnfoldError
from .heap import resident_peak
from .host import resident_bytes
from .kernels import kernels_for
from .loading import transformers_loader
from .meta_model import MetaModel, card_hardware
from .meta_step import BatchShape, trace_step
from .placed import Elsewhere, find_elsewhere, placed_peak
from .trace import Trace

CUT_SHORT = (UnfoldError, LookupError, AttributeError, RuntimeError, TypeError, ValueError)
"""How a few layers fail that cannot stand for all, in a model's own code too (Gemma 4 has layers that share the keys of
others). The full depth is simulated then, and whatever is wrong with that is raised."""
REPLAYED = (0.95, 1.08)
"""Range of `process` where all of it has been compared with measurements: it covers 128 of 135 published runs."""
ON_CPU = (0.87, 1.13)
"""8 real runs were predicted 11 % too low to 10 % too high (tests/engine/simulate/test_real_runs.py); the tensors
alone, without what glibc's heap holds beyond them, 3 to 30 % too low. What fills its holes is not known exactly."""
DOUBTFUL = (0.85, 1.15)
VERY_DOUBTFUL = (0.75, 1.25)


def simulate(
    profile: Profile, folder_or_config: Any, card: Card, *, longest: int | None = None,
    longest_example: int | None = None, full_depth: bool = False,
) -> Memory:  # fmt: skip
    """Simulate loading, a step and an evaluation batch of a profile on a card.

    Args:
        folder_or_config: of the base model: its folder, or transformers' config. Not looked at for a new model.
        longest: tokens of the longest row, if it is known; else rows are as long as data.max_length.
        longest_example: tokens of the longest pair, its prompt counted once, if that is known.
        full_depth: compute every layer, rather than a few that stand for all; the answer is the same.

    Raises:
        NotSimulatedError: the model brings its own code, or all of it is trained and divided.
        FtuiError: a run of the profile on this card would be refused.
    """
    if profile.hardware.shard != "none" and not profile.adapter.is_lora:
        raise NotSimulatedError("What each process has of trained weights that are divided is told in closed form.")
    made = _made(profile, folder_or_config, card)
    elsewhere = find_elsewhere(profile, made)  # before layers are taken out of it
    left_mapped = _left_mapped(made) if elsewhere.base.way == "here" else 0
    load = None
    if profile.adapter.is_quantised and card.kind == "cuda":
        load = transformers_loader(loaded=made.hardware.compute_dtype, prepared=False)
    size, length = profile.micro_batch, profile.longest_line(longest)
    rows = BatchShape(size, _eval_batch(profile), profile.num_lines, length)
    if longest_example is not None and _shares_prompts(made, profile):  # both answers in one line
        rows = replace(rows, num_lines=1, length=min(longest_example, rows.num_lines * length))
    try:
        trace = trace_step(made, profile, kernels_for(card), rows, load, full_depth=full_depth)
    except CUT_SHORT:
        made = _made(profile, folder_or_config, card)
        trace = trace_step(made, profile, kernels_for(card), rows, load, full_depth=True)
    doubts = unvalidated_settings(profile, made, card)
    if card.kind == "cuda":
        return _on_card(trace, elsewhere, profile, card, doubts)
    return _on_host(trace, elsewhere, made, left_mapped, doubts)


def _made(profile: Profile, folder_or_config: Any, card: Card) -> MetaModel:
    made = check_profile(profile, folder_or_config, card_hardware(profile, card))
    if made is None:
        raise NotSimulatedError(
            "A model that brings its own Python code is not simulated.", hint="Its code runs in a run only."
        )
    return made


def _shares_prompts(made: MetaModel, profile: Profile) -> bool:
    kernel = str(made.config._attn_implementation)
    return (
        profile.num_lines > 1 and kernel == "sdpa" and can_join(profile, made.config, kernel, made.hardware.device.type)
    )


def _eval_batch(profile: Profile) -> int:
    held_out = (profile.data.eval, profile.data.eval_fraction, profile.data.eval_num_rows)
    if profile.samples_answers or all(rows is None for rows in held_out):
        return 0
    return profile.eval.per_device_eval_batch_size


def _on_card(trace: Trace, elsewhere: Elsewhere, profile: Profile, card: Card, doubts: tuple[str, ...]) -> Memory:
    """`reserved` from a replay of torch's allocator. Paged moments are beside it, and may leave the card."""
    parts, phase, change = _parts_at_peak(trace, elsewhere)
    replay = Allocator().replay(trace.events)
    movable = parts["optimizer"] if profile.train.optim.startswith("paged") else 0
    sizes = replay.allocated + change, replay.reserved + change, card.context
    return _memory(parts, phase, *sizes, doubts, _range(doubts), movable)


def _on_host(trace: Trace, elsewhere: Elsewhere, made: MetaModel, left_mapped: int, doubts: tuple[str, ...]) -> Memory:
    """Resident memory of the process; Apple's GPU shares it, and has an allocator of its own that is not modelled."""
    parts, phase, change = _parts_at_peak(trace, elsewhere)
    parts["weights"] += left_mapped
    allocated = sum(parts.values())
    is_cpu = made.hardware.device.type == "cpu"
    reserved = resident_peak(trace) + change + left_mapped if is_cpu else allocated
    with tempfile.TemporaryDirectory() as fallback:
        context = resident_bytes(cache_folder(Path(fallback)), made.hardware.num_threads)
    memory = _memory(parts, phase, allocated, reserved, context, doubts, _range(doubts) if doubts else ON_CPU)
    return replace(memory, high=memory.high + elsewhere.base.left_in_heap)


def _parts_at_peak(trace: Trace, elsewhere: Elsewhere) -> tuple[dict[str, int], Any, int]:
    parts, phase, change = placed_peak(trace, elsewhere)
    return dict.fromkeys(PARTS, 0) | parts, phase, change


def _memory(
    parts: dict[str, int], phase: Any, allocated: int, reserved: int, context: int, doubts: tuple[str, ...],
    within: tuple[float, float], movable: int = 0,
) -> Memory:  # fmt: skip
    process = reserved + context
    parts |= {"fragmentation": reserved - sum(parts.values()), "context": context}
    return Memory(
        allocated=allocated, reserved=reserved, process=process, low=round((process - movable) * within[0]),
        high=round(process * within[1]), breakdown=parts, phase=phase, basis="simulated", unvalidated=doubts,
    )  # fmt: skip


def _left_mapped(made: MetaModel) -> int:
    """Bytes of a quantised base's file that stay in memory on a CPU: mapped while a tensor of it is used as it is.

    Those are the embeddings, where the file has the type that is computed in (safetensors maps a file as a whole).
    """
    if getattr(made.config.get_text_config(), "dtype", None) != made.hardware.compute_dtype:
        return 0
    packed = sum(number_of(weight) for weight in made.base.parameters() if is_packed(weight))
    return packed * made.hardware.compute_dtype.itemsize


def find_peak(trace: Trace) -> tuple[int, Any]:
    """Index of the event with which most bytes are alive, and the phase it belongs to."""
    alive = top = at = 0
    for index, (_, size) in enumerate(trace.events):
        alive += size
        if alive > top:
            top, at = alive, index
    return at, [mark.phase for mark in trace.marks if mark.index <= at][-1]


def _range(doubts: tuple[str, ...]) -> tuple[float, float]:
    return REPLAYED if not doubts else DOUBTFUL if len(doubts) == 1 else VERY_DOUBTFUL


def unvalidated_settings(profile: Profile, made: MetaModel, card: Card) -> tuple[str, ...]:
    """What of this setting has never been compared with a measurement, in words."""
    train, experts = profile.train, getattr(made.config.get_text_config(), "num_experts", None)
    experts = experts or getattr(made.config.get_text_config(), "num_local_experts", None)
    facts = {
        "Apple's GPU": card.kind == "mps",
        "autocast on a GPU": card.kind == "cuda" and made.hardware.precision != "fp32",
        "8-bit weights": profile.adapter.load_in_8bit,
        f"the optimizer {train.optim}": not train.optim.startswith("adamw_torch"),
        "compiled layers": train.torch_compile,
        "Liger's kernels": train.use_liger_kernel,
        "several processes": profile.hardware.num_processes > 1,
        "a part in host memory": bool(profile.hardware.offload or train.activation_offload),
        "mixtures of experts": bool(experts),
        "packed rows": profile.data.packing,
    }
    return tuple(name for name, holds in facts.items() if holds)
