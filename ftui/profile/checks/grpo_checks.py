"""What the stages that train on answers of the model itself ask of other keys."""

from collections.abc import Iterator

from ftui.profile.checks.known_values import EVAL_ROWS, KnownValues, contradiction
from ftui.profile.origins import ProfileFault
from ftui.profile.sections.sampled_stages import POLICY_STAGES, GrpoSection


def _keys_of_the_stage(values: KnownValues) -> Iterator[ProfileFault]:
    stage = values("run.stage")
    if stage in POLICY_STAGES:
        return
    for key in GrpoSection.model_fields:
        if values.is_wished(f"grpo.{key}"):
            why = f"grpo.{key} is for stage grpo, and this is stage {stage}"
            yield contradiction(f"grpo.{key} run.stage", why, f"Leave {key} out.")


def _whole_groups(values: KnownValues) -> Iterator[ProfileFault]:
    if values("run.stage") not in POLICY_STAGES:
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
    longest, length = values("grpo.max_completion_length"), values("data.max_length")
    if values("run.stage") in POLICY_STAGES and longest >= length:
        why = f"an answer of {longest} tokens leaves no prompt room in max_length = {length}"
        fix = f"Raise data.max_length to the longest prompt and {longest}, or lower max_completion_length."
        yield contradiction("grpo.max_completion_length data.max_length", why, fix)


def _reference(values: KnownValues) -> Iterator[ProfileFault]:
    if values("run.stage") not in POLICY_STAGES or not values("grpo.beta"):
        return
    adapter = values("adapter")
    if not adapter.is_lora:
        why = "beta holds the model to what it was, which full fine-tuning does not keep"
        yield contradiction("grpo.beta adapter.method", why, 'Set adapter.method = "lora", or leave beta out.')
    elif adapter.name_or_path is not None:
        why = "beta holds the model to its base, and this one begins with an adapter of its own"
        fix = "Merge the adapter first (ftui merge), or leave beta out."
        yield contradiction("grpo.beta adapter.name_or_path", why, fix)


def _what_is_not_sampled(values: KnownValues) -> Iterator[ProfileFault]:
    """Keys that say what is trained on of answers which are there before, or how it is measured."""
    if (stage := values("run.stage")) not in POLICY_STAGES:
        return
    for key in EVAL_ROWS:
        if values(key):
            why = f"stage {stage} measures rewards on the prompts it trains on, and evaluates no others"
            yield contradiction(f"{key} run.stage", why, f"Leave {key.partition('.')[2]} out.")
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


def _one_process(values: KnownValues) -> Iterator[ProfileFault]:
    if values("run.stage") in POLICY_STAGES and values("hardware.num_processes") > 1:
        why = "stage grpo generates and trains in one process"
        yield contradiction("hardware.num_processes run.stage", why, "Set num_processes = 1.")


CHECKS = (
    _keys_of_the_stage, _whole_groups, _room_for_answers, _reference, _what_is_not_sampled, _one_process,
)  # fmt: skip
