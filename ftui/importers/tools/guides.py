"""The shapes of guides and small trainers: tables `model`, `lora`, `data`, `training`, `components.fine_tuner` ...

Nobody defines these; names are taken for what nearly everybody means by them, by the table they stand in where they
need one (`r` in `lora`). What their scripts do where the file says nothing is not known, so nothing is supposed.
"""

from ftui.importers.config_file import Leaf
from ftui.importers.draft import Draft, Rule, drops, path_to, to, walk
from ftui.importers.launchers import LAUNCHER
from ftui.importers.tools import guides_rules as how
from ftui.importers.tools.llamafactory import TEMPLATES, targets
from ftui.importers.tools.trainer_keys import CARRIED, TRAINER
from ftui.importers.tools.trainer_rules import HUB, LAUNCH, report_to
from ftui.importers.tools.trl import ATTENTION, DTYPES
from ftui.importers.values import (
    above_zero,
    flag,
    number,
    one_of,
    optimizer,
    real,
    scheduler,
    text,
    texts,
    whole,
    word,
)

_MODEL, _TRAIN, _EVAL = path_to("model.name_or_path"), how.rows("data.train"), how.rows("data.eval")
_RANK, _ALPHA = how.lora("adapter.r", above_zero), how.lora("adapter.lora_alpha", above_zero)
_DROPOUT = how.lora("adapter.lora_dropout", real)
_SPLIT = how.part_of_rows("train", "give a [[data.train]] table path and split")
_TARGETS = how.lora("adapter.target_modules", targets)

RULES: dict[str, Rule] = {
    **TRAINER,
    **how.same(_MODEL, "model model_name model_id base_model model_name_or_path model_path base_model_name"
            " huggingface_id pretrained_model_name_or_path base_model_id hf_model_id"),
    **how.standing_in(how.MODEL_TABLES, _MODEL, "path id name_or_path"),
    "model.name": _MODEL,
    "base_model.name": lambda draft, leaf: _MODEL(draft, leaf) if how.said(draft, "huggingface_id") is None
    else draft.drop(leaf, "huggingface_id says which"),
    **how.same(to("model.revision", text), "model_revision revision"),
    **how.same(to("model.trust_remote_code", flag), "trust_remote_code"),
    **how.same(to("model.dtype", one_of(DTYPES, "type")), "torch_dtype dtype model_dtype"),
    **how.same(to("model.attn_implementation", one_of(ATTENTION, "attention kernel")), "attn_implementation"),
    **how.same(lambda draft, leaf: draft.carry(leaf, "model.attn_implementation", "flash_attention_2")
            if flag(leaf.value) else draft.drop(leaf, "off, as it is here"),
            "use_flash_attention use_flash_attention_2 flash_attention flash_attn"),
    **how.same(how.stage, "stage training_stage task trainer_type"),
    **how.same(how.says_method, " ".join((*how.SAYS_METHOD, *how.FOUR))),
    **how.same(how.says_method, "use_lora use_peft method adapter trainer algorithm"),
    **how.standing_in(("method", "adapter", "peft", "lora"), how.says_method, "type"),
    **how.same(how.quantisation, "bits quantization_bit quantization quantization_bits"),
    **how.same(how.lora("adapter.load_in_8bit", flag), "load_in_8bit use_8bit"),
    **how.same(how.four("adapter.bnb_4bit_quant_type", text), "bnb_4bit_quant_type quant_type"),
    **how.same(how.four("adapter.bnb_4bit_use_double_quant", flag),
            "bnb_4bit_use_double_quant use_double_quant double_quant use_nested_quant double_quantization"),
    **how.same(how.four("adapter.bnb_4bit_compute_dtype", one_of(DTYPES, "type")),
            "bnb_4bit_compute_dtype compute_dtype"),
    **how.same(_RANK, "lora_r lora_rank .r .rank"),
    **how.standing_in(how.LORA_TABLES, _RANK, "r rank"),
    **how.same(_ALPHA, "lora_alpha"),
    **how.standing_in(how.LORA_TABLES, _ALPHA, "alpha"),
    **how.same(_DROPOUT, "lora_dropout"),
    **how.standing_in(how.LORA_TABLES, _DROPOUT, "dropout"),
    **how.same(_TARGETS, "target_modules lora_target_modules lora_target"),
    **how.same(how.lora("adapter.modules_to_save", texts), "modules_to_save lora_modules_to_save"),
    **how.same(how.lora("adapter.bias", word), "lora_bias .bias"),
    **how.standing_in(how.LORA_TABLES, how.lora("adapter.bias", word), "bias"),
    **how.same(how.lora("adapter.use_rslora", flag), "use_rslora"),
    **how.same(how.lora("adapter.use_dora", flag), "use_dora"),
    **how.same(how.lora("adapter.init_lora_weights", lambda value: value), "init_lora_weights"),
    **how.same(_TRAIN, "dataset dataset_name dataset_path data_path train_file train_path train_data train_dataset"
            " training_file training_data train_data_path dataset_id hf_dataset local_dataset"),
    **how.standing_in(how.DATA_TABLES, _TRAIN, "path name train file train_files input_path train_file"),
    **how.standing_in(how.DATA_TABLES, _SPLIT, "split"),
    **how.same(_SPLIT, "dataset_split train_split"),
    **how.same(how.part_of_rows("text", "[data] cannot rename columns yet: name the column text in the file"),
            "text_column text_field dataset_text_field"),
    **drops("the file's name says it", "input_type file_type ds_type"),
    **how.same(to("hardware.num_processes", above_zero), "gpus"),
    **how.same(_EVAL, "val_file eval_file validation_file eval_path val_path eval_data val_data validation_data"
            " eval_dataset validation_path eval_data_path val_data_path"),
    **how.standing_in(how.DATA_TABLES, _EVAL, "eval val validation valid"),
    **how.same(how.fraction, "val_split validation_split val_size val_set_size test_size eval_split test_split"
            " validation_ratio val_ratio eval_ratio eval_fraction"),
    **how.same(to("data.format", one_of(how.FORMS, "form of rows")),
            "format_type dataset_format data_format dataset_type"),
    **how.standing_in(how.DATA_TABLES, to("data.format", one_of(how.FORMS, "form of rows")), "format type"),
    **how.same(to("data.chat_template", one_of(TEMPLATES | {"phi-3": "phi", "llama-3": "llama3"}, "template")),
            "chat_template template prompt_template conversation_template"),
    **how.same(to("data.max_length", above_zero), "max_seq_length max_length max_seq_len sequence_length sequence_len"
            " cutoff_len block_size model_max_length context_length seq_length"),
    **how.same(to("data.packing", flag), "packing sample_packing"),
    **how.same(how.learned, "train_on_completions train_on_responses_only train_on_inputs completion_only_loss"
            " assistant_only_loss"),
    **how.same(CARRIED["num_train_epochs"], "epochs num_epochs n_epochs"),
    **how.same(to("train.per_device_train_batch_size", above_zero), "batch_size micro_batch_size train_batch_size"
            " per_device_batch_size"),
    **how.same(to("eval.per_device_eval_batch_size", above_zero), "eval_batch_size"),
    **how.same(to("train.gradient_accumulation_steps", above_zero), "grad_accum gradient_accumulation grad_accum_steps"
            " accumulation_steps grad_accumulation_steps accumulate_grad_batches"),
    **how.same(to("train.learning_rate", real), "lr"),
    **how.same(to("train.lr_scheduler_type", scheduler), "lr_scheduler scheduler scheduler_type"),
    **how.standing_in(("scheduler", "lr_scheduler"), to("train.lr_scheduler_type", scheduler), "type name"),
    **how.same(how.warmup, "warmup"),
    **how.standing_in(("scheduler", "lr_scheduler"), how.warmup, "num_warmup_steps warmup_steps"),
    **how.same(to("train.optim", optimizer), "optimizer"),
    **how.standing_in(("optimizer",), to("train.optim", optimizer), "type name"),
    **how.same(to("train.max_grad_norm", lambda value: real(value) if number(value) > 0 else "none"),
            "gradient_clip gradient_clip_val grad_clip clip_grad_norm gradient_clipping max_gradient_norm"),
    **how.same(to("train.seed", whole), "random_seed random_state"),
    **how.same(CARRIED["gradient_checkpointing"], "use_gradient_checkpointing"),
    **how.same(how.mixed, "mixed_precision precision"),
    **how.same(CARRIED["neftune_noise_alpha"], "neftune_alpha"),
    **how.same(CARRIED["logging_steps"], "log_steps log_interval log_every"),
    **how.same(CARRIED["save_steps"], "save_every save_interval"),
    **how.same(CARRIED["eval_steps"], "eval_every eval_interval"),
    **how.standing_in(("evaluation", "eval"), CARRIED["eval_steps"], "steps interval"),
    **how.standing_in(("evaluation", "eval"), CARRIED["eval_strategy"], "strategy"),
    **how.standing_in(how.SAVING_TABLES, CARRIED["save_steps"], "steps interval"),
    **how.standing_in(how.SAVING_TABLES, CARRIED["save_strategy"], "strategy"),
    **how.standing_in(how.SAVING_TABLES, CARRIED["save_total_limit"], "total_limit limit keep"),
    **how.standing_in(("logging", "log"), CARRIED["logging_steps"], "steps interval"),
    **how.standing_in(how.LORA_TABLES, how.switch, "enabled enable use"),
    **how.same(to("eval.early_stopping_patience", above_zero), "early_stopping_patience"),
    **how.same(how.tracker("wandb"), "use_wandb enable_wandb"),
    **how.same(how.tracker("tensorboard"), "use_tensorboard enable_tensorboard"),
    **how.same(report_to, "tracker"),
    **how.same(CARRIED["run_name"], "experiment_name"),
    **drops("the tracker's own settings are its environment variables (WANDB_PROJECT ...)",
            "wandb_project wandb_entity wandb_name wandb_run_name tensorboard_dir wandb_mode project_name"),
    **drops("ftui trains by its own engine", "fine_tuner.type fine_tuner.component fine_tuner.implementation"
            " fine_tuner.name fine_tuner.framework fine_tuner.description"),
    **drops("ftui knows it", "task_type device_map tokenizer_name use_fast use_fast_tokenizer use_cache padding_side"
            " padding preprocessing_num_workers num_workers num_proc"
            " shuffle use_unsloth model_family"),
    **drops("only text can be learned", "vision_all_linear finetune_vision_layers finetune_language_layers is_vlm"
            " finetune_attention_modules finetune_mlp_modules is_dataset_image is_dataset_audio"),
    **drops("it rewrites the weights of the base, so that the adapter would be wrong on the base you have",
            "use_loftq loftq_config loftq_config.*", matters=True),
    **drops(LAUNCH, "num_nodes distributed strategy"),
    **drops("a run has a folder of its own under runs/, named for the profile",
            "output_path save_dir checkpoint_dir adapter_dir log_dir merged_dir adapter_base_dir logs_dir cache_dir"),
    **drops(HUB, "push_to_hub hub_repo hub_model_name merge_and_push save_method save_model save_gguf push_model"
            " push_gguf save_path hub_path quantization_method"),
    ".quantization": how.quantisation_or_export,
}  # fmt: skip


def names(leaf: Leaf) -> str:
    """A key with the table it stands in where that table gives it its meaning, else alone."""
    if leaf.path[0] == LAUNCHER:
        return leaf.name
    here = f"{how.table_of(leaf)}.{how.last_name(leaf)}"
    if here in RULES:
        return here
    last = how.last_name(leaf)
    if last in RULES or f"{last}.*" in RULES:
        return last
    return f"{how.table_of(leaf)}.{last}".lstrip(".")


def fill(draft: Draft) -> None:
    walk(draft, RULES, names)
    if draft.refused:
        return
    if (method := how.method(draft)) is not None:
        draft.suppose("adapter.method", method, "as the keys of the adapter say")
    draft.leave_open("adapter.method", "lora", "LoRA, as by default here; the file names no method")
    how.suppose_template(draft)
    draft.suppose("run.stage", "sft", "rows with answers; pretrain learns plain text")
