"""`[adapter]`: the method, which weights it trains, and how frozen weights are stored."""

import re
import warnings
from typing import Annotated, Any, Literal

from pydantic import Field, field_validator

from ftui.profile.sections.fields import Section, conduct, refuse_address, weights

# Keys without effect under another method. A value other than the default is a misunderstanding there; of the keys that
# shape each adapter, so is any value written by hand (copies of old runs have all of them).
LORA_SHAPE = ("r", "lora_alpha", "lora_dropout", "target_modules")
LORA_ONLY = (
    "name_or_path", "exclude_modules", "layers_to_transform", "layers_pattern", "rank_pattern", "alpha_pattern",
    "bias", "modules_to_save", "use_dora", "use_rslora", "use_fused_lora", "init_lora_weights",
)  # fmt: skip
QLORA_ONLY = ("bnb_4bit_quant_type", "bnb_4bit_use_double_quant", "bnb_4bit_compute_dtype")
FREEZE_ONLY = ("trainable_layers", "trainable_modules")

# Starts of an adapter that are refused, and why.
_REWRITES = "rewrites the base weights, so that the adapter would be wrong on the base you have"
REFUSED_STARTS = {
    **dict.fromkeys(("pissa", "olora", "loftq", "corda", "lora_ga"), _REWRITES),
    "eva": "needs a pass over the rows before training, which is not built yet",
    "mica": "freezes half of the adapter, which is not built yet",
}


class AdapterSection(Section):
    """`[adapter]`: which weights are trained, and how the others are stored."""

    method: Literal["lora", "qlora", "full", "freeze"] = weights("lora")
    """`lora` trains small matrices beside the frozen base. `qlora` does the same beside a base in 4 bits. `full` trains
    every weight of the model. `freeze` trains only what trainable_layers and trainable_modules name."""

    name_or_path: str | None = weights(None)
    """A LoRA adapter to continue from: a folder, or a hub id. Its rank, layers and other settings are kept."""

    r: int = weights(16, ge=1, le=1024)
    """Rank of the LoRA matrices: a higher rank can learn more and costs more memory."""

    lora_alpha: int = weights(32, ge=1)
    """Scale of the adapter: its output is multiplied by lora_alpha / r."""

    lora_dropout: float = weights(0.0, ge=0, lt=1)
    """Share of the adapter's inputs that is dropped while training."""

    target_modules: str | tuple[str, ...] = weights("all-linear")
    """Layers that get an adapter: `all-linear`, a list of names such as `["q_proj", "v_proj"]`, or a regular expression
    that matches the whole names of layers."""

    exclude_modules: str | tuple[str, ...] | None = weights(None)
    """Exceptions from target_modules: a list of names, or a regular expression."""

    layers_to_transform: tuple[int, ...] | None = weights(None)
    """Decoder layers (numbered from 0) that get an adapter. "none" = all."""

    layers_pattern: str | None = weights(None)
    """Name of the list of decoder layers, if layers_to_transform does not find it by itself."""

    rank_pattern: dict[str, Annotated[int, Field(ge=1, le=1024)]] = weights({})
    """Other ranks for some layers: a table of name (or regular expression) = rank."""

    alpha_pattern: dict[str, Annotated[int, Field(ge=1)]] = weights({})
    """Other lora_alpha for some layers: a table of name (or regular expression) = lora_alpha."""

    bias: Literal["none", "all", "lora_only"] = weights("none")
    """Which biases of the base to train too: none, all, or those of the layers with an adapter."""

    modules_to_save: tuple[str, ...] | None = weights(None)
    """Modules to train in full beside the adapter and save with it, such as `["embed_tokens", "lm_head"]`."""

    use_dora: bool = weights(False)
    """DoRA: train the length of each row of weights apart from its direction. Slower, better at low ranks."""

    use_rslora: bool = weights(False)
    """Multiply the adapter's output by lora_alpha / sqrt(r) instead of lora_alpha / r: better at high ranks."""

    use_fused_lora: bool = conduct(True)
    """Compute a layer and its adapter as one operation: faster, less memory, the last digits differ from PEFT's. Layers
    that this cannot do (dropout, DoRA, 8 bits) are computed by PEFT."""

    init_lora_weights: bool | str = weights(True)
    """Initial matrices: true (the adapter starts without effect), false (random), `gaussian`, or `orthogonal`."""

    load_in_8bit: bool = weights(False)
    """`lora` only: store the frozen base in 8 bits (LLM.int8): half the memory of bf16, slower."""

    bnb_4bit_quant_type: Literal["nf4", "fp4"] = weights("nf4")
    """`qlora`: how a weight is stored in 4 bits. `nf4` suits weights that are normally distributed."""

    bnb_4bit_use_double_quant: bool = weights(True)
    """`qlora`: quantise the scales of the blocks too. Saves 0.4 bits per weight."""

    bnb_4bit_compute_dtype: Literal["auto", "bfloat16", "float16", "float32"] = weights("auto")
    """`qlora`: type in which the 4-bit layers compute. `auto` follows train.precision."""

    trainable_layers: int | None = weights(None, ge=1)
    """`freeze`: train this many of the last decoder layers."""

    trainable_modules: tuple[str, ...] | None = weights(None)
    """`freeze`: train the weights whose name contains a match of one of these regular expressions, such as
    `["embed_tokens", "lm_head"]`."""

    @field_validator("bias", mode="before")
    @classmethod
    def _none_is_a_choice(cls, bias: Any) -> Any:
        return "none" if bias is None else bias  # elsewhere "none" turns a key off, and arrives as None

    @field_validator("rank_pattern", "alpha_pattern", mode="before")
    @classmethod
    def _none_is_empty(cls, patterns: Any) -> Any:
        return {} if patterns is None else patterns

    @field_validator("init_lora_weights")
    @classmethod
    def _start_known(cls, start: bool | str) -> bool | str:
        if isinstance(start, bool) or start in ("gaussian", "orthogonal"):
            return start
        reason = REFUSED_STARTS.get(start.partition("_niter")[0])
        if reason is not None:
            raise ValueError(f"{start} {reason}; use true, gaussian or orthogonal")
        raise ValueError(f"true, false, gaussian or orthogonal, not {start!r}")

    @field_validator(
        "target_modules", "exclude_modules", "layers_pattern", "trainable_modules", "rank_pattern", "alpha_pattern"
    )
    @classmethod
    def _patterns_compile(cls, value: Any) -> Any:
        for pattern in (value,) if isinstance(value, str) else value or ():
            try:
                with warnings.catch_warnings(action="ignore", category=FutureWarning):  # "[[a]": it means what it did
                    re.compile(pattern)
            except (re.error, RecursionError, OverflowError) as error:
                raise ValueError(f"{pattern!r} is no regular expression: {error}") from error
        return value

    @field_validator("target_modules")
    @classmethod
    def _name_something(cls, targets: str | tuple[str, ...]) -> str | tuple[str, ...]:
        if not targets or not all(targets):
            raise ValueError('target_modules names no layer; "all-linear" stands for all of them')
        return targets

    @field_validator("layers_to_transform")
    @classmethod
    def _counted_from_0(cls, layers: tuple[int, ...] | None) -> tuple[int, ...] | None:
        if layers == ():
            raise ValueError('layers_to_transform names no layer; "none" stands for all of them')
        if wrong := [layer for layer in layers or () if layer < 0]:
            raise ValueError(f"decoder layers are counted from 0: there is no layer {wrong[0]}")
        return layers

    _no_address = field_validator("name_or_path")(refuse_address)

    @property
    def is_lora(self) -> bool:
        """Whether an adapter is trained beside the base."""
        return self.method in ("lora", "qlora")

    @property
    def is_quantised(self) -> bool:
        """Whether bitsandbytes stores the base in 4 or 8 bits."""
        return self.method == "qlora" or self.load_in_8bit


def unused_keys(method: str) -> tuple[str, ...]:
    """Keys of `[adapter]` that have no effect with this method."""
    is_lora = method in ("lora", "qlora")
    return (
        *(() if is_lora else (*LORA_SHAPE, *LORA_ONLY)),
        *(() if method == "qlora" else QLORA_ONLY),
        *(() if method == "freeze" else FREEZE_ONLY),
    )
