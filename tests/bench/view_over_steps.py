"""Whether the live view grows while a run does: `python -m tests.bench.view_over_steps [--steps 100000]`.

A made-up run of `--before` steps goes on by `--steps` as fast as `--rate` says, with an evaluation and a checkpoint
every 250, while a live view of 120x40 looks on. Its private memory is read every two seconds; the slope is that of the
second half (tests/bench/memory_over_steps.py). Then the run, now so long, is attached to beside a minimal Textual app.
"""

import argparse
import sys
import tempfile
import time
from pathlib import Path

from tests.bench.memory_over_steps import LOOK_SECONDS, SPAN, private_bytes, slope
from tests.bench.screens import COLUMNS, MINIMAL, ROWS, compare, environment
from tests.support.long_run import Growing, make_run, summarise
from tests.support.pty_screen import on_screen

EVERY = 250  # steps between evaluations


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--steps", type=int, default=100_000)
    parser.add_argument("--before", type=int, default=3000)
    parser.add_argument("--rate", type=float, default=400.0, help="steps a second")
    parser.add_argument("--rounds", type=int, default=5, help="of attaching")
    chosen = parser.parse_args()
    command = [sys.executable, "-m", "ftui", "attach", "live"]
    with tempfile.TemporaryDirectory(prefix="ftui-view-") as folder:
        env = environment(Path(folder))
        run = make_run(Path(folder) / "live", chosen.before, 200)
        growing, done, points = Growing(run, chosen.before), 0, list[tuple[int, float]]()
        with on_screen(command, env, COLUMNS, ROWS) as view:
            begin = next_look = time.monotonic()
            while done < chosen.steps:
                due = min(chosen.steps, int((time.monotonic() - begin) * chosen.rate))
                while done < due:
                    growing.grow(1)
                    done += 1
                    if done % EVERY == 0:
                        growing.evaluate()
                view.read(0.1)
                view.reads.clear()
                if time.monotonic() >= next_look and (memory := private_bytes(view.pid)) is not None:
                    next_look += LOOK_SECONDS
                    points.append((done, memory))
            gradient, error = slope(points)
            print(
                f"live view over {done:,} steps in {time.monotonic() - begin:.0f} s, {len(points)} samples:"
                f" {points[len(points) // 10][1] / 2**20:.1f} -> {points[-1][1] / 2**20:.1f} MiB,"
                f" {gradient:+.3f} +- {error:.3f} MiB in {SPAN:,} steps, {view.cpu_seconds():.1f} CPU s"
            )
        growing.close()
        summarise(run)
        sizes = {path.name: path.stat().st_size for path in run.folder.iterdir() if path.is_file()}
        sizes["segments/"] = sum(path.stat().st_size for path in run.segments.iterdir()) if run.segments.exists() else 0
        for name, size in sorted(sizes.items(), key=lambda pair: -pair[1])[:5]:
            print(f"{name:<22} {size / 2**20:8.2f} MiB")
        minimal = {"minimal Textual app": [sys.executable, "-c", MINIMAL]}
        compare(minimal | {f"attach, {done + chosen.before:,} steps": command}, env, chosen.rounds)


if __name__ == "__main__":
    main()
