"""Files of prompts: to be asked, or with the answers that `ftui ask` and conversations have kept."""

import os
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import TypeVar

import msgspec

from ftui.errors import DataError
from ftui.helper.chat_session import Side
from ftui.launch.answering_sides import Addressee
from ftui.launch.transcript import Exchange
from ftui.runs.requests import SamplingKeys
from ftui.runs.run_folder import Run
from ftui.system.input_files import read_input


class PromptLine(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A line of a file of prompts."""

    prompt: str
    system: str | None = None


class Question(msgspec.Struct, frozen=True):
    """What is asked of whom, and where the answers go (`None`: among the conversations of the run)."""

    whom: Addressee
    prompts: Path
    out: Path | None = None
    sampling: SamplingKeys = SamplingKeys()
    allow: tuple[str, ...] = ()


T = TypeVar("T", bound=msgspec.Struct)
HINT = 'A line is {"prompt": "..."} and may have "system".'


def check_file(text: str) -> Path:
    """The file that a person typed, `~` for their home.

    Raises:
        DataError: there is none.
    """
    path = Path(os.path.expanduser(text.strip()))
    if not os.path.isfile(path):
        raise DataError(f"There is no file {text.strip()}.")
    return path


def read_prompts(path: Path) -> Sequence[PromptLine]:
    """The prompts of a JSONL file (`prompt`, perhaps `system`), or of a text file with one a line.

    Raises:
        DataError: it cannot be read, or a line is neither.
    """
    return [_prompt(path, number, text) for number, text in _some_lines(path)]


def read_prompts_and_answers(path: Path) -> Sequence[PromptLine | Exchange]:
    """The same of a file in which lines may have been answered.

    Raises:
        DataError: as `read_prompts`.
    """
    return [
        _decode(path, number, text, Exchange) if _is_answered(text) else _prompt(path, number, text)
        for number, text in _some_lines(path)
    ]


def find_answers(
    path: Path, prompts: Iterable[tuple[str, str | None]], run: Run, sides: Sequence[Side], sampling: SamplingKeys
) -> list[Exchange | None]:
    """For each prompt (with its system prompt) what a file of answers has of these weights and this sampling.

    The base has no seal that says which one it is, so its answers must be of the same run.

    Raises:
        DataError: the file is there and cannot be read.
    """
    answered, wanted = {}, [(side.title, side.seal) for side in sides]
    is_sealed = all(side.seal for side in sides)
    for number, text in _lines(path) if path.exists() else ():
        line = _decode(path, number, text, Exchange)
        is_same = [(answer.of, answer.seal) for answer in line.answers] == wanted and line.sampling == sampling
        if line.turn == 1 and is_same and (is_sealed or line.run == run.name):
            answered[line.prompt, line.system] = line
    return [answered.get(prompt) for prompt in prompts]


def _lines(path: Path) -> list[tuple[int, str]]:
    try:
        texts = read_input(path).decode("utf-8-sig").split("\n")  # JSON may hold the other ends of lines
    except (OSError, UnicodeDecodeError) as error:
        raise DataError(f"{path} cannot be read: {error}.") from error
    return [(number, text) for number, text in enumerate(texts, start=1) if text.strip()]


def _some_lines(path: Path) -> list[tuple[int, str]]:
    if not (lines := _lines(path)):
        raise DataError(f"{path} has no prompt in it.")
    return lines


def _is_answered(text: str) -> bool:
    try:
        line = msgspec.json.decode(text)
    except msgspec.DecodeError:
        return False  # it is read as a prompt
    return isinstance(line, dict) and "answers" in line


def _prompt(path: Path, number: int, text: str) -> PromptLine:
    return _decode(path, number, text, PromptLine) if text.lstrip().startswith("{") else PromptLine(text)


def _decode(path: Path, number: int, text: str, kind: type[T]) -> T:
    try:
        return msgspec.json.decode(text, type=kind)
    except msgspec.MsgspecError as error:
        raise DataError(f"{path}, line {number}: {error}.", hint=HINT) from error
