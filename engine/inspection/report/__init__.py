"""The report on the rows of a profile: what of them will be trained on, and what is wrong with them."""

from collections.abc import Sequence

import numpy as np

from ftui.dataset.report import Report, SourceFacts
from ftui.profile.schema import Profile
from ftui.profile.sections.preference import VERDICT_STAGES

from ...data.facts.scripts import join_japanese
from ...data.load_rows import LoadedData
from ...data.sources import ResolvedSource
from ...data.stores.store import Store
from ...planning.mixing import compute_training_shares
from ...planning.plan import SourceShare
from ...system.distinct import distinct
from .answer_problems import describe_answers
from .examination import Examination
from .examine import find_problems
from .lengths import histogram, lengths_to_try, percentiles
from .limits import limits_of
from .padding import joins_here, padding_of
from .row_index import RowIndex
from .special_token_text import describe_special_tokens
from .stored_comparisons import load_comparisons

__all__ = ["make_report"]
HALVED = ": each pair is two answers, the chosen one judged good and the rejected one bad"


def make_report(read: LoadedData, profile: Profile, log_probs: np.ndarray | None = None) -> Report:
    """The report on what was read: 3 to 8 s of a million rows; what takes them is kept in the cache for the next.

    `log_probs`: what the reference says of each sequence (measured_reference.py), where it is measured.
    """
    data, sequences, limits = profile.data, read.train.sequences, limits_of(read, profile)
    rows = RowIndex([*read.sources, *read.eval_sources], [*read.stores, *read.eval_stores])
    num_trained = sum(len(store.facts) for store in read.stores)
    longest = max(store.counts.longest for store in read.stores)
    tried = lengths_to_try(data.max_length, longest, limits.positions) if profile.run.stage != "pretrain" else []
    same = load_comparisons(rows, [*read.stores, *read.eval_stores], num_trained, tried)
    shares, scripts = _shares(read, profile), _scripts(read.stores)
    padding = padding_of(profile, read.train.lengths, shares, joined=joins_here(profile, read)) if shares else None
    examination = Examination(
        read, profile, limits, rows, num_trained, sequences, same.sameness, padding, scripts, shares, log_probs
    )
    lengths = np.concatenate([store.lengths for store in read.stores])
    letters = sum(scripts.values())
    return Report(
        sources=_sources(read, shares),
        num_rows=num_trained,
        num_train_rows=read.train.num_rows,
        num_skipped=sum(store.counts.num_skipped for store in read.stores),
        num_sequences=len(read.train.indices),
        num_eval_rows=0 if read.evaluation is None else read.evaluation.num_rows,
        num_eval_parts=_parts_apart(read),
        num_judged_bad=sum(_num_judged_bad(store) for store in read.stores),
        num_tokens=read.train.num_tokens,
        num_target_tokens=read.train.num_target_tokens,
        max_length=data.max_length,
        lengths=percentiles(lengths),
        histogram=histogram(lengths),
        target_shares=percentiles(sequences.num_targets / np.maximum(1, sequences.lengths)),
        other_lengths=same.losses,
        padding=padding,
        scripts=[(name, count / letters) for name, count in scripts.items()],
        special=describe_special_tokens(read.tokenizer, sequences),
        findings=find_problems(examination),
        answers=describe_answers(sequences, profile.run.stage),
    )


def _parts_apart(read: LoadedData) -> int:
    """Sequences set aside of rows that are trained on too: plain text is parted where its rows are too few."""
    train, apart = read.train, read.evaluation
    if apart is None or apart.sequences is not train.sequences:
        return 0
    rows = apart.sequences.rows
    is_parted = np.isin(rows[apart.indices], rows[train.indices]).any()
    return len(apart.indices) if is_parted else 0


def _num_judged_bad(store: Store) -> int:
    """Rows of answers judged bad have no tokens (row_facts.py)."""
    return len(store.facts) - len(distinct(store.rows)) if "kto" in store.counts.forms else 0


def _shares(read: LoadedData, profile: Profile) -> tuple[SourceShare, ...]:
    """How much of each source comes in an epoch of the run; none where one of them has no token to train on."""
    numbers = np.diff(read.train.bounds)
    return compute_training_shares(read.sources, read.train, profile.data.mixing_temperature) if all(numbers) else ()


def _sources(read: LoadedData, shares: Sequence[SourceShare]) -> list[SourceFacts]:
    total = sum(share.per_epoch for share in shares)
    parts: list[float | None] = [None] * len(read.sources)
    if any(share.weight != 1 for share in shares) and len(shares) > 1:
        parts = [share.per_epoch / total for share in shares]
    stage = read.encoder.stage
    trained = [_source(*facts, stage) for facts in zip(read.sources, read.stores, parts, strict=True)]
    return trained + [
        _source(*facts, None, stage, is_eval=True) for facts in zip(read.eval_sources, read.eval_stores, strict=True)
    ]


def _source(
    source: ResolvedSource, store: Store, share: float | None, stage: str, *, is_eval: bool = False
) -> SourceFacts:
    counts, form = store.counts, store.counts.form
    if stage in VERDICT_STAGES and "preference" in counts.forms:
        form += HALVED
    return SourceFacts(
        source.name, form, counts.confidence, counts.num_rows, counts.num_skipped, counts.num_tokens,
        counts.num_target_tokens, is_eval, source.weight, share,
    )  # fmt: skip


def _scripts(stores: Sequence[Store]) -> dict[str, int]:
    """Letters by script, the most first; those of Japanese together."""
    totals: dict[str, int] = {}
    for store in stores:
        for name, number in store.counts.scripts.items():
            totals[name] = totals.get(name, 0) + number
    return join_japanese(totals)
