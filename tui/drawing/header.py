"""The two lines above the chart: which run, in which phase, on what, how far, how long, what a kill would cost."""

from ftui.runs.records.spending import meter_words
from ftui.runs.state import RunState, eta_seconds, red_alarms
from ftui.runs.status import Status, is_running, spent_so_far
from ftui.text import cut_middle

from ..render.spans import Frame, Line, Span, spread, width_of
from .wording import clock, model_name, phase_style, share_done, status_word


def header(frame: Frame, name: str, status: Status, card: str, now: float) -> list[Line]:
    """`card`: the GPU or CPU in a few words; `now` in Unix seconds."""
    return [_first(frame, name, status, card, now), _bar(frame, status)]


def _first(frame: Frame, name: str, status: Status, card: str, now: float) -> Line:
    state, glyphs = status.state, frame.glyphs
    style = phase_style(status)
    mark = glyphs.alive if is_running(status) else glyphs.idle
    paused = "" if state.paused_since is None else f" {clock(now - state.paused_since)}"
    standing, right = [("  ", "text"), (f"{status_word(status)}{paused}", style)], _time(status)
    if alarms := red_alarms(state):
        standing.append((f"  {', '.join(alarms)}", "bad"))
    room = frame.width - width_of([*standing, *right]) - 4
    left: Line = [(f" {mark} ", style), (cut_middle(name, room), "number"), *standing]
    for part in _facts(frame, state, card):
        if width_of([*left, *part, *right]) + 2 <= frame.width:
            left += part
    return spread(frame.width, left, right)


def _facts(frame: Frame, state: RunState, card: str) -> list[Line]:
    """What there is to add, most wanted first."""
    dot = f" {frame.glyphs.separator} "
    attempt = f"attempt {state.attempt} {state.reproducibility or ''}".rstrip() if state.attempt > 1 else ""
    model: list[Line] = [[("   ", "text"), (model_name(state.model), "muted")]] if state.model else []
    facts = (state.method, state.precision, attempt, card)
    return [*model, *([(dot, "faint"), (fact, "muted")] for fact in facts if fact)]


def _time(status: Status) -> Line:
    state = status.state
    done = share_done(state)
    percent = "" if done is None else f"{int(done * 100):3d}% "
    cost = f"{words}  " if (words := meter_words(state.spending, spent_so_far(status))) else ""
    scarce: Line = [(cost, "warn" if state.spending.warned else "text")]
    if not is_running(status):
        return [*scarce, (percent, "number")]
    return [*scarce, ("ETA ", "muted"), (clock(eta_seconds(state)), "text"), ("  ", "text"), (percent, "number")]


def _bar(frame: Frame, status: Status) -> Line:
    state, glyphs = status.state, frame.glyphs
    right: Line = [(f"  {state.step:,}", "text")]
    if state.max_steps is not None:
        right.append((f" / {state.max_steps:,}", "muted"))
    if state.epoch is not None:
        right.append((f"  epoch {state.epoch:.2f}", "muted"))
    if state.stage and frame.width >= 80:
        right.append((f"  stage {state.stage}", "muted"))
    unsaved = _unsaved(status)
    if unsaved and frame.width >= 100:
        right.append((f"  {unsaved}", "faint"))
    right.append((" ", "text"))
    room = max(0, frame.width - width_of(right) - 1)
    halves = int((share_done(state) or 0.0) * room * 2)
    done = glyphs.full * (halves // 2) + (glyphs.half if halves % 2 else "")
    bar: list[Span] = [(" ", "text"), (done, phase_style(status)), (glyphs.full * (room - len(done)), "rule")]
    return [*bar, *right]


def _unsaved(status: Status) -> str:
    """What a kill in this moment would cost."""
    state = status.state
    if not is_running(status) or state.start_step is None:
        return ""
    newest = state.newest_checkpoint
    steps = state.step - (newest.step if newest else 0)
    return "all saved" if steps == 0 else f"{steps:,} unsaved"
