"""What a run has come to, once it has ended: its result, its losses and how to load it, or why it failed."""

from pathlib import Path

from ftui import units
from ftui.measures import MEASURES
from ftui.runs.describe import OF_EVALUATIONS, place
from ftui.runs.records.spending import continue_command
from ftui.runs.run_folder import Run
from ftui.runs.state import RunState, has_ended, how_to_continue
from ftui.text import complaint, shown

LOST = "The engine and its supervisor ended without writing why (the pod was restarted, or both were killed)."
ENDED_WHILE_RESTARTING = "It crashed at step {}, and its supervisor was ended before it could start it again."

LOADERS = {"lora": ("peft", "AutoPeftModel"), "full": ("transformers", "AutoModel")}
LOADERS |= {"qlora": LOADERS["lora"], "freeze": LOADERS["full"]}


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
        command = continue_command(shown(run.name), state.spending) or command
        lines.append(f"  continue    {command}")
        if state.final is None:
            return lines
    lines.append(f"  result      {shown(str(run.final))}")
    loss, measures = losses(state, learning_rate), measures_before_and_after(state)
    texts = [*([] if loss is None else [loss]), *measures]
    lines += [f"  {'evaluation' if not number else '':<10}  {text}" for number, text in enumerate(texts)]
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
