"""What keys, tables and values are called in older releases and in other tools, and what they are called here."""

SPELLINGS = {
    "model.revision": "model_revision",
    "model.dtype": "torch_dtype model_dtype",
    "adapter.r": "lora_r lora_rank",
    "adapter.target_modules": "lora_target lora_target_modules",
    "adapter.modules_to_save": "lora_modules_to_save",
    "adapter.load_in_8bit": "use_8bit",
    "adapter.bias": "lora_bias",
    "adapter.bnb_4bit_quant_type": "quant_type",
    "adapter.bnb_4bit_use_double_quant": "use_double_quant double_quant use_nested_quant double_quantization",
    "adapter.bnb_4bit_compute_dtype": "compute_dtype",
    "data.max_length": "max_seq_length cutoff_len sequence_len max_seq_len sequence_length block_size model_max_length"
                       " context_length seq_length",
    "data.packing": "sample_packing",
    "train.num_train_epochs": "num_epochs epochs n_epochs",
    "train.per_device_train_batch_size": "micro_batch_size batch_size train_batch_size per_device_batch_size",
    "train.gradient_accumulation_steps": "grad_accum accumulation_steps gradient_accumulation grad_accum_steps"
                                         " grad_accumulation_steps accumulate_grad_batches",
    "train.learning_rate": "lr",
    "train.lr_scheduler_type": "lr_scheduler scheduler scheduler_type",
    "train.optim": "optimizer",
    "train.warmup_steps": "warmup",
    "train.max_grad_norm":
        "gradient_clipping clip_grad_norm gradient_clip gradient_clip_val grad_clip max_gradient_norm",
    "train.neftune_noise_alpha": "neftune_alpha",
    "train.seed": "random_seed random_state",
    "train.activation_checkpointing": "gradient_checkpointing use_gradient_checkpointing",
    "eval.per_device_eval_batch_size": "eval_batch_size",
    "eval.eval_strategy": "evaluation_strategy",
    "eval.eval_steps": "eval_every eval_interval",
    "checkpoint.save_steps": "save_every save_interval",
    "log.logging_steps": "log_steps log_interval log_every",
    "hardware.num_processes": "num_gpus gpus",
}  # fmt: skip
"""Keys, and what older releases, other tools and guides call them. Files of unknown tools are read by these."""

# What else to write in a profile for a name that stands there: further keys, and keys with a value.
_INSTEAD = {
    "model.name_or_path": "base_model model_name_or_path",
    "model.attn_implementation": "flash_attn flash_attention xformers_attention",
    'model.attn_implementation = "sdpa"': "sdp_attention",
    'model.attn_implementation = "flash_attention_2"': "use_flash_attention_2",
    "model.extra_special_tokens": "additional_special_tokens new_special_tokens",
    "adapter.method": "finetuning_type",
    'adapter.method = "lora"': "use_peft use_lora",
    'adapter.method = "qlora"': "load_in_4bit quantization_bit use_qlora",
    "adapter.name_or_path": "adapter_name_or_path lora_model_dir",
    "adapter.r": "rank",
    "adapter.lora_alpha": "alpha",
    "adapter.lora_dropout": "dropout",
    'adapter.target_modules = "all-linear"': "lora_target_linear",
    "adapter.modules_to_save": "additional_target",
    "adapter.bnb_4bit_quant_type": "quantization_type",
    "adapter.use_dora": "peft_use_dora",
    "adapter.use_rslora": "peft_use_rslora",
    "adapter.trainable_layers": "freeze_trainable_layers",
    "adapter.trainable_modules": "freeze_trainable_modules unfrozen_parameters",
    "data.train": "dataset datasets train_file",
    "the weight of a [[data.train]] table": "interleave_probs dataset_mixer",
    "data.eval": "eval_dataset test_datasets",
    "data.eval_fraction, or data.eval_num_rows": "val_size val_set_size",
    "data.chat_template": "template",
    'data.loss_on = "everything"': "train_on_inputs train_on_prompt",
    'data.loss_on = "last"': "mask_history",
    'data.loss_on = "assistant"': "assistant_only_loss completion_only_loss",
    "train.max_steps": "num_train_steps",
    "train.warmup_steps (below 1 it is a share)": "warmup_ratio",
    "train.activation_checkpointing_kwargs": "gradient_checkpointing_kwargs",
    'train.train_sampling_strategy = "group_by_length"': "group_by_length",
    "train.neftune_noise_alpha": "neft_alpha",
    "train.label_smoothing_factor": "label_smoothing",
    "train.use_liger_kernel": "liger enable_liger_kernel",
    "train.optim_args": "optimizer_args",
    "train.adam_epsilon": "epsilon",
    "train.lr_scheduler_type": "learning_rate_scheduler",
    'train.lr_scheduler_type = "cosine_with_min_lr" and train.lr_scheduler_kwargs.min_lr_rate': "cosine_min_lr_ratio",
    "train.precision": "mixed_precision",
    'train.precision = "bf16"': "bf16",
    'train.precision = "fp16"': "fp16",
    'eval.eval_strategy = "epoch", or eval.eval_steps as a share of all steps': "evals_per_epoch",
    "eval.early_stopping_patience": "early_stopping",
    'checkpoint.save_strategy = "epoch"': "saves_per_epoch",
    "checkpoint.save_total_limit": "save_limit",
    'log.report_to = "wandb" (WANDB_PROJECT names the project)': "wandb_project",
    "run.name (the folder's; $FTUI_RUNS names the folder of all runs)": "output_dir",
}
OLD_SPELLINGS = {
    name: instead for table in (SPELLINGS, _INSTEAD) for instead, names in table.items() for name in names.split()
}
"""What to write in place of a name that is no key."""

# Keys of other tools that nothing here corresponds to, and why.
WITHOUT_NEED = {
    "do_train": "a profile is for training",
    "overwrite_output_dir": "each run has a folder of its own",
    "resume_from_checkpoint": "`ftui resume` continues a run",
    "dataset_prepared_path": "tokenised rows are stored in $FTUI_CACHE",
    "overwrite_cache": "rows are tokenised again when anything about them has changed",
    "preprocessing_num_workers": "rows are tokenised once, and stored",
    "dataloader_num_workers": "rows are read ahead by a thread",
    "pad_to_sequence_len": "rows are padded to the longest of their micro-batch",
    "push_to_hub": "nothing is uploaded",
    "hub_model_id": "nothing is uploaded",
    "deepspeed": "several GPUs share each step with hardware.num_processes",
    "fsdp": "several GPUs share each step with hardware.num_processes",
    "ddp_timeout": "health.stall_minutes detects a rank that hangs",
    "plot_loss": "`ftui attach` draws it",
}

# Tables of other tools.
OTHER_TABLES = {
    "lora": "adapter", "peft": "adapter", "qlora": "adapter", "training": "train", "optimizer": "train",
    "scheduler": "train", "dataset": "data", "datasets": "data", "evaluation": "eval", "logging": "log",
    "saving": "checkpoint", "save": "checkpoint",
}  # fmt: skip

OTHER_OPTIMIZERS = {
    "adamw": "adamw_torch",
    "adamw_hf": "adamw_torch",
    "torch.optim.adamw": "adamw_torch",
    "adamw_apex_fused": "adamw_torch_fused",
    "adamw_torch_npu_fused": "adamw_torch_fused",
    "adamw_torch_xla": "adamw_torch",
    "optimi_adamw": "adamw_torch_fused",
    "adamw_torch_8bit": "adamw_8bit",
    "ao_adamw_8bit": "adamw_8bit",
    "adamw8bit": "adamw_8bit",
    "bitsandbytes.optim.adamw8bit": "adamw_8bit",
    "bitsandbytes.optim.pagedadamw8bit": "paged_adamw_8bit",
    "bitsandbytes.optim.pagedadamw": "paged_adamw_32bit",
    "paged_adamw": "paged_adamw_32bit",
    "lion": "lion_32bit",
    "paged_lion": "paged_lion_32bit",
    "torch.optim.sgd": "sgd",
}
OTHER_SCHEDULERS = {
    "cosine_annealing": "cosine",
    "cosine_with_warmup": "cosine",
    "cosine_with_hard_restarts": "cosine_with_restarts",
    "linear_with_warmup": "linear",
    "warmuplr": "constant_with_warmup",  # DeepSpeed's names
    "warmupdecaylr": "linear",
    "warmupcosinelr": "cosine",
    "wsd": "warmup_stable_decay",
}
# Values, by the key that they are of: hints only, while an import takes those above for what is meant.
OTHER_NAMES: dict[tuple[str, ...], dict[str, str]] = {
    ("run", "stage"): {"pt": "pretrain", "cpt": "pretrain", "pretraining": "pretrain", "finetune": "sft"},
    ("model", "attn_implementation"): {
        "flash_attention": "flash_attention_2", "flash": "flash_attention_2", "fa2": "flash_attention_2",
    },
    ("model", "dtype"): {"bf16": "bfloat16", "fp16": "float16", "half": "float16", "fp32": "float32"},
    ("adapter", "method"): {"peft": "lora", "dora": "lora", "4bit": "qlora", "none": "full", "frozen": "freeze"},
    ("data", "format"): {"chatml": "messages", "openai": "messages", "chat": "messages", "raw": "text"},
    ("train", "optim"): {**OTHER_OPTIMIZERS, "adam": "adamw_torch", "adam8bit": "adamw_8bit"},
    ("train", "lr_scheduler_type"): OTHER_SCHEDULERS,
    ("train", "precision"): {"bfloat16": "bf16", "float16": "fp16", "float32": "fp32", "no": "fp32", "mixed": "auto"},
    ("hardware", "device"): {"gpu": "cuda", "cuda:0": "cuda", "metal": "mps"},
}  # fmt: skip
