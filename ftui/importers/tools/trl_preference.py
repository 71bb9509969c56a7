"""TRL's keys of training by preferences: DPOConfig, KTOConfig, RewardConfig, ORPOConfig, CPOConfig (1.16), older ones;
and PPOConfig (1.12, its last).

A file does not say which trainer reads it. The command does that starts it (`trl dpo`, `python kto.py`), and most keys
are of one trainer only.
"""

import math
import re
from collections.abc import Callable
from typing import Any

from ftui.importers.command import TRL_COMMAND
from ftui.importers.config_file import Leaf
from ftui.importers.draft import ProfileDraft, as_text
from ftui.importers.rules import OFF, Rule, drops, each, only
from ftui.importers.tools.preference_keys import (
    CPO_SIMPO,
    IS_MEASURED,
    ONE_LENGTH,
    OWN_REFERENCE,
    carry_cross_entropy,
    carry_smoothing,
    compares,
    for_stage,
    losses,
    no_dropout,
    one_or_list,
)
from ftui.importers.values import Unfit, flag, is_on, real, reals, text, whole
from ftui.profile.sections.preference import LOSSES, TAKES

STAGES = {"dpo": "dpo", "kto": "kto", "orpo": "orpo", "cpo": "cpo", "simpo": "cpo", "reward": "rm"}
"""By the names of TRL's commands and example scripts; `simpo` is its CPO with that loss."""

OF_ONE_TRAINER = {
    "desirable_weight": "kto", "undesirable_weight": "kto", "cpo_alpha": "cpo", "simpo_gamma": "cpo",
    "center_rewards_coefficient": "rm", "rpo_alpha": "dpo", "ld_alpha": "dpo", "use_weighting": "dpo",
    "discopop_tau": "dpo", "loss_weights": "dpo", "f_divergence_type": "dpo", "reference_free": "dpo",
}  # fmt: skip
OF_SEVERAL = (
    "beta label_smoothing precompute_ref_log_probs sync_ref_model ref_model max_prompt_length max_completion_length"
)
"""Keys of several trainers on preferences, of none of SFT."""

OF_GRPO = (
    "reward_funcs num_generations steps_per_generation generation_batch_size epsilon_high scale_rewards reward_weights"
    " importance_sampling_level num_iterations mask_truncated_completions vllm_mode use_vllm"
)
OF_RLOO = "normalize_advantages reward_clip_range rloo_k"
RLOO = "training by TRL's RLOO, whose ratio is of whole answers and whose reward has the KL in it"
OF_PPO: dict[str, tuple[str, Callable[[Any], Any]]] = {
    "num_ppo_epochs": ("num_ppo_epochs", whole), "num_mini_batches": ("num_mini_batches", whole),
    "kl_coef": ("kl_coef", real), "kl_estimator": ("kl_estimator", text), "cliprange": ("cliprange", real),
    "vf_coef": ("vf_coef", real), "cliprange_value": ("cliprange_value", real), "gamma": ("gamma", real),
    "lam": ("lam", real), "whiten_rewards": ("whiten_rewards", flag), "temperature": ("temperature", real),
    "missing_eos_penalty": ("missing_eos_penalty", real), "response_length": ("max_completion_length", whole),
    "local_rollout_forward_batch_size": ("max_num_seqs", whole),
}  # fmt: skip
PPO_ALONE = (
    "num_ppo_epochs kl_estimator cliprange cliprange_value vf_coef whiten_rewards missing_eos_penalty response_length "
    "num_mini_batches sft_model_path reward_model_path"
)
"""Keys that no other trainer has."""

_NAMED = re.compile(rf"(?:^|[^a-z])({'|'.join(STAGES)})(?:[^a-z]|$)")


def trainer(draft: ProfileDraft) -> tuple[str, str]:
    """What the file trains by, as a stage: dpo, kto, orpo, cpo, rm, ppo, grpo or sft; and how that is known."""
    raw, has = draft.raw, draft.document.has
    if has(*PPO_ALONE.split()):
        return "ppo", "its keys are of PPO"
    if is_rloo(draft):
        return "sft", ""
    if raw(f"{TRL_COMMAND}.grpo") is not None:
        return "grpo", "TRL's grpo"
    for name, stage in STAGES.items():
        if raw(f"{TRL_COMMAND}.{name}") is not None:
            return stage, f"TRL's {name}"
    if has(*OF_GRPO.split()):
        return "grpo", "its keys are of GRPO"
    if (key := next(filter(has, OF_ONE_TRAINER), None)) is not None:
        return OF_ONE_TRAINER[key], f"{key} is a key of this trainer"
    if raw("lora_task_type") == "SEQ_CLS":
        return "rm", "lora_task_type is that of a reward model"
    kinds = _losses_named(draft)
    by_loss = {"kto": "kto", "apo_zero_unpaired": "kto", "simpo": "cpo", "alphapo": "cpo"}
    if (kind := next(filter(by_loss.get, kinds), None)) is not None:
        return by_loss[kind], f"loss_type {kind} is one of this trainer"
    if not has(*OF_SEVERAL.split()) and not any(kind in LOSSES["dpo"][:-1] for kind in kinds):
        return "sft", "TRL's sft"
    names = [draft.document.path.stem, *(as_text(raw(key)) for key in ("output_dir", "run_name", "hub_model_id"))]
    if match := next((match for name in names if (match := _NAMED.search(name.lower()))), None):
        return STAGES[match[1]], f"the file or its output is named for {match[1]}"
    return "dpo", ""


def is_rloo(draft: ProfileDraft) -> bool:
    """Whether the file trains by TRL's RLOO, which is another loss than stage grpo with that estimator."""
    return draft.raw(f"{TRL_COMMAND}.rloo") is not None or draft.document.has(*OF_RLOO.split())


def is_grpo(draft: ProfileDraft) -> bool:
    """Whether the file trains by GRPO."""
    return trainer(draft)[0] == "grpo"


def stage_of(draft: ProfileDraft) -> str:
    """The stage here: SimPO is one of its own, and DPO without a reference is CPO without cross-entropy."""
    name, _ = trainer(draft)
    if name == "cpo" and _losses_named(draft) == ["simpo"]:
        return "simpo"
    return "cpo" if name == "dpo" and is_on(draft.raw("reference_free")) and _is_as_cpo(draft) else name


def _losses_named(draft: ProfileDraft) -> list[str]:
    """As they stand there; what is no name is reported at its key."""
    value = draft.raw("loss_type")
    return [str(one).strip() for one in (value if isinstance(value, list) else str(value or "").split(",")) if one]


def _is_as_cpo(draft: ProfileDraft) -> bool:
    return set(_losses_named(draft)) <= set(LOSSES["cpo"]) and not is_on(draft.raw("rpo_alpha"))


def _loss(draft: ProfileDraft, leaf: Leaf) -> None:
    stage = stage_of(draft)
    if stage == "simpo":
        draft.drop(leaf, "the stage says it")
    elif stage == "sft":
        draft.drop(leaf, "not built", matters=True)
    elif stage not in LOSSES:
        draft.drop(leaf, f"stage {stage} has one loss")
    elif kinds := losses(leaf.value, stage):
        if is_on(draft.raw("rpo_alpha")) and stage == "dpo":
            draft.drop(leaf, "rpo_alpha says it")
        else:
            draft.carry(leaf, "preference.loss_type", one_or_list(kinds))


def _cross_entropy(draft: ProfileDraft, leaf: Leaf) -> None:
    if stage_of(draft) != "dpo":
        raise Unfit("it is for stage dpo")
    carry_cross_entropy(draft, leaf, losses(_losses_named(draft) or ["sigmoid"], "dpo"))


def _smoothing(draft: ProfileDraft, leaf: Leaf) -> None:
    stage = stage_of(draft)
    carry_smoothing(draft, leaf, stage, _losses_named(draft) or LOSSES.get(stage, ())[:1])


def _temperature(draft: ProfileDraft, leaf: Leaf) -> None:
    if "discopop" in _losses_named(draft):
        _to("discopop_tau")(draft, leaf)
    else:
        draft.drop(leaf, "it is for the loss discopop: it has no effect there either")


def _cpo_alpha(draft: ProfileDraft, leaf: Leaf) -> None:
    if stage_of(draft) != "simpo":
        for_stage("cpo_alpha", stage_of)(draft, leaf)
    elif real(leaf.value):
        raise Unfit(CPO_SIMPO)
    else:
        draft.drop(leaf, "0: stage simpo adds no cross-entropy")


def _no_reference(draft: ProfileDraft, leaf: Leaf) -> None:
    if not flag(leaf.value):
        draft.drop(leaf, OFF)
    elif stage_of(draft) != "cpo":
        raise Unfit(f"without a reference there are stages orpo, simpo and cpo (losses {', '.join(LOSSES['cpo'])})")
    else:
        draft.carry(leaf, "run.stage", "cpo", "the same losses without a reference")
        draft.suppose("preference.cpo_alpha", 0.0, "reference_free: no cross-entropy is added")


def _command(draft: ProfileDraft, leaf: Leaf) -> None:
    draft.carry(leaf, "run.stage", stage_of(draft), f"trl {leaf.last}")


def _dropout(draft: ProfileDraft, leaf: Leaf) -> None:
    draft.drop(leaf, "an adapter's dropout is adapter.lora_dropout here, and nothing else drops out")


def _in_ppo(draft: ProfileDraft) -> bool:
    return trainer(draft)[0] == "ppo"


def _ppo(key: str, convert: Callable[[Any], Any]) -> Rule:
    def rule(draft: ProfileDraft, leaf: Leaf) -> None:
        if _in_ppo(draft):
            draft.carry(leaf, f"ppo.{key}", convert(leaf.value))
        else:
            draft.drop(leaf, "it is for stage ppo")

    return rule


def _model(draft: ProfileDraft, leaf: Leaf) -> None:
    if leaf.last == "model_name_or_path" and draft.raw("sft_model_path"):
        draft.drop(leaf, "sft_model_path is the model that is trained")
    else:
        draft.carry(leaf, "model.name_or_path", draft.folder_or_id(leaf.value))


def _reward_model(draft: ProfileDraft, leaf: Leaf) -> None:
    draft.carry(leaf, "rewards.reward_model_name_or_path", draft.folder_or_id(leaf.value))
    draft.suppose("rewards.reward_funcs", "reward_model", leaf.last)


def _episodes(draft: ProfileDraft, leaf: Leaf) -> None:
    """Answers in all: here the steps on them are counted."""
    figures = {"per_device_train_batch_size": 8, "gradient_accumulation_steps": 1}
    processes = whole(draft.raw("launcher.num_processes") or draft.given("hardware.num_processes") or 1)
    each_time = processes * math.prod(whole(draft.raw(name) or usual) for name, usual in figures.items())
    passes = whole(draft.raw("num_ppo_epochs") or 4)
    steps = math.ceil(whole(leaf.value) / each_time) * passes
    draft.carry(leaf, "train.max_steps", steps, f"of {each_time} answers, {passes} times each")


def lora_dropout(otherwise: Rule) -> Rule:
    """The rule of an adapter's dropout, which trainers on preferences turn off."""

    def rule(draft: ProfileDraft, leaf: Leaf) -> None:
        (no_dropout if drops_nothing(draft) else otherwise)(draft, leaf)

    return rule


def drops_nothing(draft: ProfileDraft) -> bool:
    """Whether dropout is off, the adapter's too."""
    said = draft.raw("disable_dropout")
    return _in_ppo(draft) or (compares(trainer(draft)[0]) and (said is None or is_on(said)))


def _in_preference(rule: Rule, otherwise: Rule) -> Rule:
    def gated(draft: ProfileDraft, leaf: Leaf) -> None:
        (rule if compares(trainer(draft)[0]) else otherwise)(draft, leaf)

    return gated


def _to(key: str, convert: Callable[[Any], Any] = real) -> Rule:
    return for_stage(key, stage_of, convert)


_CUT = only("keep_start", "the end of a sequence is cut here, never its beginning", "as here")
_PACKED = drops("the last part of a row that is too long is cut", "truncation_mode")["truncation_mode"]
RULES: dict[str, Rule] = {
    **{key: _to(key) for key in TAKES if key not in ("loss_type", "loss_weights", "label_smoothing", "use_weighting")},
    **each(_command, " ".join(f"{TRL_COMMAND}.{name}" for name in (*STAGES, "grpo"))),
    "loss_type": _loss,
    "loss_weights": _to("loss_weights", reals),
    "use_weighting": _to("use_weighting", flag),
    "label_smoothing": _smoothing,
    "rpo_alpha": _cross_entropy,
    "cpo_alpha": _cpo_alpha,
    "discopop_tau": _temperature,
    "reference_free": _no_reference,
    "f_divergence_type": only("reverse_kl", "the divergence from the reference is the reverse KL here", "as here"),
    **{name: _ppo(*to) for name, to in OF_PPO.items()},
    **each(_model, "model_name_or_path sft_model_path"),
    "reward_model_path": _reward_model,
    "total_episodes": _episodes,
    "truncation_mode": _in_preference(_CUT, _PACKED),
    "disable_dropout": _dropout,
    **drops(IS_MEASURED, "precompute_ref_log_probs precompute_ref_batch_size reference_batch_size"),
    **drops(OWN_REFERENCE, "ref_model ref_model_init_kwargs ref_model_init_kwargs.* ref_adapter_name model_adapter_name"
                           " force_use_ref_model sync_ref_model", matters=True),
    **drops("sync_ref_model is off: it has no effect there either", "ref_model_mixup_alpha ref_model_sync_steps"),
    **drops("f_divergence_type is reverse_kl: it has no effect there either", "f_alpha_divergence_coef"),
    **drops(ONE_LENGTH, "max_prompt_length max_completion_length max_target_length", matters=True),
    **drops("labels and padding are made here", "label_pad_token_id padding_value is_encoder_decoder tools"),
    **drops("evaluation measures loss, accuracy and margin", "generate_during_eval"),
    **drops("logits are never made whole here", "use_logits_to_keep use_liger_loss base_model_attribute_name"),
    **drops("an answer ends with the model's end tokens", "stop_token stop_token_id"),
    **drops("set eval.sample_prompts to see answers", "num_sample_generations"),
    **drops("not built", "alpha", matters=True),
    **drops("it is for stage grpo", OF_GRPO),
    **drops("it is for TRL's RLOO", f"{TRL_COMMAND}.rloo {OF_RLOO}", matters=True),
}  # fmt: skip


def suppose(draft: ProfileDraft) -> None:
    """The stage and what its trainer does where the file says nothing."""
    name, why = trainer(draft)
    stage = stage_of(draft)
    if is_rloo(draft):
        draft.refused = f'{RLOO}, is not built: trl grpo\'s keys with grpo.adv_estimator = "rloo" are nearest'
        draft.suppose("run.stage", stage)
    elif why:
        draft.suppose("run.stage", stage, why)
    else:
        draft.leave_open("run.stage", stage, "the file does not say by which trainer; ORPO's has the same keys")
    if stage == "simpo" and draft.raw("cpo_alpha") is None:
        draft.drop_part("cpo_alpha where nothing is said", 1.0, CPO_SIMPO)
    if name == "ppo":
        draft.suppose("ppo.max_completion_length", 53)
        room = 1024 + draft.given("ppo.max_completion_length")
        draft.suppose("data.max_length", room, "nothing is cut there: a prompt, and its answer")
        if (draft.given("ppo.num_mini_batches") or 1) > 1:
            why = "here num_mini_batches multiplies it: divide train.gradient_accumulation_steps by it"
            draft.drop_part("a batch divided into", draft.raw("num_mini_batches"), why)
    if name == "kto":
        draft.suppose("train.train_sampling_strategy", "sequential", "TRL's kto does not shuffle")
