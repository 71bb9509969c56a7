"""A run's records and state in plain lines: pure functions, all foreign text through `shown`."""

from collections.abc import Iterable, Mapping
from pathlib import Path

from ftui import units
from ftui.measures import MEASURES
from ftui.runs.events import (
    Adopted,
    Answered,
    AnyRecord,
    CheckpointRejected,
    CheckpointSaved,
    ControlApplied,
    ControlRefused,
    EngineEnded,
    EvaluationDone,
    MicroBatchChanged,
    Noted,
    PhaseChanged,
    PushBegan,
    Pushed,
    PushFailed,
    Restarting,
    RunFailed,
    RunFinished,
    RunOpened,
    RunStarted,
    RunStopped,
    Sampled,
    StageBegan,
    Stalled,
    Step,
    Warned,
)
from ftui.runs.run_folder import Run
from ftui.runs.state import (
    RunState,
    disk_trouble,
    eta_seconds,
    has_ended,
    how_to_continue,
    phase_word,
    read_losses,
)
from ftui.runs.verbs import verb_name
from ftui.text import complaint, shown

LOST = "The engine and its supervisor ended without writing why (the pod was restarted, or both were killed)."
ENDED_WHILE_RESTARTING = "It crashed at step {}, and its supervisor was ended before it could start it again."

LOADERS = {"lora": ("peft", "AutoPeftModel"), "full": ("transformers", "AutoModel")}
LOADERS |= {"qlora": LOADERS["lora"], "freeze": LOADERS["full"]}


def format_value(value: float | None, name: str, non_finite: list[str]) -> str:
    """A number of a record: its digits, `not finite`, or `n/a`."""
    return "not finite" if value is None and name in non_finite else units.quantity(value)


BESIDE_LOSS = ("rewards/accuracies", "rewards/margins", "kl")
"""Measures that stand beside the loss of each step ..."""
OF_EVALUATIONS = ("mean_token_accuracy", "perplexity", *BESIDE_LOSS, "exact_match", "rouge_l", "json_valid", "stopped")
"""... and of an evaluation."""


def write_measures(extras: Mapping[str, float | None], names: Iterable[str]) -> list[str]:
    """`accuracy 0.94`, `margin 1.20`: those of the measures that there are."""
    return [f"{MEASURES[name].short} {units.figure(extras[name])}" for name in names if name in extras]


def loss_figures(state: RunState) -> tuple[str, str]:
    """The training and the evaluation loss, see `read_losses`."""
    losses = read_losses(state)
    return format_value(losses.train, "train", losses.non_finite), format_value(losses.eval, "eval", losses.non_finite)


def place(state: RunState) -> str:
    """The step as `step 120/400`, or `step 120` while the plan is not known."""
    return f"step {state.step}/{state.max_steps}" if state.max_steps is not None else f"step {state.step}"


def progress(state: RunState) -> str:
    """The line that shows where a run is."""
    return step_line(state) if state.phase in ("training", "evaluating", "saving", "held") else phase(state)


def step_line(state: RunState) -> str:
    """The step, with what this attempt has measured."""
    parts = [place(state)]
    if state.step_time is not None:
        parts.append(f"train loss {loss_figures(state)[0]}")
        parts += write_measures(state.extras, BESIDE_LOSS)
        parts.append(f"{units.count(state.tokens_per_second)} tokens/s")
    if state.memory is not None:
        parts.append(units.size(state.memory))
    if state.phase in ("evaluating", "saving", "held"):
        parts.append(phase(state))
    elif eta := eta_seconds(state):  # none before the first step, 0 after the last
        parts.append(f"ETA {units.duration(eta)}")
    return " · ".join(parts)


def phase(state: RunState) -> str:
    """The phase with its detail, in words."""
    if trouble := disk_trouble(state):
        return f"parked · {trouble}"
    word = phase_word(state.phase)
    if has_ended(state) and state.pushes:
        return f"{word} · {shown(state.pushes[-1].words)}"
    return f"{word} · {shown(state.detail)}" if state.detail else word


def micro_batch(state: RunState) -> str | None:
    """The size of the micro-batches, where running out of memory changed it; else `None`."""
    if state.micro_batch is None:
        return None
    return f"{_rows(state.micro_batch)} from step {state.micro_batch_step} on (memory ran out)"


def reproducibility(state: RunState) -> str | None:
    """EXACT, SAME STATE or NOT EXACT, with the reasons; `None` for a run that was never resumed."""
    if state.reproducibility is None:
        return None
    reasons = "; ".join(shown(reason) for reason in state.reproducibility_reasons)
    return (
        f"{state.reproducibility} ({reasons})"
        if reasons and state.reproducibility != "EXACT"
        else state.reproducibility
    )


def is_due(record: Step, state: RunState, logging_steps: int) -> bool:
    """Whether this step is printed, where each line stays (a pipe, a log)."""
    return record.step % logging_steps == 0 or record.step == state.max_steps


def event_lines(record: AnyRecord) -> list[str]:
    """The lines to print for a record; none for most kinds."""
    match record:
        case RunOpened():
            return [f"on {shown(record.host)}: {shown(record.device)}"]
        case RunStarted():
            return _plan(record)
        case Step() if not record.applied:
            names = " and ".join(record.non_finite) or "gradient"
            return [f"step {record.step}: {shown(names)} not finite, the step was not applied"]
        case EvaluationDone(requested=True) | ControlApplied(verb="answer" | "end_answer"):
            return []  # another record says it
        case EvaluationDone():
            best = " (best so far)" if record.best else ""
            loss = f"loss {format_value(record.loss, 'loss', record.non_finite)}"
            figures = ", ".join([loss, *write_measures(record.extras, OF_EVALUATIONS)])
            return [f"evaluation at step {record.step}: {figures}{best}"]
        case CheckpointSaved():
            size, seconds = units.size(record.num_bytes), units.duration(record.seconds)
            return [f"checkpoint at step {record.step} saved ({size} in {seconds})"]
        case CheckpointRejected():
            return [f"{shown(record.path)} is damaged ({shown(record.reason)}): moved to {shown(record.moved_to)}"]
        case Sampled():
            return [f"sample at step {record.step}: {shown(record.prompt)} -> {shown(record.completion)}"]
        case StageBegan():
            return [f"stage {record.number} of {record.of} from step {record.step} on: {shown(record.words)}"]
        case Warned():
            return lines_of(f"warning: {record.message}")
        case Noted():
            return lines_of(f"note: {record.message}")
        case Answered(num_tokens=number, seconds=seconds):
            return [f"answered at step {record.step}: {number} tokens, stood still for {units.duration(seconds)}"]
        case ControlApplied() | ControlRefused() | MicroBatchChanged():
            return lines_of(_answer(record))
        case Adopted() | Stalled() | Restarting():
            return lines_of(_supervision(record))
        case PushBegan() | Pushed() | PushFailed():
            return lines_of(_push(record))
    return []


def step_lines(record: AnyRecord, state: RunState, logging_steps: int) -> list[str]:
    """The line of a step that is due in a log, `state` being what it led to; 80 columns with the time before it."""
    if not isinstance(record, Step) or not record.applied or not is_due(record, state, logging_steps):
        return []
    rates = [
        f"lr {units.rate(record.learning_rate)}",
        f"grad {format_value(record.grad_norm, 'grad_norm', record.non_finite)}",
    ]
    parts = [
        place(state),
        f"loss {format_value(record.loss, 'loss', record.non_finite)}",
        *(write_measures(record.extras, BESIDE_LOSS) or rates),
        f"{units.count(record.tokens_per_second)} tok/s",
    ]
    if eta := eta_seconds(state):  # none before the second step, 0 after the last
        parts.append(f"ETA {units.duration(eta)}")
    return [" ".join(parts)]


def ending_lines(record: AnyRecord, state: RunState) -> list[str]:
    """The lines of a log for the end of an attempt."""
    match record:
        case RunFinished() | RunStopped():
            return lines_of(f"{phase_word(state.phase)} at {place(state)}: {record.reason}")
        case EngineEnded() if state.ended_by != "supervisor":
            return []  # the engine itself has said it
        case RunFailed() | EngineEnded() if state.message and state.ended_by:
            return lines_of("\n".join(filter(None, (f"{phase_word(state.phase)}: {state.message}", state.hint))))
    return []


def lines_of(text: str) -> list[str]:
    """Foreign text that may have several lines: the first as it is, the others indented below it."""
    first, *continuations = shown(text, newlines=True).splitlines() or [""]
    return [first, *(f"  {line}" for line in continuations)]


APPLIED = {
    "hold": "paused",
    "continue": "continued",
    "park": "parking",
    "checkpoint": "checkpoint asked for",
    "stop": "stopping",
    "abort": "aborting",
    "evaluate": "extra evaluation",
    "sample": "sample asked for",
    "set": "set",
    "pin": "pinned",
    "unpin": "unpinned",
    "delete_checkpoint": "deleted",
}
"""What each verb did, in words; an unknown verb stands for itself."""


def _answer(record: ControlApplied | ControlRefused | MicroBatchChanged) -> str:
    """What became of a control request, or of memory that ran out. Not yet safe to print: it may have several lines."""
    match record:
        case MicroBatchChanged():
            change = f"from {record.old} to {_rows(record.new)}"
            return f"memory ran out in step {record.step} ({shown(record.place)}): micro-batches {change}"
        case ControlRefused():
            return f"{shown(verb_name(record.verb))} refused at step {record.step}: {shown(record.reason)}"
        case ControlApplied():
            action = APPLIED.get(record.verb, shown(record.verb))
            settings = ", ".join(f"{shown(name)} = {value:g}" for name, value in record.settings.items())
            detail = ": ".join(part for part in ("", settings, record.detail) if part)
            return f"{action} at step {record.step}" + (f": {detail}" if detail else "")


def _supervision(record: Adopted | Stalled | Restarting) -> str:
    """Not yet safe to print: an error may have several lines."""
    match record:
        case Adopted():
            return f"a new supervisor watches the engine (process {record.identity.pid})"
        case Stalled():
            seconds_still, limit = units.duration(record.seconds), units.duration(record.limit_seconds)
            return f"{phase_word(record.phase)} stood still for {seconds_still} (limit {limit}): the engine is killed"
        case Restarting(pause_seconds=0.0):
            return f"interrupted at step {record.step} ({record.error}): again when all nodes are here"
        case Restarting():
            again = f"again in {units.duration(record.pause_seconds)} (restart {record.number})"
            return f"crashed at step {record.step} ({record.error}): {again}"


def _push(record: PushBegan | Pushed | PushFailed) -> str:
    """Not yet safe to print: an error may have several lines."""
    match record:
        case PushBegan():
            return f"pushing {record.what} to {record.to}"
        case Pushed():
            how = "verified there" if record.verified else "nothing says whether all of it arrived"
            commit = f", commit {record.commit[:12]}" if record.commit else ""
            size = units.size(record.num_bytes)
            return f"pushed {record.what} to {record.place}: {record.num_files} files, {size}, {how}{commit}"
        case PushFailed():
            return "\n".join(filter(None, (f"push to {record.to} failed: {record.message}", record.hint)))


def _rows(number: int) -> str:
    return f"{number} row" if number == 1 else f"{number} rows"


def _plan(record: RunStarted) -> list[str]:
    epoch, tail = ("a mean epoch", " in a mean epoch") if record.stages else ("an epoch", "")
    lines = [
        f"{shown(record.model)} · {shown(record.method)} · {shown(record.precision)}"
        f" · {units.count(record.trainable_parameters)} of {units.count(record.total_parameters)} parameters trained",
        f"{record.num_train_rows} rows · {units.count(record.num_train_tokens)} tokens"
        f" · {units.count(record.num_target_tokens)} target tokens{tail} · {record.num_eval_rows} rows to evaluate on",
        f"{record.max_steps} steps · {record.steps_per_epoch} {epoch} · {record.effective_batch} sequences a step",
    ]
    if record.resumed_from:
        end = f" · {record.reproducibility}" if record.reproducibility else ""
        lines.append(f"resumed from {shown(record.resumed_from)} at step {record.start_step}{end}")
    if record.reproducibility_reasons and record.reproducibility != "EXACT":
        lines.append("  because " + "; ".join(shown(reason) for reason in record.reproducibility_reasons))
    return lines


def phase_line(record: AnyRecord) -> list[str]:
    """A change of phase, where no progress line shows it; training shows by its steps."""
    if not isinstance(record, PhaseChanged) or record.phase == "training":
        return []
    word = phase_word(record.phase)
    return [f"{word} · {shown(record.detail)}" if record.detail else word]


def history(state: RunState) -> str:
    """The run so far in one line: phase, step, attempt, evaluation, checkpoint."""
    parts = [phase(state), place(state)]
    if state.attempt > 1:
        parts.append(f"attempt {state.attempt}")
    if (last := state.last_evaluation) is not None:
        parts.append(f"evaluation loss {units.quantity(last.loss)} at step {last.step}")
    if (checkpoint := state.newest_checkpoint) is not None:
        parts.append(f"checkpoint at step {checkpoint.step}")
    return " · ".join(parts)


def summary(run: Run, state: RunState, *, learning_rate: float, gives_scores: bool = False) -> list[str]:
    """The last lines about a run that ended well: the result, its losses, how to load it (`gives_scores`: a reward
    model).
    """
    reason = f": {shown(state.reason)}" if state.reason else ""
    at_step = f" at {place(state)}" if state.start_step is not None else ""  # None: it never reached training
    lines = [f"{shown(run.name)} {state.phase}{at_step}{reason}"]
    if state.phase != "finished":
        if (checkpoint := state.newest_checkpoint) is not None:
            lines.append(f"  checkpoint  {shown(str(run.checkpoints / Path(checkpoint.path).name))}")
        command = "the same command" if not has_ended(state) else f"ftui resume {run.name}"
        lines.append(f"  continue    {command}")
        if state.final is None:
            return lines
    lines.append(f"  result      {shown(str(run.final))}")
    if (loss := losses(state, learning_rate)) is not None:
        lines.append(f"  evaluation  {loss}")
        lines += [f"              {text}" for text in measures_before_and_after(state)]
    lines += _samples(state)
    library, auto = LOADERS.get(state.method, LOADERS["full"])
    auto += "ForSequenceClassification" if gives_scores else "ForCausalLM"
    labels = ", num_labels=1" if gives_scores else ""
    lines += ["  use it", f"    from {library} import {auto}"]
    lines += [f"    model = {auto}.from_pretrained({str(run.final)!r}{labels})"]
    return lines


def losses(state: RunState, learning_rate: float) -> str | None:
    """Evaluation loss before and after; `None` where nothing was evaluated."""
    before, after = state.loss_before, state.loss_final
    if after is None:
        return None
    if before is None:
        return f"loss {units.quantity(after)} in final/"
    if before == after and learning_rate == 0:
        return f"loss {units.quantity(after)}, unchanged: the learning rate is 0"
    at = f" (step {state.step_final})" if state.step_final is not None else ""
    return f"loss {units.quantity(before)} at step 0 -> {units.quantity(after)} in final/{at}"


def measures_before_and_after(state: RunState) -> list[str]:
    """`accuracy 0.00 -> 0.94` for each measure of the first evaluation and of that of the final weights."""
    known = (one for one in reversed([*state.bests, *state.evaluations]) if one.step == state.step_final)
    first, last = state.first_evaluation, next(known, None)
    if first is None or last is None:
        return []
    shared = [name for name in OF_EVALUATIONS if name in first.extras and name in last.extras]
    return [
        f"{MEASURES[name].short} {units.figure(first.extras[name])} -> {units.figure(last.extras[name])}"
        for name in shared
    ]


def _samples(state: RunState) -> list[str]:
    """Each question with its answers, before and after."""
    before = {sample.prompt: sample.completion for sample in state.samples_before}
    lines = []
    for sample in state.samples_after:
        lines += [
            f"  question    {shown(sample.prompt)}",
            f"    before    {shown(before[sample.prompt]) if sample.prompt in before else units.MISSING}",
            f"    after     {shown(sample.completion)}",
        ]
    return lines


def lost_reason(state: RunState) -> str:
    """Why a run counts as lost."""
    return ENDED_WHILE_RESTARTING.format(state.restarts[-1].step) if state.restarting else LOST


def failure(run: Run, state: RunState) -> str:
    """Why a run failed or was lost, what to do, and the last lines of an engine that could not say it itself."""
    if state.phase == "lost":
        return complaint(f"{run.name}: {lost_reason(state)}", how_to_continue(state))
    message = state.message
    if (last := state.restarts[-1] if state.restarts else None) and last.attempt == state.attempt - 1:
        times = "once" if last.number == 1 else f"{last.number} times"
        message += f"\nIt had been started again {times}; the crash before, at step {last.step}: {last.error}"
    text = complaint(f"{run.name}: {message}", how_to_continue(state))
    if state.last_lines:
        text += "\nthe engine's last lines:\n" + "\n".join(f"  {shown(line)}" for line in state.last_lines)
    return text
