"""A file of another tool becomes a profile that can be run, or one that says what it still needs."""

import json
import sys
from pathlib import Path
from typing import Any

from ftui.errors import ProfileError, UsageError
from ftui.importers.command import read_arguments
from ftui.importers.config_file import Document, Leaf, read_tables, references, referred, text_of
from ftui.importers.draft import Draft
from ftui.importers.outcome import Dropped, Imported, Key
from ftui.importers.shell import UNKNOWN
from ftui.importers.source_tool import shape_of
from ftui.importers.write import lost, written
from ftui.profile.layers import examine, text_layer
from ftui.profile.origins import Problem
from ftui.system.files import replace_file
from ftui.system.redact import redacted
from ftui.text import complaint, shown

SCRIPTS = (".sh", ".bash", ".zsh")
PROGRAMS = {".py": "a Python program", ".ipynb": "a notebook"}
ROUNDS = 40  # each takes away what cannot be said, so that what is left is a profile


def read(path: Path) -> Document:
    """The values of a YAML or JSON file, or the arguments of a shell script and of the file that it trains with.

    Raises:
        ProfileError: it is none of these (named with line and column).
    """
    if path.suffix in PROGRAMS:
        what = f"{path} is {PROGRAMS[path.suffix]}, which is neither run nor read."
        raise ProfileError(
            what, hint="Give the YAML or JSON file that it trains with, or a shell script that calls it."
        )
    text = text_of(path)
    is_script = path.suffix in SCRIPTS or (text.startswith("#!") and "sh" in text.partition("\n")[0])
    leaves = _of_script(path, text) if is_script else read_tables(path, text)
    if not leaves:
        raise ProfileError(f"{path} has no keys.", hint="Name the file that another tool trains with.")
    return Document(path, referred(leaves), references(leaves))


def _of_script(path: Path, text: str) -> tuple[Leaf, ...]:
    """The arguments of its command, before the keys of the file that the command names.

    Raises:
        ProfileError: as `read`; or that file is not there.
    """
    command = read_arguments(path, text)
    if command.config is None:
        return command.leaves
    if UNKNOWN in command.config:
        what = f"{path} trains with {shown(command.config)}, and does not say what that is."
        raise ProfileError(what, hint="Import that file itself.")
    places = (path.absolute().parent, Path.cwd(), *list(path.absolute().parents)[1:4])
    found = next((place / command.config for place in places if (place / command.config).is_file()), None)
    if found is None:
        what = f"{path} trains with {shown(command.config)}, which is not here."
        raise ProfileError(what, hint=f"Import that file itself: ftui import {shown(command.config)}")
    changed = [leaf.path for leaf in command.leaves]
    kept = [
        leaf
        for leaf in read_tables(found, text_of(found))
        if not any(leaf.path[: len(one)] == one or one[: len(leaf.path)] == leaf.path for one in changed)
    ]
    return (*kept, *command.leaves)


def import_file(path: Path, folder: Path | None = None) -> Imported:
    """A training file of another tool as a profile.

    Args:
        folder: where the profile will stand, which its paths are relative to (otherwise the working folder).

    Raises:
        ProfileError: it cannot be read, or has no shape that is known.
    """
    document = read(path)
    shape = shape_of(document)
    draft = Draft(document, shape.tool, Path.cwd() if folder is None else folder)
    shape.fill(draft)
    missing = _made_valid(draft, path)
    text = redacted(written(draft, missing, path))
    return Imported(
        text, tuple(draft.carried), tuple(draft.dropped), shape.tool, missing, draft.refused, tuple(draft.unsaid)
    )


def _made_valid(draft: Draft, path: Path) -> tuple[str, ...]:
    """Takes away what the profile refuses, with its reason; returns what it still needs."""
    place = draft.folder / "imported.toml"
    for _ in range(ROUNDS):
        found = examine([text_layer(written(draft, (), path), place)], place)
        if not any(_take_away(draft, problem) for problem in found.problems):
            return tuple(dict.fromkeys(_needed(problem) for problem in found.problems))
    raise AssertionError("an import is never done")


def _take_away(draft: Draft, problem: Problem) -> bool:
    """Whether a value of ours was the fault, which is gone then."""
    given = [key for key in (problem.key, *problem.others) for key in _said(draft, key)]
    # What nobody wrote gives way first.
    ours = {tuple(one.ours.split(".")) for one in draft.carried}
    for key in sorted(given, key=lambda key: key in ours):
        del draft.values[key]
        draft.notes.pop(key, None)
        why = f"{'.'.join(key)}: {problem.message}"
        for one in [carried for carried in draft.carried if tuple(carried.ours.split(".")) == key]:
            draft.carried.remove(one)
            draft.dropped.append(Dropped(one.foreign, draft.document.named.get(one.foreign), redacted(why), True))
        return True
    return False


def _said(draft: Draft, key: Key) -> list[Key]:
    return [known for known in draft.values if known == key[: len(known)] or known[: len(key)] == key]


NEEDED: dict[Key, str] = {
    ("model",): "model.name_or_path: the file does not say which model is trained",
    ("data",): "data.train: the file does not say what it is trained on, as far as it can be read here",
    ("data", "train"): "data.train: the file does not say what it is trained on, as far as it can be read here",
}


def _needed(problem: Problem) -> str:
    return NEEDED.get(problem.key) or f"{'.'.join(problem.key)}: {problem.message}"


def print_import(path: Path, out: Path | None, as_json: bool) -> int:
    """`ftui import`: the profile to `out` (otherwise stdout), the report to stderr; as JSON both to stdout.

    Raises:
        ProfileError: no file of a known shape.
        UsageError: there is a file at `out`, or its folder is missing.
    """
    out = None if out == Path("-") else out
    if out is not None and out.exists():
        raise UsageError(f"There is a file {out} already.", hint="Give another name with -o.")
    if out is not None and not out.absolute().parent.is_dir():
        raise UsageError(f"There is no folder {out.absolute().parent}.")
    done = import_file(path, None if out is None else out.absolute().parent)
    if out is not None and not done.refused:
        replace_file(out, done.text.encode())
    if as_json:
        print(redacted(json.dumps(_as_json(done, out), indent=2, default=str)))
    elif out is None and not done.refused:
        sys.stdout.write(done.text)
    if not as_json:
        print(redacted("\n".join(_report(done, path, out))), file=sys.stderr)
    if done.refused and not as_json:
        print(complaint(f"{path}: {done.refused}."), file=sys.stderr)
    return ProfileError.exit_code if done.refused else 0


def _as_json(done: Imported, out: Path | None) -> dict[str, Any]:
    return {
        "kind": done.kind,
        "profile": done.text,
        "written": None if out is None or done.refused else str(out),
        "carried": [{"from": one.foreign, "to": one.ours, "value": one.value} for one in done.carried],
        "dropped": [
            {"from": one.foreign, "value": one.value, "reason": one.reason, "matters": one.matters}
            for one in done.dropped
        ],
        "missing": list(done.missing),
        "unsaid": list(done.unsaid),
        "refused": done.refused or None,
    }


def _report(done: Imported, path: Path, out: Path | None) -> list[str]:
    lines = [f"{shown(path.name)} ({done.kind}): {len(done.carried)} values carried over, {len(done.dropped)} not."]
    if out is None and not done.refused and sys.stdout.isatty():
        return [*lines, "Write it to a file with -o FILE."]  # the rest stands in the profile that is on the screen
    lines += lost(done.dropped)
    lines += ["", "Not said there:", *(f"  {shown(one)}" for one in done.unsaid)] if done.unsaid else []
    lines += ["", "Still missing:", *(f"  {shown(one)}" for one in done.missing)] if done.missing else []
    if out is not None and not done.refused:
        lines += ["", f"Written to {shown(str(out))}."]
    return lines
