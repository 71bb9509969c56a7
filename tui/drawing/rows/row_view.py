"""A row as the model sees it: its numbers, a map of its trained tokens, its tokens, and the row in its file."""

import json
import re
from collections.abc import Sequence
from pathlib import Path

from ftui.dataset import report_text
from ftui.dataset.report import Report, RowLocation
from ftui.dataset.row import RowView, Token
from ftui.dataset.row_text import NO_TOKEN, Piece, PieceKind, RowLine, Signs, comparison_lines
from ftui.text import cells, cut_middle, shown

from ...render.glyphs import Glyphs
from ...render.spans import Frame, Line, Span, harmless, joined, paragraph, spread, width_of, wrapped
from ..wording import place

STYLES: dict[PieceKind, str] = {
    "trained": "bright@panel", "ignored": "muted", "trained special": "special@panel", "special": "violet",
    "cut": "faint", "mark": "faint", "trained mark": "faint@panel", "role": "title", "rule": "rule", "note": "faint",
    "alarm": "bad",
}  # fmt: skip
SEVERITY_STYLES = {"error": "bad", "warning": "warn", "note": "loss"}
FOUND = "background@warn"  # what was sought
GUTTER = 2
OF_TOKENS: tuple[PieceKind, ...] = ("trained", "ignored", "trained special", "special", "cut")
PERCENT = re.compile(r"(\d+(?:\.\d+)?) ?%")
LOADING_BAR = 60


def signs(glyphs: Glyphs) -> Signs:
    return Signs(glyphs.newline, glyphs.rule, more="m shows more of them")


def text_width(width: int) -> int:
    """Columns there are for tokens in so many."""
    return max(1, width - GUTTER)


# -- above


def title(frame: Frame, name: str, sample: RowView | None, report: Report | None, page: range) -> list[Line]:
    """Which row it is, its numbers, and a map of its tokens; `page` are those that the page shows."""
    if sample is None:
        return [[(f" {name}", "title"), ("  rows", "muted")]]
    first = f"the first {sample.num_first:,}; reading the rest"
    there = first if sample.num_first else f"{sample.num_rows:,}"
    here: Line = [(f" row {sample.number + 1:,}", "title"), (f" of {there}", "muted")]
    if sample.num_parts > 1:
        here += [("  part ", "muted"), (f"{sample.part + 1}", "text"), (f" of {sample.num_parts:,}", "muted")]
    if sample.verdict:
        here += [(f"  {sample.verdict}", "good" if sample.label > 0 else "bad")]
    where = where_words(sample.where, max(0, frame.width - width_of(here) - 4))
    return [
        spread(frame.width, here, [(f"{where} ", "faint")]),
        _of_row(frame, sample, report),
        token_map(frame, sample, page),
    ]


def _of_row(frame: Frame, sample: RowView, report: Report | None) -> Line:
    """The row's own numbers; the form and what was found in all rows only where there is room for them too."""
    numbers = next(
        line for word in (" kept", "") if width_of(line := _numbers(sample, word)) <= frame.width or not word
    )
    findings, form = tally(report), [(f"{sample.form} ", "muted")]
    if findings:
        findings = [("all rows: ", "faint"), *findings]
    room = frame.width - width_of(numbers) - 2
    return spread(
        frame.width, numbers, next((w for w in ([*findings, *form], findings, form) if width_of(w) <= room), [])
    )


def _numbers(sample: RowView, word: str) -> Line:
    """`word` stands behind the number of the tokens that are kept, of which the share is."""
    num_seen = min(sample.num_tokens, sample.max_length)
    share = report_text.percent(sample.num_target_tokens, num_seen)
    whole = f" of {sample.num_row_tokens:,}" if sample.num_row_tokens > sample.num_tokens else ""
    of_seen = f" of {num_seen:,}{word}" if sample.num_tokens > num_seen else ""
    line: Line = [
        (f" {sample.num_tokens:,}", "number"), (f"{whole} tokens  ", "muted"),
        (f"{sample.num_target_tokens:,}", "number" if sample.num_target_tokens else "alarm"),
        (f" trained {share}{of_seen}", "muted" if sample.num_target_tokens else "bad"),
    ]  # fmt: skip
    if sample.num_tokens > num_seen:
        line.append((f"  {sample.num_tokens - num_seen:,} cut", "bad"))
    return line


def tally(report: Report | None) -> Line:
    """How many findings there are, as far as the report is known."""
    if report is None:
        return []
    return [(f"{words}  ", SEVERITY_STYLES[severity]) for severity, words in report_text.tally(report)]


def where_words(where: RowLocation, width: int) -> str:
    """The place of a row; of a path that is too long the file's name, or both of its ends."""
    path = place(Path(where.file)) if where.file.startswith("/") else where.file
    text = harmless(str(RowLocation(path, where.number, where.unit)))
    if cells(text) <= width:
        return text
    return cut_middle(harmless(str(RowLocation(path.rpartition("/")[2], where.number, where.unit))), width)


def token_map(frame: Frame, sample: RowView, page: range) -> Line:
    """All tokens in one line: thick where one is trained on, thin where none is, dots where the model sees nothing."""
    width, number = max(1, frame.width - 2), len(sample.tokens)
    if not number:
        return []
    spans: list[Span] = [(" ", "text")]
    for column in range(width):
        first = column * number // width
        last = max(first + 1, (column + 1) * number // width)
        spans.append(_column(frame.glyphs, sample.tokens[first:last], first < page.stop and last > page.start))
    return joined(spans)


def _column(glyphs: Glyphs, tokens: Sequence[Token], is_seen: bool) -> Span:
    if all(token.is_cut for token in tokens):
        return glyphs.grid, "bad" if is_seen else "eval_dim"
    if any(token.is_target and not token.is_cut for token in tokens):
        return glyphs.full, "good" if is_seen else "good_dim"
    return glyphs.rule, "muted" if is_seen else "rule"


# -- the tokens


def notes(sample: RowView, width: int) -> list[Line]:
    """What is compared in the row, and what is odd about it."""
    compared = (line for told in comparison_lines(sample) for line in wrapped(told, width - 1))
    odd = (
        (("! " if not n else "  ") + line, "warn")
        for note in sample.notes
        for n, line in enumerate(wrapped(note, width - 2))
    )
    return [*([(f" {line}", "muted")] for line in compared), *([span] for span in odd)]


def token_lines(
    frame: Frame, lines: Sequence[RowLine], *, boundaries: bool, hits: Sequence[tuple[int, int]] = ()
) -> list[Line]:
    """The lines with a bar beside those with something to train on; with `boundaries` every other token is tinted.

    `hits` are runs of tokens (the first, behind the last) that are marked.
    """
    marked = frozenset(number for first, behind in hits for number in range(first, behind))
    return [_token_line(frame.glyphs, line, boundaries, marked) for line in lines]


def _token_line(glyphs: Glyphs, line: RowLine, boundaries: bool, marked: frozenset[int]) -> Line:
    is_cut = any(piece.kind == "cut" for piece in line.pieces)
    gutter: Span = ("  ", "text")
    if any(piece.token in marked for piece in line.pieces):
        gutter = (f"{glyphs.cursor} ", "warn")
    elif line.is_trained:
        gutter = (f"{glyphs.wall} ", "good")
    elif is_cut:
        gutter = (f"{glyphs.attempt} ", "bad")
    is_heading = bool(line.pieces) and line.pieces[0].token == NO_TOKEN
    spans = [(" ", "text") if is_heading else gutter]
    return joined([*spans, *(_span(piece, boundaries, marked) for piece in line.pieces), ("", "text")])


def _span(piece: Piece, boundaries: bool, marked: frozenset[int]) -> Span:
    style = STYLES[piece.kind]
    if piece.token in marked:
        style = FOUND
    elif boundaries and piece.kind in OF_TOKENS:
        name, _, behind = style.partition("@")
        tints = ("panel", "cursor") if behind else ("background", "panel")
        style = f"{name}@{tints[piece.token % 2]}"
    return piece.text, style


# -- beside, and instead


def raw_page(frame: Frame, sample: RowView, lines: Sequence[str], top: int, sought: str = "") -> list[Line]:
    """The row as it stands in the file, under a heading; `sought` is marked where it is."""
    head: Line = [(" in the file ", "title")]
    where = sample.where
    number = sample.raw_line or where.number
    place_words = f" line {number:,} " if where.unit == "line" else f" row {number:,} "
    head.append((frame.glyphs.rule * max(0, frame.width - width_of(head) - len(place_words)), "rule"))
    page = lines[top : top + frame.height - 1]
    pattern = _spelt(sought)
    return [[*head, (place_words, "faint")], *(_raw_line(line, pattern) for line in page)]


def _spelt(text: str) -> re.Pattern[str] | None:
    """As it stands in JSON or in plain text, whatever the case; `None` for no text."""
    spellings = dict.fromkeys(shown(spelling) for spelling in (text, json.dumps(text, ensure_ascii=False)[1:-1]))
    return re.compile("|".join(map(re.escape, spellings)), re.IGNORECASE) if text else None


def _raw_line(line: str, pattern: re.Pattern[str] | None) -> Line:
    spans: Line = [(" ", "text")]
    at = 0
    for match in pattern.finditer(line) if pattern is not None else ():
        spans += [(line[at : match.start()], "text"), (match[0], FOUND)]
        at = match.end()
    return [*spans, (line[at:], "text")]


def first_with(lines: Sequence[str], text: str) -> int:
    """The first line with the text in it, else the first of all."""
    pattern = _spelt(text)
    return next((n for n, line in enumerate(lines) if pattern is not None and pattern.search(line)), 0)


def loading(frame: Frame, name: str, detail: str) -> list[Line]:
    """What is being done, and how far it is where that is known."""
    lines: list[Line] = [[], [("  opening the rows of ", "muted"), (name, "title")], []]
    lines += paragraph(detail, frame.width, "loss", indent=2)
    percent = PERCENT.search(detail)
    if percent is not None:
        width = max(4, min(LOADING_BAR, frame.width - 4))
        full = min(width, round(width * float(percent[1]) / 100))
        lines.append([("  ", "text"), (frame.glyphs.full * full, "loss"), (frame.glyphs.rule * (width - full), "rule")])
    words = "No weights are needed. What is tokenised is kept: the next look and the run itself start at once."
    return [*lines, [], *paragraph(words, frame.width, "faint", indent=2)][: frame.height]


def problem(frame: Frame, message: str, hint: str) -> list[Line]:
    """Why there is nothing to see, and what to do about it."""
    lines: list[Line] = [[], *paragraph(message, frame.width, "bad", indent=2)]
    if hint:
        lines += [[], *paragraph(hint, frame.width, "good", indent=2)]
    return [*lines, [], [("  a", "key"), (" tries again", "muted")]][: frame.height]
