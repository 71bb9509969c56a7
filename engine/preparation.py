"""All that needs no weights: tokenizer, rows, plan. A dry run ends here; a wrong profile fails here, in seconds."""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from transformers import PreTrainedTokenizerBase

from ftui.engine.adapter_files import check_tokens, starting_adapter
from ftui.engine.data.encode import Encoder, stop_texts
from ftui.engine.data.mixture import Found, find, sequences_of, texts_in
from ftui.engine.data.named_templates import take_template
from ftui.engine.data.sequences import Sequences
from ftui.engine.fingerprints import source_of
from ftui.engine.hub import base_folder, tokenizer_folder
from ftui.engine.model import eos_token_ids, longest_context
from ftui.engine.plan import Plan, Share, make_plan
from ftui.engine.schedule import learning_rate_curve
from ftui.engine.splitting import held_out
from ftui.engine.tokenizer import load_tokenizer, train_tokenizer
from ftui.engine.vocabulary import add_special_tokens
from ftui.errors import DataError
from ftui.profile.data import sources
from ftui.profile.sections import Profile


@dataclass(frozen=True)
class Rows:
    """Part of a data set: which of its sequences, in their own order."""

    sequences: Sequences
    indices: np.ndarray

    @property
    def num_rows(self) -> int:
        """Rows they were made of: one may have given several sequences."""
        return len(np.unique(self.sequences.rows[self.indices]))

    @property
    def num_tokens(self) -> int:
        return int(self.sequences.lengths[self.indices].sum())

    @property
    def num_target_tokens(self) -> int:
        return int(self.sequences.num_targets[self.indices].sum())


@dataclass(frozen=True)
class Prepared:
    """`folder` and `commit` are those of the base model, `adapter` is the one to go on from (`None` for new ones).

    `new_token_ids` are entries of the tokenizer that the profile has added: the base has never seen them.
    """

    tokenizer: PreTrainedTokenizerBase
    folder: Path | None
    commit: str | None
    encoder: Encoder
    train: Rows
    evaluation: Rows | None
    plan: Plan
    warnings: tuple[str, ...]
    adapter: Path | None = None
    new_token_ids: tuple[int, ...] = ()

    @property
    def epoch(self) -> Rows:
        """What the first epoch learns: a source comes as often as its weight says."""
        return Rows(self.train.sequences, self.train.indices[self.plan.rows.flat(self.plan.order(0))])

    @property
    def stop_ids(self) -> list[int]:
        """The tokens that end a turn."""
        ids = self.tokenizer.convert_tokens_to_ids(sorted(self.encoder.stops))
        assert isinstance(ids, list)
        return ids


def prepare(profile: Profile, cache: Path, report: Callable[[str], None]) -> Prepared:
    """Fetch the model's files, read and tokenise the rows, make the plan. `report(detail)` tells how far it is.

    Raises:
        ModelError, DataError: see the rooms that do the work.
    """
    found = find(sources(profile.data.train), profile.data.format, report)
    folder, commit, tokenizer = _tokenizer(profile, found, cache, report)
    new_token_ids = add_special_tokens(tokenizer, profile.model.extra_special_tokens)
    adapter = starting_adapter(profile.adapter, report)
    if adapter is not None:
        check_tokens(adapter, tokenizer, new_token_ids)
    marks = take_template(tokenizer, profile.data.chat_template) if profile.data.chat_template else ()
    encoder = _encoder(profile, folder, tokenizer)
    data = sequences_of(found, encoder, cache, lambda n: report(f"{n} rows read"))
    train, evaluation = _split(profile, data)
    if profile.data.eval:
        its = find(sources(profile.data.eval), profile.data.format, report)
        apart = sequences_of(its, encoder, cache, lambda n: report(f"{n} evaluation rows read"))
        evaluation = Rows(apart, np.arange(len(apart)))
    plan = make_plan(
        data.lengths[train.indices],
        sources=_shares(found, train),
        effective_batch=profile.train.per_device_train_batch_size
        * profile.train.gradient_accumulation_steps
        * profile.hardware.num_processes,
        max_steps=profile.train.max_steps,
        num_train_epochs=profile.train.num_train_epochs,
        strategy=profile.train.train_sampling_strategy,
        seed=profile.train.rows_seed,
        packing_length=profile.data.max_length if profile.data.packing else None,
    )
    learning_rate_curve(profile.train, plan.max_steps)  # one that is longer than the run is refused now
    warnings = (*marks, *_warnings(profile, data), *_losses(folder))
    return Prepared(tokenizer, folder, commit, encoder, train, evaluation, plan, warnings, adapter, new_token_ids)


def _tokenizer(
    profile: Profile, found: list[Found], cache: Path, report: Callable[[str], None]
) -> tuple[Path | None, str | None, PreTrainedTokenizerBase]:
    scratch = profile.model.from_scratch
    if scratch is None:
        folder, commit = base_folder(profile.model, cache, report)
        return folder, commit, load_tokenizer(folder, trusted=profile.model.trust_remote_code)
    if scratch.tokenizer is not None:
        return None, None, load_tokenizer(tokenizer_folder(scratch.tokenizer, report))
    report("training the tokenizer")
    return None, None, train_tokenizer(scratch, (text for one in found for text in texts_in(one.places, one.form)))


def _encoder(profile: Profile, folder: Path | None, tokenizer: PreTrainedTokenizerBase) -> Encoder:
    scratch = profile.model.from_scratch
    trusted = profile.model.trust_remote_code
    longest = scratch.max_position_embeddings if scratch else None
    if folder is not None:
        longest = longest_context(folder, trusted=trusted)
    if longest is not None and profile.data.max_length > longest:
        raise DataError(
            f"data.max_length is {profile.data.max_length}, but the model sees at most {longest} tokens.",
            hint=f"Set data.max_length = {longest} or less.",
        )
    stops = stop_texts(tokenizer, eos_token_ids(folder, trusted=trusted) if folder else [])
    return Encoder(tokenizer, profile.run.stage, profile.data.max_length, stops, profile.data.loss_on)


def _split(profile: Profile, data: Sequences) -> tuple[Rows, Rows | None]:
    """What is learned, and what is set aside for evaluation."""
    fraction, number = profile.data.eval_fraction, profile.data.eval_num_rows
    if fraction is None and number is None:
        return Rows(data, np.arange(len(data), dtype=np.int32)), None
    apart = held_out(
        data, fraction=fraction, num_rows=number, seed=profile.train.rows_seed,
        may_cut=profile.run.stage == "pretrain",
    )  # fmt: skip
    return Rows(data, np.flatnonzero(~apart)), Rows(data, np.flatnonzero(apart))


def _shares(found: list[Found], train: Rows) -> list[Share]:
    """How many sequences of each source are learned, and its weight.

    Raises:
        DataError: a source whose weight leaves nothing of it.
    """
    bounds = np.searchsorted(train.indices, train.sequences.bounds)
    shares = [Share(int(size), one.weight) for size, one in zip(np.diff(bounds), found, strict=True)]
    for share, one in zip(shares, found, strict=True):
        if not share.per_epoch:
            raise DataError(
                f"{one.name}: weight {share.weight:g} of {share.num_rows} sequences leaves none in an epoch.",
                hint="Raise its weight, or leave the source out.",
            )
    return shares


def _losses(folder: Path | None) -> list[str]:
    """What was lost when the base model's folder was made from a file of another form."""
    source = None if folder is None else source_of(folder)
    return [] if source is None else source.notes


def _warnings(profile: Profile, data: Sequences) -> tuple[str, ...]:
    counts, found = data.counts, []
    if counts.num_without_target:
        found.append(f"{counts.num_without_target} of {counts.num_rows} rows have no token to learn and are left out")
    if counts.num_cut and profile.run.stage == "sft":
        found.append(f"{counts.num_cut} rows are longer than data.max_length = {profile.data.max_length} and are cut")
    return tuple(found)
