"""`[grpo]`: how answers are sampled and what the stage makes of their rewards. Names and defaults are TRL's."""

from typing import Any, Literal

from pydantic import field_validator

from ftui.profile.sections.fields import Section, weights

POLICY_STAGES = frozenset({"grpo"})
"""Stages that train on answers which the model gives itself."""


class GrpoSection(Section):
    """`[grpo]`: groups of answers to each prompt, and the loss that makes the better ones likelier."""

    num_generations: int = weights(8, ge=2)
    """Answers to each prompt: a group, whose mean reward each of them is compared with. Those of a step
    (train.effective_batch) must be a multiple of it."""

    max_completion_length: int = weights(512, ge=1)
    """Most tokens of an answer. data.max_length has to hold it behind the prompt."""

    steps_per_generation: int = weights(1, ge=1)
    """Steps whose prompts are answered at once. More make better use of a GPU, and train on answers of an older
    model. (TRL counts micro-batches here.)"""

    num_iterations: int = weights(1, ge=1)
    """Steps on the same answers."""

    loss_type: Literal["dapo", "grpo", "dr_grpo", "bnpo"] = weights("dapo")
    """How the losses of tokens become one: `dapo`, the mean over all tokens of a step; `grpo`, the mean over answers of
    the mean over their tokens; `dr_grpo`, their sum by max_completion_length; `bnpo`, as `dapo` (TRL: by batch)."""

    importance_sampling_level: Literal["token", "sequence"] = weights("token")
    """Whether each token, or each whole answer (GSPO), counts by how much likelier it has become."""

    epsilon: float = weights(0.2, ge=0)
    """How far that ratio may fall below 1 before it stops counting."""

    epsilon_high: float | None = weights(None, ge=0)
    """How far it may rise above 1. Default: epsilon. (DAPO: 0.28.)"""

    delta: float | None = weights(None, gt=0)
    """Largest ratio of a token in an answer worse than its group's mean, where epsilon does not bound it."""

    beta: float = weights(0.0, ge=0)
    """How strongly the model is held to the one that the run began from, by their divergence. Above 0 it takes an
    adapter: without it the model is its own reference."""

    use_bias_correction_kl: bool = weights(True)
    """Weigh that divergence by the ratio of each token, which makes its gradient unbiased."""

    scale_rewards: Literal["group", "batch", "none"] = weights("group")
    """What a reward's distance from the mean is divided by: the standard deviation of its `group`, of the whole
    rollout (`batch`), or nothing (`none`)."""

    adv_estimator: Literal["grpo", "rloo"] = weights("grpo")
    """What a reward is compared with: `grpo`, the mean of its group; `rloo`, the mean of the others in it."""

    mask_truncated_completions: bool = weights(False)
    """Do not train on answers that reach max_completion_length without an end."""

    temperature: float = weights(1.0, gt=0)
    """Temperature of sampling; the loss divides the logits by it, too."""

    top_p: float = weights(1.0, gt=0, le=1)
    """Sample from the likeliest tokens that have this probability together."""

    top_k: int = weights(0, ge=0)
    """Sample from so many of the likeliest tokens; 0 = from all."""

    min_p: float = weights(0.0, ge=0, le=1)
    """Sample from tokens with at least this share of the likeliest one's probability."""

    repetition_penalty: float = weights(1.0, gt=0)
    """Above 1, tokens of prompt and answer become less likely to come again."""

    max_num_seqs: int | None = weights(None, ge=1)
    """Most answers that are generated at once. Default: all of a rollout. Where memory runs out it is halved."""

    @field_validator("scale_rewards", mode="before")
    @classmethod
    def _is_a_choice(cls, given: Any) -> Any:
        if given is None or isinstance(given, bool):  # "none" arrives as None
            return "group" if given else "none"
        return given
