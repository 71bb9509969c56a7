"""`[grpo]` and `[ppo]`: how answers are sampled, and what becomes of their rewards. Names and defaults are TRL's."""

from typing import Any, Literal

from pydantic import field_validator

from ftui.profile.sections.fields import Section, weights

POLICY_STAGES = frozenset({"grpo", "ppo"})
"""Stages that train on answers which the model gives itself. Each has a section of its name."""


class SamplingSection(Section):
    """How a model answers the prompts that it learns from."""

    max_completion_length: int = weights(512, ge=1)
    """Most tokens of an answer. data.max_length has to hold it behind the prompt."""

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
    """Most answers that a process generates at once. Default: all of its part of a rollout. Where memory runs out it is
    halved."""

    num_generations_eval: int | None = weights(None, ge=1)
    """Answers to each prompt of an evaluation, sampled as in training. Default: one, greedily."""


class GrpoSection(SamplingSection):
    """`[grpo]`: groups of answers to each prompt, and the loss that makes the better ones likelier."""

    num_generations: int = weights(8, ge=2)
    """Answers to each prompt: a group, whose mean reward each of them is compared with. Those of a step
    (train.effective_batch) must be a multiple of it."""

    steps_per_generation: int = weights(1, ge=1)
    """Steps whose prompts are answered at once. More make better use of a GPU, and train on answers of an older
    model. (TRL counts micro-batches here.)"""

    num_iterations: int = weights(1, ge=1)
    """Steps on the same answers."""

    dynamic_sample: bool = weights(False)
    """Leave out groups whose answers all have the same reward, which teach nothing, and answer further prompts in
    their place (DAPO). How many prompts the steps take is then known as they are made. (Keys of ms-swift; verl:
    filter_groups.)"""

    max_resample_times: int = weights(3, ge=1)
    """How often further prompts are answered for the same steps with dynamic_sample, at most; what is missing then is
    filled with groups that were left out."""

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
    """How strongly the model is held to the one that the run began from, by their divergence. That one is the model
    without its new adapter; where there is none, its trained weights as they were are kept in host memory."""

    use_bias_correction_kl: bool = weights(True)
    """Weigh that divergence by the ratio of each token, which makes its gradient unbiased."""

    scale_rewards: Literal["group", "batch", "none"] = weights("group")
    """What a reward's distance from the mean is divided by: the standard deviation of its `group`, of the whole
    rollout (`batch`), or nothing (`none`)."""

    adv_estimator: Literal["grpo", "rloo"] = weights("grpo")
    """What a reward is compared with: `grpo`, the mean of its group; `rloo`, the mean of the others in it."""

    mask_truncated_completions: bool = weights(False)
    """Do not train on answers that reach max_completion_length without an end."""

    @field_validator("scale_rewards", mode="before")
    @classmethod
    def _is_a_choice(cls, given: Any) -> Any:
        if given is None or isinstance(given, bool):  # "none" arrives as None
            return "group" if given else "none"
        return given

    @property
    def steps_and_passes(self) -> tuple[int, int]:
        """Steps on other answers of a rollout, and how often all of them come."""
        return self.steps_per_generation, self.num_iterations

    @property
    def has_reference(self) -> bool:
        """Whether the model is held to the one that the run began from."""
        return self.beta > 0


class PpoSection(SamplingSection):
    """`[ppo]`: an answer to each prompt, a value head that says before each token what reward is to come, and the loss
    of both."""

    temperature: float = weights(0.7, gt=0)
    """Temperature of sampling; the loss divides the logits by it, too."""

    num_ppo_epochs: int = weights(4, ge=1)
    """Passes over the same answers."""

    num_mini_batches: int = weights(1, ge=1)
    """Steps of a pass: as many times train.effective_batch prompts are answered at once. (TRL divides the batch by it,
    here it multiplies.)"""

    kl_coef: float = weights(0.05, ge=0)
    """What a token costs for each nat that it moves the model away from the one that the run began from. That one is
    the model without its new adapter; where there is none, its trained weights as they were are kept in host memory."""

    kl_estimator: Literal["k1", "k3"] = weights("k1")
    """How that distance is told from a sampled token: `k1`, by its log-ratio; `k3`, by what is never negative."""

    target: float | None = weights(None, gt=0)
    """Nats of an answer that kl_coef is steered to: it rises while answers are farther away, and falls while they are
    nearer. 6 is usual. Default: kl_coef stays as it is."""

    horizon: int = weights(10000, ge=1)
    """Answers over which the steering with `target` works: fewer are faster."""

    cliprange: float = weights(0.2, gt=0)
    """How far the ratio of a token may go from 1 before it stops counting."""

    vf_coef: float = weights(0.1, ge=0)
    """Weight of the loss of the value head."""

    cliprange_value: float = weights(0.2, gt=0)
    """How far a value may go from what it was when the answer was given before it stops counting."""

    gamma: float = weights(1.0, gt=0, le=1)
    """What a reward counts one token earlier."""

    lam: float = weights(0.95, ge=0, le=1)
    """Lambda of the generalised advantages: 1 trusts the rewards alone, 0 the next value."""

    whiten_rewards: bool = weights(False)
    """Divide the rewards of tokens by their standard deviation in a rollout."""

    use_score_norm: bool = weights(False)
    """Take from each score the mean of all scores so far, and divide by their standard deviation."""

    missing_eos_penalty: float | None = weights(None, gt=0)
    """Taken off the score of an answer that is cut off."""

    @property
    def num_generations(self) -> int:
        """Answers to each prompt."""
        return 1

    @property
    def mask_truncated_completions(self) -> bool:
        """Answers that were cut off are trained on."""
        return False

    @property
    def steps_and_passes(self) -> tuple[int, int]:
        """Steps on other answers of a rollout, and how often all of them come."""
        return self.num_mini_batches, self.num_ppo_epochs

    @property
    def has_reference(self) -> bool:
        """Whether the model is held to the one that the run began from."""
        return self.kl_coef > 0
