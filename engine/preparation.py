"""All that needs no weights: tokenizer, rows, plan. A dry run ends here; a wrong profile fails here, in seconds."""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from transformers import PreTrainedTokenizerBase

from ftui.engine.data.cache import Sequences, tokenised
from ftui.engine.data.encode import Encoder, stop_texts
from ftui.engine.hub import model_folder
from ftui.engine.model import eos_token_ids, longest_context
from ftui.engine.plan import Plan, make_plan
from ftui.engine.tokenizer import load_tokenizer, train_tokenizer
from ftui.errors import DataError
from ftui.profile.sections import Profile


@dataclass(frozen=True)
class Rows:
    """Part of a data set: which of its sequences, in their own order."""

    sequences: Sequences
    indices: np.ndarray

    @property
    def num_tokens(self) -> int:
        return int(self.sequences.lengths[self.indices].sum())

    @property
    def num_target_tokens(self) -> int:
        return int(self.sequences.num_targets[self.indices].sum())


@dataclass(frozen=True)
class Prepared:
    """`folder` and `commit` are those of the base model (`None` for a new one)."""

    tokenizer: PreTrainedTokenizerBase
    folder: Path | None
    commit: str | None
    encoder: Encoder
    train: Rows
    evaluation: Rows | None
    plan: Plan
    warnings: tuple[str, ...]


def prepare(profile: Profile, cache: Path, report: Callable[[str], None]) -> Prepared:
    """Fetch the model's files, read and tokenise the rows, make the plan. `report(detail)` tells how far it is.

    Raises:
        ModelError, DataError: see the rooms that do the work.
    """
    folder, commit, tokenizer = _tokenizer(profile, report)
    encoder = _encoder(profile, folder, tokenizer)
    train_files = _paths(profile.data.train)
    data = tokenised(train_files, profile.data.format, encoder, cache, lambda n: report(f"{n} rows read"))
    train, evaluation = _split(profile, data)
    if profile.data.eval:
        its = _paths(profile.data.eval)
        held_out = tokenised(its, profile.data.format, encoder, cache, lambda n: report(f"{n} evaluation rows read"))
        evaluation = Rows(held_out, np.arange(len(held_out)))
    plan = make_plan(
        data.lengths[train.indices],
        effective_batch=profile.train.per_device_train_batch_size * profile.train.gradient_accumulation_steps,
        max_steps=profile.train.max_steps,
        num_train_epochs=profile.train.num_train_epochs,
        strategy=profile.train.train_sampling_strategy,
        seed=profile.train.seed,
        packing_length=profile.data.max_length if profile.data.packing else None,
    )
    return Prepared(tokenizer, folder, commit, encoder, train, evaluation, plan, _warnings(profile, data))


def _tokenizer(
    profile: Profile, report: Callable[[str], None]
) -> tuple[Path | None, str | None, PreTrainedTokenizerBase]:
    scratch = profile.model.from_scratch
    if scratch is None:
        assert profile.model.name_or_path is not None, "the profile's own check"
        folder, commit = model_folder(profile.model.name_or_path, profile.model.revision, report)
        return folder, commit, load_tokenizer(folder)
    if scratch.tokenizer is not None:
        return None, None, load_tokenizer(Path(scratch.tokenizer))
    report("training the tokenizer")
    return None, None, train_tokenizer(scratch, _paths(profile.data.train), profile.data.format)


def _encoder(profile: Profile, folder: Path | None, tokenizer: PreTrainedTokenizerBase) -> Encoder:
    scratch = profile.model.from_scratch
    longest = scratch.max_position_embeddings if scratch else longest_context(folder) if folder else None
    if longest is not None and profile.data.max_length > longest:
        raise DataError(
            f"data.max_length is {profile.data.max_length}, but the model sees at most {longest} tokens.",
            hint=f"Set data.max_length = {longest} or less.",
        )
    stops = stop_texts(tokenizer, eos_token_ids(folder) if folder else [])
    return Encoder(tokenizer, profile.run.stage, profile.data.max_length, stops)


def _paths(files: str | tuple[str, ...]) -> tuple[Path, ...]:
    return tuple(Path(file) for file in ([files] if isinstance(files, str) else files))


def _split(profile: Profile, data: Sequences) -> tuple[Rows, Rows | None]:
    """Set aside sequences for evaluation, chosen by the seed alone."""
    wanted = profile.data.eval_num_rows or 0
    if profile.data.eval_fraction is not None:
        wanted = max(1, round(profile.data.eval_fraction * len(data)))
    if not wanted:
        return Rows(data, np.arange(len(data))), None
    if wanted >= len(data):
        raise DataError(
            f"{wanted} sequences are to be set aside for evaluation, but there are only {len(data)}.",
            hint="Lower data.eval_num_rows.",
        )
    order = np.random.default_rng([profile.train.seed, 0xE7A1]).permutation(len(data))
    return Rows(data, np.sort(order[wanted:])), Rows(data, np.sort(order[:wanted]))


def _warnings(profile: Profile, data: Sequences) -> tuple[str, ...]:
    counts, found = data.counts, []
    if counts.num_without_target:
        found.append(f"{counts.num_without_target} of {counts.num_rows} rows have no token to learn and are left out")
    if counts.num_cut and profile.run.stage == "sft":
        found.append(f"{counts.num_cut} rows are longer than data.max_length = {profile.data.max_length} and are cut")
    return tuple(found)
