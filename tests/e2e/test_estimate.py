"""`ftui estimate` as people run it, with the real helper and the real probe; and the helper by itself."""

import json
import os
import re
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest

from ftui.errors import DataError, FtuiError, ModelError
from ftui.helper.client import Helper
from ftui.profile.layers import resolve
from tests.support.bench import Workbench


def test_an_estimate_then_a_probe_that_corrects_it(workbench: Workbench) -> None:
    profile = str(workbench.profile("mine"))
    cut = ("--set", "data.max_length=28", "--set", 'data.allow=["answers_cut_off"]')  # some rows are
    changed = ("--set", "hardware.price_per_hour=0.5", *cut)
    whole = workbench.ftui("estimate", profile, "--json", *changed)
    assert whole.returncode == 0, whole.stderr
    told = json.loads(whole.stdout)
    assert (told["card"], told["verdict"], told["memory"]["basis"]) == ("cpu", "fits", "simulated")
    assert told["duration"]["num_steps"] == 30, told["notes"]  # 3 epochs of 40 rows in steps of 4
    assert told["duration"]["tokens_per_second"] is None  # nobody knows how fast this CPU is
    assert sum(told["memory"]["breakdown"].values()) == told["memory"]["process"]
    assert told["other_cards"]["t4"] == "fits"

    probed = workbench.ftui("estimate", profile, "--json", "--probe", *changed)
    assert probed.returncode == 0, probed.stderr
    after = json.loads(probed.stdout)
    assert after["memory"]["basis"] == after["duration"]["basis"] == "measured here"
    measured = json.loads((workbench.folder / "state" / "ftui" / "measured.jsonl").read_text())
    assert after["memory"]["process"] == measured["process"]
    seconds = after["duration"]["total_seconds"]
    assert seconds > 0 and after["duration"]["dollars"] == pytest.approx(0.5 * seconds / 3600)
    assert not workbench.run("mine").folder.exists(), "nothing was opened"

    quick = workbench.ftui("estimate", profile, "--quick")
    assert "corrected by a probe" in quick.stdout and "rows not read" in " ".join(quick.stdout.split())
    assert "from a probe of another setting" in " ".join(quick.stdout.split())

    tier = workbench.ftui("estimate", profile, "--quick", "--tier", "cpu")
    assert "On other cards: " in quick.stdout
    assert "On other cards (with the values of the tier cpu): " in " ".join(tier.stdout.split())

    other = workbench.ftui("estimate", profile, "--probe", "--card", "rtx4090")
    assert other.returncode == 2 and "can say nothing of rtx4090" in other.stderr


def test_no_code_of_a_model_is_run_unasked(workbench: Workbench) -> None:
    profile = str(workbench.profile("mine"))
    trusting = ("--set", "model.trust_remote_code=true")
    for more in ((), ("--probe", "--quick")):
        refused = workbench.ftui("estimate", profile, *trusting, *more)
        assert refused.returncode == 30 and "--allow remote-code" in refused.stderr
    assert workbench.ftui("estimate", profile, *trusting, "--quick").returncode == 0


def test_a_probe_ends_with_whoever_asked(workbench: Workbench) -> None:
    command = [sys.executable, "-m", "ftui", "estimate", str(workbench.profile("mine")), "--probe"]
    asking = subprocess.Popen(command, cwd=workbench.folder, env=workbench.env, stdout=subprocess.DEVNULL)
    deadline = time.monotonic() + 30
    while not (
        probe := [p for p in psutil.Process(asking.pid).children() if "services.server" in " ".join(p.cmdline())]
    ):
        assert time.monotonic() < deadline
        time.sleep(0.05)
    folder = Path(probe[0].cmdline()[-1])
    asking.kill()
    asking.wait()
    assert gone(probe[0])
    assert not folder.exists(), "what the probe had written is removed"


def test_a_run_that_is_probed_first(workbench: Workbench) -> None:
    profile = str(workbench.profile("mine"))
    ended = workbench.ftui("--run", profile, "--probe", "--set", "train.max_steps=2")
    assert ended.returncode == 0, ended.stdout + ended.stderr
    assert re.match(r"measured: [\d.]+ [MG]iB at the peak, [\d,]+ tokens/s with the longest rows\n", ended.stdout)
    (workbench.folder / "rows.jsonl").write_text('{"text": 5}\n')
    ended = workbench.ftui("--run", profile, "--probe", "--name", "other")
    assert ended.returncode == DataError.exit_code and "rows.jsonl:1" in ended.stderr
    assert not workbench.run("other").folder.exists()
    over = workbench.ftui("--run", profile, "--probe")
    assert over.returncode == 0 and over.stdout.startswith("mine has ended: nothing is probed.")


@pytest.fixture
def helper(workbench: Workbench, monkeypatch: pytest.MonkeyPatch) -> Iterator[Helper]:
    for name, value in workbench.env.items():
        monkeypatch.setenv(name, value)
    made = Helper()
    yield made
    made.close()


def test_the_helper_answers_goes_on_after_errors_and_comes_back(workbench: Workbench, helper: Helper) -> None:
    profile = resolve(workbench.profile("mine")).profile
    assert helper.ask("count_rows", profile=profile)["max_steps"] == 30
    (process,) = helpers()
    rows = workbench.folder / "rows.jsonl"
    (found,) = helper.ask("recognise", path=str(rows))
    assert (found["file"], found["form"], found["confidence"]) == (str(rows), "alpaca", 1.0)
    elsewhere = profile.model.model_copy(update={"name_or_path": str(workbench.folder / "nowhere")})
    with pytest.raises(ModelError, match="no model folder"):
        helper.ask("count_rows", profile=profile.model_copy(update={"model": elsewhere}))
    with pytest.raises(ModelError):
        helper.ask("model_config", name="nobody/nothing", revision=None)
    with pytest.raises(FtuiError, match="KeyError"):
        helper.ask("nonsense")
    assert helper.ask("model_config", name=str(workbench.folder / "base"), revision=None).endswith("base/config.json")
    assert process.is_running(), "one process has answered them all"

    os.kill(process.pid, signal.SIGKILL)
    psutil.wait_procs([process], timeout=5)
    assert helper.ask("recognise", path=str(rows)) == [found]
    (process,) = helpers()
    helper.close()
    assert gone(process)


def test_the_helper_ends_with_whoever_started_it(workbench: Workbench, helper: Helper) -> None:
    helper.ask("recognise", path=str(workbench.folder / "rows.jsonl"))
    running: Any = helper._process
    running.stdin.close()
    assert running.wait(timeout=60) == -signal.SIGKILL, "of itself, with all that it has started"
    assert not helper._folder.exists()


def test_a_helper_that_is_closed_leaves_nobody_waiting(workbench: Workbench, helper: Helper) -> None:
    helper.ask("recognise", path=str(workbench.folder / "rows.jsonl"))
    told: list[Exception] = []

    def ask() -> None:
        try:
            helper.ask("count_rows", profile=resolve(workbench.profile("mine")).profile)
        except FtuiError as error:
            told.append(error)

    waiting = threading.Thread(target=ask)
    waiting.start()
    time.sleep(0.2)
    helper.close()
    waiting.join(timeout=60)
    assert not waiting.is_alive() and "Nobody waits" in str(told[0])


def helpers() -> list[psutil.Process]:
    """Those that this process has started and that live."""
    living = (child for child in psutil.Process().children() if child.status() != psutil.STATUS_ZOMBIE)
    return [child for child in living if "ftui.engine.services.server" in child.cmdline()]


def gone(process: psutil.Process) -> bool:
    deadline = time.monotonic() + 60
    while process.is_running() and process.status() != psutil.STATUS_ZOMBIE and time.monotonic() < deadline:
        time.sleep(0.05)
    return not process.is_running() or process.status() == psutil.STATUS_ZOMBIE
