"""Tools whose files are known by their keys and not read: what a key means there it need not mean elsewhere."""

import re
from itertools import accumulate

from ftui.importers.config_file import Document

SWIFT = "ms-swift, whose templates, system turns and marks of thinking follow from its own table of models"
_SAMPLED = re.compile(r"[\w.-]#\d+\b")  # owner/name#500: so many rows of it
# A file is of the tool that has all keys of one of its groups. Lists are named with [].
UNREAD: tuple[tuple[str, tuple[set[str], ...]], ...] = (
    ("H2O LLM Studio, which writes its rows in words of its own (text_prompt_start ...)",
     ({"llm_backbone"}, {"problem_type", "dataset.train_dataframe"})),
    ("LitGPT's LLaMA-Adapter", ({"litgpt.finetune_adapter"}, {"litgpt.finetune_adapter_v2"})),
    ("LitGPT's pretraining", ({"litgpt.pretrain"}, {"initial_checkpoint_dir"},
                              {"model_name", "tokenizer_dir", "train.global_batch_size"})),
    (SWIFT, ({"model", "tuner_type"}, {"model", "train_type"}, {"model", "attn_impl"}, {"model", "quant_method"},
             {"split_dataset_ratio"}, {"sft_type"}, {"rlhf_type"})),
    ("Oumi", ({"model.model_name", "training.trainer_type"}, {"model.model_name", "data.train.datasets[]"})),
    ("mlx-lm", ({"iters", "fine_tune_type"}, {"iters", "lora_parameters"}, {"iters", "lora_layers"},
                {"iters", "steps_per_eval"})),
    ("AutoTrain", ({"task", "base_model", "params"}, {"data.column_mapping", "params"})),
    ("LLM Foundry (Composer)", ({"max_duration"}, {"train_loader"})),
    ("nanotron", ({"data_stages"}, {"parallelism", "tokens"})),
    ("GPT-NeoX", ({"pipe-parallel-size"}, {"pipe_parallel_size"}, {"train-iters"})),
    ("Megatron", ({"tensor_model_parallel_size", "micro_batch_size"}, {"micro_batch_size", "train_iters"})),
    ("mistral-finetune", ({"model_id_or_path", "seq_len"}, {"data.instruct_data"})),
    ("Ludwig", ({"input_features[]"}, {"output_features[]"})),
    ("NeMo", ({"exp_manager"}, {"model.restore_from_path"}, {"model.data.train_ds"})),
    ("NeMo RL", ({"policy.model_name", "cluster"},)),
    ("verl", ({"model.partial_pretrain"}, {"actor_rollout_ref"})),
    ("OpenRLHF", ({"pretrain", "micro_train_batch_size"}, {"pretrain", "input_key"})),
    ("FastChat, Stanford Alpaca or DeepSpeed-Chat", ({"model_name_or_path", "data_path"},)),
    ("transformers' example scripts", ({"model_name_or_path", "block_size"}, {"model_name_or_path", "train_file"})),
    ("a service that trains (OpenAI, Together ...)",
     ({"training_file", "suffix"}, {"training_file", "hyperparameters"}, {"training_file", "method"},
      {"training_file", "n_epochs"})),
    ("PyTorch Lightning", ({"seed_everything"}, {"trainer.max_epochs", "trainer.accelerator"})),
)  # fmt: skip


def unread_tool(document: Document) -> str:
    """The name of the tool whose file it is, if it is one of these; else empty."""
    if any(leaf.last == "dataset" and _SAMPLED.search(str(leaf.value)) for leaf in document.leaves):
        return SWIFT
    keys = {name for leaf in document.leaves for name in accumulate(leaf.pattern.split("."), "{}.{}".format)}
    return next((name for name, groups in UNREAD if any(group <= keys for group in groups)), "")
