"""What can be started: profiles in the current folder, those that come with ftui, and runs to resume."""

import tomllib
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

from ftui.profile import presets
from ftui.runs import describe
from ftui.runs.records import result_lines
from ftui.runs.run_folder import Run

from ..drawing.wording import model_name, phase_style, status_word
from .run_list import RunList, RunRow

TABLES = ("run", "model", "data")  # a TOML file with one of these is taken for a profile
LONGEST = 256 << 10  # bytes; no profile is longer
MOST_FILES = 500
RESUMABLE = ("parked", "stopped", "failed", "lost")


@dataclass(frozen=True)
class StartChoice:
    """One line of the list: a profile's file or a run. `words` explain it, in the style `tone`; `whole` says more."""

    section: str
    name: str
    words: str
    tone: str = "muted"
    profile: Path | None = None
    run: Run | None = None
    whole: str = ""


HERE, SHIPPED, RUNS = "profiles in this folder", "profiles that come with ftui", "runs to resume"


def find_choices(folder: Path, run_list: RunList) -> list[StartChoice]:
    """All there is, section by section."""
    run_list.look()
    shipped = [
        StartChoice(SHIPPED, preset.name, preset.description, profile=preset.path)
        for preset in presets.shipped_presets()
    ]
    runs = [_run(row) for row in run_list.rows if not row.is_running and row.status.state.phase in RESUMABLE]
    return [*_profiles(folder), *runs, *shipped]  # the longest last


def filter_choices(choices: list[StartChoice], text: str) -> list[StartChoice]:
    """Those with every word of `text` somewhere in them."""
    words = text.casefold().split()
    return [
        choice
        for choice in choices
        if all(word in f"{choice.name} {choice.words} {choice.whole}".casefold() for word in words)
    ]


def _run(row: RunRow) -> StartChoice:
    state = row.status.state
    reason = (
        result_lines.lost_reason(state) if state.phase == "lost" else (state.message.split("\n")[0] or state.reason)
    )
    words = f"{status_word(row.status)} at {describe.place(state)}" + (f": {reason}" if reason else "")
    return StartChoice(RUNS, row.run.name, words, phase_style(row.status), run=row.run)


def _profiles(folder: Path) -> Iterator[StartChoice]:
    for path in [path for path in sorted(folder.glob("*.toml")) if path.is_file()][:MOST_FILES]:  # a pipe would not end
        try:
            table = tomllib.loads(_text(path))
        except (OSError, ValueError, RecursionError) as error:  # TOML's and Unicode's errors are ValueErrors
            yield StartChoice(HERE, path.name, f"cannot be read: {error}", "bad", profile=path)
            continue
        if any(isinstance(table.get(name), dict) for name in TABLES):
            whole, words = _summary(table, str), _summary(table, _last_part)
            yield StartChoice(HERE, path.name, words, profile=path, whole=whole)


def _text(path: Path) -> str:
    with path.open("rb") as file:
        data = file.read(LONGEST + 1)
    if len(data) > LONGEST:
        raise ValueError("it is too long for a profile")
    return data.decode("utf-8-sig")


def _summary(table: dict[str, object], named: Callable[[str], str]) -> str:
    """Stage, base model and rows, as far as the file says; `named` says how paths are called."""
    stage, model = _values(table, "run", "stage"), _values(table, "model", "name_or_path")
    scratch = ["from scratch"] if not model and _values(table, "model", "from_scratch") else []
    parts = [" ".join(stage), " ".join(map(named, model or scratch)), " ".join(_sources(table, named))]
    return ", ".join(part for part in parts if part)


def _last_part(name: str) -> str:
    """Of a path what tells it from its neighbours; names on the hub stay whole."""
    is_path = name.startswith(("/", ".", "~")) or name.count("/") > 1
    return model_name(name) if is_path else name


def _values(table: dict[str, object], section: str, key: str) -> list[str]:
    inner = table.get(section)
    value = inner.get(key) if isinstance(inner, dict) else None
    each = [] if value is None else value if isinstance(value, list) else [value]
    return [text for text in map(str, each) if text]


def _sources(table: dict[str, object], named: Callable[[str], str]) -> list[str]:
    """The paths of data.train, each with the entry of it that is meant where one is named."""
    inner = table.get("data")
    value = inner.get("train") if isinstance(inner, dict) else None
    each = value if isinstance(value, list) else [value]
    paths = []
    for source in each:
        path, subset = (
            (source.get("path", source), source.get("subset")) if isinstance(source, dict) else (source, None)
        )
        if path:
            paths.append(named(str(path)) + (f" ({subset})" if subset else ""))
    return paths
