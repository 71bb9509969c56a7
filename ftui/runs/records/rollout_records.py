"""What a run that learns from its own answers writes of them, each before it is used."""

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
