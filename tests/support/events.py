"""The one place where tests make records of a run: each with sensible figures, of attempt 1, unless a test says other.

Only records with many required fields stand here; a test writes `Warned(message="...")` itself.
"""

from typing import Any

from ftui.runs.events import (
    CheckpointSaved,
    EvaluationDone,
    RunFailed,
    RunFinished,
    RunOpened,
    RunStarted,
    RunStopped,
    Step,
)
from ftui.runs.records.record import Phase
from ftui.runs.records.signs_of_life import Beat
from ftui.runs.records.supervisor_records import EngineEnded, EngineStarted, Restarting
from ftui.system.process_id import Identity

Fields = dict[str, Any]

ENGINE = Identity("boot", "pid:[1]", 7, "100")  # an engine that nobody looks for

PLAN: Fields = {
    "max_steps": 20,
    "steps_per_epoch": 10,
    "effective_batch": 4,
    "num_train_rows": 40,
    "num_train_tokens": 400,
    "num_target_tokens": 200,
    "num_eval_rows": 4,
    "total_parameters": 1000,
    "trainable_parameters": 10,
    "model": "tiny",
    "method": "lora",
    "precision": "fp32",
    "attempt": 1,
}
FIGURES: Fields = {
    "learning_rate": 1e-4,
    "grad_norm": 0.5,
    "num_tokens": 100,
    "num_target_tokens": 50,
    "tokens_per_second": 3400.0,
    "data_seconds": 0.0,
    "forward_backward_seconds": 0.1,
    "optimizer_seconds": 0.01,
    "rest_seconds": 0.0,
    "memory": 512 << 20,
    "attempt": 1,
}


def make_run_opened(**fields: Any) -> RunOpened:
    defaults: Fields = {"host": "pod", "device": "cpu", "driver": None, "versions": {}, "num_threads": 1}
    return RunOpened(**(defaults | {"world_size": 1, "identity": ENGINE, "attempt": 1} | fields))


def make_run_started(start_step: int = 0, **fields: Any) -> RunStarted:
    """The plan of a run of 20 steps, 10 an epoch; from a checkpoint where `start_step` is not 0."""
    source = f"checkpoints/checkpoint-{start_step}" if start_step else None
    return RunStarted(start_step=start_step, **({"resumed_from": source} | PLAN | fields))


def make_step(number: int, loss: float | None = 2.5, **fields: Any) -> Step:
    return Step(step=number, loss=loss, **({"epoch": number / 10} | FIGURES | fields))


def make_evaluation(number: int, loss: float | None = 1.0, **fields: Any) -> EvaluationDone:
    defaults: Fields = {"epoch": number / 10, "num_target_tokens": 9, "seconds": 0.1, "best": False, "attempt": 1}
    return EvaluationDone(step=number, loss=loss, **(defaults | fields))


def make_checkpoint_saved(number: int, *tags: str, **fields: Any) -> CheckpointSaved:
    """Of checkpoints/checkpoint-`number`; its tag is `periodic` where none is named."""
    defaults: Fields = {"path": f"checkpoints/checkpoint-{number}", "num_bytes": 1, "seconds": 0.1, "attempt": 1}
    return CheckpointSaved(step=number, tags=list(tags or ("periodic",)), **(defaults | fields))


def make_engine_started(attempt: int = 1, **fields: Any) -> EngineStarted:
    defaults: Fields = {"identity": ENGINE}
    return EngineStarted(attempt=attempt, **(defaults | fields))


def make_engine_ended(code: int | None = None, **fields: Any) -> EngineEnded:
    defaults: Fields = {"signal": None, "oom_kills": 0, "last_lines": ["the last line"], "attempt": 1}
    return EngineEnded(code=code, **(defaults | fields))


def make_restarting(**fields: Any) -> Restarting:
    defaults: Fields = {"step": 3, "error": "SIGSEGV", "number": 1, "pause_seconds": 4.0, "attempt": 1}
    return Restarting(**(defaults | fields))


def make_run_finished(step: int = 20, **fields: Any) -> RunFinished:
    defaults: Fields = {"reason": "all steps done", "final": "final", "attempt": 1}
    return RunFinished(step=step, **(defaults | fields))


def make_run_stopped(exit_code: int, **fields: Any) -> RunStopped:
    defaults: Fields = {"step": 1, "reason": "", "attempt": 1}
    return RunStopped(exit_code=exit_code, **(defaults | fields))


def make_run_failed(exit_code: int, **fields: Any) -> RunFailed:
    defaults: Fields = {"message": "m", "hint": "", "error": "", "attempt": 1}
    return RunFailed(exit_code=exit_code, **(defaults | fields))


def make_beat(progress: int, phase: Phase = "training", **fields: Any) -> Beat:
    defaults: Fields = {"step": 0, "micro_step": 0, "token": "t"}
    return Beat(progress=progress, phase=phase, **(defaults | fields))
