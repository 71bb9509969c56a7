"""The process of one tracker. An error of its library ends it, and the last line of its log says why."""

import importlib.util
import os
import resource
import signal
import sys
import time
import tomllib
from pathlib import Path

from ftui.profile.tracker_names import GROUP, TRACKERS, own_trackers
from ftui.runs.events import EvaluationDone, Sampled, Step
from ftui.runs.records.health_records import HealthAlarm
from ftui.runs.run_folder import Run
from ftui.system.lifeline import LEFT_SECONDS, Lifeline, wait_for_predecessor
from ftui.system.redact import redact_output
from ftui.system.segments import total_bytes

from .metric_names import evaluation_values, hardware_values, step_values
from .position import Position, load_position, save_position
from .run_reader import Point, RunReader, rewind, take_if_new
from .sinks import Sink, TrackedRun, open_sink

LOOK_SECONDS = 1.0
DISTRIBUTIONS = {"mlflow": "mlflow-skinny"}
LARGEST_FILE = 1 << 30  # bytes: a tracker that runs wild does not fill the disk


def main(arguments: list[str]) -> int:
    """Follow a run for one tracker. `arguments`: the run's folder, the tracker's name, the lifeline's descriptor.

    Returns the exit code, 1 where the tracker's library is not installed.
    """
    folder, name, descriptor = arguments
    os.umask(0o077)
    os.nice(10)  # the engine comes first
    redact_output()
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):  # the lifeline says when to go
        signal.signal(number, lambda number, frame: None)
    hard = resource.getrlimit(resource.RLIMIT_FSIZE)[1]
    resource.setrlimit(resource.RLIMIT_FSIZE, (LARGEST_FILE if hard < 0 else min(LARGEST_FILE, hard), hard))
    lifeline = Lifeline(int(descriptor), left_seconds=LEFT_SECONDS)
    if missing := _missing(name):
        print(missing, file=sys.stderr)
        return 1
    run = Run(Path(folder))
    lock = wait_for_predecessor(run.trackers / f"{name}.lock")
    follow_run(run, name, lifeline)
    lock.close()
    return 0


def _missing(name: str) -> str:
    """What is not installed that this tracker needs; nothing where all is."""
    if name not in TRACKERS:
        return "" if name in own_trackers() else f"no installed package brings a tracker {name!r} ({GROUP})"
    if importlib.util.find_spec(name) is not None:
        return ""
    return f"{name} is not installed (pip install {DISTRIBUTIONS.get(name, name)})"


def follow_run(run: Run, name: str, lifeline: Lifeline) -> None:
    """Hand on what comes until nothing more does."""
    path = run.trackers / f"{name}.json"
    position = load_position(path)
    lifeline.report_alive()
    sink = open_sink(name, describe_run(run), position)
    news = RunReader(run, position)
    end = None  # of metrics.jsonl when the lifeline ended: with another supervisor the run may go on
    while end is None or (news.has_moved and position.metrics < end):
        sink.flush()
        save_position(path, position)
        if end is None and lifeline.has_ended(0.0 if news.has_moved else LOOK_SECONDS):
            end = total_bytes(run.metrics)
        lifeline.report_alive()
        send_news(news, sink, position)
    sink.close(badly=position.ended_badly)
    save_position(path, position)


def describe_run(run: Run) -> TrackedRun:
    """The run as a tracker's library is told of it."""
    facts, text = run.read_facts(), run.profile.read_text()
    return TrackedRun(facts.run_id, run.name, facts.name, run.trackers, tomllib.loads(text), text)


def send_news(news: RunReader, sink: Sink, position: Position) -> None:
    """Read what is new in the run's files once, and hand it to the tracker."""
    back_to, points, hardware = news.look()
    if back_to is not None and sink.forget(back_to, time.time()):
        rewind(position, back_to)
    for point in points:
        if take_if_new(position, point):
            _send(sink, point, position)
    for sample in hardware:
        if position.step >= 0 and (values := hardware_values(sample)):
            sink.scalars(position.step, sample.time, values)


def _send(sink: Sink, point: Point, position: Position) -> None:
    match point:
        case Step():
            sink.scalars(point.step, point.time, step_values(point))
        case EvaluationDone():
            sink.scalars(point.step, point.time, evaluation_values(point))
        case Sampled():
            name = f"samples/{position.prompts.index(point.prompt)}"  # two of one name and step would be one
            sink.text(point.step, point.time, name, point.prompt, point.completion)
        case HealthAlarm():
            sink.text(point.step, point.time, f"alarms/{point.rule}", point.evidence, point.suggestion)
            sink.scalars(point.step, point.time, {f"alarms/{point.level}": 1.0})


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
