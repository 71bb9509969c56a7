"""The list of runs, and below it all about the one under the cursor."""

from collections.abc import Collection, Sequence
from pathlib import Path

from ftui import units
from ftui.measures import leading_measure
from ftui.runs import describe
from ftui.runs.records import result_lines
from ftui.runs.records.spending import basis_words, meter_words
from ftui.runs.state import eta_seconds, has_ended, phase_word, read_losses
from ftui.runs.status import spent_so_far

from ..render.spans import Frame, Line, around, left, middle, on_cursor, paragraph, right, thin_line
from ..state.run_list import RunRow
from .columns import GAP, Column, share_width, widest
from .wording import clock, figure, gib, loss, model_name, phase_style, place, share_done, short, status_word, steps

NAME, LONGEST_NAME = 12, 40  # columns: the least of a name, and from which on it is read well enough when cut
COLUMNS = (
    "phase", "step", "train loss", "eval loss", "accuracy", "loss curve", "tokens/s", "memory", "cost", "ETA", "age",
)  # fmt: skip
BY_NEED = (
    "phase", "step", "train loss", "eval loss", "ETA", "cost", "loss curve", "accuracy", "age", "tokens/s", "memory",
)  # fmt: skip
"""The same columns, those first that have to be there; the others come while names keep their room."""
NEEDED = 4
SPARSE = ("accuracy", "cost")
"""Columns that are there where a run has something in them."""
ACCURACIES = ("rewards/accuracies", "mean_token_accuracy")
"""Of the newest evaluation: a run has one of them at most, and the column is there where a run has one."""


def run_table(
    frame: Frame, rows: Sequence[RunRow], cursor: int, now: float, marked: Collection[Path] = ()
) -> list[Line]:
    """As many rows as there is room for, the one under the cursor among them. `marked`: folders of runs."""
    if not rows:
        return [[], [("  No runs yet.", "title")], [("  Press n to start one.", "muted")]][: frame.height]
    cells = [{name: _cell(row, name, now) for name in COLUMNS} for row in rows]
    widths = _widths(frame.width, rows, cells)
    head: Line = [("   " + left("run", widths["run"]), "faint")]
    for name in COLUMNS:
        if name in widths:
            align = left if name in ("phase", "loss curve") else right
            heading = name if len(name) <= widths[name] else _short_heading(name)
            head.append(("  " + align(heading, widths[name]), "faint"))
    shown = around(list(zip(rows, cells, strict=True)), cursor, frame.height - 1)
    lines = [head]
    for (row, texts), chosen in shown:
        is_marked = row.run.folder in marked
        lines.append(on_cursor(_row(frame, row, texts, widths, chosen, is_marked), chosen))
    return lines


def _short_heading(name: str) -> str:
    return name.removesuffix(" loss")


def _widths(room: int, rows: Sequence[RunRow], cells: Sequence[dict[str, tuple[str, str]]]) -> dict[str, int]:
    """The columns that are shown and "run", in `room` columns: first for names, then for headings, then for others."""
    longest = widest(row.run.name for row in rows)
    content = {name: widest(cell[name][0] for cell in cells) for name in BY_NEED}
    free = room - 4 - max(NAME, min(longest, LONGEST_NAME))
    is_wide = free >= sum(max(len(name), content[name]) + GAP for name in BY_NEED[:NEEDED])
    columns = {"run": Column(NAME, longest)}
    for number, name in enumerate(BY_NEED):
        width = max(content[name], len(name if is_wide else _short_heading(name)))
        if number < NEEDED or (free >= width + GAP and (name not in SPARSE or content[name])):
            columns[name] = Column(width, width, grows=name == "loss curve")
            free -= width + GAP
    widths = share_width(list(columns.values()), room - 4 - GAP * (len(columns) - 1))
    return dict(zip(columns, widths, strict=True))


def _row(
    frame: Frame, row: RunRow, cells: dict[str, tuple[str, str]], widths: dict[str, int], chosen: bool, marked: bool
) -> Line:
    line: Line = [
        (frame.glyphs.best if marked else frame.glyphs.cursor if chosen else " ", "special" if marked else "loss"),
        (f"{frame.glyphs.alive if row.is_running else frame.glyphs.idle} ", phase_style(row.status)),
        (middle(row.run.name, widths["run"]), "special" if marked else "number" if chosen else "text"),
    ]
    for name in COLUMNS:
        if name not in widths:
            continue
        width, (text, style) = widths[name], cells[name]
        line.append(("  ", "text"))
        if name == "loss curve":
            body, last = row.loss_spark(width, frame.glyphs)
            line += [(body, "loss_dim"), (last, "loss")]
            line.append((" " * (width - len(body) - len(last)), "text"))
        else:
            line.append(((left if name == "phase" else right)(text, width), style))
    return line


def _cell(row: RunRow, name: str, now: float) -> tuple[str, str]:
    state, losses = row.status.state, read_losses(row.status.state)
    match name:
        case "phase":
            return status_word(row.status), phase_style(row.status)
        case "step":
            text = steps(state)
            return (text, "text") if len(text) <= 13 else (f"{short(state.step)}/{short(state.max_steps)}", "text")
        case "train loss":
            return loss(losses.train, finite="train" not in losses.non_finite), "text"
        case "eval loss":
            return loss(losses.eval, finite="eval" not in losses.non_finite), "text"
        case "accuracy":
            extras = {} if state.last_evaluation is None else state.last_evaluation.extras
            return next((figure(extras[name]) for name in ACCURACIES if name in extras), ""), "text"
        case "tokens/s":
            return short(state.tokens_per_second) if row.is_running else "", "muted"
        case "memory":
            return (f"{gib(state.memory)} GiB" if state.memory is not None else "-") if row.is_running else "", "muted"
        case "cost":
            dollars = spent_so_far(row.status).dollars
            return "" if dollars is None else units.money(dollars), "text"
        case "ETA":
            return clock(eta_seconds(state)) if row.is_running else "", "text"
        case "age":
            return clock(None if row.created is None else now - row.created), "muted"
    return "", "text"  # the loss curve, which is drawn


def details(frame: Frame, row: RunRow | None, now: float) -> list[Line]:
    """What the list has no columns for: what it trains, its reason or trouble, where it is."""
    if row is None:
        return []
    state = row.status.state
    setup = [part for part in (model_name(state.model), state.method, state.precision, state.device) if part]
    separator = f" {frame.glyphs.separator} "
    first: Line = [(f" {row.run.name}  ", "title"), (separator.join(setup), "muted")]
    facts = [f"epoch {state.epoch:.2f}"] if state.epoch is not None else []
    if row.is_running:
        facts += [f"{short(state.tokens_per_second)} tokens/s", f"{gib(state.memory)} GiB"]
    if state.attempt > 1:
        facts.append(f"attempt {state.attempt}")
    if (evaluation := state.best_evaluation) is not None:
        name, value = leading_measure(evaluation)
        told = loss(value) if name == "loss" else describe.evaluation_words(evaluation)
        others = [one for one in describe.OF_EVALUATIONS if one != name]
        measures = describe.write_measures(evaluation.extras, others)
        facts.append(", ".join([f"best evaluation {told}", *measures, f"step {evaluation.step:,}"]))
    if (checkpoint := state.newest_checkpoint) is not None:
        facts.append(Path(checkpoint.path).name)
    if cost := meter_words(state.spending, spent_so_far(row.status)):
        facts.append(f"{cost} {basis_words(state.spending)}".rstrip())
    text, style = explain_status(row)
    lines = [thin_line(frame), first, *paragraph(text, frame.width, style)]
    return [*lines, *paragraph(separator.join(facts), frame.width, "text")][: frame.height]


def explain_status(row: RunRow) -> tuple[str, str]:
    """Why a run stands where it stands, in words, and their style."""
    state = row.status.state
    if row.status.unreadable:
        return row.status.unreadable, "bad"
    if row.status.frozen:
        return "Its engine was stopped by a signal (SIGSTOP): `kill -CONT` wakes it.", "warn"
    if state.phase == "lost":
        return result_lines.lost_reason(state), "bad"
    if state.message:
        return (state.message.split("\n")[0] + (f" {state.hint}" if state.hint else "")), "bad"
    if state.phase == "starting" and state.detail:
        return state.detail, "warn"
    if state.phase == "held":
        words = "Paused: its GPU memory stays in use. `ftui continue` ends that."
        return f"paused: {state.detail}" if state.detail else words, "warn"
    if has_ended(state) and state.pushes:
        push = state.pushes[-1]
        is_cut = push.is_pending and not push.is_at_work
        more = f"`ftui push {row.run.name}` goes on" if is_cut else push.problem
        words = f"{phase_word(state.phase)}: {push.words}. {more}"
        return words.rstrip(". "), "warn" if is_cut or push.problem else "muted"
    if state.reason:
        share = share_done(state)
        done = "" if share is None else f" ({share:.0%} of the plan)"
        return f"{phase_word(state.phase)}: {state.reason}{done}", "muted"
    return (f"warning: {state.warning}", "warn") if state.warning else (place(row.run.folder), "faint")
