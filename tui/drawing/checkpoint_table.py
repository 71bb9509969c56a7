"""The checkpoints of a run as a table, and below it all about the one under the cursor."""

from collections.abc import Sequence
from pathlib import Path

from ftui import units
from ftui.runs.checkpoint_index import CheckpointEntry, describe_entry
from ftui.text import cells

from ..render.spans import Frame, Line, around, harmless, left, on_cursor, paragraph, right, spread
from ..state.sent_requests import SentRequest
from .panes import rule
from .wording import clock, loss, place

STEP, LOSS, SIZE, AGE = 9, 9, 10, 6
WIDE, MIDDLE = 100, 72  # columns of the screen from which there is room for more
GAP = 2
STUMP = 20  # columns that a state with its reason needs
LOOKING = "Looking ..."
EMPTY = "{} has saved no checkpoint yet; s on its screen saves one, checkpoint.save_steps in its profile saves them."

MEANINGS = {
    "final": "The result: weights, tokenizer and model card, ready to be used; there is nothing in it to resume from.",
    "superseded": "Of a line of steps that the run has left: a later attempt resumed from an earlier checkpoint.",
    "quarantine": "It was found damaged and moved aside; the run never resumes from it.",
}


def title(frame: Frame, name: str, entries: Sequence[CheckpointEntry]) -> list[Line]:
    """Of which run they are, how many there are, and the room they take."""
    number = sum(entry.place == "checkpoints" for entry in entries)
    total = units.size(sum(entry.size or 0 for entry in entries))
    facts: Line = [(f"{number}", "text"), (f" checkpoint{'s' * (number != 1)}  ", "muted")]
    facts += [(total.split()[0], "text"), (f" {total.split()[1]} total ", "muted")]
    return [spread(frame.width, [(" checkpoints of ", "muted"), (name, "title")], facts if entries else []), []]


def checkpoint_table(
    frame: Frame, name: str, entries: Sequence[CheckpointEntry] | None, cursor: int, reading: str | None, now: float
) -> list[Line]:
    """As many rows as there is room for, the one under the cursor among them. `reading`: the one being read back.

    `entries` is `None` before the first look.
    """
    if not entries:
        text = LOOKING if entries is None else EMPTY.format(name)
        return [[], *paragraph(text, frame.width, "muted", indent=2)][: frame.height]
    kind = 24 if frame.width >= WIDE else 16 if frame.width >= MIDDLE else 9
    age = AGE + GAP if frame.width >= WIDE else 0
    state = max(8, frame.width - 3 - STEP - kind - LOSS - SIZE - age - 4 * GAP)
    head = f"   {right('step', STEP)}  {left('kind', kind)}  {right('eval loss', LOSS)}  {right('size', SIZE)}  "
    lines: list[Line] = [[(head + (right("age", AGE) + "  " if age else "") + left("state", state), "faint")]]
    for entry, chosen in around(entries, cursor, frame.height - 1):
        row = _row(frame, entry, (kind, age, state), chosen, entry.path == reading, now)
        lines.append(on_cursor(row, chosen))
    return lines


def _row(
    frame: Frame, entry: CheckpointEntry, widths: tuple[int, int, int], chosen: bool, reads: bool, now: float
) -> Line:
    kind, age, state = widths
    step = "-" if entry.step is None else f"{entry.step:,}" if entry.step < 10_000_000 else f"{entry.step}"
    size = units.size(entry.size) if entry.size is not None else "-"
    pinned = (", pinned" if state >= 16 else " pin") if entry.pinned else ""
    words, style = ("verifying", "loss") if reads else (describe_entry(entry), state_style(entry))
    text = fit_words(words, state - len(pinned))
    return [
        (f" {frame.glyphs.cursor if chosen else ' '} ", "key"),
        (right(step, STEP) + "  ", "number" if chosen else "text"),
        (left(describe_kinds(entry, kind), kind) + "  ", _kind_style(entry)),
        (right(loss(entry.eval_loss, finite=entry.eval_finite), LOSS) + "  ", "text"),
        (right(size, SIZE) + (f"  {right(clock(_age(entry, now)), AGE)}  " if age else "  "), "muted"),
        (text, style),
        (left(pinned, max(0, state - cells(text))), "violet"),
    ]


def describe_kinds(entry: CheckpointEntry, width: int) -> str:
    """Why it is kept; where there is no room for all, the first and the number of the others."""
    text = ", ".join(entry.kinds) or "-"
    return text if len(text) <= width else f"{entry.kinds[0]} +{len(entry.kinds) - 1}"


def fit_words(words: str, width: int) -> str:
    """How it stands in at most `width` columns: where the reason would be a stump, without it."""
    words = harmless(words)
    if cells(words) > width < STUMP:
        words = words.replace(",", ":").partition(":")[0]
    return left(words, min(width, cells(words)))


def _kind_style(entry: CheckpointEntry) -> str:
    if "best" in entry.kinds:
        return "eval"
    return "good" if entry.place == "final" else "muted" if entry.place == "checkpoints" else "faint"


def state_style(entry: CheckpointEntry) -> str:
    if entry.place == "quarantine":
        return "warn"
    if entry.problem is not None:
        return "bad"
    return "faint" if entry.place == "superseded" else "good" if entry.verified else "text"


def _age(entry: CheckpointEntry, now: float) -> float | None:
    return None if entry.created is None or entry.created > now else now - entry.created


def details(
    frame: Frame, folder: Path, entry: CheckpointEntry | None, request: SentRequest | None, now: float
) -> list[Line]:
    """What the table has no room for, the problem first; the rule above it tells what became of the last order."""
    lines: list[Line] = [rule(frame, "" if entry is None else entry.name, request)]
    if entry is None:
        return lines[: frame.height]
    texts: list[tuple[str, str]] = []
    if entry.problem is not None:
        texts.append((describe_entry(entry), state_style(entry)))
    if entry.place in MEANINGS:
        texts.append((MEANINGS[entry.place], "muted"))
    elif entry.newest:
        texts.append(("The newest that is whole: the run resumes from here.", "text"))
    separator = f" {frame.glyphs.separator} "
    facts = [] if (age := _age(entry, now)) is None else [f"saved {clock(age)} ago by attempt {entry.attempt}"]
    facts += [f"tags: {', '.join(entry.tags)}"] if entry.tags else []
    texts += [(place(folder / entry.path), "text"), (separator.join(facts), "muted")]
    return [*lines, *(line for text, style in texts if text for line in paragraph(text, frame.width, style))][
        : frame.height
    ]
