"""How the values of Axolotl's files are read."""

import re
from typing import Any

from ftui.importers.config_file import Leaf
from ftui.importers.draft import Draft, Rule
from ftui.importers.tools.trainer_keys import CARRIED
from ftui.importers.values import Unfit, above_zero, converted, flag, is_on, real, scheduler, texts, whole

TOOL = "Axolotl"
FLAGS = {"flash_attention": "flash_attention_2", "sdp_attention": "sdpa", "eager_attention": "eager"}


def method(draft: Draft) -> str:
    """lora, qlora, full or freeze; another adapter's own name."""
    adapter = draft.raw("adapter")
    if not adapter:
        return "freeze" if draft.raw("unfrozen_parameters") else "full"
    return "qlora" if is_on(draft.raw("load_in_4bit")) and adapter == "lora" else str(adapter)


def adapter(draft: Draft, leaf: Leaf) -> None:
    if method(draft) not in ("lora", "qlora"):
        raise Unfit(f"there is no method {method(draft)} here")
    draft.carry(leaf, "adapter.method", method(draft))


def four(draft: Draft, leaf: Leaf) -> None:
    if flag(leaf.value) and method(draft) != "qlora":
        raise Unfit("without an adapter nothing is frozen")
    draft.carry(leaf, "adapter.method", method(draft))


def eight(draft: Draft, leaf: Leaf) -> None:
    if not flag(leaf.value):
        draft.drop(leaf, "off, as it is here")
    elif method(draft) != "lora":
        raise Unfit(f"the method is {method(draft)}: only the base of lora is held in 8 bits")
    else:
        draft.carry(leaf, "adapter.load_in_8bit", True)


def lora(ours: str, convert: Any) -> Rule:
    def rule(draft: Draft, leaf: Leaf) -> None:
        if method(draft) in ("lora", "qlora"):
            draft.carry(leaf, ours, convert(leaf.value))
        else:
            draft.drop(leaf, "there is no adapter: it says nothing there either")

    return rule


def all_linear(draft: Draft, leaf: Leaf) -> None:
    if method(draft) not in ("lora", "qlora"):
        draft.drop(leaf, "there is no adapter: it says nothing there either")
    elif not flag(leaf.value):
        draft.drop(leaf, "off: lora_target_modules says it")
    elif draft.raw("lora_target_modules"):
        raise Unfit("lora_target_modules names the layers; both are not said here")
    else:
        draft.carry(leaf, "adapter.target_modules", "all-linear")


def unfrozen(draft: Draft, leaf: Leaf) -> None:
    patterns = texts(leaf.value)
    if method(draft) != "freeze":
        raise Unfit("beside an adapter, give adapter.modules_to_save")
    if parts := [one for one in patterns if re.search(r"\[[\d:]+\]$", one)]:
        raise Unfit(f"parts of a weight cannot be trained: {parts[0]}")
    draft.carry(leaf, "adapter.trainable_modules", patterns)


def attention(draft: Draft, leaf: Leaf) -> None:
    if not flag(leaf.value):
        draft.drop(leaf, "off, as it is here")
    else:
        draft.carry(leaf, "model.attn_implementation", FLAGS[leaf.name])


def rl(draft: Draft, leaf: Leaf) -> None:
    draft.refused = f"training by {leaf.value} is not yet built: ftui does sft and pretrain"
    draft.drop(leaf, "not yet built", matters=True)


def reward(draft: Draft, leaf: Leaf) -> None:
    if flag(leaf.value):
        draft.refused = "training a reward model is not yet built: ftui does sft and pretrain"
    draft.drop(leaf, "not yet built", matters=flag(leaf.value))


def val_set(draft: Draft, leaf: Leaf) -> None:
    size = real(leaf.value)
    if size <= 0:
        draft.drop(leaf, "0: nothing is set aside")
    elif draft.has("test_datasets"):
        raise Unfit("test_datasets say what is evaluated on")
    elif size < 1:
        draft.carry(leaf, "data.eval_fraction", size)
    else:
        draft.carry(leaf, "data.eval_num_rows", whole(size))


def precision(draft: Draft, leaf: Leaf) -> None:
    chosen = {"bf16": "bf16", "bfloat16": "bf16", "fp16": "fp16", "float16": "fp16"}
    named = [name for name in chosen if is_on(draft.raw(name))]
    decided = chosen[named[0]] if named else "fp32"
    if (not named and draft.raw("bf16") is None) or str(draft.raw("bf16")).lower() == "auto":
        decided = "auto"
    if is_on(leaf.value) and decided not in ("auto", chosen[leaf.name]):
        raise Unfit(f"{named[0]} is on too, and comes first")
    draft.carry(leaf, "train.precision", decided)


def per_epoch(draft: Draft, leaf: Leaf) -> None:
    """evals_per_epoch and saves_per_epoch: as a share of all steps, or with each epoch."""
    times = whole(leaf.value)
    section, kind = ("eval", "eval") if leaf.name.startswith("evals") else ("checkpoint", "save")
    if times <= 0:
        draft.drop(leaf, "0: it says nothing there either")
    elif times == 1:
        draft.carry(leaf, f"{section}.{kind}_strategy", "epoch")
    else:
        epochs = real(draft.raw("num_epochs") or 1)
        share = round(1 / (times * epochs), 6)
        note = f"a share of all steps: {times} in each of {epochs:g} epochs"
        draft.carry(leaf, f"{section}.{kind}_steps", share, note)
        draft.suppose(f"{section}.{kind}_strategy", "steps", leaf.name)


def steps(section: str, kind: str) -> Rule:
    """eval_steps and save_steps, which say the strategy too."""

    def rule(draft: Draft, leaf: Leaf) -> None:
        if not is_on(leaf.value):
            draft.drop(leaf, "0: it says nothing there either")
            return
        CARRIED[leaf.name](draft, leaf)
        if not draft.raw(f"{kind}_strategy") and not draft.raw("evaluation_strategy"):
            draft.suppose(f"{section}.{kind}_strategy", "steps", leaf.name)

    return rule


def lowest_rate(draft: Draft, leaf: Leaf) -> None:
    share = real(leaf.value)
    if draft.raw("lr_scheduler") not in (None, "cosine"):
        raise Unfit("it belongs to the cosine, as there")
    draft.carry(leaf, "train.lr_scheduler_kwargs.min_lr_rate", share)
    draft.values[("train", "lr_scheduler_type")] = "cosine_with_min_lr"


def curve(draft: Draft, leaf: Leaf) -> None:
    found = converted("train.lr_scheduler_type", scheduler, leaf.value)
    lowest = found == "cosine" and draft.raw("cosine_min_lr_ratio") is not None
    draft.carry(leaf, "train.lr_scheduler_type", "cosine_with_min_lr" if lowest else found)


def batch(draft: Draft, leaf: Leaf) -> None:
    micro = above_zero(draft.raw("micro_batch_size") or 1)
    if whole(leaf.value) % micro:
        raise Unfit("no multiple of micro_batch_size")
    draft.carry(leaf, "train.gradient_accumulation_steps", whole(leaf.value) // micro, "batch_size there, on one GPU")


def tracker(name: str) -> Rule:
    def rule(draft: Draft, leaf: Leaf) -> None:
        on = [one for one in ("wandb", "tensorboard", "trackio") if is_on(draft.raw(f"use_{one}"))]
        if draft.raw("wandb_project") and draft.raw("wandb_mode") != "disabled" and "wandb" not in on:
            on.insert(0, "wandb")
        if leaf.name == "wandb_project" or is_on(leaf.value):
            draft.carry(leaf, "log.report_to", on) if name in on else draft.drop(leaf, "off, as it is here")
        else:
            draft.drop(leaf, "off, as it is here")

    return rule
