"""Which runs there are and how one stands; the profiles that ship. Asked often: it imports only what that takes."""

import shutil
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec

from ftui import units
from ftui.cli.terminal import table
from ftui.errors import UsageError
from ftui.measures import MEASURES, leading_measure
from ftui.runs import describe
from ftui.runs.records.spending import basis_words, meter_words
from ftui.runs.run_folder import Run, all_runs, find_run
from ftui.runs.state import (
    RunState,
    alarm_name,
    disk_trouble,
    eta_seconds,
    own_seconds,
    phase_word,
    rank_words,
    read_losses,
    red_alarms,
)
from ftui.runs.status import Status, is_running, list_order, read_status, spent_so_far
from ftui.supervisor.spawn import ensure_supervised
from ftui.system.process_id import is_alive
from ftui.text import escape_document, shown

ALARMS_SHOWN = 3
RANKS_LISTED = 16
HEADINGS = ("run", "phase", "step", "train loss", "eval loss", "tokens/s", "cost", "age")


def print_runs(as_json: bool = False, archived: bool = False) -> int:
    """`ftui runs`: every run (or every archived one), in the order of the screen, as a table or as JSON."""
    opened = {run: created(run) for run in all_runs(archived=archived)}
    statuses = {run: ensure_supervised(run, read_status(run)) for run in opened}
    runs = sorted(statuses.items(), key=lambda item: list_order(item[0], item[1], opened[item[0]]))
    if as_json:
        _print_json([{"run": run.name, "folder": str(run.folder), **_with_losses(status)} for run, status in runs])
    elif not runs:
        print(_nothing_listed(archived))
    else:
        rows = [row(run, status, opened[run], now=time.time()) for run, status in runs]
        lines = without_empty([HEADINGS, *rows])
        print("\n".join(table(lines, range(2, len(lines[0])), width=shutil.get_terminal_size().columns)))
    return 0


def _nothing_listed(archived: bool) -> str:
    if archived:
        return "No run is archived."
    if num_archived := len(all_runs(archived=True)):
        return f"No runs but {num_archived} archived: `ftui runs --archived` lists them."
    return "No runs yet. `ftui --run quickstart` starts a small one."


def _with_losses(status: Status) -> dict[str, Any]:
    """What status.json holds, and the two losses as every list shows them."""
    return {**msgspec.to_builtins(status), "losses": msgspec.to_builtins(read_losses(status.state))}


def _print_json(value: Any) -> None:
    print(escape_document(msgspec.json.format(msgspec.json.encode(value), indent=2).decode()))


def without_empty(lines: list[tuple[str, ...]]) -> list[tuple[str, ...]]:
    """The table without the cost, where no run has any."""
    cost = HEADINGS.index("cost")
    if any(line[cost] for line in lines[1:]):
        return lines
    return [(*line[:cost], *line[cost + 1 :]) for line in lines]


def row(run: Run, status: Status, opened: float | None, *, now: float) -> tuple[str, ...]:
    """One run of the table; the age is the time since it was opened (`created`)."""
    state = status.state
    return (
        shown(run.name),
        standing(status),
        describe.place(state).removeprefix("step "),
        *describe.loss_figures(state),
        units.count(state.tokens_per_second),
        "" if (dollars := spent_so_far(status).dollars) is None else units.money(dollars),
        units.duration(now - opened) if opened is not None and opened <= now else units.MISSING,
    )


def standing(status: Status) -> str:
    """The phase in the table's few words."""
    state, phase = status.state, phase_word(status.state.phase)
    if status.unreadable:
        return "unreadable"
    if status.frozen:
        return f"{phase}, frozen"
    if status.unwatched:
        return f"{phase}, unwatched"
    if state.restarting and state.phase == "starting":
        return "restarting"
    trouble = disk_trouble(state) or ", ".join(red_alarms(state))
    return f"{phase}, {trouble}" if trouble else phase


def created(run: Run) -> float | None:
    """Unix time at which the run was opened; `None` where run.json is damaged, which must not hide the other runs."""
    try:
        return run.read_facts().created
    except UsageError:
        return None


def print_status(name: str, as_json: bool, short: bool = False) -> int:
    """All that is known about a run, as lines or as the JSON of its status; `short`: one line, which starts nothing."""
    run = find_run(name)
    if short:
        print(short_status(run, read_status(run)))
        return 0
    status = ensure_supervised(run, read_status(run))
    if as_json:
        _print_json(_with_losses(status))
        return 0
    for label, value in facts(run, status):
        print(f"{label:<18}{value}")
    return 0


def short_status(run: Run, status: Status) -> str:
    """The run in one line for a status line, at most about 60 columns: name, step, loss, time left, cost, alarms."""
    state = status.state
    if not is_running(status) or state.phase not in ("training", "evaluating", "saving", "held"):
        return f"{shown(run.name)} {describe.phase(state)}"
    percent = f" {100 * state.step // state.max_steps}%" if state.max_steps else ""
    parts = [f"{shown(run.name)}{percent}", f"loss {describe.loss_figures(state)[0]}"]
    if state.phase != "training":
        parts.append(phase_word(state.phase))
    if eta := eta_seconds(state):
        parts.append(units.duration(eta))
    if cost := meter_words(state.spending, spent_so_far(status)):
        parts.append(cost)
    return " ".join([*parts, *(["!"] if red_alarms(state) else [])])


def facts(run: Run, status: Status) -> Iterator[tuple[str, str]]:
    """Label and value of every fact, in reading order; what is not known is left out or `n/a`."""
    state = status.state
    yield "run", shown(run.name)
    yield "folder", shown(str(run.folder))
    opened = created(run)
    date = time.localtime(opened) if opened is not None else None
    yield "opened", time.strftime("%Y-%m-%d %H:%M:%S", date) if date else units.MISSING
    yield "phase", " · ".join([describe.phase(state), *_troubles(status)])
    if status.unreadable:
        yield "unreadable", shown(status.unreadable)
    yield from _ending(status)
    yield "attempt", str(state.attempt)
    if (reproducibility := describe.reproducibility(state)) is not None:
        yield "reproducibility", reproducibility
    yield "model", " · ".join(shown(x) for x in (state.model, state.method, state.precision) if x) or units.MISSING
    yield "machine", " · ".join(shown(x) for x in (state.host, state.device) if x) or units.MISSING
    yield "step", describe.place(state).removeprefix("step ")
    if state.stage:
        yield "stage", state.stage.replace("/", " of ")
    yield "epoch", units.quantity(state.epoch, 2)
    yield "train loss", describe.loss_figures(state)[0]
    yield "eval loss", _eval_loss(state)
    yield from _measures(state)
    if state.rollout is not None:
        yield f"rollout {state.rollout.number}", describe.describe_rollout(state.rollout)
    yield "gradient norm", describe.format_value(state.grad_norm, "grad_norm", state.non_finite)
    yield "learning rate", units.rate(state.learning_rate)
    yield "tokens/s", units.count(state.tokens_per_second)
    yield "memory", units.size(state.memory)
    if (micro_batch := describe.micro_batch(state)) is not None:
        yield "micro-batch", micro_batch
    yield from _ranks(state)
    yield "time left", units.duration(eta_seconds(state) if is_running(status) else None)
    yield from _spending(status)
    newest = state.newest_checkpoint
    yield "checkpoint", f"step {newest.step}" if newest else "none"
    if state.resumed_from:
        yield "resumed from", shown(state.resumed_from)
    older_red = [alarm for alarm in state.alarms[:-ALARMS_SHOWN] if alarm.level == "red"]
    for alarm in [*older_red, *state.alarms[-ALARMS_SHOWN:]]:
        yield f"health, {alarm.level}", f"step {alarm.step}: {shown(alarm_name(alarm))}: {shown(alarm.evidence)}"
        yield "", shown(alarm.suggestion)
    for number, line in enumerate(state.warning.splitlines()):
        yield "" if number else "last warning", shown(line)
    yield "engine", _process(status.engine.pid, is_alive(status.engine)) if status.engine else units.MISSING
    yield (
        "supervisor",
        (_process(status.supervisor.pid, is_alive(status.supervisor)) if status.supervisor else units.MISSING),
    )


def _troubles(status: Status) -> Iterator[str]:
    """What is unusual about a running run."""
    if status.state.paused_since is not None:
        yield f"for {units.duration(max(0.0, status.time - status.state.paused_since))}"
    if status.frozen:
        yield "stopped by a signal (SIGSTOP)"
    if status.unwatched:
        yield "unwatched"


def _ending(status: Status) -> Iterator[tuple[str, str]]:
    state = status.state
    for label, text in (("reason", state.reason), ("error", state.message), ("hint", state.hint)):
        for number, line in enumerate(text.splitlines() if text else ()):
            yield "" if number else label, shown(line)
    if state.exit_code is not None:
        yield "exit code", str(state.exit_code)
    if state.machine_stop is not None:
        yield "then_stop", shown(state.machine_stop.words())
    for line in state.last_lines:
        yield "last lines", shown(line)


def _eval_loss(state: RunState) -> str:
    """The newest evaluation, then the first and the best one."""
    figure, last = describe.loss_figures(state)[1], state.last_evaluation
    if last is None or leading_measure(last)[0] != "loss":
        return figure
    texts = [f"{figure} (step {last.step}{', extra' if last.requested else ''})"]
    for word, evaluation in (("first", state.first_evaluation), ("best", state.best_evaluation)):
        if evaluation is not None:
            texts.append(f"{word} {units.quantity(evaluation.loss)} (step {evaluation.step})")
    return ", ".join(texts)


def _measures(state: RunState) -> Iterator[tuple[str, str]]:
    """The stage's other measures: of the newest step, of the newest evaluation and of the best one."""
    evaluations = (("eval", state.last_evaluation), ("best", state.best_evaluation))
    for name, measure in MEASURES.items():
        texts = [f"{units.figure(state.extras[name])} train"] if name in state.extras else []
        texts += [
            f"{units.figure(evaluation.extras[name])} {word} (step {evaluation.step})"
            for word, evaluation in evaluations
            if evaluation is not None and name in evaluation.extras
        ]
        if texts:
            yield measure.words, ", ".join(texts)


def _ranks(state: RunState) -> Iterator[tuple[str, str]]:
    """Where the time of the last steps went, by rank: a line for each, of many ranks those that took longest."""
    if (ranks := state.ranks) is None:
        return
    yield "ranks", rank_words(ranks)
    own = own_seconds(ranks)
    slow = sorted(range(len(own)), key=own.__getitem__)[-RANKS_LISTED:]
    for rank in sorted(slow):
        figures = ((ranks.passes, "passes"), (ranks.data, "rows"), (ranks.communication, "communication"))
        yield "", f"rank {rank}: " + ", ".join(f"{of_ranks[rank]:.3f} s {word}" for of_ranks, word in figures)
    if len(own) > len(slow):
        yield "", f"and {len(own) - len(slow)} ranks that were faster"


def _spending(status: Status) -> Iterator[tuple[str, str]]:
    """How long all attempts took and what that cost, and how much of it they may."""
    spending, so_far = status.state.spending, spent_so_far(status)
    if not spending.spans:
        return
    most = "" if spending.max_hours is None else f" of {units.duration(spending.max_hours * 3600)}"
    number = len(spending.spans)
    yield "time spent", f"{units.duration(so_far.seconds)}{most} in {number} attempt{'s' if number > 1 else ''}"
    if so_far.dollars is not None:
        most = "" if spending.max_money is None else f" of {units.money(spending.max_money)}"
        yield "cost", f"{units.money(so_far.dollars)}{most} {shown(basis_words(spending))}"


def _process(pid: int, alive: bool) -> str:
    return f"process {pid}, " + ("alive" if alive else "gone")


def print_profiles(name: str | None = None) -> int:
    """`ftui profiles [NAME]`: the list of shipped profiles, or the text of one.

    Its paths are made right in this folder, so that it can be saved here.
    """
    from ftui.profile.presets import find_profile, shipped_presets  # 3 ms, as below: not for who only looks at runs

    if name is None:
        presets = shipped_presets()
        width = max((len(preset.name) for preset in presets), default=0)
        for preset in presets:
            print(f"{shown(preset.name):<{width}}  {shown(preset.description)}")
        return 0
    from ftui.profile.profile_file import relocate_paths  # with pydantic (0.1 s), which the lists do without
    from ftui.profile.toml_reader import read_text

    path = find_profile(name)
    print(shown(relocate_paths(read_text(path), path.parent, Path.cwd()), newlines=True), end="")
    return 0
