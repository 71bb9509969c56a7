"""The queue: its runs in their order, and below them why the one under the cursor waits."""

from collections.abc import Sequence

from ftui import units
from ftui.queue.queue_view import QueueRow, QueueView

from ...render.spans import Frame, Line, around, left, middle, on_cursor, paragraph, right, spread, thin_line
from ..columns import GAP, Column, share_width, widest
from ..wording import count_words, place

HEADINGS = ("", "run", "phase", "on", "memory", "waits because")
SHORTEST = 12  # columns of a name and of a reason
STYLES = {"failed": "bad", "lost": "bad", "gone": "bad", "queued": "muted"}


def queue_title(frame: Frame, views: Sequence[QueueView] | None) -> list[Line]:
    """How many run and wait, and whether the queue is paused."""
    rows = [row for view in views or () for row in view.rows]
    num_waiting = sum(row.place is not None for row in rows)
    facts: Line = [(f"{len(rows) - num_waiting}", "good"), (" started  ", "muted"), (f"{num_waiting}", "text")]
    facts.append((" waiting ", "muted"))
    head: Line = [(" queue", "title")]
    if problem := next((view.problem for view in views or () if view.problem), ""):
        head.append((f"  one cannot be read: {problem}", "bad"))
    if any(view.is_paused for view in views or ()):
        head.append(("  paused: no run is started", "warn"))
    return [spread(frame.width, head, facts), []][: frame.height]


def queue_table(frame: Frame, rows: Sequence[QueueRow] | None, cursor: int) -> list[Line]:
    """As many rows as there is room for, the one under the cursor among them; `None` before the first look."""
    if not rows:
        text = "Looking ..." if rows is None else "No run waits. Press n to add one."
        return [[], *paragraph(text, frame.width, "muted", indent=2)][: frame.height]
    cells = [_texts(row) for row in rows]
    wishes = [widest([name, *(texts[at] for texts in cells)]) for at, name in enumerate(HEADINGS)]
    columns = [Column(SHORTEST if at in (1, 5) else wish, wish) for at, wish in enumerate(wishes)]
    widths = share_width(columns, frame.width - 2 - GAP * (len(columns) - 1))
    lines: list[Line] = [[("  " + _joined(HEADINGS, widths), "faint")]]
    for (row, texts), chosen in around(list(zip(rows, cells, strict=True)), cursor, frame.height - 1):
        style = "number" if chosen else STYLES.get(row.phase, "text")
        line: Line = [(f"{frame.glyphs.cursor if chosen else ' '} ", "loss"), (_joined(texts, widths), style)]
        lines.append(on_cursor(line, chosen))
    return lines


def _texts(row: QueueRow) -> tuple[str, ...]:
    number = "" if row.place is None else str(row.place)
    return number, row.name, row.phase, row.cards, units.size(row.memory), row.reason


def _joined(texts: Sequence[str], widths: Sequence[int]) -> str:
    parts = []
    for name, text, width in zip(HEADINGS, texts, widths, strict=True):
        align = middle if name == "run" else right if name in ("", "memory") else left
        parts.append(align(text, width))
    return (" " * GAP).join(parts)


def queue_details(frame: Frame, row: QueueRow | None, view: QueueView | None) -> list[Line]:
    """What the list has no room for."""
    if row is None or view is None:
        return []
    added = row.entry.added
    needs = count_words(added.num_cards, "GPU") if added.device == "cuda" else added.device.upper()
    if row.memory is not None:
        each = " each" if added.num_cards > 1 else ""
        needs += f" with {units.size(row.memory)} free{each} (the top of its estimate)"
    where = f"of the queue in {place(view.root)}"
    standing = row.reason or ("started" if row.place is None else "is started next")
    lines = [thin_line(frame), [(f" {row.name}  ", "title"), (where, "muted")]]
    lines += paragraph(f"{standing[:1].upper()}{standing[1:]}.", frame.width, "text")
    return [*lines, *paragraph(f"Needs {needs}.", frame.width, "muted")][: frame.height]
