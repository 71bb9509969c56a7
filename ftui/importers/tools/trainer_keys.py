"""transformers' TrainingArguments (5.24, and the spellings before it): where each goes in a profile."""

from typing import Any

from ftui.importers.draft import Draft, Rule, drops, to
from ftui.importers.tools import trainer_rules as how
from ftui.importers.tools.trainer_rules import HUB, LAUNCH, LOADER, LOGS, SHARDED
from ftui.importers.values import above_zero, flag, one_of, optimizer, period, real, scheduler
from ftui.profile.sections.optimizers import OptimArgs
from ftui.profile.sections.schedulers import SchedulerKwargs

CARRIED: dict[str, Rule] = {
    "per_device_train_batch_size": to("train.per_device_train_batch_size", above_zero),
    "per_gpu_train_batch_size": to("train.per_device_train_batch_size", above_zero),
    "per_device_eval_batch_size": to("eval.per_device_eval_batch_size", above_zero),
    "per_gpu_eval_batch_size": to("eval.per_device_eval_batch_size", above_zero),
    "gradient_accumulation_steps": to("train.gradient_accumulation_steps", above_zero),
    "num_train_epochs": how.epochs,
    "max_steps": how.max_steps,
    "learning_rate": to("train.learning_rate", real),
    "lr_scheduler_type": to("train.lr_scheduler_type", scheduler),
    "lr_scheduler_kwargs": how.table_of_details("train.lr_scheduler_kwargs", SchedulerKwargs),
    "lr_scheduler_kwargs.*": how.one_detail("train.lr_scheduler_kwargs", SchedulerKwargs),
    "warmup_steps": how.warmup_steps,
    "warmup_ratio": how.warmup_ratio,
    "optim": to("train.optim", optimizer),
    "optim_args": how.table_of_details("train.optim_args", OptimArgs),
    "optim_args.*": how.one_detail("train.optim_args", OptimArgs),
    "weight_decay": to("train.weight_decay", real),
    "adam_beta1": to("train.adam_beta1", real),
    "adam_beta2": to("train.adam_beta2", real),
    "adam_epsilon": to("train.adam_epsilon", real),
    "max_grad_norm": to("train.max_grad_norm", how.max_grad_norm),
    "label_smoothing_factor": to("train.label_smoothing_factor", real),
    "bf16": how.precision("fp32"),
    "fp16": how.precision("fp32"),
    "tf32": to("train.tf32", flag),
    "gradient_checkpointing": how.checkpointing,
    "activation_checkpointing": how.checkpointing,
    "torch_compile": to("train.torch_compile", flag),
    "use_liger_kernel": to("train.use_liger_kernel", flag),
    "neftune_noise_alpha": to("train.neftune_noise_alpha", real),
    "train_sampling_strategy": to("train.train_sampling_strategy", one_of(how.SAMPLING, "order of rows")),
    "group_by_length": how.group_by_length,
    "seed": to("train.seed", how.seed),
    "data_seed": to("train.data_seed", how.seed),
    "full_determinism": to("train.full_determinism", flag),
    "eval_strategy": to("eval.eval_strategy", one_of(how.STRATEGIES, "time to evaluate")),
    "evaluation_strategy": to("eval.eval_strategy", one_of(how.STRATEGIES, "time to evaluate")),
    "eval_steps": to("eval.eval_steps", period),
    "eval_delay": to("eval.eval_delay", real),
    "eval_on_start": to("eval.eval_on_start", flag),
    "metric_for_best_model": to("eval.metric_for_best_model", how.metric),
    "greater_is_better": to("eval.greater_is_better", flag),
    "load_best_model_at_end": to("eval.load_best_model_at_end", flag),
    "save_strategy": to("checkpoint.save_strategy", one_of({**how.STRATEGIES, "best": "best"}, "time to save")),
    "save_steps": to("checkpoint.save_steps", how.save_steps),
    "save_total_limit": how.save_total_limit,
    "logging_steps": how.logging_steps,
    "report_to": how.report_to,
    "run_name": how.run_name,
    "num_processes": to("hardware.num_processes", above_zero),
    "nproc_per_node": to("hardware.num_processes", above_zero),
    "num_gpus": to("hardware.num_processes", above_zero),
    "launcher.*": how.launched,
    "use_cpu": lambda draft, leaf: draft.carry(leaf, "hardware.device", "cpu" if flag(leaf.value) else "auto"),
    "no_cuda": lambda draft, leaf: draft.carry(leaf, "hardware.device", "cpu" if flag(leaf.value) else "auto"),
}
_CHECKPOINTING_DETAILS = drops("ftui checkpoints without reentering autograd; the result is the same",
                               "gradient_checkpointing_kwargs gradient_checkpointing_kwargs.*"
                               " activation_checkpointing_kwargs activation_checkpointing_kwargs.*")  # fmt: skip

TRAINER: dict[str, Rule] = {
    **CARRIED,
    **_CHECKPOINTING_DETAILS,
    **drops("a run has a folder of its own under runs/, named for the profile",
            "output_dir overwrite_output_dir logging_dir project trackio_space_id trackio_bucket_id"
            " trackio_static_space_id"),
    **drops("`ftui --run` trains, evaluates and goes on by itself; `ftui resume` names a checkpoint",
            "do_train do_eval do_predict resume_from_checkpoint ignore_data_skip"
            " restore_callback_states_from_checkpoint auto_find_batch_size enable_jit_checkpoint"),
    **drops(HUB, "push_to_hub hub_model_id hub_strategy hub_private_repo hub_always_push hub_revision"
                 " push_to_hub_model_id push_to_hub_organization"),
    **drops(LOADER, "dataloader_num_workers dataloader_pin_memory dataloader_persistent_workers"
                    " dataloader_prefetch_factor dataloader_multiprocessing_context dataloader_in_order"
                    " remove_unused_columns length_column_name label_names"),
    **drops("the last rows of an epoch are always learned", "dataloader_drop_last", matters=True),
    **drops(LAUNCH, "local_rank ddp_backend ddp_timeout ddp_find_unused_parameters ddp_bucket_cap_mb"
                    " ddp_broadcast_buffers ddp_static_graph accelerator_config accelerator_config.* mp_parameters"
                    " parallelism_config parallelism_config.* split_batches ray_scope use_mps_device tpu_num_cores"
                    " nnodes node_rank master_addr master_port config_file include hostfile tpu_metrics_debug"
                    " xpu_backend average_tokens_across_devices"),
    **drops(SHARDED, "deepspeed deepspeed.* fsdp fsdp_config fsdp_config.* fsdp_min_num_params"
                     " fsdp_transformer_layer_cls_to_wrap", matters=True),
    **drops(LOGS, "logging_strategy logging_first_step logging_nan_inf_filter log_level log_level_replica"
                  " log_on_each_node disable_tqdm include_num_input_tokens_seen include_tokens_per_second"
                  " skip_memory_metrics debug"),
    **drops("checkpoints are safetensors, and can be resumed always",
            "save_safetensors save_only_model save_on_each_node"),
    **drops("evaluation measures the loss only", "prediction_loss_only eval_accumulation_steps include_for_metrics"
            " include_inputs_for_metrics batch_eval_metrics eval_do_concat_batches eval_use_gather_object"
            " predict_with_generate generation_max_length generation_num_beams generation_config"
            " generation_config.* sortish_sampler use_cache"),
    **drops("not built", "optim_target_modules liger_kernel_config liger_kernel_config.*", matters=True),
    **drops("left to torch", "torch_compile_backend torch_compile_mode torch_empty_cache_steps jit_mode_eval use_ipex"
            " torchdynamo fp16_backend fp16_opt_level half_precision_backend bf16_full_eval fp16_full_eval past_index"
            " fp16_eval dispatch_batches"),
}  # fmt: skip


def suppose_trainer(draft: Draft, **others: Any) -> None:
    """What transformers does where nothing is said, as far as it changes what is learned or how much memory it takes.

    Figures of TrainingArguments in transformers 5.24 (a test compares).

    Args:
        others: values of a tool that has other ones, such as learning_rate.
    """
    figures = {
        "per_device_train_batch_size": 8,
        "gradient_accumulation_steps": 1,
        "learning_rate": 5e-5,
        "lr_scheduler_type": "linear",
        "warmup_steps": 0,
        "optim": "adamw_torch_fused",
        "weight_decay": 0.0,
        "activation_checkpointing": False,
        "precision": "fp32",
        "seed": 42,
        "logging_steps": 500,
    } | others
    if ("train", "max_steps") not in draft.values:
        draft.suppose("train.num_train_epochs", figures.pop("num_train_epochs", 3.0))
    figures.pop("num_train_epochs", None)
    printed = draft.values.get(("log", "logging_steps"), figures.pop("logging_steps"))
    for name, value in figures.items():
        draft.suppose(f"train.{name}", value)
    if any(("data", name) in draft.values for name in ("eval", "eval_fraction", "eval_num_rows")):
        draft.suppose("eval.eval_strategy", "no")
        draft.suppose("eval.load_best_model_at_end", False)
        if draft.values[("eval", "eval_strategy")] == "steps":
            draft.suppose("eval.eval_steps", printed, f"{draft.tool} takes logging_steps")
