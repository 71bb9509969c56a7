"""What the stages that train on answers of the model itself ask of other keys."""

from collections.abc import Iterator

from ftui.profile.checks.known_values import EVAL_ROWS, KnownValues, contradiction
from ftui.profile.origins import ProfileFault
from ftui.profile.sections.sampled_stages import POLICY_STAGES, GrpoSection, PpoSection, SamplingSection

SECTIONS: dict[str, type[SamplingSection]] = {"grpo": GrpoSection, "ppo": PpoSection}


def _keys_of_the_stage(values: KnownValues) -> Iterator[ProfileFault]:
    stage = values("run.stage")
    for name, section in SECTIONS.items():
        for key in section.model_fields if name != stage else ():
            if values.is_wished(f"{name}.{key}"):
                why = f"{name}.{key} is for stage {name}, and this is stage {stage}"
                yield contradiction(f"{name}.{key} run.stage", why, f"Leave {key} out.")


def _whole_groups(values: KnownValues) -> Iterator[ProfileFault]:
    if values("run.stage") != "grpo":
        return
    train, size = values("train"), values("grpo.num_generations")
    answers = values("train.effective_batch") or (
        train.per_device_train_batch_size * train.gradient_accumulation_steps * values("hardware.num_processes")
    )
    if answers % size:
        key = "effective_batch" if train.effective_batch else "gradient_accumulation_steps"
        why = f"a step has {answers} answers, which are no whole groups of num_generations = {size}"
        fix = f"Set train.effective_batch = {max(size, answers // size * size)}."
        yield contradiction(f"train.{key} grpo.num_generations", why, fix)


def _room_for_answers(values: KnownValues) -> Iterator[ProfileFault]:
    if (stage := values("run.stage")) not in POLICY_STAGES:
        return
    longest, length = values(f"{stage}.max_completion_length"), values("data.max_length")
    if longest >= length:
        why = f"an answer of {longest} tokens leaves no prompt room in max_length = {length}"
        fix = f"Raise data.max_length to the longest prompt and {longest}, or lower max_completion_length."
        yield contradiction(f"{stage}.max_completion_length data.max_length", why, fix)


def _steered(values: KnownValues) -> Iterator[ProfileFault]:
    if values("run.stage") != "ppo":
        return
    if values("ppo.target") is not None and not values("ppo.kl_coef"):
        why = "target steers kl_coef by factors, and it is 0"
        yield contradiction("ppo.target ppo.kl_coef", why, "Set kl_coef = 0.2, or leave target out.")
    if values.is_wished("ppo.horizon") and values("ppo.target") is None:
        yield contradiction("ppo.horizon ppo.target", "horizon is for target, which is not set", "Leave horizon out.")


def _sampled_again(values: KnownValues) -> Iterator[ProfileFault]:
    if values("run.stage") != "grpo" or values("grpo.dynamic_sample"):
        return
    if values.is_wished("grpo.max_resample_times"):
        why = "max_resample_times is for dynamic_sample, which is off"
        yield contradiction("grpo.max_resample_times grpo.dynamic_sample", why, "Set dynamic_sample = true.")


def _evaluated(values: KnownValues) -> Iterator[ProfileFault]:
    stage = values("run.stage")
    if stage not in POLICY_STAGES or values(f"{stage}.num_generations_eval") is None:
        return
    if not any(values(dotted) is not None for dotted in EVAL_ROWS):
        why = "num_generations_eval is for evaluations, and there are no rows for them"
        yield contradiction(f"{stage}.num_generations_eval data.eval", why, "Set data.eval, or leave it out.")


def _what_is_not_sampled(values: KnownValues) -> Iterator[ProfileFault]:
    """Keys that say what is trained on of answers which are there before, or how it is measured."""
    if (stage := values("run.stage")) not in POLICY_STAGES:
        return
    unwanted = {
        "data.packing": "packs rows whose answers are not there yet",
        "train.label_smoothing_factor": "spreads a target token, and a reward is for the one that was sampled",
        "train.neftune_noise_alpha": "puts noise on what is compared with how likely it was without",
        "adapter.lora_dropout": "takes other inputs from an answer than it was sampled with",
    }
    for key, why in unwanted.items():
        if values(key):
            yield contradiction(f"{key} run.stage", f"{key} {why}", f"Leave {key.partition('.')[2]} out.")
    if values("data.loss_on") != "assistant":
        yield contradiction("data.loss_on run.stage", f"stage {stage} trains on its own answers", "Leave loss_on out.")
    if values("data.format") not in ("auto", "prompt"):
        why = f"stage {stage} reads rows of format 'prompt', and format is {values('data.format')!r}"
        yield contradiction("data.format run.stage", why, "Leave format out; data.columns names the prompt's column.")
    if values("curriculum"):
        yield contradiction("curriculum run.stage", f"stage {stage} has no curriculum", "Leave the tables out.")


def _acting(values: KnownValues) -> Iterator[ProfileFault]:
    if not values("health.act_on"):
        return
    if (stage := values("run.stage")) not in POLICY_STAGES:
        why = f"health.act_on names rules about sampled answers, and stage {stage} has none"
        yield contradiction("health.act_on run.stage", why, "Leave act_on out.")
    elif values("health.on_red") == "warn":
        why = 'health.act_on does what health.on_red says, and that is "warn"'
        yield contradiction("health.act_on health.on_red", why, 'Set on_red = "pause" or "park".')


def _whole_value_head(values: KnownValues) -> Iterator[ProfileFault]:
    if values("run.stage") == "ppo" and not values("adapter").is_lora and values("hardware.shard") != "none":
        why = "shard divides all weights of full fine-tuning, and the value head of stage ppo is whole on each process"
        fix = 'Set adapter.method = "lora", beside whose divided base it is trained, or leave shard out.'
        yield contradiction("hardware.shard run.stage", why, fix)


def _whole_reference(values: KnownValues) -> Iterator[ProfileFault]:
    """Weights that change places with those of the start are tried whole only."""
    stage, adapter = values("run.stage"), values("adapter")
    if stage not in POLICY_STAGES or not values(stage).has_reference or values("hardware.shard") == "none":
        return
    if not adapter.is_lora or adapter.name_or_path is not None:
        key = "beta" if stage == "grpo" else "kl_coef"
        why = f"{key} holds the model to weights that it keeps whole, and shard divides them"
        fix = f'Set adapter.method = "lora" without name_or_path, leave shard out, or set {key} = 0.'
        yield contradiction(f"{stage}.{key} hardware.shard", why, fix)


CHECKS = (
    _keys_of_the_stage, _whole_groups, _room_for_answers, _steered, _sampled_again, _evaluated,
    _what_is_not_sampled, _acting, _whole_value_head, _whole_reference,
)  # fmt: skip
