"""torchtune's recipes (0.2 to 0.6): tables whose `_component_` names what is built."""

from typing import Any

from ftui.importers.config_file import Document, Leaf
from ftui.importers.draft import ProfileDraft, as_text, list_sources, other_split
from ftui.importers.rules import (
    NOT_SHORTENED,
    OWN_FOLDER,
    OWN_TRACKER,
    Rule,
    SourceTool,
    carries,
    drops,
    each,
    longest_input,
    not_shortened,
    path_to,
    refuse,
    same,
    says,
    split_of,
    to,
)
from ftui.importers.tools.trainer import LOGS, PARALLEL, launched
from ftui.importers.values import Unfit, convert_for, either, is_on, one_of, optimizer, text, texts, whole

DTYPES = {"bf16": "bf16", "fp16": "fp16", "fp32": "fp32"}
SCHEDULERS = {
    "get_cosine_schedule_with_warmup": "cosine", "get_linear_schedule_with_warmup": "linear",
    "get_constant_schedule_with_warmup": "constant_with_warmup",
}  # fmt: skip
MLP = ["gate_proj", "up_proj", "down_proj"]
DATASETS = {
    "alpaca_dataset": "tatsu-lab/alpaca",
    "alpaca_cleaned_dataset": "yahma/alpaca-cleaned",
    "slimorca_dataset": "Open-Orca/SlimOrca-Dedup",
}
ALPACA = ("alpaca_dataset", "alpaca_cleaned_dataset")
STYLES = {"sharegpt": ("sharegpt", "conversations"), "openai": ("messages", "messages")}
# What the builder calls a column -> what the form here calls it.
COLUMNS = {"alpaca": {"instruction": "instruction", "input": "input", "output": "output"},
           "question_answer": {"input": "question", "output": "answer"}}  # fmt: skip
LOADERS = ("json", "csv", "parquet", "text")


def _component(draft: ProfileDraft, table: str) -> str:
    """The last part of what a table builds."""
    return str(draft.raw(f"{table}._component_") or "").rpartition(".")[2]


def _method(draft: ProfileDraft) -> str:
    builder = _component(draft, "model")
    return "qlora" if builder.startswith("qlora_") else "lora" if builder.startswith("lora_") else "full"


def _model(draft: ProfileDraft, leaf: Leaf) -> str:
    if "_qat" in text(leaf.value) or "dora" in text(leaf.value):
        raise Unfit("that builder is not known here")
    return _method(draft)


def _targets(draft: ProfileDraft, leaf: Leaf) -> list[str]:
    names = ["o_proj" if name == "output_proj" else name for name in texts(draft.raw("model.lora_attn_modules") or [])]
    names += MLP if is_on(draft.raw("model.apply_lora_to_mlp")) else []
    return names + (["lm_head"] if is_on(draft.raw("model.apply_lora_to_output")) else [])


def _loss(draft: ProfileDraft, leaf: Leaf) -> None:
    named = text(leaf.value)
    if any(kind in named.lower() for kind in ("dpo", "ppo", "grpo", "kd", "kto", "simpo", "rso")):
        refuse(draft, leaf, f"training with {named}")
    else:
        draft.drop(leaf, "the loss over the targets, as here")


def _optimizer(draft: ProfileDraft, leaf: Leaf) -> Any:
    name = text(leaf.value)
    fused = name == "torch.optim.AdamW" and is_on(draft.raw("optimizer.fused"))
    return "adamw_torch_fused" if fused else convert_for("train.optim", optimizer, name)


def _schedule(value: Any) -> Any:
    return one_of(SCHEDULERS, "scheduler")(text(value).rpartition(".")[2])


def _tracker(draft: ProfileDraft, leaf: Leaf) -> None:
    names = {"WandBLogger": ["wandb"], "TensorBoardLogger": ["tensorboard"], "MLFlowLogger": ["mlflow"]}
    if (name := _component(draft, "metric_logger")) in names:
        draft.carry(leaf, "log.report_to", names[name])
    else:
        draft.drop(leaf, "every step is recorded in the run's folder")


def _form(draft: ProfileDraft) -> str:
    """The form of the rows; empty where it has to be looked at."""
    name, style = _component(draft, "dataset"), draft.raw("dataset.conversation_style")
    if name in ALPACA:
        return "alpaca"
    if isinstance(style, str) and style in STYLES:
        return STYLES[style][0]
    return {"instruct_dataset": "question_answer", "text_completion_dataset": "text"}.get(name, "")


def _columns(draft: ProfileDraft, form: str) -> dict[str, str]:
    names: dict[str, Any] = {}
    if form in COLUMNS:
        for theirs, ours in COLUMNS[form].items():
            usual = theirs if form == "question_answer" else None
            names[ours] = draft.raw(f"dataset.column_map.{theirs}") or usual
    elif form == "text":
        names = {"text": draft.raw("dataset.column")}
    elif form in ("sharegpt", "messages"):
        names = {dict(STYLES.values())[form]: draft.raw("dataset.conversation_column")}
    return {ours: theirs for ours, theirs in names.items() if isinstance(theirs, str) and theirs not in ("", ours)}


def _sources(draft: ProfileDraft) -> Any:
    """What is trained on, as the profile says it.

    Raises:
        Unfit: nobody knows where it is.
    """
    name, source, files = _component(draft, "dataset"), draft.raw("dataset.source"), draft.raw("dataset.data_files")
    if files and source in (*LOADERS, None):
        paths = [draft.rows(file) for file in texts(files)]
    elif source and source not in LOADERS:
        paths = [draft.rows(source)]
    elif name in DATASETS:
        paths = [DATASETS[name]]
    else:
        raise Unfit("ftui does not know where these rows are")
    form, columns = _form(draft), _columns(draft, _form(draft))
    sources = list_sources(
        paths, format=form if columns or name not in DATASETS else "", columns=columns,
        subset=as_text(draft.raw("dataset.name")), split=other_split(as_text(draft.raw("dataset.split"))),
    )  # fmt: skip
    return sources[0] if len(sources) == 1 and isinstance(sources[0], str) and not files else sources


_source = says("data.train", lambda draft, _: _sources(draft))


def _style(draft: ProfileDraft, leaf: Leaf) -> None:
    if text(leaf.value) not in STYLES:
        raise Unfit("there is no such form of rows; docs/profile.md names those there are")
    _source(draft, leaf)


def _column(draft: ProfileDraft, leaf: Leaf) -> None:
    name = text(leaf.value)
    columns = _columns(draft, _form(draft))
    if name in columns.values():
        _source(draft, leaf)
    elif leaf.path[-1] in COLUMNS.get(_form(draft), ()) or _form(draft) in ("text", "sharegpt", "messages"):
        draft.drop(leaf, "as it is read here")
    else:
        raise Unfit("which form the rows have is not said: set data.format and data.columns")


RULES: dict[str, Rule] = {
    **same("train", "seed gradient_accumulation_steps"),
    **carries("adapter", r="model.lora_rank", lora_alpha="model.lora_alpha", lora_dropout="model.lora_dropout",
              use_dora="model.use_dora"),
    **carries("data", max_length="tokenizer.max_seq_len", packing="dataset.packed"),
    **carries("train", per_device_train_batch_size="batch_size", num_train_epochs="epochs",
              learning_rate="optimizer.lr", weight_decay="optimizer.weight_decay", adam_epsilon="optimizer.eps",
              max_grad_norm="clip_grad_norm", torch_compile="compile",
              activation_checkpointing="enable_activation_checkpointing",
              activation_offload="enable_activation_offloading"),
    **carries("log", logging_steps="log_every_n_steps"),
    **each(says("adapter.target_modules", _targets),
           "model.lora_attn_modules model.apply_lora_to_mlp model.apply_lora_to_output"),
    **each(_source, "dataset._component_ dataset.source dataset.data_files dataset.name"),
    **each(_column, "dataset.conversation_column dataset.column dataset.column_map.*"),
    "model._component_": says("adapter.method", _model),
    "checkpointer.checkpoint_dir": path_to("model.name_or_path"),
    "tokenizer.max_seq_len=null": not_shortened("checkpointer.checkpoint_dir", "dataset.packed"),
    "dataset.split": split_of(_source),
    "dataset.conversation_style": _style,
    "dataset.train_on_input": to("data.loss_on", either("everything", "assistant")),
    "shuffle": to("train.train_sampling_strategy", either("random", "sequential")),
    "optimizer._component_": says("train.optim", _optimizer),
    "lr_scheduler._component_": to("train.lr_scheduler_type", _schedule),
    "lr_scheduler.num_warmup_steps": to("train.warmup_steps", whole),
    "dtype": to("train.precision", one_of(DTYPES, "precision")),
    "loss._component_": _loss,
    "metric_logger._component_": _tracker,
    "device": to("hardware.device", one_of({"cuda": "auto", "cpu": "cpu", "mps": "mps"}, "device")),
    "launcher.*": launched,
    **drops("the system prompt of each row stays as it is: write it into the rows", "dataset.new_system_prompt",
            matters=True),
    **drops("optimizer._component_ says it", "optimizer.fused"),
    **drops("the files of the folder, in transformers' format, say it", "checkpointer.* tokenizer.*"),
    **drops(LOGS, "log_peak_memory_stats log_level profiler profiler.*"),
    **drops(OWN_TRACKER, "metric_logger.*"),
    **drops(OWN_FOLDER, "output_dir checkpointer.output_dir metric_logger.log_dir profiler.output_dir"),
    **drops("`ftui resume` resumes from a checkpoint", "resume_from_checkpoint checkpointer.recipe_checkpoint"),
    **drops("checkpoints hold what is trained, the adapter alone of a LoRA, and can be resumed always",
            "save_adapter_weights_only enable_async_checkpointing"),
    **drops("the update comes after the backward pass: the same weights, all gradients in memory", "optimizer_in_bwd"),
    **drops("the mean over all targets of a step, as here", "loss.*"),
    **drops("the marks come from data.chat_template, else from the tokenizer's own", "tokenizer.prompt_template"
            " tokenizer.prompt_template.*", matters=True),
    **drops("an epoch is whole here; set train.max_steps", "max_steps_per_epoch", matters=True),
    **drops("not built", "activation_offloading_* custom_sharded_layers model.* dataset.*"
            " dataset_val.* run_val_every_n_steps optimizer.* lr_scheduler.*", matters=True),
    **drops("each GPU has the whole model here; set hardware.shard to divide it", "fsdp_* data_parallel_shard_dim",
            matters=True),
    **drops(PARALLEL, "tensor_parallel_* context_parallel_* data_parallel_* parallelize_plan.*", matters=True),
}  # fmt: skip


def _suppose(draft: ProfileDraft) -> None:
    is_text = _component(draft, "dataset") == "text_completion_dataset"
    draft.suppose("run.stage", "pretrain" if is_text else "sft", "plain text" if is_text else "rows with answers")
    if _component(draft, "dataset") in ALPACA:
        draft.suppose("data.loss_on", "everything", "torchtune's default of its Alpaca builders: train_on_input")
        reason = (
            "torchtune puts Alpaca's words around a row, within the model's own marks; here instruction and input "
            'alone stand within the marks. data.chat_template = "alpaca" writes these words, and no marks'
        )
        draft.drop_part("dataset: prompt template", "Alpaca", reason)
    if not is_on(draft.raw("dataset.packed")):
        longest = longest_input(draft, draft.raw("checkpointer.checkpoint_dir"))
        if draft.raw("tokenizer.max_seq_len") is None and longest is not None:
            draft.suppose("data.max_length", longest, NOT_SHORTENED)
        if "tokenizer.max_seq_len" not in draft.document.named:
            draft.leave_open("data.max_length", 1024, "torchtune cuts nothing; here rows that are longer are cut")
    draft.suppose("adapter.method", _method(draft))
    draft.suppose("train.max_grad_norm", "none")
    draft.suppose("train.weight_decay", 0.01 if "AdamW" in _component(draft, "optimizer") else 0.0, "torch's default")
    draft.suppose("train.lr_scheduler_type", "constant", "torchtune's default: no schedule")
    draft.suppose_all("train", warmup_steps=0, gradient_accumulation_steps=1, activation_checkpointing=False)


def _recognizes(document: Document) -> bool:
    return any(leaf.path[-1] == "_component_" for leaf in document.leaves)


TORCHTUNE = SourceTool("torchtune", RULES, _recognizes, _suppose)
