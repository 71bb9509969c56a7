"""Axolotl's files. Names and defaults as of src/axolotl/utils/schemas, 2025 to 2026."""

from ftui.importers.draft import Draft, Rule, drops, path_to, to, walk
from ftui.importers.tools import axolotl_data
from ftui.importers.tools import axolotl_rules as how
from ftui.importers.tools.axolotl_rules import TOOL
from ftui.importers.tools.llamafactory import targets
from ftui.importers.tools.trainer_keys import CARRIED, TRAINER, suppose_trainer
from ftui.importers.tools.trainer_rules import HUB, LAUNCH, LOADER, SHARDED
from ftui.importers.tools.trl import ATTENTION, DTYPES, PEFT_NOTE, PEFT_TARGETS
from ftui.importers.values import above_zero, flag, one_of, optimizer, real, text, texts, wholes

RULES: dict[str, Rule] = {
    **TRAINER,
    **axolotl_data.RULES,
    "base_model": path_to("model.name_or_path"),
    "model_revision": to("model.revision", text),
    "revision_of_model": to("model.revision", text),
    "trust_remote_code": to("model.trust_remote_code", flag),
    "dtype": to("model.dtype", one_of(DTYPES, "type")),
    "torch_dtype": to("model.dtype", one_of(DTYPES, "type")),
    "attn_implementation": to("model.attn_implementation", one_of(ATTENTION, "attention kernel")),
    **dict.fromkeys(how.FLAGS, how.attention),
    "tokens": to("model.extra_special_tokens", texts, "there they are no special ones"),
    "special_tokens.additional_special_tokens": to("model.extra_special_tokens", texts),
    "adapter": how.adapter,
    "load_in_4bit": how.four,
    "load_in_8bit": how.eight,
    "lora_model_dir": path_to("adapter.name_or_path"),
    "lora_r": how.lora("adapter.r", above_zero),
    "lora_alpha": how.lora("adapter.lora_alpha", above_zero),
    "lora_dropout": how.lora("adapter.lora_dropout", real),
    "lora_target_modules": how.lora("adapter.target_modules", targets),
    "lora_target_linear": how.all_linear,
    "lora_modules_to_save": how.lora("adapter.modules_to_save", texts),
    "peft_use_dora": how.lora("adapter.use_dora", flag),
    "peft_use_rslora": how.lora("adapter.use_rslora", flag),
    "peft_layers_to_transform": how.lora("adapter.layers_to_transform", wholes),
    "peft_layers_pattern": how.lora("adapter.layers_pattern", lambda value: ",".join(texts(value))),
    "peft_init_lora_weights": how.lora("adapter.init_lora_weights", lambda value: value),
    "unfrozen_parameters": how.unfrozen,
    "rl": how.rl,
    "reward_model": how.reward,
    "process_reward_model": how.reward,
    "val_set_size": how.val_set,
    "sequence_len": to("data.max_length", above_zero),
    "sample_packing": to("data.packing", flag),
    "train_on_inputs": lambda draft, leaf: draft.carry(
        leaf, "data.loss_on", "everything" if flag(leaf.value) else "assistant"
    ),
    "micro_batch_size": to("train.per_device_train_batch_size", above_zero),
    "batch_size": how.batch,
    "eval_batch_size": to("eval.per_device_eval_batch_size", above_zero),
    "num_epochs": CARRIED["num_train_epochs"],
    "optimizer": to("train.optim", optimizer),
    "lr_scheduler": how.curve,
    "cosine_min_lr_ratio": how.lowest_rate,
    "bf16": how.precision,
    "bfloat16": how.precision,
    "fp16": how.precision,
    "float16": how.precision,
    "noisy_embedding_alpha": to("train.neftune_noise_alpha", real),
    "liger_rope": to("train.use_liger_kernel", flag),
    "liger_rms_norm": to("train.use_liger_kernel", flag),
    "liger_glu_activation": to("train.use_liger_kernel", flag),
    "evals_per_epoch": how.per_epoch,
    "saves_per_epoch": how.per_epoch,
    "eval_steps": how.steps("eval", "eval"),
    "save_steps": how.steps("checkpoint", "save"),
    "early_stopping_patience": to("eval.early_stopping_patience", above_zero),
    "use_wandb": how.tracker("wandb"),
    "wandb_project": how.tracker("wandb"),
    "use_tensorboard": how.tracker("tensorboard"),
    "use_trackio": how.tracker("trackio"),
    **drops("the tracker's own settings are its environment variables (WANDB_PROJECT ...)",
            "wandb_entity wandb_watch wandb_name wandb_run_id wandb_log_model wandb_mode"),
    **drops("it cannot be told; tensorboard, wandb and trackio can", "use_mlflow mlflow_* hf_mlflow_* use_comet comet_*"
            " use_otel_metrics otel_*"),
    **drops("the tokenizer's own are used", "special_tokens.pad_token special_tokens.unk_token special_tokens.bos_token"
            " tokenizer_use_fast tokenizer_legacy tokenizer_save_jinja_files"),
    **drops("the end of a turn comes from the chat template", "special_tokens.eos_token eot_tokens", matters=True),
    **drops("the model's config says it", "model_type tokenizer_type processor_type base_model_config cls_model_config"
            " is_falcon_derived_model is_llama_derived_model is_mistral_derived_model is_qwen_derived_model strict"),
    **drops("the tokenizer of the base is used", "tokenizer_config tokenizer_use_mistral_common", matters=True),
    **drops(SHARDED, "deepspeed deepspeed.* deepcompile fsdp fsdp.* fsdp_config fsdp_config.* fsdp_version"
            " fsdp_final_state_dict_type qlora_sharded_model_loading tensor_parallel_size context_parallel_size"
            " sequence_parallel_degree heads_k_stride ring_attn_func dp_shard_size dp_replicate_size", matters=True),
    **drops(HUB, "hub_* push_dataset_to_hub hf_use_auth_token"),
    **drops(LAUNCH, "world_size ddp device device_map max_memory max_memory.* gpu_memory_limit low_cpu_mem_usage"
            " use_ray ray_* resources_per_worker resources_per_worker.* experimental_skip_move_to_device lora_on_cpu"),
    **drops(LOADER, "dataset_prepared_path dataset_processes dataset_num_proc dataset_keep_in_memory dataset_shard_num"
            " dataset_shard_idx num_dataset_shards_to_save shuffle_before_merging_datasets include_tkps"
            " skip_prepare_dataset shuffle_merged_datasets pad_to_sequence_len sample_packing_* eval_sample_packing"
            " multipack_real_batches batch_flattening pretrain_multipack_*"
            " pretraining_sample_concatenation preprocess_iterable is_preprocess streaming streaming_*"
            " total_num_tokens total_supervised_tokens axolotl_config_path"),
    **drops("a run goes on by itself, and ends when its loss stays NaN (health.max_bad_steps)",
            "auto_resume_from_checkpoints loss_watchdog_threshold loss_watchdog_patience gc_steps profiler_*"
            " save_first_step dynamic_checkpoint dynamic_checkpoint.*"),
    **drops("evaluation measures the loss only", "eval_table_size eval_max_new_tokens do_causal_lm_eval"
            " eval_causal_lm_metrics do_bench_eval bench_dataset bench_split generate_samples num_generation_samples"
            " generation_max_new_tokens"),
    **drops("rows are learned as they are", "dataset_exact_deduplication min_sample_len excess_length_strategy"
            " curriculum_sampling", matters=True),
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
            " reinit_weights trainer_cls use_eaft eaft_* tiled_mlp tiled_mlp_* activation_offloading layer_offloading"
            " chat_template_kwargs.* lr_groups[].*"
            " resize_token_embeddings_to_32x mean_resizing_embeddings embeddings_skip_upcast fix_untrained_tokens"
            " added_tokens_overrides.* default_system_message overrides_of_model_config.* overrides_of_model_kwargs.*"
            " model_config.* model_kwargs.* model_quantization_config model_quantization_config_kwargs.* num_labels"
            " llama4_linearized_experts diffusion diffusion.* dion_* muon_* float32 rope_scaling rope_scaling.*"
            " max_packed_sequence_len", matters=True),
    **drops("a setting of training by preferences, which is not yet built",
            "trl trl.* ebft ebft.* center_rewards_coefficient precompute_ref_log_probs"
            " vllm vllm.* dpo_* rl_beta orpo_alpha rpo_alpha simpo_gamma cpo_alpha kto_* max_prompt_len",
            matters=True),
    **drops("a setting of answering, which is no part of training here", "gradio_*"),
}  # fmt: skip


def fill(draft: Draft) -> None:
    """The whole file, and what Axolotl does where it says nothing."""
    walk(draft, RULES)
    draft.suppose("run.stage", "sft", "rows with answers")
    chosen = how.method(draft)
    note = "unfrozen_parameters" if chosen == "freeze" else "no adapter" if chosen == "full" else ""
    draft.suppose("adapter.method", chosen if chosen in ("full", "freeze", "lora", "qlora") else "lora", note)
    if draft.values[("adapter", "method")] in ("lora", "qlora") and ("adapter", "name_or_path") not in draft.values:
        draft.suppose("adapter.r", 8, "PEFT's default")
        draft.suppose("adapter.lora_alpha", 8, "PEFT's default")
        draft.suppose("adapter.lora_dropout", 0.0)
        draft.suppose("adapter.target_modules", PEFT_TARGETS, PEFT_NOTE)
    axolotl_data.suppose(draft)
    if chosen == "full" and draft.values.get(("train", "precision"), "auto") in ("auto", "bf16"):
        draft.suppose("model.dtype", "bfloat16", f"as {TOOL} trains; auto (float32) is exacter, and twice as large")
    draft.suppose("data.max_length", 512)
    draft.suppose("data.packing", False)
    if any(("data", name) in draft.values for name in ("eval", "eval_fraction", "eval_num_rows")):
        draft.suppose("eval.eval_strategy", "epoch")
        draft.suppose("eval.load_best_model_at_end", False)
        micro = draft.values.get(("train", "per_device_train_batch_size"), 1)
        draft.suppose("eval.per_device_eval_batch_size", micro, f"{TOOL} takes micro_batch_size")
    draft.suppose("checkpoint.save_strategy", "epoch")
    suppose_trainer(draft, per_device_train_batch_size=1, num_train_epochs=1.0, lr_scheduler_type="cosine",
                    warmup_steps=0.03, precision="auto")  # fmt: skip
