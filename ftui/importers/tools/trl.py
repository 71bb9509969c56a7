"""TRL's flat files: the keys of SFTConfig, ModelConfig and ScriptArguments (1.16)."""

from typing import Any

from ftui.importers.config_file import Leaf
from ftui.importers.draft import Draft, Rule, drops, path_to, to, walk
from ftui.importers.max_length import uncut
from ftui.importers.tools import axolotl_data
from ftui.importers.tools.llamafactory import targets
from ftui.importers.tools.trainer_keys import TRAINER, suppose_trainer
from ftui.importers.tools.trainer_rules import LOADER, no_clipping, precision
from ftui.importers.values import Unfit, above_zero, beside, flag, is_on, one_of, real, text, texts

TOOL = "TRL"
DTYPES = {"auto": "auto", "float32": "float32", "bfloat16": "bfloat16", "float16": "float16", "fp32": "float32",
          "bf16": "bfloat16", "fp16": "float16", "torch.bfloat16": "bfloat16", "torch.float16": "float16",
          "torch.float32": "float32"}  # fmt: skip
ATTENTION = {name: name for name in ("auto", "eager", "sdpa", "flash_attention_2")} | {
    "kernels-community/flash-attn2": "flash_attention_2", "flash_attention": "flash_attention_2",
}  # fmt: skip
PREFERRING = "beta reward_funcs num_generations max_completion_length max_prompt_length ref_model rpo_alpha cpo_alpha"
PEFT_TARGETS = ["q_proj", "v_proj"]  # peft 0.21 for Llama, Mistral, Qwen2, Qwen3, Gemma and their kin
PEFT_NOTE = "PEFT's own choice for Llama, Mistral, Qwen and Gemma"


def method(draft: Draft) -> str:
    if not is_on(draft.raw("use_peft")):
        return "full"
    return "qlora" if is_on(draft.raw("load_in_4bit")) else "lora"


def _method(draft: Draft, leaf: Leaf) -> None:
    if leaf.name != "use_peft" and flag(leaf.value) and method(draft) == "full":
        raise Unfit("use_peft is off: only the frozen base of a LoRA is held in few bits")
    draft.carry(leaf, "adapter.method", method(draft))


def _eight(draft: Draft, leaf: Leaf) -> None:
    if flag(leaf.value) and method(draft) == "full":
        raise Unfit("use_peft is off: only the frozen base of a LoRA is held in few bits")
    draft.carry(leaf, "adapter.load_in_8bit", flag(leaf.value))


def _lora(ours: str, convert: Any) -> Rule:
    def rule(draft: Draft, leaf: Leaf) -> None:
        if method(draft) == "full":
            draft.drop(leaf, "use_peft is off: it says nothing there either")
        else:
            draft.carry(leaf, ours, convert(leaf.value))

    return rule


def _four(ours: str, convert: Any) -> Rule:
    def rule(draft: Draft, leaf: Leaf) -> None:
        if method(draft) == "qlora":
            draft.carry(leaf, ours, convert(leaf.value))
        else:
            draft.drop(leaf, "the base is not held in 4 bits")

    return rule


def _rows(draft: Draft) -> tuple[Any, Any]:
    """What is trained on and what is evaluated on, as the profile says it; no evaluation: `None`."""
    source: dict[str, Any] = {"path": draft.rows(draft.raw("dataset_name"))}
    subset = draft.raw("dataset_config") or draft.raw("dataset_config_name")
    source |= {"subset": subset} if isinstance(subset, str) else {}
    times = {beside(draft.raw(name), "no") for name in ("eval_strategy", "evaluation_strategy")}
    test, train = draft.raw("dataset_test_split"), draft.raw("dataset_train_split")
    held = [source | {"split": test if isinstance(test, str) else "test"}] if times & {"steps", "epoch"} else None
    source = source | ({"split": train} if isinstance(train, str) and train not in ("", "train") else {})
    return [source] if len(source) > 1 else source["path"], held


def _text_field(draft: Draft, leaf: Leaf) -> None:
    if leaf.value in ("text", "messages"):
        draft.drop(leaf, "a column of this name is known by it here")
    else:
        draft.carry(leaf, "data.columns", {"text": text(leaf.value)})
        draft.suppose("data.format", "text", "dataset_text_field; leave both out where the rows are conversations")


def _dataset(draft: Draft, leaf: Leaf) -> None:
    train, held = _rows(draft)
    if leaf.name == "dataset_test_split":
        if held is None:
            draft.drop(leaf, "nothing is evaluated, as there")
        else:
            draft.carry(leaf, "data.eval", held)
    elif leaf.name == "dataset_train_split" and leaf.value == "train":
        draft.drop(leaf, "train: as here where nothing is said")
    else:
        draft.carry(leaf, "data.train", train)
        if held is not None:
            draft.suppose("data.eval", held, "the split that TRL evaluates on")


def _loss(draft: Draft, leaf: Leaf) -> None:
    on = is_on(draft.raw("assistant_only_loss")) or is_on(draft.raw("completion_only_loss"))
    draft.carry(leaf, "data.loss_on", "assistant" if on else "everything")


def _template(draft: Draft, leaf: Leaf) -> None:
    given = text(leaf.value)
    if not given.endswith(".jinja"):
        raise Unfit("a .jinja file is needed; another model's template can be saved as one")
    path = draft.found(given)
    draft.carry(leaf, "data.chat_template", draft.seen_from(path) if path else given)


def _revision(draft: Draft, leaf: Leaf) -> None:
    if leaf.value == "main":
        draft.drop(leaf, "main: as here where nothing is said")
    else:
        draft.carry(leaf, "model.revision", text(leaf.value))


RULES: dict[str, Rule] = {
    **TRAINER,
    "bf16": precision("fp32"),
    "fp16": precision("fp32"),
    "model_name_or_path": path_to("model.name_or_path"),
    "model_revision": _revision,
    "dtype": to("model.dtype", one_of(DTYPES, "type")),
    "torch_dtype": to("model.dtype", one_of(DTYPES, "type")),
    "attn_implementation": to("model.attn_implementation", one_of(ATTENTION, "attention kernel")),
    "trust_remote_code": to("model.trust_remote_code", flag),
    "use_peft": _method,
    "load_in_4bit": _method,
    "load_in_8bit": _eight,
    "bnb_4bit_quant_type": _four("adapter.bnb_4bit_quant_type", text),
    "use_bnb_nested_quant": _four("adapter.bnb_4bit_use_double_quant", flag),
    "lora_r": _lora("adapter.r", above_zero),
    "lora_alpha": _lora("adapter.lora_alpha", above_zero),
    "lora_dropout": _lora("adapter.lora_dropout", real),
    "lora_target_modules": _lora("adapter.target_modules", targets),
    "lora_modules_to_save": _lora("adapter.modules_to_save", texts),
    "use_rslora": _lora("adapter.use_rslora", flag),
    "use_dora": _lora("adapter.use_dora", flag),
    "dataset_name": _dataset,
    "dataset_config": _dataset,
    "dataset_config_name": _dataset,
    "dataset_train_split": _dataset,
    "dataset_test_split": _dataset,
    **{name: rule for name, rule in axolotl_data.RULES.items() if name.startswith("datasets[].")},
    "test_split_size": to("data.eval_fraction", real),
    "max_length": to("data.max_length", above_zero),
    "max_length=null": uncut("model_name_or_path", "packing"),
    "max_grad_norm=null": no_clipping,
    "max_seq_length": to("data.max_length", above_zero),
    "packing": to("data.packing", flag),
    "assistant_only_loss": _loss,
    "completion_only_loss": _loss,
    "chat_template_path": _template,
    **drops(LOADER, "dataset_num_proc dataset_streaming dataset_kwargs dataset_kwargs.* dataset_batch_size"
                    " shuffle_dataset streaming"),
    **drops("packed rows never see each other here, and the last part of a row that is too long is cut",
            "packing_strategy padding_free pad_to_multiple_of eval_packing truncation_mode pad_token"),
    "dataset_text_field": _text_field,
    **drops("the end of a turn comes from the chat template", "eos_token", matters=True),
    **drops("not built", "model_init_kwargs model_init_kwargs.* router_aux_loss_coef loss_type activation_offloading"
            " lora_target_parameters bnb_4bit_quant_storage", matters=True),
    **drops("ftui knows it", "lora_task_type ignore_bias_buffers"),
    **drops("a setting of training by preferences, which is not yet built", PREFERRING, matters=True),
}  # fmt: skip


def fill(draft: Draft) -> None:
    walk(draft, RULES)
    if draft.has(*PREFERRING.split()):
        draft.refused = "training by preferences or rewards is not yet built: ftui does sft and pretrain"
    draft.suppose("run.stage", "sft", "TRL's sft")
    draft.suppose("adapter.method", method(draft))
    if method(draft) != "full":
        draft.suppose("adapter.r", 16)
        draft.suppose("adapter.lora_alpha", 32)
        draft.suppose("adapter.lora_dropout", 0.05)
        draft.suppose("adapter.target_modules", PEFT_TARGETS, PEFT_NOTE)
    if method(draft) == "qlora":
        draft.suppose("adapter.bnb_4bit_use_double_quant", False)
    draft.suppose("data.max_length", 1024)
    draft.suppose("data.packing", False)
    draft.suppose("data.loss_on", "everything", "as TRL learns conversations (of prompt and completion: assistant)")
    halves = [draft.raw(name) for name in ("bf16", "fp16")]
    draft.suppose("train.precision", "bf16" if not any(map(is_on, halves)) and halves[0] is None else "fp32")
    suppose_trainer(draft, learning_rate=2e-5, activation_checkpointing=True, logging_steps=10)
