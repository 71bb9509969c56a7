"""What a profile will take on a card: the modules of `ftui.estimate` put together, for the command and for the form."""

import json
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from pathlib import Path
from typing import Any

from ftui import units
from ftui.dataset.row_counts import RowCounts
from ftui.errors import FtuiError, ModelError, UnavailableError
from ftui.estimate import closed_form, disk, fit, levers, timing
from ftui.estimate.guess_rows import guess_rows
from ftui.estimate.measurements import ProbeRecord, correct_memory, find_probe, seconds_by
from ftui.estimate.placement.scoring_model import REFERENCE, add_scoring_model, scoring_bytes
from ftui.estimate.result import FIT, Duration, Estimate, MeasuredFirst, Measuring, Memory, usable, verdict
from ftui.estimate.rollouts.evaluated_answers import answered_rows
from ftui.estimate.rollouts.rollout_cost import (
    count_rollouts,
    kept_bytes,
    measured_tokens,
    rollout_seconds,
    rollout_words,
)
from ftui.estimate.setup import Parallel, TrainingSetup, build_setup
from ftui.estimate.states import FP32
from ftui.estimate.timing import num_checkpoints, num_evaluations
from ftui.hardware.detect import MachineRoom
from ftui.hardware.devices import Card, price_of
from ftui.models.config_reader import ModelShape, read_shape, refusal_of, shape_from_scratch
from ftui.models.known import known_config, nearest_models
from ftui.models.local import find_config
from ftui.profile.origins import Key
from ftui.profile.schema import BudgetSection, Profile
from ftui.profile.sections.curriculum import needs_losses
from ftui.profile.sections.preference import REFERENCE_STAGES


@dataclass(frozen=True)
class Known:
    """What is known beside the profile: the rows' counts, a simulation of its memory, all earlier probes.

    `counting_problem` and `simulation_problem` say why there is none although it was tried. `parallel` is how several
    processes share the model: ftui's own way, or what another would make of it. `machine`: the one that has the card,
    where that is known.
    """

    counts: RowCounts | None = None
    simulated: Memory | None = None
    probes: Sequence[ProbeRecord] = ()
    parallel: Parallel = "ddp"
    machine: MachineRoom | None = None
    counting_problem: FtuiError | None = None
    simulation_problem: FtuiError | None = None

    @property
    def refusal(self) -> FtuiError | None:
        """Why a run would be refused because of its rows. Files that cannot be fetched for now are no reason."""
        return None if isinstance(self.counting_problem, UnavailableError) else self.counting_problem


NOTHING = Known()


def estimate(profile: Profile, card: Card, known: Known = NOTHING) -> Estimate:
    """All that can be told without running it. A model that is not known here has no memory and no verdict."""
    setup = setup_for(profile, card, known)
    warnings = () if known.counts is None else tuple(known.counts.warnings)
    if isinstance(setup, str):
        return Estimate(
            card=card.name, num_cards=profile.hardware.num_processes, verdict="unknown", memory=None,
            duration=Duration(_num_steps(profile, known), None, None, None, None, 0.0, "closed form"),
            ram=None, disk=None, num_parameters=None, num_trainable=None, notes=(setup,), warnings=warnings,
        )  # fmt: skip
    memory = memory_of(setup, known)
    if known.counts is None and known.refusal is None:
        known = replace(known, counts=guess_rows(profile, setup.shape.vocab_size))
    time = timing_of(profile, setup, known)
    measuring = measuring_of(profile, setup, known, time)
    impossible = "; ".join([*(lever.reason for lever in levers.list_needed(setup)), *_lacking_memory(setup)])
    price = price_of(card, profile.hardware.price_per_hour)
    notes = (*_notes(profile, setup, known, time, price), *_budget_notes(profile.budget, time, price))
    return Estimate(
        card=card.name,
        num_cards=setup.num_processes,
        verdict="no" if impossible else verdict(memory, setup.card),
        memory=memory,
        duration=time,
        ram=memory.process * setup.num_processes if card.kind == "cpu" else closed_form.host_memory(setup),
        disk=_disk_of(profile, setup, known, time.num_steps) + ((measuring and measuring.num_bytes) or 0),
        num_parameters=setup.shape.num_parameters,
        num_trainable=closed_form.num_trainable(setup),
        notes=notes,
        impossible=impossible,
        rows=_rows_words(setup, known.counts),
        warnings=warnings,
        measuring=measuring,
    )


def _disk_of(profile: Profile, setup: TrainingSetup, known: Known, num_steps: int | None) -> int:
    """Bytes of checkpoints, the result, and the row ledger where the run keeps one."""
    needed = disk.run_bytes(setup, profile.checkpoint.save_total_limit)
    if profile.samples_answers:
        return needed + kept_bytes(profile, setup, num_steps)
    counts, is_kept = known.counts or RowCounts(), profile.log.row_losses
    ledger = disk.ledger_bytes(setup, num_steps, counts.num_sequences, counts.steps_per_epoch)
    return needed + ledger * is_kept


def _lacking_memory(setup: TrainingSetup) -> list[str]:
    if not closed_form.lacks_host_memory(setup):
        return []
    needed, room = units.size(closed_form.host_memory(setup)), units.size(setup.host_memory or 0)
    return [f"what it offloads or keeps there needs {needed} of host memory, and a run may use {room} here"]


def setup_for(profile: Profile, card: Card, known: Known = NOTHING) -> TrainingSetup | str:
    """The run as the closed form sees it, or why its model is not known."""
    shape = shape_for(profile)
    if isinstance(shape, str):
        return shape
    counts = known.counts or RowCounts()
    sharing = profile.hardware.num_processes
    if card.kind == "cpu" and sharing > 1:  # they share one machine's memory, as cards do not
        card = replace(card, memory=card.memory // sharing)
    setup = build_setup(
        profile, shape, card, longest=counts.longest, longest_example=counts.longest_example,
        rows_are_cut=bool(counts.num_cut),
    )  # fmt: skip
    return replace(
        setup,
        parallel=known.parallel,
        num_cards=1 if known.machine is None else known.machine.num_cards,
        host_memory=None if known.machine is None else known.machine.memory,
        micro_batch=min(setup.micro_batch, counts.num_sequences or setup.micro_batch),  # there are no more rows
        eval_batch=min(setup.eval_batch, counts.num_eval_rows or setup.eval_batch),
        answered=answered_rows(profile, setup, counts),
        scoring=scoring_bytes(profile.rewards, setup.compute, _shape_of),
    )


def memory_of(setup: TrainingSetup, known: Known = NOTHING) -> Memory:
    """The best there is: measured, else simulated, else in closed form."""
    closed = closed_form.memory(setup)
    simulated = known.simulated
    if simulated is not None and (setup.answered or setup.sampled) and closed.process > simulated.process:
        simulated = None  # steps and losses were simulated, answers were not
    told, closed = (add_scoring_model(one, setup.scoring or 0) for one in (simulated or closed, closed))
    if setup.card.kind == "cpu":  # elsewhere it is in host memory
        kept = closed_form.reference_bytes(setup)
        told, closed = (add_scoring_model(one, kept, REFERENCE) for one in (told, closed))
    return correct_memory(told, setup, closed, known.probes)


def timing_of(profile: Profile, setup: TrainingSetup, known: Known) -> Duration:
    """Time and money; from the speed of an earlier probe where there is one: of the same setting, else of another one
    of that model, card and method."""
    probe = find_probe(setup, known.probes) if setup.parallel == "ddp" else None
    per_step = tokens_per_step(setup, known)
    seconds = None if probe is None else seconds_by(*probe, setup, per_step)
    num_steps, counts = _num_steps(profile, known), known.counts
    saves, times, evaluated = 1, 0, 0.0
    if num_steps is not None and counts is not None and counts.steps_per_epoch:
        saves = num_checkpoints(profile.checkpoint, num_steps, counts.steps_per_epoch)
        times = num_evaluations(profile.eval, num_steps, counts.steps_per_epoch)
        evaluated = times * setup.num_processes * _held_out_tokens(profile, counts)  # one process evaluates
        if profile.preference.needs_divergence(profile.run.stage):  # mismatched answers before each step
            evaluated += num_steps * (per_step or 0.0)
        evaluated += _measured_first(profile, counts, num_steps)[1]
    num_rollouts = count_rollouts(profile, num_steps)
    evaluated += measured_tokens(profile, num_rollouts, per_step)
    duration = timing.duration(
        setup,
        num_steps=num_steps,
        tokens_per_step=per_step,
        measured_step_seconds=seconds,
        is_elsewhere=probe is not None and not probe[1],
        price_per_hour=price_of(setup.card, profile.hardware.price_per_hour),
        evaluated_tokens=evaluated,
        num_evaluations=times,
        num_checkpoints=saves,
        num_rollouts=num_rollouts,
        rollout_seconds=None if probe is None or not probe[1] else rollout_seconds(probe[0]),
    )
    if counts is None or counts.bytes_per_token is None:
        return duration
    least, usual, most = counts.bytes_per_token
    return replace(duration, spread=math.hypot(duration.spread, (most - least) / 2 / usual))


def measuring_of(profile: Profile, setup: TrainingSetup, known: Known, time: Duration) -> Measuring | None:
    """What is measured before the first step; `time` is that of the whole run."""
    counts, speed = known.counts, time.tokens_per_second
    if counts is None or time.num_steps is None or not counts.num_train_tokens:
        return None
    what, num_tokens = _measured_first(profile, counts, time.num_steps)
    if what is None:
        return None
    price = price_of(setup.card, profile.hardware.price_per_hour)
    seconds = None if speed is None else timing.forward_seconds(setup, num_tokens, speed)
    numbers: float | None = counts.num_sequences
    if what == "reference":
        targets = counts.num_target_tokens
        numbers = None if targets is None else num_tokens * targets / counts.num_train_tokens
    return Measuring(
        what,
        seconds,
        None if seconds is None or price is None else seconds * price * setup.num_processes / 3600,
        None if numbers is None else FP32 * round(numbers),
    )


def _measured_first(profile: Profile, counts: RowCounts, num_steps: int) -> tuple[MeasuredFirst | None, float]:
    """What the model is asked before the first step (engine/training/initial_model.py), and of how many tokens."""
    num_tokens = float(counts.num_train_tokens or 0)
    if needs_losses(profile.curriculum, profile.train.train_sampling_strategy):
        return "losses", num_tokens
    if profile.run.stage not in REFERENCE_STAGES:
        return None, 0.0
    reached = min(1.0, num_steps / counts.steps_per_epoch) if counts.steps_per_epoch else 1.0
    twice = 2 if profile.preference.needs_divergence(profile.run.stage) else 1
    return "reference", twice * reached * num_tokens + _held_out_tokens(profile, counts)


def _held_out_tokens(profile: Profile, counts: RowCounts) -> float:
    """Of an evaluation. Held-out rows, and answers on other rows' prompts, are taken to be as long as the others."""
    if profile.samples_answers:  # nothing but answers
        return 0.0
    twice = 2 if profile.preference.needs_divergence(profile.run.stage) else 1
    return twice * (counts.num_eval_rows or 0) * (counts.num_train_tokens or 0) / (counts.num_train_rows or 1)


def _rows_words(setup: TrainingSetup, counts: RowCounts | None) -> str:
    if counts is None:
        return f"all rows taken to be {setup.length} tokens long"
    if counts.longest is None:
        return f"rows not read: {setup.length} tokens each for the memory, the files' size for the time"
    if counts.bytes_per_token is None:
        return ""
    least, usual, most = counts.bytes_per_token
    return f"rows counted without the tokenizer, {usual:g} bytes a token ({least:g} to {most:g})"


def suggestions(
    setup: TrainingSetup, known: Known = NOTHING, simulate: Callable[[Mapping[Key, Any]], Memory | None] | None = None
) -> list[fit.Change]:
    """The cheapest changes that make it fit; where it fits, what would use the card better.

    Args:
        simulate: the memory of the profile with these values in it, `None` where a run of it would be refused. Without
            it all that is told is in closed form.
    """

    def guess(changed: TrainingSetup) -> Memory:
        return memory_of(changed, replace(known, simulated=None))

    def confirm(changed: TrainingSetup, values: Mapping[Key, Any]) -> Memory | None:
        assert simulate is not None
        simulated = simulate(values)
        return None if simulated is None else memory_of(changed, replace(known, simulated=simulated))

    now, tokens = memory_of(setup, known), tokens_per_step(setup, known)
    has_room = not levers.list_needed(setup) and verdict(now, setup.card) in FIT
    is_large = fit.likely_need(now) > usable(setup.card)  # else only doubts are left, which a change is to end
    need = fit.likely_need if is_large else fit.sure_need
    judge = fit.Judge(guess, None if simulate is None else confirm, need=need)
    if judge.is_simulating and known.simulated is not None:
        judge.compare(setup, now)
    if levers.list_needed(setup):
        return [_tell_loss(change, known.counts) for change in fit.find_possible(setup, judge, tokens)]
    if not has_room:
        return [_tell_loss(change, known.counts) for change in fit.find_cheapest(setup, judge, tokens)]
    changes = fit.largest_micro_batch(setup, judge, tokens), fit.longest_rows(setup, judge)
    return [change for change in changes if change is not None and change.memory not in (now, guess(setup))]


def _tell_loss(change: fit.Change, counts: RowCounts | None) -> fit.Change:
    """With how much of the rows is lost, where it cuts them."""
    length = change.values.get(levers.MAX_LENGTH)
    cut = next((cut for cut in counts.cuts if cut.length == length), None) if counts is not None else None
    if counts is None or cut is None or not counts.num_train_rows or not counts.num_train_tokens:
        return change
    rows = f"{cut.num_rows:,} of {counts.num_train_rows:,} rows are longer"
    tokens = f"{min(1.0, cut.num_tokens / counts.num_train_tokens):.0%} of all tokens are lost"
    return replace(change, reasons=(*change.reasons, f"{rows}: {tokens if cut.num_tokens else 'they become several'}"))


def shape_for(profile: Profile) -> ModelShape | str:
    """The architecture of the profile's model, or in words why it is not known."""
    section = profile.model
    if section.from_scratch is not None:
        return shape_from_scratch(section.from_scratch) or "No model has the sizes of model.from_scratch."
    return _shape_of(str(section.name_or_path), section.revision)


def _shape_of(name: str, revision: str | None) -> ModelShape | str:
    try:
        path = find_config(name, revision)
    except ModelError as error:
        return error.message
    if path is not None:
        return _shape_at(path, path.stat().st_mtime_ns)
    config = known_config(name)
    if config is not None and (shape := read_shape(config)) is not None:
        return shape
    hint = nearest_models(name)
    if config is not None and (refusal := refusal_of(config)) is not None:
        return f"{name} {refusal}. {hint}".rstrip()
    why = "it is not on this machine, and was not fetched from the hub"
    return f"The architecture of {name} is not known: {why}. {hint}".rstrip()


@lru_cache(maxsize=32)
def _shape_at(path: Path, _changed: int) -> ModelShape | str:
    try:
        config = json.loads(path.read_bytes())
    except (OSError, ValueError, RecursionError) as error:
        return f"{path} cannot be read: {error}."
    config = config if isinstance(config, dict) else {}
    shape = read_shape(config)
    if shape is None:
        if (refusal := refusal_of(config)) is not None:
            return f"{path.parent} {refusal}."
        kind = config.get("model_type")
        return f"Models of type {kind} are not known to the estimate; `ftui estimate --probe` measures them."
    return shape


def tokens_per_step(setup: TrainingSetup, known: Known) -> float:
    """Real tokens of an average step; without the rows' counts, as if every row were as long as the longest."""
    counts = known.counts
    if counts is not None and counts.num_train_tokens and counts.steps_per_epoch:
        return counts.num_train_tokens / counts.steps_per_epoch
    return float(setup.num_tokens * setup.accumulation * setup.num_processes)


def _num_steps(profile: Profile, known: Known) -> int | None:
    counts = known.counts
    return counts.max_steps if counts is not None and counts.max_steps is not None else profile.train.max_steps


def _notes(profile: Profile, setup: TrainingSetup, known: Known, time: Duration, price: float | None) -> list[str]:
    notes = []
    if known.counting_problem is not None:
        how = "with the tokenizer" if known.counts is not None else ""
        notes.append(f"The rows could not be counted{how and f' {how}'}: {known.counting_problem.message}")
    if time.step_seconds is None:
        notes.append(f"How fast {setup.card.title} computes in {setup.precision} is not known before a probe.")
    elif price is None and setup.card.kind == "cuda":
        notes.append(f"The price of {setup.card.name} is not known: set hardware.price_per_hour.")
    if setup.scoring is None:
        notes.append("The memory of the reward model is not known: its architecture is not.")
    if setup.answered is not None and time.tokens_per_second is not None:
        seconds = units.duration(timing.answering_seconds(setup, time.tokens_per_second))
        each = f"{setup.answered.num_rows} rows with up to {setup.answered.new_tokens} tokens"
        notes.append(f"Each evaluation answers {each}, in up to {seconds}.")
    if setup.sampled is not None:
        probe = find_probe(setup, known.probes)
        notes.append(rollout_words(profile, setup, time, probe[0].rollout if probe and probe[1] else {}))
    return notes


def budget_forecast(profile: Profile, card: Card, known: Known = NOTHING) -> list[str]:
    """Where the estimate of the run exceeds its budget."""
    if profile.budget == BudgetSection():
        return []
    time, price = estimate(profile, card, known).duration, price_of(card, profile.hardware.price_per_hour)
    return list(_budget_notes(profile.budget, time, price))


def _budget_notes(budget: BudgetSection, time: Duration, price: float | None) -> Iterator[str]:
    """A sentence for each limit that the estimate of the whole run exceeds, or that has no price to go by.

    `price`: dollars an hour for one card.
    """
    if budget.max_money is not None and price is None:
        yield "budget.max_money needs a price: set hardware.price_per_hour, or the run is refused."
    if budget.max_money is not None and time.dollars is not None and time.dollars > budget.max_money:
        share = budget.max_money / time.dollars
        yield (
            f"The estimate of {units.money(time.dollars)} exceeds budget.max_money = {units.money(budget.max_money)}: "
            f"the run would be parked after about {share:.0%} of it."
        )
    if budget.max_hours is not None and time.total_seconds is not None and time.total_seconds > budget.max_hours * 3600:
        share = budget.max_hours * 3600 / time.total_seconds
        yield (
            f"The estimate of {units.duration(time.total_seconds)} exceeds budget.max_hours = {budget.max_hours:g}: "
            f"the run would be parked after about {share:.0%} of it."
        )
