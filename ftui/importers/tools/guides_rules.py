"""How the values of the shapes of guides are read."""

import re
from typing import Any

from ftui.importers.config_file import Leaf
from ftui.importers.draft import Draft, Rule
from ftui.importers.tools.llamafactory import STAGES
from ftui.importers.tools.trainer_rules import HUB, held_out
from ftui.importers.values import Unfit, beside, flag, is_on, number, one_of, whole, word  # fmt: skip

TOOL = "a guide's shape"
LORA_TABLES = ("lora", "qlora", "peft", "adapter", "lora_config", "peft_config", "method", "qlora_config")
MODEL_TABLES = ("model", "base_model", "model_config")
SAVING_TABLES = ("saving", "save", "checkpoint", "checkpointing", "checkpoints")
DATA_TABLES = ("data", "dataset", "datasets", "data_config")
FOUR = ("use_qlora", "load_in_4bit", "use_4bit")
_METHODS = {"lora": "lora", "qlora": "qlora", "full": "full", "full_finetune": "full", "full_finetuning": "full",
            "full-finetune": "full", "sft": "full", "freeze": "freeze", "lora/qlora": "lora",
            "peft": "lora"}  # fmt: skip
SAYS_METHOD = (
    "training_type",
    "finetuning_type",
    "finetune_type",
    "peft_method",
    "tuning_type",
    "peft_type",
    "training_method",
)
_PREFERRING = ("dpo", "kto", "ppo", "orpo", "grpo", "rm", "rlhf", "simpo", "reward")
SAYS_FORM = ("format_type", "dataset_format", "data_format", "dataset_type", "format", "type")
_CONVERSES = re.compile(r"instruct|chat|[-_]it\b", re.IGNORECASE)  # names of models that have a template of their own
FORMS = {"auto": "auto", "alpaca": "alpaca", "chatml": "messages", "messages": "messages", "openai": "messages",
          "chat": "messages", "sharegpt": "sharegpt", "text": "text", "raw": "text", "dolly": "dolly",
          "prompt_completion": "prompt_completion", "conversational": "messages"}  # fmt: skip
KNOWN_STAGES = STAGES | {"pretrain": "pretrain", "cpt": "pretrain"}
_QUANT_WORDS = {"4bit": 4, "4-bit": 4, "nf4": 4, "4": 4, "int4": 4, "8bit": 8, "8-bit": 8, "int8": 8, "8": 8}


def last_name(leaf: Leaf) -> str:
    return str(next((step for step in reversed(leaf.path) if isinstance(step, str)), "")).lower()


def table_of(leaf: Leaf) -> str:
    """The innermost table it stands in; empty at the top."""
    above = [step for step in leaf.path[:-1] if isinstance(step, str)]
    return above[-1].lower() if above else ""


def said(draft: Draft, *names: str) -> Any:
    """What the first key of one of these names says, wherever it stands."""
    found = (leaf.value for leaf in draft.document.leaves if last_name(leaf) in names)
    return next((value for value in found if value is not None), None)


def method(draft: Draft) -> str | None:
    named = said(draft, *SAYS_METHOD)
    for leaf in draft.document.leaves:
        if (
            named is None
            and isinstance(leaf.value, str)
            and (
                (last_name(leaf) == "type" and table_of(leaf) in ("method", "adapter", "peft"))
                or (last_name(leaf) in ("method", "adapter") and leaf.value.lower() in _METHODS)
            )
        ):
            named = leaf.value
        if last_name(leaf) in ("enabled", "enable", "use") and table_of(leaf) in LORA_TABLES and not is_on(leaf.value):
            return "full"
    kind = _METHODS.get(beside(named, ""))
    if kind == "full":
        return kind
    if any(is_on(said(draft, name)) for name in FOUR) or _bits(draft) == 4 or kind == "qlora":
        return "qlora"
    if kind:
        return kind
    switch = said(draft, "use_lora", "use_peft")
    if switch is not None:
        return "lora" if is_on(switch) else "full"
    has_rank = said(draft, "lora_r", "lora_rank") is not None
    return "lora" if has_rank or any(table_of(leaf) in LORA_TABLES for leaf in draft.document.leaves) else None


def _bits(draft: Draft) -> int | None:
    bits = said(draft, "bits", "quantization_bit", "quantization", "quantization_bits")
    return _QUANT_WORDS.get(word(bits)) if isinstance(bits, str | int) and not isinstance(bits, bool) else None


def says_method(draft: Draft, leaf: Leaf) -> None:
    given = word(leaf.value)
    if given in _PREFERRING:
        draft.refused = f"training by {given} is not yet built: ftui does sft and pretrain"
        draft.drop(leaf, "not yet built", matters=True)
        return
    chosen = method(draft)
    switches = (*FOUR, "use_lora", "use_peft", "bits", "quantization_bit", "quantization", "quantization_bits")
    if (last_name(leaf) not in switches and given not in _METHODS) or chosen is None:
        raise Unfit("ftui has no such method")
    if last_name(leaf) in FOUR and flag(leaf.value) and chosen != "qlora":
        raise Unfit(f"the method is {chosen}: only the base of an adapter is held in 4 bits")
    draft.carry(leaf, "adapter.method", chosen)


def quantisation(draft: Draft, leaf: Leaf) -> None:
    if _QUANT_WORDS.get(word(leaf.value)) == 8:
        draft.carry(leaf, "adapter.load_in_8bit", True)
    elif word(leaf.value) in ("none", "no", "16", "fp16", "bf16"):
        draft.drop(leaf, "off, as it is here")
    elif _QUANT_WORDS.get(word(leaf.value)) != 4:
        raise Unfit("bitsandbytes with 4 or 8 bits is built")
    else:
        says_method(draft, leaf)


def quantisation_or_export(draft: Draft, leaf: Leaf) -> None:
    """unsloth-cli's `--quantization` is that of the GGUF it exports."""
    if draft.has("save_gguf", "push_gguf", "save_model", "push_model", "save_method"):
        draft.drop(leaf, HUB)
    else:
        quantisation(draft, leaf)


def lora(ours: str, convert: Any) -> Rule:
    def rule(draft: Draft, leaf: Leaf) -> None:
        if method(draft) in ("lora", "qlora", None):
            draft.carry(leaf, ours, convert(leaf.value))
        else:
            draft.drop(leaf, f"the method is {method(draft)}, which has no adapter")

    return rule


def four(ours: str, convert: Any) -> Rule:
    def rule(draft: Draft, leaf: Leaf) -> None:
        if method(draft) == "qlora":
            draft.carry(leaf, ours, convert(leaf.value))
        else:
            draft.drop(leaf, "the base is not held in 4 bits")

    return rule


def rows(ours: str) -> Rule:
    """Where the rows are: a file or a folder where the key says so, else perhaps a data set on the hub."""

    def rule(draft: Draft, leaf: Leaf) -> None:
        each = leaf.value if isinstance(leaf.value, list) else [leaf.value]
        if not each or any(isinstance(one, bool | int | float) for one in each):
            raise Unfit("not a path")
        is_file = "file" in last_name(leaf) or last_name(leaf) in ("input_path", "data_dir")
        found = [draft.rows(f"./{one}" if is_file and isinstance(one, str) and one[:1] not in "/~." else one)
                 for one in each]  # fmt: skip
        draft.carry(leaf, ours, found if isinstance(leaf.value, list) else found[0])

    return rule


def suppose_template(draft: Draft) -> None:
    """`format: chatml` says the marks of a conversation too, which a base that has learned none may lack."""
    says = next(
        (leaf for leaf in draft.document.leaves if last_name(leaf) in SAYS_FORM and leaf.value == "chatml"), None
    )
    name = str(draft.values.get(("model", "name_or_path"), ""))
    if says is not None and draft.values.get(("data", "format")) == "messages" and not _CONVERSES.search(name):
        draft.suppose("data.chat_template", "chatml", f"{says.name}; leave it out where the base has its own")


def part_of_rows(usual: str, why: str) -> Rule:
    """A split or a column, of which there is one that is read anyway."""

    def rule(draft: Draft, leaf: Leaf) -> None:
        if leaf.value != usual:
            raise Unfit(why)
        draft.drop(leaf, "as it is read here")

    return rule


def switch(draft: Draft, leaf: Leaf) -> None:
    """`enabled` in a table of the adapter."""
    draft.carry(leaf, "adapter.method", method(draft) or "lora")


def fraction(draft: Draft, leaf: Leaf) -> None:
    if isinstance(leaf.value, str) and not leaf.value.replace(".", "").isdigit():
        raise Unfit("the name of a split: give data.eval a [[data.eval]] table with path and split")
    held_out(draft, leaf)


def warmup(draft: Draft, leaf: Leaf) -> None:
    found = number(leaf.value)
    draft.carry(leaf, "train.warmup_steps", float(found) if 0 < found < 1 else whole(found))


def mixed(draft: Draft, leaf: Leaf) -> None:
    names = {"bf16": "bf16", "fp16": "fp16", "no": "fp32", "none": "fp32", "fp32": "fp32", "bfloat16": "bf16",
             "float16": "fp16", "float32": "fp32", "auto": "auto", "true": "auto"}  # fmt: skip
    draft.carry(leaf, "train.precision", one_of(names, "precision")(leaf.value))


def learned(draft: Draft, leaf: Leaf) -> None:
    """Whether answers only are learned."""
    on = flag(leaf.value)
    draft.carry(leaf, "data.loss_on", "assistant" if on != (last_name(leaf) == "train_on_inputs") else "everything")


def tracker(name: str) -> Rule:
    def rule(draft: Draft, leaf: Leaf) -> None:
        if not flag(leaf.value):
            draft.drop(leaf, "off, as it is here")
        else:
            known = [one for one in draft.values.get(("log", "report_to"), []) if one != name]
            draft.values[("log", "report_to")] = [*known, name]
            draft.carry(leaf, "log.report_to", [*known, name])

    return rule


def stage(draft: Draft, leaf: Leaf) -> None:
    given = word(leaf.value)
    if given in _PREFERRING:
        draft.refused = f"training by {given} is not yet built: ftui does sft and pretrain"
        draft.drop(leaf, "not yet built", matters=True)
    else:
        draft.carry(leaf, "run.stage", one_of(KNOWN_STAGES, "stage")(leaf.value))


def same(rule: Rule, names: str) -> dict[str, Rule]:
    return dict.fromkeys(names.split(), rule)


def standing_in(tables: tuple[str, ...], rule: Rule, names: str) -> dict[str, Rule]:
    return {f"{table}.{name}": rule for table in tables for name in names.split()}
