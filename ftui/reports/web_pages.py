"""Which page is at which address of `ftui serve`: the list, a run, a comparison, a table. Only runs that are listed."""

import io
import time
from typing import NamedTuple
from urllib.parse import quote, urlencode

from ftui import units
from ftui.errors import UsageError
from ftui.reports.comparison_page import comparison_page
from ftui.reports.html_page import Link, make_page
from ftui.reports.run_curves import AXES, Axis, read_run_curves
from ftui.reports.run_differences import check_number
from ftui.reports.run_page import report_page
from ftui.reports.run_record import read_record, read_records
from ftui.reports.step_table import write_table
from ftui.runs import describe
from ftui.runs.run_folder import Run, all_runs
from ftui.runs.state import eta_seconds
from ftui.runs.status import Status, is_running, list_order, read_status

REFRESH_SECONDS = 15
HOME: Link = ("/", "all runs")

Query = dict[str, list[str]]


class WebPage(NamedTuple):
    """What is sent: text, and its media type."""

    content: str
    kind: str = "text/html"


def page_at(path: str, query: Query) -> WebPage | None:
    """The page; `None` where there is none. A name leads only to a run of the list, whatever is in it.

    Raises:
        FtuiError: the runs cannot be compared, or one cannot be read.
    """
    runs = {run.name: run for run in reversed(all_runs())}  # of one name, the first is found everywhere
    match path.split("/"):
        case ["", ""]:
            return WebPage(_list_page(list(runs.values())))
        case ["", "compare"]:
            names = query.get("run", [])
            if any(name not in runs for name in names):
                return None
            return WebPage(_comparison([runs[name] for name in names]))
        case ["", "run", name] if name in runs:
            return WebPage(_run_page(runs[name], _axis(query)))
        case ["", "csv", name] if name in runs:
            return WebPage(_table(runs[name]), "text/csv")
    return None


def _axis(query: Query) -> Axis:
    wanted = query.get("over", ["step"])[0]
    for axis in AXES:
        if axis == wanted:
            return axis
    raise UsageError(f"There is no axis of that name: {', '.join(AXES)}.")


def _list_page(runs: list[Run]) -> str:
    statuses = {run: read_status(run) for run in runs}
    ordered = sorted(runs, key=lambda run: list_order(run, statuses[run], _created(run)))
    lines = [
        {"name": run.name, "address": f"/run/{quote(run.name)}", "cells": _cells(statuses[run])} for run in ordered
    ]
    return make_page(
        "list.html.jinja", "Runs", [], refresh_seconds=_refresh(list(statuses.values())), has_forms=True, lines=lines,
        head=("phase", "step", "train loss", "eval loss", "tokens/s", "time left"),
    )  # fmt: skip


def _created(run: Run) -> float | None:
    try:
        return run.read_facts().created
    except UsageError:  # run.json is damaged, which hides no other run
        return None


def _cells(status: Status) -> list[str]:
    state = status.state
    return [
        describe.phase(state), describe.place(state).removeprefix("step "), *describe.loss_figures(state),
        units.count(state.tokens_per_second), units.duration(eta_seconds(state) if is_running(status) else None),
    ]  # fmt: skip


def _run_page(run: Run, axis: Axis) -> str:
    record = read_record(run)
    curves = read_run_curves(record)
    address = f"/run/{quote(run.name)}"
    axes = [(f"{address}?{urlencode({'over': one})}", f"by {one}") for one in AXES if one in curves.positions]
    links = [HOME, *axes, (f"/csv/{quote(run.name)}", "CSV")]
    return report_page(record, curves, axis=axis, links=links, refresh_seconds=_refresh([record.status]))


def _comparison(runs: list[Run]) -> str:
    check_number(len(runs))
    records = read_records(runs)
    links = [HOME, *((f"/run/{quote(run.name)}", run.name) for run in runs)]
    curves = [read_run_curves(record) for record in records]
    return comparison_page(records, curves, links=links, refresh_seconds=_refresh([r.status for r in records]))


def _table(run: Run) -> str:
    record, text = read_record(run), io.StringIO(newline="")
    write_table([record], [read_run_curves(record)], text)
    return text.getvalue()


def _refresh(statuses: list[Status]) -> int:
    """Pages of runs that have ended stay as they are."""
    return REFRESH_SECONDS if any(is_running(status) or _is_recent(status) for status in statuses) else 0


def _is_recent(status: Status) -> bool:
    return status.state.phase == "queued" and time.time() - status.time < 600
