"""A run's state in words: pure functions, all foreign text through `shown`."""

from collections.abc import Iterable, Mapping

from ftui import units
from ftui.measures import MEASURES, leading_measure
from ftui.runs.events import EvaluationDone
from ftui.runs.records.rollout_records import RolloutMade
from ftui.runs.state import (
    Evaluation,
    RunState,
    disk_trouble,
    eta_seconds,
    has_ended,
    phase_word,
    read_losses,
)
from ftui.text import shown


def format_value(value: float | None, name: str, non_finite: list[str]) -> str:
    """A number of a record: its digits, `not finite`, or `n/a`."""
    return "not finite" if value is None and name in non_finite else units.quantity(value)


BESIDE_LOSS = ("rewards/accuracies", "rewards/margins", "reward", "completions/mean_length", "kl")
"""Measures that stand beside the loss of each step ..."""
OF_ROLLOUTS = ("entropy", "completions/clipped_ratio")
"""... beside those of a step on answers of the model, where there is room ..."""
OF_EVALUATIONS = ("mean_token_accuracy", "perplexity", *BESIDE_LOSS, "exact_match", "rouge_l", "json_valid", "stopped")
"""... and of an evaluation."""


def write_measures(extras: Mapping[str, float | None], names: Iterable[str]) -> list[str]:
    """`accuracy 0.94`, `margin 1.20`: those of the measures that there are."""
    return [f"{MEASURES[name].short} {units.figure(extras[name])}" for name in names if name in extras]


def evaluation_words(evaluation: Evaluation | EvaluationDone) -> str:
    """`loss 1.23`, or `reward 0.41` of one that has rewards; a loss that is none was not finite."""
    name, value = leading_measure(evaluation)
    if name != "loss":
        return f"{MEASURES[name].short} {units.figure(value)}"
    not_finite = evaluation.non_finite if isinstance(evaluation, EvaluationDone) else ["loss"]
    return f"loss {format_value(value, 'loss', not_finite)}"


BETWEEN_STEPS = ("generating", "scoring", "evaluating", "saving", "held")
"""Phases of a run in training in which it takes no step."""


def loss_figures(state: RunState) -> tuple[str, str]:
    """The training and the evaluation loss, see `read_losses`."""
    losses = read_losses(state)
    return format_value(losses.train, "train", losses.non_finite), format_value(losses.eval, "eval", losses.non_finite)


def place(state: RunState) -> str:
    """The step as `step 120/400`, or `step 120` while the plan is not known."""
    return f"step {state.step}/{state.max_steps}" if state.max_steps is not None else f"step {state.step}"


def progress(state: RunState) -> str:
    """The line that shows where a run is."""
    return step_line(state) if state.phase in ("training", *BETWEEN_STEPS) else phase(state)


def step_line(state: RunState) -> str:
    """The step, with what this attempt has measured."""
    parts = [place(state)]
    if state.step_time is not None:
        parts.append(f"train loss {loss_figures(state)[0]}")
        parts += write_measures(state.extras, (*BESIDE_LOSS, *(OF_ROLLOUTS if "reward" in state.extras else ())))
        parts.append(f"{units.count(state.tokens_per_second)} tokens/s")
    if state.memory is not None:
        parts.append(units.size(state.memory))
    if state.phase in BETWEEN_STEPS:
        parts.append(phase(state))
    shows_eta = state.phase not in ("evaluating", "saving", "held")
    if shows_eta and (eta := eta_seconds(state)):  # none before the first step, 0 after the last
        parts.append(f"ETA {units.duration(eta)}")
    return " · ".join(parts)


def phase(state: RunState) -> str:
    """The phase with its detail, in words."""
    if trouble := disk_trouble(state):
        return f"parked · {trouble}"
    word = phase_word(state.phase)
    if state.machine_stop is not None and state.machine_stop.phase in ("planned", "waits"):
        return f"{word} · {shown(state.machine_stop.words())}"
    if has_ended(state) and state.pushes:
        return f"{word} · {shown(state.pushes[-1].words)}"
    return f"{word} · {shown(state.detail)}" if state.detail else word


def micro_batch(state: RunState) -> str | None:
    """The size of the micro-batches, where running out of memory changed it; else `None`."""
    if state.micro_batch is None:
        return None
    return f"{count_rows(state.micro_batch)} from step {state.micro_batch_step} on (memory ran out)"


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


def history(state: RunState) -> str:
    """The run so far in one line: phase, step, attempt, evaluation, checkpoint."""
    parts = [phase(state), place(state)]
    if state.attempt > 1:
        parts.append(f"attempt {state.attempt}")
    if (last := state.last_evaluation) is not None:
        parts.append(f"evaluation {evaluation_words(last)} at step {last.step}")
    if (checkpoint := state.newest_checkpoint) is not None:
        parts.append(f"checkpoint at step {checkpoint.step}")
    return " · ".join(parts)


def count_rows(number: int) -> str:
    """`1 row`, `4 rows`."""
    return f"{number} row" if number == 1 else f"{number} rows"


def describe_rollout(rollout: RolloutMade) -> str:
    """`64 answers · 8192 tokens in 14 s (580/s) · scored in 0.4 s · reward 0.31 · 3 groups left out`."""
    parts = [f"{rollout.num_answers} answers", f"{units.count(rollout.num_tokens)} tokens"]
    if seconds := rollout.generation_seconds:
        parts[-1] += f" in {units.duration(seconds)} ({units.count(rollout.num_tokens / seconds)}/s)"
    scored = f"scored in {units.duration(rollout.scoring_seconds)}" if rollout.scoring_seconds else "made before"
    left = rollout.num_left_out
    left_out = [f"{left} group{'' if left == 1 else 's'} left out"] if left else []
    return " · ".join([*parts, scored, f"reward {units.figure(rollout.reward)}", *left_out])
