"""A conversation with what was trained: what was asked, what each side answered, how likely each token was."""

from collections.abc import Sequence

import msgspec

from ftui.helper.chat_facts import TokenFacts
from ftui.text import cells, shown

from ..render.spans import Frame, Line, left, paragraph, spread, width_of

BESIDE = 100  # columns from which two answers stand side by side
LEAST_LIKELY = 0.1  # a token below that is marked


class Said(msgspec.Struct):
    """A prompt and the answers so far, one for each side; `cut` says which were cut off."""

    prompt: str
    answers: list[str]
    cut: list[bool]


def conversation_title(frame: Frame, run: str, sides: Sequence[str], where: str, system: str) -> list[Line]:
    """Who answers, where, and the system prompt."""
    first = spread(
        frame.width, [(f" {run} ", "title"), (" and ".join(sides), "muted")], [(f"{where} ", "faint")]
    )  # fmt: skip
    return [first, [(f" system: {shown(system)}", "muted") if system else ("", "text")]]


def conversation_lines(frame: Frame, sides: Sequence[str], exchanges: Sequence[Said]) -> list[Line]:
    """All that was said, wrapped; answers of two sides beside each other where there is room."""
    lines: list[Line] = []
    for said in exchanges:
        lines += [*_text(said.prompt, frame.width, "key"), [("", "text")]]
        columns = [
            _answer(side if len(sides) > 1 else "", answer, cut, _column_width(frame, len(sides)))
            for side, answer, cut in zip(sides, said.answers, said.cut, strict=True)
        ]
        are_beside = len(columns) > 1 and frame.width >= BESIDE
        lines += (
            beside(columns, [frame.width // 2] * 2) if are_beside else [line for column in columns for line in column]
        )
        lines.append([("", "text")])
    return lines


def _column_width(frame: Frame, number: int) -> int:
    return frame.width // 2 if number > 1 and frame.width >= BESIDE else frame.width


def _answer(side: str, text: str, cut: bool, width: int) -> list[Line]:
    head: list[Line] = [[(f" {side}", "muted")]] if side else []
    tail: list[Line] = [[(" cut off", "warn")]] if cut else []
    return [*head, *_text(text.strip(), width, "text"), *tail]


def _text(text: str, width: int, style: str) -> list[Line]:
    return [line for part in text.split("\n") for line in paragraph(shown(part), width, style) or [[("", style)]]]


def beside(columns: Sequence[Sequence[Line]], widths: Sequence[int], between: str = "") -> list[Line]:
    """Columns of lines, each filled to its width."""
    lines: list[Line] = []
    for number in range(max(map(len, columns))):
        parts = [column[number] if number < len(column) else [] for column in columns]
        line: Line = []
        for part, width in zip(parts, widths, strict=True):
            line += [*([(between, "rule")] if line and between else []), *part]
            line.append((" " * max(0, width - width_of(part)), "text"))
        lines.append(line)
    return lines


def token_lines(frame: Frame, tokens: Sequence[TokenFacts], cursor: int) -> list[Line]:
    """What was likely at the token under the cursor, and below it the part of the answer around that token."""
    if not tokens:
        return [[(" No answer yet.", "muted")]]
    token = tokens[cursor]
    head: list[Line] = [[(f" token {cursor + 1} of {len(tokens)}: {token.probability:.1%}", "muted")]]
    for text, share in token.likeliest:
        bar = frame.glyphs.rule * round(share * max(0, frame.width - 40))
        head.append([(f" {share:6.1%} ", "text"), (left(f"'{shown(text)}'", 24), "text"), (bar, "loss")])
    lines: list[Line] = [[(" ", "text")]]
    at = 0
    for number, one in enumerate(tokens):
        style = "text@cursor" if number == cursor else "warn" if one.probability < LEAST_LIKELY else "text"
        text = shown(one.text) or "·"
        if width_of(lines[-1]) + cells(text) > frame.width - 1:
            lines.append([(" ", "text")])
        lines[-1].append((text, style))
        if number == cursor:
            at = len(lines) - 1
    room = max(1, frame.height - len(head) - 1)
    top = max(0, min(at - room // 2, len(lines) - room))
    return [*head, [("", "text")], *lines[top : top + room]]
