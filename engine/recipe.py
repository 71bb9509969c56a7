"""A training run from start to end: hardware, rows, model, loop, result. The whole engine on one page."""

from pathlib import Path

from ftui.errors import ModelError, ProfileError
from ftui.profile.schema import Profile
from ftui.runs import checkpoint_folders
from ftui.runs.events import RunOpened, RunStarted
from ftui.runs.run_folder import Run
from ftui.system.process_id import this_process
from ftui.system.user_folders import cache_folder
from ftui.system.volume import check_room, probe, warnings

from .build import assembled, model_of
from .checkpoints.checkpoint import Keeper, expected_bytes, restore
from .checkpoints.reproducibility import machine_differences, note, reproducibility
from .checkpoints.resume import as_begun, check_same, find_checkpoint, forked, is_fork
from .distributed.process_group import Do, Order, join
from .distributed.rank_state import accounts
from .distributed.worker_rank import follow
from .models.performance import settle_speed
from .models.quantization import num_parameters
from .optim.loss_scaler import begin
from .optim.optimizer import allocate_state
from .runtime.control_flags import Control, Leave
from .runtime.event_writer import Logbook
from .runtime.live_overrides import replayed, value_at
from .runtime.request_inbox import answers_in
from .system.device import Hardware, find_hardware
from .system.environment import versions
from .system.rng import seed_everything
from .training.base_losses import with_losses
from .training.context import Training
from .training.generate import sample
from .training.loop import Loop
from .training.prepare import prepare
from .training.request_handlers import Requests
from .training.shutdown import conclude, leave


def train(run: Run, profile: Profile, logbook: Logbook, control: Control) -> int:
    """Train the run in its folder, from its newest checkpoint if there is one; returns the exit code.

    Raises:
        FtuiError: anything a person can act on, from the room that knows the remedy.
        Leave: the run was told to go before it began to train.
        RankLostError: another rank of this run is gone.
    """
    hardware = find_hardware(profile)
    settle_speed(profile.train, hardware)
    ranks = join(hardware, profile.hardware.num_processes)
    if ranks.is_leader:
        _introduce(run, hardware, logbook, ranks.size)
    cache = cache_folder(run.folder / "cache")

    def report(detail: str) -> None:
        control.poll()
        logbook.progress(detail=detail)

    logbook.phase("preparing", "reading the rows")
    prepared = ranks.leader_first(lambda: prepare(as_begun(run, profile), cache, report))
    for warning in prepared.warnings:
        logbook.warn(warning)
    control.poll()

    logbook.phase("loading", "the model")
    seed_everything(profile.train.seed)
    model = model_of(profile, prepared, hardware)
    training = assembled(run, profile, hardware, ranks, prepared, model, logbook, control, cache)
    training = with_losses(training, report)
    if not ranks.is_leader:
        return follow(training)
    resumed = _resume(training)
    keeper = Keeper(training)
    check_room(run.folder, expected_bytes(training))
    logbook.make_reserve()
    control.poll()
    code = _trained(training, keeper, resumed)
    ranks.order(Order(Do.END))
    return code


def _resume(training: Training) -> checkpoint_folders.Checkpoint | None:
    """Put the run back where its newest checkpoint left it; the checkpoint, if there is one."""
    run, state = training.run, training.state
    found = find_checkpoint(run, training.logbook)
    training.ranks.order(Order(Do.RESTORE, 0 if found is None else found.step))
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
    begin(state, training.hardware.precision)
    accounts(training)  # all ranks begin with the same weights, or do not begin
    state.settings = replayed(state.settings, answers_in(run))
    training.logbook.num_steps = state.step
    return found


def _restore_fork(training: Training, checkpoint: checkpoint_folders.Checkpoint, differences: list[str]) -> None:
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


def _trained(training: Training, keeper: Keeper, resumed: checkpoint_folders.Checkpoint | None) -> int:
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


def _introduce(run: Run, hardware: Hardware, logbook: Logbook, num_processes: int) -> None:
    import socket

    for warning in warnings(probe(run.folder)):
        logbook.warn(warning)
    logbook.event(
        RunOpened(
            host=socket.gethostname(),
            device=f"{hardware.device.type}: {hardware.name}",
            driver=hardware.driver,
            versions=versions(),
            num_threads=hardware.num_threads,
            world_size=num_processes,
            identity=this_process(),
        )
    )


def _started(training: Training, resumed: checkpoint_folders.Checkpoint | None) -> RunStarted:
    prepared, model = training.prepared, training.model
    evaluation, state = prepared.evaluation, training.state
    last = value_at(state.settings, "max_steps", state.step + 1)
    mark, reasons = reproducibility(state, training.profile, training.hardware)
    max_steps = prepared.plan.max_steps if last is None else int(last)
    return RunStarted(
        start_step=state.step,
        max_steps=max_steps,
        steps_per_epoch=prepared.plan.steps_per_epoch,
        effective_batch=prepared.plan.effective_batch,
        num_train_rows=prepared.train.num_rows,
        num_train_tokens=prepared.epoch_tokens,
        num_target_tokens=prepared.epoch_target_tokens,
        num_eval_rows=0 if evaluation is None else evaluation.num_rows,
        num_tokens_ahead=prepared.plan.num_tokens(state.step, max_steps),
        stages=prepared.plan.first_steps,
        total_parameters=num_parameters(model),
        trainable_parameters=sum(weight.numel() for weight in model.parameters() if weight.requires_grad),
        model=Path(training.profile.model.name_or_path or "from scratch").name,
        method=training.profile.adapter.method,
        precision=training.hardware.precision,
        resumed_from=None if resumed is None else f"checkpoints/{resumed.path.name}",
        reproducibility=None if resumed is None else mark,
        reproducibility_reasons=[] if resumed is None else reasons,
    )
