"""The checkpoints of a run as a table, and below it all about the one under the cursor."""

from collections.abc import Sequence
from pathlib import Path

from ftui import units
from ftui.runs.checkpoint_index import CheckpointEntry, describe_entry
from ftui.runs.describe import OF_EVALUATIONS, write_measures
from ftui.text import cells, cut_middle

from ..render.spans import Frame, Line, around, harmless, left, on_cursor, paragraph, right, spread, width_of
from ..state.sent_requests import SentRequest
from .columns import GAP, Column, share_width, widest
from .panes import rule
from .wording import clock, loss, place

MARGIN = 4  # columns: the cursor, and one at the right end
MUCH_ROOM = 96
KIND, STATE = 9, 8  # columns: the least of why it is kept and of how it stands
NUMBERS = ("step", "eval loss", "size", "age")
PINNED = ", pinned"
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
    head: Line = [(" checkpoints of ", "muted")]
    right = facts if entries else []
    head.append((cut_middle(name, frame.width - width_of([*head, *right]) - 1), "title"))
    return [spread(frame.width, head, right), []]


def checkpoint_table(
    frame: Frame, name: str, entries: Sequence[CheckpointEntry] | None, cursor: int, reading: str | None, now: float
) -> list[Line]:
    """As many rows as there is room for, the one under the cursor among them. `reading`: the one being read back.

    `entries` is `None` before the first look.
    """
    if not entries:
        text = LOOKING if entries is None else EMPTY.format(name)
        return [[], *paragraph(text, frame.width, "muted", indent=2)][: frame.height]
    widths = _widths(frame.width - MARGIN, entries, now)
    titles = [(right if name in NUMBERS else left)(name, width) for name, width in widths.items()]
    lines: list[Line] = [[("   " + (" " * GAP).join(titles), "faint")]]
    for entry, chosen in around(entries, cursor, frame.height - 1):
        row = _row(frame, entry, widths, chosen, entry.path == reading, now)
        lines.append(on_cursor(row, chosen))
    return lines


def _widths(room: int, entries: Sequence[CheckpointEntry], now: float) -> dict[str, int]:
    """The columns in `room` columns; the age only where it takes nothing from the others, or there is much room."""
    texts = [_texts(entry, now) for entry in entries]
    columns = {}
    for name in ("step", "kind", "eval loss", "size", "age", "state"):
        longest = max(len(name), widest(text[name] for text in texts))
        least = {"kind": KIND, "state": STATE}.get(name, longest)
        columns[name] = Column(least, longest, grows=name == "state")
    if room < MUCH_ROOM and sum(column.wish for column in columns.values()) + GAP * (len(columns) - 1) > room:
        del columns["age"]
    room -= GAP * (len(columns) - 1)
    widths = dict(zip(columns, share_width(list(columns.values()), room), strict=True))
    if widths["kind"] < columns["kind"].wish:  # then some are shortened, which takes less
        columns["kind"] = Column(KIND, widest(describe_kinds(entry, widths["kind"]) for entry in entries))
        widths = dict(zip(columns, share_width(list(columns.values()), room), strict=True))
    return widths


def _texts(entry: CheckpointEntry, now: float) -> dict[str, str]:
    """What stands in each column, where there is room for it."""
    step = "-" if entry.step is None else f"{entry.step:,}" if entry.step < 10_000_000 else f"{entry.step}"
    figure = loss(entry.eval_loss, finite=entry.eval_finite)
    if "reward" in entry.eval_measures:
        figure = f"reward {units.figure(entry.eval_measures['reward'])}"
    return {
        "step": step, "kind": ", ".join(entry.kinds) or "-", "eval loss": figure,
        "size": units.size(entry.size) if entry.size is not None else "-", "age": clock(_age(entry, now)),
        "state": describe_entry(entry) + (PINNED if entry.pinned else ""),
    }  # fmt: skip


def _row(frame: Frame, entry: CheckpointEntry, widths: dict[str, int], chosen: bool, reads: bool, now: float) -> Line:
    texts, state, gap = _texts(entry, now), widths["state"], " " * GAP
    pinned = (PINNED if state >= 16 else " pin") if entry.pinned else ""
    words, style = ("verifying", "loss") if reads else (describe_entry(entry), state_style(entry))
    text = fit_words(words, state - len(pinned))
    age = right(texts["age"], widths["age"]) + gap if "age" in widths else ""
    return [
        (f" {frame.glyphs.cursor if chosen else ' '} ", "key"),
        (right(texts["step"], widths["step"]) + gap, "number" if chosen else "text"),
        (left(describe_kinds(entry, widths["kind"]), widths["kind"]) + gap, _kind_style(entry)),
        (right(texts["eval loss"], widths["eval loss"]) + gap, "text"),
        (right(texts["size"], widths["size"]) + gap + age, "muted"),
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
    facts += write_measures(entry.eval_measures, OF_EVALUATIONS)
    texts += [(place(folder / entry.path), "text"), (separator.join(facts), "muted")]
    return [*lines, *(line for text, style in texts if text for line in paragraph(text, frame.width, style))][
        : frame.height
    ]
