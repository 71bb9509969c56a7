"""Whether anything of a long run grows: `python -m tests.bench.memory_over_steps [--steps 100000]`.

A tiny model is trained by the whole program, with an evaluation, a checkpoint and answers now and then, while a live
view looks on in a terminal of 120x40. Every two seconds the private memory of engine, supervisor and view is read, and
the size of each file of the run. The slope is that of a straight line through the samples of the second half (least
squares); its error is the standard error times 2, so a slope within it is noise. Near the end another view is opened
beside a minimal Textual app: what attaching to so many steps costs.
"""

import argparse
import sys
import tempfile
import time
from collections import defaultdict
from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np

from ftui.runs.run_folder import Run
from ftui.runs.status import read_status
from tests.bench.screens import COLUMNS, MINIMAL, ROWS, compare
from tests.support.bench import Workbench, bench_at, make_bench
from tests.support.pty_screen import on_screen

LOOK_SECONDS = 2.0
ENDED = ("finished", "failed", "stopped", "parked", "lost")
SPAN = 10_000  # steps that a slope is told for
CHECKS = 20  # evaluations and checkpoints of a run

Samples = dict[str, list[tuple[int, float]]]


def private_bytes(pid: int) -> int | None:
    """Memory of a process that is its own and no file's; `None` where it has ended."""
    try:
        lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    except (FileNotFoundError, ProcessLookupError):
        return None
    found = [int(line.split()[1]) << 10 for line in lines if line.startswith("RssAnon:")]
    return found[0] if found else None


def file_sizes(run: Run) -> Iterator[tuple[str, int]]:
    """Each file of the run, and all that is in each of its folders of bounded files."""
    for path in run.folder.iterdir():
        try:
            if path.name in ("ledger", "segments"):
                yield f"{path.name}/", sum(file.stat().st_size for file in path.iterdir())
            elif path.is_file() and not path.name.startswith("."):
                yield path.name, path.stat().st_size
        except FileNotFoundError:  # replaced or dropped in this moment
            continue


def start(bench: Workbench, steps: int) -> Run:
    profile = bench.profile("long", method="full")
    every = max(1, steps // CHECKS)
    values = {
        "train.max_steps": steps, "train.per_device_train_batch_size": 1, "train.gradient_accumulation_steps": 1,
        "train.learning_rate": 1e-4, "eval.eval_steps": every, "eval.sample_max_new_tokens": 2,
        "checkpoint.save_steps": every, "checkpoint.save_total_limit": 3,
    }  # fmt: skip
    options = [part for key, value in values.items() for part in ("--set", f"{key}={value}")]
    result = bench.ftui("--run", str(profile), *options, "--detach")
    assert result.returncode == 0, result.stderr
    return bench.run("long")


def watch(bench: Workbench, run: Run, attach_at: int, rounds: int) -> tuple[Samples, dict[str, int]]:
    """The samples of each process, and the largest size that each file had."""
    samples, sizes, is_attached = Samples(), defaultdict[str, int](int), False
    command = [sys.executable, "-m", "ftui", "attach", run.name]
    with on_screen(command, bench.env, COLUMNS, ROWS) as view:
        while (status := read_status(run)).state.phase not in ENDED:
            end = time.monotonic() + LOOK_SECONDS
            while time.monotonic() < end:
                view.read(0.2)
                view.reads.clear()
            if status.state.step >= attach_at and not is_attached:
                is_attached = True
                compare({"minimal Textual app": [sys.executable, "-c", MINIMAL], "attach": command}, bench.env, rounds)
            pids = {"engine": status.engine, "supervisor": status.supervisor}
            found = {name: private_bytes(who.pid) for name, who in pids.items() if who is not None}
            for name, value in (found | {"live view": private_bytes(view.pid)}).items():
                if value is not None and status.state.step:
                    samples.setdefault(name, []).append((status.state.step, value))
            for name, size in file_sizes(run):
                sizes[name] = max(sizes[name], size)
        print(f"{status.state.phase} after {status.state.step:,} steps")
    return samples, dict(sizes)


def slope(points: Sequence[tuple[int, float]]) -> tuple[float, float]:
    """MiB in `SPAN` steps over the second half of the samples, and twice its standard error."""
    half = np.array(points[len(points) // 2 :], dtype=np.float64)
    steps, values = half[:, 0] / SPAN, half[:, 1] / 2**20
    (gradient, level), residuals = np.polyfit(steps, values, 1), steps - steps.mean()
    noise = ((values - gradient * steps - level) ** 2).sum() / max(1, len(half) - 2)
    return float(gradient), 2 * float(np.sqrt(noise / max(1e-12, (residuals**2).sum())))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--steps", type=int, default=100_000)
    parser.add_argument("--rounds", type=int, default=3, help="of opening another view")
    chosen = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="ftui-long-") as name:
        source = Path(name) / "source"
        source.mkdir()
        make_bench(source)
        bench = bench_at(source, Path(name) / "bench")
        bench.env.update(TERM="xterm-256color", LANG="C.UTF-8")
        begin, run = time.monotonic(), start(bench, chosen.steps)
        samples, sizes = watch(bench, run, int(0.95 * chosen.steps), chosen.rounds)
        print(f"{time.monotonic() - begin:.0f} s, {len(samples['engine'])} samples")
        for who, points in samples.items():
            gradient, error = slope(points)
            first, last = points[len(points) // 10][1] / 2**20, points[-1][1] / 2**20
            print(f"{who:<11} {first:7.1f} -> {last:7.1f} MiB, {gradient:+.3f} +- {error:.3f} MiB in {SPAN:,} steps")
        for file, size in sorted(sizes.items(), key=lambda pair: -pair[1]):
            print(f"{file:<22} {size / 2**20:8.2f} MiB, {size / chosen.steps:8.1f} bytes a step")


if __name__ == "__main__":
    main()
