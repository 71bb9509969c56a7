"""What the tools that train by preferences have in common: their keys of the loss, and what a stage makes of them."""

from collections.abc import Callable, Collection
from typing import Any

from ftui.importers.config_file import Leaf
from ftui.importers.draft import ProfileDraft
from ftui.importers.rules import Rule
from ftui.importers.values import Unfit, real, texts
from ftui.profile.sections.preference import COMPARING_STAGES, LOSSES, TAKES

StageOf = Callable[[ProfileDraft], str]
"""The stage here that a file of a tool trains in."""

SMOOTHED = ("robust", "exo_pair")
"""The losses of stage `dpo` that TRL smooths labels in."""

IS_MEASURED = "the reference is measured once here, before the first step"
OWN_REFERENCE = "the reference is the model that the run starts from"
ONE_LENGTH = "a prompt and its answer share one length here, data.max_length, and the end is cut"
NO_DROPOUT = "disable_dropout, on there unless the file says otherwise, turns it off"
CPO_SIMPO = "there the cross-entropy of the chosen answers is added to SimPO; stage simpo has none, stage cpo no simpo"


def for_stage(key: str, stage_of: StageOf, convert: Callable[[Any], Any] = real) -> Rule:
    """Carry to a key of `[preference]` in the stages that have it."""

    def rule(draft: ProfileDraft, leaf: Leaf) -> None:
        if stage_of(draft) in TAKES[key]:
            draft.carry(leaf, f"preference.{key}", convert(leaf.value))
        else:
            draft.drop(leaf, f"it is for stage {', '.join(sorted(TAKES[key]))}")

    return rule


def losses(value: Any, stage: str) -> list[str]:
    """The losses that a key names, one or several.

    Raises:
        Unfit: the stage does not have one of them.
    """
    kinds = texts(value)
    if others := [kind for kind in kinds if kind not in LOSSES[stage]]:
        raise Unfit(f"there is no loss {others[0]}; stage {stage} has {', '.join(LOSSES[stage])}")
    return kinds


def one_or_list(values: list[Any]) -> Any:
    """As a profile is best read."""
    return values[0] if len(values) == 1 else values


def carry_cross_entropy(draft: ProfileDraft, leaf: Leaf, kinds: list[str]) -> None:
    """A factor of the cross-entropy of the chosen answers, which is added to the losses `kinds` of stage `dpo`."""
    if not (factor := real(leaf.value)):
        return draft.drop(leaf, "off: nothing is added to the loss")
    draft.carry(leaf, "preference.loss_type", [*kinds, "sft"], "a mean over all tokens of the chosen answers")
    draft.suppose("preference.loss_weights", [*(1.0 for _ in kinds), factor], leaf.last)


def carry_smoothing(draft: ProfileDraft, leaf: Leaf, stage: str, kinds: Collection[str]) -> None:
    """TRL smooths labels in few losses of stage `dpo`: its sigmoid takes no notice of the key."""
    if not real(leaf.value):
        draft.drop(leaf, "0: as here where nothing is said")
    elif stage == "dpo" and not set(SMOOTHED) & set(kinds):
        draft.drop(leaf, "TRL uses it with robust and exo_pair only; with sigmoid it is cDPO here")
    elif stage == "dpo" and not set(SMOOTHED) >= set(kinds):
        raise Unfit("TRL uses it with robust and exo_pair only, and here one value is for all losses")
    elif stage == "cpo" and not {"sigmoid"} >= set(kinds):
        draft.drop(leaf, "TRL uses it with sigmoid only")
    else:
        for_stage("label_smoothing", lambda draft: stage)(draft, leaf)


def no_dropout(draft: ProfileDraft, leaf: Leaf) -> None:
    """The dropout of an adapter where the tool turns all of it off."""
    draft.drop(leaf, NO_DROPOUT)


def usual_rate(stage: str) -> float | None:
    """The learning rate of TRL's trainers of a stage, as far as it compares answers."""
    return (1e-4 if stage == "rm" else 1e-6) if compares(stage) else None


def compares(stage: str) -> bool:
    """Whether the stage is one of those on answers that were compared."""
    return stage in COMPARING_STAGES
