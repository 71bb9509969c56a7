"""`python -P -m ftui.engine.helper`: answers questions of processes that load no training library (ftui/helping.py).

A question is a line of JSON on standard input, an answer one on standard output. It ends with its input, and after five
minutes without a question.
"""

import os
import select
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import Any

from ftui.engine.environment import settle_environment

settle_environment()

import msgspec  # noqa: E402

from ftui.engine.given import given_profile  # noqa: E402
from ftui.errors import BUG, DataError, FtuiError, ModelError  # noqa: E402
from ftui.helping import Answered, Asked, Problem  # noqa: E402
from ftui.known_models import known_config  # noqa: E402
from ftui.profile import Profile  # noqa: E402

IDLE_SECONDS = 300.0
MOST_FILES = 20


def main() -> int:
    questions, answers = _own_pipes()
    buffer = b""
    while True:
        line, newline, rest = buffer.partition(b"\n")
        if newline:
            buffer = rest
            os.write(answers, msgspec.json.encode(_answered(msgspec.json.decode(line, type=Asked))) + b"\n")
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


def _answered(asked: Asked) -> Answered:
    try:
        return Answered(asked.id, answer=msgspec.to_builtins(QUESTIONS[asked.ask](**asked.given)))
    except FtuiError as error:
        return Answered(asked.id, problem=Problem(error.message, error.hint, error.exit_code))
    except Exception as error:  # the one broad catch: the helper goes on, and whoever asked is told
        traceback.print_exc()
        text = f"{type(error).__name__}: {error}"
        return Answered(asked.id, problem=Problem(text, "This is a bug in ftui: please report it.", BUG))


def simulate(profile: str, card: dict[str, Any], longest: int | None, full_depth: bool) -> Any:
    """The memory of a profile (TOML, every path absolute) on a card: `ftui.estimate.answer.Memory`."""
    from ftui.cards import Card
    from ftui.engine.simulate.answer import simulate as simulated

    known = msgspec.convert(card, Card)
    found = given_profile(profile)
    return simulated(found, _config(found), known, longest=longest, full_depth=full_depth)


def count(profile: str) -> Any:
    """Rows, tokens and steps, as the dry run counts them."""
    from ftui.engine.dry_run import counts

    return counts(given_profile(profile))


def _config(profile: Profile) -> Any:
    """The folder (or `.gguf` file) with the config of the profile's model; of one on the hub little else is fetched.

    Where the hub cannot be reached, the config that comes with ftui, if there is one.

    Raises:
        ModelError: there is none.
    """
    from transformers import AutoConfig

    from ftui.engine.hub import model_folder

    section = profile.model
    if section.name_or_path is None:
        return None
    if section.name_or_path.endswith(".gguf"):
        return Path(section.name_or_path)
    try:
        return model_folder(section.name_or_path, section.revision, lambda detail: None, wanted=["*.json"])[0]
    except ModelError:
        known = known_config(section.name_or_path)
        if known is None:
            raise
    return AutoConfig.for_model(**known)


def recognise(path: str) -> list[dict[str, str]]:
    """What the first row of each file is taken for: `file`, and `form` or the `problem` with it. At most 20 files."""
    from ftui.engine.data.formats import detect
    from ftui.engine.data.sources import files_at, read_rows

    found = []
    for file in files_at(Path(path))[:MOST_FILES]:
        told = {"file": str(file)}
        try:
            told["form"] = detect(next(read_rows(file)))
        except StopIteration:
            told["problem"] = f"{file} has no rows."
        except DataError as error:
            told["problem"] = error.message
        found.append(told)
    return found


def model_config(name: str, revision: str | None) -> str:
    """The path of a model's config.json, which is fetched if it is not here; nothing else of the model is.

    Raises:
        ModelError: no such model, gated, or the hub cannot be reached.
    """
    from ftui.engine.hub import model_folder

    return str(
        model_folder(name, revision, lambda detail: None, wanted=["config.json", "README.md"])[0] / "config.json"
    )


QUESTIONS: dict[str, Callable[..., Any]] = {
    "simulate": simulate,
    "count": count,
    "recognise": recognise,
    "model_config": model_config,
}


if __name__ == "__main__":
    raise SystemExit(main())
