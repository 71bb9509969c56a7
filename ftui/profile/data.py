"""`[data]`: the rows, and what is learned of them."""

from typing import Literal, Self

from pydantic import model_validator

from ftui.profile.fields import Section, conduct, weights


class DataSection(Section):
    """`[data]`: the rows. Paths are relative to the profile's folder."""

    train: str | tuple[str, ...] = weights()
    """File or files to train on: `.jsonl`, `.json` or `.txt`."""

    eval: str | tuple[str, ...] | None = conduct(None)
    """File or files to evaluate on."""

    eval_fraction: float | None = weights(None, gt=0, lt=1)
    """Share of the training rows set aside for evaluation (chosen by the seed)."""

    eval_num_rows: int | None = weights(None, ge=1)
    """Number of training rows set aside for evaluation (chosen by the seed)."""

    format: Literal["auto", "alpaca", "messages", "sharegpt", "prompt_completion", "text"] = weights("auto")
    """Form of the rows; `auto` looks at the keys of each file's first row."""

    max_length: int = weights(1024, ge=8)
    """Longest sequence in tokens. Longer rows are cut (`sft`) or split (`pretrain`), and counted."""

    packing: bool = weights(False)
    """Several short rows share one sequence without seeing each other: no padding, fewer steps."""

    @model_validator(mode="after")
    def _one_evaluation_source(self) -> Self:
        given = [k for k in ("eval", "eval_fraction", "eval_num_rows") if getattr(self, k) is not None]
        if len(given) > 1:
            raise ValueError(f"give one of {' and '.join(given)}")
        return self
