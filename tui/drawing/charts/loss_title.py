"""The line above the chart: where the loss, or another measure, stands now."""

import msgspec

from ftui.measures import MEASURES
from ftui.runs.state import Losses, RunState, read_losses

from ...render.spans import Frame, Line, clipped, spread, width_of
from ...state.history import History
from ..wording import loss


class Standing(msgspec.Struct, frozen=True):
    """What the chart itself has found out. `constant`: steps of the average, 0 for none; `note`: what to know."""

    average: float | None
    constant: float
    measure: str = "loss"
    note: str = ""


def title(frame: Frame, standing: Standing, history: History, state: RunState) -> Line:
    """One line; where it is narrow, what is on the right goes first."""
    left, right = _left(frame, standing, history, state), _right(frame, standing, history, state)
    note: list[Line] = [[(f"   {standing.note}", "warn")]] if standing.note else []
    while right and _width(left + note, right) > frame.width:
        right.pop(0)
    while len(left) > 1 and _width(left + note, right) > frame.width:
        left.pop()
    if _width(left + note, []) > frame.width:
        note = []
    return clipped(spread(frame.width, _joined(left + note), _joined(right)), frame.width)


def _joined(parts: list[Line]) -> Line:
    return [span for part in parts for span in part]


def _left(frame: Frame, standing: Standing, history: History, state: RunState) -> list[Line]:
    parts: list[Line] = [[(f" {MEASURES[standing.measure].words}", "title")]]
    if standing.average is not None and standing.constant > 0:
        parts.append([("  ", "text"), (loss(standing.average), "key")])
        parts.append([(f" ema({standing.constant:,.0f})", "muted")])
    losses = _read(standing.measure, history, state)
    if "train" in losses.non_finite or losses.train is not None:
        number = ("nan", "alarm") if losses.train is None else (loss(losses.train), "text")
        parts.append([("   ", "text"), number, (" train", "muted")])
    if "eval" in losses.non_finite or losses.eval is not None:
        number = ("nan", "bad") if losses.eval is None else (loss(losses.eval), "text")
        parts.append([(f"   {frame.glyphs.evaluation} ", "eval"), number, (" eval", "muted")])
    return parts


def _read(measure: str, history: History, state: RunState) -> Losses:
    """The newest of training and of evaluation."""
    if measure == "loss":
        return read_losses(state)
    last = history.evaluations[-1] if history.evaluations else None
    return Losses(state.extras.get(measure), None if last is None else last.value(measure), None, [])


def _right(frame: Frame, standing: Standing, history: History, state: RunState) -> list[Line]:
    parts: list[Line] = []
    if number := len(state.checkpoints):
        words = f"{number} checkpoint{'s' * (number != 1)} "
        parts.append([(f"  {frame.glyphs.checkpoint} ", "good"), (words, "muted")])
    if (best := history.best) is not None and (value := best.value(standing.measure)) is not None:
        figure = (loss(value), "text")
        parts.append([(f"  {frame.glyphs.best} ", "eval"), figure, (f" best @ {best.step:,} ", "muted")])
    return parts


def _width(left: list[Line], right: list[Line]) -> int:
    return width_of(_joined(left)) + width_of(_joined(right)) + 2 * bool(right)
