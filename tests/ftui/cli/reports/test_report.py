"""`ftui report` as it is typed."""

from pathlib import Path
from typing import Any

import pytest

from ftui.cli.main import main
from ftui.cli.reports.report_options import AXES
from ftui.reports import run_curves, run_differences
from ftui.runs.run_folder import runs_root
from ftui.tui.screens import runs
from tests.support.replayed import replay


@pytest.fixture(autouse=True)
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    for name in ("wiki-style-finished", "exploded", "no-such-rows"):
        replay(name, runs_root())


def test_files_are_named_for_their_runs_and_never_overwritten(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["report", "exploded"]) == 0
    assert capsys.readouterr().out.startswith("exploded.html (")
    assert main(["report", "exploded", "wiki-style-finished", "--svg", "--over", "time"]) == 0
    assert (tmp_path / "exploded-and-wiki-style-finished.svg").read_text().startswith("<?xml")
    (tmp_path / "exploded.html").write_text("mine")
    assert main(["report", "exploded"]) == 2
    assert "--force" in capsys.readouterr().err
    assert (tmp_path / "exploded.html").read_text() == "mine"
    assert main(["report", "exploded", "--force"]) == 0
    assert (tmp_path / "exploded.html").read_text().startswith("<!doctype html>")


def test_a_table_goes_into_a_pipe(capfdbinary: Any) -> None:
    assert main(["report", "exploded", "--csv", "--out", "-"]) == 0
    output = capfdbinary.readouterr().out
    assert output.startswith(b"run,attempt,step") and output.count(b"\r\n") == 62


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["nobody"], "no run named"),
        (["exploded", "exploded"], "named twice"),
        (["exploded", "--svg", "--measure", "accuracy"], "There is loss"),
        (["exploded", "--svg", "--over", "money"], "price_per_hour"),
        (["no-such-rows", "--svg"], "No step has been taken"),
        (["exploded", "--csv", "--rows"], "--rows goes with"),
        (["exploded", "--out", "nowhere/x.html"], "could not be written"),
    ],
)
def test_what_cannot_be_told_is_refused(arguments: list[str], words: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["report", *arguments]) in (2, 40)
    error = capsys.readouterr().err
    assert words in error and "hint: " in error


def test_what_is_written_twice_is_the_same() -> None:
    assert AXES == run_curves.AXES
    assert runs.MOST_RUNS == run_differences.MOST_RUNS
