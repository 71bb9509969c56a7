"""A rank above 0: its part of every step, nothing else. Rank 0 reads, decides and writes (engine/recipe.py)."""

from ftui.runs.checkpoint_folders import Checkpoint
from ftui.runs.run_folder import Run

from ..checkpoints.checkpoint import read_own_weights, restore
from ..models.model_parts import ModelParts
from ..models.weights import all_finite
from ..optim.optimizer import allocate_state
from ..system.memory import UpdateMemoryError
from ..system.rng import RngState
from ..system.train_state import TrainState
from ..training.forward_backward import ForwardBackward, MemoryShortage
from ..training.step import update_weights
from .gather_shards import gather_one
from .node_files import bring_checkpoint
from .process_group import Action, ProcessGroup, RankCommand
from .rank_state import encode_rank_state
from .sharded_base import fill_up
from .shared_work import SharedWork, WorkerShare


def run_worker(
    run: Run, ranks: ProcessGroup, parts: ModelParts, passes: ForwardBackward, shared: SharedWork | None, seed: int
) -> int:
    """Do what rank 0 orders until it says that this is the end; returns the exit code.

    Raises:
        RankLostError: rank 0, or another, is gone.
        FtuiError: the error of a rank's part of a shared work, on all.
    """
    last, boundary = -1, RngState.capture(parts.device)
    share = WorkerShare(ranks, parts, shared)
    while (command := ranks.next_order()).action != Action.END:
        share.obey(command)
        match command:
            case RankCommand(action=Action.RESTORE, number=0):
                allocate_state(parts.optimizer)
            case RankCommand(action=Action.RESTORE, number=step):
                checkpoint = Checkpoint(bring_checkpoint(ranks, run, step), step)
                restore(parts, TrainState(), checkpoint, ranks.rank, seed)
            case RankCommand(action=Action.STEP):
                if command.number != last:  # else memory ran out, and the step is taken again
                    boundary, last = RngState.capture(parts.device), command.number
                result = passes.run(command.number, command.size, command.factor, boundary)
                if isinstance(result, MemoryShortage) and result.is_final:
                    ranks.leave_word(result.problem)
                    raise UpdateMemoryError(f"Memory ran out in a pass of step {command.number} ({result.problem}).")
            case RankCommand(action=Action.FORWARD):
                fill_up(parts, 1, backward=False)
            case RankCommand(action=Action.APPLY):
                update_weights(parts.optimizer, ranks, command.factor)
                parts.optimizer.zero_grad(set_to_none=True)
            case RankCommand(action=Action.DROP):
                parts.optimizer.zero_grad(set_to_none=True)
            case RankCommand(action=Action.READ, number=step):
                folder = bring_checkpoint(ranks, run, step)
                if parts.base is not None and parts.base.is_trained:  # else the best weights are rank 0's to export
                    read_own_weights(parts, folder)
            case RankCommand(action=Action.GATHER):
                gather_one(parts, command.number)
            case RankCommand(action=Action.CHECK_FINITE):
                ranks.any(not all_finite(parts.model))
            case RankCommand(action=Action.SEND_STATE):
                ranks.gather(encode_rank_state(parts))
    return 0
