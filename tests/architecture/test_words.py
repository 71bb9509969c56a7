"""The words of the field where users read them: in messages, screens, --help and pages (docs/glossary.md has them).

Code that grew by itself invents a dialect. Each pattern here was once a word of ours that nobody outside understood.
"""

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
FORBIDDEN = {
    r"letters?": "a (control) request",
    r"inbox|desk": "requests",
    r"house|doors?|wings?|rooms|(?:the|this|a) room": "the architecture, the entry point, packages, modules",
    r"(?:does|do) not live|lives|living runs?|(?:is|are) over": "is not running, is running, has ended",
    r"badges?": "reproducibility",
    r"learned": "trained, trained on; of a token: inside the loss mask",
    r"(?:is|are|was|not|already) held|held(?: already)?|holding": "paused",
    r"(?<!of )course": "the loss curve",
}
ALLOWED = {
    "held": "the phase as files of a run store it",
    "inbox": "the folder of a run, as it has always been called",
    "badge": "the key in files and JSON",
    "letter": "the field in records",
    "letters": "a unit that the report counts in: characters of a script",
}
"""Constants that are stored, not shown: exactly these texts."""
PHRASES = (
    "in whatever letters and spaces", "accented letters", "starting with a letter or digit", "lower-case letters",
    "held in", "held by", "held as a whole", "the engine held", "all gradients held",
)  # fmt: skip
"""Where such a word has its plain meaning: letters of an alphabet, memory that is held."""
PAGES = [*sorted(ROOT.glob("*.md")), *sorted((ROOT / "docs").glob("*.md"))]
GLOSSARY = "glossary.md"  # it explains older names


def texts(path: Path) -> Iterator[tuple[int, str]]:
    """The texts of a module that may reach a user, with their lines: all strings but docstrings."""
    tree = ast.parse(path.read_text(encoding="utf-8"))
    comments = {id(node.value) for node in ast.walk(tree) if isinstance(node, ast.Expr)}
    for node in ast.walk(tree):
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and id(node) not in comments:
            yield node.lineno, node.value


def dialect(text: str) -> list[str]:
    """What of a text should be said in other words."""
    if text in ALLOWED:
        return []
    for phrase in PHRASES:
        text = text.replace(phrase, "")
    return [
        f"{match[0]!r} -> {better}"
        for pattern, better in FORBIDDEN.items()
        for match in re.finditer(rf"\b(?:{pattern})\b", text, re.IGNORECASE)
    ]


@pytest.mark.parametrize("folder", ["ftui", "engine", "tui"])
def test_what_users_read_is_said_in_words_of_the_field(folder: str) -> None:
    paths = [path for path in (ROOT / folder).rglob("*.py") if not any(part.is_symlink() for part in path.parents)]
    assert len(paths) > 40
    faults = [
        f"{path.relative_to(ROOT)}:{line}: {fault}"
        for path in paths
        for line, text in texts(path)
        for fault in dialect(text)
    ]
    assert faults == [], "\n" + "\n".join(faults)


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_pages_are_written_in_words_of_the_field(page: Path) -> None:
    if page.name != GLOSSARY:
        assert dialect(page.read_text(encoding="utf-8").replace("`inbox/`", "").replace("`ftui hold`", "")) == []


def test_the_test_finds_them() -> None:
    assert dialect("nobody would read the letter: the run is over")
    assert dialect("the run is held already") and not dialect("its weights are held in 4 bits")
    assert not dialect("Free some room there, of course.")
