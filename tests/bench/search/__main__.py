"""Steps that a search spends and the loss it finds: ftui's promotion beside Ray Tune's ASHA and Optuna's pruners.

    python -m tests.bench.search [--ray PYTHON]

On the recorded curves of curves.json (tests/bench/search/record.py): 16 trials of quickstart's model for each of three
seeds, the same trials in the same order for each tool. ftui's part is the sweep's own process code (`Controller`), told
each value in place of a run. `--ray`: a Python that has Ray; without it its line is left out. Seconds on one core.
"""

import argparse
import json
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from functools import partial
from pathlib import Path
from statistics import mean

from ftui.sweep.controller import Controller
from ftui.sweep.promotion import best_trials
from ftui.sweep.sweep_files import Trial
from tests.bench.search.record import CURVES, EVERY, NUM_TRIALS, STEPS
from tests.support.played_sweep import make_sweep, play

ETA = 3
PLAN = f"""
profile = "quickstart"
[search]
"train.learning_rate" = {{ low = 3e-4, high = 1e-1, log = true }}
"adapter.r" = [4, 16, 64]
"adapter.lora_dropout" = {{ low = 0.0, high = 0.3 }}
"train.adam_beta2" = [0.95, 0.999]
[method]
sampler = "random"
scheduler = "SCHEDULER"
rungs = [{EVERY}, {EVERY * ETA}, {STEPS}]
eta = {ETA}
finish = FINISH
seed = SEED
[budget]
trials = {NUM_TRIALS}
"""
Found = Mapping[str, tuple[int, int]]


def search_by_ftui(curves: Mapping[str, list[Mapping[str, float]]], scheduler: str, finish: int) -> Found:
    """By seed the steps, and the trial it calls the best."""
    found = {}
    for seed, of_seed in curves.items():
        plan = PLAN.replace("SCHEDULER", scheduler).replace("FINISH", str(finish)).replace("SEED", seed)
        with tempfile.TemporaryDirectory() as folder:
            files = make_sweep(Path(folder), plan)
            state = play(files, loss_of=partial(_recorded, of_seed))
            best = best_trials(Controller(files).ladder, [trial.stand for trial in state.trials])[0]
        found[seed] = (sum(max(trial.steps.values()) for trial in state.trials), best.number)
    return found


def _recorded(losses: list[Mapping[str, float]], trial: Trial, step: int) -> float | None:
    return losses[trial.number].get(str(step))


def search_by_stopping(python: str, tool: str) -> Found:
    """The same of another tool, in its own Python."""
    program = Path(__file__).parent / "stopping.py"
    command = [python, str(program), tool, str(CURVES), str(EVERY), str(STEPS), str(ETA)]
    result = subprocess.run(command, capture_output=True, text=True, check=True)
    return {seed: (steps, best) for seed, (steps, best) in json.loads(result.stdout.splitlines()[-1]).items()}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--ray", metavar="PYTHON")
    ray = parser.parse_args().ray
    known = json.loads(CURVES.read_text())
    curves = {seed: [trial["losses"] for trial in trials] for seed, trials in known.items()}
    found = {
        "every trial whole": {seed: (STEPS * NUM_TRIALS, _order(of_seed)[0]) for seed, of_seed in curves.items()},
        "ftui asha": search_by_ftui(curves, "asha", 2),
        "ftui asha, finish = 1": search_by_ftui(curves, "asha", 1),
        "Optuna SuccessiveHalvingPruner": search_by_stopping(sys.executable, "optuna-halving"),
        "Optuna HyperbandPruner": search_by_stopping(sys.executable, "optuna-hyperband"),
    }
    if ray is not None:
        found["Ray Tune ASHAScheduler"] = search_by_stopping(ray, "ray")
    print(f"{'':32}{'steps by seed':>24}{'mean':>8}   best loss at step {STEPS}, and its rank, by seed")
    for name, of_tool in found.items():
        steps = [of_tool[seed][0] for seed in curves]
        ends = [
            f"{curves[seed][best][str(STEPS)]:.4f} ({_order(curves[seed]).index(best) + 1})"
            for seed, (_, best) in of_tool.items()
        ]
        print(f"{name:32}{'  '.join(f'{one:6}' for one in steps):>24}{mean(steps):8.0f}   {'  '.join(ends)}")


def _order(curves: list[Mapping[str, float]]) -> list[int]:
    """Trials by what they come to at the end, the best first; one that diverged is the last."""
    return sorted(range(len(curves)), key=lambda number: curves[number].get(str(STEPS), float("inf")))


if __name__ == "__main__":
    main()
