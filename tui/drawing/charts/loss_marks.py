"""What stands in and below the loss chart beside the curve: evaluations, epochs, attempts, checkpoints, numbers.

None of it hides the curve: lines and their labels go behind it, and signs on it keep a distance from each other.
"""

import math
from collections.abc import Iterable, Set
from itertools import pairwise

from ftui.reports.ticks import step_ticks
from ftui.runs.state import RunState

from ...render.glyphs import Glyphs
from ...render.spans import Line, joined
from ...state.history import History
from .axes import Axis
from .braille import DOTS_HIGH, DOTS_WIDE, Cells
from .loss_columns import Columns, View
from .plot import Plot

GRID_EVERY = 4  # columns
EPOCH_GAP = 8  # columns between two boundaries, at least
EPOCH_WORD_GAP = 16  # columns from which the label is written out
EVALUATION_GAP = 2  # columns between two signs, at least
GAP_ON_CURVE = 4  # the same where they cover the curve
TIP_REACH = 4  # rows above and below the tip in which its number may stand


def put_grid(plot: Plot, axis: Axis, glyphs: Glyphs) -> None:
    """Dots behind the curve in the rows that have a number at the axis."""
    for row, _ in axis.ticks:
        for column in range(GRID_EVERY // 2, plot.width, GRID_EVERY):
            plot.put(plot.rows - 1 - row, column, glyphs.grid, "rule", behind=True)


def epochs_shown(steps_per_epoch: int, view: View, width: int, shift: float = 0.0) -> list[tuple[int, int]]:
    """Columns of the boundaries in view, and how many epochs are over there; every k-th where they would be close.

    `shift`: epochs of a fork's parent beyond those of its own plan.
    """
    if steps_per_epoch < 1:
        return []
    per_epoch = steps_per_epoch * width / (view.last - view.first)
    every = next(n * 10**power for power in range(20) for n in (1, 2, 5) if n * 10**power * per_epoch >= EPOCH_GAP)
    first = max(1, int((view.first / steps_per_epoch + shift) / every)) * every
    numbers = range(first, math.ceil(view.last / steps_per_epoch + shift), every)
    columns = ((view.column((number - shift) * steps_per_epoch), number) for number in numbers)
    return [(column, number) for column, number in columns if column is not None]


def parts_shown(history: History, view: View, width: int) -> tuple[str, list[tuple[int, int]]]:
    """The stages of a curriculum where they begin, or else epochs: what they are, and each line with its number."""
    if history.stages:  # their epochs are of unequal length
        columns = ((view.column(max(1, step)), number) for number, step in sorted(history.stages.items()))
        return "stage", [(column, number) for column, number in columns if column is not None]
    if (plan := history.plan) is None:
        return "epoch", []
    return "epoch", epochs_shown(plan.steps_per_epoch, view, width, plan.epoch_shift)


def put_verticals(plot: Plot, history: History, view: View, glyphs: Glyphs) -> None:
    """Lines behind the curve where epochs end (or stages begin) and where attempts after the first begin."""
    lines = [(column, glyphs.epoch, "rule") for column, _ in parts_shown(history, view, plot.width)[1]]
    lines += [(column, glyphs.attempt, "faint") for column, _ in _attempts_shown(history, view)]
    for column, sign, style in lines:
        for row in range(plot.rows):
            plot.put(row, column, sign, style, behind=True)


def _attempts_shown(history: History, view: View) -> list[tuple[int, str]]:
    """Columns in view where attempts after the first begin, with their numbers; of a child, where it began, too."""
    origin = history.origin
    begins = {begin.step: f"#{begin.attempt}" for begin in history.attempt_starts}
    if origin is not None:
        begins[origin.step] = f"from {origin.parent}"
    columns = ((view.column(step), name) for step, name in sorted(begins.items()))
    return [(column, name) for column, name in columns if column is not None]


def put_labels(plot: Plot, history: History, view: View) -> None:
    """The numbers of those lines, where the curve leaves room: epochs at the top, attempts at the bottom."""
    if plot.rows > 4:
        word, shown = parts_shown(history, view, plot.width)
        near = min((b[0] - a[0] for a, b in pairwise(shown)), default=plot.width)
        for column, number in shown:
            _put_label(plot, (0,), column, f"{word} {number}" if near >= EPOCH_WORD_GAP else f"{number}", "faint")
    origin = history.origin
    for column, name in reversed(_attempts_shown(history, view)):
        is_origin = origin is not None and column == view.column(origin.step)
        rows = range(plot.rows - 1, 0, -1) if is_origin else (plot.rows - 1,)
        _put_label(plot, rows, column, name, "muted")


def _put_label(plot: Plot, rows: Iterable[int], column: int, text: str, style: str) -> None:
    """On the line, or left of the plot's edge, in the first of these rows that has room."""
    start = min(column, plot.width - len(text))
    row = next((row for row in rows if plot.is_free(row, start, len(text))), None)
    if row is not None:
        plot.put(row, start, text, style)


def put_evaluations(
    plot: Plot, history: History, view: View, axis: Axis, curve: Cells, glyphs: Glyphs, measure: str = "loss"
) -> set[tuple[int, int]]:
    """The best is filled and always there; of many only as many as can be told apart. Returns their cells."""
    best = history.best
    placed: set[tuple[int, int]] = set()
    near: set[int] = set()  # columns too close to one that is placed already
    near_on_curve: set[int] = set()  # and those too close where both cover the curve
    rest = [mark for mark in history.evaluations if mark is not best]
    for mark in [best, *rest] if best is not None else rest:
        column = view.column(mark.step)
        value = mark.value(measure)
        if column is None or value is None:
            continue
        row = plot.rows - 1 - axis.dot(value) // DOTS_HIGH
        covers = (row, column) in curve
        if column in near or (covers and column in near_on_curve):
            continue
        plot.put(row, column, glyphs.best if mark is best else glyphs.evaluation, "eval")
        placed.add((row, column))
        near.update(range(column - EVALUATION_GAP + 1, column + EVALUATION_GAP))
        if covers:
            near_on_curve.update(range(column - GAP_ON_CURVE + 1, column + GAP_ON_CURVE))
    return placed


def put_bad(plot: Plot, columns: Columns, history: History, view: View, glyphs: Glyphs) -> None:
    """A sign at the top of every column with a loss that was not a number."""
    bad = {dot // DOTS_WIDE for dot in columns.bad}
    bad |= {c for mark in history.evaluations if mark.is_bad and (c := view.column(mark.step)) is not None}
    sign = "x" if glyphs.rule.isascii() else "\N{MULTIPLICATION SIGN}"
    for column in bad:
        plot.put(0, column, sign, "bad")


def put_tip(plot: Plot, dot: int, height: int, text: str, avoid: Set[tuple[int, int]]) -> None:
    """The newest value beside the tip of the curve (in dots), or above or below it at the right edge."""
    row, column, text = plot.rows - 1 - height // DOTS_HIGH, dot // DOTS_WIDE + 1, f" {text}"
    start = plot.width - len(text)
    if column <= start:
        plot.put(row, column, text, "key")
        return
    for away in (n * sign for n in range(1, TIP_REACH + 1) for sign in (-1, 1)):
        at = row + away
        if 0 <= at < plot.rows and start >= 0 and not any((at, c) in avoid for c in range(start, plot.width)):
            plot.put(at, start, text, "key")
            return


def step_axis(
    view: View, width: int, state: RunState, passed: tuple[float, float], glyphs: Glyphs
) -> tuple[Line, Line]:
    """The line below the plot, brighter between two steps `passed`, with the checkpoints on it; and its numbers."""
    signs, labels = [glyphs.rule] * width, [" "] * (width + 1)
    free = 0  # the first column of the labels that may be written in
    for step, label in step_ticks(view.first, view.last, width):
        column = view.column(step)
        if column is None:
            continue
        signs[column] = glyphs.mark
        start = min(max(0, column - len(label) // 2), len(labels) - len(label))
        if start >= free:
            labels[start : start + len(label)] = label
            free = start + len(label) + 1
    begin, now = ((step - view.first) * width / (view.last - view.first) for step in passed)
    saved = {view.column(checkpoint.step) for checkpoint in state.checkpoints}
    cells = [
        (glyphs.checkpoint, "good") if column in saved else (sign, "muted" if begin <= column <= now else "rule")
        for column, sign in enumerate(signs)
    ]
    return joined(cells), [("".join(labels).rstrip(), "muted")]
