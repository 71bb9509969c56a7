"""What can be changed in a profile so that its run takes less memory: each lever with its price in words.

A lever is there only where the profile would stay valid with it (ftui/profile/checks/) and the engine
would take it. Those of one axis exclude each other and go from the weakest to the strongest.

The loss is computed in chunks whatever the profile says (engine/objectives/chunked_head.py), and packing changes how
much is padding, not how much memory a full row takes: neither is a lever.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from math import sqrt
from typing import Any

from ftui.estimate.setup import BYTES, TrainingSetup, with_length
from ftui.profile.sections.optimizers import FROM_BITSANDBYTES, TAKES

Key = tuple[str, ...]

MICRO_BATCH: Key = ("train", "per_device_train_batch_size")
ACCUMULATION: Key = ("train", "gradient_accumulation_steps")
EVAL_BATCH: Key = ("eval", "per_device_eval_batch_size")
MAX_LENGTH: Key = ("data", "max_length")
CHECKPOINTING: Key = ("train", "activation_checkpointing")
CHECKPOINTING_KWARGS: Key = ("train", "activation_checkpointing_kwargs")
METHOD: Key = ("adapter", "method")
OPTIM: Key = ("train", "optim")
OPTIM_ARGS: Key = ("train", "optim_args")
EIGHT_BIT: Key = ("adapter", "load_in_8bit")
TWICE: Key = ("adapter", "bnb_4bit_use_double_quant")
ATTENTION: Key = ("model", "attn_implementation")
DTYPE: Key = ("model", "dtype")
PROCESSES: Key = ("hardware", "num_processes")
SHARD: Key = ("hardware", "shard")
OFFLOAD: Key = ("hardware", "offload")
STORED: Key = ("train", "activation_offload")
RANK: Key = ("adapter", "r")
ALPHA: Key = ("adapter", "lora_alpha")
LAYERS: Key = ("adapter", "trainable_layers")
MODULES: Key = ("adapter", "trainable_modules")

LEAST_SHARE = 0.5
"""engine/models/quantization.py: of the weights inside, the share that bitsandbytes must be able to quantise."""


SHORTEST_POWER, LONGEST_POWER = 8, 17
"""Lengths of rows that are proposed are powers of two: 256 to 131072 tokens."""


@dataclass(frozen=True)
class Lever:
    """One thing that can be changed: fields of the setup, keys of the profile, why; axes that it leaves no choice."""

    fields: Mapping[str, Any]
    values: Mapping[Key, Any]
    reason: str
    settles: tuple[str, ...] = ()


# Axes by what they cost: speed alone; exactness, or how much is trained; the method; the ends of long rows.
SPEED = ("attention", "eval batch", "answers", "checkpointing", "optimizer", "micro-batch", "stored", "state", "place")
LESS = ("base", "trained")
OTHER = ("method",)
SHORTER = ("length",)


def list_axes(setup: TrainingSetup) -> dict[str, list[Lever]]:
    """All levers of a setup, by axis."""
    offloads, is_full = _offloads(setup), setup.method == "full"
    return {
        "attention": _attention(setup), "eval batch": _eval_batch(setup), "answers": _answers(setup),
        "checkpointing": _checkpointing(setup),
        "optimizer": _optimizer(setup), "micro-batch": _micro_batches(setup), "stored": _stored(setup),
        "state": offloads if is_full else [], "place": [*_shards(setup), *([] if is_full else offloads)],
        "base": _base(setup),
        "trained": [*_ranks(setup), *_narrow(setup)], "length": _lengths(setup), "method": _adapter(setup),
    }  # fmt: skip


def list_needed(setup: TrainingSetup) -> list[Lever]:
    """What must be changed for the card to train it at all, however much memory it has.

    The engine refuses it there, and a profile that names such a device is refused at once
    (ftui/profile/checks/training_checks.py).
    """
    levers = []
    lacks = "bitsandbytes has nothing for Apple's GPUs"
    if not setup.has_bitsandbytes and setup.method == "qlora":
        values: dict[Key, Any] = {METHOD: "lora"} | ({} if setup.double_quant else {TWICE: True})
        why = f"{lacks}, so that there is no QLoRA: LoRA beside a base in 16 or 32 bits"
        levers.append(Lever({"method": "lora", "double_quant": True}, values, why))
    if not setup.has_bitsandbytes and setup.is_8bit:
        levers.append(Lever({"is_8bit": False}, {EIGHT_BIT: False}, f"{lacks}, so that no base is stored in 8 bits"))
    if not setup.has_bitsandbytes and setup.optim in FROM_BITSANDBYTES:
        values = {OPTIM: "adamw_torch"} | ({OPTIM_ARGS: "none"} if TAKES.get(setup.optim) else {})
        levers.append(Lever({"optim": "adamw_torch"}, values, f"{lacks}, {setup.optim} among it: torch's AdamW"))
    if setup.attn_implementation == "flash_attention_2" and (setup.card.kind != "cuda" or setup.precision == "fp32"):
        why = "flash_attention_2 is for 16 bits on NVIDIA's GPUs: torch's attention"
        levers.append(Lever({"attn_implementation": "auto"}, {ATTENTION: "auto"}, why))
    return levers


def apply_levers(setup: TrainingSetup, levers: list[Lever]) -> TrainingSetup:
    """The setup after these changes."""
    changed = replace(setup, **{name: value for lever in levers for name, value in lever.fields.items()})
    is_other = changed.length != setup.length or changed.attn_implementation != setup.attn_implementation
    return with_length(changed, changed.length) if is_other else changed


def effective(setup: TrainingSetup) -> str:
    """What a change of the micro-batch keeps, in words."""
    return f"the effective batch stays {setup.micro_batch * setup.accumulation * setup.num_processes}"


def _attention(setup: TrainingSetup) -> list[Lever]:
    if setup.attn_implementation != "eager" or setup.shape.eager_only:
        return []
    why = "torch's attention: the same values, without a matrix of all scores"
    return [Lever({"attn_implementation": "auto"}, {ATTENTION: "auto"}, why)]


def _eval_batch(setup: TrainingSetup) -> list[Lever]:
    if not setup.evaluates_loss or setup.eval_batch <= setup.micro_batch:
        return []
    why = f"evaluation in batches of {setup.micro_batch}, as in training"
    return [Lever({"eval_batch": setup.micro_batch}, {EVAL_BATCH: setup.micro_batch}, why)]


def _answers(setup: TrainingSetup) -> list[Lever]:
    """A half, a quarter, an eighth of the answers at once, and so on."""
    rows, levers = setup.sampled, []
    size = 1 if rows is None else rows.at_once
    while rows is not None and size > 1:
        size = (size + 1) // 2
        why = f"answers generated {size} at a time: fewer keys and values, more passes"
        levers.append(Lever({"sampled": replace(rows, at_once=size)}, {(rows.stage, "max_num_seqs"): size}, why))
    return levers


def _checkpointing(setup: TrainingSetup) -> list[Lever]:
    now, number, is_on = setup.share_forgotten, setup.shape.num_layers, setup.checkpointing is not None
    on: dict[Key, Any] = {} if is_on else {CHECKPOINTING: True}
    every = {} if setup.checkpointing in (None, 1) else {"every_n_layers": 1}
    levers = []
    for first in sorted({-(-number * quarter // 4) for quarter in (1, 2, 3)}):
        if now < first / number < 1:
            why = f"activation checkpointing of {first} of {number} layers: the backward pass computes theirs again"
            values: dict[Key, Any] = on | {CHECKPOINTING_KWARGS: every | {"num_layers": first}}
            levers.append(Lever({"checkpointing": 1, "forgotten": first}, values, why))
    if now < 1:
        values = {CHECKPOINTING_KWARGS: "none"} if is_on else on
        why = "activation checkpointing: only the inputs of layers are kept, the rest is computed again"
        levers.append(Lever({"checkpointing": 1, "forgotten": None}, values, why))
    return levers


def _shards(setup: TrainingSetup) -> list[Lever]:
    """The base, or all that is trained, divided among processes; among all cards where only one of them is used."""
    is_kept_whole = setup.use_dora or setup.is_8bit or setup.bias != "none" or setup.modules_to_save
    has_experts = any(layer.experts is not None for layer in setup.shape.layers)
    is_other = setup.is_compiled or setup.has_liger or setup.adds_tokens or setup.card.kind == "mps"
    is_offloaded = setup.offload or setup.activation_offload
    if setup.shard != "none" or is_kept_whole or has_experts or is_other or is_offloaded:
        return []
    if not setup.is_lora and (setup.method != "full" or not _divides_state(setup)):
        return []
    now, number = setup.num_processes, max(setup.num_processes, setup.num_cards)
    if number == 1:
        return []
    fields: dict[str, Any] = {"shard": "all", "num_processes": number}
    values: dict[Key, Any] = {SHARD: "all"}
    what = "the frozen base" if setup.is_lora else "weights, gradients and moments"
    why = f"{what} divided among {number} GPUs, layers gathered as they compute"
    settled = ("stored",) if setup.is_lora else ("stored", "optimizer", "state")
    if number == now:
        return [Lever(fields, values, why, settled)]
    rows = setup.micro_batch * setup.accumulation
    if rows % number:
        return []
    size = min(setup.micro_batch, rows // number)
    while rows % (number * size):
        size -= 1
    fields |= {"micro_batch": size, "accumulation": rows // (number * size)}
    values |= {PROCESSES: number, MICRO_BATCH: size, ACCUMULATION: rows // (number * size)}
    return [Lever(fields, values, f"{why}; {effective(setup)}", ("micro-batch", *settled))]


def _divides_state(setup: TrainingSetup) -> bool:
    """Whether the state of the weights that are trained can be divided: of torch's own optimizers, by any row."""
    is_plain = not (setup.is_from_scratch or setup.shape.gives_scores)
    return is_plain and setup.optim not in FROM_BITSANDBYTES and setup.optim != "adafactor"


def _offloads(setup: TrainingSetup) -> list[Lever]:
    """The base in host memory beside an adapter, else the optimizer's state, else both."""
    if setup.card.kind == "cpu" or setup.is_compiled or setup.shard != "none":
        return []
    levers, offload = [], setup.offload
    has_torch = setup.optim not in FROM_BITSANDBYTES
    if has_torch and not setup.is_lora and "state" not in offload:
        offload = (*offload, "state")
        why = "the optimizer's state in host memory: it crosses PCIe in each update"
        levers.append(Lever({"offload": offload}, {OFFLOAD: [*offload]}, why, settles=("optimizer",)))
    if setup.method == "full" or setup.is_8bit or "base" in offload:
        return levers
    fields = {"offload": ("base", *offload), "checkpointing": 1, "forgotten": None}
    values: dict[Key, Any] = {OFFLOAD: ["base", *offload]}
    if setup.checkpointing is None:
        values[CHECKPOINTING] = True
    elif setup.share_forgotten < 1:
        values[CHECKPOINTING_KWARGS] = "none"
    more = " and the optimizer's state" if offload else ""
    why = f"the frozen layers{more} in host memory: each layer comes to the GPU to compute, forward and backward"
    settled = ("checkpointing", "optimizer") if offload else ("checkpointing",)
    return [*levers, Lever(fields, values, why, settles=settled)]


def _stored(setup: TrainingSetup) -> list[Lever]:
    if setup.card.kind == "cpu" or setup.is_compiled or setup.activation_offload or setup.shard != "none":
        return []
    why = "what layers store in host memory until the backward pass: it crosses PCIe twice"
    return [Lever({"activation_offload": True}, {STORED: True}, why)]


EIGHT_BITS = {
    "adamw_torch": "adamw_8bit", "adamw_torch_fused": "adamw_8bit", "paged_adamw_32bit": "paged_adamw_8bit",
    "lion_32bit": "lion_8bit", "paged_lion_32bit": "paged_lion_8bit", "ademamix": "ademamix_8bit",
    "paged_ademamix_32bit": "paged_ademamix_8bit", "rmsprop_bnb": "rmsprop_bnb_8bit",
    "rmsprop_bnb_32bit": "rmsprop_bnb_8bit",
}  # fmt: skip
"""Optimizers with moments in 32 bits, and the same with moments in 8."""


def _optimizer(setup: TrainingSetup) -> list[Lever]:
    """Not one with pages: it has a place to go when the card is full, but takes as much where it is not."""
    if setup.optim not in EIGHT_BITS or not setup.has_bitsandbytes:
        return []
    optim = EIGHT_BITS[setup.optim]
    why = f"{optim}: moments in 8 bits, a quarter of the memory"
    if setup.card.kind == "cuda" and f"paged_{optim}" in FROM_BITSANDBYTES:
        why += f" (paged_{optim} takes as much, and moves them to the host should the card be full)"
    return [Lever({"optim": optim}, {OPTIM: optim}, why)]


def _micro_batches(setup: TrainingSetup) -> list[Lever]:
    """About a half and a quarter of the rows at once, and one."""
    rows = setup.micro_batch * setup.accumulation
    parts = [size for size in range(1, setup.micro_batch) if rows % size == 0]
    if not parts:
        return []
    half, quarter = (max(size for size in parts if size <= max(1, setup.micro_batch // n)) for n in (2, 4))
    return [
        Lever(
            {"micro_batch": size, "accumulation": rows // size},
            {MICRO_BATCH: size, ACCUMULATION: rows // size},
            f"micro-batches of {size}: fewer rows at once; {effective(setup)}",
        )
        for size in sorted({half, quarter, 1}, reverse=True)
    ]


def _base(setup: TrainingSetup) -> list[Lever]:
    """The frozen base in fewer bits."""
    if setup.method != "lora" or setup.is_8bit:
        return []
    levers = []
    if setup.storage > setup.compute:
        why = "the frozen base in 16 bits, as it is computed with"
        levers.append(Lever({"storage": setup.compute}, {DTYPE: "auto"}, why))
    if _can_quantise(setup) and setup.bias == "none":
        why = "the frozen base in 4 bits (QLoRA): a quarter of the memory of 16 bits, slower, a little less exact"
        levers.append(Lever({"method": "qlora"}, {METHOD: "qlora"}, why))
    return levers


def _can_quantise(setup: TrainingSetup) -> bool:
    """Whether the engine would store the base in few bits: not where most of it are the experts of a mixture."""
    shape = setup.shape
    inner = shape.num_parameters - shape.num_ends
    linear = sum(layer.num_linear for layer in shape.layers)
    return setup.has_bitsandbytes and linear >= LEAST_SHARE * inner


def _ranks(setup: TrainingSetup) -> list[Lever]:
    """Half and a quarter of the rank, and of `lora_alpha`, so that the adapter is scaled as before."""
    if not setup.is_lora or not setup.rank_is_free:
        return []
    levers = []
    for part in (2, 4):
        r = setup.r // part
        alpha = setup.lora_alpha * (sqrt(r / setup.r) if setup.use_rslora else r / setup.r)
        if r < 4 or (setup.even_rank and r % 2) or round(alpha) < 1:
            continue
        values = {RANK: r, ALPHA: round(alpha)}
        levers.append(Lever({"r": r, "lora_alpha": round(alpha)}, values, f"adapters of rank {r}: they can learn less"))
    return levers


def _narrow(setup: TrainingSetup) -> list[Lever]:
    if setup.method not in ("full", "freeze") or setup.trained != 4 or setup.precision != "bf16":
        return []
    why = "trained weights and moments in bfloat16: half the memory, but small updates (below 1/256) round away"
    return [Lever({"storage": 2, "trained": 2, "dtype": "bfloat16"}, {DTYPE: "bfloat16"}, why)]


def _lengths(setup: TrainingSetup) -> list[Lever]:
    least = 0 if setup.sampled is None else 2 * setup.sampled.new_tokens  # a prompt has to fit before its answer
    powers = (1 << k for k in range(LONGEST_POWER, SHORTEST_POWER - 1, -1))
    shorter = [n for n in powers if least <= n < setup.length][:4]
    return [Lever({"length": n}, {MAX_LENGTH: n}, f"rows of at most {n} tokens: longer ones are cut") for n in shorter]


def _adapter(setup: TrainingSetup) -> list[Lever]:
    """An adapter beside the frozen model in place of its own weights."""
    if setup.method not in ("full", "freeze") or setup.is_from_scratch:
        return []
    # written out, for a tier below would have others for them
    values: dict[Key, Any] = {RANK: setup.r, ALPHA: setup.lora_alpha}
    fields: dict[str, Any] = {"storage": setup.compute, "trained": 4, "trainable_layers": None, "trainable_modules": ()}
    if setup.dtype != "auto":
        fields["storage"] = min(setup.compute, BYTES[setup.dtype])
        if BYTES[setup.dtype] > setup.compute:
            fields["dtype"] = values[DTYPE] = "auto"
    if setup.trainable_layers is not None:
        values[LAYERS] = "none"
    if setup.trainable_modules:
        values[MODULES] = "none"
    less = "small matrices are trained beside the frozen model, which learns less than all of it would"
    levers = [Lever({**fields, "method": "lora"}, {METHOD: "lora", **values}, f"LoRA: {less}")]
    if _can_quantise(setup):
        why = f"QLoRA: {less}; its weights are stored in 4 bits"
        levers.append(Lever({**fields, "method": "qlora"}, {METHOD: "qlora", **values}, why))
    return levers
