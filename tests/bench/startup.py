"""From the command to the end of step 1: `python -m tests.bench.startup [--profile quickstart] [--rounds 5]`.

Seconds of each part of a start as the run's own records tell them, median and spread, beside the CPU seconds of the
engine until then. The first start tokenises the rows and is left out: the others find them in the cache. Bytecode is
written, as an installed package has it.
"""

import argparse
import os
import secrets
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from itertools import chain, pairwise
from pathlib import Path

from ftui.runs.events import EvaluationDone, PhaseChanged, RunOpened, RunStarted, Sampled, Step
from ftui.runs.journal import Tail
from ftui.runs.records.record import Record
from ftui.runs.records.supervisor_records import EngineStarted
from ftui.runs.run_folder import Run

PATIENCE_SECONDS = 120.0
LOOK_SECONDS = 0.005
TICKS = os.sysconf("SC_CLK_TCK")


def part_before(record: Record) -> str | None:
    """The part of a start that ends with this record."""
    match record:
        case EngineStarted():
            return "command, supervisor"
        case PhaseChanged(phase="starting"):
            return "engine's process, profile"
        case RunOpened():
            return "libraries"
        case PhaseChanged(phase="loading"):
            return "rows"
        case RunStarted():
            return "model"
        case Sampled():
            return "samples"
        case EvaluationDone():
            return "evaluation"
        case Step(step=1):
            return "step 1"
    return None


def start(profile: str, folder: Path) -> dict[str, float]:
    """Start a run, follow it to the end of its first step, abort it; the seconds of each part and of all of them."""
    run = Run(folder / "runs" / secrets.token_hex(4))
    environment = os.environ | {"FTUI_RUNS": str(run.folder.parent), "FTUI_CACHE": str(folder / "cache")}
    environment.pop("PYTHONDONTWRITEBYTECODE", None)
    begin = time.time()
    command = [sys.executable, "-P", "-m", "ftui", "--run", profile, "--name", run.name]
    process = subprocess.Popen(command, env=environment, stdout=subprocess.DEVNULL)
    tails = [Tail(path) for path in (run.supervisor_log, run.journal, run.metrics)]
    seen: list[Record] = []
    while not any(isinstance(record, Step) for record in seen):
        assert process.poll() is None and time.time() < begin + PATIENCE_SECONDS, "the run never made a step"
        time.sleep(LOOK_SECONDS)
        seen += chain.from_iterable(tail.read() for tail in tails)
    engine = next(record.identity.pid for record in seen if isinstance(record, EngineStarted))
    cpu = cpu_seconds(engine)
    for _ in range(2):
        process.send_signal(signal.SIGINT)  # once saves, twice aborts
        time.sleep(0.2)
    process.wait()
    parts: dict[str, float] = {}
    marks = [(begin, ""), *((r.time, name) for r in sorted(seen, key=lambda r: r.time) if (name := part_before(r)))]
    for (before, _), (now, name) in pairwise(marks):
        parts[name] = parts.get(name, 0.0) + now - before
    return parts | {"all": marks[-1][0] - begin, "CPU of the engine": cpu}


def cpu_seconds(pid: int) -> float:
    """CPU seconds of a process so far, all its threads."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / TICKS


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--profile", default="quickstart")
    parser.add_argument("--rounds", type=int, default=5)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        _, *rounds = [start(options.profile, Path(folder)) for _ in range(options.rounds + 1)]
    for name in rounds[0]:
        figures = sorted(parts[name] for parts in rounds)
        print(f"{name:<28} {statistics.median(figures):6.2f} s  ({figures[0]:.2f}-{figures[-1]:.2f})")


if __name__ == "__main__":
    main()
