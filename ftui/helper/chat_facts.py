"""What is sent between whoever talks with a trained model and the process that has it in memory."""

import msgspec

from ftui.errors import UsageError
from ftui.runs.requests import SamplingKeys


def check_sampling(**values: float) -> SamplingKeys:
    """Raises `UsageError` where a value is none that it could have."""
    try:
        return msgspec.convert(values, SamplingKeys)
    except msgspec.ValidationError as error:
        key = str(error).rpartition("$.")[2].rstrip("`").replace("_", "-")
        raise UsageError(f"--{key}: {str(error).split(' - ')[0]}.") from None


class ChatSides(msgspec.Struct, frozen=True):
    """What answers: the folder of each side's weights, `None` for the base as the run began; where, if not where the
    profile says; the run's fingerprint of its base ("": unknown)."""

    folders: list[str | None]
    device: str | None = None
    trained_on: str = ""


class ModelFacts(msgspec.Struct, frozen=True):
    """Where a model answers. One without a chat template goes on with texts, and has no hash (SHA-256) of one."""

    device: str
    precision: str
    is_chat: bool
    template_hash: str


class TokenFacts(msgspec.Struct, frozen=True):
    """A token of an answer: its text, its probability, texts and probabilities of the likeliest ones."""

    text: str
    probability: float
    likeliest: list[tuple[str, float]]


class ChatAnswer(msgspec.Struct, frozen=True):
    """`is_complete`: the model ended it, not the limit of tokens nor a person."""

    text: str
    is_complete: bool
    tokens: list[TokenFacts]


class RunAnswer(msgspec.Struct, frozen=True):
    """answer.json: what a run in training answers to `request` after `step` steps; `answers` once it is all said."""

    request: str
    step: int
    facts: ModelFacts
    texts: list[str]
    answers: list[ChatAnswer] = []
