"""A training run from start to end: hardware, rows, model, loop, result. The whole engine on one page."""

from pathlib import Path

from ftui import checkpoints
from ftui.engine.accounts import accounts
from ftui.engine.assembly import assembled, model_of
from ftui.engine.badge import badge, machine_differences, note
from ftui.engine.checkpoint import Keeper, expected_bytes, restore
from ftui.engine.control import Control, Leave
from ftui.engine.data.stores.cache import cache_folder
from ftui.engine.desk import answers_in
from ftui.engine.difficulty import with_losses
from ftui.engine.environment import versions
from ftui.engine.follow import follow
from ftui.engine.generate import sample
from ftui.engine.hardware import Hardware, find_hardware
from ftui.engine.leaving import conclude, leave
from ftui.engine.logbook import Logbook
from ftui.engine.loop import Loop
from ftui.engine.optim import allocate_state
from ftui.engine.preparation import prepare
from ftui.engine.quantised import num_parameters
from ftui.engine.ranks import Do, Order, join
from ftui.engine.requests import Requests
from ftui.engine.resume import as_begun, check_same, find_checkpoint, forked, is_fork
from ftui.engine.rng import seed_everything
from ftui.engine.scaling import begin
from ftui.engine.settings import replayed, value_at
from ftui.engine.speed import settle_speed
from ftui.engine.training import Training
from ftui.errors import ModelError, ProfileError
from ftui.events import RunOpened, RunStarted
from ftui.identity import this_process
from ftui.profile.sections import Profile
from ftui.run import Run
from ftui.volume import check_room, probe, warnings


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


def _resume(training: Training) -> checkpoints.Checkpoint | None:
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


def _started(training: Training, resumed: checkpoints.Checkpoint | None) -> RunStarted:
    prepared, model = training.prepared, training.model
    evaluation, state = prepared.evaluation, training.state
    last = value_at(state.settings, "max_steps", state.step + 1)
    mark, reasons = badge(state, training.profile, training.hardware)
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
        badge=None if resumed is None else mark,
        badge_reasons=[] if resumed is None else reasons,
    )
