"""The list of runs, and below it all about the one under the cursor."""

from collections.abc import Sequence
from pathlib import Path

from ftui.runs import describe
from ftui.runs.state import RunState, eta_seconds, phase_word

from ..render.spans import Frame, Line, left, right, wrapped
from ..state.run_list import RunRow
from .wording import clock, gib, loss, model_name, phase_style, place, share_done, short, status_word, steps

SPARK = 10
NAME = 12
EMPTY = ("No runs yet.", "Press n to start one.")

# heading, columns, and the width of the screen from which it is shown
COLUMNS = (
    ("phase", 10, 0), ("step", 13, 0), ("loss", 7, 0), ("loss curve", SPARK, 66), ("tokens/s", 8, 92),
    ("memory", 9, 104), ("ETA", 6, 0), ("age", 6, 74),
)  # fmt: skip


def run_table(frame: Frame, rows: Sequence[RunRow], cursor: int, now: float) -> list[Line]:
    """As many rows as there is room for, the one under the cursor among them."""
    if not rows:
        empty = [[("  " + text, style)] for text, style in zip(EMPTY, ("title", "muted"), strict=True)]
        return [[], *empty][: frame.height]
    columns = [column for column in COLUMNS if frame.width >= column[2]]
    room = max(NAME, frame.width - 4 - sum(width + 2 for _, width, _ in columns))
    phase = max([10, *(len(status_word(row.status)) for row in rows)])
    if phase > 10 and room - (phase - 10) >= NAME:
        room -= phase - 10
    else:
        phase = 10
    head: Line = [("   " + left("run", room), "faint")]
    for name, width, _ in columns:
        text = (
            left(name, phase) if name == "phase" else left(name, width) if name == "loss curve" else right(name, width)
        )
        head.append(("  " + text, "faint"))
    height = frame.height - 1
    top = max(0, min(cursor - height // 2, len(rows) - height))
    shown = list(enumerate(rows))[top : top + height]
    return [head, *(_row(frame, row, room, phase, columns, now, i == cursor) for i, row in shown)]


def _row(
    frame: Frame, row: RunRow, room: int, phase: int, columns: Sequence[tuple[str, int, int]], now: float, chosen: bool
) -> Line:
    behind = "@cursor" if chosen else ""
    mark = frame.glyphs.alive if row.is_running else frame.glyphs.idle
    line: Line = [(frame.glyphs.cursor if chosen else " ", "loss" + behind)]
    line.append((f"{mark} ", phase_style(row.status) + behind))
    line.append((left(row.run.name, room), ("number" if chosen else "text") + behind))
    for name, width, _ in columns:
        line.append(("  ", "text" + behind))
        if name == "loss curve":
            body, last = row.loss_spark(width, frame.glyphs)
            line += [(body, "loss_dim" + behind), (last, "loss" + behind)]
            line.append((" " * (width - len(body) - len(last)), "text" + behind))
        elif name == "phase":
            line.append((left(status_word(row.status), phase), phase_style(row.status) + behind))
        else:
            text, style = _cell(row, name, now)
            line.append((right(text, width), style + behind))
    return line


def _cell(row: RunRow, name: str, now: float) -> tuple[str, str]:
    state = row.status.state
    match name:
        case "step":
            text = steps(state)
            return (text, "text") if len(text) <= 13 else (f"{short(state.step)}/{short(state.max_steps)}", "text")
        case "loss":
            return _loss(state), "text"
        case "tokens/s":
            return short(state.tokens_per_second) if row.is_running else "", "muted"
        case "memory":
            return (f"{gib(state.memory)} GiB" if state.memory is not None else "-") if row.is_running else "", "muted"
        case "ETA":
            return clock(eta_seconds(state)) if row.is_running else "", "text"
        case _:
            return clock(None if row.created is None else now - row.created), "muted"


def _loss(state: RunState) -> str:
    """The newest loss of a step; for a run that has ended, the one its result was chosen by."""
    if state.loss_final is not None:
        return loss(state.loss_final)
    if state.loss is None and state.last_evaluation is not None and "loss" not in state.non_finite:
        return loss(state.last_evaluation.loss)
    return loss(state.loss, finite="loss" not in state.non_finite)


def details(frame: Frame, row: RunRow | None, now: float) -> list[Line]:
    """What the list has no columns for: what it trains, its reason or trouble, where it is."""
    if row is None:
        return []
    state = row.status.state
    setup = [part for part in (model_name(state.model), state.method, state.precision, state.device) if part]
    separator = f" {frame.glyphs.separator} "
    lines: list[Line] = [[(" " + frame.glyphs.rule * (frame.width - 2), "rule")]]
    first: Line = [(f" {row.run.name}  ", "title"), (separator.join(setup), "muted")]
    lines.append(first)
    facts = [f"epoch {state.epoch:.2f}"] if state.epoch is not None else []
    if row.is_running:
        facts += [f"{short(state.tokens_per_second)} tokens/s", f"{gib(state.memory)} GiB"]
    if state.attempt > 1:
        facts.append(f"attempt {state.attempt}")
    if (evaluation := state.best_evaluation) is not None:
        facts.append(f"best evaluation {loss(evaluation.loss)} at step {evaluation.step:,}")
    if (checkpoint := state.newest_checkpoint) is not None:
        facts.append(Path(checkpoint.path).name)
    lines.append([(" " + separator.join(facts), "text")])
    text, style = why(row)
    lines += [[(" " + part, style)] for part in wrapped(text, frame.width - 2)]
    return lines[: frame.height]


def why(row: RunRow) -> tuple[str, str]:
    """Why a run stands where it stands, in words, and their style."""
    state = row.status.state
    if row.status.frozen:
        return "Its engine was stopped by a signal (SIGSTOP): `kill -CONT` wakes it.", "warn"
    if state.phase == "lost":
        return describe.lost_reason(state), "bad"
    if state.phase == "failed":
        return (state.message.split("\n")[0] + (f" {state.hint}" if state.hint else "")), "bad"
    if state.phase == "starting" and state.detail:
        return state.detail, "warn"
    if state.phase == "held":
        return (
            f"paused: {state.detail}"
            if state.detail
            else "Paused: its GPU memory stays in use. `ftui continue` goes on.",
            "warn",
        )
    if state.reason:
        share = share_done(state)
        return f"{phase_word(state.phase)}: {state.reason}" + (
            "" if share is None else f" ({share:.0%} of the plan)"
        ), "muted"
    return (f"warning: {state.warning}", "warn") if state.warning else (place(row.run.folder), "faint")
