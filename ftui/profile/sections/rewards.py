"""`[rewards]`: what the answers of a run are rewarded for."""

from typing import Any

from pydantic import field_validator

from ftui.profile.sections.fields import Section, conduct, one_or_list, refuse_address, weights

REWARD_MODEL = "reward_model"
"""The reward that a model of its own gives."""

READY_OPTIONS: dict[str, tuple[str, ...]] = {
    "exact_answer": ("column",),
    "number_answer": ("column",),
    "maths": ("column",),
    "reasoning_gym": (),
    "format": ("pattern",),
    "json_schema": ("schema_file",),
    "length": ("max_length", "min_length"),
    "repetition": ("ngram_size", "penalty"),
    "overlong": ("max_length", "soft_punish_cache"),
    REWARD_MODEL: ("reward_model_name_or_path", "reward_model_revision"),
}
"""The rewards of ftui, and which keys of `[rewards]` each takes."""

NEEDED_OPTIONS = {
    "format": ("pattern",), "length": ("max_length",), "overlong": ("max_length", "soft_punish_cache"),
    REWARD_MODEL: ("reward_model_name_or_path",),
}  # fmt: skip
CODE_MARK = ".py:"
"""`FILE.py:NAME` is the function NAME of a person's file."""


class RewardsSection(Section):
    """`[rewards]`: what gives the rewards that stages grpo and ppo learn from (docs/rewards.md)."""

    reward_funcs: tuple[str, ...] = weights(())
    """What gives a reward for each answer, one or a list: `exact_answer`, `number_answer`, `maths`,
    `reasoning_gym`, `format`, `json_schema`, `length`, `repetition`, `overlong`, `reward_model`, or `FILE.py:NAME` for
    a function of your own with TRL's call. That file runs with `--allow reward-code` only."""

    reward_weights: tuple[float, ...] | None = weights(None)
    """What each reward counts in the sum. Default: 1 each."""

    reward_model_name_or_path: str | None = weights(None, min_length=1)
    """The model that `reward_model` asks for its score: the result of a run of stage rm (RUN/final), a folder, or a
    name on the hub, of a decoder for sequence classification with one label. It stays as it is."""

    reward_model_revision: str | None = weights(None, min_length=1)
    """Branch, tag or commit of it on the hub."""

    column: str | None = weights(None, min_length=1)
    """Column with the right answer, for `exact_answer`, `number_answer` and `maths`. Default: the first there is of
    `answer`, `solution`, `target`, `ground_truth`, `reference`, `completion`."""

    reference_column: str | None = weights(None, min_length=1)
    """Column with answers as they should be, whole: what they are rewarded with is `reference_reward` beside `reward`,
    and health tells where the model gets more than that."""

    pattern: str | None = weights(None, min_length=1)
    """Regular expression that `format` looks for in an answer; a dot stands for a line break, too."""

    schema_file: str | None = weights(None, min_length=1)
    """JSON schema that `json_schema` wants an answer to fit. Default: any JSON will do."""

    max_length: int | None = weights(None, ge=1)
    """Most tokens of an answer, for `length` (1 within the bounds, else 0) and `overlong`."""

    min_length: int = weights(0, ge=0)
    """Fewest tokens of an answer, for `length`."""

    ngram_size: int = weights(3, ge=1)
    """Words of a phrase that `repetition` counts."""

    penalty: float = weights(1.0, gt=0)
    """What `repetition` takes off where all is repeated: the share of repeated phrases times this."""

    soft_punish_cache: int | None = weights(None, ge=1)
    """Tokens before `max_length` over which `overlong` falls from 0 to -1."""

    timeout_seconds: float = conduct(60.0, gt=0)
    """How long a function may take for a call. Then its process is killed, and these answers go without it."""

    memory_gib: float | None = conduct(8.0, gt=0)
    """Address space of the process of each function. "none" = no limit."""

    @property
    def names(self) -> list[str]:
        """What each is called in tables and logs: a person's function as in its file."""
        return [name.rpartition(CODE_MARK)[2] for name in self.reward_funcs]

    @property
    def code_files(self) -> list[str]:
        """The files of Python code among them, each once."""
        return list(
            dict.fromkeys(name.rpartition(CODE_MARK)[0] + ".py" for name in self.reward_funcs if CODE_MARK in name)
        )

    @field_validator("reward_model_name_or_path")
    @classmethod
    def _is_no_address(cls, name: str | None) -> str | None:
        return refuse_address(name)

    @field_validator("reward_funcs", mode="before")
    @classmethod
    def _one_or_list(cls, given: Any) -> Any:
        return one_or_list(given)

    @field_validator("reward_weights", mode="before")
    @classmethod
    def _tuple(cls, given: Any) -> Any:
        return tuple(given) if isinstance(given, list) else given
