"""One training run as far as memory and time depend on it: everything that was `auto` is decided here."""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Literal

from ftui.hardware.devices import Card
from ftui.models.config_reader import ModelShape
from ftui.models.joinable import JOINABLE
from ftui.rollouts.dealt_answers import dealt_size, largest_part

Attention = Literal["flash", "efficient", "math", "eager"]
Parallel = Literal["ddp", "zero1", "zero2", "zero3", "fsdp"]

BYTES = {"float32": 4, "bfloat16": 2, "float16": 2, "fp32": 4, "bf16": 2, "fp16": 2}
AMPERE, WIDEST_FLASH_HEAD = 80, 256


@dataclass(frozen=True)
class AnsweredRows:
    """Rows that an evaluation answers; tokens of the longest prompt and answer."""

    num_rows: int
    prompt_tokens: int
    new_tokens: int


@dataclass(frozen=True)
class RolloutSize:
    """Answers of a rollout: to how many prompts, how many together, how many at once in each process, and how many in
    the one that has the most (`part`); tokens of the longest prompt and answer. `stage`: the profile's."""

    stage: str
    num_prompts: int
    num_rows: int
    at_once: int
    part: int
    prompt_tokens: int
    new_tokens: int


@dataclass(frozen=True)
class TrainingSetup:
    """What the closed form and the clock read. Types are bytes for a number: 4 = float32, 2 = 16 bits.

    Attributes:
        length: tokens of the longest line of a micro-batch (padded), at most `data.max_length`.
        num_lines: lines of each example of a micro-batch: 2 where the answers of a pair stand apart.
        longest_example: tokens of the longest pair, where its prompt is computed once.
        storage: bytes a frozen weight is stored in where it is not quantised.
        trained: bytes a trained weight is stored in.
        compute: bytes of the type of the heavy arithmetic (the autocast's).
        attention: kernel: `flash` (also through sdpa), `efficient`, `math`, `eager`.
        has_mask: whether some layer needs a mask (rows, 1, length, length): packed rows, a window shorter than a row.
        evaluates: whether there are rows to evaluate on.
        momentum: whether `sgd` or `rmsprop` keep one; `centered`: whether `rmsprop` keeps a mean.
        rank_is_free: whether `r` and `lora_alpha` say it all: no other ranks or alphas by pattern, none taken over from
            an adapter to continue from; `even_rank`: whether an odd one is refused.
        dtype, attn_implementation: as they stand in the profile.
        has_bitsandbytes: whether the device that the profile asks for has it.
        rows_are_cut: whether some row is known to be longer than `data.max_length`.
        answered: what evaluations answer (`eval.generate`), if they do.
        sampled: the answers that it trains on, where it samples them itself (stage grpo).
        shard, dp_shard_size, offload, activation_offload: as they stand in the profile; `adds_tokens`: whether it has
            new tokens.
        keeps_reference: whether the trained weights are kept as they were at the start.
        scoring: bytes of the reward model that answers are scored with; `None`: not known.
        num_cards: how many of the card the machine has, host_memory: bytes of RAM that a run may use there; as far as
            that is known.
    """

    shape: ModelShape
    card: Card
    method: Literal["lora", "qlora", "full", "freeze"]
    length: int
    micro_batch: int
    eval_batch: int
    accumulation: int
    num_processes: int
    r: int
    target_modules: str | tuple[str, ...]
    is_8bit: bool
    double_quant: bool
    use_dora: bool
    lora_dropout: float
    trainable_layers: int | None
    modules_to_save: tuple[str, ...]
    storage: int
    trained: int
    compute: int
    attention: Attention
    checkpointing: int | None
    """Every n-th layer's activations are forgotten; `None`: none are."""
    optim: str
    packing: bool
    parallel: Parallel = "ddp"
    exclude_modules: str | tuple[str, ...] | None = None
    layers_to_transform: tuple[int, ...] | None = None
    layers_pattern: str | None = None
    rank_pattern: Mapping[str, int] = field(default_factory=dict)
    bias: str = "none"
    trainable_modules: tuple[str, ...] = ()
    has_mask: bool = False
    evaluates: bool = True
    weight_decay: bool = False
    momentum: bool = False
    centered: bool = False
    is_compiled: bool = False
    has_liger: bool = False
    precision: Literal["bf16", "fp16", "fp32"] = "bf16"
    lora_alpha: int = 32
    use_rslora: bool = False
    rank_is_free: bool = True
    even_rank: bool = False
    use_fused_lora: bool = False
    dtype: str = "auto"
    attn_implementation: str = "auto"
    is_from_scratch: bool = False
    has_bitsandbytes: bool = True
    rows_are_cut: bool = False
    num_lines: int = 1
    answered: AnsweredRows | None = None
    sampled: RolloutSize | None = None
    longest_example: int | None = None
    shard: Literal["none", "state", "all"] = "none"
    dp_shard_size: int | None = None
    offload: tuple[str, ...] = ()
    activation_offload: bool = False
    adds_tokens: bool = False
    scoring: int | None = 0
    keeps_reference: bool = False
    num_cards: int = 1
    host_memory: int | None = None
    forgotten: int | None = None
    """Of how many first layers activations are forgotten, if not of all of them."""

    @property
    def evaluates_loss(self) -> bool:
        """Whether evaluations measure a loss: of stages that learn from rewards they answer prompts."""
        return self.evaluates and self.sampled is None

    @property
    def answers_at_once(self) -> int:
        """Of how many rows the answers are in the making together."""
        return self.eval_batch if self.answered is None else min(self.eval_batch, self.answered.num_rows)

    @property
    def num_sharing(self) -> int:
        """Among how many processes `hardware.shard` divides a model."""
        return self.dp_shard_size or self.num_processes

    @property
    def divides_trained(self) -> bool:
        """Whether weights that are trained, their gradients and moments are divided."""
        return self.method == "full" and self.shard != "none" and self.num_processes > 1

    @property
    def is_lora(self) -> bool:
        """Whether what is trained is an adapter beside the base."""
        return self.method in ("lora", "qlora")

    @property
    def is_quantised(self) -> bool:
        """Whether bitsandbytes holds the base."""
        return self.method == "qlora" or self.is_8bit

    @property
    def is_fused(self) -> bool:
        """Whether adapted layers are one operation each: what `can_fuse` of engine/models/fused_lora.py asks."""
        is_plain = not (self.lora_dropout or self.use_dora or self.is_8bit) and self.bias == "none"
        return self.use_fused_lora and self.is_lora and is_plain

    @property
    def stores_on_host(self) -> bool:
        """Whether what layers store for the backward pass leaves the device."""
        return self.activation_offload and self.card.kind != "cpu"

    @property
    def moments_on_host(self) -> bool:
        """Whether the optimizer's state leaves the device."""
        return "state" in self.offload and self.card.kind != "cpu"

    def forgets(self, layer: int) -> bool:
        """Whether the activations of this layer (from 0) are computed again."""
        every, first = self.checkpointing, self.forgotten
        return every is not None and layer % every == 0 and (first is None or layer < first)

    @property
    def share_forgotten(self) -> float:
        """Of the layers, 0 to 1: those whose activations are computed again."""
        number = self.shape.num_layers
        return sum(self.forgets(layer) for layer in range(number)) / number

    @property
    def num_tokens(self) -> int:
        """Tokens of one micro-batch, padding included."""
        return self.micro_batch * self.example_tokens

    @property
    def example_tokens(self) -> int:
        """Tokens that are computed of the longest example, padding included."""
        apart = self.num_lines * self.length
        return apart if self.longest_example is None else min(apart, self.longest_example)


def build_setup(
    profile: Any, shape: ModelShape, card: Card, *, longest: int | None = None, longest_example: int | None = None,
    rows_are_cut: bool = False,
) -> TrainingSetup:  # fmt: skip
    """The setup of a profile (its sections are read by name) with that model, on that card.

    Args:
        longest: tokens of the longest row, where the rows are known; without it, rows are as long as they may be.
        longest_example: tokens of the longest pair with its prompt once, where that is known.
        rows_are_cut: whether some are longer than they may be.
    """
    adapter, train, data = profile.adapter, profile.train, profile.data
    if profile.gives_scores:
        shape = shape.as_reward_model()
    length = profile.longest_line(longest)
    precision = precision_on(card, train.precision)
    compute = BYTES[precision]
    storage, trained = _stored(profile, compute)
    wanted, forgets = profile.model.attn_implementation, train.activation_checkpointing
    has_mask = needs_mask(wanted, shape, length, packing=data.packing)
    details, args = train.activation_checkpointing_kwargs, train.optim_args
    return TrainingSetup(
        shape=shape, card=card, method=adapter.method, length=length, micro_batch=profile.micro_batch,
        eval_batch=profile.eval.per_device_eval_batch_size, accumulation=profile.accumulation,
        num_processes=profile.hardware.num_processes, r=adapter.r, target_modules=adapter.target_modules,
        is_8bit=adapter.load_in_8bit, double_quant=adapter.bnb_4bit_use_double_quant, use_dora=adapter.use_dora,
        lora_dropout=adapter.lora_dropout, trainable_layers=adapter.trainable_layers,
        modules_to_save=adapter.modules_to_save or (), storage=storage, trained=trained, compute=compute,
        attention=kernel(wanted, shape, card, precision, has_mask=has_mask),
        checkpointing=(1 if details is None else details.every_n_layers) if forgets else None,
        forgotten=details.num_layers if forgets and details is not None else None,
        optim=train.optim, packing=data.packing, exclude_modules=adapter.exclude_modules,
        layers_to_transform=adapter.layers_to_transform, layers_pattern=adapter.layers_pattern,
        rank_pattern=adapter.rank_pattern, bias=adapter.bias, trainable_modules=adapter.trainable_modules or (),
        has_mask=has_mask, keeps_reference=profile.keeps_reference,
        evaluates=any(given is not None for given in (data.eval, data.eval_fraction, data.eval_num_rows)),
        weight_decay=train.weight_decay > 0, momentum=bool(args is not None and args.momentum),
        centered=bool(args is not None and args.centered),
        is_compiled=train.torch_compile, has_liger=train.use_liger_kernel, precision=precision,
        lora_alpha=adapter.lora_alpha, use_rslora=adapter.use_rslora,
        rank_is_free=not (adapter.rank_pattern or adapter.alpha_pattern or adapter.name_or_path),
        even_rank=adapter.init_lora_weights == "orthogonal", dtype=profile.model.dtype, attn_implementation=wanted,
        shard=profile.hardware.shard, dp_shard_size=profile.hardware.dp_shard_size,
        offload=profile.hardware.offload, activation_offload=train.activation_offload,
        adds_tokens=bool(profile.model.extra_special_tokens), use_fused_lora=adapter.use_fused_lora,
        has_bitsandbytes=card.kind != "mps" and profile.hardware.device != "mps", rows_are_cut=rows_are_cut,
        num_lines=profile.num_lines, is_from_scratch=profile.model.from_scratch is not None,
        longest_example=longest_example if shares_prompts(profile, shape, card, length) else None,
        sampled=_sampled(profile, longest) if profile.samples_answers else None,
    )  # fmt: skip


def _sampled(profile: Any, longest: int | None) -> RolloutSize:
    section = profile.sampled
    num_prompts = profile.rows_per_step * section.steps_and_passes[0]
    number, num_processes = num_prompts * section.num_generations, profile.hardware.num_processes
    size = dealt_size(number, section.num_generations, section.max_num_seqs, num_processes)
    part = largest_part(number, size, num_processes)
    prompt = (longest or profile.data.max_length) - section.max_completion_length
    at_once = min(part, section.max_num_seqs or part)
    return RolloutSize(profile.run.stage, num_prompts, number, at_once, part, prompt, section.max_completion_length)


def shares_prompts(profile: Any, shape: ModelShape, card: Card, length: int) -> bool:
    """Whether a run computes the prompt of a pair once, as `choose_layout` of engine/models/joined_rows.py decides it
    (but for packed rows, of which it is not known what they save)."""
    train, data, wanted = profile.train, profile.data, profile.model.attn_implementation
    is_joined = data.padding_free and not (train.torch_compile or train.neftune_noise_alpha)
    is_known = shape.model_type in JOINABLE and not shape.eager_only and wanted in ("auto", "sdpa")
    is_cut = needs_mask(wanted, shape, length, packing=False)
    return card.kind == "cpu" and profile.num_lines > 1 and is_joined and is_known and not is_cut


def with_length(setup: TrainingSetup, length: int) -> TrainingSetup:
    """The same with other rows, which may need a mask where the old ones did not, and another kernel for it."""
    wanted, shape = setup.attn_implementation, setup.shape
    has_mask = needs_mask(wanted, shape, length, packing=setup.packing)
    attention = kernel(wanted, shape, setup.card, setup.precision, has_mask=has_mask)
    return replace(setup, length=length, has_mask=has_mask, attention=attention)


def needs_mask(wanted: str, shape: ModelShape, length: int, *, packing: bool) -> bool:
    """Whether some layer needs a mask of its own; FlashAttention's package is told of windows and rows otherwise."""
    if wanted == "flash_attention_2":
        return False
    return packing or any(layer.window is not None and layer.window <= length for layer in shape.layers)


def precision_on(card: Card, wanted: str) -> Literal["bf16", "fp16", "fp32"]:
    """`auto` as engine/system/device.py `best_precision` decides it, on that card."""
    if wanted in ("bf16", "fp16", "fp32"):
        return wanted  # type: ignore[return-value]
    if card.has_bf16:
        return "bf16"
    return "fp16" if card.kind == "cuda" else "fp32"


def _stored(profile: Any, compute: int) -> tuple[int, int]:
    """Bytes of a frozen and of a trained weight, as engine/models/methods.py `storage_dtype` and `freeze` have it."""
    wanted, adapter = profile.model.dtype, profile.adapter
    given = None if wanted == "auto" else BYTES[wanted]
    if adapter.is_lora:
        return given or compute, 4
    if adapter.method == "freeze":
        return given or compute, given or 4
    return given or 4, given or 4


def kernel(wanted: str, shape: ModelShape, card: Card, precision: str, *, has_mask: bool) -> Attention:
    """Which kernel computes the attention.

    Through sdpa (`auto` too, for FlashAttention's own package may be missing there) torch 2.13 chooses
    (aten/native/transformers/cuda/sdp_utils.cpp): flash for 16 bits since Ampere without a mask; else the
    memory-efficient one, which takes a mask but no shared keys (engine/models/attention.py repeats them for it) and no
    bf16 before Ampere.
    """
    if wanted == "eager" or (shape.eager_only and wanted != "flash_attention_2"):
        return "eager"
    if card.kind == "mps":
        return "math"
    if wanted == "flash_attention_2" or card.kind == "cpu":
        return "flash"
    narrow = shape.head_dim <= WIDEST_FLASH_HEAD
    if card.capability >= AMPERE and precision != "fp32" and not has_mask and narrow:
        return "flash"
    return "math" if card.capability < AMPERE and precision == "bf16" else "efficient"
