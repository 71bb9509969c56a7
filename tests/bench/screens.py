"""What the screens cost, beside a minimal Textual app: `python -m tests.bench.screens [--minutes M] [--steps N]`.

Everything is measured on a real pseudo-terminal of 120x40. `first frame` is from the start of the process until 95 % of
the cells that end up on the screen are right. The processor's seconds count, of all threads: on a machine that others
use too they say more than the clock, which is shown beside them.
"""

import argparse
import os
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

from tests.support.long_run import Growing, make_run
from tests.support.pty_screen import Screened, on_screen

COLUMNS, ROWS = 120, 40
SETTLED = 1.5  # seconds without output: the first frame is done
PAUSE = 0.7  # the same, where the list of runs writes something once a second
MINIMAL = """
from textual.app import App
from textual.widgets import Static
class Minimal(App):
    def compose(self):
        yield Static("hello")
Minimal().run()
"""
STEPS_BEFORE = 3000  # of the run whose live view is measured


def environment(root: Path, **more: str) -> dict[str, str]:
    base = {name: os.environ[name] for name in ("PATH", "PYTHONPATH", "HOME") if name in os.environ}
    own = {"FTUI_RUNS": str(root), "XDG_STATE_HOME": str(root / ".state"), "TERM": "xterm-256color", "LANG": "C.UTF-8"}
    return base | own | more


class FirstFrame(NamedTuple):
    """Seconds to the first full frame, by the processor and by the clock; and all until it was quiet."""

    cpu: float
    seconds: float
    paints: int
    num_bytes: int
    rss: int
    pss: int


def first_frame(command: Sequence[str], env: dict[str, str]) -> FirstFrame:
    program = on_screen(command, env | {"FTUI_HZ": "0.2"}, COLUMNS, ROWS)
    spent: list[float] = []  # by the processor, at each read
    while not program.reads or time.perf_counter() - program.started - program.reads[-1][0] < PAUSE:
        program.read(0.002)
        spent += [program.cpu_seconds()] * (len(program.reads) - len(spent))
    seconds, memory = program.full_frame(), program.memory()
    cpu = next(cpu for (moment, _), cpu in zip(program.reads, spent, strict=True) if moment == seconds)
    found = FirstFrame(cpu, seconds, program.paints(), len(program.wire()), *memory)
    program.press("q")
    program.read(1, until_quiet=0.3)
    program.close()
    return found


def compare(commands: Mapping[str, Sequence[str]], env: dict[str, str], rounds: int) -> None:
    """Each command in turn, `rounds` times; figures and ratios to the first one."""
    found: dict[str, list[FirstFrame]] = {name: [] for name in commands}
    for _ in range(rounds):
        for name, command in commands.items():
            found[name].append(first_frame(command, env))
    base = [figure.cpu for figure in next(iter(found.values()))]
    for name, figures in found.items():
        times = sorted(figure.cpu for figure in figures)
        clock = statistics.median(figure.seconds for figure in figures)
        print(
            f"{name:<28} first frame {_spread(times)}  {statistics.median(times) / statistics.median(base):4.2f}x"
            f" (by minima {times[0] / min(base):.2f}x)  clock {clock * 1000:.0f} ms"
            f"  {statistics.median(figure.paints for figure in figures):.0f} paints,"
            f" {statistics.median(figure.num_bytes for figure in figures) / 1000:.1f} kB"
            f"  RSS {max(figure.rss for figure in figures) / 2**20:5.1f} MiB"
            f"  PSS {max(figure.pss for figure in figures) / 2**20:5.1f} MiB",
            flush=True,
        )


def _spread(times: Sequence[float]) -> str:
    return f"{statistics.median(times) * 1000:5.0f} ms ({min(times) * 1000:.0f}-{max(times) * 1000:.0f})"


def print_answers(commands: Mapping[str, Sequence[str]], env: dict[str, str], rounds: int) -> None:
    """What commands that print cost from start to end, each in turn."""
    times: dict[str, list[float]] = {name: [] for name in commands}
    for _ in range(rounds):
        for name, command in commands.items():
            before = resource.getrusage(resource.RUSAGE_CHILDREN)
            subprocess.run(command, env=env, stdout=subprocess.DEVNULL, check=True)
            after = resource.getrusage(resource.RUSAGE_CHILDREN)
            times[name].append(after.ru_utime - before.ru_utime + after.ru_stime - before.ru_stime)
    for name, found in times.items():
        print(f"{name:<28} {_spread(found)}", flush=True)


def stream(root: Path, command: Sequence[str], growing: Growing, hz: float, seconds: float) -> None:
    """CPU share and bytes a second of the live view while the run logs 20 steps a second."""
    program = on_screen(command, environment(root, FTUI_HZ=str(hz)), COLUMNS, ROWS)
    program.read(10, until_quiet=SETTLED)
    _grow(program, growing, 3)
    cpu, begin, memory = program.cpu_seconds(), time.perf_counter(), program.memory()
    num_bytes = _grow(program, growing, seconds)
    spent = time.perf_counter() - begin
    after = program.memory()
    print(
        f"live view at {hz:g} Hz, {spent:4.0f} s: {(program.cpu_seconds() - cpu) / spent:5.1%} CPU,"
        f" {num_bytes / spent / 1000:5.2f} kB/s, RSS {memory[0] / 2**20:.1f} -> {after[0] / 2**20:.1f} MiB,"
        f" PSS {memory[1] / 2**20:.1f} -> {after[1] / 2**20:.1f} MiB",
        flush=True,
    )
    program.press("q")
    program.read(1, until_quiet=0.3)
    program.close()


def _grow(program: Screened, growing: Growing, seconds: float) -> int:
    num_bytes, end = 0, time.perf_counter() + seconds
    while time.perf_counter() < end:
        growing.grow(2)
        num_bytes += program.read(0.1)
        program.reads.clear()
    return num_bytes


def key_to_paint(root: Path, command: Sequence[str], presses: int) -> None:
    """From a key press to the first byte of its picture, on a quiet live view."""
    program = on_screen(command, environment(root, FTUI_HZ="0.2"), COLUMNS, ROWS)
    program.read(10, until_quiet=SETTLED)
    times = []
    for number in range(presses):
        time.sleep(0.05 + (number % 7) * 0.013)  # at no fixed distance from the timers
        program.read(0.01)
        begin, before = time.perf_counter(), len(program.reads)
        program.press("]" if number % 8 < 4 else "[")
        while len(program.reads) == before and time.perf_counter() - begin < 2:
            program.read(0.005)
        if len(program.reads) > before:
            times.append(program.started + program.reads[before][0] - begin)
    program.close()
    times.sort()
    print(
        f"key to paint, {len(times)} of {presses} presses: median {statistics.median(times) * 1000:.0f} ms,"
        f" p95 {times[int(len(times) * 0.95)] * 1000:.0f} ms, most {times[-1] * 1000:.0f} ms",
        flush=True,
    )


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("--rounds", type=int, default=9)
    options.add_argument("--seconds", type=float, default=20.0, help="of each stream")
    options.add_argument("--minutes", type=float, default=10.0, help="how long memory is watched")
    options.add_argument("--steps", type=int, default=1_000_000, help="of the long run")
    chosen = options.parse_args()
    ftui = [sys.executable, "-m", "ftui"]
    with tempfile.TemporaryDirectory(prefix="ftui-screens-") as folder:
        short, fifty, long = (Path(folder) / name for name in ("short", "fifty", "long"))
        run = make_run(short / "live", STEPS_BEFORE, 200)
        for number in range(50):
            make_run(fifty / f"run-{number:02d}", 300 + number, 20, evaluations=10)
        minimal = [sys.executable, "-c", MINIMAL]
        print(f"{COLUMNS}x{ROWS}, {chosen.rounds} rounds, alternated", flush=True)
        compare(
            {"minimal Textual app": minimal, "ftui attach": [*ftui, "attach", "live"]},
            environment(short),
            chosen.rounds,
        )
        compare({"minimal Textual app": minimal, "ftui, 50 runs": ftui}, environment(fifty), chosen.rounds)
        print_answers(
            {
                "python -c pass": [sys.executable, "-c", "pass"],
                "ftui status": [*ftui, "status", "run-10"],
                "ftui runs, 50 runs": [*ftui, "runs"],
            },
            environment(fifty),
            chosen.rounds * 2,
        )
        key_to_paint(short, [*ftui, "attach", "live"], 100)
        growing = Growing(run, STEPS_BEFORE)
        for hz in (4.0, 1.0):
            stream(short, [*ftui, "attach", "live"], growing, hz, chosen.seconds)
        if chosen.minutes:
            stream(short, [*ftui, "attach", "live"], growing, 4.0, chosen.minutes * 60)
        growing.close()
        if chosen.steps:
            make_run(long / "live", chosen.steps, chosen.steps, evaluations=1000)
            attach = {"minimal Textual app": minimal, f"attach, {chosen.steps:,} steps": [*ftui, "attach", "live"]}
            compare(attach, environment(long), max(3, chosen.rounds // 2))


if __name__ == "__main__":
    main()
