"""Measures where the time of a profile's steps goes, on this machine's device; keeps nothing.

It takes real steps of the plan with the engine's own modules: first to warm up, then without torch's profiler, then
with it, the same rows each time. In a stage that samples answers these are steps on the first rollout, which is made
once, its phases timed.
"""

import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from torch.profiler import ProfilerActivity, record_function
from torch.profiler import profile as torch_profiler

from ftui.errors import DiskError, HardwareError
from ftui.estimate.step.step_profile import OpTime, RolloutTime, StepProfile, TimeShare
from ftui.profile.schema import Profile
from ftui.runs.run_folder import Run

from ..distributed.process_group import ProcessGroup
from ..models.model_parts import ModelParts
from ..planning.mixing import reuse_of
from ..planning.plan import Row
from ..profile_step.machine_speed import bandwidth, product_rate, wait_for
from ..profile_step.marks import STEPS
from ..profile_step.measured_rollout import measured_rollout
from ..profile_step.phase_clock import PhaseClock
from ..profile_step.read_trace import StepTimes, divide_steps, events_of
from ..runtime.control_flags import Control
from ..runtime.event_writer import EventWriter
from ..system.device import find_hardware
from ..system.environment import versions
from ..system.memory import no_memory, release_cached_memory
from ..system.rng import RngState
from ..system.train_state import MICRO_BATCH, TrainState
from ..training.forward_backward import ForwardBackward
from ..training.prefetch import Prefetcher, StepSource
from ..training.prepare import TrainingData
from ..training.step import SMALLER, StepRunner
from .probe import build_training, profile_of_process


def profile_step(on_detail: Callable[[str], None], profile: str, num_steps: int, trace: str | None) -> StepProfile:
    """Measure steps of a profile (TOML, every path absolute) in one process here, of a run of several its part.

    Args:
        trace: a file to write torch's chrome trace of the steps to.

    Raises:
        FtuiError: it cannot run here, does not fit in micro-batches of that size, or the trace cannot be written.
    """
    with tempfile.TemporaryDirectory() as folder:
        run = Run(Path(folder) / "profile")
        run.folder.mkdir()
        events = EventWriter(run, attempt=1, token="", is_silent=True)
        values = profile_of_process(profile)
        if find_hardware(values).device.type == "mps":
            raise HardwareError("torch's profiler does not see an Apple GPU.", hint='Set hardware.device = "cpu".')
        data, parts = build_training(values, run, on_detail)
        return _Measurement(run, values, data, parts, events, on_detail).take(num_steps, trace)


class _Measurement:
    """Steps of one training, taken again and again."""

    def __init__(
        self, run: Run, profile: Profile, data: TrainingData, parts: ModelParts, events: EventWriter,
        on_detail: Callable[[str], None],
    ) -> None:  # fmt: skip
        self.run, self.profile, self.data, self.parts = run, profile, data, parts
        self.events, self.on_detail = events, on_detail
        self.rollout: RolloutTime | None = None
        self.lengths: list[int] = []  # of each sequence in the steps under the profiler
        self.num_rows = self.num_targets = 0  # all steps together
        self.positions: list[int] = []  # of each micro-batch, padding included
        parts.module.register_forward_pre_hook(lambda _, given: self.positions.append(given[0].input_ids.numel()))

    def take(self, num_steps: int, trace: str | None) -> StepProfile:
        """Warm up, measure, measure again with the profiler; then the machine itself."""
        data, device, ranks, state = self.data, self.parts.device, ProcessGroup(), TrainState()
        num_steps = min(num_steps, data.plan.max_steps)
        activities = [ProfilerActivity.CPU, *([ProfilerActivity.CUDA] if device.type == "cuda" else [])]
        with self._source(num_steps) as source:
            train = self.profile.train
            passes = ForwardBackward(self.parts, ranks, source, train.max_grad_norm, Control(), self.events)
            steps = StepRunner(self.profile, data.plan, self.parts, state, ranks, self.events, passes)
            self._run(steps, num_steps, "warming up")
            seconds, cpu_seconds = self._run(steps, num_steps, "taking steps")
            self.positions.clear()
            with torch_profiler(activities=activities, record_shapes=trace is not None) as profiler:
                self._run(steps, num_steps, "taking steps under the profiler")
        if (fitting := state.value_at(MICRO_BATCH, state.step)) is not None:
            size = self.profile.micro_batch
            raise no_memory(device, f"micro-batches of {size} rows; {fitting:.0f} would fit", SMALLER)
        if trace is not None:
            _write_trace(profiler, Path(trace))
        self.on_detail("reading what the profiler recorded")
        times = divide_steps(events_of(profiler))
        cpu_share = None if device.type == "cuda" else cpu_seconds / seconds
        return self._answer(times, num_steps, seconds / num_steps, cpu_share)

    @contextmanager
    def _source(self, num_steps: int) -> Iterator[StepSource]:
        """Where the batches come from: of rows, the first steps of the plan again and again."""
        data, layout = self.data, self.parts.layout
        if self.profile.samples_answers:
            yield self._answers(num_steps)
            return

        def rows_of(step: int) -> list[Row]:
            return self._own_rows(1 + (step - 1) % num_steps)

        train, rows = data.train, [row for number in range(num_steps) for row in rows_of(number + 1)]
        examples = [number for row in rows for number in row]
        sequences = train.indices.reshape(-1, train.per_example)[examples].reshape(-1)
        self.num_rows, self.num_targets = len(rows), int(train.sequences.num_targets[sequences].sum())
        self.lengths = [int(length) for length in train.sequences.lengths[sequences]]
        with Prefetcher(data, ProcessGroup(), rows_of, layout=layout) as prefetcher:
            yield prefetcher

    def _own_rows(self, step: int) -> list[Row]:
        """A process's part of a step: micro-batches of rows, or prompts with all their answers, are dealt in turn."""
        rows, number = self.data.plan.step(step), self.profile.hardware.num_processes
        size = 1 if self.profile.samples_answers else self.profile.micro_batch
        return [row for start in range(0, len(rows), size * number) for row in rows[start : start + size]]

    def _answers(self, num_steps: int) -> StepSource:
        """The first rollout, its phases timed; the steps on it come again and again."""
        clock, reuse = PhaseClock(self.parts.device, None), reuse_of(self.profile)
        rows = [self._own_rows(part + 1) for part in range(reuse.num_steps)]
        with measured_rollout(self.run, self.profile, self.data, self.parts, self.events, clock) as phases:
            self.on_detail("generating and scoring the answers of a rollout")
            rollout = phases.answer([example for step in rows for row in step for example in row])
            source = phases.learn(rollout, [len(step) for step in rows], reuse)
        self.rollout = RolloutTime(
            num_answers=len(rollout), num_tokens=sum(map(len, rollout.completion_ids)), num_steps=reuse.length,
            seconds={name: cost.seconds for name, cost in clock.costs.items()},
        )  # fmt: skip
        for number in range(2 * num_steps, 3 * num_steps):  # after those that warm up and those that are timed
            answers = source.answers_of(number + 1)
            prompts = [len(rollout.prompt_ids[answer // rollout.group_size]) for answer in answers]
            targets = [len(rollout.completion_ids[answer]) for answer in answers]
            self.num_rows, self.num_targets = self.num_rows + len(answers), self.num_targets + sum(targets)
            self.lengths += [sum(both) for both in zip(prompts, targets, strict=True)]
        return source

    def _run(self, steps: StepRunner, num_steps: int, what: str) -> tuple[float, float]:
        """Take steps; their seconds, and those for which this thread had a core."""
        device = self.parts.device
        wait_for(device)
        start, cpu_start = time.perf_counter(), time.thread_time()
        with record_function(STEPS):
            for number in range(num_steps):
                self.on_detail(f"{what}: {number + 1} of {num_steps}")
                steps.run(RngState.capture(device))
            wait_for(device)
        return time.perf_counter() - start, time.thread_time() - cpu_start

    def _answer(self, times: StepTimes, num_steps: int, step_seconds: float, cpu_share: float | None) -> StepProfile:
        hardware = self.parts.hardware
        shares: dict[Any, float] = {}
        operations: dict[Any, list[float]] = {}
        unit = 1e-9 / num_steps
        for label, nanoseconds in times.times.items():
            place = label.kind, label.phase
            shares[place] = shares.get(place, 0.0) + nanoseconds * unit
            time_and_calls = operations.setdefault((label.name, label.kind), [0.0, 0.0])
            time_and_calls[0] += nanoseconds * unit
            time_and_calls[1] += times.calls[label] / num_steps
        self.on_detail("measuring how fast this machine multiplies and copies")
        release_cached_memory(hardware.device)
        return StepProfile(
            device=hardware.name, is_gpu=hardware.device.type == "cuda", precision=hardware.precision,  # type: ignore[arg-type]
            num_threads=hardware.num_threads, num_steps=num_steps,
            num_micro_batches=len(self.positions) / num_steps,
            step_seconds=step_seconds, profiled_seconds=times.total * unit, cpu_share=cpu_share,
            num_rows=self.num_rows / num_steps, num_positions=sum(self.positions) / num_steps,
            num_targets=self.num_targets / num_steps, lengths=self.lengths, rollout=self.rollout,
            shares=[TimeShare(kind, phase, seconds) for (kind, phase), seconds in shares.items()],
            operations=[OpTime(name, kind, *own) for (name, kind), own in operations.items()],
            product_rate=product_rate(hardware.device, hardware.compute_dtype),
            bandwidth=bandwidth(hardware.device), versions=versions(),
        )  # fmt: skip


def _write_trace(profiler: torch_profiler, path: Path) -> None:
    """The chrome trace, whole or not there; with a name that ends in .gz it is compressed."""
    partial = path.with_name(f".partial-{path.name}")
    try:
        profiler.export_chrome_trace(str(partial))
        partial.replace(path)
    except (OSError, RuntimeError) as error:
        partial.unlink(missing_ok=True)
        raise DiskError(f"The trace cannot be written to {path}: {error}.") from error
