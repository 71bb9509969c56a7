"""Rows, tokens and steps of a profile, counted as a run would count them; trains nothing (the dry run)."""

import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np

from ftui.dataset.row_counts import Cut, RowCounts
from ftui.estimate.levers import LONGEST_POWER, SHORTEST_POWER
from ftui.profile.schema import Profile
from ftui.system.user_folders import cache_folder

from ..planning.curriculum_plan import CurriculumPlan, describe_stages
from ..training.prepare import prepare
from .check import check_given
from .profile_text import given_profile


def count_rows(on_detail: Callable[[str], None], profile: str, card: dict[str, Any] | None = None) -> RowCounts:
    """The dry run of a profile (TOML, every path absolute), for a card or this machine: see `count_profile`."""
    given = given_profile(profile)
    check_given(given, card, on_detail)
    return count_profile(given, on_detail)


def count_profile(profile: Profile, on_detail: Callable[[str], None] = lambda detail: None) -> RowCounts:
    """Read, tokenise and plan, without the weights.

    Raises:
        FtuiError: the model's files or the rows are wrong.
    """
    with tempfile.TemporaryDirectory() as fallback:
        prepared = prepare(profile, cache_folder(Path(fallback)), on_detail)
        counts, plan = prepared.train.sequences.counts, prepared.plan
        return RowCounts(
            num_train_rows=prepared.train.num_rows,
            num_eval_rows=0 if prepared.evaluation is None else prepared.evaluation.num_rows,
            num_train_tokens=prepared.epoch_tokens,
            num_target_tokens=prepared.epoch_target_tokens,
            num_sequences=plan.rows_per_epoch,
            steps_per_epoch=plan.steps_per_epoch,
            max_steps=plan.max_steps,
            num_tokens=plan.num_tokens(0, plan.max_steps),
            stages=describe_stages(plan, profile.train) if isinstance(plan, CurriculumPlan) else [],
            effective_batch=plan.effective_batch,
            longest=counts.longest,
            num_cut=counts.num_cut,
            num_skipped=counts.num_skipped,
            cuts=list(count_cuts(prepared.lengths, may_cut=profile.run.stage == "pretrain")),
            warnings=list(prepared.warnings),
        )


def count_cuts(lengths: np.ndarray, *, may_cut: bool) -> Iterator[Cut]:
    """What each power of two that is shorter than the longest row would cut; with `may_cut` nothing is lost by it."""
    for length in (1 << k for k in range(SHORTEST_POWER, LONGEST_POWER + 1)):
        behind = np.maximum(lengths.astype(np.int64) - length, 0)
        if num_rows := int(np.count_nonzero(behind)):
            yield Cut(length=length, num_rows=num_rows, num_tokens=0 if may_cut else int(behind.sum()))
