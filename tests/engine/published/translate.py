"""From a published row to the code path it ran, or to the reason why that cannot be run here."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from peft import LoraConfig, PeftConfig, PeftType
from peft.mapping import PEFT_TYPE_TO_CONFIG_MAPPING

from ftui.hardware.devices import Card, find_card
from tests.engine.published import steps
from tests.engine.published.architectures import key_of
from tests.engine.published.rows import Row
from tests.engine.published.running import CodePath, lora

LENGTH = 680
"""Tokens of the longest padded batch of the MetaMathQA runs: it is not published. The row of LoRA with r = 32 on q_proj
and v_proj (20.76 GiB) is met with it to 0.3 %; no other row had a say."""

TYPES = {"fp16": torch.float16, "bf16": torch.bfloat16, "bf16-true": torch.bfloat16, "bfloat16": torch.bfloat16}


@dataclass(frozen=True)
class NotReproduced:
    """Why a row is listed without a prediction."""

    reason: str


Translated = CodePath | NotReproduced


def translate(row: Row) -> Translated:
    """Of any source; an unknown source or model is named, and nothing is guessed."""
    for beginning, way in WAYS.items():
        if row.source.startswith(beginning):
            if isinstance(way, str):
                return NotReproduced(way)
            model = key_of(row.model)
            if model is None:
                return NotReproduced(f"the architecture of {row.model} is not in the table")
            return way(row, model)
    return NotReproduced(f"no code path is known for the source {row.source}")


KINDS = {
    "t4": "t4", "l40s": "l40s", "a100": "a100-80", "a10g": "a10g", "4090": "rtx4090", "3090": "rtx3090", "h100": "h100",
    "a6000": "a6000",
}  # fmt: skip
"""What a row's card is called, and here. The two A100 differ in their memory only."""


def card_of(row: Row) -> Card | None:
    words = (row.gpu or "").lower()
    return next((find_card(name) for part, name in KINDS.items() if part in words), None)


def _fitcheck(row: Row, model: str) -> Translated:
    card, dtype = card_of(row), TYPES.get(row.dtype or "")
    if card is None or dtype is None or not row.seq_len or not row.micro_batch:
        return NotReproduced("card, type, length or batch is not published")
    if row.method not in ("lora", "qlora") or row.rank is None or row.quant not in (None, "nf4"):
        return NotReproduced(f"method {row.method} with quantisation {row.quant} is none that this script measured")
    return CodePath(
        model, steps.fitcheck(row.micro_batch, row.seq_len), dtype, card,
        adapter=lora(row.rank, _names(row)), num_trainable=row.more("trainable"), attention=row.more("attn"),
        quant="nf4" if row.quant else None, prepared=bool(row.more("kbit_prep")), checkpointing=bool(row.grad_ckpt),
        expands_heads=row.more("attn") == "sdpa",
    )  # fmt: skip


def _names(row: Row) -> tuple[str, ...]:
    return tuple((row.targets or "").split(","))


def _metamathqa(row: Row, model: str) -> Translated:
    adapter: PeftConfig | None = None
    if row.method != "full":
        made = _peft_config(row)
        if isinstance(made, NotReproduced):
            return made
        adapter = made
    is_fa = "lorafa" in (row.more("experiment") or "")
    return CodePath(
        model, steps.metamathqa(row.micro_batch or 4, LENGTH), torch.bfloat16, find_card("l40s"), adapter=adapter,
        num_trainable=None if row.method == "full" else row.more("trainable"), is_padded=True, on_device=True,
        clears_cache=True, frozen="lora_A" if is_fa else None,
    )  # fmt: skip


def _peft_config(row: Row) -> PeftConfig | NotReproduced:
    """The method's defaults with the row's rank and modules; the number of trained weights tells whether that is it."""
    words: dict[str, Any] = {"task_type": "CAUSAL_LM"}
    if row.targets:
        words["target_modules"] = list(_names(row))
    experiment = row.more("experiment") or ""
    if row.method == "lora":
        if any(word in experiment for word in OTHER_LORA):
            return NotReproduced("a variant of LoRA whose settings the row does not tell")
        return LoraConfig(r=row.rank or 0, use_dora="-dora" in experiment, use_rslora="-rslora" in experiment, **words)
    kind = getattr(PeftType, row.method.upper(), None)
    if kind is None or row.method not in PLAIN:
        return NotReproduced("another method of PEFT, whose settings are not all in the row")
    config = PEFT_TYPE_TO_CONFIG_MAPPING[kind]
    if row.rank and hasattr(config(), "r"):
        words["r"] = row.rank
    return config(**words)


OTHER_LORA = ("mica", "bdlora", "kasa", "velora", "riemannian", "-ff", "eva", "corda", "lora_ga", "arrow", "monte")
PLAIN = ("ln_tuning", "ia3", "fourierft", "miss", "vera", "loha")
"""Methods whose defaults are tried; the number of trained weights says whether they were the ones."""

LITGPT_CHANGES = {"tie_word_embeddings": False, "hidden_act": "gelu_pytorch_tanh"}
"""litgpt keeps the head apart from the embeddings (model.py), and its GELU is one kernel (GptNeoxMLP)."""

LITGPT_MODULES = {
    "query": ("q_proj",),
    "key": ("k_proj",),
    "value": ("v_proj",),
    "q": ("q_proj",),
    "k": ("k_proj",),
    "v": ("v_proj",),
    "projection": ("o_proj", "dense"),
    "mlp": ("gate_proj", "up_proj", "down_proj", "fc1", "fc2"),
    "head": ("lm_head",),
}


def _litgpt(row: Row, model: str) -> Translated:
    if row.quant:
        return NotReproduced("bitsandbytes before 0.43.2 kept the input of every 4-bit layer (its pull request 1270)")
    if row.method not in ("lora", "full"):
        return NotReproduced(f"litgpt's own method {row.method}")
    if "1x" not in (row.gpu or "") and (row.gpu or "")[:1].isdigit():
        return NotReproduced("sharded over several cards (FSDP)")
    if "do not use" in str(row.more("note")):
        return NotReproduced("below the bytes of its own weights, gradients and optimizer: not a measurement of this")
    if model.startswith(("stablelm", "pythia", "falcon")):
        return NotReproduced("query and value are one matrix in transformers, and LoRA would train all of it")
    if not row.seq_len or not row.micro_batch:
        return NotReproduced("length or batch is not published")
    adapter = None
    if row.method == "lora":
        names = tuple(name for word in _names(row) for name in LITGPT_MODULES.get(word.strip(), ()))
        adapter = lora(row.rank or 0, names, lora_dropout=0.05)
    return CodePath(
        model, steps.litgpt(row.micro_batch, row.seq_len, chunked_head=row.method == "lora"), torch.bfloat16,
        card_of(row) or find_card("a100-40"), adapter=adapter, adapters_like_base=True, expands_heads=True,
        attention="eager" if model.startswith("gemma-2-") else "sdpa", changes=LITGPT_CHANGES,
    )  # fmt: skip


def _torchtune(row: Row, model: str) -> Translated:
    if row.more("compile"):
        return NotReproduced("torch.compile decides what is kept")
    if not row.seq_len or not row.micro_batch or row.method != "full":
        return NotReproduced("the length of its rows is not published")
    return CodePath(model, steps.torchtune(row.micro_batch, row.seq_len), torch.bfloat16, find_card("a100-80"))


def _qwen(row: Row, model: str) -> Translated:
    if row.quant:
        return NotReproduced("weights packed by GPTQ: another library's kernels")
    if (row.more("n_gpus") or 1) > 1:
        return NotReproduced("sharded over several cards (DeepSpeed)")
    if row.method != "lora":
        return NotReproduced("what mixed precision kept of trained embeddings or weights in 2023 is not told")
    if not row.seq_len:
        return NotReproduced("length is not published")
    names = ("q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj")
    return CodePath(
        model, steps.trainer(row.micro_batch or 1, row.seq_len), torch.bfloat16, find_card("a100-80"),
        adapter=lora(row.rank or 64, names), checkpointing=True,
    )  # fmt: skip


WAYS: dict[str, str | Callable[[Row, str], Translated]] = {
    "fitcheck": _fitcheck,
    "PEFT method_comparison": _metamathqa,
    "litgpt": _litgpt,
    "torchtune": _torchtune,
    "Qwen (1)": _qwen,
    "torchtitan": "sharded over several cards (FSDP), most with torch.compile",
    "Answer.AI": "its own FSDP trainer and quantised sharding over two cards",
    "PEFT README": "length, batch and rank are not published",
    "PEFT docs": "several cards, length or batch not published",
    "LLaMA-Factory": "an estimate of its authors, not a measurement",
    "Unsloth": "the length that still fits, not a measurement of memory",
    "LongLoRA": "eight cards, rank not published",
    "axolotl": "memory at the end of a step, not a peak",
}
