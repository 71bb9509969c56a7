"""LLaMA-Factory's training files: its model, data, fine-tuning and generating arguments, and transformers' own.

Names and defaults as of src/llamafactory/hparams, autumn 2025 to 2026.
"""

import re
from typing import Any

from ftui.importers.config_file import Leaf
from ftui.importers.draft import Draft, Rule, drops, path_to, to, walk
from ftui.importers.tools import llamafactory_data
from ftui.importers.tools.trainer_keys import TRAINER, suppose_trainer
from ftui.importers.tools.trainer_rules import HUB, LOADER, TRACKERS, held_out, no_clipping, precision
from ftui.importers.values import Unfit, above_zero, beside, flag, is_on, one_of, real, text, texts, whole, word

TOOL = "LLaMA-Factory"
STAGES = {"sft": "sft", "pt": "pretrain"}
LATER = {"dpo": "preference pairs", "kto": "verdicts", "rm": "reward models", "ppo": "reinforcement learning"}

# Its templates that have the same marks as ours.
TEMPLATES = {name: name for name in ("llama2", "llama3", "mistral", "gemma", "phi", "qwen", "vicuna", "zephyr",
                                     "chatml", "alpaca")}  # fmt: skip
ATTENTION = {"auto": "auto", "disabled": "eager", "off": "eager", "sdpa": "sdpa", "fa2": "flash_attention_2"}


def _stage(draft: Draft, leaf: Leaf) -> None:
    stage = word(leaf.value)
    if stage in STAGES:
        draft.carry(leaf, "run.stage", STAGES[stage])
        return
    what = LATER.get(stage, "")
    draft.refused = f"training by {stage}{f' ({what})' if what else ''} is not yet built: ftui does sft and pretrain"
    draft.drop(leaf, "not yet built", matters=True)


def _method(draft: Draft) -> str:
    kind = beside(draft.raw("finetuning_type"), "lora")
    bits = draft.raw("quantization_bit")
    return "qlora" if kind == "lora" and str(bits) == "4" else kind


def _finetuning_type(draft: Draft, leaf: Leaf) -> None:
    method = _method(draft)
    if method not in ("lora", "qlora", "full", "freeze"):
        raise Unfit(f"there is no method {method} here")
    draft.carry(leaf, "adapter.method", method)


def _bits(draft: Draft, leaf: Leaf) -> None:
    bits, how = whole(leaf.value), beside(draft.raw("quantization_method"), "bnb")
    if beside(draft.raw("finetuning_type"), "lora") != "lora":
        raise Unfit("only the frozen base of a LoRA is held in few bits")
    if how not in ("bnb", "bitsandbytes") or bits not in (4, 8):
        raise Unfit(f"{bits} bits by {how}: bitsandbytes with 4 or 8 bits is built")
    if bits == 4:
        draft.carry(leaf, "adapter.method", "qlora")
    else:
        draft.carry(leaf, "adapter.load_in_8bit", True)


def _quantised(draft: Draft, leaf: Leaf) -> None:
    """How the base is quantised is said where it is."""
    draft.drop(leaf, "quantization_bit says it, and the base is quantised by bitsandbytes")


def _for_qlora(ours: str, convert: Any) -> Rule:
    def rule(draft: Draft, leaf: Leaf) -> None:
        if _method(draft) == "qlora":
            draft.carry(leaf, ours, convert(leaf.value))
        else:
            draft.drop(leaf, "the base is not held in 4 bits")

    return rule


def for_lora(ours: str, convert: Any) -> Rule:
    """A key of LoRA, which says nothing where another method is chosen."""

    def rule(draft: Draft, leaf: Leaf) -> None:
        if _method(draft) in ("lora", "qlora"):
            draft.carry(leaf, ours, convert(leaf.value))
        else:
            draft.drop(leaf, f"finetuning_type is {_method(draft)}: it says nothing there either")

    return rule


def targets(value: Any) -> Any:
    """`all` and its kin, or names of layers."""
    names = texts(value)
    return "all-linear" if [name.lower() for name in names] in (["all"], ["all-linear"], ["all_linear"]) else names


def _for_freeze(draft: Draft, leaf: Leaf) -> None:
    name = leaf.name
    if _method(draft) != "freeze":
        draft.drop(leaf, f"finetuning_type is {_method(draft)}: it says nothing there either")
    elif name == "freeze_trainable_layers":
        if whole(leaf.value) < 1:
            raise Unfit("the first layers cannot be chosen, only the last so many")
        draft.carry(leaf, "adapter.trainable_layers", whole(leaf.value))
    elif name == "freeze_trainable_modules":
        if texts(leaf.value) != ["all"]:
            raise Unfit("parts of the last layers cannot be chosen; all of them are trained")
        draft.drop(leaf, "all: as trainable_layers trains them")
    else:
        draft.carry(leaf, "adapter.trainable_modules", [re.escape(one) for one in texts(leaf.value)])


def _template(draft: Draft, leaf: Leaf) -> None:
    name = text(leaf.value).lower()
    if name not in TEMPLATES:
        raise Unfit(f"there is no such template; the tokenizer's own is used, or one of {', '.join(TEMPLATES)}")
    draft.carry(leaf, "data.chat_template", TEMPLATES[name])


def _packing(draft: Draft, leaf: Leaf) -> None:
    packed = is_on(draft.raw("packing")) or is_on(draft.raw("neat_packing"))
    apart = "" if is_on(draft.raw("neat_packing")) or not packed else "unlike there, rows do not see each other"
    draft.carry(leaf, "data.packing", packed, apart)


def _pure(draft: Draft, leaf: Leaf) -> None:
    if flag(leaf.value):
        draft.carry(leaf, "model.dtype", "bfloat16", "pure_bf16: what is trained is stored in it too")
        draft.suppose("train.precision", "bf16", "pure_bf16")
    else:
        draft.drop(leaf, "off, as it is here")


def _learned(value_if_on: str) -> Rule:
    def rule(draft: Draft, leaf: Leaf) -> None:
        if flag(leaf.value):
            draft.carry(leaf, "data.loss_on", value_if_on)
        else:
            draft.drop(leaf, "off: the assistant's turns are learned, as here")

    return rule


def _adapter(draft: Draft, leaf: Leaf) -> None:
    if len(texts(leaf.value)) > 1:
        raise Unfit("several adapters cannot be merged into the base; merge them first")
    if is_on(draft.raw("create_new_adapter")):
        raise Unfit("it is merged into the base before a new adapter is made there; merge it first")
    draft.carry(leaf, "adapter.name_or_path", draft.folder_or_id(leaf.value))


def _revision(draft: Draft, leaf: Leaf) -> None:
    if leaf.value == "main":
        draft.drop(leaf, "main: as here where nothing is said")
    else:
        draft.carry(leaf, "model.revision", text(leaf.value))


def _reentrant(draft: Draft, leaf: Leaf) -> None:
    draft.drop(leaf, "ftui checkpoints without reentering autograd; the result is the same")


def _no_checkpointing(draft: Draft, leaf: Leaf) -> None:
    draft.carry(leaf, "train.activation_checkpointing", not flag(leaf.value))


def _no_shuffling(draft: Draft, leaf: Leaf) -> None:
    draft.carry(leaf, "train.train_sampling_strategy", "sequential" if flag(leaf.value) else "random")


RULES: dict[str, Rule] = {
    **TRAINER,
    "bf16": precision("auto"),
    "fp16": precision("auto"),
    "pure_bf16": _pure,
    "max_grad_norm=null": no_clipping,
    "stage": _stage,
    "model_name_or_path": path_to("model.name_or_path"),
    "model_revision": _revision,
    "trust_remote_code": to("model.trust_remote_code", flag),
    "flash_attn": to("model.attn_implementation", one_of(ATTENTION, "attention kernel")),
    "add_special_tokens": to("model.extra_special_tokens", texts),
    "new_special_tokens": to("model.extra_special_tokens", texts),
    "enable_liger_kernel": to("train.use_liger_kernel", flag),
    "disable_gradient_checkpointing": _no_checkpointing,
    "use_reentrant_gc": _reentrant,
    "finetuning_type": _finetuning_type,
    "quantization_bit": _bits,
    "quantization_method": _quantised,
    "quantization_type": _for_qlora("adapter.bnb_4bit_quant_type", text),
    "double_quantization": _for_qlora("adapter.bnb_4bit_use_double_quant", flag),
    "adapter_name_or_path": _adapter,
    "lora_rank": for_lora("adapter.r", above_zero),
    "lora_alpha": for_lora("adapter.lora_alpha", above_zero),
    "lora_dropout": for_lora("adapter.lora_dropout", real),
    "lora_target": for_lora("adapter.target_modules", targets),
    "additional_target": for_lora("adapter.modules_to_save", texts),
    "use_rslora": for_lora("adapter.use_rslora", flag),
    "use_dora": for_lora("adapter.use_dora", flag),
    "freeze_trainable_layers": _for_freeze,
    "freeze_trainable_modules": _for_freeze,
    "freeze_extra_modules": _for_freeze,
    "template": _template,
    "dataset": llamafactory_data.rule("data.train"),
    "eval_dataset": llamafactory_data.rule("data.eval"),
    "cutoff_len": to("data.max_length", above_zero),
    "packing": _packing,
    "neat_packing": _packing,
    "train_on_prompt": _learned("everything"),
    "mask_history": _learned("last"),
    "val_size": held_out,
    "disable_shuffling": _no_shuffling,
    "early_stopping_steps": to("eval.early_stopping_patience", above_zero),
    "neftune_alpha": to("train.neftune_noise_alpha", real),
    **drops("read to find the rows", "dataset_dir"),
    **drops(LOADER, "overwrite_cache preprocessing_batch_size preprocessing_num_workers tokenized_path buffer_size"
                    " data_shared_file_system cache_path"),
    **drops("rows are read from a cache on disk, never held as a whole; they are counted before", "streaming"),
    **drops("a source cannot be cut short here; cut the file, or set train.max_steps", "max_samples", matters=True),
    **drops("sources are mixed by times per epoch: give [[data.train]] tables a weight",
            "mix_strategy interleave_probs", matters=True),
    **drops("there is one loss for all rows set aside", "eval_on_each_dataset"),
    **drops("only text can be learned",
            "media_dir freeze_vision_tower freeze_multi_modal_projector freeze_language_model"
            " use_audio_in_video crop_to_patches"),
    **drops("only text can be learned", "image_* video_* audio_*"),
    **drops("the result is given without it", "plot_loss compute_accuracy include_effective_tokens_per_second"
            " print_param_status low_cpu_mem_usage use_fast_tokenizer offload_folder eval_num_beams"
            " resize_vocab shift_attn_impl overwrite_output_dir ignore_pad_token_for_loss"
            " adapter_folder report_to_swanlab"),
    **drops("the hub's cache is where HF_HOME says", "cache_dir"),
    **drops("not built", "shift_attn mixture_of_depths use_unsloth use_unsloth_gc moe_aux_loss_coef upcast_layernorm"
            " upcast_lmhead_output train_from_scratch split_special_tokens add_tokens"
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
    **drops("a setting of training by preferences, which is not yet built",
            "pref_* dpo_* kto_* simpo_gamma ppo_* ref_model* reward_model* ld_alpha", matters=True),
    **drops(f"it cannot be told; {', '.join(TRACKERS)} can", "use_swanlab swanlab_*"),
    **drops("a setting of answering, which is no part of training here",
            "do_sample temperature top_p top_k num_beams max_length max_new_tokens repetition_penalty length_penalty"
            " skip_special_tokens infer_backend infer_dtype use_kv_cache vllm_* sglang_* kt_* cpu_infer chunk_size"
            " mode"),
    **drops(HUB, "export_*"),
    **drops("ftui starts its processes itself (hardware.num_processes)",
            "ray_run_name ray_storage_path ray_storage_filesystem ray_num_workers resources_per_worker"
            " resources_per_worker.* placement_strategy ray_init_kwargs ray_init_kwargs.* master_addr master_port"),
}  # fmt: skip


def fill(draft: Draft) -> None:
    """The whole file, and what LLaMA-Factory does where it says nothing."""
    walk(draft, RULES)
    draft.suppose("run.stage", "sft")
    draft.suppose("adapter.method", "lora")
    method = draft.values[("adapter", "method")]
    if method in ("lora", "qlora") and ("adapter", "name_or_path") not in draft.values:
        draft.suppose("adapter.r", 8)
        draft.suppose("adapter.lora_alpha", 2 * draft.values[("adapter", "r")], f"{TOOL}'s default: twice the rank")
        draft.suppose("adapter.lora_dropout", 0.0)
        draft.suppose("adapter.target_modules", "all-linear")
    if method == "freeze" and ("adapter", "trainable_layers") not in draft.values:
        draft.suppose("adapter.trainable_layers", 2)
    draft.suppose("data.max_length", 2048)
    draft.suppose("data.packing", draft.values.get(("run", "stage")) == "pretrain")
    draft.suppose("train.precision", "auto", f"{TOOL} follows the model's own type where neither bf16 nor fp16 is on")
    suppose_trainer(draft, activation_checkpointing=True)
