"""Prompts, and the answers of two sides to the one under the cursor: beside each other where there is room."""

from collections.abc import Sequence

from ftui.text import cells, shown, wrapped

from ..render.spans import Frame, Line, around, harmless, heading, left, on_cursor, paragraph, spread
from ..state.answer_list import Asked, Word, compare_words
from .chat_lines import BESIDE, beside

LIST_WIDTH, LIST_HEIGHT = 34, 6  # columns of the list where it is beside the answers; its rows where it is above
DIFFERS, SAME = "warn", "muted"


def answers_title(frame: Frame, run: str, asked: Sequence[Asked], place: str, doing: str) -> list[Line]:
    """Whose answers they are, how many there are, and in how many the sides differ."""
    sides = next((one.sides for one in asked if one.sides), ())
    answered = sum(one.is_answered for one in asked)
    compared = [one.differs for one in asked if one.differs is not None]
    words = f"{answered} of {len(asked)} answered"
    if compared:
        words += f", {sum(compared)} differ"
    first = spread(frame.width, [(f" {run} ", "title"), (" and ".join(sides), "muted")], [(f"{words} ", "text")])
    return [first, spread(frame.width, [(f" {place}", "faint")], [(f"{doing} ", "loss")])]


def answer_screen(frame: Frame, asked: Sequence[Asked], cursor: int, top: int) -> tuple[list[Line], int]:
    """The list and the answers; and `top`, the first line of the answers shown, as far down as there are more."""
    is_wide = frame.width >= BESIDE
    height = frame.height if is_wide else frame.height - _list_height(frame, asked) - 1
    width = frame.width - LIST_WIDTH - 2 if is_wide else frame.width
    answers = answer_lines(Frame(width, height, frame.glyphs), asked[cursor], are_beside=is_wide)
    top = max(0, min(top, len(answers) - height))
    below = len(answers) - height - top
    visible = answers[top : top + height]
    if is_wide:
        prompts = prompt_lines(Frame(LIST_WIDTH, height, frame.glyphs), asked, cursor)
        prompts += [[] for _ in range(height - len(prompts))]
        return beside([prompts, visible], [LIST_WIDTH, width], f"{frame.glyphs.wall} "), top
    prompts = prompt_lines(Frame(width, _list_height(frame, asked), frame.glyphs), asked, cursor)
    more = f"{below} more line{'s' * (below > 1)}" if below > 0 else ""
    return [*prompts, heading(frame, f"{cursor + 1}", "muted", note=more), *visible], top


def _list_height(frame: Frame, asked: Sequence[Asked]) -> int:
    return min(len(asked), LIST_HEIGHT, max(1, frame.height // 3))


def prompt_lines(frame: Frame, asked: Sequence[Asked], cursor: int) -> list[Line]:
    """A line each, the one under the cursor among them."""
    lines: list[Line] = []
    for one, chosen in around(asked, cursor, frame.height):
        sign, style = _sign(frame, one)
        text = left(" ".join(one.prompt.split()), frame.width - 4)
        lines.append(on_cursor([(f" {sign} ", style), (f"{text} ", "text" if one.is_answered else "muted")], chosen))
    return lines


def _sign(frame: Frame, one: Asked) -> tuple[str, str]:
    if one.problem:
        return "!", "bad"
    if one.is_asked:
        return frame.glyphs.cursor, "loss"
    if one.differs:
        return frame.glyphs.best, DIFFERS
    return (frame.glyphs.alive, "good") if one.is_answered else (frame.glyphs.idle, "faint")


def answer_lines(frame: Frame, one: Asked, *, are_beside: bool) -> list[Line]:
    """The prompt, and what each side says to it, the words marked that the other has not there."""
    lines = [*(paragraph(f"system: {one.system}", frame.width, "muted") if one.system else ())]
    lines += [*paragraph(one.prompt, frame.width, "key"), []]
    if one.problem:
        return lines + paragraph(f"Not answered: {one.problem}", frame.width, "bad")
    if not one.answers:
        return [*lines, [(" not asked yet", "muted")]]
    are_beside = are_beside and len(one.answers) > 1
    width = (frame.width - 2) // 2 if are_beside else frame.width
    texts = [[(word, False) for word in _words(text)] for text in one.answers]
    if len(one.answers) == 2 and one.is_answered:
        texts = list(compare_words(*one.answers))
    columns = []
    for number, words in enumerate(texts):
        head = one.sides[number] if number < len(one.sides) else ""
        tail: list[Line] = [[(" cut off", "warn")]] if number < len(one.cut) and one.cut[number] else []
        columns.append([[(f" {head}", "title")], *_marked_lines(words, width), *tail])
    if are_beside:
        return lines + beside(columns, [width] * len(columns), "  ")
    return lines + [line for column in columns for line in [*column, []]]


def _words(text: str) -> list[str]:
    return [word for line in text.split("\n") for word in [*line.split(), "\n"]]


def _marked_lines(words: Sequence[Word], width: int) -> list[Line]:
    """The words in lines of at most that many columns, less one at each side."""
    lines: list[Line] = [[]]
    used = 0
    for word, differs in words:
        if word == "\n":
            lines.append([])
            used = 0
            continue
        for piece in wrapped(word, width - 2):
            size = cells(harmless(piece))
            if used and used + 1 + size > width - 2:
                lines.append([])
                used = 0
            lines[-1].append((f" {shown(piece)}", DIFFERS if differs else "text"))
            used += size + 1
    while len(lines) > 1 and not lines[-1]:
        lines.pop()
    return lines
