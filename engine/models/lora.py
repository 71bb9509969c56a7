"""LoRA adapters: new ones and those a run continues from, in PEFT's layout, trained in float32."""

import re
import warnings
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import nn
from transformers import PreTrainedModel
from transformers.pytorch_utils import Conv1D

from ftui.errors import ModelError, ProfileError
from ftui.models.shape import SCORE_HEAD
from ftui.profile.sections.adapter import REFUSED_STARTS, AdapterSection
from ftui.system.expression_time import check_expressions_end

from .adapter_files import CONFIG
from .files.blame import blame
from .load_model import gives_scores
from .quantization import is_packed
from .weights import fill_adapter

SCORING = "SEQ_CLS"  # PEFT's name of the task of a reward model

# Keys that an adapter to continue from brings with it.
BROUGHT = (
    "r", "lora_alpha", "lora_dropout", "target_modules", "exclude_modules", "layers_to_transform", "layers_pattern",
    "rank_pattern", "alpha_pattern", "bias", "modules_to_save", "use_dora", "use_rslora", "init_lora_weights",
)  # fmt: skip


@dataclass(frozen=True)
class BaseReference:
    """The base by the name that the adapter's config gives it: hub id and commit, or the folder's path."""

    name: str
    commit: str | None = None


def new_adapter(
    model: PreTrainedModel, section: AdapterSection, base: BaseReference, new_token_ids: tuple[int, ...] = ()
) -> Any:
    """The model with a new adapter (drawn from torch's generator, as init_lora_weights says).

    `new_token_ids` are entries of the vocabulary that the base was not trained on: their embeddings are trained too.

    Raises:
        ModelError: the profile names layers that the model does not have, or that cannot be trained.
    """
    from peft import LoraConfig

    _check_names(model, section)
    start: Any = section.init_lora_weights
    targets, whole = _targets(model, section), _whole(model, section)
    names = (*([] if isinstance(targets, str) else targets), *whole)
    config = LoraConfig(
        task_type=_task(model), r=section.r, lora_alpha=section.lora_alpha, lora_dropout=section.lora_dropout,
        target_modules=targets, exclude_modules=_plain(section.exclude_modules),
        layers_to_transform=_plain(section.layers_to_transform), layers_pattern=section.layers_pattern,
        rank_pattern=dict(section.rank_pattern), alpha_pattern=dict(section.alpha_pattern), bias=section.bias,
        modules_to_save=_plain(whole), use_dora=section.use_dora, use_rslora=section.use_rslora,
        init_lora_weights=start, trainable_token_indices=_token_rows(model, section, new_token_ids),
        fan_in_fan_out=any(isinstance(module, Conv1D) for module in model.modules()),
        ensure_weight_tying=is_tied(model) and _names_embeddings(names),
    )  # fmt: skip
    adapted = _adapted(model, config, base)
    _check_patterns(adapted, section)
    return adapted


def continued_adapter(
    model: PreTrainedModel,
    section: AdapterSection,
    folder: Path,
    base: BaseReference,
    new_token_ids: tuple[int, ...] = (),
) -> Any:
    """The model with the adapter in `folder`, its weights trainable.

    Raises:
        ModelError: it is no LoRA adapter, or one for another base.
        ProfileError: a key of the profile contradicts it.
    """
    config = _config_in(folder)
    if (config.task_type == SCORING) != gives_scores(model):
        what = "a reward model" if config.task_type == SCORING else "a language model"
        raise ModelError(
            f"The adapter in {folder} is that of {what}, and it would go on as that of another kind.",
            hint='run.stage = "rm" goes on with a reward model.'
            if config.task_type == SCORING
            else "Merge it into its base, and let stage rm begin with the result.",
        )
    _check_brought(config, section, folder)
    if missing := _untrained_ids(model, config, new_token_ids):
        raise ModelError(
            f"The tokenizer has entries that are new to the base (such as {min(missing)}), and the adapter in {folder} "
            "does not train them.",
            hint="Start a new adapter (no adapter.name_or_path), or use the tokenizer of the adapter.",
        )
    return _filled(model, config, folder, base)


def stored_adapter(model: PreTrainedModel, folder: Path, base: BaseReference) -> Any:
    """The model with the adapter in `folder` as it is.

    Raises:
        ModelError: it is no LoRA adapter, or one for another base.
    """
    return _filled(model, _config_in(folder), folder, base)


def adapter_layers(model: PreTrainedModel, folder: Path) -> Any:
    """The model, whose weights are on `meta`, with the layers of the adapter in `folder` and none of its weights.

    Raises:
        ModelError: it is no LoRA adapter, or one for another base.
    """
    config = _config_in(folder)
    config.base_model_name_or_path, config.revision, config.init_lora_weights = None, None, True
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "Model has `tie_word_embeddings=True`")  # a merge unties them
        return _adapted(model, config, BaseReference(""))


def _filled(model: PreTrainedModel, config: Any, folder: Path, base: BaseReference) -> Any:
    old_base, config.base_model_name_or_path, config.revision = config.base_model_name_or_path, None, None
    try:
        adapted = _adapted(model, config, base)
        fill_adapter(adapted, folder)
    except (ModelError, RuntimeError, ValueError, KeyError, IndexError) as error:  # torch's and PEFT's ways to say so
        reason = " ".join(line.strip() for line in str(error).splitlines()[:2])  # torch has a line for every weight
        raise ModelError(
            f"The adapter in {folder} does not fit {base.name}: {reason}",
            hint=f"It was made for {old_base or 'another base'}: check model.name_or_path.",
        ) from error
    return adapted


def _untrained_ids(model: PreTrainedModel, config: Any, ids: tuple[int, ...]) -> set[int]:
    """Those of `ids` whose row an adapter leaves as it is: of the embeddings, or of a head that is not tied to them."""
    paths = {module: path for path, module in model.named_modules()}
    embeddings, head = model.get_input_embeddings(), model.get_output_embeddings()
    whole, rows = config.modules_to_save or (), config.trainable_token_indices or {}
    if isinstance(rows, list):  # PEFT's short way to name the embeddings
        rows = {paths[embeddings]: rows}
    tied, untrained = is_tied(model), set()
    if tied and any(paths[head].endswith(name) for name in whole):
        return set()
    for path in [paths[embeddings], *([] if head is None or tied else [paths[head]])]:
        if not any(path.endswith(name) for name in whole):
            untrained |= set(ids) - {row for name, indices in rows.items() if path.endswith(name) for row in indices}
    return untrained


def _expressions(config: Any) -> dict[str, str]:
    """The regular expressions that PEFT matches with names of modules, and their keys."""
    found: dict[str, str] = {}
    for key in ("target_modules", "exclude_modules", "layers_pattern", "rank_pattern", "alpha_pattern"):
        value = getattr(config, key) or ()
        found |= dict.fromkeys([value] if isinstance(value, str) else value, f"adapter.{key}")
    return found


def _adapted(model: PreTrainedModel, config: Any, base: BaseReference) -> Any:
    """The model with the adapter of a config; everything trainable in float32, or small updates would round away."""
    from peft import get_peft_model

    check_expressions_end(_expressions(config), [path for path, _ in model.named_modules()])
    whole = None if config.modules_to_save is None else list(config.modules_to_save)
    try:
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", "The following (rank|alpha)_pattern keys")  # they are refused below
            adapted: Any = get_peft_model(model, config)
    except (ValueError, TypeError) as error:
        raise ModelError(str(error), hint=f"Check [adapter]. The model's layers are {_layers(model)}.") from error
    config.base_model_name_or_path, config.revision = base.name, base.commit
    config.modules_to_save = whole  # PEFT drops a tied head's name, and then unties embeddings of another name
    for weight in adapted.parameters():
        if weight.requires_grad:
            weight.data = weight.data.to(torch.float32)
    return adapted


def _targets(model: PreTrainedModel, section: AdapterSection) -> str | list[str]:
    targets = section.target_modules
    if targets != "all-linear" or section.layers_to_transform is None:
        return targets if isinstance(targets, str) else list(targets)
    head = _head(model)  # PEFT chooses layers by number only from a list of names
    linear = {name for name, module in model.named_modules() if _is_linear(module) and module is not head}
    return sorted({name.rpartition(".")[2] for name in linear})


def _whole(model: PreTrainedModel, section: AdapterSection) -> tuple[str, ...]:
    """Modules to train whole, the head of a reward model always.

    With embeddings that the head is tied to, the head: PEFT knows few by their name.
    """
    whole = section.modules_to_save or ()
    if gives_scores(model):
        return tuple(dict.fromkeys([*whole, SCORE_HEAD]))
    paths = [path for path, module in model.named_modules() if module is model.get_input_embeddings()]
    if is_tied(model) and any(path.endswith(name) for path in paths for name in whole):
        return tuple(dict.fromkeys([*whole, "lm_head"]))
    return whole


def _task(model: PreTrainedModel) -> str:
    return SCORING if gives_scores(model) else "CAUSAL_LM"


def _head(model: PreTrainedModel) -> Any:
    """What gives the logits, or the score."""
    return getattr(model, SCORE_HEAD) if gives_scores(model) else model.get_output_embeddings()


def _is_linear(module: nn.Module) -> bool:
    return isinstance(module, nn.Linear | Conv1D)  # bitsandbytes' layers are nn.Linear too


def _layers(model: nn.Module) -> str:
    """The names a target can have, for a hint."""
    names = {name.rpartition(".")[2] for name, module in model.named_modules() if _is_linear(module)}
    return ", ".join(sorted(names))


def _check_names(model: PreTrainedModel, section: AdapterSection) -> None:
    """Every name must be one of the model: PEFT is content when one of several is."""
    modules = dict(model.named_modules(remove_duplicate=False))
    for key in ("target_modules", "exclude_modules", "modules_to_save"):
        names = getattr(section, key)
        for name in () if names is None or isinstance(names, str) else names:
            if not any(f".{path}".endswith(f".{name}") for path in modules):
                present = sorted({path.rpartition(".")[2] for path, module in modules.items() if _has_weights(module)})
                raise ModelError(f"adapter.{key}: {name!r} is no module of this model.", hint=_hint_names(present))
    for name in section.modules_to_save or ():
        whole = [module for path, module in modules.items() if path.endswith(name)]
        if any(is_packed(weight) for module in whole for weight in module.parameters()):
            raise ModelError(
                f"adapter.modules_to_save: {name!r} is quantised and cannot be trained whole.",
                hint='Leave it out, or use method = "lora" without load_in_8bit.',
            )
    config: Any = model.config.get_text_config()
    if wrong := [n for n in section.layers_to_transform or () if not 0 <= n < config.num_hidden_layers]:
        raise ModelError(
            f"adapter.layers_to_transform: there is no layer {wrong[0]}.",
            hint=f"This model has the layers 0 to {config.num_hidden_layers - 1}.",
        )


def _has_weights(module: nn.Module) -> bool:
    return next(module.parameters(recurse=False), None) is not None


def _hint_names(names: Iterable[str]) -> str:
    return f"Modules with weights are {', '.join(names)}."


def _check_patterns(adapted: Any, section: AdapterSection) -> None:
    """Every pattern for a rank or an alpha must match a layer that has an adapter."""
    paths = adapted.base_model.targeted_module_names
    for key in ("rank_pattern", "alpha_pattern"):
        for pattern in getattr(section, key):
            if not any(re.match(rf"(.*\.)?({pattern})$", path) for path in paths):
                names = ", ".join(sorted({path.rpartition(".")[2] for path in paths}))
                raise ModelError(
                    f"adapter.{key}: {pattern!r} matches no layer with an adapter.", hint=f"Those are {names}."
                )


def _token_rows(model: PreTrainedModel, section: AdapterSection, ids: tuple[int, ...]) -> dict[str, list[int]] | None:
    """Rows to train of the embeddings and, where it has weights of its own, of the head; not of what is trained whole.

    Without them, an adapter loaded on its base would have random weights in the rows that were added.
    """
    whole, targets = section.modules_to_save or (), section.target_modules
    paths = {module: path for path, module in model.named_modules()}
    embeddings, head = model.get_input_embeddings(), model.get_output_embeddings()
    modules = [embeddings] if head is None or is_tied(model) else [embeddings, head]
    names = {paths[module].rpartition(".")[2]: module for module in modules}
    if not ids or (is_tied(model) and _names_embeddings(_whole(model, section))):
        return None
    if not isinstance(targets, str) and (overlap := names.keys() & set(targets)):
        raise ModelError(
            f"adapter.target_modules names {overlap.pop()}, which has entries that are new to the base.",
            hint="Train it whole: name it in adapter.modules_to_save instead.",
        )
    rows = {name: list(ids) for name in names if not any(paths[names[name]].endswith(suffix) for suffix in whole)}
    if any(getattr(names[name], "bias", None) is not None for name in rows):  # PEFT's layer for rows would drop it
        raise ModelError(
            "The head of this model has a bias, beside which single entries of the vocabulary cannot be trained.",
            hint="Train it whole: name it in adapter.modules_to_save.",
        )
    return rows or None


def is_tied(model: PreTrainedModel) -> bool:
    """Whether embeddings and head are one tensor."""
    embeddings: Any = model.get_input_embeddings()
    head: Any = model.get_output_embeddings()
    return head is not None and head.weight is embeddings.weight


def _names_embeddings(names: Iterable[str]) -> bool:
    return bool({name.rpartition(".")[2] for name in names} & {"embed_tokens", "lm_head"})


def _config_in(folder: Path) -> Any:
    from peft import PeftConfig
    from peft.utils import PeftType

    with blame(folder / CONFIG, "used"):
        config = PeftConfig.from_pretrained(str(folder))
    if config.peft_type != PeftType.LORA:
        raise ModelError(f"{folder} holds an adapter of the kind {config.peft_type}; only LoRA can be continued.")
    start = str(config.init_lora_weights).partition("_niter")[0]
    if start == "eva":  # changes nothing in the base and has done its work: the weights come from the file
        config.init_lora_weights, config.eva_config = True, None
    elif start in REFUSED_STARTS:
        raise ModelError(f"The adapter in {folder} began as {start}, which {REFUSED_STARTS[start]}.")
    config.inference_mode = False
    return config


def _check_brought(config: Any, section: AdapterSection, folder: Path) -> None:
    for key in BROUGHT:
        own, brought = getattr(section, key), getattr(config, key)
        if own != type(section).model_fields[key].default and _plain(own) != _plain(brought):
            raise ProfileError(
                f"adapter.{key} is {own!r}, but the adapter in {folder} has {_plain(brought)!r}.",
                hint=f"Leave adapter.{key} out: the adapter brings it.",
            )
    if config.bias != "none" and section.is_quantised:
        raise ProfileError(
            f"The adapter in {folder} trains biases, which a quantised base cannot.", hint='Use method = "lora".'
        )


def _plain(value: Any) -> Any:
    """A value as PEFT takes it and as two can be compared: lists in order, nothing for what is empty."""
    if isinstance(value, tuple | list | set):
        return sorted(value) or None
    return value
