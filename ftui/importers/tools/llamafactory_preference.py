"""LLaMA-Factory's keys of training by preferences (stages rm, dpo and kto)."""

from collections.abc import Callable
from typing import Any

from ftui.importers.config_file import Leaf
from ftui.importers.draft import ProfileDraft
from ftui.importers.rules import Rule, drops, refuse
from ftui.importers.values import Unfit, real, word, word_or
from ftui.profile.sections.preference import COMPARING_STAGES, TAKES

STAGES = {"sft": "sft", "pt": "pretrain", "kto": "kto", "rm": "rm"}
LATER = {"ppo": "reinforcement learning"}
LOSSES = {"sigmoid": "sigmoid", "hinge": "hinge", "ipo": "ipo"}
OF_THEIR_OWN = ("orpo", "simpo")
"""Losses that are stages here."""


def stage(draft: ProfileDraft, leaf: Leaf) -> None:
    """Their stage dpo is one of three here, by its loss."""
    name = word(leaf.value)
    if name == "dpo":
        loss = word_or(draft.raw("pref_loss"), "sigmoid")
        draft.carry(leaf, "run.stage", loss if loss in OF_THEIR_OWN else "dpo")
    elif name in STAGES:
        draft.carry(leaf, "run.stage", STAGES[name])
    else:
        refuse(draft, leaf, f"training by {name}{f' ({LATER[name]})' if name in LATER else ''}")


def _stage_of(draft: ProfileDraft) -> str:
    name = word_or(draft.raw("stage"), "sft")
    loss = word_or(draft.raw("pref_loss"), "sigmoid")
    return str(loss if name == "dpo" and loss in OF_THEIR_OWN else name)


def _loss(draft: ProfileDraft, leaf: Leaf) -> None:
    if (loss := word(leaf.value)) in OF_THEIR_OWN:
        draft.drop(leaf, "the stage says it")
    elif loss not in LOSSES:
        raise Unfit(f"there is no such loss; stage dpo has {', '.join(LOSSES)} and more")
    elif draft.raw("pref_ftx"):
        draft.drop(leaf, "pref_ftx says it")
    else:
        draft.carry(leaf, "preference.loss_type", loss)


def _cross_entropy(draft: ProfileDraft, leaf: Leaf) -> None:
    if not (factor := real(leaf.value)):
        return draft.drop(leaf, "off: nothing is added to the loss")
    loss = word_or(draft.raw("pref_loss"), "sigmoid")
    draft.carry(leaf, "preference.loss_type", [loss, "sft"], "a mean over all tokens here, of means of answers there")
    draft.suppose("preference.loss_weights", [1.0, factor], "pref_ftx")


def _to(key: str, convert: Callable[[Any], Any] = real) -> Rule:
    """Carry to a key of `[preference]` in the stages that have it."""

    def rule(draft: ProfileDraft, leaf: Leaf) -> None:
        if _stage_of(draft) in TAKES[key]:
            draft.carry(leaf, f"preference.{key}", convert(leaf.value))
        else:
            draft.drop(leaf, f"it is for stage {', '.join(sorted(TAKES[key]))}")

    return rule


def compares(draft: ProfileDraft) -> bool:
    """Whether its stage compares answers."""
    return _stage_of(draft) in COMPARING_STAGES


def _in_dpo(rule: Rule) -> Rule:
    def gated(draft: ProfileDraft, leaf: Leaf) -> None:
        if word_or(draft.raw("stage"), "sft") == "dpo":
            rule(draft, leaf)
        else:
            draft.drop(leaf, "it is for stage dpo")

    return gated


RULES: dict[str, Rule] = {
    "stage": stage,
    "pref_loss": _in_dpo(_loss),
    "pref_ftx": _in_dpo(_cross_entropy),
    "pref_beta": _to("beta"),
    "dpo_label_smoothing": _to("label_smoothing"),
    "simpo_gamma": _to("simpo_gamma"),
    "ld_alpha": _to("ld_alpha"),
    "kto_chosen_weight": _to("desirable_weight"),
    "kto_rejected_weight": _to("undesirable_weight"),
    **drops("the reference is the model that the run starts from", "ref_model ref_model_*", matters=True),
    **drops("not built", "pref_bco_weight ppo_* reward_model*", matters=True),
}
