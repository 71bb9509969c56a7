"""Every check of a profile that needs the training libraries, but neither rows nor weights.

A run asks it before it reads a row; the dry run, the preview, the estimate, the form and the page before a start ask it
through the helper process. What is refused here is refused everywhere, in the same words.

The model is made on torch's `meta` device, without memory for its weights, by the functions that make the model of a
run: whatever these refuse (names of layers, patterns, quantisation, an adapter of another base) is refused here. On one
core it takes 0.02 s without an adapter, with one 0.3 s for a model of 8 B and 1 s for one of 70 B.
"""

from collections.abc import Callable
from pathlib import Path
from typing import Any

from transformers import AutoConfig, PreTrainedTokenizerBase

from ftui.errors import DataError, HardwareError, ProfileError, UnavailableError
from ftui.evaluation.text_measures import OF_SACREBLEU, why_missing
from ftui.hardware.detect import available_memory
from ftui.models.known import known_config
from ftui.profile.schema import Profile
from ftui.profile.sections.evaluation import EvalSection
from ftui.units import size

from .models.adapter_files import check_tokens, starting_adapter
from .models.files.hub import CODE, TOKENIZER, base_folder, model_folder
from .models.load_model import longest_context, longest_in
from .models.performance import check_layers, check_machine
from .models.special_tokens import add_special_tokens
from .models.tokenizer import end_padding, load_tokenizer
from .pushing.push_result import check_target
from .rewards.score_with_model import find_reward_model
from .simulate.meta_model import MetaModel, make_meta_model
from .simulate.placed import find_elsewhere
from .system.device import Hardware


def check_profile(
    profile: Profile, folder_or_config: Any, hardware: Hardware, *, warn: Callable[[str], object] | None = None
) -> MetaModel | None:
    """Refuse what cannot be trained on this hardware, whatever the rows are.

    Args:
        folder_or_config: what `find_config` returns.
        warn: of a run that has trained already: told of a target of `[push]` that is not to be had now. The push comes
            last and can be made up for; days of training must not stand still for it.

    Returns:
        The model on the `meta` device; `None` for one that brings its own code, which is only run to train it.

    Raises:
        HardwareError, ModelError, DataError, ProfileError: what a run of the profile on this hardware would fail with.
    """
    check_machine(profile.train, hardware)
    _check_push(profile, warn)
    _check_measure(profile.eval, hardware)
    check_length(profile, folder_or_config)
    find_reward_model(profile.rewards, lambda detail: None, weights=False)
    adapter = starting_adapter(profile.adapter, lambda detail: None)
    if profile.model.trust_remote_code:
        return None
    vocabulary = _read_vocabulary(profile, folder_or_config)
    if profile.gives_scores and vocabulary is not None:
        end_padding(vocabulary[0])
    if adapter is not None and vocabulary is not None:
        check_tokens(adapter, *vocabulary)
    made = make_meta_model(profile, folder_or_config, hardware, adapter, vocabulary)
    check_layers(made.base, profile.train, in_turn="base" in profile.hardware.offload)
    _check_host_memory(profile, made)
    return made


def _check_push(profile: Profile, warn: Callable[[str], object] | None) -> None:
    try:
        check_target(profile.push)
    except ProfileError as error:
        if warn is None:
            raise
        warn(f"{error.message} Training goes on; the push at its end will fail unless that is mended. {error.hint}")


def _check_host_memory(profile: Profile, made: MetaModel) -> None:
    """Whether the layers that are to lie in host memory find room there, on the machine that trains."""
    needed = find_elsewhere(profile, made).base.on_host * profile.hardware.num_processes
    if made.hardware.is_here and needed > (room := available_memory()):
        raise HardwareError(
            f'hardware.offload = "base" keeps {size(needed)} of layers in host memory, and {size(room)} are free here.',
            hint="Take a machine with more RAM, or a GPU that has room for them.",
        )


def _check_measure(section: EvalSection, hardware: Hardware) -> None:
    if section.metric_for_best_model in OF_SACREBLEU and hardware.is_here and why_missing():
        raise HardwareError(
            f"eval.metric_for_best_model = {section.metric_for_best_model!r} needs the package sacrebleu, which is not "
            "installed here.",
            hint='pip install "finetune-tui[evaluate]", or take "rouge_l".',
        )


def find_config(profile: Profile, cache: Path, report: Callable[[str], None]) -> Any:
    """The folder with the config of the profile's model (of one on the hub, its small files are fetched), or a config.

    Where the hub cannot be reached it is the config that comes with ftui, if there is one. `None`: the model is new.

    Raises:
        ModelError: there is none.
    """
    section = profile.model
    if section.name_or_path is None:
        return None
    if section.name_or_path.lower().endswith(".gguf"):
        return base_folder(section, cache, report)[0]
    patterns = [*TOKENIZER, *CODE] if section.trust_remote_code else TOKENIZER
    try:
        return model_folder(section.name_or_path, section.revision, report, patterns=patterns)[0]
    except UnavailableError:
        known = known_config(section.name_or_path)
        if known is None:
            raise
    return AutoConfig.for_model(**known)


def check_length(profile: Profile, folder_or_config: Any) -> None:
    """Raises `DataError` where data.max_length is more than the model sees."""
    scratch = profile.model.from_scratch
    longest: int | None
    if scratch is not None:
        longest = scratch.max_position_embeddings
    elif isinstance(folder_or_config, Path):
        longest = longest_context(folder_or_config, trusted=profile.model.trust_remote_code)
    else:
        longest = longest_in(folder_or_config)
    if longest is not None and profile.data.max_length > longest:
        raise DataError(
            f"data.max_length is {profile.data.max_length}, but the model sees at most {longest} tokens.",
            hint=f"Set data.max_length = {longest} or less.",
        )


def _read_vocabulary(profile: Profile, folder_or_config: Any) -> tuple[PreTrainedTokenizerBase, tuple[int, ...]] | None:
    """The tokenizer and the ids of the entries that the profile adds to it; `None` where its files are not at hand."""
    if not isinstance(folder_or_config, Path):
        return None
    tokenizer = load_tokenizer(folder_or_config)
    return tokenizer, add_special_tokens(tokenizer, profile.model.extra_special_tokens)
