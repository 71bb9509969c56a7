"""All that needs no weights: tokenizer, rows and plan. A dry run ends here; a wrong profile fails here at once."""

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Self

import numpy as np
from transformers import PreTrainedTokenizerBase

from ftui.profile.checks.warnings import RunAmounts, find_warnings, warning_lines
from ftui.profile.schema import Profile

from ..data.load_rows import DataSplit, load_data
from ..data.sources import ResolvedSource
from ..data.tokens.encode import Encoder
from ..evaluation.rows_to_answer import describe_rows
from ..inspection.report import make_report
from ..inspection.report.findings import refuse_errors, warnings
from ..models.files.fingerprints import source_of
from ..models.load_model import has_score_head, read_config
from ..models.starting_point import StartingPoint
from ..optim.schedule import learning_rate_curve
from ..planning.curriculum_plan import RunPlan
from ..planning.mixing import compute_training_shares, make_run_plan, warn_of_shortfall
from ..planning.plan import SourceShare


@dataclass(frozen=True)
class TrainingData(StartingPoint):
    """Where a training starts, its tokenizer, rows and plan."""

    tokenizer: PreTrainedTokenizerBase
    encoder: Encoder
    train: DataSplit
    evaluation: DataSplit | None
    plan: RunPlan
    shares: tuple[SourceShare, ...]
    warnings: tuple[str, ...]
    sources: tuple[ResolvedSource, ...] = ()
    eval_sources: tuple[ResolvedSource, ...] = ()
    """Of `evaluation`: where its rows are set aside, those of the others."""

    @property
    def lengths(self) -> np.ndarray:
        """Tokens of each training example, in the numbering of the plan."""
        return self.train.lengths

    @property
    def num_targets(self) -> np.ndarray:
        """Trained tokens of each training example, in the numbering of the plan."""
        return self.train.num_targets

    @property
    def epoch_tokens(self) -> int:
        """Tokens of the first epoch (of a curriculum, of a mean one): a source comes as often as its weight says."""
        return self.plan.sum_epoch(self.lengths)

    @property
    def epoch_target_tokens(self) -> int:
        """Trained tokens of the first epoch (of a curriculum, of a mean one)."""
        return self.plan.sum_epoch(self.num_targets)

    @property
    def last_step_with_rows(self) -> float:
        """The last step that the run could be led to: a reference that is compared with is measured up to the plan's.

        Infinite where there is none, or it is measured on all rows.
        """
        reference = self.train.reference
        is_whole = reference is None or not np.isnan(reference.values).any()
        return math.inf if is_whole else self.plan.max_steps

    @property
    def pad_id(self) -> int:
        """The token that fills rows of a micro-batch; 0 where the tokenizer has none, since no loss sees it."""
        return int(self.tokenizer.pad_token_id or 0)

    @property
    def stop_ids(self) -> list[int]:
        """The tokens that end a turn."""
        return self.encoder.stop_ids

    def sort_by_losses(self, profile: Profile, losses: np.ndarray) -> Self:
        """The same data with the plan made anew from the base model's loss on each training sequence."""
        return replace(self, plan=make_run_plan(profile, self.lengths, self.num_targets, self.shares, losses))


def prepare(profile: Profile, cache: Path, report: Callable[[str], None]) -> TrainingData:
    """Fetch the model's files, read and tokenise the rows, make the plan. `report(detail)` gets its progress.

    Raises:
        ModelError, DataError: a file is missing or wrong, or something is wrong with the rows (findings.py).
    """
    rows = load_data(profile, cache, report)
    report("looking for what is wrong with the rows")
    findings = make_report(rows, profile)
    refuse_errors(findings)
    shares = compute_training_shares(rows.sources, rows.train, profile.data.mixing_temperature)
    plan = make_run_plan(profile, rows.train.lengths, rows.train.num_targets, shares)
    learning_rate_curve(profile.train, plan.max_steps)  # one that is longer than the run is refused now
    amounts = RunAmounts(plan.max_steps, plan.rows_per_epoch, plan.effective_batch, rows.evaluation is not None)
    source = None if rows.folder is None else source_of(rows.folder)
    texts = (
        *warnings(findings), *warn_of_shortfall(profile, plan),
        *([] if source is None else source.notes),  # what was lost when the model's folder was made from a GGUF file
        *_note_new_head(profile, rows.folder, rows.adapter),
        *describe_rows(profile, rows.evaluation, rows.encoder.stop_ids),
        *warning_lines(find_warnings(profile, amounts)),
    )  # fmt: skip
    return TrainingData(
        rows.folder, rows.commit, rows.adapter, rows.new_token_ids, rows.tokenizer, rows.encoder, rows.train,
        rows.evaluation, plan, shares, texts, tuple(rows.sources),
        tuple(rows.eval_sources or rows.sources),
    )  # fmt: skip


def _note_new_head(profile: Profile, folder: Path | None, adapter: Path | None) -> tuple[str, ...]:
    """That a reward model does not go on from one."""
    if not profile.gives_scores or folder is None or adapter is not None:
        return ()
    if has_score_head(read_config(folder, trusted=profile.model.trust_remote_code)):
        return ()
    return (f"the base is no reward model yet: its score head is new, drawn with train.seed = {profile.train.seed}",)
