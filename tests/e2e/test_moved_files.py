"""A run whose files were moved resumes by the command that its refusal names, with the same content only."""

import shlex
import subprocess
from pathlib import Path

import pytest

from tests.support.bench import Workbench
from tests.support.driving import started, steps, wait_for_end, wait_until

pytestmark = pytest.mark.slow


def test_moved_files_are_named_and_still_guarded(watched_bench: Workbench) -> None:
    bench = watched_bench
    run = started(bench, "moved")
    assert bench.ftui("park", "moved").returncode == 0
    wait_for_end(bench, run)
    parked_at = steps(run)[-1].step
    place = bench.folder / "new place"
    place.mkdir()
    for name in ("rows.jsonl", "held_out.jsonl", "base"):
        (bench.folder / name).rename(place / name)

    refused = bench.ftui("resume", "moved")
    assert refused.returncode == 30 and len(list(_sets(refused.stderr))) == 3

    rows = (place / "rows.jsonl").read_text()
    (place / "rows.jsonl").write_text(rows.replace("row 3 ", "row 4 ").replace("Row 3 ", "Row 4 "))
    other = _obey(bench, refused.stderr, place)
    assert other.returncode == 31 and "the training rows changed" in other.stderr
    (place / "rows.jsonl").write_text(rows)
    again = _obey(bench, refused.stderr, place, "--detach")
    assert again.returncode == 0, again.stderr
    wait_until(lambda: steps(run)[-1].step > parked_at)
    assert bench.ftui("stop", "moved").returncode == 0
    wait_for_end(bench, run)


def _hint(error: str) -> list[str]:
    line = next(line for line in error.split("\n") if "ftui resume" in line)
    return shlex.split(line[line.index("ftui resume") :])[1:]


def _sets(error: str) -> list[str]:
    return [word for word in _hint(error) if word == "--set"]


def _obey(bench: Workbench, error: str, place: Path, *more: str) -> "subprocess.CompletedProcess[str]":
    return bench.ftui(*(word.replace("PLACE", str(place)) for word in _hint(error)), *more)
