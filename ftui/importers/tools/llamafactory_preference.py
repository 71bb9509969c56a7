"""LLaMA-Factory's keys of training by preferences (stages rm, dpo and kto) and by rewards (stage ppo)."""

from collections.abc import Callable, Mapping
from typing import Any

from ftui.importers.config_file import Leaf
from ftui.importers.draft import ProfileDraft
from ftui.importers.rules import Rule, drops, refuse
from ftui.importers.tools.preference_keys import OWN_REFERENCE, carry_cross_entropy, for_stage
from ftui.importers.values import Unfit, flag, real, whole, word, word_or
from ftui.profile.sections.preference import COMPARING_STAGES

STAGES = {"sft": "sft", "pt": "pretrain", "kto": "kto", "rm": "rm", "ppo": "ppo"}
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
    elif name == "grpo":
        draft.refused = "LLaMA-Factory has no GRPO; a profile of stage grpo is described in docs/stages/grpo.md"
        draft.drop(leaf, draft.refused, matters=True)
    else:
        refuse(draft, leaf, f"training by {name}")


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
    """Whether its stage compares answers, or what a model says with what it said."""
    return _stage_of(draft) in COMPARING_STAGES or _in_ppo(draft)


def _in_ppo(draft: ProfileDraft) -> bool:
    return _stage_of(draft) == "ppo"


def _of_ppo(key: str, convert: Callable[[Any], Any]) -> Rule:
    def rule(draft: ProfileDraft, leaf: Leaf) -> None:
        if not _in_ppo(draft):
            draft.drop(leaf, "it is for stage ppo")
        else:
            draft.carry(leaf, f"ppo.{key}", convert(leaf.value))

    return rule


def _reward_model(draft: ProfileDraft, leaf: Leaf) -> None:
    if not _in_ppo(draft):
        draft.drop(leaf, "it is for stage ppo")
    elif word_or(draft.raw("reward_model_type"), "lora") == "api":
        raise Unfit("a server gives the rewards there; here a function of yours may ask it (rewards.reward_funcs)")
    else:
        note = "a sequence classifier, such as of stage rm: a value_head.safetensors beside a language model is none"
        draft.carry(leaf, "rewards.reward_model_name_or_path", draft.folder_or_id(leaf.value), note)
        draft.suppose("rewards.reward_funcs", "reward_model", leaf.last)


def _reward_model_type(draft: ProfileDraft, leaf: Leaf) -> None:
    if word(leaf.value) == "api":
        raise Unfit("rewards come from functions or a model here")
    draft.drop(leaf, "an adapter and a whole model are told apart by their files")


SAMPLING: dict[str, tuple[str, Callable[[Any], Any]]] = {
    "max_new_tokens": ("max_completion_length", whole), "temperature": ("temperature", real), "top_p": ("top_p", real),
    "top_k": ("top_k", whole), "repetition_penalty": ("repetition_penalty", real),
}  # fmt: skip
"""Its keys of generating that stage ppo samples by."""

LONGEST_ANSWER = 1024


def in_ppo(rules: Mapping[str, Rule]) -> dict[str, Rule]:
    """Rules of other keys as they are in stage ppo; in other stages they stay."""

    def gated(rule: Rule, otherwise: Rule) -> Rule:
        return lambda draft, leaf: (rule if _in_ppo(draft) else otherwise)(draft, leaf)

    own = {name: _of_ppo(*to) for name, to in SAMPLING.items()} | {"cutoff_len": _length}
    return {name: gated(rule, rules[name]) for name, rule in own.items()}


def _length(draft: ProfileDraft, leaf: Leaf) -> None:
    answer = _longest_answer(draft)
    draft.carry(
        leaf, "data.max_length", whole(leaf.value) + answer, f"there of the prompt, here with the answer's {answer}"
    )


def _longest_answer(draft: ProfileDraft) -> int:
    given = draft.raw("max_new_tokens")
    return LONGEST_ANSWER if given is None else whole(given)


def suppose_ppo(draft: ProfileDraft) -> None:
    """What its stage ppo does where the file says nothing: it steers the KL, and samples narrowly."""
    if draft.given("run.stage") != "ppo":
        return
    steering = "the trainer's default there: the coefficient is always steered"
    draft.suppose_all("ppo", steering, kl_coef=0.2, target=6.0)
    sampling = dict(max_completion_length=LONGEST_ANSWER, temperature=0.95, top_p=0.7, top_k=50)
    draft.suppose_all("ppo", "how answers are generated there", **sampling)
    draft.suppose("data.max_length", 2048 + _longest_answer(draft), "a prompt of 2048 tokens, and its answer")


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
    "ppo_epochs": _of_ppo("num_ppo_epochs", whole),
    "ppo_buffer_size": _of_ppo("num_mini_batches", whole),
    "ppo_target": _of_ppo("target", real),
    "ppo_score_norm": _of_ppo("use_score_norm", flag),
    "ppo_whiten_rewards": _of_ppo("whiten_rewards", flag),
    "reward_model": _reward_model,
    "reward_model_type": _reward_model_type,
    **drops("not built", "pref_bco_weight ppo_* reward_model_*", matters=True),
}
