"""What the rollouts of a run take apart from the steps on them."""

from collections.abc import Mapping

from ftui import units
from ftui.estimate import closed_form, disk, timing
from ftui.estimate.measurements import PhaseMeasured, ProbeRecord
from ftui.estimate.result import Duration
from ftui.estimate.setup import TrainingSetup
from ftui.profile.schema import Profile


def reuse_of_rollouts(profile: Profile) -> tuple[int, int]:
    """Steps on one rollout, and how many values are measured of each of its tokens before them: its log-probability
    under the model itself, and under the reference (engine/reinforcement/old_log_probs.py)."""
    num_steps, num_passes = profile.sampled.steps_and_passes
    steps, is_ppo = num_steps * num_passes, profile.run.stage == "ppo"  # which has values of tokens, too
    return steps, (is_ppo or steps > 1) + is_ppo + profile.sampled.has_reference


def count_rollouts(profile: Profile, num_steps: int | None) -> int:
    """Those of so many steps; none where the stage has none."""
    return -(-(num_steps or 0) // reuse_of_rollouts(profile)[0]) if profile.samples_answers else 0


def kept_bytes(profile: Profile, setup: TrainingSetup, num_steps: int | None) -> int:
    """Bytes of all rollouts that are kept, at their most."""
    limit = profile.log.rollout_total_limit
    number = limit if num_steps is None else min(limit, count_rollouts(profile, num_steps))
    return number * disk.rollout_bytes(setup, reuse_of_rollouts(profile)[1])


def measured_tokens(profile: Profile, num_rollouts: int, tokens_per_step: float) -> float:
    """Of the passes before the steps, over all rollouts."""
    if not num_rollouts:
        return 0.0
    return num_rollouts * reuse_of_rollouts(profile)[1] * profile.sampled.steps_and_passes[0] * tokens_per_step


def rollout_seconds(probe: ProbeRecord) -> float | None:
    """Of one rollout with the longest answers, generated and scored, where the probe had one."""
    phases = [probe.rollout[name] for name in ("generating", "scoring") if name in probe.rollout]
    return sum(phase.seconds for phase in phases) or None


def rollout_words(profile: Profile, setup: TrainingSetup, time: Duration, measured: Mapping[str, PhaseMeasured]) -> str:
    """A few sentences on one rollout; `measured`: a probe of this very setting, if there was one."""
    rows, (generating, stepping) = setup.sampled, closed_form.phase_peaks(setup)
    assert rows is not None, "it samples its answers"
    seconds = ""
    if time.tokens_per_second is not None:
        seconds = f", in up to {units.duration(timing.generating_seconds(setup, time.tokens_per_second))}"
    if measured:
        both = [units.duration(measured[name].seconds) for name in ("generating", "scoring")]
        seconds = f", generated in up to {both[0]}, scored in {both[1]}"
    place = " in each process" if setup.num_processes > 1 else ""
    each = f"{rows.num_rows} answers of up to {rows.new_tokens} tokens, {rows.at_once} at once{place}{seconds}"
    peaks = [measured[name].process if name in measured else None for name in ("generating", "updating")]
    told = [units.size(peak or closed) for peak, closed in zip(peaks, (generating, stepping), strict=True)]
    words = f"Each rollout: {each}. Generating takes {told[0]} at most, a step {told[1]}."
    if not profile.draws_prompts:
        return words
    most = 1 + profile.grpo.max_resample_times
    return f"{words} dynamic_sample makes it up to {most} times as many where groups have no spread: not counted here."
