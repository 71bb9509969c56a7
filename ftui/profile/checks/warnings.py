"""What a profile may say and hardly anybody means: told as warnings, never as errors, and in one place.

What the values alone show is told by the form, a preview and everything that begins a run; what needs the rows counted,
by a dry run and at the start.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from ftui.profile.checks.plausible_ranges import find_implausible
from ftui.profile.origins import ProfileFault
from ftui.profile.schema import LogSection, Profile
from ftui.profile.sections.evaluation import CheckpointSection, EvalSection
from ftui.units import duration

MANY_STEPS = 10_000_000
FAST = 100  # steps in a second: a tiny model on a fast card
LONG_WARM_UP = 0.5  # share of the run
MANY_EPOCHS = 100


@dataclass(frozen=True)
class RunAmounts:
    """What a profile's rows amount to: steps of the run, sequences of an epoch (packed ones count once) and of a step;
    whether there are rows to evaluate on."""

    num_steps: int
    num_sequences: int
    effective_batch: int
    has_evaluation: bool


def find_warnings(profile: Profile, amounts: RunAmounts | None = None) -> list[ProfileFault]:
    """All of them, without origins; those on amounts where these are known."""
    warnings = [*find_implausible(profile)]
    for check_values in (_slow_precision, _idle_processes, _idle_offload):
        warnings += check_values(profile)
    if amounts is not None:
        for check in (_long_warm_up, _many_steps, _large_batch, _many_epochs, _periods_beyond_the_run):
            warnings += check(profile, amounts)
    return warnings


def warning_lines(warnings: Sequence[ProfileFault]) -> list[str]:
    """Each as a line: key, what is odd, what is usual."""
    return [f"{'.'.join(one.key)}: {one.message}. {one.fix}".strip() for one in warnings]


def _warning(dotted: str, message: str, fix: str = "") -> ProfileFault:
    return ProfileFault(tuple(dotted.split(".")), None, message, fix)


def _slow_precision(profile: Profile) -> Iterator[ProfileFault]:
    if profile.train.precision == "fp16" and profile.hardware.device == "cpu":
        why = '"fp16" on a CPU is slow, and its gradients overflow'
        yield _warning("train.precision", why, '"fp32" or "auto" is for CPUs.')


def _idle_processes(profile: Profile) -> Iterator[ProfileFault]:
    """The product of the keys that make an effective batch has no such remainder."""
    processes, batch, size = profile.hardware.num_processes, profile.effective_batch, profile.micro_batch
    number = -(-batch // size)
    if profile.train.effective_batch is not None and number % processes:
        idle, lack = processes - number % processes, "none" if number < processes else "one less"
        why = f"{batch} sequences a step make {number} micro-batches of at most {size}: {idle} of {processes} processes"
        yield _warning("hardware.num_processes", f"{why} get{'s' if idle == 1 else ''} {lack}", "The loss is the same.")


def _idle_offload(profile: Profile) -> Iterator[ProfileFault]:
    if profile.hardware.device != "cpu":
        return
    for key, is_on in (
        ("hardware.offload", profile.hardware.offload),
        ("train.activation_offload", profile.train.activation_offload),
    ):
        if is_on:
            yield _warning(key, "a CPU computes in host memory: it costs time there and frees none", "Leave it out.")


def _long_warm_up(profile: Profile, amounts: RunAmounts) -> Iterator[ProfileFault]:
    warm_up, steps, fix = profile.train.warmup_steps, amounts.num_steps, "0.1 is a tenth of all steps."
    if 1 <= warm_up >= steps:
        why = f"{warm_up:g} is not less than the run's {steps} steps: the learning rate never reaches its peak"
        yield _warning("train.warmup_steps", why, fix)
    elif warm_up >= 1 and warm_up / steps > LONG_WARM_UP:  # a share has a range of its own
        yield _warning("train.warmup_steps", f"{warm_up:g} is {warm_up / steps:.0%} of the run's {steps} steps", fix)


def _many_steps(profile: Profile, amounts: RunAmounts) -> Iterator[ProfileFault]:
    if amounts.num_steps > MANY_STEPS:
        key, value = _cause(profile)
        seconds = duration(amounts.num_steps / FAST)
        yield _warning(key, f"{value}{amounts.num_steps:,} steps: {seconds} if {FAST} of them took a second")


def _cause(profile: Profile) -> tuple[str, str]:
    """The key that says how many steps there are, and what it says."""
    if profile.curriculum:
        return "curriculum", "it has "
    if profile.train.max_steps is not None:
        return "train.max_steps", f"{profile.train.max_steps} is "
    return "train.num_train_epochs", f"{profile.train.num_train_epochs or 1:g} is "


def _large_batch(profile: Profile, amounts: RunAmounts) -> Iterator[ProfileFault]:
    if amounts.effective_batch > amounts.num_sequences:
        accumulation = profile.train.gradient_accumulation_steps
        key = "gradient_accumulation_steps" if accumulation > 1 else "per_device_train_batch_size"
        why = (
            f"a step takes {amounts.effective_batch:,} sequences, and an epoch has {amounts.num_sequences:,}: "
            "each epoch is one step"
        )
        yield _warning(f"train.{key}", why, "Lower it, so that an epoch has several steps.")


def _many_epochs(profile: Profile, amounts: RunAmounts) -> Iterator[ProfileFault]:
    if profile.train.max_steps is None or profile.curriculum:
        return  # num_train_epochs has a range of its own
    epochs = profile.train.max_steps * min(1.0, amounts.effective_batch / amounts.num_sequences)
    if epochs > MANY_EPOCHS:
        why = f"{profile.train.max_steps} steps are {epochs:,.0f} epochs of {amounts.num_sequences:,} sequences"
        yield _warning("train.max_steps", why, "1 to 5 epochs are usual.")


def _periods_beyond_the_run(profile: Profile, amounts: RunAmounts) -> Iterator[ProfileFault]:
    """A default is nobody's mistake: it suits longer runs."""
    section, saved = profile.eval, profile.checkpoint
    evaluates = amounts.has_evaluation and section.eval_strategy == "steps"
    periods = (
        ("eval.eval_steps", section.eval_steps, EvalSection().eval_steps, evaluates),
        ("eval.eval_delay", section.eval_delay + 1, 1, evaluates),
        (
            "checkpoint.save_steps",
            saved.save_steps or 0,
            CheckpointSection().save_steps,
            saved.save_strategy == "steps",
        ),
        ("log.logging_steps", profile.log.logging_steps, LogSection().logging_steps, True),
    )
    for key, period, default, counts in periods:
        if counts and period > amounts.num_steps and period != default:
            yield _warning(key, f"a run of {amounts.num_steps} steps ends before it", "Lower it.")
