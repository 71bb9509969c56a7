"""Prompts of a rollout, and the answers to the one under the cursor with their rewards and advantages."""

from collections.abc import Sequence

from ftui.rollouts.read_rollouts import Order, SeenGroup
from ftui.rollouts.rollout_lines import AnswerLine
from ftui.rollouts.rollout_text import answer_figures, figure, spread
from ftui.text import shown, wrapped

from ...render.spans import Frame, Line, around, heading, left, on_cursor, paragraph, thin_line, width_of
from ...render.spans import spread as between
from ..chat_lines import BESIDE, beside

LIST_WIDTH, LIST_HEIGHT = 42, 6  # columns of the prompts where they are beside the answers; rows where they are above
WORDS: dict[Order, str] = {
    "newest": "as they were asked", "best": "best first", "worst": "worst first", "longest": "longest first",
}  # fmt: skip


def rollouts_title(frame: Frame, run: str, groups: Sequence[SeenGroup], order: Order, place: str) -> list[Line]:
    """Whose answers they are, which rollouts they are of, and what these came to."""
    answers = [answer for one in groups for answer in one.group.answers]
    rewards = [answer.reward for answer in answers if answer.reward is not None]
    mean = f", mean reward {figure(sum(rewards) / len(rewards))}" if rewards else ""
    same = sum(_is_flat(one.group.answers) for one in groups)
    words = f"{len(groups)} prompts, {len(answers)} answers{mean} " if groups else ""
    where: Line = [(f" {place}", "muted"), (f"  {WORDS[order]}", "faint")]
    note = f"{same} of {len(groups)} prompts teach nothing " if same else ""
    return [
        between(frame.width, [(f" {shown(run)} ", "title")], [(words, "text")]),
        between(frame.width, where, [(note, "warn")]),
    ]


def group_screen(frame: Frame, groups: Sequence[SeenGroup], cursor: int, top: int) -> tuple[list[Line], int]:
    """Prompts and answers, beside each other where there is room; and `top`, the first line of the answers shown, as
    far down as there are more."""
    is_wide = frame.width >= BESIDE
    list_height = frame.height if is_wide else min(len(groups), LIST_HEIGHT, max(1, frame.height // 3))
    height = frame.height if is_wide else frame.height - list_height - 1
    width = frame.width - LIST_WIDTH - 2 if is_wide else frame.width
    answers = answer_lines(Frame(width, height, frame.glyphs), groups[cursor])
    top = max(0, min(top, len(answers) - height))
    below, visible = len(answers) - height - top, answers[top : top + height]
    prompts = prompt_lines(Frame(LIST_WIDTH if is_wide else width, list_height, frame.glyphs), groups, cursor)
    if is_wide:
        prompts += [[] for _ in range(height - len(prompts))]
        return beside([prompts, visible], [LIST_WIDTH, width], f"{frame.glyphs.wall} "), top
    more = f"{below} more line{'s' * (below > 1)}" if below > 0 else ""
    return [*prompts, heading(frame, f"{cursor + 1} of {len(groups)}", "muted", note=more), *visible], top


def prompt_lines(frame: Frame, groups: Sequence[SeenGroup], cursor: int) -> list[Line]:
    """A line each, the one under the cursor among them: its rewards, least to most, and its words."""
    lines: list[Line] = []
    for one, chosen in around(groups, cursor, frame.height):
        rewards = [answer.reward for answer in one.group.answers if answer.reward is not None]
        range_ = f"{figure(min(rewards))} {frame.glyphs.dash} {figure(max(rewards))}" if rewards else "no reward"
        style = "faint" if _is_flat(one.group.answers) else "number"
        head: Line = [(f" {left(range_, 13)} ", style)]
        text = left(shown(" ".join(one.group.prompt.split())), frame.width - width_of(head) - 1)
        lines.append(on_cursor([*head, (f"{text} ", "text")], chosen))
    return lines


def answer_lines(frame: Frame, one: SeenGroup) -> list[Line]:
    """The prompt, and each answer below its figures."""
    where = f" rollout {one.rollout}, prompt {one.place} (row {one.group.row}): {spread(one.group.answers)}"
    lines: list[Line] = [*paragraph(where.strip(), frame.width, "muted"), *_text(one.group.prompt, frame.width, "key")]
    for answer in one.group.answers:
        lines += [thin_line(frame), *paragraph(answer_figures(answer), frame.width, _style(answer))]
        lines += _text(answer.completion, frame.width, "text")
    return lines


def _text(text: str, width: int, style: str) -> list[Line]:
    safe = shown(text, newlines=True).strip("\n")
    return [[(f" {line}", style)] for part in safe.splitlines() or [""] for line in wrapped(part, width - 2) or [""]]


def _style(answer: AnswerLine) -> str:
    """Whether it becomes likelier."""
    if not answer.advantage:
        return "muted"
    return "good" if answer.advantage > 0 else "bad"


def _is_flat(answers: Sequence[AnswerLine]) -> bool:
    return len({answer.reward for answer in answers}) < 2
