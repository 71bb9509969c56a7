"""What `ftui split` asks for, and what was done (engine/services/split_rows.py does it)."""

import msgspec


class SplitRequest(msgspec.Struct, frozen=True, kw_only=True):
    """Which file to split into which two. Paths are absolute.

    Either `fraction` (0..1) or `num_rows` says how many rows are set aside for evaluation.
    """

    file: str
    train: str
    eval: str
    fraction: float | None = None
    num_rows: int | None = None
    seed: int = 0
    encoding: str | None = None


class SplitResult(msgspec.Struct, frozen=True, kw_only=True):
    """The two files that were written, and which rows were kept on one side.

    `num_same` rows repeat an earlier row, `num_similar` more nearly repeat one, and `num_asking_same` more have the
    same prompt as one. All of them are on the side of that earlier row, except those with the same prompt where
    `are_asks_parted`.
    """

    train: str
    eval: str
    num_train_rows: int
    num_eval_rows: int
    num_wanted: int
    num_same: int
    num_similar: int
    num_asking_same: int
    are_asks_parted: bool = False
