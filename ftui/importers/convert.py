"""A file of another tool becomes a profile that can be run, or one that says what it still needs."""

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from ftui.errors import ProfileError
from ftui.importers.accelerate_config import CONFIG_FILE
from ftui.importers.command import LAUNCHER, UNKNOWN, read_arguments
from ftui.importers.config_file import Document, Leaf, find_references, read_tables, read_text, resolve_references
from ftui.importers.draft import Imported, ProfileDraft
from ftui.importers.rules import apply_rules
from ftui.importers.sharding import forget_processes, settle_sharding
from ftui.importers.tools import find_tool
from ftui.importers.write import write_profile
from ftui.profile.layers import examine, text_layer
from ftui.profile.origins import Key, ProfileFault
from ftui.system.redact import redact
from ftui.text import shown

SCRIPTS = (".sh", ".bash", ".zsh")
PROGRAMS = {".py": "a Python program", ".ipynb": "a notebook"}
STAGE: Key = ("run", "stage")
ROUNDS = 40  # each takes away what cannot be said, so that what is left is a profile


def read_document(path: Path) -> Document:
    """The values of a YAML or JSON file, or the arguments of a shell script and of the file that it trains with.

    Raises:
        ProfileError: it is none of these (named with line and column).
    """
    if path.suffix in PROGRAMS:
        what = f"{path} is {PROGRAMS[path.suffix]}, which is neither run nor read."
        raise ProfileError(
            what, hint="Give the YAML or JSON file that it trains with, or a shell script that calls it."
        )
    text = read_text(path)
    is_script = path.suffix in SCRIPTS or (text.startswith("#!") and "sh" in text.partition("\n")[0])
    leaves = _read_script(path, text) if is_script else read_tables(path, text)
    if not leaves:
        raise ProfileError(f"{path} has no keys.", hint="Name the file that another tool trains with.")
    leaves = _with_named_tables(leaves, path.absolute().parent)
    return Document(path, resolve_references(leaves), find_references(leaves))


NAME_FILES = ("deepspeed", "fsdp_config", "deepspeed_config_file")
"""Keys at whose place the tables of the JSON or YAML file stand that they name; a launcher's `config_file` is one."""


def _with_named_tables(leaves: Sequence[Leaf], folder: Path, depth: int = 2) -> tuple[Leaf, ...]:
    """The leaves with what those files say, where they are here and can be read; else the name stays.

    A file of accelerate names one of DeepSpeed: they are read `depth` deep.
    """
    whole: list[Leaf] = []
    for leaf in leaves:
        path = _find_tables(leaf.value, folder) if depth and _names_tables(leaf) else None
        whole += [leaf] if path is None else _with_named_tables(_read_at(leaf, path), folder, depth - 1)
    return tuple(whole)


def _names_tables(leaf: Leaf) -> bool:
    return leaf.last in NAME_FILES or leaf.path == (LAUNCHER, CONFIG_FILE)


def _find_tables(name: Any, folder: Path) -> Path | None:
    if not isinstance(name, str) or not name.endswith((".json", ".yaml", ".yml")):
        return None
    try:
        places = (place / name for place in (folder, Path.cwd(), *list(folder.parents)[:3]))
        return next((path for path in places if path.is_file()), None)
    except (OSError, ValueError):  # too long, or a NUL in it
        return None


def _read_at(leaf: Leaf, path: Path) -> list[Leaf]:
    try:
        return [
            replace(one, path=(*leaf.path, *one.path), line=leaf.line) for one in read_tables(path, read_text(path))
        ]
    except ProfileError:
        return [leaf]


def _read_script(path: Path, text: str) -> tuple[Leaf, ...]:
    """The arguments of its command, before the keys of the file that the command names.

    Raises:
        ProfileError: as `read_document`; or that file is not there.
    """
    command = read_arguments(path, text)
    if command.config is None:
        return command.leaves
    if UNKNOWN in command.config:
        what = f"{path} trains with {shown(command.config)}, and does not say what that is."
        raise ProfileError(what, hint="Import that file itself.")
    places = (path.absolute().parent, Path.cwd(), *list(path.absolute().parents)[1:4])
    config = next((place / command.config for place in places if (place / command.config).exists()), None)
    if config is None:
        what = f"{path} trains with {shown(command.config)}, which is not here."
        raise ProfileError(what, hint=f"Import that file itself: ftui import {shown(command.config)}")
    changed = [leaf.path for leaf in command.leaves]
    unchanged = [
        leaf
        for leaf in read_tables(config, read_text(config))
        if not any(leaf.path[: len(key)] == key or key[: len(leaf.path)] == leaf.path for key in changed)
    ]
    return (*unchanged, *command.leaves)


def import_file(path: Path, folder: Path | None = None) -> Imported:
    """A training file of another tool as a profile.

    Args:
        folder: where the profile will stand, which its paths are relative to (otherwise the working folder).

    Raises:
        ProfileError: it cannot be read, or has no shape that is known.
    """
    document = read_document(path)
    tool = find_tool(document)
    draft = ProfileDraft(document, tool.name, Path.cwd() if folder is None else folder)
    apply_rules(draft, tool)
    tool.suppose(draft)
    settle_sharding(draft)
    missing = _make_valid(draft, path)
    forget_processes(draft)
    text = redact(write_profile(draft, missing, path))
    return Imported(
        text, tuple(draft.carried), tuple(draft.dropped), tool.name, missing, draft.refused, tuple(draft.unsaid)
    )


def _make_valid(draft: ProfileDraft, path: Path) -> tuple[str, ...]:
    """Takes away what the profile refuses, with its reason; returns what it still needs."""
    place = draft.folder / "imported.toml"
    for _ in range(ROUNDS):
        problems = examine([text_layer(write_profile(draft, (), path), place)], place).problems
        if not any(_take_away(draft, problem) for problem in problems):
            return tuple(dict.fromkeys(_needed(problem) for problem in problems))
    raise AssertionError("an import is never done")


def _take_away(draft: ProfileDraft, problem: ProfileFault) -> bool:
    """Removes one value that is at fault; whether there was one. What no key of the file says goes first.

    The stage stays, which all else was read for.
    """
    at_fault = [
        key
        for wrong in (problem.key, *problem.others)
        for key in draft.values
        if (key == wrong[: len(key)] or key[: len(wrong)] == wrong) and key != STAGE
    ]
    if not at_fault:
        return False
    carried = {tuple(item.ours.split(".")) for item in draft.carried}
    key = min(at_fault, key=lambda key: key in carried)
    draft.take_back(".".join(key), f"{'.'.join(key)}: {problem.message}", matters=True)
    return True


_UNNAMED_ROWS = "data.train: the file does not say what it is trained on, as far as it can be read here"
NEEDED: dict[Key, str] = {
    ("model",): "model.name_or_path: the file does not say which model is trained",
    ("data",): _UNNAMED_ROWS,
    ("data", "train"): _UNNAMED_ROWS,
    ("rewards", "reward_funcs"): "rewards.reward_funcs: what gives the rewards: a ready one (docs/rewards.md), or"
    " FILE.py:NAME for a function of yours, which runs with --allow reward-code",
}


def _needed(problem: ProfileFault) -> str:
    if problem.key == STAGE:  # it stays: what it needs is the other key
        problem = replace(problem, key=next(iter(problem.others), STAGE))
    return NEEDED.get(problem.key) or f"{'.'.join(problem.key)}: {problem.message}"
