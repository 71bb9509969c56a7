"""What differs between runs, and how they did beside each other."""

from collections.abc import Callable, Iterable, Mapping, Sequence

import msgspec

from ftui import units
from ftui.errors import UsageError
from ftui.measures import MEASURES, leading_measure
from ftui.reports.measured_evaluations import shared_evaluations
from ftui.reports.run_curves import AXES, AXIS_WORDS, Axis, RunCurves
from ftui.reports.run_record import RunRecord
from ftui.runs import describe
from ftui.runs.events import EvaluationDone
from ftui.runs.state import phase_word
from ftui.text import toml_value

MOST_RUNS = 6
HASH_DIGITS = 12
PARTS = ("profile", "data and base", "machine", "versions")
NOT_COMPARED = {("run", "name")}
FINGERPRINTS = {
    "data": "training rows",
    "evaluation_data": "evaluation rows",
    "tokenizer": "tokenizer",
    "base_model": "base model",
    "adapter": "adapter at the start",
}
"""Of a manifest, in words. That of the profile says nothing that its keys do not."""


class ComparedLine(msgspec.Struct, frozen=True):
    """A line of a table: its name, and a value for each run (`n/a` where it is not known). Not yet safe to print."""

    name: str
    values: list[str]


class RunComparison(msgspec.Struct, frozen=True):
    """Runs beside each other.

    Attributes:
        results: how far each is, its losses, what it took.
        evaluations: a line for each measure of the best evaluation of each.
        measured: by the rows, what `ftui evaluate` has measured of two of them or more.
        equal: the training loss where they are equally far, on each axis that all have.
        differences: by part, what is not the same in all; `num_same`: how many values are.
        warnings: what makes figures of theirs no fair comparison.
    """

    runs: list[str]
    results: list[ComparedLine]
    evaluations: list[ComparedLine]
    measured: dict[str, list[ComparedLine]]
    equal: list[ComparedLine]
    differences: dict[str, list[ComparedLine]]
    num_same: int
    warnings: list[str]


def check_number(num_runs: int) -> None:
    """Raises UsageError: there are fewer than two, or more than six."""
    if num_runs < 2:
        raise UsageError(
            "A comparison takes two runs or more.", hint="ftui compare RUN RUN ...; `ftui runs` lists them."
        )
    if num_runs > MOST_RUNS:
        raise UsageError(f"A comparison takes {MOST_RUNS} runs at most, not {num_runs}.", hint="Name fewer.")


def compare(records: Sequence[RunRecord], curves: Sequence[RunCurves]) -> RunComparison:
    """Two runs or more beside each other. `curves` are theirs, in the same order."""
    values = {part: _values(records, part) for part in PARTS}
    differences = {part: [line for line in lines if len({*line.values}) > 1] for part, lines in values.items()}
    num_differing = sum(map(len, differences.values()))
    return RunComparison(
        runs=[record.run.name for record in records],
        results=list(_results(records)),
        evaluations=_evaluations(records),
        measured={
            title: [ComparedLine(*line) for line in lines]
            for title, lines in shared_evaluations([record.run for record in records])
        },
        equal=list(_equal(curves)),
        differences={part: lines for part, lines in differences.items() if lines},
        num_same=sum(map(len, values.values())) - num_differing,
        warnings=list(_warnings(records)),
    )


def _values(records: Sequence[RunRecord], part: str) -> list[ComparedLine]:
    """Every value of a part, in its order."""
    match part:
        case "profile":
            keys = [key for record in records for key in record.profile if key not in NOT_COMPARED]
            return [
                ComparedLine(
                    ".".join(key),
                    [toml_value(record.profile[key]) if key in record.profile else units.MISSING for record in records],
                )
                for key in dict.fromkeys(keys)
            ]
        case "data and base":
            found = [record.manifest.fingerprints if record.manifest else {} for record in records]
            there = [name for name in FINGERPRINTS if any(name in prints for prints in found)]
            return [
                ComparedLine(FINGERPRINTS[name], [prints.get(name, units.MISSING)[:HASH_DIGITS] for prints in found])
                for name in there
            ]
        case "machine":
            return list(_by_name([_machine(record) for record in records]))
        case _:
            return list(_by_name([record.opened.versions if record.opened else {} for record in records]))


def _machine(record: RunRecord) -> dict[str, str]:
    opened = record.opened
    if opened is None:
        return {}
    return {
        "card": opened.device,
        "driver": opened.driver or "none",
        "processes": str(opened.world_size),
        "threads": str(opened.num_threads),
    }


def _by_name(tables: Sequence[Mapping[str, str]]) -> Iterable[ComparedLine]:
    for name in dict.fromkeys(name for table in tables for name in table):
        yield ComparedLine(name, [table.get(name, units.MISSING) for table in tables])


def _results(records: Sequence[RunRecord]) -> Iterable[ComparedLine]:
    figures: dict[str, Callable[[RunRecord], str]] = {
        "phase": lambda record: phase_word(record.state.phase),
        "step": lambda record: describe.place(record.state).removeprefix("step "),
        "epoch": lambda record: units.quantity(record.state.epoch, 2),
        "train loss": lambda record: describe.loss_figures(record.state)[0],
        "eval loss": lambda record: describe.loss_figures(record.state)[1],
        "best eval loss": lambda record: _at_step(best_evaluation(record)),
        "tokens/s": lambda record: units.count(record.state.tokens_per_second),
        "parameters trained": lambda record: units.count(record.plan.trainable_parameters if record.plan else None),
        "time": lambda record: units.duration(record.seconds) if record.attempts else units.MISSING,
        "money": lambda record: units.money(record.dollars),
    }
    for name, figure in figures.items():
        yield ComparedLine(name, [figure(record) for record in records])


def best_evaluation(record: RunRecord) -> EvaluationDone | None:
    """The evaluation that its metric holds for the best; else the only one there is, of step 0."""
    best = record.state.best_evaluation
    found = [one for one in record.evaluations if best is not None and one.step == best.step]
    return found[-1] if found else (record.evaluations[-1] if record.evaluations else None)


def _at_step(evaluation: EvaluationDone | None) -> str:
    return (
        units.MISSING if evaluation is None else f"{units.quantity(leading_measure(evaluation)[1])} @ {evaluation.step}"
    )


def _evaluations(records: Sequence[RunRecord]) -> list[ComparedLine]:
    """The best evaluations of all, a line for each measure that one of them has."""
    best = [best_evaluation(record) for record in records]
    if not any(best):
        return []
    measured = [{} if one is None else {"loss": one.loss, **one.extras} for one in best]
    names = [name for name in MEASURES if any(name in values for values in measured)]
    lines = [ComparedLine("step", [units.MISSING if one is None else str(one.step) for one in best])]
    for name in names:
        write = units.quantity if name == "loss" else units.figure
        lines.append(ComparedLine(MEASURES[name].words, [write(values.get(name)) for values in measured]))
    return lines


def _equal(curves: Sequence[RunCurves]) -> Iterable[ComparedLine]:
    """The smoothed training loss where the run that is least far on an axis ends."""
    for axis in AXES:
        ends = [curve.end(axis) for curve in curves]
        if None in ends:
            continue
        shared = min(end for end in ends if end is not None)
        if shared > 0:
            values = [units.quantity(curve.value_at("loss", axis, shared)) for curve in curves]
            yield ComparedLine(f"after {place_words(axis, shared)}", values)


def place_words(axis: Axis, at: float) -> str:
    """A place on an axis: `120 steps`, `2.50 epochs`, `1.20 M target tokens`, `3m 05s`, `$1.20`."""
    match axis:
        case "step":
            return f"{at:,.0f} steps"
        case "epoch":
            return f"{at:.2f} epochs"
        case "time":
            return units.duration(at)
        case "money":
            return units.money(at)
    return f"{units.count(at)} {AXIS_WORDS[axis]}"


def _warnings(records: Sequence[RunRecord]) -> Iterable[str]:
    prints = [record.manifest.fingerprints if record.manifest else {} for record in records]
    evaluated = [(r.run.name, p.get("evaluation_data")) for r, p in zip(records, prints, strict=True) if r.evaluations]
    if len({rows for _, rows in evaluated if rows is not None}) > 1:
        yield "The evaluation rows differ: evaluation losses of these runs cannot be compared."
    elif len(evaluated) > 1 and (unknown := ", ".join(name for name, rows in evaluated if rows is None)):
        yield f"Whether the evaluation rows are the same is not known: no checkpoint of {unknown} says it."
    if len({hashes["tokenizer"] for hashes in prints if "tokenizer" in hashes}) > 1:
        yield "The tokenizers differ: a loss per token is another measure for each."
    stages = {record.profile.get(("run", "stage")) for record in records if record.profile}
    if len(stages) > 1:
        yield f"The stages differ ({', '.join(sorted(map(str, stages)))}): so does what their losses mean."
    for record in records:
        if record.profile_problem:
            yield f"{record.run.name}: its profile has keys that this ftui does not take: {record.profile_problem}"


def tables(comparison: RunComparison) -> Iterable[tuple[str, list[ComparedLine]]]:
    """Every table with its title, as it is printed and drawn."""
    yield "results", comparison.results
    if comparison.evaluations:
        yield "best evaluation", comparison.evaluations
    yield from comparison.measured.items()
    if comparison.equal:
        yield "train loss, smoothed", comparison.equal
    for part, lines in comparison.differences.items():
        yield f"differs: {part}", lines
