"""The most that a run takes which samples its answers: all of them as long as they may be, to the longest prompts."""

import math
from typing import Any

from ftui.profile.schema import Profile
from ftui.rollouts.dealt_answers import dealt_size, largest_part
from ftui.runs.run_folder import Run

from ..models.model_parts import ModelParts
from ..planning.plan import Reuse
from ..runtime.control_flags import Control
from ..runtime.event_writer import EventWriter
from ..training.peak_memory import time_steps
from ..training.prepare import TrainingData
from .measured_rollout import measured_rollout, repeat_answers
from .phase_clock import PhaseClock


def run_longest_answers(
    run: Run, profile: Profile, data: TrainingData, parts: ModelParts, events: EventWriter, clock: PhaseClock,
    num_steps: int,
) -> dict[str, Any]:  # fmt: skip
    """Generate and score as many answers at once as a run does, then take steps as `run_longest` of other stages does.

    `rollout` in what is measured: seconds and peak (bytes, `None`: hidden) of each phase. The seconds are those
    of a process's part of a rollout for `generating`, of a whole one for `scoring`, of each token for `log_probs`, of a
    step for `updating`.

    Raises:
        ModelError: as many answers at once do not fit, or a prompt cannot be answered.
        GpuMemoryError, HostMemoryError: the steps only fit in smaller micro-batches, or not at all.
    """
    section, size = profile.sampled, profile.micro_batch
    in_rollout = profile.rows_per_step * section.steps_and_passes[0] * section.num_generations
    num_processes = profile.hardware.num_processes
    dealt = dealt_size(in_rollout, section.num_generations, section.max_num_seqs, num_processes)
    part = largest_part(in_rollout, dealt, num_processes)
    at_once = min(part, section.max_num_seqs or part)
    longest = data.train.longest_first.tolist()
    num_prompts = math.ceil(at_once / section.num_generations)
    with measured_rollout(run, profile, data, parts, events, clock) as phases:
        examples = [longest[place % len(longest)] for place in range(num_prompts)]
        rollout = phases.answer(examples, stop_ids=(), at_once=at_once)
        learned = repeat_answers(rollout, size * min(2, profile.accumulation))
        source = phases.learn(learned, [len(learned)], Reuse())
    with clock.phase("updating"):
        seconds = time_steps(profile, data, parts, source, Control(), events, num_steps)
    num_tokens = sum(map(len, learned.prompt_ids)) + sum(map(len, learned.completion_ids))
    share = {
        "generating": part / len(rollout), "log_probs": 1 / num_tokens,
        "updating": seconds / clock.costs["updating"].seconds,
    }  # fmt: skip
    return {
        "step_seconds": seconds, "num_tokens": num_tokens, "micro_batch": size, "longest_example": None,
        "longest": max(map(len, learned.prompt_ids)) + section.max_completion_length,
        "rollout": {
            name: {"seconds": cost.seconds * share.get(name, in_rollout / len(rollout)), "process": cost.process}
            for name, cost in clock.costs.items()
        },
    }  # fmt: skip
