"""A training run from start to end: hardware, rows, model, loop, result. The whole engine on one page."""

from pathlib import Path
from typing import Any

from accelerate import Accelerator

from ftui import checkpoints
from ftui.engine.badge import badge, environment, machine_differences, note
from ftui.engine.checkpoint import Keeper, expected_bytes, restore
from ftui.engine.control import Control, Leave
from ftui.engine.data.cache import cache_folder, tokenizer_fingerprint
from ftui.engine.desk import answers_in
from ftui.engine.environment import versions
from ftui.engine.generate import sample
from ftui.engine.hardware import Hardware, find_hardware
from ftui.engine.leaving import conclude, leave
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
from ftui.engine.optim import allocate_state, make_optimizer
from ftui.engine.packing import check_packing
from ftui.engine.preparation import Prepared, prepare
from ftui.engine.requests import Requests
from ftui.engine.resume import check_same, find_checkpoint, forked, is_fork
from ftui.engine.rng import seed_everything
from ftui.engine.settings import replayed, value_at
from ftui.engine.space import Space
from ftui.engine.stages import stage_named
from ftui.engine.training import LossModule, Training, TrainState
from ftui.errors import ModelError, ProfileError
from ftui.events import RunOpened, RunStarted
from ftui.identity import this_process
from ftui.profile.sections import Profile
from ftui.profile.writing import fingerprint
from ftui.run import Run
from ftui.volume import check_room, probe, warnings


def train(run: Run, profile: Profile, logbook: Logbook, control: Control) -> int:
    """Train the run in its folder, from its newest checkpoint if there is one; returns the exit code.

    Raises:
        FtuiError: anything a person can act on, from the room that knows the remedy.
        Leave: the run was told to go before it began to train.
    """
    for warning in warnings(probe(run.folder)):
        logbook.warn(warning)
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
    resumed = _resume(training)
    keeper = Keeper(training)
    check_room(run.folder, expected_bytes(training))
    logbook.make_reserve()
    control.poll()
    return _trained(training, keeper, resumed)


def _resume(training: Training) -> checkpoints.Checkpoint | None:
    """Put the run back where its newest checkpoint left it; the checkpoint, if there is one."""
    run, state = training.run, training.state
    found = find_checkpoint(run, training.logbook)
    if found is None:
        allocate_state(training.optimizer)
    else:
        differences = check_same(run, found, training.fingerprints)
        if is_fork(run, found):
            _restore_fork(training, found, differences)
        else:
            restore(training, found)
        content = [f"forked with other content at step {state.step}: {', '.join(differences)}"] if differences else []
        note(state, machine_differences(found, training.environment), content)
    state.settings = replayed(state.settings, answers_in(run))
    training.logbook.num_steps = state.step
    return found


def _restore_fork(training: Training, checkpoint: checkpoints.Checkpoint, differences: list[str]) -> None:
    """Put back what fits the new profile.

    Raises:
        ModelError, ProfileError: it does not fit.
    """
    try:
        restore(training, checkpoint)
    except (RuntimeError, ValueError, KeyError) as error:  # torch's ways to say that shapes or names differ
        raise ModelError(
            f"{checkpoint.path.name} does not fit the forked model: {error}",
            hint="A fork keeps the shape of the weights (adapter.r, the base model); start a new run otherwise.",
        ) from error
    forked(training.state, differences)
    last = training.prepared.plan.max_steps
    if last <= checkpoint.step:
        raise ProfileError(
            f"The run would end at step {last}, and it goes on from step {checkpoint.step}.",
            hint="Raise train.max_steps or train.num_train_epochs.",
        )


def _trained(training: Training, keeper: Keeper, resumed: checkpoints.Checkpoint | None) -> int:
    control, prompts = training.control, training.profile.eval.sample_prompts
    loop = Loop(training, keeper)
    assert control.desk is not None, "the engine opens the inbox before it trains"
    control.train(Requests(training, keeper, control.desk, lambda: loop.boundary).obey)
    try:
        training.logbook.event(_started(training, resumed), durable=True)
        if training.state.step == 0:
            training.state.samples_before = sample(training, prompts)
        reason = loop.run()
        return conclude(training, keeper, loop, reason)
    except Leave as leaving:
        return leave(training, keeper, loop, leaving)


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
        space=Space(run, logbook, control, profile.checkpoint.max_hold_minutes),
        fingerprints=_fingerprints(profile, prepared, cache, logbook),
        environment=environment(profile, hardware, str(model.config._attn_implementation)),
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
    evaluation, state = prepared.evaluation, training.state
    last = value_at(state.settings, "max_steps", state.step + 1)
    mark, reasons = badge(state, training.profile, training.hardware)
    return RunStarted(
        start_step=state.step,
        max_steps=prepared.plan.max_steps if last is None else int(last),
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
        badge=None if resumed is None else mark,
        badge_reasons=[] if resumed is None else reasons,
    )
