"""What the report of a run says: its facts in words, from its record. The template gives them their places."""

import time
from collections.abc import Iterator, Sequence

import msgspec

from ftui import units
from ftui.dataset.report import Report
from ftui.dataset.report_text import describe_fix, gravity, sort_findings, totals
from ftui.measures import MEASURES
from ftui.reports.charts import STEP_MEASURES, Chart, make_chart, make_line, measure_words
from ftui.reports.html_page import Link, make_page
from ftui.reports.run_curves import Axis, RunCurves
from ftui.reports.run_differences import FINGERPRINTS, best_evaluation
from ftui.reports.run_record import RunMessage, RunRecord
from ftui.runs import describe
from ftui.runs.checkpoint_index import describe_entry
from ftui.runs.records import result_lines
from ftui.runs.records.spending import basis_words
from ftui.runs.state import Alarm, alarm_name, how_to_continue
from ftui.system.files import read_plain

MOST_CHARTS = 16
TONES = {"finished": "good", "failed": "bad", "lost": "bad", "parked": "warn", "held": "warn"}
FINDING_TONES = {"error": "bad", "warning": "warn", "note": "muted"}
ALARM_TONES = {"red": "bad", "amber": "warn"}

Fact = tuple[str, str]


class SamplePair(msgspec.Struct, frozen=True):
    """A prompt, and the answers before and after training."""

    prompt: str
    before: str
    after: str


class FindingText(msgspec.Struct, frozen=True):
    """A finding of the report on the rows."""

    tone: str
    title: str
    words: str


class RunPage(msgspec.Struct, frozen=True):
    """The texts of a report, none of them made safe yet."""

    standing: str
    tone: str
    trouble: list[str]
    facts: list[Fact]
    evaluation_head: list[str]
    evaluations: list[list[str]]
    checkpoints: list[list[str]]
    load: str
    samples: list[SamplePair]
    alarms: list[FindingText]
    messages: list[RunMessage]
    rows: list[Fact]
    findings: list[FindingText]
    versions: list[Fact]
    profile: str


def report_page(
    record: RunRecord, curves: RunCurves, *, report: Report | None = None, axis: Axis = "step",
    links: Sequence[Link] = (), refresh_seconds: int = 0,
) -> str:  # fmt: skip
    """The report of a run as a page. `report`: on its rows, where somebody has looked at them."""
    return make_page(
        "run.html.jinja", record.run.name, run_charts(record, curves, axis), links=links,
        refresh_seconds=refresh_seconds, page=describe_run(record, report),
    )  # fmt: skip


def run_charts(record: RunRecord, curves: RunCurves, axis: Axis = "step") -> list[Chart]:
    """A chart for each measure that the steps have, the loss first."""
    names = curves.measures()
    known = [name for name in ("loss", *MEASURES, *STEP_MEASURES) if name in names]
    others = [name for name in names if name not in known]
    charts = [
        make_chart(measure_words(name), [make_line(record, curves, name, axis)], axis, name)
        for name in list(dict.fromkeys([*known, *others]))[:MOST_CHARTS]
    ]
    return [chart for chart in charts if chart is not None]


def describe_run(record: RunRecord, report: Report | None = None) -> RunPage:
    """All that the report says."""
    state = record.state
    names = [name for name in MEASURES if name != "loss" and any(name in one.extras for one in record.evaluations)]
    texts = [(state.message, how_to_continue(state))] if state.message or state.phase == "lost" else []
    return RunPage(
        standing=f"{describe.phase(state)} at {describe.place(state)}" + (f": {state.reason}" if state.reason else ""),
        tone=TONES.get(state.phase, "muted"),
        trouble=[text for pair in texts for text in pair if text] + state.last_lines,
        facts=list(_facts(record)),
        evaluation_head=["step", "epoch", "loss", *(MEASURES[name].words for name in names), ""],
        evaluations=[
            [
                f"{one.step:,}", units.quantity(one.epoch, 2), describe.format_value(one.loss, "loss", one.non_finite),
                *(units.figure(one.extras.get(name)) for name in names),
                "best so far" if one.best else "extra" if one.requested else "",
            ]
            for one in record.evaluations
        ],
        checkpoints=[
            [
                entry.name, ", ".join(entry.kinds), units.quantity(entry.eval_loss), units.size(entry.size),
                describe_entry(entry),
            ]
            for entry in record.checkpoints
        ],
        load=_how_to_load(record),
        samples=_samples(record),
        alarms=[
            FindingText(ALARM_TONES[one.level], f"{alarm_name(one)} at step {one.step}", alarm_words(one))
            for one in state.alarms
        ],
        messages=record.messages,
        rows=_rows(record, report),
        findings=_findings(report),
        versions=list(_versions(record)),
        profile=_profile_text(record),
    )  # fmt: skip


def alarm_words(alarm: Alarm) -> str:
    """What was seen, and what to do about it."""
    return " ".join(text for text in (alarm.evidence, alarm.suggestion) if text)


def _facts(record: RunRecord) -> Iterator[Fact]:
    state, plan, opened = record.state, record.plan, record.opened
    yield "stage", str(record.profile.get(("run", "stage"), units.MISSING))
    yield "model", " · ".join(x for x in (state.model, state.method, state.precision) if x) or units.MISSING
    if plan is not None:
        yield (
            "parameters trained",
            f"{units.count(plan.trainable_parameters)} of {units.count(plan.total_parameters)}",
        )
    yield "step", describe.place(state).removeprefix("step ")
    yield "epoch", units.quantity(state.epoch, 2)
    yield "train loss", describe.loss_figures(state)[0]
    yield "eval loss", describe.loss_figures(state)[1]
    if (best := best_evaluation(record)) is not None:
        yield "best evaluation", f"{describe.evaluation_words(best).removeprefix('loss ')} at step {best.step:,}"
    yield "tokens/s", units.count(state.tokens_per_second)
    yield "memory", units.size(state.memory)
    if opened is not None:
        several = f", {opened.world_size} processes" if opened.world_size > 1 else ""
        yield "machine", f"{opened.device}{several}"
    if record.created is not None:
        yield "opened", time.strftime("%Y-%m-%d %H:%M", time.localtime(record.created))
    yield (
        "time",
        f"{units.duration(record.seconds)} in {_attempts(len(record.attempts))}, pauses included{_hours(record)}",
    )
    yield "money", money_words(record)
    if (reproducibility := describe.reproducibility(state)) is not None:
        yield "reproducibility", reproducibility


def _hours(record: RunRecord) -> str:
    most = record.state.spending.max_hours
    return "" if most is None else f"; budget.max_hours = {most:g}"


def money_words(record: RunRecord) -> str:
    """What the run's time costs, and at what price."""
    if record.dollars is None:
        return f"{units.MISSING}: nobody has said what this machine costs (hardware.price_per_hour)"
    most = record.state.spending.max_money
    limit = "" if most is None else f" of {units.money(most)}"
    return f"{units.money(record.dollars)}{limit} {basis_words(record.state.spending)}"


def _attempts(number: int) -> str:
    return "1 attempt" if number == 1 else f"{number} attempts"


def _rows(record: RunRecord, report: Report | None) -> list[Fact]:
    if report is not None:
        return totals(report)
    plan = record.plan
    if plan is None:
        return [("rows", units.MISSING)]
    epoch = "a mean epoch" if plan.stages else "an epoch"
    return [
        ("rows", f"{plan.num_train_rows:,} to train on, {plan.num_eval_rows:,} to evaluate on"),
        ("tokens", f"{plan.num_train_tokens:,} in {epoch}, {plan.num_target_tokens:,} of them trained on"),
    ]


def _findings(report: Report | None) -> list[FindingText]:
    if report is None:
        return []
    return [
        FindingText(
            FINDING_TONES[gravity(finding)],
            f"{gravity(finding)}: {finding.name}",
            f"{finding.message} {describe_fix(finding)}",
        )
        for finding in sort_findings(report.findings)
    ]


def _samples(record: RunRecord) -> list[SamplePair]:
    before = {sample.prompt: sample.completion for sample in record.state.samples_before}
    after = {sample.prompt: sample.completion for sample in record.state.samples_after}
    return [
        SamplePair(prompt, before.get(prompt, units.MISSING), after.get(prompt, "not asked yet"))
        for prompt in dict.fromkeys([*before, *after])
    ]


def _versions(record: RunRecord) -> Iterator[Fact]:
    if record.opened is not None:
        yield from record.opened.versions.items()
        yield "driver", record.opened.driver or "none"
    prints = record.manifest.fingerprints if record.manifest is not None else {}
    for name, words in FINGERPRINTS.items():
        if name in prints:
            yield words, prints[name]
    if record.checkpoints and record.manifest is not None:
        yield "weights of", f"step {record.manifest.step:,}, seal {record.manifest.seal or units.MISSING}"


def _how_to_load(record: RunRecord) -> str:
    gives_scores = record.profile.get(("run", "stage")) == "rm"
    lines = result_lines.summary(record.run, record.state, learning_rate=1.0, gives_scores=gives_scores)
    at = lines.index("  use it") if "  use it" in lines else len(lines)
    return "\n".join(line.strip() for line in lines[at + 1 :])


def _profile_text(record: RunRecord) -> str:
    try:
        return read_plain(record.run.profile).decode(errors="backslashreplace")
    except OSError as error:
        return f"It cannot be read: {error}"
