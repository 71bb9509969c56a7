"""`ftui evaluate`, for commands and screens: what is checked before, where results are written, what comes of it."""

import hashlib
import os
from collections.abc import Collection
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec

from ftui.errors import DataError, UsageError
from ftui.evaluation.lm_eval_results import TaskFigure, read_lm_eval
from ftui.evaluation.result_text import plan_rows, result_rows
from ftui.evaluation.results import MeasureTable, find_gaps, read_results, summarise
from ftui.evaluation.text_measures import why_missing
from ftui.helper.client import Helper, OnDetail
from ftui.helper.evaluation_facts import EvaluationFacts, EvaluationRequest, EvaluationSide
from ftui.launch.evaluation_target import EvaluationTarget, evaluation_profile, find_target, held_out_profile
from ftui.launch.long_job import LongJob, Rows, disk_line
from ftui.profile.consent import check_measures
from ftui.profile.schema import Profile
from ftui.profile.serialize import to_toml
from ftui.runs.run_folder import Run
from ftui.system.files import DAMAGED, read_plain
from ftui.system.input_files import open_input

OWN_ROWS = ""
"""As the file of `forgetting`: the run's own evaluation rows."""

MAX_NEW_TOKENS = 256
SETTINGS, RESULTS = "evaluation.json", "rows.jsonl"

RESULT_BYTES = 1 << 20
"""Beside what grows with the rows: an answer and the one of the data, for each side."""


@dataclass(frozen=True, kw_only=True)
class EvaluationOptions:
    """What a person can choose beside the model: see `ftui evaluate --help`."""

    data: Path
    against: str | None = None
    forgetting: str | None = None
    measures: Path | None = None
    lm_eval: Path | None = None
    out: Path | None = None
    num_rows: int | None = None
    max_new_tokens: int = MAX_NEW_TOKENS
    device: str | None = None
    overrides: tuple[str, ...] = ()
    allow: Collection[str] = ()


class EvaluationResult(msgspec.Struct, frozen=True):
    """What came of it. `folder` has evaluation.json (how) and rows.jsonl (a line for each row and side)."""

    title: str
    folder: str
    facts: EvaluationFacts
    tables: list[MeasureTable]
    notes: list[str]
    lm_eval: list[TaskFigure]


@dataclass(frozen=True)
class PlannedEvaluation:
    """One that is checked and may begin. `disk` is the line of a plan about the room it takes."""

    title: str
    assumptions: tuple[str, ...]
    request: EvaluationRequest
    profile: Profile
    forgetting: Profile | None
    lm_eval: tuple[TaskFigure, ...]
    disk: tuple[str, str]

    @property
    def folder(self) -> Path:
        """Where results are written; those that are there already are not measured again."""
        return Path(self.request.results).parent

    def run(self, helper: Helper, on_detail: OnDetail) -> EvaluationResult:
        """Measure what is not measured yet, and put all together.

        Raises:
            FtuiError: see engine/evaluation/evaluate_model.py.
        """
        answer = helper.ask(
            "evaluate_model", on_detail=on_detail, profile=self.profile, wanted=msgspec.to_builtins(self.request),
            forgetting=None if self.forgetting is None else to_toml(self.forgetting),
        )  # fmt: skip
        facts = msgspec.convert(answer, EvaluationFacts)
        rows = read_results(Path(self.request.results))
        tables = summarise(rows, [side.title for side in self.request.sides], facts.own_measures)
        notes = [*self.assumptions, *facts.notes, *find_gaps(rows)]
        return EvaluationResult(self.title, str(self.folder), facts, tables, notes, list(self.lm_eval))

    def job(self) -> LongJob:
        """The same as long work that a screen shows."""

        def run(helper: Helper, on_detail: OnDetail) -> Rows:
            result = self.run(helper, on_detail)
            notes = [note for note in result.notes if note not in self.assumptions]  # these are in the plan
            return result_rows(result.tables, result.lm_eval, notes)

        plan = [*plan_rows(self.folder, self.assumptions), self.disk]
        return LongJob(
            self.title, plan, run, "What is measured is kept: it goes on from there when it is started again."
        )


def plan_evaluation(source: Run | Path, checkpoint: str | None, options: EvaluationOptions) -> PlannedEvaluation:
    """Check all that can be checked without the training libraries, and choose the folder of the results.

    The same call leads to the same folder, so that it continues what was interrupted; another model, other rows or
    other settings lead to another one.

    Args:
        source: a run, whose `checkpoint` is evaluated (`None`: final/, else the newest), or a folder with a model.

    Raises:
        FtuiError: there is no such checkpoint or file, consent is missing, the folder holds another evaluation, or the
            disk has no room.
    """
    data = options.data.absolute()
    digests = {str(data): hash_file(data)}
    if options.measures is not None:
        check_measures(options.measures, options.allow)
        digests["measures"] = hash_file(options.measures)
    target = find_target(source, checkpoint, options.against, data, options.device, options.overrides)
    profile, forgetting = evaluation_profile(target, data), None
    if options.forgetting == OWN_ROWS:
        forgetting = held_out_profile(target, data)
    elif options.forgetting is not None:
        path = Path(options.forgetting).absolute()
        digests["forgetting"] = hash_file(path)
        forgetting = evaluation_profile(target, path)
    if forgetting is not None:
        target.check_base()
    settings = _describe(target, options, profile, forgetting, digests)
    title = f"{target.sides[0].folder_name}-{hashlib.sha256(settings.encode()).hexdigest()[:10]}"
    parent = Path("evaluations").absolute() if target.run is None else target.run.evaluations
    folder = parent / title if options.out is None else options.out.absolute()
    _check_same(folder, settings)
    request = EvaluationRequest(
        [EvaluationSide(side.title, None if side.folder is None else str(side.folder)) for side in target.sides],
        str(folder / RESULTS), settings, target.sides[0].trained_on,
        inside=None if target.run is None or options.out is not None else str(target.run.folder),
        device=target.device, num_rows=options.num_rows, max_new_tokens=options.max_new_tokens,
        batch_size=profile.eval.per_device_eval_batch_size,
        measures=None if options.measures is None else str(options.measures.absolute()),
    )  # fmt: skip
    disk = disk_line(folder, RESULT_BYTES + 2 * len(target.sides) * data.stat().st_size)
    lm_eval = () if options.lm_eval is None else tuple(read_lm_eval(options.lm_eval))
    assumptions = target.assumptions
    if options.max_new_tokens and profile.run.stage != "pretrain" and (reason := why_missing()):
        assumptions += (reason,)
    against = f" against {target.sides[1].title}" if len(target.sides) > 1 else ""
    whole_title = f"evaluate {target.title}{against} on {data.name}"
    return PlannedEvaluation(whole_title, assumptions, request, profile, forgetting, lm_eval, disk)


def _check_same(folder: Path, settings: str) -> None:
    """Rows in a folder are taken for those of this evaluation, so they must be; where they were computed is the same.

    Raises:
        UsageError: they are of another one, or nothing says of which.
    """
    if not os.path.lexists(folder / RESULTS):
        return
    try:
        of_rows, wanted = (
            msgspec.json.decode(text, type=dict[str, Any]) | {"device": None}
            for text in (read_plain(folder / SETTINGS), settings)
        )
    except (OSError, *DAMAGED) as error:
        reason = f"{SETTINGS} cannot be read: {error}"
    else:
        keys = sorted(key for key in of_rows.keys() | wanted if of_rows.get(key) != wanted.get(key))
        if not keys:
            return
        reason = f"it differs in {', '.join(keys)}"
    raise UsageError(f"{folder} holds another evaluation ({reason}).", hint="Give another --out.")


def hash_file(path: Path) -> str:
    """SHA-256 of a file's bytes.

    Raises:
        DataError: it cannot be read.
    """
    try:
        with open_input(path) as file:
            return hashlib.file_digest(file, "sha256").hexdigest()
    except OSError as error:
        raise DataError(f"{path} cannot be read: {error.strerror}.") from error


def _describe(
    target: EvaluationTarget, options: EvaluationOptions, profile: Profile, forgetting: Profile | None,
    digests: dict[str, str],
) -> str:  # fmt: skip
    """All that results depend on, as JSON."""
    settings = {
        "model": target.title,
        "sides": [{"title": side.title, "seal": side.seal} for side in target.sides],
        "base": target.sides[0].trained_on,
        "data": str(options.data.absolute()),
        "num_rows": options.num_rows,
        "max_new_tokens": options.max_new_tokens,
        "sampling": "greedy",
        "device": target.device,
        "sha256": digests,
        "profile": to_toml(profile),
        "forgetting_profile": None if forgetting is None else to_toml(forgetting),
    }
    return msgspec.json.format(msgspec.json.encode(settings)).decode() + "\n"
