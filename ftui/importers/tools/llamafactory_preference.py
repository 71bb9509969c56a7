"""LLaMA-Factory's keys of training by preferences (stages rm, dpo and kto)."""

from ftui.importers.config_file import Leaf
from ftui.importers.draft import ProfileDraft
from ftui.importers.rules import Rule, drops, refuse
from ftui.importers.tools.preference_keys import OWN_REFERENCE, carry_cross_entropy, for_stage
from ftui.importers.values import Unfit, word, word_or
from ftui.profile.sections.preference import COMPARING_STAGES

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
    carry_cross_entropy(draft, leaf, [word_or(draft.raw("pref_loss"), "sigmoid")])


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
    "pref_beta": for_stage("beta", _stage_of),
    "dpo_label_smoothing": for_stage("label_smoothing", _stage_of),
    "simpo_gamma": for_stage("simpo_gamma", _stage_of),
    "ld_alpha": for_stage("ld_alpha", _stage_of),
    "kto_chosen_weight": for_stage("desirable_weight", _stage_of),
    "kto_rejected_weight": for_stage("undesirable_weight", _stage_of),
    **drops(OWN_REFERENCE, "ref_model ref_model_*", matters=True),
    **drops("not built", "pref_bco_weight ppo_* reward_model*", matters=True),
}
