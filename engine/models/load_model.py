"""The model in a folder: loaded whole, in one type and with one attention kernel, or refused by name."""

from pathlib import Path
from typing import Any

import torch
from safetensors import safe_open
from torch import nn
from transformers import (
    AutoConfig,
    AutoModelForCausalLM,
    AutoModelForSequenceClassification,
    GenerationConfig,
    PreTrainedModel,
)

from ftui.errors import ModelError
from ftui.models.model_files import read_tensors_of
from ftui.models.safetensors_header import fetch_again
from ftui.models.shape import SCORE_HEAD
from ftui.profile.sections.model import ModelSection

from ..system.device import Hardware
from .attention import attention_for
from .files.blame import blame
from .files.remote_code import HOW, brings_code, check_code
from .transformers_internals import can_give_scores

# Parts of a config that say the model reads more than text.
OTHER_SENSES = ("vision_config", "audio_config", "encoder", "speech_config")


def load_model(
    folder: Path,
    section: ModelSection,
    dtype: torch.dtype | str,
    *,
    hardware: Hardware | None = None,
    quantization: Any | None = None,
    device_map: Any | None = None,
    scores: bool = False,
) -> PreTrainedModel:
    """The model in `folder`, on the CPU, unless `quantization` (a transformers config) says how to store its layers.

    A quantised one is read straight to where `device_map` says. `hardware` is where it will be trained. With `scores`
    it is a reward model: of a language model all is read but its head.

    Raises:
        ModelError: not a causal language model, damaged, or it needs code from its repository.
    """
    config = read_config(folder, trusted=section.trust_remote_code)
    check_kind(config, folder, scores=scores)
    load: Any = auto_class(scores=scores).from_pretrained
    with blame(folder, "loaded"):
        model, loaded = load(
            folder, dtype=dtype, attn_implementation=attention_for(section.attn_implementation, config, hardware),
            local_files_only=True, trust_remote_code=section.trust_remote_code, use_safetensors=True,
            quantization_config=quantization, device_map=device_map, output_loading_info=True,
            **({"num_labels": 1} if scores else {}),
        )  # fmt: skip
    new_head = {f"{SCORE_HEAD}.weight"} if scores and not has_score_head(config) else set()
    if missing := sorted(loaded["missing_keys"] - new_head):
        raise ModelError(
            f"The files in {folder} lack weights of a {config.model_type} model: {', '.join(missing[:3])}.",
            hint="Is it a language model, and did its download end? Missing weights would be random.",
        )
    assert isinstance(model, PreTrainedModel)
    if scores:
        check_score_head(model)
        settle_head(model, None if new_head else folder)
    return model


def auto_class(*, scores: bool) -> Any:
    """The class of transformers that makes a language model, or (`scores`) a reward model."""
    return AutoModelForSequenceClassification if scores else AutoModelForCausalLM


def has_score_head(config: Any) -> bool:
    """Whether the model that a config lies beside is a reward model already."""
    return str((config.architectures or [""])[0]).endswith("ForSequenceClassification")


def gives_scores(model: Any) -> bool:
    """Whether a model (without an adapter around it) is a reward model."""
    return type(model).__name__.endswith("ForSequenceClassification")


def settle_head(model: Any, folder: Path | None) -> None:
    """The score head in float32, as it lies in `folder`; a new one has transformers' spread.

    It is drawn from the seed of torch's generator: the same whatever was drawn before it, on every device and in any
    type.
    """
    weight = getattr(model, SCORE_HEAD).weight
    if folder is None:
        spread = getattr(model.config.get_text_config(), "initializer_range", 0.02)
        generator = torch.Generator().manual_seed(torch.initial_seed())
        values = torch.empty(weight.shape).normal_(0, spread, generator=generator)
    else:
        values = _read_tensor(folder, f"{SCORE_HEAD}.weight")
    weight.data = values.to(weight.device, torch.float32)


def _read_tensor(folder: Path, name: str) -> torch.Tensor:
    for file in sorted(folder.glob("*.safetensors")):
        with safe_open(file, "pt") as tensors:
            if name in tensors.keys():  # noqa: SIM118
                tensor: torch.Tensor = tensors.get_tensor(name)
                return tensor
    raise ModelError(f"No file in {folder} has {name}.")


def check_score_head(model: Any) -> None:
    """Refuse a reward model whose score is no linear layer of the last hidden state.

    Raises:
        ModelError: it has none by that name.
    """
    if type(getattr(model, SCORE_HEAD, None)) is not nn.Linear:
        raise ModelError(
            f"A {type(model).__name__} has no linear layer named {SCORE_HEAD}, which would give its score.",
            hint="Use a decoder such as Llama, Mistral, Qwen or Gemma for stage rm.",
        )


def check_sizes(model: PreTrainedModel, folder: Path) -> None:
    """Refuse weights of other sizes than those of `model`, which was made from the config beside them.

    Loading finds that too, after it has read them. Only what has the same name in both is compared, and by its number
    of elements: transformers turns and joins some tensors while it loads them.

    Raises:
        ModelError: one differs, or a file is damaged.
    """
    stored = read_tensors_of(folder, is_complete=False)
    for name, weight in model.named_parameters(remove_duplicate=False):
        tensor = stored.get(name)
        if tensor is not None and tensor.num_elements != weight.numel():
            raise ModelError(
                f"{folder}: {name} has the shape {list(tensor.shape)} in the weights, and by config.json it has "
                f"{list(weight.shape)}.",
                hint=f"They are not of the same model. {fetch_again(folder)}",
            )


def check_kind(config: Any, folder: Path, *, scores: bool = False) -> None:
    """Refuse kinds of models that load but cannot be trained here, or that would fail with an obscure error.

    `scores`: they are to be trained as reward models.
    """
    if getattr(config, "is_encoder_decoder", False):
        raise ModelError(f"{folder} is an encoder-decoder model ({config.model_type}); ftui trains decoders only.")
    if senses := [name for name in OTHER_SENSES if getattr(config, name, None) is not None]:
        raise ModelError(
            f"{folder} is a model that reads more than text ({config.model_type}, {senses[0]}).",
            hint="ftui trains on text: use the text-only model of that family.",
        )
    if (stored := getattr(config, "quantization_config", None)) is not None:
        method = stored.get("quant_method") if isinstance(stored, dict) else stored.quant_method
        raise ModelError(
            f"The model in {folder} is stored quantised ({method}), and what is quantised cannot be trained.",
            hint='Use the model it was made from; adapter.method = "qlora" stores it in 4 bits.',
        )
    architecture = str((config.architectures or [""])[0])
    if has_score_head(config) and config.num_labels == 1 and not scores:
        raise ModelError(
            f"{folder} is a reward model ({architecture}): it gives scores, not text.",
            hint='run.stage = "rm" goes on training it.',
        )
    if scores and has_score_head(config) and config.num_labels != 1:
        raise ModelError(
            f"{folder} is a classifier of {config.num_labels} classes ({architecture}): a reward model has one score."
        )
    if scores and not can_give_scores(config):
        raise ModelError(
            f"transformers has no class for sequence classification of models of type {config.model_type}, so {folder} "
            "cannot be a reward model.",
            hint="Use a decoder such as Llama, Mistral, Qwen or Gemma for stage rm.",
        )
    if scores and has_score_head(config):
        return
    if architecture.endswith(("ForMaskedLM", "Classification", "ForQuestionAnswering")):
        raise ModelError(f"{folder} is a {architecture}, which is no causal language model.")


def longest_context(folder: Path, *, trusted: bool = False) -> int | None:
    """Positions the model was made for, `None` where its config does not say."""
    return longest_in(read_config(folder, trusted=trusted))


def longest_in(config: Any) -> int | None:
    """The same of a config."""
    return getattr(config.get_text_config(), "max_position_embeddings", None)


def read_config(folder: Path, *, trusted: bool = False) -> Any:
    """The model's config; `trusted` runs the Python code beside it where its type is not one of transformers' own.

    Raises:
        ModelError: it cannot be read, or needs code that is not trusted.
    """
    if trusted:
        check_code(folder)
    try:
        with blame(folder / "config.json", "used"):
            return AutoConfig.from_pretrained(folder, local_files_only=True, trust_remote_code=trusted)
    except ModelError as error:
        if not trusted and brings_code(folder):
            raise ModelError(f"The model in {folder} brings its own Python code: it is not run.", hint=HOW) from error
        raise


def eos_token_ids(folder: Path, *, trusted: bool = False) -> list[int]:
    """Every token that ends a turn, by the model's generation config (its config where there is none).

    Raises:
        ModelError: there is one, and it cannot be used.
    """
    file = folder / "generation_config.json"
    if file.is_file():
        with blame(file, "used"):
            return _token_ids(GenerationConfig.from_pretrained(folder, local_files_only=True).eos_token_id)
    config = read_config(folder, trusted=trusted)
    with blame(folder / "config.json", "used"):
        return _token_ids(getattr(config, "eos_token_id", None))


def _token_ids(ids: Any) -> list[int]:
    """Raises `TypeError` for what are no ids."""
    each = [] if ids is None else ids if isinstance(ids, list) else [ids]
    if not all(type(one) is int for one in each):
        raise TypeError(f"eos_token_id is {ids!r}")
    return each
