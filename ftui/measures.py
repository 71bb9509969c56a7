"""What is measured of a model beside its loss: names are those of transformers and TRL."""

from collections.abc import Mapping
from typing import NamedTuple, Protocol

TOKENS = ("sft", "pretrain")
PAIRS = ("dpo", "orpo", "simpo", "cpo")
REWARDED = (*PAIRS, "rm")
SAMPLED = ("grpo", "ppo")
PPO = ("ppo",)


class Measure(NamedTuple):
    """A figure that steps and evaluations have.

    `greater_is_better`: `None` where neither is, so that it chooses no checkpoint. `stages`: those that measure it.
    """

    words: str
    short: str
    greater_is_better: bool | None
    stages: tuple[str, ...]

    @property
    def chooses(self) -> bool:
        """Whether a best checkpoint can be chosen by it."""
        return self.greater_is_better is not None


TEXT_MEASURES = {
    "exact_match": Measure("exact match", "exact", True, ("sft",)),
    "token_f1": Measure("token f1", "f1", True, ("sft",)),
    "rouge_l": Measure("rouge-l", "rouge-l", True, ("sft",)),
    "chrf": Measure("chrf", "chrf", True, ("sft",)),
    "bleu": Measure("bleu", "bleu", True, ("sft",)),
    "json_valid": Measure("valid json", "json", True, ("sft",)),
    "stopped": Measure("stop rate", "stopped", True, ("sft",)),
    "num_tokens": Measure("answer tokens", "tokens", None, ("sft",)),
}
"""What is measured of generated answers, by name, in the order in which it is shown.

How each is computed is in ftui/evaluation/text_measures.py. `chrf` and `bleu` are from 0 to 100, as is usual, the
others from 0 to 1, but for the number of tokens.
"""

MEASURES = {
    "loss": Measure("loss", "loss", False, (*TOKENS, *REWARDED, "kto", *SAMPLED)),
    "mean_token_accuracy": Measure("token accuracy", "accuracy", True, TOKENS),
    "perplexity": Measure("perplexity", "perplexity", False, TOKENS),
    "rewards/accuracies": Measure("reward accuracy", "accuracy", True, REWARDED),
    "rewards/margins": Measure("reward margin", "margin", True, (*REWARDED, "kto")),
    "rewards/chosen": Measure("chosen reward", "chosen", True, (*REWARDED, "kto")),
    "rewards/rejected": Measure("rejected reward", "reject", None, (*REWARDED, "kto")),
    "logps/chosen": Measure("chosen log-prob", "logp ch", True, (*PAIRS, "kto")),
    "logps/rejected": Measure("rejected log-prob", "logp rej", None, (*PAIRS, "kto")),
    "reward": Measure("reward", "reward", True, SAMPLED),
    "reference_reward": Measure("reward of the rows' answers", "reference", None, SAMPLED),
    "reward_std": Measure("spread of rewards in a group", "spread", None, ("grpo",)),
    "frac_reward_zero_std": Measure("groups without spread", "no spread", None, ("grpo",)),
    "num_groups_left_out": Measure("groups left out", "left out", None, ("grpo",)),
    "completions/mean_length": Measure("answer tokens", "tokens", None, SAMPLED),
    "completions/clipped_ratio": Measure("answers cut off", "cut off", None, SAMPLED),
    "completions/identical_ratio": Measure("identical answers", "same", None, ("grpo",)),
    "clip_ratio/region_mean": Measure("clipped ratios", "clipped", None, ("grpo",)),
    "entropy": Measure("entropy", "entropy", None, SAMPLED),
    "kl": Measure("kl to reference", "kl", None, ("kto", "grpo")),
    "objective/kl": Measure("kl to reference", "kl", None, PPO),
    "objective/kl_coef": Measure("coefficient of the kl", "kl coef", None, PPO),
    "objective/scores": Measure("scores", "scores", None, PPO),
    "objective/rlhf_reward": Measure("score less kl", "rlhf", None, PPO),
    "objective/entropy": Measure("nats of an answer", "nats", None, PPO),
    "policy/clipfrac_avg": Measure("clipped ratios", "clipped", None, PPO),
    "policy/approxkl_avg": Measure("move since sampling", "moved", None, PPO),
    "loss/value_avg": Measure("loss of the values", "val loss", None, PPO),
    "val/clipfrac_avg": Measure("clipped values", "val clip", None, PPO),
    "val/var_explained": Measure("explained variance", "explained", None, PPO),
    "nll_loss": Measure("chosen nll", "nll", False, ("orpo", "cpo")),
    "log_odds_ratio": Measure("log odds ratio", "log odds", True, ("orpo",)),
    **TEXT_MEASURES,
}
"""By name, in the order in which they are shown."""


class Evaluated(Protocol):
    """What an evaluation has measured."""

    @property
    def loss(self) -> float | None: ...

    @property
    def extras(self) -> Mapping[str, float | None]: ...


def leading_measure(evaluation: Evaluated) -> tuple[str, float | None]:
    """The name and the value of what an evaluation is told by: its loss, or the mean reward where it has that."""
    if evaluation.loss is None and "reward" in evaluation.extras:
        return "reward", evaluation.extras["reward"]
    return "loss", evaluation.loss
