"""All that needs neither weights nor a plan: tokenizer, rows, tokens. For a run, and for whoever looks at its data."""

from collections.abc import Callable, Iterator
from collections.abc import Sequence as Several
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
from transformers import PreTrainedTokenizerBase

from ftui.errors import DataError
from ftui.profile.schema import Profile

from ..models.adapter_files import starting_adapter
from ..models.files.hub import CODE, TOKENIZER, base_folder, model_folder, tokenizer_folder
from ..models.load_model import eos_token_ids, longest_context
from ..models.special_tokens import add_special_tokens
from ..models.tokenizer import load_tokenizer, train_tokenizer
from .files.csv_rows import describe_preamble
from .files.encoding_guess import misread_note
from .files.encodings import utf8_chunks
from .files.folders import first_names
from .files.streams import CHUNK, TABLES, kind_of, open_stream, printable
from .holdout import choose_holdout
from .mismatched import mismatch
from .sources import ResolvedSource, find_sources
from .stores.cache import ReadOptions, load_store
from .stores.sequences import Sequences, cut_to_length, join_sources
from .stores.store import Store
from .stores.tasks import texts_in
from .tokens.encode import Encoder, Sequence, num_common, stop_texts
from .tokens.named_templates import compare_with_own, set_template

Report = Callable[[str], None]


@dataclass(frozen=True)
class DataSplit:
    """Part of a data set: which of its sequences, in their own order.

    An example is what a plan deals out: one sequence, or the two of a pair (`per_example` = 2), the chosen one first.
    `mismatched` are as many prompts with each other's answers, where the loss is `kto`. `reference` are the
    log-probabilities of its targets under the reference model, once they are measured. `scored`: each
    sequence gets a score at its end.
    """

    sequences: Sequences
    indices: np.ndarray
    per_example: int = 1
    mismatched: "DataSplit | None" = None
    reference: "LogProbs | None" = None
    scored: bool = False

    def __len__(self) -> int:
        return len(self.indices) // self.per_example

    @property
    def lengths(self) -> np.ndarray:
        """Tokens of each example (int32)."""
        return self._per_example(self.sequences.lengths)

    @property
    def num_targets(self) -> np.ndarray:
        """Trained tokens of each example (int32)."""
        return self._per_example(self.sequences.num_targets)

    def _per_example(self, amounts: np.ndarray) -> np.ndarray:
        chosen: np.ndarray = amounts[self.indices]
        return chosen if self.per_example == 1 else chosen.reshape(-1, self.per_example).sum(1, dtype=np.int32)

    @property
    def bounds(self) -> np.ndarray:
        """The first example of each source and, at the end, the number of all."""
        return np.searchsorted(self.indices, self.sequences.bounds) // self.per_example

    @property
    def longest_first(self) -> np.ndarray:
        """The numbers of the examples by their tokens: batches of like lengths need the least padding."""
        return np.argsort(-self.lengths, kind="stable")

    def example(self, number: int) -> list[Sequence]:
        """The sequences of an example."""
        places = range(number * self.per_example, (number + 1) * self.per_example)
        sequences = [self.sequences[int(self.indices[place])] for place in places]
        if self.reference is None:
            return sequences
        return [replace(one, reference=self.reference[place]) for one, place in zip(sequences, places, strict=True)]

    def longest_example(self, rows: Several[tuple[int, ...]] | None = None) -> int:
        """Tokens of the longest example (of these rows of a plan), what all its answers begin with counted once."""
        numbers = np.arange(len(self)) if rows is None else np.array([number for row in rows for number in row])
        lengths, longest = self.lengths, 0
        for number in numbers[np.argsort(-lengths[numbers], kind="stable")]:
            if lengths[number] <= longest:
                break
            answers = [sequence.input_ids for sequence in self.example(int(number))]
            longest = max(longest, sum(map(len, answers)) - (len(answers) - 1) * num_common(answers))
        return longest

    def amounts(self, examples: np.ndarray) -> dict[str, int]:
        """What losses of these examples are divided by: see `Batch.amounts`; and their `tokens`."""
        places = (examples[:, None] * self.per_example + np.arange(self.per_example)).reshape(-1)
        indices = self.indices[places]
        num_targets, labels = self.sequences.num_targets[indices], self.sequences.labels[indices]
        return {
            "tokens": int(self.sequences.lengths[indices].sum()),
            "targets": int(num_targets.sum()),
            "examples": len(examples),
            "chosen_targets": int(num_targets[labels > 0].sum()),
            "chosen": int((labels > 0).sum()),
            "rejected": int((labels < 0).sum()),
        }

    @property
    def num_rows(self) -> int:
        """Rows they were made of: one may have given several sequences."""
        return int(np.count_nonzero(np.bincount(self.sequences.rows[self.indices])))

    @property
    def num_tokens(self) -> int:
        return int(self.sequences.lengths[self.indices].sum())

    @property
    def num_target_tokens(self) -> int:
        return int(self.sequences.num_targets[self.indices].sum())


@dataclass(frozen=True)
class LogProbs:
    """The log-probability (float32, in nats) of each target of the sequences of a split: those of sequence n, in the
    split's own order, are values[starts[n] : starts[n + 1]].
    """

    values: np.ndarray
    starts: np.ndarray

    def __getitem__(self, number: int) -> np.ndarray:
        return self.values[self.starts[number] : self.starts[number + 1]]


@dataclass(frozen=True)
class LoadedData:
    """`folder` and `commit` are those of the base model, `adapter` is the one to continue from (`None` for new ones).

    `new_token_ids` are entries of the tokenizer that the profile has added: the base has never seen them. `longest` is
    the most tokens that the model sees, where that is known. `found` and `stores` are the sources of data.train in
    their order, `eval_found` and `eval_stores` those of data.eval. `train` and `evaluation` are what is trained on and
    measured of them at data.max_length. `file_notes` name files of folders that are not read. `unlike_template` says
    how data.chat_template differs from the tokenizer's own; `missing_marks` are its marks that are no tokens.
    `header_notes` say which lines above the header of CSV files are passed over, `misread_files` that a file is no
    language in the encoding that is named for it, and in which it is one.
    """

    tokenizer: PreTrainedTokenizerBase
    folder: Path | None
    commit: str | None
    longest: int | None
    encoder: Encoder
    sources: list[ResolvedSource]
    stores: list[Store]
    eval_sources: list[ResolvedSource]
    eval_stores: list[Store]
    train: DataSplit
    evaluation: DataSplit | None
    file_notes: tuple[str, ...] = ()
    adapter: Path | None = None
    new_token_ids: tuple[int, ...] = ()
    unlike_template: tuple[str, ...] = ()
    missing_marks: tuple[str, ...] = ()
    misread_files: tuple[str, ...] = ()
    header_notes: tuple[str, ...] = ()


@dataclass(frozen=True)
class LoadedEncoder:
    """What turns the rows of a profile into tokens, and what belongs to it in `LoadedData`."""

    folder: Path | None
    commit: str | None
    encoder: Encoder
    new_token_ids: tuple[int, ...]
    unlike_template: tuple[str, ...]
    missing_marks: tuple[str, ...]


def load_encoder(
    profile: Profile, sources: list[ResolvedSource], cache: Path, report: Report, *, weights: bool
) -> LoadedEncoder:
    """The tokenizer with the profile's tokens and template; `weights` as in `load_data`.

    Raises:
        ModelError, DataError, DiskError: see the functions that do the work.
    """
    folder, commit, tokenizer = _tokenizer(profile, sources, cache, report, weights=weights)
    new_token_ids = add_special_tokens(tokenizer, profile.model.extra_special_tokens)
    template = profile.data.chat_template
    unlike = tuple(compare_with_own(tokenizer, template)) if template else ()
    missing_marks = set_template(tokenizer, template) if template else ()
    stops = stop_texts(tokenizer, eos_token_ids(folder, trusted=profile.model.trust_remote_code) if folder else [])
    encoder = Encoder(tokenizer, profile.run.stage, stops, profile.data.loss_on)
    return LoadedEncoder(folder, commit, encoder, new_token_ids, unlike, missing_marks)


def load_data(
    profile: Profile, cache: Path, report: Report, *, weights: bool = True, loaded: LoadedEncoder | None = None
) -> LoadedData:
    """Fetch the model's files, read and tokenise the rows. `report(detail)` tells how far it is.

    Without `weights` only the files of tokenizer and config are fetched, no adapter is looked at, and rows of which
    nothing is trained on are no error: enough to look at the data. `loaded` is what `load_encoder` gave before.

    Raises:
        ModelError, DataError, DiskError: see the functions that do the work.
    """
    sources = find_sources(profile.data, report, stage=profile.run.stage)
    loaded = loaded or load_encoder(profile, sources, cache, report, weights=weights)
    encoder = loaded.encoder
    adapter = starting_adapter(profile.adapter, report) if weights else None
    longest = _context_length(profile, loaded.folder)
    options = _read_options(profile)
    stores = [load_store(one, encoder, cache, report, options) for one in sources]
    train, evaluation = _split(profile, _model_view(profile, sources, stores, weights=weights))
    eval_sources = find_sources(profile.data, report, stage=profile.run.stage, evaluation=True)
    what = "tokenising evaluation rows"
    eval_stores = [load_store(one, encoder, cache, report, options, what=what) for one in eval_sources]
    if eval_stores:
        apart = _model_view(profile, eval_sources, eval_stores, weights=weights)
        evaluation = _whole(profile, apart)
    if profile.preference.needs_divergence(profile.run.stage) and weights:
        train = _with_mismatched(profile, train, "to train on")
        evaluation = evaluation and _with_mismatched(profile, evaluation, "to evaluate on")
    return LoadedData(
        encoder.tokenizer, loaded.folder, loaded.commit, longest, encoder, sources, stores, eval_sources, eval_stores,
        train, evaluation, (*_notes_on_files(sources, stores), *_notes_on_files(eval_sources, eval_stores)), adapter,
        loaded.new_token_ids, loaded.unlike_template, loaded.missing_marks,
        tuple(_find_misread((*sources, *eval_sources))),
        tuple(_find_preambles((*sources, *eval_sources))),
    )  # fmt: skip


def _notes_on_files(sources: list[ResolvedSource], stores: list[Store]) -> list[str]:
    """What was left out of folders."""
    notes = [note for one in sources for note in one.notes]
    for one, store in zip(sources, stores, strict=True):
        if store.counts.empty:
            notes.append(
                f"{first_names(one.places[number] for number in store.counts.empty)}: no rows in it, passed over"
            )
    return notes


def _find_misread(sources: Several[ResolvedSource]) -> Iterator[str]:
    for source in sources:
        for place in source.places if source.encoding else ():
            if isinstance(place, Path) and kind_of(place) not in TABLES:
                with open_stream(place) as stream:
                    note = misread_note(stream.read(CHUNK), str(source.encoding))
                if note:
                    yield f"{printable(place)}: {note}"


def _find_preambles(sources: Several[ResolvedSource]) -> Iterator[str]:
    places: dict[str, list[Path]] = {}
    for source in sources:
        for place in source.places:
            if isinstance(place, Path) and (kind := kind_of(place)) in (".csv", ".tsv"):
                with open_stream(place) as stream:
                    _, chunks = utf8_chunks(printable(place), stream, source.encoding)
                    note = describe_preamble(printable(place), chunks, "\t" if kind == ".tsv" else None)
                places.setdefault(note, []).append(place)
    return (f"{first_names(alike)}: {note}" for note, alike in places.items() if note)


def _tokenizer(
    profile: Profile, sources: list[ResolvedSource], cache: Path, report: Report, *, weights: bool
) -> tuple[Path | None, str | None, PreTrainedTokenizerBase]:
    model, scratch = profile.model, profile.model.from_scratch
    if scratch is None:
        if weights or (model.name_or_path or "").lower().endswith(".gguf"):
            folder, commit = base_folder(model, cache, report)
        else:
            patterns = [*TOKENIZER, *CODE] if model.trust_remote_code else TOKENIZER
            folder, commit = model_folder(str(model.name_or_path), model.revision, report, patterns=patterns)
        return folder, commit, load_tokenizer(folder, trusted=model.trust_remote_code)
    if scratch.tokenizer is not None:
        return None, None, load_tokenizer(tokenizer_folder(scratch.tokenizer, report))
    report("training the tokenizer")
    skips = profile.data.on_bad_row == "skip"
    return None, None, train_tokenizer(scratch, (text for one in sources for text in texts_in(one, skips=skips)))


def _context_length(profile: Profile, folder: Path | None) -> int | None:
    if folder is not None:
        return longest_context(folder, trusted=profile.model.trust_remote_code)
    scratch = profile.model.from_scratch
    return scratch.max_position_embeddings if scratch else None


def _read_options(profile: Profile) -> ReadOptions:
    """Code of a model's own runs in this process only: others would have to be trusted too."""
    alone, minutes = profile.model.trust_remote_code, profile.health.stall_minutes
    return ReadOptions(
        profile.data.on_bad_row == "skip",
        1 if alone else profile.data.dataset_num_proc,
        None if minutes is None else 60 * minutes,
    )


def _model_view(profile: Profile, sources: list[ResolvedSource], stores: list[Store], *, weights: bool) -> Sequences:
    """What the model sees of all sources.

    Raises:
        DataError: nothing of one of them is trained on (with `weights`).
    """
    parts = [cut_to_length(store, profile.run.stage, profile.longest_row) for store in stores]
    for part, one in zip(parts, sources, strict=True):
        if weights and not len(part) and profile.samples_answers:
            raise DataError(
                f"All of the {part.counts.num_rows} prompts of {', '.join(map(printable, one.places))} are longer than "
                f"the {profile.longest_row} tokens that data.max_length leaves them.",
                hint=f"Raise data.max_length, or lower {profile.run.stage}.max_completion_length.",
            )
        if weights and not len(part):
            are_judged = set(part.stores[0].counts.forms) == {"kto"} and not part.stores[0].counts.num_sequences
            raise DataError(
                f"None of the {part.counts.num_rows} rows of {', '.join(map(printable, one.places))} "
                "has a token to train on.",
                hint="All of their answers were found bad: the verdict (label, kto_tag) of each is false."
                if are_judged
                else "Are there assistant turns, and does data.max_length leave room for them?",
            )
    return join_sources(parts)


def _split(profile: Profile, data: Sequences) -> tuple[DataSplit, DataSplit | None]:
    """What is trained on, and what is set aside for evaluation."""
    fraction, number = profile.data.eval_fraction, profile.data.eval_num_rows
    if (fraction is None and number is None) or not len(data):
        return _whole(profile, data), None
    apart = choose_holdout(
        data, fraction=fraction, num_rows=number, seed=profile.train.rows_seed,
        may_cut=profile.run.stage == "pretrain",
    )  # fmt: skip
    whole = _whole(profile, data)
    return replace(whole, indices=np.flatnonzero(~apart)), replace(whole, indices=np.flatnonzero(apart))


def _with_mismatched(profile: Profile, split: DataSplit, what: str) -> DataSplit:
    """Raises DataError: the answers of one row are more than those of all others, so some would be measured alone."""
    _, of_each = np.unique(split.sequences.rows[split.indices], return_counts=True)
    if 2 * of_each.max(initial=0) > len(split.indices):
        number = "is one row" if len(of_each) == 1 else f"are {len(of_each)} rows, of unlike numbers of answers,"
        raise DataError(
            f"There {number} {what}, and stage kto puts the answer of another row to each prompt.",
            hint="Give it more rows, judged good and bad.",
        )
    sequences = mismatch(split.sequences, split.indices, profile.data.max_length, profile.train.rows_seed)
    return replace(split, mismatched=DataSplit(sequences, split.indices))


def _whole(profile: Profile, data: Sequences) -> DataSplit:
    indices = np.arange(len(data), dtype=np.int32)
    return DataSplit(data, indices, profile.per_example, scored=profile.gives_scores)
