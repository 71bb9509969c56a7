"""Groups of answers as lines of text, for commands and screens."""

from collections.abc import Sequence

from ftui.rollouts.read_rollouts import SeenGroup
from ftui.rollouts.rollout_lines import AnswerLine
from ftui.text import cells, cut, shown, wrapped
from ftui.units import MISSING

INDENT = "    "
LINES_OF_A_TEXT = 6


def group_lines(one: SeenGroup, width: int, *, whole: bool = False) -> list[str]:
    """A group: where it stands, its prompt, and each answer below its rewards; longer texts are cut unless `whole`."""
    group = one.group
    lines = [cut(f"rollout {one.rollout}, prompt {one.place} (row {group.row}) · {spread(group.answers)}", width)]
    lines += _text(group.prompt, width, "  ", whole=whole)
    for answer in group.answers:
        lines.append(cut(f"  {answer_figures(answer)}", width))
        lines += _text(answer.completion, width, INDENT, whole=whole)
    return lines


def answer_figures(answer: AnswerLine) -> str:
    """`reward 1.25 · advantage +0.71 · number_answer 1, format 0.5 · 34 tokens`, as far as it is known."""
    parts = [f"reward {figure(answer.reward)}"]
    if answer.advantage is not None:
        parts.append(f"advantage {answer.advantage:+.3g}")
    if len(answer.rewards) > 1 or (answer.rewards and answer.reward not in answer.rewards.values()):
        parts.append(", ".join(f"{shown(name)} {figure(value)}" for name, value in answer.rewards.items()))
    tokens = "1 token" if answer.num_tokens == 1 else f"{answer.num_tokens} tokens"
    return " · ".join([*parts, tokens if answer.is_complete else f"{tokens}, cut off"])


def spread(answers: Sequence[AnswerLine]) -> str:
    """The rewards of a group in a few words."""
    rewards = [answer.reward for answer in answers if answer.reward is not None]
    if not rewards:
        return "no reward"
    if len(answers) == 1:
        return f"reward {figure(rewards[0])}"
    if min(rewards) == max(rewards):
        return f"all {len(answers)} the same: {figure(rewards[0])} (nothing to learn from)"
    mean = sum(rewards) / len(rewards)
    return f"{len(answers)} answers, {figure(min(rewards))} to {figure(max(rewards))}, mean {figure(mean)}"


def figure(value: float | None) -> str:
    """A reward in at most four digits."""
    return MISSING if value is None else f"{value:.4g}"


def _text(text: str, width: int, indent: str, *, whole: bool) -> list[str]:
    safe = shown(text, newlines=True)
    lines = [line for part in safe.splitlines() or [""] for line in wrapped(part, width - cells(indent)) or [""]]
    if not whole and len(lines) > LINES_OF_A_TEXT:
        left = len(lines) - LINES_OF_A_TEXT + 1
        lines = [*lines[: LINES_OF_A_TEXT - 1], f"... {left} more lines"]
    return [f"{indent}{line}".rstrip() for line in lines]
