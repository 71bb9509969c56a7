"""A training run from start to end: hardware, rows, model, loop, result. The whole engine on one page."""

import time
from pathlib import Path
from typing import Any

from accelerate import Accelerator

from ftui import checkpoints
from ftui.engine.checkpoint import Keeper, restore
from ftui.engine.control import Control, Preempted
from ftui.engine.data.cache import cache_folder, tokenizer_fingerprint
from ftui.engine.environment import versions
from ftui.engine.final import finish
from ftui.engine.generate import sample
from ftui.engine.hardware import Hardware, find_hardware
from ftui.engine.logbook import Logbook
from ftui.engine.loop import Loop
from ftui.engine.model import (
    check_vocabulary,
    load_model,
    new_model,
    storage_dtype,
    weights_fingerprint,
    with_adapter,
)
from ftui.engine.optim import make_optimizer
from ftui.engine.packing import check_packing
from ftui.engine.preparation import Prepared, prepare
from ftui.engine.resume import check_same, find_checkpoint
from ftui.engine.rng import seed_everything
from ftui.engine.stages import stage_named
from ftui.engine.training import LossModule, Training, TrainState
from ftui.errors import PREEMPTED_NOT_SAVED, PREEMPTED_SAVED
from ftui.events import RunOpened, RunStarted, RunStopped
from ftui.identity import this_process
from ftui.profile.sections import Profile
from ftui.profile.writing import fingerprint
from ftui.run import Run


def train(run: Run, profile: Profile, logbook: Logbook, control: Control) -> int:
    """Train the run in its folder, from its newest checkpoint if there is one; returns the exit code.

    Raises:
        FtuiError: anything a person can act on, from the room that knows the remedy.
    """
    hardware = find_hardware(profile)
    _introduce(hardware, logbook)
    cache = cache_folder(run.folder / "cache")

    def report(detail: str) -> None:
        control.poll()
        logbook.progress(detail=detail)

    logbook.phase("preparing", "reading the rows")
    prepared = prepare(profile, cache, report)
    for warning in prepared.warnings:
        logbook.warn(warning)
    control.poll()

    logbook.phase("loading", "the model")
    seed_everything(profile.train.seed)
    model = _model(profile, prepared, hardware)
    training = _assemble(run, profile, hardware, prepared, model, logbook, control, cache)
    resumed = find_checkpoint(run, logbook)
    if resumed is not None:
        check_same(resumed, training.fingerprints)
        restore(training, resumed)
    control.poll()

    logbook.event(_started(training, resumed), durable=True)
    keeper = Keeper(training)
    loop = Loop(training, keeper)
    try:
        if training.state.step == 0:
            training.state.samples_before = sample(training)
        reason = loop.run()
        keeper.settle()
        finish(training, reason)
    except Preempted:
        return _leave(training, keeper, loop)
    return 0


def _introduce(hardware: Hardware, logbook: Logbook) -> None:
    import socket

    logbook.event(
        RunOpened(
            host=socket.gethostname(),
            device=f"{hardware.device.type}: {hardware.name}",
            driver=hardware.driver,
            versions=versions(),
            num_threads=hardware.num_threads,
            world_size=1,
            identity=this_process(),
        )
    )


def _model(profile: Profile, prepared: Prepared, hardware: Hardware) -> Any:
    if profile.model.from_scratch is not None:
        model = new_model(profile.model.from_scratch, prepared.tokenizer, profile.model.attn_implementation)
    else:
        assert prepared.folder is not None, "a model that is not new has a folder"
        model = load_model(prepared.folder, profile.model, storage_dtype(profile, hardware))
    check_vocabulary(model, prepared.tokenizer)
    if profile.data.packing:
        check_packing(model)
    if profile.train.activation_checkpointing:
        model.activation_checkpointing_enable({"use_reentrant": False})
    if profile.adapter.method == "lora":
        return with_adapter(model, profile.adapter, _base_name(profile, prepared))
    return model


def _base_name(profile: Profile, prepared: Prepared) -> str:
    """What the adapter calls its base: the hub id, or the folder's path on this disk."""
    return str(profile.model.name_or_path) if prepared.commit else str(prepared.folder)


def _assemble(
    run: Run,
    profile: Profile,
    hardware: Hardware,
    prepared: Prepared,
    model: Any,
    logbook: Logbook,
    control: Control,
    cache: Path,
) -> Training:
    """Hand model and optimizer to accelerate: it places, wraps and casts; loaders, schedules and saving are ours."""
    accelerator = Accelerator(
        mixed_precision="bf16" if hardware.precision == "bf16" else "no", cpu=hardware.device.type == "cpu"
    )
    stage = stage_named(profile.run.stage)
    model.train()
    module = accelerator.prepare_model(LossModule(model, stage))
    optimizer = make_optimizer(model, profile.train)
    return Training(
        run=run, profile=profile, hardware=hardware, prepared=prepared, stage=stage, model=model, module=module,
        optimizer=optimizer, accelerator=accelerator, logbook=logbook, control=control, state=TrainState(),
        fingerprints=_fingerprints(profile, prepared, cache, logbook),
    )  # fmt: skip


def _fingerprints(profile: Profile, prepared: Prepared, cache: Path, logbook: Logbook) -> dict[str, str]:
    """What the run is made from; a checkpoint can only be continued with the same."""
    held_out = prepared.evaluation
    base = "from scratch"
    if prepared.folder is not None:
        base = prepared.commit or weights_fingerprint(prepared.folder, cache, logbook.progress)
    return {
        "profile": fingerprint(profile),
        "data": prepared.train.sequences.counts.fingerprint,
        "evaluation_data": held_out.sequences.counts.fingerprint if held_out else "none",
        "tokenizer": tokenizer_fingerprint(prepared.tokenizer),
        "base_model": base,
    }


def _started(training: Training, resumed: checkpoints.Checkpoint | None) -> RunStarted:
    prepared, model = training.prepared, training.model
    evaluation = prepared.evaluation
    return RunStarted(
        start_step=training.state.step,
        max_steps=prepared.plan.max_steps,
        steps_per_epoch=prepared.plan.steps_per_epoch,
        effective_batch=prepared.plan.effective_batch,
        num_train_rows=len(prepared.train.indices),
        num_train_tokens=prepared.train.num_tokens,
        num_target_tokens=prepared.train.num_target_tokens,
        num_eval_rows=0 if evaluation is None else len(evaluation.indices),
        total_parameters=sum(weight.numel() for weight in model.parameters()),
        trainable_parameters=sum(weight.numel() for weight in model.parameters() if weight.requires_grad),
        model=Path(training.profile.model.name_or_path or "from scratch").name,
        method=training.profile.adapter.method,
        precision=training.hardware.precision,
        resumed_from=None if resumed is None else f"checkpoints/{resumed.path.name}",
    )


def _leave(training: Training, keeper: Keeper, loop: Loop) -> int:
    """SIGTERM: save if the grace allows it (by the measured time of the last save), else leave at once."""
    state, begun = training.state, time.monotonic()
    path = training.run.checkpoints / f"checkpoint-{state.step}"
    expected = keeper.last_save_seconds
    in_time = expected is None or expected * 1.5 <= training.profile.checkpoint.grace_seconds
    if state.step > 0 and (in_time or checkpoints.fault(path, quick=True) is None):
        keeper.save(loop.boundary, "preempted")
    saved = checkpoints.fault(path, quick=True) is None
    reason = f"pre-empted (SIGTERM) after step {state.step}, " + (
        f"saved in {time.monotonic() - begun:.1f} s" if saved else "not saved"
    )
    code = PREEMPTED_SAVED if saved else PREEMPTED_NOT_SAVED
    checkpoint = f"checkpoints/{path.name}" if saved else None
    training.logbook.event(
        RunStopped(step=state.step, reason=reason, exit_code=code, checkpoint=checkpoint), durable=True
    )
    return code
