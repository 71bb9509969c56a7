"""Evaluates models on rows: the losses of each row, then answers, each written down as soon as it is measured."""

import math
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, closing, contextmanager
from functools import partial
from pathlib import Path
from typing import Any

import msgspec

from ftui.errors import DataError, UsageError
from ftui.evaluation.own_measures import Measure, apply_measures, load_measures
from ftui.evaluation.results import UNANSWERED, Part, RowAnswer, RowLoss, read_results
from ftui.evaluation.text_measures import score_answer
from ftui.helper.evaluation_facts import EvaluationFacts, EvaluationRequest
from ftui.profile.schema import Profile
from ftui.runs.journal import Writer
from ftui.system.files import make_private_folder, open_private, replace_file, try_lock
from ftui.system.user_folders import cache_folder
from ftui.system.volume import disk_error

from ..check_profile import check_length
from ..data.load_rows import load_data
from ..generation.answer_prompts import FinishedAnswer, answer_prompts, finished_answers
from ..generation.conversation import Speaker
from ..generation.decode import Prompt
from ..generation.sampling import Sampling
from ..models.attention import settle_groups
from ..models.files.trained_base import pin_base
from ..models.joined_rows import choose_layout, settle_joined_rows
from ..services.chat import load_speakers
from ..services.profile_text import given_profile
from ..services.progress import Progress
from ..system.device import settle_torch
from ..system.memory import release_cached_memory, within_memory
from ..training.collate import collate_examples
from .evaluated_rows import EvaluatedRows, RowQuestion
from .row_sums import RowSums, sum_rows

OnDetail = Callable[[str], None]
BASE = "base"


def evaluate_model(
    on_detail: OnDetail, profile: str, wanted: dict[str, Any], forgetting: str | None = None
) -> EvaluationFacts:
    """Measure what is not in the file of results yet, and write it there.

    Args:
        profile: whose data.train are the rows (TOML). `forgetting`: the same for the rows of which is asked whether
            they were forgotten: those that it sets aside, where it does.
        wanted: the `EvaluationRequest`.

    Raises:
        FtuiError: a model cannot be loaded, rows cannot be read or there are none, a measure fails, the disk is full.
    """
    request = msgspec.convert(wanted, EvaluationRequest)
    measures = {} if request.measures is None else load_measures(Path(request.measures))
    parsed = pin_base(given_profile(profile), request.trained_on)
    rows, forgettable = read_rows(parsed, request.num_rows, on_detail), None
    if forgetting is not None:
        forgettable = read_rows(pin_base(given_profile(forgetting), request.trained_on), None, on_detail)
    speakers = _load(parsed, request, on_detail, with_base=forgettable is not None)
    answers = request.max_new_tokens > 0 and parsed.run.stage != "pretrain"
    questions = rows.questions(speakers[0].model.stop_ids) if answers else []
    sides = list(zip([side.title for side in request.sides], speakers, strict=False))
    with _results(request) as results:
        evaluation = ModelEvaluation(request, parsed, speakers[0], results, on_detail)
        for title, speaker in sides:
            evaluation.measure_losses("data", title, speaker, rows)
        if forgettable is not None:
            evaluation.measure_losses("forgetting", *sides[0], forgettable, base=speakers[-1])
            evaluation.measure_losses("forgetting", BASE, speakers[-1], forgettable)
        for title, speaker in sides:
            evaluation.measure_answers(title, speaker, rows, questions, measures)
    hardware, notes = speakers[0].model.hardware, _notes(rows, questions, answers=answers)
    return EvaluationFacts(
        hardware.name, hardware.precision, len(rows.numbers), len(questions),
        0 if forgettable is None else len(forgettable.numbers), list(measures), notes,
    )  # fmt: skip


def read_rows(profile: Profile, limit: int | None, on_detail: OnDetail) -> EvaluatedRows:
    """The first `limit` sequences of a profile's rows, or those that it sets aside.

    Raises:
        DataError: there are none, or data.max_length is more than the model sees.
    """
    on_detail("reading the rows")
    loaded = load_data(profile, cache_folder(Path("cache")), on_detail)
    check_length(profile, loaded.folder)
    split = loaded.evaluation or loaded.train
    if not len(split):
        raise DataError("There are no rows to evaluate on.")
    return EvaluatedRows(loaded, split, range(len(split))[:limit], profile.data.max_length)


def _load(profile: Profile, request: EvaluationRequest, on_detail: OnDetail, *, with_base: bool) -> list[Speaker]:
    """What the sides are computed with and, with the base, that at the end."""
    folders = [None if side.folder is None else Path(side.folder) for side in request.sides]
    where_is_base = folders.index(None) if None in folders else len(folders)
    if with_base and where_is_base == len(folders):
        folders.append(None)
    speakers = load_speakers(profile, folders, request.device, on_detail, trained_on=request.trained_on)
    hardware = speakers[0].model.hardware
    settle_torch(profile, hardware)
    settle_groups(hardware)
    settle_joined_rows()
    return [*speakers, speakers[where_is_base]] if with_base else speakers


@contextmanager
def _results(request: EvaluationRequest) -> Iterator[Writer]:
    """A block in which results are written, by nobody else; `settings` stand beside them."""
    path = Path(request.results)
    with ExitStack() as stack:
        try:
            make_private_folder(path.parent, inside=None if request.inside is None else Path(request.inside))
            if (lock := try_lock(path.with_name("evaluation.lock"))) is None:
                hint = "Wait until it has ended, or give another --out."
                raise UsageError(f"Another evaluation is at work in {path.parent}.", hint=hint)
            stack.callback(lock.close)
            replace_file(path.with_name("evaluation.json"), request.settings.encode())
            os.close(open_private(path, os.O_WRONLY | os.O_CREAT))
            writer = stack.enter_context(closing(Writer(path)))
        except OSError as error:
            raise disk_error(error, f"{path} could not be written", path.parent) from error
        yield writer


class ModelEvaluation:
    """Measures and writes what is not written yet."""

    def __init__(
        self, request: EvaluationRequest, profile: Profile, first: Speaker, results: Writer, on_detail: OnDetail
    ) -> None:
        self._request, self._results, self._on_detail = request, results, on_detail
        self._size = request.batch_size
        with first.model.answering(first.adapter):
            self._layout = choose_layout(first.model.model, profile, first.model.hardware)
        rows = read_results(Path(request.results))
        self._written = {_key(one) for one in rows if not _lacked_memory(one)}  # another machine may have enough

    def measure_losses(
        self, part: Part, title: str, speaker: Speaker, rows: EvaluatedRows, *, base: Speaker | None = None
    ) -> None:
        """The loss of each sequence and, with a base, the divergence from it; in smaller batches where memory runs out.

        The base itself does not diverge.
        """
        left = [number for number in rows.longest_first if (part, title, number) not in self._written]
        if not left:
            return
        progress = Progress(self._on_detail, f"losses of {title}", len(left), "rows")
        amounts = rows.split.num_targets
        while left:
            chosen = left[: self._size]
            batch = collate_examples(rows.split, [(number,) for number in chosen], rows.pad_id, self._layout)
            sums, problem = within_memory(partial(sum_rows, speaker, batch, amounts[chosen], base))
            if problem:
                release_cached_memory(speaker.model.hardware.device)
                if len(chosen) > 1:
                    self._size = (len(chosen) + 1) // 2
                    continue
            for place, number in enumerate(chosen):
                where, num_targets = str(rows.where(number)), int(amounts[number])
                self._results.write(_row_loss(part, number, where, title, num_targets, sums, place))
            left = left[len(chosen) :]
            progress.advance(len(chosen))

    def measure_answers(
        self,
        title: str,
        speaker: Speaker,
        rows: EvaluatedRows,
        questions: Sequence[RowQuestion],
        measures: Mapping[str, Measure],
    ) -> None:
        """The greedy answer to each question, and what is measured of it."""
        left = [one for one in questions if ("answer", title, one.number) not in self._written]
        if not left:
            return
        progress = Progress(self._on_detail, f"answers of {title}", len(left), "rows")
        model = speaker.model
        with model.answering(speaker.adapter):
            passes = answer_prompts(
                model.bare, [Prompt(one.prompt) for one in left], Sampling(), stop_ids=model.stop_ids,
                max_new_tokens=self._request.max_new_tokens, batch_size=self._request.batch_size,
            )  # fmt: skip
            for answer in finished_answers(passes):
                self._results.write(self._row_answer(title, speaker, rows, left[answer.number], answer, measures))
                progress.advance()

    def _row_answer(
        self, title: str, speaker: Speaker, rows: EvaluatedRows, question: RowQuestion, answer: FinishedAnswer,
        measures: Mapping[str, Measure],
    ) -> RowAnswer:  # fmt: skip
        where, scores = str(rows.where(question.number)), dict[str, float]()
        text = str(speaker.model.tokenizer.decode(list(answer.ids), skip_special_tokens=True)).strip()
        if answer.ending not in UNANSWERED:
            is_complete = answer.ending == "stop"
            scores = score_answer(text, question.reference, num_tokens=len(answer.ids), is_complete=is_complete)
            if measures:
                path, row = Path(str(self._request.measures)), rows.raw_row(question.number)
                scores |= apply_measures(measures, path, text, row, where)
        return RowAnswer(
            number=question.number, where=where, side=title, reference=question.reference, answer=text,
            ending=answer.ending, scores=scores,
        )  # fmt: skip


def _key(result: RowLoss | RowAnswer) -> tuple[str, str, int]:
    return (result.part if isinstance(result, RowLoss) else "answer", result.side, result.number)


def _lacked_memory(result: RowLoss | RowAnswer) -> bool:
    return (result.problem if isinstance(result, RowLoss) else result.ending) == "memory"


def _row_loss(
    part: Part, number: int, where: str, side: str, num_targets: int, sums: RowSums | None, place: int
) -> RowLoss:
    """`sums` are those of a batch (`None`: memory ran out), in which the row is at `place`."""
    row = RowLoss(part=part, number=number, where=where, side=side, nats=None, num_targets=num_targets, num_right=0)
    if sums is None:
        return msgspec.structs.replace(row, problem="memory")
    nats, right = float(sums.nats[place]), int(sums.num_right[place])
    if not math.isfinite(nats):
        return msgspec.structs.replace(row, problem="not finite")
    kl = (0.0 if part == "forgetting" else None) if sums.kl is None else max(0.0, float(sums.kl[place]))
    return msgspec.structs.replace(row, nats=nats, num_right=right, kl_nats=kl)


def _notes(rows: EvaluatedRows, questions: Sequence[RowQuestion], *, answers: bool) -> list[str]:
    """`answers`: whether rows are answered."""
    counts, notes = rows.loaded.train.sequences.counts, []
    if counts.num_cut and rows.loaded.encoder.stage != "pretrain":  # that splits them
        notes.append(f"{counts.num_cut} rows are longer than data.max_length = {rows.max_length:,}, and are cut")
    if counts.num_without_target:
        notes.append(f"{counts.num_without_target} rows have no token that is trained on, and are left out")
    without = len(rows.numbers) - len(questions)
    if answers and without:
        notes.append(f"{without} of {len(rows.numbers)} rows have no prompt with a whole answer: only loss is measured")
    return notes
