"""What a profile may say, and hardly anybody means: told as warnings where a run begins."""

from ftui.profile.schema import Profile
from ftui.units import duration

MANY_STEPS = 10_000_000
FAST = 100  # steps in a second: a tiny model on a fast card


def find_warnings(profile: Profile, num_steps: int) -> list[str]:
    """One line for each. `num_steps`: optimizer steps that the run will have."""
    warnings = []
    train = profile.train
    if train.warmup_steps >= 1 and train.warmup_steps >= num_steps:
        warnings.append(
            f"train.warmup_steps = {train.warmup_steps:g} is not less than the run's {num_steps} steps: the learning "
            f"rate never reaches {train.learning_rate:g} (0.1 is a tenth of all steps)"
        )
    if train.precision == "fp16" and profile.hardware.device == "cpu":
        warnings.append(
            'train.precision = "fp16" on a CPU is slow, and its gradients overflow: "fp32" or "auto" is for CPUs'
        )
    if num_steps > MANY_STEPS:
        cause = "the curriculum" if profile.curriculum else f"train.num_train_epochs = {train.num_train_epochs or 1:g}"
        if train.max_steps is not None and not profile.curriculum:
            cause = f"train.max_steps = {train.max_steps}"
        warnings.append(f"{cause} is {num_steps:,} steps: {duration(num_steps / FAST)} if {FAST} of them took a second")
    return warnings
