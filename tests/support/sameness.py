"""Whether two runs trained the same: weights, optimizer, generators, state, figures, bit for bit."""

import json
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from ftui.launch.open_run import create
from ftui.profile.layers import resolve
from ftui.runs.events import ControlApplied, EvaluationDone, RunFinished, Step
from ftui.runs.journal import Tail, Writer
from ftui.runs.records.rollout_records import RolloutMade
from ftui.runs.run_folder import Run
from tests.support.bench import records

# A run that is left between a step and its evaluation saves what it was before it; the next attempt evaluates, and a
# step that has a checkpoint is not saved again. Both runs' evaluations are compared from their journals.
OF_EVALUATIONS = {
    "evaluated_step", "last_loss", "last_is_finite", "best_loss", "best_metric", "best_step", "bad_evaluations",
}  # fmt: skip


def same_weights(one: Path, other: Path) -> None:
    """Every tensor of two folders, bit for bit."""
    names = sorted(p.relative_to(one) for p in one.rglob("*.safetensors"))
    assert names == sorted(p.relative_to(other) for p in other.rglob("*.safetensors"))
    assert names
    for name in names:
        left, right = tensors(one / name), tensors(other / name)
        assert left.keys() == right.keys()
        for key in left:
            assert left[key] == right[key], f"{name}: {key}"


def tensors(path: Path) -> dict[str, tuple[str, bytes]]:
    """Type and bytes of every tensor of a safetensors file (numpy has no bfloat16, and torch takes seconds)."""
    data = path.read_bytes()
    start = 8 + int.from_bytes(data[:8], "little")
    header = {name: entry for name, entry in json.loads(data[8:start]).items() if name != "__metadata__"}
    places = {name: [start + offset for offset in entry["data_offsets"]] for name, entry in header.items()}
    return {name: (header[name]["dtype"], data[begin:end]) for name, (begin, end) in places.items()}


def ledger_of(run: Run) -> dict[str, bytes]:
    """The loss of every row in every step, byte for byte."""
    return {path.name: path.read_bytes() for path in run.ledger.iterdir()} if run.ledger.exists() else {}


def rollouts_of(run: Run) -> dict[str, Any]:
    """What a run of stage grpo has learned from, byte for byte, with the hashes that its journal had of it before; it
    keeps no ledger. (The order of the header of measured log-probabilities is any.)"""
    if not run.rollouts.exists():
        return {}
    hashes = {f"hash {r.number}": r.hash for r in records(run) if isinstance(r, RolloutMade)}
    return hashes | {
        path.name: tensors(path) if path.name.endswith(".log_probs.safetensors") else path.read_bytes()
        for path in run.rollouts.iterdir()
    }


def executed(run: Run) -> int:
    """How many steps were taken in all attempts together."""
    return sum(isinstance(r, Step) for r in Tail(run.metrics).read())


def measured(run: Run) -> dict[int, tuple[Any, ...]]:
    """What the last attempt to reach each step measured."""
    steps = [r for r in Tail(run.metrics).read() if isinstance(r, Step)]
    return {
        r.step: (r.loss, r.grad_norm, r.learning_rate, r.num_tokens, r.num_target_tokens, r.epoch, r.applied)
        for r in steps
    }


def evaluated(run: Run) -> dict[int, tuple[Any, ...]]:
    """What the last attempt to evaluate each step found; those asked for by requests are left out."""
    found = [r for r in records(run) if isinstance(r, EvaluationDone) and not r.requested]
    return {r.step: (r.loss, r.num_target_tokens, r.best) for r in found}


def same_runs(run: Run, reference: Run) -> None:
    """Two finished runs: their result, their last checkpoint with all that is in it, and all they measured."""
    assert measured(run) == measured(reference)
    assert evaluated(run) == evaluated(reference)
    last = Path("checkpoints", f"checkpoint-{max(measured(reference))}")
    same_weights(run.folder / last, reference.folder / last)
    same_weights(run.final, reference.final)
    assert ledger_of(run) == ledger_of(reference)
    assert rollouts_of(run) == rollouts_of(reference)
    assert ledger_of(run) or rollouts_of(run)
    for name in ("state.json", "rng.json", "optimizer.json"):
        one, other = (json.loads((r.folder / last / "resume" / name).read_bytes()) for r in (run, reference))
        if name == "state.json" and one["evaluated_step"] < one["step"]:
            one, other = ({k: v for k, v in state.items() if k not in OF_EVALUATIONS} for state in (one, other))
        assert one == other, name
    ends = [next(r for r in reversed(records(r_)) if isinstance(r, RunFinished)) for r_ in (run, reference)]
    figures = [(end.step, end.reason, end.loss_before, end.loss_final, end.step_final) for end in ends]
    assert figures[0] == figures[1]


def told_beforehand(run: Run, name: str, env: Mapping[str, str]) -> Run:
    """Another run of the same profile, in one attempt: it knows from the start what requests set in `run`, and when.

    Whatever else they asked for, nobody asks of this one.
    """
    other = Run(run.folder.with_name(name))
    assert create(other, resolve(run.profile))
    journal = Writer(other.journal)
    for record in records(run):
        if isinstance(record, ControlApplied) and record.settings:
            journal.write(ControlApplied(request="", verb="set", step=record.step, settings=record.settings))
    journal.close()
    with other.engine_log.open("ab") as log:
        command = [sys.executable, "-P", "-m", "ftui.engine", str(other.folder)]
        subprocess.run(command, env=dict(env), stdout=log, stderr=log, check=True, timeout=300)
    return other
