"""Axolotl's keys of training by preferences (`rl: dpo` and its kin) and rewards (`rl: grpo`), and types of rows for it.

Its trainers are TRL's, so what TRL makes of a value holds here, too.
"""

from collections.abc import Callable
from typing import Any

from ftui.importers.config_file import Leaf
from ftui.importers.draft import ProfileDraft, as_text
from ftui.importers.rules import OFF, Rule, drops, refuse
from ftui.importers.tools.grpo.grpo_keys import GrpoFile
from ftui.importers.tools.preference_keys import (
    CPO_SIMPO,
    IS_MEASURED,
    NO_DROPOUT,
    carry_cross_entropy,
    carry_smoothing,
    compares,
    for_stage,
    losses,
    no_dropout,
    one_or_list,
)
from ftui.importers.values import Unfit, flag, is_on, real, reals, whole, word_or

STAGES = {"dpo": "dpo", "ipo": "dpo", "kto": "kto", "orpo": "orpo", "simpo": "simpo", "grpo": "grpo"}
BETAS = ("trl.beta", "rl_beta", "dpo_beta")
"""What beta is called, the first that is given counts."""

WRITTEN = {"chatml": "chatml", "llama3": "llama3", "zephyr": "zephyr"}
"""Types of rows by what stands before their dot: the template that their rows are written in."""

PAIRS: dict[str, dict[str, str]] = {
    "": {"question": "prompt"}, "default": {"question": "prompt"}, "prompt_pairs": {"question": "prompt"},
    "icr": {"question": "input"}, "argilla": {}, "argilla_chat": {}, "intel": {}, "ultra": {},
}  # fmt: skip
VERDICTS: dict[str, dict[str, str]] = {
    "argilla": {"output": "completion"}, "argilla_chat": {"messages": "completion"}, "intel": {"answer": "completion"},
    "prompt_pairs": {"question": "prompt", "answer": "completion"},
    "ultra": {"question": "prompt", "answer": "completion"},
}  # fmt: skip
"""By what stands behind the dot: what columns are called where not as a form here calls them."""

SCORED = ("bradley_terry.chat_template", "bradley_terry.icr")
"""Types of pairs for reward models."""

AS_THEY_ARE = (
    "passthrough", "passthrough.default", "chat_template", "chat_template.default", "chat_template.argilla",
    "chat_template.argilla_chat", "user_defined.default",
)  # fmt: skip
NECTAR = "there it takes the two answers with the last ranks, the last one as chosen; here the first against the last"
TOO_LONG = "rows that are too long are left out there; here their answers are cut at data.max_length"


def stage_of(draft: ProfileDraft) -> str:
    """The stage here; `sft` where the file says nothing of preferences, or what is none of these."""
    if is_on(draft.raw("reward_model")):
        return "rm"
    return STAGES.get(word_or(draft.raw("rl"), ""), "sft")


def columns_of_type(stage: str, kind: str) -> dict[str, str]:
    """What the columns of rows of a type are called, where not as the form of the stage calls them.

    Raises:
        Unfit: there is no such type, or its rows are read in another way here.
    """
    if kind == "zephyr.nectar":
        raise Unfit(NECTAR)
    if stage == "rm" and kind in SCORED:
        return {"question": "input"}
    before, _, behind = kind.partition(".")
    columns = (VERDICTS if stage == "kto" else PAIRS).get(behind) if before in WRITTEN else None
    if columns is None and kind not in AS_THEY_ARE:
        raise Unfit(f"there is no such type of rows for stage {stage}")
    return dict(columns or {})


def template_of_types(draft: ProfileDraft) -> str:
    """The template that all rows are written in by their types; "" where they are not, or not all in the same."""
    types = ("datasets[].type", "test_datasets[].type")
    kinds = [as_text(leaf.value) for leaf in draft.document.leaves if leaf.pattern in types]
    written = {WRITTEN.get(kind.partition(".")[0], "") for kind in kinds}
    return written.pop() if compares(stage_of(draft)) and len(written) == 1 else ""


def _stage(draft: ProfileDraft, leaf: Leaf) -> None:
    name = word_or(leaf.value, "")
    if name not in STAGES:
        return refuse(draft, leaf, f"training by {name}")
    draft.carry(leaf, "run.stage", STAGES[name])
    if name == "ipo":
        draft.suppose("preference.loss_type", "ipo", "rl: ipo")


def _reward(draft: ProfileDraft, leaf: Leaf) -> None:
    if not flag(leaf.value):
        draft.drop(leaf, OFF)
    elif leaf.name == "reward_model":
        draft.carry(leaf, "run.stage", "rm")
    else:
        refuse(draft, leaf, "training a reward model that judges each step of an answer")


def _in_reward_models(rule: Rule) -> Rule:
    """A rule for reward models, of a key that has no effect without one."""

    def gated(draft: ProfileDraft, leaf: Leaf) -> None:
        if stage_of(draft) == "rm":
            rule(draft, leaf)
        else:
            draft.drop(leaf, "reward_model is off: it has no effect there either")

    return gated


def _labels(draft: ProfileDraft, leaf: Leaf) -> None:
    if whole(leaf.value) != 1:
        raise Unfit("a reward model has one score")
    draft.drop(leaf, "the stage says it")


def _beta(draft: ProfileDraft, leaf: Leaf) -> None:
    first = next(name for name in (*BETAS, "orpo_alpha") if draft.raw(name) is not None)
    if leaf.name != first:
        draft.drop(leaf, f"{first} comes first, as there")
    elif stage_of(draft) == "grpo" and leaf.name in BETAS:
        draft.carry(leaf, "grpo.beta", real(leaf.value))
    else:
        for_stage("beta", stage_of)(draft, leaf)


GRPO = GrpoFile(lambda draft: stage_of(draft) == "grpo", "trl.", ("micro_batch_size", 1))
MADE_THERE = "a function makes the rows there: write rows with `prompt`, and the columns that rewards take, to a file"


def _losses_named(draft: ProfileDraft) -> list[str]:
    value = draft.raw("dpo_loss_type")
    return [str(one) for one in value] if isinstance(value, list) else [as_text(value) or "sigmoid"]


def _in_dpo(rule: Rule) -> Rule:
    def gated(draft: ProfileDraft, leaf: Leaf) -> None:
        rule(draft, leaf) if word_or(draft.raw("rl"), "") == "dpo" else draft.drop(leaf, "it is for rl: dpo")

    return gated


def _loss(draft: ProfileDraft, leaf: Leaf) -> None:
    kinds = losses(leaf.value, "dpo")
    if is_on(draft.raw("rpo_alpha")):
        draft.drop(leaf, "rpo_alpha says it")
    else:
        draft.carry(leaf, "preference.loss_type", one_or_list(kinds))


def _smoothing(draft: ProfileDraft, leaf: Leaf) -> None:
    carry_smoothing(draft, leaf, "dpo", _losses_named(draft))


def _cross_entropy(draft: ProfileDraft, leaf: Leaf) -> None:
    carry_cross_entropy(draft, leaf, losses(_losses_named(draft), "dpo"))


def _cpo_alpha(draft: ProfileDraft, leaf: Leaf) -> None:
    if stage_of(draft) != "simpo":
        draft.drop(leaf, "it is for rl: simpo")
    elif real(leaf.value):
        raise Unfit(CPO_SIMPO)
    else:
        draft.drop(leaf, "0: stage simpo adds no cross-entropy")


def _too_long(draft: ProfileDraft, leaf: Leaf) -> None:
    if compares(stage_of(draft)) and word_or(leaf.value, "") == "truncate":
        draft.drop(leaf, "as here")
    else:
        draft.drop(leaf, TOO_LONG if compares(stage_of(draft)) else "rows are cut at data.max_length", matters=True)


def lora_dropout(otherwise: Rule) -> Rule:
    """The rule of an adapter's dropout, which TRL's trainers on preferences turn off."""

    def rule(draft: ProfileDraft, leaf: Leaf) -> None:
        (no_dropout if compares(stage_of(draft)) else otherwise)(draft, leaf)

    return rule


def _to(key: str, convert: Callable[[Any], Any] = real) -> Rule:
    return for_stage(key, stage_of, convert)


RULES: dict[str, Rule] = {
    "rl": _stage,
    **dict.fromkeys((*BETAS, "orpo_alpha"), _beta),
    **dict.fromkeys(("reward_model", "process_reward_model"), _reward),
    "dpo_loss_type": _in_dpo(_loss),
    "dpo_loss_weights": _in_dpo(_to("loss_weights", reals)),
    "dpo_label_smoothing": _in_dpo(_smoothing),
    "dpo_use_weighting": _to("use_weighting", flag),
    "rpo_alpha": _in_dpo(_cross_entropy),
    "kto_desirable_weight": _to("desirable_weight"),
    "kto_undesirable_weight": _to("undesirable_weight"),
    "simpo_gamma": _to("simpo_gamma"),
    "cpo_alpha": _cpo_alpha,
    "center_rewards_coefficient": _in_reward_models(_to("center_rewards_coefficient")),
    "num_labels": _in_reward_models(_labels),
    "excess_length_strategy": _too_long,
    **drops(IS_MEASURED, "precompute_ref_log_probs"),
    **drops("rows of a micro-batch lie end to end by themselves, and logits are never made whole",
            "dpo_padding_free dpo_use_liger_kernel dpo_use_logits_to_keep"),
    **drops("Axolotl itself makes nothing of it any more", "dpo_norm_loss dpo_generate_during_eval"),
    **drops("Axolotl's trainers of these stages take no notice of it", "max_prompt_len"),
    **drops("not built", "trl trl.* ebft ebft.*", matters=True),
    **drops("a setting of vLLM, which is not used", "vllm vllm.*"),
}  # fmt: skip
RULES |= {name: rule for name, rule in GRPO.rules(RULES).items() if name not in BETAS}


def suppose(draft: ProfileDraft) -> None:
    """What Axolotl does with preferences where its file says nothing."""
    stage = stage_of(draft)
    if not compares(stage):
        return
    if template := template_of_types(draft):
        draft.suppose("data.chat_template", template, "the type of the rows says it")
    if draft.raw("excess_length_strategy") is None and stage != "rm":
        draft.drop_part("excess_length_strategy where nothing is said", "drop", TOO_LONG)
    if stage == "simpo" and draft.raw("cpo_alpha") is None:
        draft.drop_part("cpo_alpha where nothing is said", 1.0, CPO_SIMPO)
    if stage == "kto":
        draft.suppose("train.train_sampling_strategy", "sequential", "TRL's KTO does not shuffle")
    if draft.given("adapter.method") in ("lora", "qlora"):
        draft.suppose("adapter.lora_dropout", 0.0, NO_DROPOUT)
