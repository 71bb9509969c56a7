"""A training run from start to end: hardware, rows, model, loop, result. The whole engine on one page."""

import socket
from collections.abc import Callable
from functools import partial
from pathlib import Path

from ftui.profile.schema import Profile
from ftui.runs.checkpoint_folders import Checkpoint, checkpoints_in
from ftui.runs.events import RunOpened, RunStarted
from ftui.runs.run_folder import Run
from ftui.system.process_id import this_process
from ftui.system.user_folders import cache_folder
from ftui.system.volume import check_room, probe, warnings

from .build import assemble, build_model, check_nodes_inputs, describe_provenance
from .check_profile import check_profile, find_config
from .checkpoints.checkpoint import CheckpointManager
from .checkpoints.export import export
from .checkpoints.reproducibility import Provenance, encode_machine, reproducibility
from .checkpoints.resume import pin_commit, resume
from .distributed.process_group import Action, ProcessGroup, RankCommand, join
from .distributed.sharded_base import naming_lost_ranks
from .distributed.worker_rank import run_worker
from .evaluation.generated_answers import AnswerMeasures
from .generation.answer_requests import RequestAnswerer
from .generation.load_trained import answering_model
from .health.watch import HealthWatch
from .inspection.measured_reference import describe_reference
from .models.model_parts import ModelParts
from .models.quantization import num_parameters
from .optim.learning_rate import LearningRate
from .reinforcement.rollout_maker import RolloutShare
from .reinforcement.start import make_rollout_share, rollouts_before_steps, step_source
from .runtime.budget_watch import BudgetWatch, find_price, watch_budget
from .runtime.control_flags import Control, Shutdown
from .runtime.disk_wait import DiskWait
from .runtime.event_writer import EventWriter
from .system.device import Hardware, find_hardware, settle_torch
from .system.environment import versions
from .system.rng import seed_everything
from .system.train_state import TrainState
from .training.evaluate import Evaluator, check_forward
from .training.forward_backward import ForwardBackward
from .training.generate import TextGenerator
from .training.initial_model import InitialModel
from .training.loop import Loop
from .training.prepare import TrainingData, prepare
from .training.request_handlers import RequestHandler
from .training.shutdown import RunEnd
from .training.step import StepRunner
from .training.triggers import evaluation_is_due, last_step


def train(run: Run, profile: Profile, events: EventWriter, control: Control) -> int:
    """Train the run in its folder, from its newest checkpoint if there is one; returns the exit code.

    Raises:
        FtuiError: anything a person can act on, from the module that knows the remedy.
        Shutdown: the run was told to end before it began to train.
        RankLostError: another rank of this run is gone.
    """
    if checkpoints := checkpoints_in(run.checkpoints):
        control.has_checkpoint, events.num_steps = True, checkpoints[0].step
    hardware = find_hardware(profile)
    settle_torch(profile, hardware)
    ranks = join(hardware, profile)
    if ranks.is_leader:
        control.budget = _introduce(run, profile, hardware, events, ranks.size)
    cache = cache_folder(run.folder / "cache")

    def report(detail: str) -> None:
        control.poll()
        events.progress(detail=detail)

    events.set_phase("preparing", "reading the rows")
    warn = events.warn if checkpoints else None
    revision = ranks.from_leader(lambda: pin_commit(run, profile).model.revision)
    pinned = profile.model_copy(update={"model": profile.model.model_copy(update={"revision": revision})})
    data = ranks.leader_first(lambda: _check_and_prepare(pinned, hardware, cache, report, warn))
    for warning in data.warnings:
        events.warn(warning)
    control.poll()

    events.set_phase("loading", "the model")
    seed_everything(profile.train.seed)
    parts = assemble(profile, data, build_model(profile, data, hardware, ranks), hardware, ranks)
    disk_wait = DiskWait(run, events, control, profile.checkpoint.max_hold_minutes)
    machines = ranks.gather(encode_machine(profile, parts.hardware, parts.attention, ranks.size))
    provenance = describe_provenance(profile, data, machines, cache, events) if ranks.is_leader else Provenance({}, {})
    check_nodes_inputs(ranks, data, provenance.fingerprints, cache)
    data = InitialModel(run, profile, parts, ranks, provenance.fingerprints, disk_wait, events, report).complete(data)
    if not checkpoints and (note := describe_reference(data.train)):
        events.note(note)
    with naming_lost_ranks(), step_source(profile, data, parts, ranks) as source:
        max_norm, keeps_rows = profile.train.max_grad_norm, profile.keeps_row_losses
        passes = ForwardBackward(parts, ranks, source, max_norm, control, events, keeps_rows)
        state = TrainState()
        share = make_rollout_share(run, profile, data, parts, ranks, state, source, disk_wait, control, events)
        if not ranks.is_leader:
            return run_worker(run, ranks, parts, passes, share, profile.train.seed)
        code = _lead(run, profile, data, parts, ranks, provenance, state, passes, share, disk_wait, events, control)
    ranks.order(RankCommand(Action.END))
    return code


def _check_and_prepare(
    profile: Profile, hardware: Hardware, cache: Path, report: Callable[[str], None], warn: Callable[[str], None] | None
) -> TrainingData:
    check_profile(profile, find_config(profile, cache, report), hardware, warn=warn)
    return prepare(profile, cache, report)


def _lead(
    run: Run,
    profile: Profile,
    data: TrainingData,
    parts: ModelParts,
    ranks: ProcessGroup,
    provenance: Provenance,
    state: TrainState,
    passes: ForwardBackward,
    share: RolloutShare | None,
    disk_wait: DiskWait,
    events: EventWriter,
    control: Control,
) -> int:
    """Rank 0: resume, train to the end, export; returns the exit code."""
    if parts.base is not None:
        parts.base.lead(parts)
    resumed = resume(run, parts, state, ranks, provenance, data.plan, profile, events)
    limit = profile.checkpoint.save_total_limit
    checkpoints = CheckpointManager(run, parts, data.tokenizer, state, ranks, events, disk_wait, provenance, limit)
    check_room(run.folder, checkpoints.expected_bytes)
    events.make_reserve()
    control.poll()
    generator = TextGenerator(profile, data, parts, state, control, events)
    measures = AnswerMeasures.of_run(run, profile, data, generator, events)
    watch = HealthWatch(profile, parts, events, control, run.name)
    evaluator = None
    if data.evaluation is not None:
        evaluator = Evaluator(profile, data, parts, state, control, events, measures, watch)
    model = answering_model(profile, parts.model, data.encoder, parts.hardware)
    answerer = RequestAnswerer(run, profile, model, state, control, events)
    result = partial(export, run, profile, data, parts, state, events, generator, checkpoints)
    end = RunEnd(profile.checkpoint, state, control, events, checkpoints, result)
    _obey_requests(run, profile, data, parts, state, control, events, evaluator, generator, answerer, checkpoints)
    with end, answerer, rollouts_before_steps(
        run, profile, data, parts, state, share, generator, evaluator, disk_wait, control, events
    ) as before_step:  # fmt: skip
        try:
            if evaluator is None or not evaluation_is_due(profile.eval, data.plan, state):
                check_forward(profile, data, parts)
            events.write(_describe_start(profile, data, parts, state, resumed), durable=True)
            rows = data.train.sequences.counts.fingerprint if profile.keeps_row_losses else None
            events.begin_ledger(rows, state.step)
            if state.step == 0:
                state.samples_before = generator.answer(profile.eval.sample_prompts)
            steps = StepRunner(profile, data.plan, parts, state, ranks, events, passes, watch)
            loop = Loop(profile, data.plan, state, control, events, evaluator, checkpoints, before_step)
            return end.finish(loop.run(steps, parts.device))
        except Shutdown as shutdown:
            return end.leave(shutdown)


def _obey_requests(
    run: Run,
    profile: Profile,
    data: TrainingData,
    parts: ModelParts,
    state: TrainState,
    control: Control,
    events: EventWriter,
    evaluator: Evaluator | None,
    generator: TextGenerator,
    answerer: RequestAnswerer,
    checkpoints: CheckpointManager,
) -> None:
    """From now on requests are handled that a run in training obeys."""
    assert control.inbox is not None, "the engine opens the inbox before it trains"
    handler = RequestHandler(
        run, data, LearningRate(profile.train, data.plan), parts, state, events, control.inbox, evaluator,
        generator, answerer, checkpoints,
    )  # fmt: skip
    control.start_training(handler.handle, partial(checkpoints.collect, only_whole=True), answerer.forget)


def _introduce(run: Run, profile: Profile, hardware: Hardware, events: EventWriter, num_processes: int) -> BudgetWatch:
    """Record where the run is and what that costs, and warn of a volume that is not fit for it."""
    device, limits = f"{hardware.device.type}: {hardware.name}", profile.budget
    price = find_price(profile, device, num_processes, events)
    for warning in warnings(probe(run.folder)):
        events.warn(warning)
    events.write(
        RunOpened(
            host=socket.gethostname(),
            device=device,
            driver=hardware.driver,
            versions=versions(),
            num_threads=hardware.num_threads,
            world_size=num_processes,
            identity=this_process(),
            dollars_per_hour=None if price is None else price.dollars_per_hour,
            price_basis="" if price is None else price.basis,
            max_money=limits.max_money,
            max_hours=limits.max_hours,
        )
    )
    return watch_budget(run, limits, price, events)


def _describe_start(
    profile: Profile, data: TrainingData, parts: ModelParts, state: TrainState, resumed: Checkpoint | None
) -> RunStarted:
    plan, model, max_steps = data.plan, parts.model, last_step(data.plan, state)
    exactness, reasons = reproducibility(state, profile, parts.hardware)
    return RunStarted(
        start_step=state.step,
        max_steps=max_steps,
        steps_per_epoch=0 if profile.draws_prompts else plan.steps_per_epoch,
        effective_batch=plan.effective_batch,
        num_train_rows=data.train.num_rows,
        num_train_tokens=data.epoch_tokens,
        num_target_tokens=data.epoch_target_tokens,
        num_eval_rows=0 if data.evaluation is None else data.evaluation.num_rows,
        num_sequences=plan.rows_per_epoch,
        epoch_shift=state.epoch_shift,
        num_tokens_ahead=None if profile.samples_answers else plan.num_tokens(state.step, max_steps),
        stages=plan.first_steps,
        total_parameters=num_parameters(model),
        trainable_parameters=sum(weight.numel() for weight in model.parameters() if weight.requires_grad),
        model=Path(profile.model.name_or_path or "from scratch").name,
        method=profile.adapter.method,
        precision=parts.hardware.precision,
        resumed_from=None if resumed is None else f"checkpoints/{resumed.path.name}",
        reproducibility=None if resumed is None else exactness,
        reproducibility_reasons=[] if resumed is None else reasons,
    )
