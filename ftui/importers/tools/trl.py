"""TRL's flat files: the keys of SFTConfig, ModelConfig and ScriptArguments (1.16), and of trainers on preferences."""

from functools import partial
from typing import Any

from ftui.importers.config_file import Document, Leaf
from ftui.importers.draft import ProfileDraft, as_text, list_sources
from ftui.importers.rules import (
    TRAIN_SPLIT,
    Gate,
    Rule,
    SourceTool,
    branch,
    carries,
    drops,
    each,
    not_shortened,
    path_to,
    same,
    says,
    template_file,
)
from ftui.importers.tools import axolotl_data, trl_preference
from ftui.importers.tools.grpo import grpo_keys
from ftui.importers.tools.preference_keys import NO_DROPOUT, usual_rate
from ftui.importers.tools.trainer import LOADER, TRAINER, no_clipping, suppose_trainer
from ftui.importers.values import Unfit, flag, is_on, text, word_or

PEFT_TARGETS = ["q_proj", "v_proj"]  # peft 0.21 for Llama, Mistral, Qwen2, Qwen3, Gemma and their kin
JINJA = "a .jinja file is needed; another model's template can be saved as one"
PEFT_NOTE = "PEFT's own choice for Llama, Mistral, Qwen and Gemma"


def _method(draft: ProfileDraft) -> str:
    if not is_on(draft.raw("use_peft")):
        return "full"
    return "qlora" if is_on(draft.raw("load_in_4bit")) else "lora"


def _adapter(draft: ProfileDraft, leaf: Leaf) -> None:
    """use_peft, load_in_4bit and load_in_8bit."""
    if leaf.name != "use_peft" and flag(leaf.value) and _method(draft) == "full":
        raise Unfit("use_peft is off: only the frozen base of a LoRA is stored in few bits")
    if leaf.name == "load_in_8bit":
        draft.carry(leaf, "adapter.load_in_8bit", flag(leaf.value))
    else:
        draft.carry(leaf, "adapter.method", _method(draft))


_LORA = Gate(lambda draft: _method(draft) != "full", lambda draft: "use_peft is off: it has no effect there either")
_QLORA = Gate(lambda draft: _method(draft) == "qlora", lambda draft: "the base is not stored in 4 bits")


def _rows(draft: ProfileDraft) -> tuple[Any, Any]:
    """What is trained on and what is evaluated on, as the profile says it; no evaluation: `None`."""
    path = draft.rows(draft.raw("dataset_name"))
    subset = as_text(draft.raw("dataset_config") or draft.raw("dataset_config_name"))
    train, test = as_text(draft.raw("dataset_train_split")), as_text(draft.raw("dataset_test_split"))
    sources = list_sources([path], subset=subset, split="" if train == "train" else train)
    times = {word_or(draft.raw(name), "no") for name in ("eval_strategy", "evaluation_strategy")}
    evaluates = bool(times & {"steps", "epoch"})
    tests = list_sources([path], subset=subset, split=test or "test") if evaluates else None
    return path if sources == [path] else sources, tests


def _text_field(draft: ProfileDraft, leaf: Leaf) -> None:
    if leaf.value in ("text", "messages"):
        draft.drop(leaf, "a column of this name is known by it here")
    else:
        draft.carry(leaf, "data.columns", {"text": text(leaf.value)})
        draft.suppose("data.format", "text", "dataset_text_field; leave both out where the rows are conversations")


def _dataset(draft: ProfileDraft, leaf: Leaf) -> None:
    train, tests = _rows(draft)
    if leaf.name == "dataset_test_split":
        if tests is None:
            draft.drop(leaf, "nothing is evaluated, as there")
        else:
            draft.carry(leaf, "data.eval", tests)
    elif leaf.name == "dataset_train_split" and leaf.value == "train":
        draft.drop(leaf, TRAIN_SPLIT)
    else:
        draft.carry(leaf, "data.train", train)
        if tests is not None:
            draft.suppose("data.eval", tests, "the split that TRL evaluates on")


def _loss(draft: ProfileDraft, leaf: Leaf) -> str:
    on = is_on(draft.raw("assistant_only_loss")) or is_on(draft.raw("completion_only_loss"))
    return "assistant" if on else "everything"


def _prompt_column(draft: ProfileDraft, leaf: Leaf) -> None:
    draft.carry(leaf, "data.columns", {"prompt": text(leaf.value)})


_GRPO = grpo_keys.GrpoFile(trl_preference.is_grpo)
_SYSTEM = "write it into the rows: a prompt may be turns, the first of the system"
OF_GRPO: dict[str, Rule] = {
    "lora_dropout": grpo_keys.lora_dropout,
    "dataset_prompt_column": _prompt_column,
    **drops(_SYSTEM, "system_prompt", matters=True),
}

RULES: dict[str, Rule] = {
    **TRAINER,
    **same("model", "dtype attn_implementation trust_remote_code"),
    **carries("model", dtype="torch_dtype"),
    **carries("adapter", _LORA, r="lora_r", lora_alpha="lora_alpha", use_dora="use_dora",
              target_modules="lora_target_modules", modules_to_save="lora_modules_to_save", use_rslora="use_rslora"),
    "lora_dropout": trl_preference.lora_dropout(
        carries("adapter", _LORA, lora_dropout="lora_dropout")["lora_dropout"]
    ),
    **carries("adapter", _QLORA, bnb_4bit_quant_type="bnb_4bit_quant_type",
              bnb_4bit_use_double_quant="use_bnb_nested_quant"),
    **carries("data", eval_fraction="test_split_size", max_length="max_length max_seq_length", packing="packing"),
    **{name: rule for name, rule in axolotl_data.RULES.items() if name.startswith("datasets[].")},
    **each(_adapter, "use_peft load_in_4bit load_in_8bit"),
    **each(_dataset, "dataset_name dataset_config dataset_config_name dataset_train_split dataset_test_split"),
    **each(says("data.loss_on", _loss), "assistant_only_loss completion_only_loss"),
    "model_name_or_path": path_to("model.name_or_path"),
    "model_revision": branch,
    "max_length=null": not_shortened("model_name_or_path", "packing"),
    "max_grad_norm=null": no_clipping,
    "chat_template_path": partial(template_file, otherwise=JINJA),
    "dataset_text_field": _text_field,
    **carries("train", activation_offload="activation_offloading"),
    **drops(LOADER, "dataset_num_proc dataset_streaming dataset_kwargs dataset_kwargs.* dataset_batch_size"
                    " shuffle_dataset streaming"),
    **drops("packed rows never see each other here, and the last part of a row that is too long is cut",
            "packing_strategy pad_to_multiple_of eval_packing pad_token"),
    **drops("the end of a turn comes from the chat template", "eos_token", matters=True),
    **drops("not built", "model_init_kwargs model_init_kwargs.* router_aux_loss_coef"
            " lora_target_parameters bnb_4bit_quant_storage", matters=True),
    **drops("ftui knows it", "lora_task_type ignore_bias_buffers padding_free"),
    **trl_preference.RULES,
}  # fmt: skip
RULES |= _GRPO.rules(RULES)
RULES |= _GRPO.gated(OF_GRPO, RULES)


def _suppose(draft: ProfileDraft) -> None:
    trl_preference.suppose(draft)
    stage, method = trl_preference.stage_of(draft), _method(draft)
    draft.suppose("adapter.method", method)
    if stage == "grpo":
        _GRPO.suppose(draft)
    if method != "full":
        no_dropout = trl_preference.drops_nothing(draft)
        draft.suppose("adapter.lora_dropout", 0.0 if no_dropout else 0.05, NO_DROPOUT if no_dropout else "")
        draft.suppose_all("adapter", r=16, lora_alpha=32)
        draft.suppose("adapter.target_modules", PEFT_TARGETS, PEFT_NOTE)
    if method == "qlora":
        draft.suppose("adapter.bnb_4bit_use_double_quant", False)
    draft.suppose_all("data", max_length=1024, packing=False)
    if stage == "sft":
        draft.suppose(
            "data.loss_on", "everything", "as TRL trains on conversations (of prompt and completion: assistant)"
        )
    halves = [draft.raw(name) for name in ("bf16", "fp16")]
    draft.suppose("train.precision", "bf16" if not any(map(is_on, halves)) and halves[0] is None else "fp32")
    suppose_trainer(
        draft,
        learning_rate={"ppo": 3e-6, "grpo": grpo_keys.USUAL_RATE}.get(stage) or usual_rate(stage) or 2e-5,
        activation_checkpointing=True,
        logging_steps=10,
    )
    if stage == "grpo":
        _GRPO.settle_batch(draft)
        _GRPO.suppose_evaluation(draft)


def _recognizes(document: Document) -> bool:
    return not document.named.keys().isdisjoint(("model_name_or_path", "finetuning_type", "stage"))


TRL = SourceTool("TRL", RULES, _recognizes, _suppose, most_strange=0.2)
