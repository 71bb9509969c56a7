"""What the stages that compare answers ask of other keys."""

from collections.abc import Iterator

from ftui.profile.checks.known_values import KnownValues, contradiction
from ftui.profile.origins import ProfileFault
from ftui.profile.sections.preference import COMPARING_STAGES, LOSSES, PAIR_STAGES, TAKES, VERDICT_STAGES

FORMS = ((PAIR_STAGES, ("preference",)), (VERDICT_STAGES, ("kto", "preference")))
"""Stages and the forms of rows that they compare; a pair is two verdicts."""


SMOOTHED = frozenset({"sigmoid", "sigmoid_norm", "robust", "exo_pair"})
"""The losses that take some verdicts to be wrong."""


def _keys_of_the_stage(values: KnownValues) -> Iterator[ProfileFault]:
    stage = values("run.stage")
    for key, stages in TAKES.items():
        if stage not in stages and values.is_wished(f"preference.{key}"):
            what = ", ".join(sorted(stages))
            why = f"preference.{key} is for stage {what}, and this is stage {stage}"
            yield contradiction(f"preference.{key} run.stage", why, f"Leave {key} out.")


def _losses(values: KnownValues) -> Iterator[ProfileFault]:
    kinds, stage = values("preference.loss_type"), values("run.stage")
    if kinds is None or stage not in LOSSES:
        return
    others = [kind for kind in kinds if kind not in LOSSES[stage]]
    if others or not kinds or len(set(kinds)) < len(kinds):
        why = f"loss_type {others[0]!r} is not one of stage {stage}" if others else "loss_type names a loss twice"
        fix = f"There are {', '.join(LOSSES[stage])}."
        yield contradiction("preference.loss_type run.stage", why if kinds else "loss_type names no loss", fix)
    elif stage == "kto" and len(kinds) > 1:
        yield contradiction("preference.loss_type run.stage", "stage kto has one loss", 'loss_type = "kto" is usual.')


def _loss_weights(values: KnownValues) -> Iterator[ProfileFault]:
    weights, kinds = values("preference.loss_weights"), values("preference.loss_type") or ("",)
    if any(weight <= 0 for weight in weights or ()):
        why = "loss_weights has a factor that is not above 0, which would turn its loss around or leave it out"
        yield contradiction("preference.loss_weights", why, "Leave out a loss that shall not count.")
    if weights is not None and len(weights) != len(kinds):
        why = f"loss_weights has {len(weights)} factors, and loss_type {len(kinds)} losses"
        yield contradiction("preference.loss_weights preference.loss_type", why, "Give each loss one factor.")


def _label_smoothing(values: KnownValues) -> Iterator[ProfileFault]:
    smoothing, kinds = values("preference.label_smoothing"), values("preference.loss_type") or ()
    if "exo_pair" in kinds and not smoothing:
        why = 'loss_type "exo_pair" takes the logarithm of label_smoothing, which is 0'
        fix = "Set label_smoothing = 1e-3, as TRL does."
        yield contradiction("preference.label_smoothing preference.loss_type", why, fix)
    if smoothing and values("run.stage") in ("dpo", "cpo") and kinds and not SMOOTHED.intersection(kinds):
        why = f"label_smoothing has no effect on loss_type {', '.join(map(repr, kinds))}"
        fix = f"It is for {', '.join(sorted(SMOOTHED))}."
        yield contradiction("preference.label_smoothing preference.loss_type", why, fix)


def _discopop(values: KnownValues) -> Iterator[ProfileFault]:
    kinds = values("preference.loss_type") or ()
    if values.is_wished("preference.discopop_tau") and values("run.stage") == "dpo" and "discopop" not in kinds:
        why = "discopop_tau is the temperature of the loss discopop, which is not in loss_type"
        yield contradiction("preference.discopop_tau preference.loss_type", why, 'Set loss_type = "discopop".')


def _answers_only(values: KnownValues) -> Iterator[ProfileFault]:
    stage = values("run.stage")
    if stage not in COMPARING_STAGES:
        return
    if values("data.loss_on") == "everything":
        why = f"stage {stage} compares answers, and loss_on = 'everything' would compare prompts too"
        yield contradiction("data.loss_on run.stage", why, "Leave loss_on out.")
    if values("train.label_smoothing_factor"):
        why = f"label_smoothing_factor spreads a target token, which stage {stage} does not do"
        yield contradiction("train.label_smoothing_factor run.stage", why, "preference.label_smoothing is cDPO.")
    if values("train.neftune_noise_alpha") is not None:
        why = f"neftune_noise_alpha would put noise on what stage {stage} compares"
        yield contradiction("train.neftune_noise_alpha run.stage", why, "Leave it out.")
    if values("adapter.lora_dropout"):
        why = f"lora_dropout would take other inputs from each answer that is compared, and stage {stage} drops nothing"
        yield contradiction("adapter.lora_dropout run.stage", why, "Leave it out.")
    if any(one.sort_by == "loss" for one in values("curriculum")):
        why = f"a curriculum cannot sort the rows of stage {stage} by the base model's loss"
        yield contradiction("curriculum run.stage", why, 'Set sort_by to "length".')


def _scores_only(values: KnownValues) -> Iterator[ProfileFault]:
    if values("run.stage") != "rm":
        return
    if values("model.from_scratch") is not None:
        why = "a reward model begins with a model that reads, and one from scratch does not"
        yield contradiction("model.from_scratch run.stage", why, "Set model.name_or_path.")
    if values("eval.sample_prompts"):
        why = "a reward model gives scores, and answers no prompts"
        yield contradiction("eval.sample_prompts run.stage", why, "Leave sample_prompts out.")


def _form_of_the_stage(values: KnownValues) -> Iterator[ProfileFault]:
    stage, form = values("run.stage"), values("data.format")
    wanted = next((forms for stages, forms in FORMS if stage in stages), ())
    if wanted and form not in ("auto", *wanted):
        names = " or ".join(map(repr, wanted))
        why = f"stage {stage} trains on rows of format {names}, and format is {form!r}"
        yield contradiction("data.format run.stage", why, "Leave format out.")


CHECKS = (
    _keys_of_the_stage, _losses, _loss_weights, _label_smoothing, _discopop, _answers_only, _scores_only,
    _form_of_the_stage,
)  # fmt: skip
