"""What a run that learns from its own answers writes of them, each before it is used."""

from collections.abc import Sequence

from ftui.runs.records.record import Record


class AnswersGenerated(Record, frozen=True, tag="answers_generated"):
    """The answers of rollout `number` (from 0) lie on the disk, not scored yet. `hash`: SHA-256 (hex) of their file.

    `step`: the last finished step, whose weights gave them; `weights`: what is known of these weights
    (engine/reinforcement/made_rollouts.py).
    """

    number: int
    step: int
    hash: str
    weights: str
    num_answers: int
    num_tokens: int
    seconds: float


class RolloutMade(Record, frozen=True, tag="rollout_made"):
    """Rollout `number` is scored and lies on the disk; steps train on it from now on. Fields as above.

    `num_answers`, `num_tokens` and `reward` are of all answers that were sampled for it, those to the `num_left_out`
    prompts among them that nothing is trained on (grpo.dynamic_sample). `rewards`: what is known of the functions that
    scored it. `reward`: the mean; `None` where no answer has one. The seconds are those of generating and of scoring, 0
    where the answers were there already.
    """

    number: int
    step: int
    hash: str
    weights: str
    rewards: str
    num_answers: int
    num_tokens: int
    reward: float | None
    generation_seconds: float
    scoring_seconds: float
    num_left_out: int = 0
    non_finite: list[str] = []


RolloutRecord = AnswersGenerated | RolloutMade

Pauses = Sequence[tuple[float, float]]
"""Times at which a run stood still, from and until (unix seconds)."""


def time_left_by_rollouts(
    first: RolloutMade, newest: RolloutMade, step_time: float, max_steps: int, pauses: Pauses
) -> float | None:
    """Seconds from `step_time`, that of the last step, to the end: a rollout costs much, and the steps on it little.

    The pace is that from the first rollout of an attempt to its newest; `None` before the second. What is left is
    counted from the newest, and after the last steps no rollout is made.
    """
    steps_done, spent = newest.step - first.step, working_seconds(first.time, newest.time, pauses)
    if steps_done <= 0 or spent <= 0:
        return None
    since = working_seconds(newest.time, max(newest.time, step_time), pauses)
    making = newest.generation_seconds + newest.scoring_seconds
    return max(0.0, spent / steps_done * (max_steps - newest.step) - making - since)


def working_seconds(start: float, end: float, pauses: Pauses) -> float:
    """From `start` to `end`, without the pauses between."""
    return end - start - sum(max(0.0, min(after, end) - max(begin, start)) for begin, after in pauses)
