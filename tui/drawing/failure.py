"""What ended a run that did not end well: in words, by whom, the likely cause, what to do, and its last lines."""

from collections.abc import Sequence

from ftui.errors import BUG, EXIT_WORDS, PREEMPTED_NOT_SAVED
from ftui.runs import describe
from ftui.runs.records import result_lines
from ftui.runs.records.supervisor_records import EngineEnded
from ftui.runs.state import RunState, ended_badly, how_to_continue, phase_word
from ftui.text import cut_middle

from ..render.spans import Frame, Line, heading, labelled, paragraph, spread, width_of

LINES_SHOWN = 30
LABEL = 10
TITLE = "the engine's last lines"

CAUSES = {
    30: "The profile asks for something that does not fit together.",
    31: "The data: a file, a row or a template, named above.",
    32: "The model: missing, gated, offline or refused.",
    33: "The hardware: no GPU that torch can use.",
    40: "The disk is full or its volume has trouble; nothing that was saved is lost.",
    41: "GPU memory: even one row at a time did not fit.",
    42: "Host memory (RAM), not the GPU's: the kernel ended the engine.",
    43: "A NaN or infinite loss or gradient: often too high a learning rate, or fp16.",
    44: "The engine stood still (a hanging volume, driver or download); its stacks are in the log.",
    50: "Another process wrote to this run.",
    20: "The machine was taken away (SIGTERM); it had time to save.",
    21: "It was killed from outside (a person, the pod's owner, or the kernel); nothing is wrong with the run itself.",
    70: "A fault of the program or of a library under it.",
}
RESUME, RESTART = "r resumes from the newest checkpoint.", "r starts it again."
AGAIN = "Profile mended: start it again (its form, or `ftui --run`); r resumes with the run's own copy of it."
NEXT = {
    30: AGAIN,
    31: f"Rows mended: r. {AGAIN}",
    32: AGAIN,
    41: "A shorter data.max_length, activation_checkpointing = true or a smaller adapter.r, in a new run.",
    42: f"Fewer processes beside it, or a pod with more RAM; {RESUME}",
    43: "`ftui resume RUN --fork --set train.learning_rate=...` resumes from the newest checkpoint with a lower one.",
}
TRACEBACK = "Traceback (most recent call last):"
CHAINED = ("During handling of the above exception", "The above exception was the direct cause")


def failure(
    frame: Frame, name: str, state: RunState, ended: EngineEnded | None, last: str, log: Sequence[str], top: int
) -> tuple[list[Line], int]:
    """The frame filled from line `top` on, and the line it really begins with: no further than the end.

    From the top the newest of the printed lines are shown, as many as fit. `last`: the last event, `log`: what the
    engine printed.
    """
    facts = _facts(frame, name, state, ended, last)
    lines_of_log, note = state.last_lines or list(log), ""
    if state.ended_by == "engine" and state.exit_code != BUG and TRACEBACK in lines_of_log:
        lines_of_log, note = without_tracebacks(lines_of_log, state.message), "its traceback is in the log "
    printed = [part for line in lines_of_log[-LINES_SHOWN:] for part in paragraph(line, frame.width, "muted")]
    room = frame.height - len(facts) - 2
    if top == 0 and 3 <= room < len(printed):
        note = f"the last {room} of {len(printed)}, down shows all "
        return [*facts, [], heading(frame, TITLE, note=note), *printed[-room:]], 0
    none = " no other output" if note else " no output"
    lines = [*facts, [], heading(frame, TITLE, note=note), *(printed or [[(none, "faint")]])]
    top = min(top, max(0, len(lines) - frame.height))
    return lines[top : top + frame.height], top


def without_tracebacks(lines: Sequence[str], message: str) -> list[str]:
    """Of an error that is no fault of the program: its own words, `message`, stand above, where it was raised in a log.

    A traceback ends with the first line that is not indented, the error; what follows of its text is in `message`.
    """
    rest, inside, own_words = [], False, set(message.split("\n"))
    for line in lines:
        if line.startswith(TRACEBACK):
            inside = True
        elif inside:
            inside = line[:1] in (" ", "")
        elif line.strip() and line not in own_words and not line.startswith(CHAINED):
            rest.append(line)
    return rest


def _facts(frame: Frame, name: str, state: RunState, ended: EngineEnded | None, last: str) -> list[Line]:
    word = {"lost": "was lost", "failed": "failed"}.get(state.phase, f"is {phase_word(state.phase)}")
    standing: Line = [(f" {word}", "alarm" if ended_badly(state) else "title")]
    right: Line = [(f"{describe.place(state)} ", "muted")]
    shown_name = cut_middle(name, frame.width - width_of([*standing, *right]) - 2)
    lines: list[Line] = [spread(frame.width, [(f" {shown_name}", "number"), *standing], right), []]
    message = result_lines.lost_reason(state) if state.phase == "lost" else state.message or state.reason
    lines += _part(frame, "what", message, "text")
    lines += _part(frame, "how", describe_ending(state, ended), "text")
    lines += _part(frame, "last event", last, "muted")
    if ended_badly(state):
        code = state.exit_code if state.exit_code is not None else PREEMPTED_NOT_SAVED
        lines += _part(frame, "cause", CAUSES.get(code, ""), "text")
        hint = how_to_continue(state)
        following = _following(code, name, has_saved=state.newest_checkpoint is not None)
        lines += _part(frame, "do", "\n".join(part for part in (hint, following) if part), "good")
    newest = state.newest_checkpoint
    saved = f"checkpoint-{newest.step}" + (", read back whole" if newest.verified else "") if newest else "none"
    return lines + _part(frame, "saved", saved, "text")


def _following(code: int, name: str, *, has_saved: bool) -> str:
    """What to do next; a run without a checkpoint begins anew."""
    if has_saved:
        return NEXT.get(code, RESUME).replace("RUN", name)
    return AGAIN if code == 43 else NEXT.get(code, RESUME).replace(RESUME, RESTART)


def describe_ending(state: RunState, ended: EngineEnded | None) -> str:
    """Exit code and signal, as the supervisor saw them; the engine's own code where it said one."""
    parts = []
    if state.exit_code is not None:
        words = EXIT_WORDS.get(state.exit_code)
        parts.append(f"exit code {state.exit_code}" + (f" ({words})" if words else ""))
    if ended is not None and ended.signal:
        parts.append(f"signal {ended.signal}")
    if ended is not None and ended.oom_kills:
        parts.append("the kernel's out-of-memory killer")
    if state.restarts:
        times = "1 time" if len(state.restarts) == 1 else f"{len(state.restarts)} times"
        parts.append(f"started again {times} before")
    return ", ".join(parts) or "nobody was there to see it"


def _part(frame: Frame, label: str, text: str, style: str) -> list[Line]:
    return labelled([(f" {label:<{LABEL}}  ", "faint")], text, frame.width, style) if text else []
