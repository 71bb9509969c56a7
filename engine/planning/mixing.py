"""From a profile and its rows to the plan: how sources are mixed, then one plan for all of the run or a curriculum."""

from collections.abc import Sequence
from typing import Protocol

import numpy as np

from ftui.errors import DataError
from ftui.profile.schema import Profile

from ..data.load_rows import DataSplit
from ..system.distinct import distinct
from .curriculum_plan import RunPlan, SequencePool, make_curriculum_plan
from .plan import Reuse, SourceShare, make_plan

MOST_REPEATED = 10_000_000
"""Sequences of an epoch, where it is mostly repetitions: their order takes 5 s and 500 MiB each time."""

MOST_STEPS = 10**12  # 30 years at a thousand in a second


class MixedSource(Protocol):
    """A source of rows, and how much of it is trained on."""

    @property
    def name(self) -> str:
        """The name that messages give it."""
        ...

    @property
    def weight(self) -> float:
        """How often each of its rows comes in an epoch, where `num_samples` says nothing."""
        ...

    @property
    def num_samples(self) -> int | None:
        """Rows of it in an epoch; `None`: by `weight`."""
        ...


def compute_shares(
    sources: Sequence[MixedSource], num_rows: Sequence[int], num_sequences: Sequence[int], temperature: float | None
) -> tuple[SourceShare, ...]:
    """The number of sequences of each source that are trained on, and its weight.

    `num_rows`, `num_sequences`: of each source, without those set aside. With a `temperature` the weights follow from
    the sources' sizes, so that as many sequences come in an epoch as there are.

    Raises:
        DataError: nothing is left of a source in an epoch, or it makes the epoch too long to be mixed.
    """
    if temperature is not None:
        counts = temper_counts(num_sequences, temperature)
        weights = [count / max(1, size) for count, size in zip(counts, num_sequences, strict=True)]
    else:
        weights = [
            source.weight if source.num_samples is None else source.num_samples / max(1, rows)
            for source, rows in zip(sources, num_rows, strict=True)
        ]
    shares = tuple(SourceShare(size, weight) for size, weight in zip(num_sequences, weights, strict=True))
    raised = "its weight" if temperature is None else "data.mixing_temperature"
    for source, share in zip(sources, shares, strict=True):
        if not share.num_rows:
            raise DataError(
                f"{source.name}: all of its rows are set aside for evaluation.",
                hint="Lower data.eval_num_rows; data.eval_fraction leaves rows of each source to train on.",
            )
        if not share.per_epoch:
            raise DataError(
                f"{source.name}: weight {share.weight:g} of {share.num_rows} sequences leaves none in an epoch.",
                hint=f"Raise {raised}, or leave the source out.",
            )
    _refuse_endless(sources, shares)
    return shares


def compute_training_shares(
    sources: Sequence[MixedSource], train: DataSplit, temperature: float | None
) -> tuple[SourceShare, ...]:
    """`compute_shares` of the training rows, without those set aside for evaluation.

    Raises:
        DataError: see `compute_shares`.
    """
    bounds = train.bounds
    rows = np.split(train.sequences.rows[train.indices], bounds[1:-1] * train.per_example)
    return compute_shares(sources, [len(distinct(part)) for part in rows], np.diff(bounds).tolist(), temperature)


def _refuse_endless(sources: Sequence[MixedSource], shares: Sequence[SourceShare]) -> None:
    if sum(share.per_epoch for share in shares) <= max(MOST_REPEATED, 10 * sum(share.num_rows for share in shares)):
        return
    source, share = max(zip(sources, shares, strict=True), key=lambda pair: pair[1].per_epoch)
    raise DataError(
        f"{source.name}: {share.per_epoch:,} sequences in an epoch, of {share.num_rows:,} that there are, are too many "
        "to be mixed.",
        hint="weight and num_samples mix sources with each other; train.num_train_epochs trains on all of them again.",
    )


def temper_counts(sizes: Sequence[int], temperature: float) -> list[int]:
    """Counts with the sum of `sizes`, in shares that are proportional to size ** (1 / temperature).

    What is left after rounding down goes to the largest remainders (Hare's method), so that the sum is exact.
    """
    total = sum(sizes)
    parts = np.array(sizes, dtype=np.float64) / max(1, total)
    logs = np.log(parts, where=parts > 0, out=np.full_like(parts, -np.inf))
    with np.errstate(over="ignore"):  # beside the largest, which is 1, the others may well be nothing
        powers = np.exp((logs - logs.max(initial=-np.inf)) / temperature) if total else parts
    exact = powers / max(powers.sum(), 1.0) * total
    counts = np.floor(exact).astype(np.int64)
    order = np.argsort(-(exact - counts), kind="stable")
    counts[order[: total - int(counts.sum())]] += 1
    return [int(count) for count in counts]


def make_run_plan(
    profile: Profile,
    lengths: np.ndarray,
    num_targets: np.ndarray,
    shares: Sequence[SourceShare],
    losses: np.ndarray | None = None,
) -> RunPlan:
    """The plan of a run over its sequences, given the tokens and the targets of each.

    `losses`: of the base model on each, for a curriculum that sorts by them.

    Raises:
        DataError: a stage of the curriculum has no rows, or there are more steps than anybody can wait for.
    """
    train = profile.train
    size = profile.rows_per_step
    room = profile.packing_length
    if profile.curriculum:
        pool = SequencePool(lengths, num_targets, losses)
        plan_of_stages = make_curriculum_plan(
            profile.curriculum, pool, train, effective_batch=size, packing_length=room, sources=shares
        )
        return _check_end(plan_of_stages, "the epochs of its stages")
    plan = make_plan(
        lengths, effective_batch=size, max_steps=train.max_steps, num_train_epochs=train.num_train_epochs,
        strategy=train.train_sampling_strategy, seed=train.rows_seed, packing_length=room, sources=shares,
        reuse=reuse_of(profile),
    )  # fmt: skip
    return _check_end(plan, "train.num_train_epochs" if train.max_steps is None else "train.max_steps")


def reuse_of(profile: Profile) -> Reuse:
    """How often the rows of a profile are trained on in one pass over them: once, but for prompts."""
    return Reuse(*profile.sampled.steps_and_passes) if profile.samples_answers else Reuse()


def _check_end(plan: RunPlan, key: str) -> RunPlan:
    """The plan; raises `DataError` where it has more steps than anybody can wait for."""
    if plan.max_steps > MOST_STEPS:
        raise DataError(f"The run would have {float(plan.max_steps):.3g} steps.", hint=f"Lower {key}.")
    return plan


def warn_of_shortfall(profile: Profile, plan: RunPlan) -> list[str]:
    """A warning where the profile asks for more steps than its curriculum has."""
    max_steps = profile.train.max_steps
    if not profile.curriculum or max_steps is None or max_steps <= plan.max_steps:
        return []
    return [f"train.max_steps is {max_steps}, and the curriculum ends with step {plan.max_steps}"]
