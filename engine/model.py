"""The model: loaded or made new, with an adapter or trained whole, in the precision of the hardware."""

import hashlib
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from transformers import (
    AutoConfig,
    AutoModelForCausalLM,
    GenerationConfig,
    LlamaConfig,
    LlamaForCausalLM,
    PreTrainedModel,
    PreTrainedTokenizerBase,
)

from ftui.checkpoints import file_hash
from ftui.engine.hardware import Hardware
from ftui.errors import ModelError
from ftui.files import make_private_folder, replace_file
from ftui.profile.adapter import AdapterSection
from ftui.profile.model import ModelSection
from ftui.profile.scratch import FromScratch
from ftui.profile.sections import Profile


def storage_dtype(profile: Profile, hardware: Hardware) -> torch.dtype:
    """Frozen weights are stored as they are computed; trained ones in float32, or small updates would round away."""
    return hardware.compute_dtype if profile.adapter.method == "lora" else torch.float32


def load_model(folder: Path, section: ModelSection, dtype: torch.dtype) -> PreTrainedModel:
    """The model in `folder`, on the CPU.

    Raises:
        ModelError: not a causal language model, damaged, or it needs code from its repository.
    """
    # Of itself transformers takes sdpa, or eager for the types that have no sdpa (Gemma 2 with its soft caps).
    attention = None if section.attn_implementation == "auto" else section.attn_implementation
    try:
        model = AutoModelForCausalLM.from_pretrained(
            folder, dtype=dtype, attn_implementation=attention, local_files_only=True,
            trust_remote_code=False, use_safetensors=True,
        )  # fmt: skip
    except (OSError, ValueError, KeyError, ImportError, RuntimeError) as error:
        hint = "Check model.name_or_path."
        raise ModelError(f"The model in {folder} cannot be loaded: {error}", hint=hint) from error
    assert isinstance(model, PreTrainedModel)
    return model


def new_model(scratch: FromScratch, tokenizer: PreTrainedTokenizerBase, attention: str) -> PreTrainedModel:
    """A Llama with random weights (from torch's generator, seeded by the caller), float32."""
    config = LlamaConfig(  # type: ignore[call-arg]
        vocab_size=len(tokenizer),
        hidden_size=scratch.hidden_size,
        intermediate_size=scratch.intermediate_size,
        num_hidden_layers=scratch.num_hidden_layers,
        num_attention_heads=scratch.num_attention_heads,
        num_key_value_heads=scratch.num_key_value_heads,
        max_position_embeddings=scratch.max_position_embeddings,
        rope_parameters={"rope_type": "default", "rope_theta": scratch.rope_theta},
        tie_word_embeddings=scratch.tie_word_embeddings,
        pad_token_id=tokenizer.pad_token_id,
        eos_token_id=tokenizer.eos_token_id,
        bos_token_id=tokenizer.bos_token_id,
        attn_implementation="sdpa" if attention == "auto" else attention,
    )
    model = LlamaForCausalLM(config)
    model.generation_config = GenerationConfig.from_model_config(config)
    return model


def with_adapter(model: PreTrainedModel, section: AdapterSection, base: str) -> Any:
    """The model with a new LoRA adapter in float32 (its matrices A drawn from torch's generator, B zero)."""
    from peft import LoraConfig, get_peft_model

    targets = section.target_modules
    config = LoraConfig(
        r=section.r, lora_alpha=section.lora_alpha, lora_dropout=section.lora_dropout,
        target_modules=targets if isinstance(targets, str) else list(targets), task_type="CAUSAL_LM",
    )  # fmt: skip
    try:
        adapted = get_peft_model(model, config)
    except ValueError as error:
        raise ModelError(str(error), hint="Check adapter.target_modules.") from error
    adapted.peft_config["default"].base_model_name_or_path = base
    return adapted


def check_vocabulary(model: PreTrainedModel, tokenizer: PreTrainedTokenizerBase) -> None:
    embeddings: Any = model.get_input_embeddings()
    rows = embeddings.weight.shape[0]
    if len(tokenizer) > rows:
        raise ModelError(
            f"The tokenizer has {len(tokenizer)} entries, the model only {rows}.",
            hint="Use the tokenizer that belongs to the model.",
        )


def longest_context(folder: Path) -> int | None:
    """Positions the model was made for, `None` where its config does not say."""
    config = read_config(folder)
    return getattr(config.get_text_config(), "max_position_embeddings", None)


def read_config(folder: Path) -> Any:
    try:
        return AutoConfig.from_pretrained(folder, local_files_only=True, trust_remote_code=False)
    except (OSError, ValueError, KeyError) as error:
        raise ModelError(f"The model in {folder} cannot be read: {error}") from error


def eos_token_ids(folder: Path) -> list[int]:
    """Every token that ends a turn, by the model's generation config (its config where there is none)."""
    try:
        ids = GenerationConfig.from_pretrained(folder, local_files_only=True).eos_token_id
    except OSError:
        ids = getattr(read_config(folder), "eos_token_id", None)
    return [] if ids is None else [ids] if isinstance(ids, int) else list(ids)


def weights_fingerprint(folder: Path, cache: Path, tick: Callable[[], None]) -> str:
    """SHA-256 over the model's config and weight files.

    Hashing 16 GB takes some ten seconds, so a file's hash is remembered by its size, inode and modification time.
    """
    memory = make_private_folder(cache / "hashes") / f"{hashlib.sha256(str(folder).encode()).hexdigest()[:16]}.json"
    known = json.loads(memory.read_bytes()) if memory.exists() else {}
    found = {}
    for path in sorted([folder / "config.json", *folder.glob("*.safetensors")]):
        stat = path.stat()
        key = f"{path.name}:{stat.st_size}:{stat.st_ino}:{stat.st_mtime_ns}"
        found[key] = known.get(key) or file_hash(path)
        tick()
    replace_file(memory, json.dumps(found).encode())
    names = [key.split(":")[0] for key in found]
    return hashlib.sha256(json.dumps(list(zip(names, found.values(), strict=True))).encode()).hexdigest()
