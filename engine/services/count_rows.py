"""Rows, tokens and steps of a profile, counted as a run would count them; trains nothing (the dry run)."""

import math
import tempfile
from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import msgspec
import numpy as np

from ftui.dataset.row_counts import Cut, RowCounts
from ftui.errors import DataError, DiskFullError
from ftui.estimate.levers import LONGEST_POWER, SHORTEST_POWER
from ftui.profile.schema import Profile
from ftui.profile.sections.from_scratch import FromScratch
from ftui.system.user_folders import cache_folder
from ftui.system.volume import free_bytes

from ..data.load_rows import DataSplit, LoadedData, load_data
from ..evaluation.rows_to_answer import choose_rows
from ..models.tokenizer import train_tokenizer
from ..planning.curriculum_plan import CurriculumPlan, RunPlan, describe_stages
from ..planning.mixing import compute_training_shares, make_run_plan
from ..planning.plan import Plan
from ..training.prepare import prepare
from .check import check_given
from .profile_text import given_profile

TEMPLATE = "qwen"
"""The chat template of rows that are counted in bytes: it takes every kind of turn, and calls of tools."""
KEPT_FREE = 1 << 30
"""Bytes on the volume of temporary files that no count in bytes takes; its tokens take about 4 times the rows' size."""
LONGEST = 1 << 30
"""Positions of a model whose rows are counted in bytes: no row is too long for it."""


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
        counts = _counts(profile, prepared.train, prepared.evaluation, prepared.plan, list(prepared.warnings))
        if prepared.evaluation is None or not profile.eval.generate:
            return counts
        asked = choose_rows(profile.eval, prepared.evaluation, prepared.stop_ids)
        longest = max(len(row.prompt) for row in asked.rows)
        return msgspec.structs.replace(
            counts, num_answered=len(asked.rows), longest_prompt=longest, longest_answer=asked.max_new_tokens
        )


def count_bytes(on_detail: Callable[[str], None], profile: str, bytes_per_token: list[float]) -> RowCounts:
    """The same without the model's tokenizer: every byte of a row is a token, then tokens are taken to be longer.

    The longest row is told as if it took many tokens, all else as if they took the usual number.

    Args:
        bytes_per_token: the least, the usual, the most: see ftui/models/bytes_per_token.py.

    Raises:
        DiskFullError: its tokens, in a temporary folder until it ends, have no room.
        FtuiError: the rows are wrong, whatever the tokenizer is.
    """
    given, (least, usual, _) = given_profile(profile), bytes_per_token
    max_length = given.data.max_length
    with tempfile.TemporaryDirectory() as folder:
        rows_of_bytes = _with_byte_tokenizer(given, Path(folder), max_bytes=round(usual * max_length))
        rows = load_data(rows_of_bytes, Path(folder), partial(_look_for_room, Path(folder), on_detail), weights=False)
        _refuse_untrained(rows)
        shares = compute_training_shares(rows.sources, rows.train, given.data.mixing_temperature)
        plan = make_run_plan(rows_of_bytes, rows.train.lengths, rows.train.num_targets, shares)
        found = _counts(rows_of_bytes, rows.train, rows.evaluation, plan, [])
    lengths = rows.train.lengths / usual
    return msgspec.structs.replace(
        found,
        num_train_tokens=round((found.num_train_tokens or 0) / usual),
        num_target_tokens=round((found.num_target_tokens or 0) / usual),
        num_tokens=round((found.num_tokens or 0) / usual),
        longest=min(max_length, math.ceil((found.longest or 0) / least)),
        longest_example=found.longest_example and math.ceil(found.longest_example / least),
        cuts=[] if given.samples_answers else list(count_cuts(lengths, may_cut=given.run.stage == "pretrain")),
        bytes_per_token=(bytes_per_token[0], bytes_per_token[1], bytes_per_token[2]),
    )


def _look_for_room(folder: Path, on_detail: Callable[[str], None], detail: str) -> None:
    free = free_bytes(folder)
    if free is not None and free < KEPT_FREE:
        raise DiskFullError(f"{folder} has no room for rows that are counted in bytes.", hint="TMPDIR moves it.")
    on_detail(detail)


def _refuse_untrained(rows: LoadedData) -> None:
    for source, num_sequences in zip(rows.sources, np.diff(rows.train.sequences.bounds), strict=True):
        if not num_sequences:
            raise DataError(
                f"{source.name}: by their bytes, none of its rows has a token to train on.",
                hint="Are there assistant turns, and does data.max_length leave room for them?",
            )


def _with_byte_tokenizer(profile: Profile, folder: Path, *, max_bytes: int) -> Profile:
    """The profile with a new model of any shape in place of its own, whose tokens are bytes and marks of a chat."""
    scratch = FromScratch(max_position_embeddings=LONGEST)
    train_tokenizer(scratch, []).save_pretrained(folder / "tokenizer")
    scratch = scratch.model_copy(update={"tokenizer": str(folder / "tokenizer")})
    model = profile.model.model_copy(update={"name_or_path": None, "from_scratch": scratch, "trust_remote_code": False})
    template = profile.data.chat_template or TEMPLATE
    data = profile.data.model_copy(update={"max_length": max_bytes, "chat_template": template})
    return profile.model_copy(update={"model": model, "data": data})


def _counts(
    profile: Profile, train: DataSplit, evaluation: DataSplit | None, plan: RunPlan, warnings: list[str]
) -> RowCounts:
    counts, lengths, num_targets, longest = train.sequences.counts, train.lengths, train.num_targets, None
    if profile.samples_answers:  # each prompt several times, with answers as long as they may be
        size, answer = profile.sampled.num_generations, profile.sampled.max_completion_length
        longest = int(lengths.max(initial=0)) + answer
        lengths, num_targets = size * (lengths + answer), np.full(len(lengths), size * answer)
        assert isinstance(plan, Plan), "prompts have no curriculum"
        plan = replace(plan, lengths=lengths)
    return RowCounts(
        num_train_rows=train.num_rows,
        num_eval_rows=0 if evaluation is None else evaluation.num_rows,
        num_train_tokens=plan.sum_epoch(lengths),
        num_target_tokens=plan.sum_epoch(num_targets),
        num_sequences=plan.rows_per_epoch,
        steps_per_epoch=plan.steps_per_epoch,
        max_steps=plan.max_steps,
        num_tokens=plan.num_tokens(0, plan.max_steps),
        stages=describe_stages(plan, profile.train) if isinstance(plan, CurriculumPlan) else [],
        effective_batch=plan.effective_batch,
        longest=longest or counts.longest,
        longest_example=train.longest_example() if train.per_example > 1 else None,
        num_cut=counts.num_cut,
        num_skipped=counts.num_skipped,
        cuts=[] if profile.samples_answers else list(count_cuts(lengths, may_cut=profile.run.stage == "pretrain")),
        warnings=warnings,
        drawn=_drawn(profile),
    )


def _drawn(profile: Profile) -> tuple[int, int] | None:
    """The fewest and the most prompts of a step, where that is known only as it is made."""
    size = profile.rows_per_step
    return (size, size * (1 + profile.grpo.max_resample_times)) if profile.draws_prompts else None


def count_cuts(lengths: np.ndarray, *, may_cut: bool) -> Iterator[Cut]:
    """What each power of two that is shorter than the longest row would cut; with `may_cut` nothing is lost by it."""
    for length in (1 << k for k in range(SHORTEST_POWER, LONGEST_POWER + 1)):
        behind = np.maximum(lengths.astype(np.int64) - length, 0)
        if num_rows := int(np.count_nonzero(behind)):
            yield Cut(length=length, num_rows=num_rows, num_tokens=0 if may_cut else int(behind.sum()))
