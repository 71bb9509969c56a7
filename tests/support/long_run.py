"""Made-up runs of any length, for measuring what the screens cost. Nothing here is shown to anybody as measured."""

import math
import os
import time
from pathlib import Path

import msgspec

from ftui.runs.curves import CurveReader, write_curves
from ftui.runs.events import PhaseChanged, Step
from ftui.runs.journal import Writer
from ftui.runs.records.signs_of_life import Telemetry
from ftui.runs.records.supervisor_records import EngineStarted
from ftui.runs.run_folder import Run, RunFacts
from ftui.runs.status import Status, Watch
from ftui.system.files import open_private, replace_file
from ftui.system.process_id import this_process
from ftui.system.segments import begin_anew
from tests.support.events import (
    make_checkpoint_saved,
    make_evaluation,
    make_run_opened,
    make_run_started,
    make_step,
)

TOKEN = "0" * 16
SEGMENT_BYTES = 16 << 20  # as the engine has it (engine/runtime/event_writer.py), whose libraries are not needed here


def step_record(number: int, per_epoch: int, now: float) -> Step:
    noise = math.sin(number * 12.9898) * 0.3
    return make_step(
        number, epoch=number / per_epoch, loss=1.0 + 2.0 * math.exp(-number / (3 * per_epoch)) + noise * 0.4,
        learning_rate=2e-4 * (1 - number / (10 * per_epoch)), grad_norm=0.5 + abs(noise), num_tokens=8192,
        num_target_tokens=4096, tokens_per_second=18_000 + 900 * noise, memory=40 << 30, time=now, token=TOKEN,
    )  # fmt: skip


def make_run(folder: Path, steps: int, log_lines: int, *, evaluations: int = 200) -> Run:
    """A run of this many steps that lives as long as this process, as its files would be after so long."""
    run = Run(folder)
    folder.mkdir(parents=True)
    now, per_epoch = time.time() - 60, max(1, steps // 4)
    facts = RunFacts(run_id=TOKEN, name=folder.name, created=now - steps, profile_name="made-up")
    replace_file(run.facts, msgspec.json.encode(facts))
    _write_events(run, steps, per_epoch, now, evaluations)
    encode = msgspec.json.Encoder().encode
    descriptor = open_private(run.metrics, os.O_RDWR | os.O_APPEND)
    for number in range(1, steps + 1):
        if number % 1000 == 0 and os.fstat(descriptor).st_size >= SEGMENT_BYTES:
            descriptor = begin_anew(run.metrics, descriptor, keep=None)
        os.write(descriptor, encode(step_record(number, per_epoch, now - steps + number)) + b"\n")
    os.close(descriptor)
    with run.engine_log.open("wb") as file:
        file.writelines(
            b"line %d of what an engine might print while it works\n" % number for number in range(log_lines)
        )
    summarise(run)
    return run


def _write_events(run: Run, steps: int, per_epoch: int, now: float, evaluations: int) -> None:
    identity = this_process()
    supervisor = Writer(run.supervisor_log, attempt=1, token=TOKEN)
    supervisor.write(EngineStarted(identity=identity))
    supervisor.close()
    journal = Writer(run.journal, attempt=1, token=TOKEN)
    journal.write(make_run_opened(device="cuda: NVIDIA H100 80GB HBM3", driver="570", identity=identity))
    journal.write(make_run_started(
        max_steps=int(steps * 1.3), steps_per_epoch=per_epoch, effective_batch=16, total_parameters=8 * 10**9,
        trainable_parameters=10**7, model="made-up-8b", precision="bf16",
    ))  # fmt: skip
    journal.write(PhaseChanged(phase="training"))
    for number in range(1, evaluations + 1):
        step = number * steps // evaluations
        loss = 1.1 + 2.0 * math.exp(-step / (3 * per_epoch))
        journal.write(make_evaluation(step, loss, epoch=step / per_epoch, best=True))
    journal.close()
    with run.telemetry.open("wb") as file:
        for second in range(600):
            file.write(msgspec.json.encode(Telemetry(time=now + second, attempt=1, cpu_utilization=0.5)) + b"\n")


def summarise(run: Run) -> None:
    """status.json and curves.json, as a supervisor leaves them."""
    watch = Watch(run)
    watch.catch_up()
    status = Status(
        time=time.time(), state=watch.state, supervisor=this_process(), engine=this_process(), offsets=watch.offsets
    )
    replace_file(run.status, msgspec.json.encode(status))
    reader = CurveReader(run)
    while reader.advance():
        continue
    write_curves(run, reader)


class Growing:
    """Goes on with a made-up run: `grow(n)` writes n more steps."""

    def __init__(self, run: Run, steps: int) -> None:
        self._per_epoch = max(1, steps // 4)
        self._next = steps + 1
        self._metrics = Writer(run.metrics, attempt=1, token=TOKEN, longest=SEGMENT_BYTES)
        self._journal = Writer(run.journal, attempt=1, token=TOKEN)
        self._telemetry = Writer(run.telemetry, attempt=1, token=TOKEN)

    def grow(self, number: int) -> None:
        for _ in range(number):
            self._metrics.write(step_record(self._next, self._per_epoch, time.time()))
            self._next += 1

    def evaluate(self) -> None:
        """What an evaluation, a checkpoint and a second of the machine add to the other files."""
        step = self._next - 1
        self._journal.write(PhaseChanged(phase="evaluating"))
        self._journal.write(make_evaluation(step, 1.0 + math.sin(step) / 9, epoch=step / self._per_epoch))
        self._journal.write(make_checkpoint_saved(step))
        self._journal.write(PhaseChanged(phase="training"))
        self._telemetry.write(Telemetry(cpu_utilization=0.5))

    def close(self) -> None:
        for writer in (self._metrics, self._journal, self._telemetry):
            writer.close()
