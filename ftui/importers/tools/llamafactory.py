"""LLaMA-Factory's training files: its model, data, fine-tuning and generating arguments, and transformers' own.

Names and defaults as of src/llamafactory/hparams, autumn 2025 to 2026.
"""

import contextlib
import json
import re
from collections.abc import Mapping
from pathlib import Path, PurePath
from typing import Any

from ftui.errors import ProfileError
from ftui.importers.config_file import Document, Leaf
from ftui.importers.draft import ProfileDraft
from ftui.importers.rules import (
    NO_SYSTEM,
    OTHER_TRACKER,
    QWENS_SYSTEM,
    SOME_ROWS,
    Gate,
    Rule,
    SourceTool,
    branch,
    carries,
    drops,
    each,
    if_on,
    path_to,
    same,
    says,
    to,
)
from ftui.importers.tools import llamafactory_preference, trl
from ftui.importers.tools.llamafactory_preference import compares
from ftui.importers.tools.trainer import (
    GENERATES,
    HUB,
    LOADER,
    REENTRANT,
    TRAINER,
    held_out,
    no_clipping,
    precision,
    suppose_trainer,
)
from ftui.importers.values import Unfit, either, flag, is_on, one_of, texts, whole, word_or
from ftui.profile.paths import DATA_SUFFIXES, HUB_ID
from ftui.system.input_files import read_input

TOOL = "LLaMA-Factory"
TURNS = "off: the assistant's turns are trained on, as here"

# Its templates that have the same marks as ours.
TEMPLATES = {name: name for name in ("llama2", "llama3", "mistral", "gemma", "phi", "qwen", "vicuna", "zephyr",
                                     "chatml", "alpaca")}  # fmt: skip
ATTENTION = {"auto": "auto", "disabled": "eager", "off": "eager", "sdpa": "sdpa", "fa2": "flash_attention_2"}

# What these make tokens of, where the base lacks it: their `stop_words` in data/template.py, as far as rows hold them.
ADDED = {
    "chatml": ["<|im_end|>", "<|im_start|>"], "qwen": ["<|im_end|>"], "llama3": ["<|eot_id|>"],
    "gemma": ["<end_of_turn>"], "phi": ["<|end|>"],
}  # fmt: skip
# What they say in the place of a system turn, and ours do not.
SYSTEMS = {"qwen": QWENS_SYSTEM, "zephyr": "You are Zephyr, a helpful assistant."}
EMBEDDINGS = ["embed_tokens", "lm_head"]  # as they are called in Llama, Mistral, Qwen, Gemma and their kin
CUT_SHORT = f"there the first so many rows of each data set; here {SOME_ROWS}, and some twice where it has fewer"

INFO = "dataset_info.json"
DEFAULT_FOLDER = "data"

# What an entry may say; the engine reads all of it (engine/data/files/dataset_info.py) but for what is refused below.
KNOWN = {
    "file_name", "hf_hub_url", "ms_hub_url", "om_hub_url", "formatting", "columns", "tags", "subset", "split",
    "ranking", "num_samples",
}  # fmt: skip


def _method(draft: ProfileDraft) -> str:
    kind = word_or(draft.raw("finetuning_type"), "lora")
    bits = draft.raw("quantization_bit")
    return "qlora" if kind == "lora" and str(bits) == "4" else kind


def _finetuning_type(draft: ProfileDraft, leaf: Leaf) -> str:
    if (method := _method(draft)) not in ("lora", "qlora", "full", "freeze"):
        raise Unfit(f"there is no method {method} here")
    return method


def _bits(draft: ProfileDraft, leaf: Leaf) -> None:
    bits, how = whole(leaf.value), word_or(draft.raw("quantization_method"), "bnb")
    if word_or(draft.raw("finetuning_type"), "lora") != "lora":
        raise Unfit("only the frozen base of a LoRA is stored in few bits")
    if how not in ("bnb", "bitsandbytes") or bits not in (4, 8):
        raise Unfit(f"{bits} bits by {how}: bitsandbytes with 4 or 8 bits is built")
    if bits == 4:
        draft.carry(leaf, "adapter.method", "qlora")
    else:
        draft.carry(leaf, "adapter.load_in_8bit", True)


def _nothing_there(draft: ProfileDraft) -> str:
    return f"finetuning_type is {_method(draft)}: it has no effect there either"


_LORA = Gate(lambda draft: _method(draft) in ("lora", "qlora"), _nothing_there)
_NOISE = Gate(lambda draft: not compares(draft), lambda draft: "a stage that compares answers takes no noise")
_LORA_DROPOUT = Gate(
    lambda draft: _LORA.is_open(draft) and _NOISE.is_open(draft),
    lambda draft: _NOISE.otherwise(draft) if compares(draft) else _LORA.otherwise(draft),
)
_QLORA = Gate(lambda draft: _method(draft) == "qlora", lambda draft: "the base is not stored in 4 bits")


def _freeze(draft: ProfileDraft, leaf: Leaf) -> None:
    if _method(draft) != "freeze":
        draft.drop(leaf, _nothing_there(draft))
    elif leaf.name == "freeze_trainable_layers":
        if whole(leaf.value) < 1:
            raise Unfit("the first layers cannot be chosen, only the last so many")
        draft.carry(leaf, "adapter.trainable_layers", whole(leaf.value))
    elif leaf.name == "freeze_trainable_modules":
        if texts(leaf.value) != ["all"]:
            raise Unfit("parts of the last layers cannot be chosen; all of them are trained")
        draft.drop(leaf, "all: as trainable_layers trains them")
    else:
        draft.carry(leaf, "adapter.trainable_modules", [re.escape(name) for name in texts(leaf.value)])


def _packing(draft: ProfileDraft, leaf: Leaf) -> None:
    packed = is_on(draft.raw("packing")) or is_on(draft.raw("neat_packing"))
    apart = "" if is_on(draft.raw("neat_packing")) or not packed else "unlike there, rows do not see each other"
    draft.carry(leaf, "data.packing", packed, apart)


def _pure(draft: ProfileDraft, leaf: Leaf) -> None:
    if flag(leaf.value):
        draft.carry(leaf, "model.dtype", "bfloat16", "pure_bf16: what is trained is stored in it too")
        draft.suppose("train.precision", "bf16", "pure_bf16")
    else:
        draft.drop(leaf, "off, as it is here")


def _adapter(draft: ProfileDraft, leaf: Leaf) -> str:
    if len(texts(leaf.value)) > 1:
        raise Unfit("several adapters cannot be merged into the base; merge them first")
    if is_on(draft.raw("create_new_adapter")):
        raise Unfit("it is merged into the base before a new adapter is made there; merge it first")
    return draft.folder_or_id(leaf.value)


def _tokens(draft: ProfileDraft, leaf: Leaf | None = None) -> list[str]:
    """All that the file, and its template, make tokens of. Raises `Unfit` where the value of `leaf` is none."""
    if leaf:
        texts(leaf.value)
    names: list[str] = []
    for key in ("add_tokens", "add_special_tokens", "new_special_tokens"):
        with contextlib.suppress(Unfit):  # reported where it stands
            names = [*names, *texts(draft.raw(key) or [])]
    return list(dict.fromkeys([*names, *ADDED.get(str(draft.raw("template")), [])]))


def _resized(draft: ProfileDraft, leaf: Leaf) -> None:
    """resize_vocab, which trains the embeddings beside a LoRA too."""
    if not flag(leaf.value):
        draft.drop(leaf, "off: the embeddings of new tokens are trained anyway")
    elif _method(draft) not in ("lora", "qlora") or draft.raw("additional_target"):
        draft.drop(leaf, "embeddings grow by themselves")
    else:
        draft.carry(leaf, "adapter.modules_to_save", EMBEDDINGS, "resize_vocab trains the embeddings whole there")


def _rows(draft: ProfileDraft, leaf: Leaf) -> None:
    """`dataset` or `eval_dataset`: names with commas."""
    table, folder = _read_info(draft)
    sources = []
    for name in texts(leaf.value):
        try:
            sources.append(_source(draft, name, table, folder))
        except Unfit as unfit:
            draft.drop_part(f"{leaf.name}: {name}", name, str(unfit))
    if not sources:
        raise Unfit("none of these can be read here")
    is_one = len(sources) == 1 and isinstance(sources[0], str)
    draft.carry(leaf, "data.train" if leaf.name == "dataset" else "data.eval", sources[0] if is_one else sources)


def _read_info(draft: ProfileDraft) -> tuple[Mapping[str, Any] | None, Path | None]:
    """The table of data sets and its folder; `None` where there is none.

    Raises:
        ProfileError: the file is there and cannot be read.
    """
    for place in (draft.raw("dataset_dir"), DEFAULT_FOLDER, "."):
        path = draft.find(f"{place}/{INFO}") if isinstance(place, str) and place else None
        if path is None:
            continue
        try:
            table = json.loads(read_input(path).decode("utf-8-sig"))
        except (OSError, ValueError, RecursionError) as error:
            raise ProfileError(f"{path} cannot be read: {error}.") from error
        if not isinstance(table, dict):
            raise ProfileError(f"{path} is no table of data sets.")
        return table, path.parent
    return None, None


def _source(draft: ProfileDraft, name: str, table: Mapping[str, Any] | None, folder: Path | None) -> Any:
    entry = (table or {}).get(name)
    if entry is None:
        if draft.find(name) or HUB_ID.fullmatch(name) or PurePath(name).suffix.lower() in DATA_SUFFIXES:
            return draft.rows(name)
        where = f"{folder / INFO} has no such name" if folder else f"there is no {INFO} that says what it is"
        raise Unfit(where)
    if not isinstance(entry, dict):
        raise Unfit(f"its entry in {INFO} is no table")
    stage = word_or(draft.raw("stage"), "sft")
    _refuse(entry, str(stage))
    assert folder is not None, "an entry comes from a file"
    given = draft.raw("dataset_dir")
    is_whole = isinstance(given, str) and PurePath(given).is_absolute()  # as it was written: it may be moved
    source = {"path": str(folder / INFO) if is_whole else draft.seen_from(folder / INFO), "subset": name}
    if stage == "pt":
        source["format"] = "text"
        if entry.get("formatting", "alpaca") != "alpaca" or _columns(entry).get("response"):
            draft.drop_part(f"{INFO}: {name}", entry, "pretrain trains on one column of text: that of the prompt")
    for key in sorted(entry.keys() - KNOWN):
        if entry[key]:
            draft.drop_part(f"{INFO}: {name}.{key}", entry[key], "a source cannot be narrowed so here")
    return source


def _refuse(entry: Mapping[str, Any], stage: str) -> None:
    """Raises `Unfit` for an entry whose rows cannot be read here, or not be trained on by this stage."""
    columns = _columns(entry)
    if stage in ("sft", "pt") and (entry.get("ranking") or columns.get("kto_tag")):
        raise Unfit("preference rows, which sft cannot train on")
    media = [medium for medium in ("images", "videos", "audios") if columns.get(medium)]
    if media:
        raise Unfit(f"it has {', '.join(media)}: only text can be trained on")
    if entry.get("folder"):
        raise Unfit("a data set of the hub is read whole, not one folder of it")
    hub_id = entry.get("hf_hub_url")
    if hub_id and not HUB_ID.fullmatch(str(hub_id)):
        raise Unfit(f"{hub_id} is no name on the hub: owner/name is needed")
    if not hub_id and not entry.get("file_name"):
        raise Unfit(f"its entry in {INFO} names no file and no data set of the Hugging Face hub")


def _columns(entry: Mapping[str, Any]) -> dict[str, Any]:
    columns = entry.get("columns")
    return dict(columns) if isinstance(columns, dict) else {}


RULES: dict[str, Rule] = {
    **TRAINER,
    **each(precision("auto"), "bf16 fp16"),
    **same("model", "trust_remote_code"),
    **each(says("model.extra_special_tokens", lambda draft, leaf: _tokens(draft, leaf), "added where it lacks them"),
           "add_tokens add_special_tokens new_special_tokens"),
    **carries("adapter", _LORA, r="lora_rank", lora_alpha="lora_alpha", target_modules="lora_target",
              modules_to_save="additional_target", use_rslora="use_rslora", use_dora="use_dora"),
    **carries("adapter", _LORA_DROPOUT, lora_dropout="lora_dropout"),
    **carries("adapter", _QLORA, bnb_4bit_quant_type="quantization_type",
              bnb_4bit_use_double_quant="double_quantization"),
    **carries("data", max_length="cutoff_len"),
    **carries("train", use_liger_kernel="enable_liger_kernel"),
    **carries("train", _NOISE, neftune_noise_alpha="neftune_alpha"),
    **carries("eval", early_stopping_patience="early_stopping_steps"),
    **carries("eval", GENERATES, generate_max_new_tokens="max_new_tokens"),
    **each(_freeze, "freeze_trainable_layers freeze_trainable_modules freeze_extra_modules"),
    **each(_rows, "dataset eval_dataset"),
    **each(_packing, "packing neat_packing"),
    "pure_bf16": _pure,
    "max_grad_norm=null": no_clipping,
    "model_name_or_path": path_to("model.name_or_path"),
    "model_revision": branch,
    "flash_attn": to("model.attn_implementation", one_of(ATTENTION, "attention kernel")),
    "disable_gradient_checkpointing": to("train.activation_checkpointing", either(False, True)),
    "finetuning_type": says("adapter.method", _finetuning_type),
    "quantization_bit": _bits,
    "adapter_name_or_path": says("adapter.name_or_path", _adapter),
    "template": to("data.chat_template", one_of(TEMPLATES, f"template; the tokenizer's own is used, or one of"
                                                           f" {', '.join(TEMPLATES)}")),
    "resize_vocab": _resized,
    "train_on_prompt": if_on("data.loss_on", "everything", TURNS),
    "mask_history": if_on("data.loss_on", "last", TURNS),
    "val_size": held_out,
    "disable_shuffling": to("train.train_sampling_strategy", either("sequential", "random")),
    **drops(REENTRANT, "use_reentrant_gc"),
    **drops("quantization_bit says it, and the base is quantised by bitsandbytes", "quantization_method"),
    **drops("read to find the rows", "dataset_dir"),
    **drops(LOADER, "overwrite_cache preprocessing_batch_size preprocessing_num_workers tokenized_path buffer_size"
                    " data_shared_file_system cache_path"),
    **drops("rows are read from a cache on disk, never loaded as a whole; they are counted before", "streaming"),
    **drops(CUT_SHORT, "max_samples", matters=True),
    **drops("sources are mixed by times per epoch: give [[data.train]] tables a weight",
            "mix_strategy interleave_probs", matters=True),
    **drops("there is one loss for all rows set aside", "eval_on_each_dataset"),
    **drops("only text can be trained on",
            "media_dir freeze_vision_tower freeze_multi_modal_projector freeze_language_model"
            " use_audio_in_video crop_to_patches"),
    **drops("only text can be trained on", "image_* video_* audio_*"),
    **drops("the result is given without it", "plot_loss compute_accuracy include_effective_tokens_per_second"
            " print_param_status low_cpu_mem_usage use_fast_tokenizer offload_folder eval_num_beams"
            " shift_attn_impl overwrite_output_dir ignore_pad_token_for_loss"
            " adapter_folder report_to_swanlab"),
    **drops("the hub's cache is where HF_HOME says", "cache_dir"),
    **drops("not built", "shift_attn mixture_of_depths use_unsloth use_unsloth_gc moe_aux_loss_coef upcast_layernorm"
            " upcast_lmhead_output train_from_scratch split_special_tokens"
            " new_special_tokens_config init_special_tokens rope_scaling enable_thinking default_system tool_format"
            " mask_history_turns loraplus_lr_ratio loraplus_lr_embedding create_new_adapter use_dft_loss"
            " use_llama_pro use_adam_mini use_muon use_mca use_kt use_v1_kernels fp8 fp8_backend"
            " fp8_enable_fsdp_float8_all_gather quantization_device_map efficient_eos reserved_label_len"
            " use_asft_loss asft_alpha use_eaft_loss eaft_alpha enable_profiler profiler_output_dir",
            matters=True),
    **drops("it rewrites the weights of the base, so that the adapter would be wrong on the base you have",
            "pissa_init pissa_iter pissa_convert", matters=True),
    **drops("that optimizer is not built", "use_galore use_apollo use_badam galore_* apollo_* badam_*", matters=True),
    **drops("that method is not built", "oft_* module_dropout", matters=True),
    **llamafactory_preference.RULES,
    **drops(OTHER_TRACKER, "use_swanlab swanlab_*"),
    **drops("a setting of answering, which is no part of training here",
            "do_sample temperature top_p top_k num_beams max_length repetition_penalty length_penalty"
            " skip_special_tokens infer_backend infer_dtype use_kv_cache vllm_* sglang_* kt_* cpu_infer chunk_size"
            " mode"),
    **drops(HUB, "export_*"),
    **drops("ftui starts its processes itself (hardware.num_processes)",
            "ray_run_name ray_storage_path ray_storage_filesystem ray_num_workers resources_per_worker"
            " resources_per_worker.* placement_strategy ray_init_kwargs ray_init_kwargs.* master_addr master_port"),
}  # fmt: skip
RULES |= llamafactory_preference.in_ppo(RULES)


def _suppose(draft: ProfileDraft) -> None:
    draft.suppose("run.stage", "sft")
    llamafactory_preference.suppose_ppo(draft)
    system = SYSTEMS.get(str(draft.raw("template")))
    if system and draft.given("run.stage") == "sft" and draft.raw("default_system") is None:
        draft.drop_part("template: its words", system, NO_SYSTEM)
    if tokens := _tokens(draft):
        draft.suppose("model.extra_special_tokens", tokens, f"template: {TOOL} adds them where the base lacks them")
    draft.suppose("adapter.method", "lora")
    method = draft.given("adapter.method")
    if method in ("lora", "qlora") and draft.given("adapter.name_or_path") is None:
        draft.suppose("adapter.r", 8)
        draft.suppose("adapter.lora_alpha", 2 * draft.given("adapter.r"), f"{TOOL}'s default: twice the rank")
        draft.suppose_all("adapter", lora_dropout=0.0, target_modules="all-linear")
    if method == "freeze":
        draft.suppose("adapter.trainable_layers", 2)
    draft.suppose_all("data", max_length=2048, packing=draft.given("run.stage") == "pretrain")
    draft.suppose("train.precision", "auto", f"{TOOL} follows the model's own type where neither bf16 nor fp16 is on")
    suppose_trainer(draft, activation_checkpointing=True)


def _recognizes(document: Document) -> bool:
    """TRL's files have many of the same keys: the tool that knows more of the others."""
    names = set(document.named)
    own, theirs = RULES.keys() - trl.RULES.keys(), trl.RULES.keys() - RULES.keys()
    return trl.TRL.recognizes(document) and len(names & own) >= len(names & theirs)


LLAMAFACTORY = SourceTool(TOOL, RULES, _recognizes, _suppose)
