"""What the rollouts of a run take apart from the steps on them."""

from ftui import units
from ftui.estimate import closed_form, disk, timing
from ftui.estimate.result import Duration
from ftui.estimate.setup import TrainingSetup
from ftui.profile.schema import Profile


def reuse_of_rollouts(profile: Profile) -> tuple[int, int]:
    """Steps on one rollout, and how many values are measured of each of its tokens before them: its log-probability
    under the model itself, and under the reference (engine/reinforcement/old_log_probs.py)."""
    steps = profile.grpo.steps_per_generation * profile.grpo.num_iterations
    return steps, (steps > 1) + (profile.grpo.beta > 0)


def kept_bytes(profile: Profile, setup: TrainingSetup, num_steps: int | None) -> int:
    """Bytes of all rollouts that are kept, at their most."""
    steps, num_measured = reuse_of_rollouts(profile)
    limit = profile.log.rollout_total_limit
    number = limit if num_steps is None else min(limit, -(-num_steps // steps))
    return number * disk.rollout_bytes(setup, num_measured)


def measured_tokens(profile: Profile, num_rollouts: int, tokens_per_step: float) -> float:
    """Of the passes before the steps, over all rollouts."""
    return num_rollouts * reuse_of_rollouts(profile)[1] * profile.grpo.steps_per_generation * tokens_per_step


def rollout_words(setup: TrainingSetup, time: Duration) -> str:
    """A sentence or two on one rollout."""
    rows, (generating, stepping) = setup.sampled, closed_form.phase_peaks(setup)
    assert rows is not None, "it samples its answers"
    seconds = ""
    if time.tokens_per_second is not None:
        seconds = f", in up to {units.duration(timing.generating_seconds(setup, time.tokens_per_second))}"
    each = f"{rows.num_rows} answers of up to {rows.new_tokens} tokens, {rows.at_once} at once{seconds}"
    return f"Each rollout: {each}. Generating takes {units.size(generating)} at most, a step {units.size(stepping)}."
