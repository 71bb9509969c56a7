"""A run's two losses are the same figures in every list, view and command, and those that stand in its records."""

import asyncio
import json
import re
from pathlib import Path
from typing import Any

import pytest

from ftui.cli.main import main
from ftui.runs.journal import encode
from ftui.runs.run_folder import Run
from tests.support.events import make_evaluation, make_step
from tests.support.replayed import list_recordings
from tests.support.shown_app import shown_app
from tests.tui.conftest import Recorded

Figures = tuple[str, str]
WORDS = {"n/a": "-", "not finite": "nan"}  # what screens write for what commands spell out
LIVING = ("wiki-style-lora", "wiki-style-held")


def lines_of(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text().splitlines()]


def written(loss: float | None, record: dict[str, Any]) -> str:
    return f"{loss:.4f}" if loss is not None else "nan" if "loss" in record.get("non_finite", []) else "-"


def recorded_figures(run: Run) -> Figures:
    """By the files alone: the newest attempt's last step, and the last evaluation that no resume went back behind."""
    journal = lines_of(run.journal)
    attempt = max(record["attempt"] for record in [*journal, *lines_of(run.supervisor_log)])
    steps = [record for record in lines_of(run.metrics) if record["attempt"] == attempt]
    evaluations: list[dict[str, Any]] = []
    for record in journal:
        if record["kind"] == "run_started":
            evaluations = [e for e in evaluations if e["step"] <= record["start_step"]]
        if record["kind"] == "evaluation_done":
            evaluations.append(record)
    train, last = steps[-1] if steps else {}, evaluations[-1] if evaluations else {}
    return written(train.get("loss"), train), written(last.get("loss"), last)


def shown_figures(run: Run, capsys: pytest.CaptureFixture[str]) -> dict[str, Figures]:
    """By every way to look at it. A place that shows no figure at all shows that there is none."""

    def output(*arguments: str) -> str:
        assert main(list(arguments)) == 0
        return capsys.readouterr().out

    def of_json(losses: dict[str, Any]) -> Figures:
        train, evaluation = (
            f"{losses[name]:.4f}" if losses[name] is not None else "nan" if name in losses["non_finite"] else "-"
            for name in ("train", "eval")
        )
        return train, evaluation

    def by_heading(lines: list[str], name: str) -> Figures:
        head = next(line for line in lines if "train loss" in line)
        row = next(line for line in lines if f"{name} " in line and line != head)
        ends = [head.index(heading) + len(heading) for heading in ("train loss", "eval loss")]
        train, evaluation = (re.split(r"\s{2,}", row[:end].replace("not finite", "nan"))[-1] for end in ends)
        return WORDS.get(train, train), WORDS.get(evaluation, evaluation)

    status = dict(line.split("  ", 1) for line in output("status", run.name).splitlines() if "  " in line)
    told = [re.sub(r" \(step.*", "", status[name].strip()) for name in ("train loss", "eval loss")]
    (entry,) = json.loads(output("runs", "--json"))
    return {
        "runs": by_heading(output("runs").splitlines(), run.name),
        "runs --json": of_json(entry["losses"]),
        "status": (WORDS.get(told[0], told[0]), WORDS.get(told[1], told[1])),
        "status --json": of_json(json.loads(output("status", run.name, "--json"))["losses"]),
        **asyncio.run(on_screens(run, by_heading)),
    }


async def on_screens(run: Run, by_heading: Any) -> dict[str, Figures]:
    async with shown_app(size=(80, 24)) as shown:
        found = {"the list of runs": by_heading([line[3:] for line in shown.lines()], run.name)}
    async with shown_app(run=run, size=(80, 24)) as shown:
        await shown.until(lambda: run.name in shown.text())
        if not shown.text().startswith(" loss") and "\n loss" not in shown.text():
            await shown.press("escape")  # why it failed stands before it
        title = next(line for line in shown.lines() if line.startswith(" loss"))
    train = re.search(r"(\S+) train", title)
    evaluation = re.search(r"(\S+) eval", title)
    found["the live view"] = (train[1] if train else "-", evaluation[1] if evaluation else "-")
    return found


@pytest.mark.slow
@pytest.mark.parametrize("name", list_recordings())
def test_every_way_to_look_shows_the_recorded_losses(
    name: str, recorded: Recorded, capsys: pytest.CaptureFixture[str]
) -> None:
    for living in {False, name in LIVING}:
        run = recorded(name, living=living)
        expected = recorded_figures(run)
        assert shown_figures(run, capsys) == dict.fromkeys(shown_figures(run, capsys), expected)
        run.folder.rename(run.folder.parent.parent / f"{name}-{living}")


@pytest.mark.parametrize("loss", [float("nan"), float("inf")])
@pytest.mark.parametrize("place", ["train", "eval"])
def test_what_is_not_finite_is_so_everywhere(
    loss: float, place: str, recorded: Recorded, capsys: pytest.CaptureFixture[str]
) -> None:
    run = recorded("wiki-style-lora", living=True)
    path, record = {
        "train": (run.metrics, make_step(501, loss, attempt=3)),
        "eval": (run.journal, make_evaluation(501, loss, attempt=3, requested=True)),
    }[place]
    token = lines_of(path)[-1]["token"]
    with path.open("ab") as file:
        file.write(encode(type(record)(**{f: getattr(record, f) for f in record.__struct_fields__} | {"token": token})))
    expected = recorded_figures(run)
    assert "nan" in expected
    assert shown_figures(run, capsys) == dict.fromkeys(shown_figures(run, capsys), expected)
