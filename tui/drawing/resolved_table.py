"""What will happen, and every value of a profile with its origin; what was changed is marked."""

from collections.abc import Sequence
from dataclasses import dataclass

from ftui.text import cut

from ..render.spans import Frame, Line, Span, around, harmless, middle, on_cursor, paragraph, spread, wrapped
from ..state.resolved_values import Value
from .columns import GAP, Column, share_width, widest

KEY, VALUE, ORIGIN = 18, 18, 26  # columns: the least of a key, of its value, and of where that comes from
MARGIN = 4  # columns: the mark of a change, and one at the right end
MEANING_ROWS = 2
CHANGED = "*"


@dataclass(frozen=True)
class ResolvedPage:
    """All there is to show. `told`: paragraphs above the values; `counts`: what the dry run said, in paragraphs too."""

    source: str
    told: Sequence[Span]
    counts: Sequence[Span] = ()
    values: Sequence[Value] = ()


@dataclass(frozen=True)
class ValueRow:
    """A line that the cursor can stand on.

    `entry` is what somebody who changes it would begin to type, `whole` its value where the line has no room for it.
    """

    line: Line
    entry: str = ""
    meaning: str = ""
    whole: str = ""


def resolved_page(frame: Frame, page: ResolvedPage, value_rows: Sequence[ValueRow], cursor: int) -> list[Line]:
    """What will happen at the top, then as many rows as fit, the one under the cursor among them."""
    head = _paragraphs([(page.source, "faint"), *page.told], frame.width)
    if not value_rows:
        return [*head, []][: frame.height]
    head = [*head[: max(3, frame.height // 2)], _rule(frame, page)]
    meaning = _meaning(value_rows[cursor], frame.width - 2)
    height = max(1, frame.height - len(head) - MEANING_ROWS)
    shown = around(value_rows, cursor, height)
    body = [on_cursor(spread(frame.width, row.line)) if chosen else row.line for row, chosen in shown]
    body += [[]] * (height - len(body))
    return [*head, *body, *([(" " + line, "muted")] for line in meaning)]


def _paragraphs(spans: Sequence[Span], width: int) -> list[Line]:
    return [line for text, style in spans for line in paragraph(text, width, style)]


def _meaning(row: ValueRow, width: int) -> list[str]:
    """What the line under the cursor means, after its value where that was cut."""
    lines = [cut(harmless(row.whole), width)] if row.whole else []
    return [*lines, *(wrapped(row.meaning, width) if row.meaning else [])][:MEANING_ROWS]


def _rule(frame: Frame, page: ResolvedPage) -> Line:
    changed = sum(value.before is not None for value in page.values)
    words = f" {CHANGED} {changed} differ" + ("s " if changed == 1 else " ") if changed else ""
    return [(" " + frame.glyphs.rule * max(0, frame.width - len(words) - 2), "rule"), (words, "warn")]


def rows(frame: Frame, page: ResolvedPage) -> list[ValueRow]:
    """Everything below the rule: counts, then the values by section."""
    value_rows = [ValueRow(line) for line in _paragraphs(page.counts, frame.width)]
    widths = share_width(
        [
            Column(KEY, widest(value.key for value in page.values)),
            Column(VALUE, widest(value.text for value in page.values)),
            Column(ORIGIN, widest(_origin(value) for value in page.values)),
        ],
        frame.width - MARGIN - 2 * GAP,
    )
    section = None
    for value in page.values:
        if value.section != section:
            section = value.section
            value_rows.append(ValueRow([(f" [{section}]", "title")], f"{section}."))
        whole = "" if widest([value.text]) <= widths[1] else value.text
        value_rows.append(ValueRow(_value_line(value, widths), f"{value.name}={value.text}", value.meaning, whole))
    return value_rows


def _value_line(value: Value, widths: Sequence[int]) -> Line:
    is_changed, gap = value.before is not None, " " * GAP
    key, text, origin = widths
    return [
        (f" {CHANGED} " if is_changed else "   ", "warn"),
        (middle(value.key, key) + gap, "muted"),
        (middle(value.text, text) + gap, "warn" if is_changed else "bright"),
        (middle(_origin(value), origin), "warn" if is_changed else "faint"),
    ]


def _origin(value: Value) -> str:
    """Where the value comes from, and what it was before it was changed here."""
    return value.origin if value.before is None else f"was {value.before}  {value.origin}"


def count_spans(lines: Sequence[str], width: int) -> list[Span]:
    """The dry run's aligned lines, two beside each other where there is room; stages and warnings below them."""
    counts = [line for line in lines if not line.startswith(("warning: ", "stage "))]
    below: list[Span] = [(line, "text") for line in lines if line.startswith("stage ")]
    below += [(line, "warn") for line in lines if line.startswith("warning: ")]
    half = (len(counts) + 1) // 2
    longest = max(map(len, counts), default=0)
    if width < 2 * longest + 6:
        return [(line, "text") for line in counts] + below
    beside = [*counts[half:], *[""] * (2 * half - len(counts))]
    both = [f"{first:<{longest}}    {other}".rstrip() for first, other in zip(counts[:half], beside, strict=True)]
    return [(line, "text") for line in both] + below


def find_rows(value_rows: Sequence[ValueRow], text: str, cursor: int) -> list[int]:
    """Numbers of the rows whose key or meaning has every word; names first, then the nearest below the cursor."""
    words = text.casefold().replace("_", " ").split()
    names = [row.entry.partition("=")[0].casefold().replace("_", " ") for row in value_rows]

    def rank(number: int) -> tuple[bool, bool, int]:
        return not all(word in names[number] for word in words), number <= cursor, number

    whole = [f"{name} {row.meaning.casefold()}" for name, row in zip(names, value_rows, strict=True)]
    hits = [n for n, row in enumerate(value_rows) if row.meaning and words and all(word in whole[n] for word in words)]
    return sorted(hits, key=rank)
