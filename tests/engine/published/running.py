"""Runs the code path of a published measurement on the `meta` device."""

import warnings
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, Literal
from unittest import mock

import torch
from peft import LoraConfig, PeftConfig, get_peft_model
from transformers import AutoModelForCausalLM, BitsAndBytesConfig
from transformers.integrations import sdpa_attention

from ftui.engine.simulate.allocator import Allocator
from ftui.engine.simulate.kernels import kernels_for
from ftui.engine.simulate.loading import transformers_loader
from ftui.engine.simulate.quantized_layers import pack_layers
from ftui.engine.simulate.trace import Trace
from ftui.engine.simulate.tracker import CLEAR
from ftui.hardware.devices import Card
from tests.engine.published.architectures import MODELS, config_of
from tests.support.tracing import Step, phase_peaks, trace


@dataclass(frozen=True)
class CodePath:
    """What a measured program did, as far as its memory depends on it.

    Attributes:
        model: a line of MODELS.
        step: of the program, see steps.py.
        adapter: `None`: all weights are trained.
        num_trainable: as published; anything else means that the settings are not known well enough.
        adapters_like_base: adapters have the type of the base, else float32.
        prepared: PEFT's `prepare_model_for_kbit_training` was called.
        expands_heads: keys and values are repeated for every head before the attention.
        is_padded: the batch has a mask with padding.
        on_device: transformers loaded the weights straight onto the card.
        clears_cache: the allocator's cache is emptied between the two steps.
        frozen: part of the names of adapter weights that are not trained.
        changes: what the program's own model code does otherwise, as keys of transformers' configuration.
    """

    model: str
    step: Step
    dtype: torch.dtype
    card: Card
    adapter: PeftConfig | None = None
    num_trainable: int | None = None
    adapters_like_base: bool = False
    attention: Literal["sdpa", "eager"] = "sdpa"
    quant: Literal["nf4", "nf4-dq"] | None = None
    prepared: bool = False
    checkpointing: bool = False
    expands_heads: bool = False
    is_padded: bool = False
    on_device: bool = False
    clears_cache: bool = False
    frozen: str | None = None
    changes: Mapping[str, Any] = field(default_factory=dict)


class NotTheSame(Exception):
    """What was built is not what was measured."""


@dataclass(frozen=True)
class Result:
    """Bytes: peaks of what tensors hold and of what the allocator reserves, over the whole depth."""

    allocated: int
    reserved: int


def simulate(path: CodePath) -> Result:
    """Over the whole depth, with the allocator's rules.

    Raises:
        NotTheSame: another number of weights is trained than was published.
    """
    found = traced(path, MODELS[path.model][4], check=True)
    events = list(found.events)
    if path.clears_cache:
        events.insert(next(mark.index for mark in found.marks if mark.iteration == 1), CLEAR)
    replay = Allocator().replay(events)
    return Result(replay.allocated, replay.reserved)


def extrapolated(path: CodePath) -> dict[str, int]:
    """Peak bytes of each training phase, from models of one and two layers: a straight line through both."""
    one, two = (phase_peaks(traced(path, num_layers)) for num_layers in (1, 2))
    more = MODELS[path.model][4] - 1
    return {phase: one[phase] + more * (two[phase] - one[phase]) for phase in one if phase != "loading"}


def traced(path: CodePath, num_layers: int, check: bool = False) -> Trace:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of libraries, about how they are used by the programs that were measured
        return _traced(path, num_layers, check)


def _traced(path: CodePath, num_layers: int, check: bool) -> Trace:
    model = build(path, num_layers)
    if check and path.num_trainable is not None:
        count = sum(weight.numel() for weight in model.parameters() if weight.requires_grad)
        if count != path.num_trainable:
            raise NotTheSame(f"{count} weights are trained, {path.num_trainable} were")
    load = None
    if path.quant or path.on_device:
        load = transformers_loader(loaded=path.dtype, prepared=path.prepared)
    with _heads(path):
        return trace(
            model, _adamw, path.step, kernels_for(path.card), load=load,
            vocab_size=model.config.vocab_size, truth=not path.is_padded,
        )  # fmt: skip


def build(path: CodePath, num_layers: int) -> Any:
    """The model on `meta`, with its adapters."""
    config = config_of(path.model, num_layers)
    for key, value in path.changes.items():
        if key != "hidden_act" or str(getattr(config, key, "")).startswith("gelu"):
            setattr(config, key, value)
    with torch.device("meta"):
        model: Any = AutoModelForCausalLM.from_config(config, dtype=path.dtype, attn_implementation=path.attention)
    if path.quant:
        wanted = BitsAndBytesConfig(
            load_in_4bit=True, bnb_4bit_quant_type="nf4", bnb_4bit_compute_dtype=path.dtype,
            bnb_4bit_use_double_quant=path.quant == "nf4-dq",
        )  # fmt: skip
        pack_layers(model, wanted)
    if path.prepared:
        for weight in model.parameters():
            if weight.is_floating_point():
                weight.data = weight.data.float()
    if path.adapter is not None:
        model.requires_grad_(False)
        model = get_peft_model(model, path.adapter, autocast_adapter_dtype=not path.adapters_like_base)
        for name, weight in model.named_parameters():
            weight.requires_grad_(weight.requires_grad and not (path.frozen and path.frozen in name))
    if path.checkpointing:
        model.activation_checkpointing_enable({"use_reentrant": False})
        model.enable_input_require_grads()
    return model.train()


@contextmanager
def _heads(path: CodePath) -> Iterator[None]:
    if not path.expands_heads:
        yield
        return
    with mock.patch.object(sdpa_attention, "use_gqa_in_sdpa", lambda *_: False):
        yield


def _adamw(weights: list[Any]) -> torch.optim.AdamW:
    return torch.optim.AdamW(weights, lr=1e-4)


def lora(rank: int, targets: tuple[str, ...], **more: Any) -> LoraConfig:
    return LoraConfig(r=rank, lora_alpha=2 * rank, target_modules=list(targets), task_type="CAUSAL_LM", **more)
