"""A row as the model sees it, laid out in lines: what is trained on, who speaks, where it is cut. Pure functions."""

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Literal

from ftui.dataset.row import AnswerSide, RowView, Token
from ftui.text import cells, cut, shown

PieceKind = Literal[
    "trained", "ignored", "trained special", "special", "cut", "mark", "trained mark", "role", "rule", "note", "alarm"
]  # fmt: skip
"""What a piece of a line is: its text of a token (the first five), a mark in place of what is not seen, a heading."""

TRAINED = ("trained", "trained special", "trained mark")
CHUNK = re.compile(r"\n|[^\S\n]+|\S+")
LEAST_WIDTH = 8
PART_HERE = "the answers part here"
NO_TOKEN = -1


@dataclass(frozen=True)
class Piece:
    """Text that has been through `shown`, all of one token (its number; -1 of what belongs to none)."""

    text: str
    kind: PieceKind
    token: int = NO_TOKEN


@dataclass(frozen=True)
class RowLine:
    """A line of the layout. `first`: its first token, or the next one; `is_trained`: it has a trained token."""

    pieces: tuple[Piece, ...]
    first: int = 0
    is_trained: bool = False


@dataclass(frozen=True)
class Signs:
    """The signs for a new line and a rule; `around` are marks before and behind trained text, for displays without
    colours. `more` is the note where not all tokens are shown.
    """

    newline: str = "↵"
    rule: str = "─"
    around: tuple[str, str] = ("", "")
    more: str = ""


def layout_row(sample: RowView, width: int, signs: Signs) -> list[RowLine]:
    """The tokens in lines of at most `width` columns, each turn below its role. A new line in the text is one here."""
    page = _Page(max(LEAST_WIDTH, width), signs)
    heads = {turn.start: turn.role for turn in sample.turns if turn.end > turn.start}
    counts = {turn.start: sample.tokens[turn.start : turn.end] for turn in sample.turns}
    edges = _edges(sample.tokens)
    parting = None if sample.compared is None else sample.compared.parting
    for number, token in enumerate(sample.tokens):
        if number in heads:
            page.heading(number, heads[number], _token_counts(counts[number]), "role", width)
        if number == parting:
            page.heading(number, PART_HERE, "", "note", width)
        if token.is_cut and (not number or not sample.tokens[number - 1].is_cut):
            num_lost = sample.num_tokens - number
            page.heading(
                number, f"cut here: data.max_length = {sample.max_length:,}", f"{num_lost:,} lost", "alarm", width
            )
        begins, ends = edges.get(number, (False, False))
        page.add(number, token, signs.around[0] if begins else "", signs.around[1] if ends else "")
    unseen = sample.num_tokens - len(sample.tokens)
    page.end_line()
    if unseen > 0:
        page.heading(
            len(sample.tokens), f"{unseen:,} more token{'s' if unseen != 1 else ''}", signs.more, "note", width
        )
    return page.lines


def comparison_lines(sample: RowView) -> list[str]:
    """Both answers of a row in numbers, where they part, and what the reference says of them; nothing of other rows."""
    its = sample.compared
    if its is None:
        return []
    lines = []
    if len(its.sides) > 1:
        chosen, rejected = (f"{side.num_target_tokens:,} of {side.num_tokens:,}" for side in its.sides)
        where = f"they part at token {its.parting + 1:,}" if its.parting is not None else "they do not differ"
        lines.append(f"chosen {chosen} tokens trained, rejected {rejected}; {where}")
    return [*lines, _of_reference(its.sides)] if its.has_reference else lines


def _of_reference(sides: Sequence[AnswerSide]) -> str:
    """Log-probabilities, of the whole answer and of a token of it; of a pair also which side is likelier."""
    measured = [(side.log_prob, max(1, side.num_target_tokens)) for side in sides if side.log_prob is not None]
    told = [(log_prob, log_prob / number) for log_prob, number in measured]
    if len(told) < len(sides):
        return "reference: not measured on this row; a run measures it before its first step"
    sums, means = (f"{one:,.1f}" for one, _ in told), (f"{one:.2f}" for _, one in told)
    numbers = f"reference: ln p {' and '.join(sums)} ({' and '.join(means)} a token)"
    if len(told) < 2:
        return numbers
    ratio = told[0][0] - told[1][0]
    which = "neither" if not ratio else "the rejected one" if ratio < 0 else "the chosen one"
    return f"{numbers}, log-ratio {ratio:+,.1f}: it prefers {which}"


def _edges(tokens: Sequence[Token]) -> dict[int, tuple[bool, bool]]:
    """The tokens at which trained text begins, and those at which it ends."""
    flags = [False, *(token.is_target and not token.is_cut for token in tokens), False]
    begins = {n for n, (before, now) in enumerate(pairwise(flags)) if now and not before}
    ends = {n - 1 for n, (before, now) in enumerate(pairwise(flags)) if before and not now}
    return {n: (n in begins, n in ends) for n in begins | ends}


def _token_counts(tokens: Sequence[Token]) -> str:
    trained = sum(token.is_target and not token.is_cut for token in tokens)
    return f"{len(tokens):,} token{'s' if len(tokens) != 1 else ''}" + (f", {trained:,} trained" if trained else "")


def piece_kind(token: Token) -> PieceKind:
    """The kind of a token's text: cut, special, trained, or context only."""
    if token.is_cut:
        return "cut"
    if token.is_special:
        return "trained special" if token.is_target else "special"
    return "trained" if token.is_target else "ignored"


class _Page:
    """Words are put on the line while they fit; one that is longer than a line is broken."""

    def __init__(self, width: int, signs: Signs) -> None:
        self.lines: list[RowLine] = []
        self._full_width, self._width, self._signs = width, width - cells(signs.newline), signs
        self._line: list[Piece] = []
        self._word: list[Piece] = []
        self._line_width = self._word_width = self._first = 0

    def add(self, number: int, token: Token, before: str, after: str) -> None:
        """The token's text; `before` and `after` are marks that stick to it."""
        kind = piece_kind(token)
        if before:
            self._append(Piece(before, "mark", number))
        for chunk in CHUNK.findall(token.text):
            if chunk == "\n":
                self._end_word()
                mark: PieceKind = "trained mark" if kind in TRAINED else "cut" if kind == "cut" else "mark"
                self._line.append(Piece(self._signs.newline, mark, number))
                self._break(number)
            elif chunk.isspace():
                self._end_word()
                self._append(Piece(shown(chunk), kind, number))
                self._end_word()
            else:
                self._append(Piece(shown(chunk), kind, number))
        if after:
            self._append(Piece(after, "mark", number))

    def heading(self, number: int, title: str, note: str, kind: PieceKind, width: int) -> None:
        """A line of its own: a title, a rule, and a note at its end."""
        self.end_line()
        title = cut(shown(title), max(1, width - 4))
        note = note if cells(title) + cells(note) + 2 <= width else ""
        rule = self._signs.rule * max(0, width - cells(title) - cells(note) - 2)
        pieces = [Piece(title, kind), Piece(f" {rule}", "rule"), *([Piece(f" {note}", "note")] if note else [])]
        self.lines.append(RowLine(tuple(pieces), number))
        self._first = number

    def end_line(self) -> None:
        """Begin a new line, unless nothing stands on this one yet."""
        self._end_word()
        if self._line:
            self._break(self._first)

    def _append(self, piece: Piece) -> None:
        self._word.append(piece)
        self._word_width += cells(piece.text)

    def _end_word(self) -> None:
        if not self._word:
            return
        number = self._word[0].token
        room = (
            self._full_width if self._word[0].text.isspace() else self._width
        )  # the last columns are for a new line's mark
        if self._line and self._line_width + self._word_width > room:
            self._break(number)
        if self._word_width <= self._width:
            self._line += self._word
            self._line_width += self._word_width
        else:
            for piece in self._word:
                self._break_piece(piece)
        self._word, self._word_width = [], 0

    def _break_piece(self, piece: Piece) -> None:
        text = ""
        for character in piece.text:
            size = cells(character)
            if self._line_width + size > self._width and (self._line or text):
                if text:
                    self._line.append(Piece(text, piece.kind, piece.token))
                self._break(piece.token)
                text = ""
            text += character
            self._line_width += size
        if text:
            self._line.append(Piece(text, piece.kind, piece.token))

    def _break(self, number: int) -> None:
        """`number`: the token that continues in the next line."""
        first = next((piece.token for piece in self._line if piece.token != NO_TOKEN), self._first)
        trained = any(piece.kind in TRAINED for piece in self._line)
        self.lines.append(RowLine(tuple(self._line), first, trained))
        self._line, self._line_width, self._first = [], 0, number


def raw_lines(sample: RowView, width: int) -> Iterator[str]:
    """The row as it stands in its file, in lines of at most `width` columns; continuation lines are indented."""
    for line in sample.raw.split("\n"):
        text = shown(line)
        indent = min(len(text) - len(text.lstrip(" ")) + 2, max(0, width // 3))
        first, *continuations = _split(text, width, max(1, width - indent))
        yield first
        yield from (" " * indent + line_part for line_part in continuations)


def _split(text: str, width: int, rest_width: int) -> Iterator[str]:
    """In pieces of at most so many columns, the first and the others, broken at a blank where one is near the end."""
    begin = len(text) - len(text.lstrip(" "))  # not in the indent
    start, room = 0, width
    while True:
        at, column, blank = start, 0, -1
        while at < len(text) and (column + (size := cells(text[at])) <= room or at == start):
            if text[at] == " " and at > begin and 2 * column > room:
                blank = at
            at, column = at + 1, column + size
        if at == len(text):
            yield text[start:]
            return
        yield text[start : blank if blank > 0 else at]
        start, room = blank + 1 if blank > 0 else at, rest_width
