"""Axolotl's files. Names and defaults as of src/axolotl/utils/schemas, 2025 to 2026."""

import re
from typing import Any

from ftui.importers.config_file import Document, Leaf
from ftui.importers.draft import ProfileDraft
from ftui.importers.rules import (
    LAUNCH,
    OFF,
    OTHER_TRACKER,
    OWN_TRACKER,
    Gate,
    Rule,
    SourceTool,
    carries,
    drops,
    each,
    if_on,
    path_to,
    same,
    says,
    to,
)
from ftui.importers.sharding import TRAINER_SHARDING, offloads
from ftui.importers.tools import axolotl_data, axolotl_preference, axolotl_tokens, guides
from ftui.importers.tools.grpo import grpo_keys
from ftui.importers.tools.preference_keys import compares, usual_rate
from ftui.importers.tools.push_keys import push_rules
from ftui.importers.tools.trainer import (
    CARRIED,
    HUB,
    LOADER,
    PARALLEL,
    TRAINER,
    evaluates,
    held_out,
    suppose_trainer,
)
from ftui.importers.tools.trl import PEFT_NOTE, PEFT_TARGETS
from ftui.importers.values import Unfit, above_zero, convert_for, either, flag, is_on, real, scheduler, texts, whole

TOOL = "Axolotl"
ATTENTION = {"flash_attention": "flash_attention_2", "sdp_attention": "sdpa", "eager_attention": "eager"}
PRECISIONS = {"bf16": "bf16", "bfloat16": "bf16", "fp16": "fp16", "float16": "fp16"}
NO_ADAPTER = "there is no adapter: it has no effect there either"


def _method(draft: ProfileDraft) -> str:
    """lora, qlora, full or freeze; another adapter's own name."""
    adapter = draft.raw("adapter")
    if not adapter:
        return "freeze" if draft.raw("unfrozen_parameters") else "full"
    return "qlora" if is_on(draft.raw("load_in_4bit")) and adapter == "lora" else str(adapter)


def _has_lora(draft: ProfileDraft) -> bool:
    return _method(draft) in ("lora", "qlora")


_LORA = Gate(_has_lora, lambda draft: NO_ADAPTER)
_GENERATES = Gate(lambda draft: is_on(draft.raw("do_causal_lm_eval")), lambda draft: "nothing is answered")


def _adapter(draft: ProfileDraft, leaf: Leaf) -> str:
    """adapter and load_in_4bit."""
    if leaf.name == "adapter" and not _has_lora(draft):
        raise Unfit(f"there is no method {_method(draft)} here")
    if leaf.name == "load_in_4bit" and flag(leaf.value) and _method(draft) != "qlora":
        raise Unfit("without an adapter nothing is frozen")
    return _method(draft)


def _eight(draft: ProfileDraft, leaf: Leaf) -> None:
    if not flag(leaf.value):
        draft.drop(leaf, OFF)
    elif _method(draft) != "lora":
        raise Unfit(f"the method is {_method(draft)}: only the base of lora is stored in 8 bits")
    else:
        draft.carry(leaf, "adapter.load_in_8bit", True)


def _all_linear(draft: ProfileDraft, leaf: Leaf) -> None:
    if not _has_lora(draft):
        draft.drop(leaf, NO_ADAPTER)
    elif not flag(leaf.value):
        draft.drop(leaf, "off: lora_target_modules says it")
    elif draft.raw("lora_target_modules"):
        raise Unfit("lora_target_modules names the layers; both are not said here")
    else:
        draft.carry(leaf, "adapter.target_modules", "all-linear")


def _unfrozen(draft: ProfileDraft, leaf: Leaf) -> list[str]:
    patterns = texts(leaf.value)
    if _method(draft) != "freeze":
        raise Unfit("beside an adapter, give adapter.modules_to_save")
    if parts := [pattern for pattern in patterns if re.search(r"\[[\d:]+\]$", pattern)]:
        raise Unfit(f"parts of a weight cannot be trained: {parts[0]}")
    return patterns


def _inputs(draft: ProfileDraft, leaf: Leaf) -> None:
    if axolotl_preference.stage_of(draft) == "rm":
        draft.drop(leaf, "a score is for prompt and answer together")
    elif compares(axolotl_preference.stage_of(draft)):
        draft.drop(leaf, "answers are compared, as there, whatever it says")
    else:
        to("data.loss_on", either("everything", "assistant"))(draft, leaf)


def _val_set(draft: ProfileDraft, leaf: Leaf) -> None:
    if real(leaf.value) > 0 and draft.document.has("test_datasets"):
        raise Unfit("test_datasets say what is evaluated on")
    held_out(draft, leaf)


def _precision(draft: ProfileDraft, leaf: Leaf) -> str:
    named = [name for name in PRECISIONS if is_on(draft.raw(name))]
    decided = PRECISIONS[named[0]] if named else "fp32"
    if (not named and draft.raw("bf16") is None) or str(draft.raw("bf16")).lower() == "auto":
        decided = "auto"
    if is_on(leaf.value) and decided not in ("auto", PRECISIONS[leaf.name]):
        raise Unfit(f"{named[0]} is on too, and comes first")
    return decided


def _per_epoch(draft: ProfileDraft, leaf: Leaf) -> None:
    """evals_per_epoch and saves_per_epoch: as a share of all steps, or with each epoch."""
    times = whole(leaf.value)
    section, kind = ("eval", "eval") if leaf.name.startswith("evals") else ("checkpoint", "save")
    if times <= 0:
        draft.drop(leaf, "0: it has no effect there either")
    elif times == 1:
        draft.carry(leaf, f"{section}.{kind}_strategy", "epoch")
    else:
        epochs = real(draft.raw("num_epochs") or 1)
        share = round(1 / (times * epochs), 6)
        note = f"a share of all steps: {times} in each of {epochs:g} epochs"
        draft.carry(leaf, f"{section}.{kind}_steps", share, note)
        draft.suppose(f"{section}.{kind}_strategy", "steps", leaf.name)


def _steps(draft: ProfileDraft, leaf: Leaf) -> None:
    """eval_steps and save_steps, which say the strategy too."""
    if not is_on(leaf.value):
        draft.drop(leaf, "0: it has no effect there either")
        return
    CARRIED[leaf.name](draft, leaf)
    section, kind = ("eval", "eval") if leaf.name == "eval_steps" else ("checkpoint", "save")
    if not draft.raw(f"{kind}_strategy") and not draft.raw("evaluation_strategy"):
        draft.suppose(f"{section}.{kind}_strategy", "steps", leaf.name)


def _lowest_rate(draft: ProfileDraft, leaf: Leaf) -> None:
    share = real(leaf.value)
    if draft.raw("lr_scheduler") not in (None, "cosine"):
        raise Unfit("it belongs to the cosine, as there")
    draft.carry(leaf, "train.lr_scheduler_kwargs.min_lr_rate", share)
    draft.values[("train", "lr_scheduler_type")] = "cosine_with_min_lr"


def _curve(draft: ProfileDraft, leaf: Leaf) -> Any:
    curve = convert_for("train.lr_scheduler_type", scheduler, leaf.value)
    has_lowest = curve == "cosine" and draft.raw("cosine_min_lr_ratio") is not None
    return "cosine_with_min_lr" if has_lowest else curve


def _batch(draft: ProfileDraft, leaf: Leaf) -> int:
    micro = above_zero(draft.raw("micro_batch_size") or 1)
    if whole(leaf.value) % micro:
        raise Unfit("no multiple of micro_batch_size")
    return whole(leaf.value) // micro


def _stored(draft: ProfileDraft, leaf: Leaf) -> None:
    """A flag, or where to: `legacy`, `disk`."""
    try:
        draft.carry(leaf, "train.activation_offload", flag(leaf.value))
    except Unfit:
        draft.carry(leaf, "train.activation_offload", True, f"{leaf.value} there; here to host memory")


def _tracker(name: str) -> Rule:
    def rule(draft: ProfileDraft, leaf: Leaf) -> None:
        names = ("wandb", "tensorboard", "trackio", "mlflow")
        trackers = [tracker for tracker in names if is_on(draft.raw(f"use_{tracker}"))]
        if draft.raw("wandb_project") and draft.raw("wandb_mode") != "disabled" and "wandb" not in trackers:
            trackers.insert(0, "wandb")
        if name in trackers and (leaf.name == "wandb_project" or is_on(leaf.value)):
            draft.carry(leaf, "log.report_to", trackers)
        else:
            draft.drop(leaf, OFF)

    return rule


def _length(draft: ProfileDraft, leaf: Leaf) -> None:
    answer = axolotl_preference.GRPO.longest_answer(draft)
    if above_zero(leaf.value) <= answer:
        raise Unfit(f"an answer of {answer} tokens leaves a prompt no room in it; there it cuts nothing")
    note = "of a prompt and its answer; longer prompts are left out here, and there nothing is cut"
    draft.carry(leaf, "data.max_length", above_zero(leaf.value), note)


def _of_grpo() -> dict[str, Rule]:
    """Keys that mean something else in stage grpo."""
    own = {
        "sequence_len": _length,
        "lora_dropout": grpo_keys.lora_dropout,
        **drops("prompts that are too long are left out here", "excess_length_strategy"),
        **drops("answers are trained on, as there", "train_on_inputs"),
    }
    return axolotl_preference.GRPO.gated(own, RULES)


RULES: dict[str, Rule] = {
    **TRAINER,
    **axolotl_data.RULES,
    **axolotl_tokens.RULES,
    **axolotl_preference.RULES,
    **same("model", "dtype attn_implementation trust_remote_code"),
    **same("eval", "early_stopping_patience"),
    **carries("model", revision="model_revision revision_of_model", dtype="torch_dtype"),
    **{name: if_on("model.attn_implementation", kernel) for name, kernel in ATTENTION.items()},
    **carries("adapter", _LORA, r="lora_r", lora_alpha="lora_alpha",
              target_modules="lora_target_modules", modules_to_save="lora_modules_to_save", use_dora="peft_use_dora",
              use_rslora="peft_use_rslora", layers_to_transform="peft_layers_to_transform",
              layers_pattern="peft_layers_pattern", init_lora_weights="peft_init_lora_weights"),
    "lora_dropout": axolotl_preference.lora_dropout(
        carries("adapter", _LORA, lora_dropout="lora_dropout")["lora_dropout"]
    ),
    **carries("data", max_length="sequence_len", packing="sample_packing"),
    **carries("train", per_device_train_batch_size="micro_batch_size", optim="optimizer",
              neftune_noise_alpha="noisy_embedding_alpha",
              use_liger_kernel="liger_rope liger_rms_norm liger_glu_activation"),
    **carries("eval", per_device_eval_batch_size="eval_batch_size", generate="do_causal_lm_eval"),
    **carries("eval", _GENERATES, generate_max_new_tokens="eval_max_new_tokens"),
    **each(says("train.precision", _precision), "bf16 bfloat16 fp16 float16"),
    **each(_per_epoch, "evals_per_epoch saves_per_epoch"),
    **each(_steps, "eval_steps save_steps"),
    **each(_tracker("wandb"), "use_wandb wandb_project"),
    "base_model": path_to("model.name_or_path"),
    "activation_offloading": _stored,
    "layer_offloading": offloads("base"),
    **each(says("adapter.method", _adapter), "adapter load_in_4bit"),
    "load_in_8bit": _eight,
    "lora_model_dir": path_to("adapter.name_or_path"),
    "lora_target_linear": _all_linear,
    "unfrozen_parameters": says("adapter.trainable_modules", _unfrozen),
    "val_set_size": _val_set,
    "train_on_inputs": _inputs,
    "batch_size": says("train.gradient_accumulation_steps", _batch, "batch_size there, on one GPU"),
    "num_epochs": CARRIED["num_train_epochs"],
    "lr_scheduler": says("train.lr_scheduler_type", _curve),
    "cosine_min_lr_ratio": _lowest_rate,
    "use_tensorboard": _tracker("tensorboard"),
    "use_trackio": _tracker("trackio"),
    "use_mlflow": _tracker("mlflow"),
    **drops(OWN_TRACKER, "wandb_entity wandb_watch wandb_name wandb_run_id wandb_log_model wandb_mode"
            " mlflow_* hf_mlflow_*"),
    **drops(OTHER_TRACKER, "use_comet comet_* use_otel_metrics otel_*"),
    **drops("the tokenizer's own files say it", "tokenizer_use_fast tokenizer_legacy tokenizer_save_jinja_files"),
    **drops("the model's config says it", "model_type tokenizer_type processor_type base_model_config cls_model_config"
            " is_falcon_derived_model is_llama_derived_model is_mistral_derived_model is_qwen_derived_model strict"),
    **drops("the tokenizer of the base is used", "tokenizer_config tokenizer_use_mistral_common", matters=True),
    **TRAINER_SHARDING,
    **drops(PARALLEL, "tensor_parallel_size context_parallel_size sequence_parallel_degree heads_k_stride"
            " ring_attn_func", matters=True),
    **drops("all GPUs divide it among them", "dp_shard_size"),
    **drops("not built", "deepcompile dp_replicate_size", matters=True),
    **push_rules(by_name=True),
    **drops(HUB, "hub_* push_dataset_to_hub hf_use_auth_token"),
    **drops(LAUNCH, "world_size ddp device device_map max_memory max_memory.* gpu_memory_limit low_cpu_mem_usage"
            " use_ray ray_* resources_per_worker resources_per_worker.* experimental_skip_move_to_device lora_on_cpu"),
    **drops(LOADER, "dataset_prepared_path dataset_processes dataset_num_proc dataset_keep_in_memory dataset_shard_num"
            " dataset_shard_idx num_dataset_shards_to_save shuffle_before_merging_datasets include_tkps"
            " skip_prepare_dataset shuffle_merged_datasets pad_to_sequence_len sample_packing_* eval_sample_packing"
            " multipack_real_batches batch_flattening pretrain_multipack_*"
            " pretraining_sample_concatenation preprocess_iterable is_preprocess streaming streaming_*"
            " total_num_tokens total_supervised_tokens axolotl_config_path"),
    **drops("a run resumes by itself, and ends when its loss stays NaN (health.max_bad_steps)",
            "auto_resume_from_checkpoints loss_watchdog_threshold loss_watchdog_patience gc_steps profiler_*"
            " save_first_step dynamic_checkpoint dynamic_checkpoint.*"),
    **drops("evaluation measures the loss only", "eval_table_size"
            " eval_causal_lm_metrics do_bench_eval bench_dataset bench_split generate_samples num_generation_samples"
            " generation_max_new_tokens"),
    **drops("rows are trained on as they are",
            "dataset_exact_deduplication min_sample_len curriculum_sampling", matters=True),
    **drops("ftui chooses its kernels; train.use_liger_kernel takes Liger's",
            "flash_attn_* flash_optimum xformers_attention flex_attention flex_attn_compile_kwargs.* unsloth_*"
            " lora_mlp_kernel lora_qkv_kernel lora_o_kernel lora_embedding_kernel cut_cross_entropy"
            " liger_* chunked_cross_entropy use_kernels plugins merge_lora merge_method"),
    **drops("not built", "s2_attention use_pose pose_* gptq lora_fan_in_fan_out lora_target_parameters"
            " peft peft.* peft_layer_replication peft_trainable_token_indices peft_ensure_weight_tying"
            " peft_autocast_adapter_dtype bnb_config_kwargs bnb_config_kwargs.* loraplus_lr_ratio"
            " loraplus_lr_embedding relora relora_* jagged_restart_* lisa_* lr_groups lr_groups.* embedding_lr"
            " embedding_lr_scale lr_quadratic_warmup cosine_constant_lr_ratio lr_div_factor adam_beta3 adam_epsilon2"
            " torchdistx_path fp8 fp8_* qat qat.* quantization quantization.* shrink_embeddings"
            " reinit_weights trainer_cls use_eaft eaft_* tiled_mlp tiled_mlp_*"
            " chat_template_kwargs.* lr_groups[].*"
            " resize_token_embeddings_to_32x mean_resizing_embeddings embeddings_skip_upcast fix_untrained_tokens"
            " default_system_message overrides_of_model_config.* overrides_of_model_kwargs.*"
            " model_config.* model_kwargs.* model_quantization_config model_quantization_config_kwargs.*"
            " llama4_linearized_experts diffusion diffusion.* dion_* muon_* float32 rope_scaling rope_scaling.*"
            " max_packed_sequence_len", matters=True),
    **drops("a setting of answering, which is no part of training here", "gradio_*"),
}  # fmt: skip
RULES |= _of_grpo()


def _suppose(draft: ProfileDraft) -> None:
    draft.suppose("run.stage", "sft", "rows with answers")
    axolotl_preference.suppose(draft)
    method = _method(draft)
    note = "unfrozen_parameters" if method == "freeze" else "no adapter" if method == "full" else ""
    draft.suppose("adapter.method", method if method in ("full", "freeze", "lora", "qlora") else "lora", note)
    stage = axolotl_preference.stage_of(draft)
    if stage == "grpo":
        axolotl_preference.GRPO.suppose(draft)
    if draft.given("adapter.method") in ("lora", "qlora") and draft.given("adapter.name_or_path") is None:
        draft.suppose_all("adapter", "PEFT's default", r=8, lora_alpha=8)
        draft.suppose("adapter.lora_dropout", 0.0)
        draft.suppose("adapter.target_modules", PEFT_TARGETS, PEFT_NOTE)
    axolotl_data.suppose(draft)
    if method == "full" and draft.values.get(("train", "precision"), "auto") in ("auto", "bf16"):
        draft.suppose("model.dtype", "bfloat16", f"as {TOOL} trains; auto (float32) is exacter, and twice as large")
    draft.suppose_all("data", max_length=512, packing=False)
    if evaluates(draft):
        draft.suppose_all("eval", eval_strategy="epoch", load_best_model_at_end=False)
        micro = draft.values.get(("train", "per_device_train_batch_size"), 1)
        draft.suppose("eval.per_device_eval_batch_size", micro, f"{TOOL} takes micro_batch_size")
    draft.suppose("checkpoint.save_strategy", "epoch")
    rate = grpo_keys.USUAL_RATE if stage == "grpo" else usual_rate(stage)
    rates = {} if rate is None else {"learning_rate": rate}
    suppose_trainer(draft, **rates, per_device_train_batch_size=1, num_train_epochs=1.0, lr_scheduler_type="cosine",
                    warmup_steps=0.03, precision="auto")  # fmt: skip
    if stage == "grpo":
        axolotl_preference.GRPO.settle_batch(draft)
        axolotl_preference.GRPO.suppose_evaluation(draft)


def _recognizes(document: Document) -> bool:
    own = {*(RULES.keys() - guides.RULES.keys()), "datasets", "adapter"}
    if "base_model" in document.named and document.has(*own):
        return True
    return document.has("datasets") and document.has("micro_batch_size", "sequence_len")


AXOLOTL = SourceTool(TOOL, RULES, _recognizes, _suppose)
