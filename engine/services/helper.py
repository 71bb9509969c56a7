"""`python -P -m ftui.engine.services.helper`: answers questions of processes that load no training library
(ftui/helper/client.py).

A question is a line of JSON on standard input, an answer one on standard output. It ends with its input, and after five
minutes without a question.
"""

import os
import select
import time
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ..system.environment import settle_environment

settle_environment()

import msgspec  # noqa: E402

from ftui.errors import BUG, DataError, FtuiError, ModelError  # noqa: E402
from ftui.helper.client import Answered, Asked, Problem  # noqa: E402
from ftui.models.known import known_config  # noqa: E402
from ftui.profile.schema import Profile  # noqa: E402

from .profile_text import given_profile  # noqa: E402

if TYPE_CHECKING:
    from ..data.forms.column_names import ColumnNames

IDLE_SECONDS = 300.0
PAUSE_SECONDS = 0.1  # between two lines about how far an answer is
Report = Callable[[str], None]
MOST_FILES = 20


def main() -> int:
    questions, answers = _own_pipes()
    buffer = b""
    while True:
        line, newline, rest = buffer.partition(b"\n")
        if newline:
            buffer = rest
            asked = msgspec.json.decode(line, type=Asked)
            _send(answers, _answered(asked, _teller(answers, asked.id)))
            continue
        if not select.select([questions], [], [], IDLE_SECONDS)[0]:
            return 0
        data = os.read(questions, 1 << 16)
        if not data:
            return 0
        buffer += data


def _own_pipes() -> tuple[int, int]:
    """The pipes, out of reach of all that libraries read and print."""
    questions, answers = os.dup(0), os.dup(1)
    nothing = os.open(os.devnull, os.O_RDONLY)
    os.dup2(nothing, 0)
    os.dup2(2, 1)
    return questions, answers


def _send(answers: int, answered: Answered) -> None:
    line = memoryview(msgspec.json.encode(answered) + b"\n")
    while line:  # a pipe takes what it has room for
        line = line[os.write(answers, line) :]


def _teller(answers: int, number: int) -> Report:
    """Tells whoever has asked question `number` how far it is; at most ten times a second."""
    last = -PAUSE_SECONDS

    def tell(detail: str) -> None:
        nonlocal last
        if (now := time.monotonic()) - last >= PAUSE_SECONDS:
            last = now
            _send(answers, Answered(number, detail=detail))

    return tell


def _answered(asked: Asked, report: Report) -> Answered:
    given = asked.given | ({"report": report} if asked.ask in ABOUT_ROWS else {})
    try:
        return Answered(asked.id, answer=msgspec.to_builtins(QUESTIONS[asked.ask](**given)))
    except FtuiError as error:
        return Answered(asked.id, problem=Problem(error.message, error.hint, error.exit_code))
    except Exception as error:  # the one broad catch: the helper goes on, and whoever asked is told
        traceback.print_exc()
        text = f"{type(error).__name__}: {error}"
        return Answered(asked.id, problem=Problem(text, "This is a bug in ftui: please report it.", BUG))


def simulate(profile: str, card: dict[str, Any], longest: int | None, full_depth: bool) -> Any:
    """The memory of a profile (TOML, every path absolute) on a card: `ftui.estimate.result.Memory`."""
    from ftui.hardware.devices import Card

    from ..simulate.profile_memory import simulate as simulated

    known = msgspec.convert(card, Card)
    found = given_profile(profile)
    return simulated(found, _config(found), known, longest=longest, full_depth=full_depth)


def count(profile: str) -> Any:
    """Rows, tokens and steps, as the dry run counts them."""
    from .count_rows import count_rows

    return count_rows(given_profile(profile))


def _config(profile: Profile) -> Any:
    """The folder (or `.gguf` file) with the config of the profile's model; of one on the hub little else is fetched.

    Where the hub cannot be reached, the config that comes with ftui, if there is one.

    Raises:
        ModelError: there is none.
    """
    from transformers import AutoConfig

    from ..models.files.hub import model_folder

    section = profile.model
    if section.name_or_path is None:
        return None
    if section.name_or_path.endswith(".gguf"):
        return Path(section.name_or_path)
    try:
        return model_folder(section.name_or_path, section.revision, lambda detail: None, patterns=["*.json"])[0]
    except ModelError:
        known = known_config(section.name_or_path)
        if known is None:
            raise
    return AutoConfig.for_model(**known)


def split(request: dict[str, Any]) -> Any:
    """Two files of one: `ftui.dataset.split.SplitRequest`, `SplitResult`."""
    from ftui.dataset.split import SplitRequest

    from .split_rows import split as split_rows

    return split_rows(msgspec.convert(request, SplitRequest))


def recognise(
    path: str, columns: dict[str, str] | None = None, roles: dict[str, str] | None = None, encoding: str | None = None
) -> list[dict[str, Any]]:
    """What the first rows of each file are taken for, at most 20 files of them.

    Of each `file` the `form` with its `confidence` (0..1), how many rows were `num_looked` at and `why`, and the
    `problem` with it, if there is one.
    """
    from ..data.files.folders import list_files
    from ..data.forms.column_names import ColumnNames

    shape = ColumnNames(columns or {}, roles or {})
    return [_recognised(file, shape, encoding) for file in list_files(Path(path)).files[:MOST_FILES]]


def _recognised(file: Path, shape: "ColumnNames", encoding: str | None) -> dict[str, Any]:
    from ..data.files.blocks import BadRow, parse_block, read_blocks
    from ..data.forms.detect_form import detect_form

    told: dict[str, Any] = {"file": str(file)}
    try:
        found = parse_block(next(read_blocks([file], encoding=encoding)))
        good = [row for row in found if not isinstance(row, BadRow)]
        if not good:
            raise next(row for row in found if isinstance(row, BadRow)).error()
        detected = detect_form(good, shape)
    except DataError as error:
        return told | {"problem": error.message}
    told |= {"form": detected.form, "confidence": detected.confidence, "num_looked": detected.num_looked}
    return told | {"why": detected.why} | ({"problem": detected.problem} if detected.problem else {})


def model_config(name: str, revision: str | None) -> str:
    """The path of a model's config.json, which is fetched if it is not here; nothing else of the model is.

    Raises:
        ModelError: no such model, gated, or the hub cannot be reached.
    """
    from ..models.files.hub import model_folder

    return str(
        model_folder(name, revision, lambda detail: None, patterns=["config.json", "README.md"])[0] / "config.json"
    )


def sample(profile: str, jump: str, report: Report, **given: Any) -> Any:
    """A row of a profile's training data as the model sees it: `ftui.dataset.row.Sample`; see `looking.sample`."""
    from ..inspection import browser

    return browser.view_row(profile, jump, report, **given)


def search(profile: str, text: str, after: int, report: Report, part: int = 0) -> Any:
    """The next row, or part of one, with this text in it: `ftui.dataset.row.Sample`, or `None`."""
    from ..inspection import browser

    return browser.search_rows(profile, text, after, report, part)


def report_on(profile: str, report: Report) -> Any:
    """All there is to know about the rows: `ftui.dataset.report.Report`."""
    from ..inspection import browser

    return browser.browse_report(profile, report)


ABOUT_ROWS = ("sample", "search", "report")
"""Questions whose answer may take a while; they tell how far they are."""

QUESTIONS: dict[str, Callable[..., Any]] = {
    "simulate": simulate,
    "count": count,
    "split": split,
    "recognise": recognise,
    "model_config": model_config,
    "sample": sample,
    "search": search,
    "report": report_on,
}


if __name__ == "__main__":
    raise SystemExit(main())
