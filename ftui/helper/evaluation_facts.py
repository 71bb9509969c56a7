"""What is sent between whoever has a model evaluated and the process that does it."""

import msgspec


class EvaluationSide(msgspec.Struct, frozen=True):
    """One that is evaluated: its name in results, and the folder of its weights (`None`: the base as the run began)."""

    title: str
    folder: str | None


class EvaluationRequest(msgspec.Struct, frozen=True):
    """What is evaluated, on how many rows, and where the results are written.

    Attributes:
        sides: one or two, the second to compare the first with.
        results: a file of JSON lines; rows that are in it are not measured again.
        settings: JSON, written as it is beside the results when the first of them are.
        trained_on: the run's fingerprint of its base; "" where none is known.
        inside: no folder from here to the results may be a link.
        num_rows: the first so many, `None` for all.
        max_new_tokens: of an answer; 0 for no answers.
        measures: a person's own, in a Python file; consent was given.
    """

    sides: list[EvaluationSide]
    results: str
    settings: str
    trained_on: str = ""
    inside: str | None = None
    device: str | None = None
    num_rows: int | None = None
    max_new_tokens: int = 0
    batch_size: int = 8
    measures: str | None = None


class EvaluationFacts(msgspec.Struct, frozen=True):
    """Where it was computed, on how much, and what a person should know of it."""

    device: str
    precision: str
    num_rows: int
    num_questions: int
    num_forgetting_rows: int
    own_measures: list[str]
    notes: list[str]
