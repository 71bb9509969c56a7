"""`ftui preview` from the command line to the tokens and back: a base without weights, a terminal and a pipe."""

import json

import psutil
import pytest

from tests.support.bench import Workbench
from tests.support.driving import at_screen


@pytest.fixture
def bare(workbench: Workbench) -> Workbench:
    for path in (workbench.folder / "base").glob("*.safetensors"):
        path.unlink()
    return workbench


def test_rows_are_seen_before_there_are_weights(bare: Workbench) -> None:
    profile = str(bare.profile("mine"))
    told = json.loads(bare.ftui("preview", profile, "--json", "--rows", "2", "--jump", "longest").stdout)
    first, second = told["samples"]
    assert first["num_tokens"] >= second["num_tokens"] > 0 and len(first["tokens"]) == first["num_tokens"]
    assert told["report"]["num_rows"] == first["num_rows"] > 10 and told["report"]["sources"][0]["form"] == "alpaca"


def test_rows_that_would_spoil_a_run_have_the_exit_code_of_data(bare: Workbench) -> None:
    profile = bare.profile("mine")
    rows = bare.folder / "rows.jsonl"
    rows.write_text('{"instruction": "a", "output": ""}\n' * 40)
    ended = bare.ftui("preview", str(profile), "--report")
    assert ended.returncode == 31 and "error empty_answers" in ended.stdout and "data.allow" in ended.stdout


def test_the_screen_shows_them_and_ends_its_helper(bare: Workbench) -> None:
    """From the list of profiles with one key, in a terminal; nothing of it is left behind."""
    bare.profile("mine")
    with at_screen(bare) as screen:
        screen.wait_for("No runs")
        screen.press("n")
        screen.wait_for("mine.toml")
        screen.press("r")
        screen.wait_for("row 1 of 40", seconds=90)
        screen.press("n")
        shown = screen.wait_for("row 2 of 40")
        assert any("assistant" in line for line in shown) and any("trained" in line for line in shown)
        screen.press("R")
        screen.wait_for("report on the rows")
        (helper,) = helpers()
        screen.press("qq")
        screen.wait_for("start a run")
        assert gone(helper)


def helpers() -> list[psutil.Process]:
    """Of the processes that tests of this room have started."""
    found = [one for one in psutil.Process().children(recursive=True) if one.status() != psutil.STATUS_ZOMBIE]
    return [one for one in found if "ftui.engine.services.server" in " ".join(one.cmdline())]


def gone(process: psutil.Process) -> bool:
    return not psutil.wait_procs([process], timeout=30)[1]
