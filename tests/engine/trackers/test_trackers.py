"""What trackers are given: all that counts, each once, whatever crashes; read back with TensorBoard's own reader."""

import json
import math
import os
import struct
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Literal

import msgspec
import numpy as np
import pytest

from ftui.engine.trackers.__main__ import describe_run, send_news
from ftui.engine.trackers.position import Position, load_position, save_position
from ftui.engine.trackers.run_reader import RunReader
from ftui.engine.trackers.sinks import Sink, TrackedRun, open_sink
from ftui.profile.schema import LogSection
from ftui.profile.tracker_names import check_tracker, own_trackers
from ftui.runs.events import RankSeconds, Sampled, Step
from ftui.runs.journal import Tail, Writer
from ftui.runs.records.health_records import HealthAlarm
from ftui.runs.records.record import Record
from ftui.runs.run_folder import Run, RunFacts
from tests.support.events import make_evaluation, make_run_started, make_step


@pytest.fixture
def run(tmp_path: Path) -> Run:
    run = Run(tmp_path / "mine")
    run.folder.mkdir()
    run.profile.write_text('[run]\nstage = "sft"\n[train]\nlearning_rate = 0.5\n')
    facts = RunFacts(run_id="00112233aabbccdd", name="mine", created=1.0, profile_name="mine")
    run.facts.write_bytes(msgspec.json.encode(facts))
    return run


def step(number: int, loss: float | None, **fields: Any) -> Step:
    facts = {"learning_rate": 1e-4 * number, "grad_norm": 1.5, "num_tokens": 100 + number, "tokens_per_second": 1234.5}
    return make_step(number, loss=loss, **(facts | {"memory": 1 << 20} | fields))


def write(path: Path, attempt: int, *records: Record) -> None:
    writer = Writer(path, attempt=attempt, token=f"token-{attempt}")
    for record in records:
        writer.write(record)
    writer.close()


class Looker:
    """One life of a tracker's process, without the process: what it is given is stored unless it crashes first."""

    def __init__(self, run: Run, name: str = "tensorboard") -> None:
        self.path = run.folder / f"{name}.json"
        self.position = load_position(self.path)
        subject = TrackedRun("00112233aabbccdd", "mine", "mine", run.folder, {}, run.profile.read_text())
        self.sink: Sink = open_sink(name, subject, self.position)
        self.news = RunReader(run, self.position)

    def look(self, *, crash: bool = False) -> None:
        send_news(self.news, self.sink, self.position)
        self.sink.flush()
        if not crash:
            save_position(self.path, self.position)

    def __enter__(self) -> "Looker":
        return self

    def __exit__(self, *error: object) -> None:
        self.sink.close(badly=False)


class Remembering:
    """A sink that cannot forget."""

    def __init__(self) -> None:
        self.told: list[tuple[int, dict[str, float]]] = []
        self.said: list[str] = []

    def scalars(self, step: int, time: float, values: dict[str, float]) -> None:
        self.told.append((step, values))

    def text(self, step: int, time: float, name: str, prompt: str, completion: str) -> None:
        self.said.append(f"{step} {name} {prompt}")

    def forget(self, step: int, time: float) -> bool:
        return False

    def flush(self) -> None: ...

    def close(self, *, badly: bool) -> None: ...


def read_back(run: Run) -> dict[str, list[tuple[int, float]]]:
    from tensorboard.backend.event_processing.event_accumulator import SCALARS, EventAccumulator

    found = EventAccumulator(str(run.folder / "tensorboard"), size_guidance={SCALARS: 0}).Reload()
    return {tag: [(e.step, e.value) for e in found.Scalars(tag)] for tag in found.Tags()["scalars"]}


def losses(run: Run) -> list[tuple[int, float]]:
    return read_back(run)["train/loss"]


def test_a_renamed_run_is_known_to_trackers_as_before(run: Run) -> None:
    renamed = Run(run.folder.rename(run.folder.with_name("yours")))
    before, subject = "00112233aabbccdd", describe_run(renamed)
    assert (subject.run_id, subject.first_name, subject.name) == (before, "mine", "yours")
    assert subject.folder == renamed.trackers and subject.profile["train"] == {"learning_rate": 0.5}


def test_every_figure_under_the_name_that_transformers_gives_it(run: Run) -> None:
    ranks = RankSeconds([1.0, 1.5], [0.0, 0.5], [1.0, 0.0])
    write(
        run.journal,
        1,
        make_run_started(),
        make_evaluation(0, 3.25, seconds=2.0, extras={"rewards/margins": 0.25, "kl": None}),
        Sampled(step=0, prompt="Who?", completion="Me."),
    )
    write(run.metrics, 1, step(1, 2.7), step(2, math.inf, extras={"rewards/margins": 0.3}, ranks=ranks))
    with Looker(run) as looker:
        looker.look()
    found = read_back(run)
    assert found.pop("train/slowest_rank") == [(2, 1.0)]
    assert found.pop("train/slowest_rank_seconds") == [(2, 2.0)]
    assert found.pop("train/communication_share") == [(2, 0.25)]
    rates = [(1, float(np.float32(1e-4))), (2, float(np.float32(2e-4)))]
    assert found.pop("train/learning_rate") == rates
    assert found["train/loss"][0] == (1, float(np.float32(2.7))) and math.isnan(found.pop("train/loss")[1][1])
    assert found.pop("train/rewards/margins") == [(2, float(np.float32(0.3)))]
    assert found == {
        "train/grad_norm": [(1, 1.5), (2, 1.5)],
        "train/epoch": [(1, float(np.float32(0.1))), (2, float(np.float32(0.2)))],
        "train/num_tokens": [(1, 101), (2, 102)],
        "train/num_target_tokens": [(1, 50), (2, 50)],
        "train/tokens_per_second": [(1, 1234.5), (2, 1234.5)],
        "train/memory": [(1, 1 << 20), (2, 1 << 20)],
        "eval/loss": [(0, 3.25)],
        "eval/runtime": [(0, 2.0)],
        "eval/rewards/margins": [(0, 0.25)],
    }
    written = next((run.folder / "tensorboard").iterdir())
    assert b"Who?" in written.read_bytes() and b"learning_rate = 0.5" in written.read_bytes()
    assert written.stat().st_mode & 0o777 == 0o600


def test_steps_that_are_taken_again_stand_there_once(run: Run) -> None:
    asked = [Sampled(step=4, prompt=prompt, completion="-") for prompt in ("a", "b", "a")]
    write(run.journal, 1, make_run_started(), make_evaluation(4, 1.0), make_evaluation(8, 0.9), *asked)
    write(run.metrics, 1, *(step(n, float(n)) for n in range(1, 10)))
    memory, position = Remembering(), Position()
    news = RunReader(run, position)
    with Looker(run) as looker:
        looker.look()
    send_news(news, memory, position)
    write(run.journal, 2, make_run_started(4), make_evaluation(4, 1.0), make_evaluation(8, 0.5))
    write(run.metrics, 1, step(10, 10.0))  # a last word of the attempt before
    write(run.metrics, 2, *(step(n, n + 100.0) for n in range(5, 12)))
    with Looker(run) as looker:
        looker.look()
    send_news(news, memory, position)
    expected = [(n, float(n)) for n in range(1, 5)] + [(n, n + 100.0) for n in range(5, 12)]
    assert losses(run) == expected
    assert read_back(run)["eval/loss"] == [(4, 1.0), (8, 0.5)]
    steps = [(n, values["train/loss"]) for n, values in memory.told if "train/loss" in values]
    assert steps == [*((n, float(n)) for n in range(1, 10)), (10, 110.0), (11, 111.0)], "what was told stays told"
    assert [values["eval/loss"] for _, values in memory.told if "eval/loss" in values] == [1.0, 0.9]
    assert memory.said == ["4 samples/0 a", "4 samples/1 b"]
    late, position = Remembering(), Position()
    send_news(RunReader(run, position), late, position)
    assert [(n, values["train/loss"]) for n, values in late.told if "train/loss" in values] == expected
    assert [n for n, _ in late.told] == sorted(n for n, _ in late.told)


def alarm(rule: str, level: Literal["red", "amber"], number: int) -> HealthAlarm:
    return HealthAlarm(rule=rule, level=level, step=number, evidence=f"{rule} has numbers", suggestion="Do this.")


def test_alarms_of_engine_and_supervisor_are_texts_and_marks(run: Run) -> None:
    """Those of steps that are taken again go with them; a second look and another process tell none twice."""
    write(run.journal, 1, make_run_started(), alarm("dead_adapter", "red", 5))
    write(run.metrics, 1, *(step(n, float(n)) for n in range(1, 9)))
    write(run.supervisor_log, 1, alarm("spike", "amber", 3), alarm("disk", "amber", 8))
    memory, position = Remembering(), Position()
    with Looker(run) as looker:
        looker.look()
        looker.look()
    write(run.journal, 2, make_run_started(4))
    write(run.metrics, 2, *(step(n, float(n)) for n in range(5, 10)))
    write(run.supervisor_log, 2, alarm("clipping", "amber", 9))
    with Looker(run) as looker:
        looker.look()
    send_news(RunReader(run, position), memory, position)
    found = read_back(run)
    assert found["alarms/amber"] == [(3, 1.0), (9, 1.0)]
    assert not found.get("alarms/red"), "step 5 was taken again, without it"
    assert memory.said == ["3 alarms/spike spike has numbers", "9 alarms/clipping clipping has numbers"]
    assert [(n, values) for n, values in memory.told if "alarms/amber" in values] == [
        (3, {"alarms/amber": 1.0}), (9, {"alarms/amber": 1.0}),
    ]  # fmt: skip
    assert b"Do this." in next((run.folder / "tensorboard").iterdir()).read_bytes()


def test_a_position_that_nobody_can_read_is_the_beginning(tmp_path: Path) -> None:
    """What a stranger's folder holds in its place neither hangs nor fills a tracker's process."""
    path = tmp_path / "tensorboard.json"
    os.mkfifo(path)
    assert load_position(path) == Position()
    path.unlink()
    path.write_bytes(b'{"starts":' * 100_000)
    assert load_position(path) == Position()


def test_a_tracker_that_dies_leaves_no_gap_and_no_double(run: Run) -> None:
    write(run.metrics, 1, step(1, 1.0), step(2, 2.0))
    with Looker(run) as looker:
        looker.look()
        write(run.metrics, 1, step(3, 3.0))
        write(run.journal, 1, Sampled(step=3, prompt="a", completion="b"), make_evaluation(3, 5.0))
        looker.look(crash=True)
    write(run.metrics, 1, step(4, 4.0))
    with Looker(run) as looker:
        looker.look()
    assert losses(run) == [(n, float(n)) for n in range(1, 5)]
    assert read_back(run)["eval/loss"] == [(3, 5.0)]
    file = next((run.folder / "tensorboard").iterdir())
    file.write_bytes(file.read_bytes()[:100])  # power was lost: the disk never got the rest
    with Looker(run) as looker:
        looker.look()
    assert losses(run) == [(n, float(n)) for n in range(1, 5)]
    assert len(list((run.folder / "tensorboard").iterdir())) == 1


def test_more_than_one_piece_and_a_torn_line(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("ftui.engine.trackers.run_reader.PIECE", 700)
    write(run.metrics, 1, *(step(n, float(n)) for n in range(1, 30)))
    with run.metrics.open("ab") as file:
        file.write(b'{"kind":"step","v":1')
    with Looker(run) as looker:
        for _ in range(40):
            looker.look()
    assert losses(run) == [(n, float(n)) for n in range(1, 30)]


def follow(run: Run, name: str, **env: str) -> "subprocess.CompletedProcess[str]":
    """The whole process of a tracker whose lifeline has ended: it hands on what there is and goes."""
    theirs, ours = os.pipe()
    os.close(ours)
    try:
        return subprocess.run(
            [sys.executable, "-P", "-m", "ftui.engine.trackers", str(run.folder), name, str(theirs)],
            pass_fds=(theirs,), capture_output=True, text=True, timeout=60, env=os.environ | env, check=False,
        )  # fmt: skip
    finally:
        os.close(theirs)


def wandb_rows(path: Path) -> Iterator[dict[str, Any]]:
    """The rows of a .wandb file: records in blocks of 32 KiB, as LevelDB's log has them."""
    from wandb.proto import wandb_internal_pb2

    data, at, record = path.read_bytes(), 7, b""
    while at + 7 <= len(data):
        if (left := 32768 - at % 32768) < 7:
            at += left
            continue
        length, kind = struct.unpack("<HB", data[at + 4 : at + 7])
        record += data[at + 7 : at + 7 + length]
        at += 7 + length
        if kind in (1, 4):  # whole, or the last of its parts
            parsed = wandb_internal_pb2.Record()
            parsed.ParseFromString(record)
            record = b""
            if parsed.WhichOneof("record_type") == "history":
                items = parsed.history.item
                yield {item.key or "/".join(item.nested_key): json.loads(item.value_json) for item in items}


def test_wandb_without_a_key_writes_a_folder_and_says_so(run: Run, tmp_path: Path) -> None:
    """The real library, twice: the second process goes on where the first one stopped."""
    pytest.importorskip("wandb")
    write(run.journal, 1, make_run_started(), Sampled(step=0, prompt="<Who>?", completion="Me."))
    write(run.metrics, 1, *(step(n, n / 7) for n in range(1, 4)))
    write(run.supervisor_log, 1, alarm("spike", "amber", 2))
    run.trackers.mkdir()
    env = {"HOME": str(tmp_path), "WANDB_API_KEY": "", "WANDB_BASE_URL": "http://127.0.0.1:9"}
    assert (result := follow(run, "wandb", **env)).returncode == 0, result.stderr
    write(run.metrics, 1, *(step(n, n / 7) for n in range(4, 6)))
    secret = {"WANDB_MODE": "offline", "WANDB_API_KEY": "c" * 40}
    assert (result := follow(run, "wandb", **env | secret)).returncode == 0, result.stderr
    rows = [row for path in sorted(run.trackers.glob("wandb/wandb/offline-run-*/*.wandb")) for row in wandb_rows(path)]
    told = [(row["train/global_step"], row["train/loss"]) for row in rows if "train/loss" in row]
    assert told == [(n, n / 7) for n in range(1, 6)]
    assert len([row for row in rows if "samples/0/path" in row]) == 1
    assert [row["train/global_step"] for row in rows if "alarms/amber" in row] == [2]
    assert len([row for row in rows if "alarms/spike/path" in row]) == 1
    note = load_position(run.trackers / "wandb.json").note
    assert note.startswith("No API key configured") and "wandb sync" in note and "offline-run-" in note
    assert len(list(run.trackers.glob("wandb/wandb/offline-run-*/run-00112233aabbccdd.wandb"))) == 2
    assert not (tmp_path / ".cache").exists() and not (tmp_path / ".local").exists()
    written = b"".join(p.read_bytes() for p in tmp_path.rglob("*") if p.is_file())
    assert b"cccccccc" not in written


def test_one_that_hangs_ends_when_the_run_is_over(run: Run, tmp_path: Path) -> None:
    """Its stacks stand in its log; nothing but its own process is needed for that."""
    (tmp_path / "wandb.py").write_text("import time\nclass Settings:\n    def __init__(self, **k): time.sleep(60)\n")
    run.trackers.mkdir()
    theirs, ours = os.pipe()
    code = (
        "import sys, ftui.engine.trackers.__main__ as tracker; tracker.LEFT_SECONDS = 1.0; "
        f"raise SystemExit(tracker.main([{str(run.folder)!r}, 'wandb', '{theirs}']))"
    )
    env = os.environ | {"PYTHONPATH": f"{tmp_path}:{os.environ.get('PYTHONPATH', '')}"}
    process = subprocess.Popen([sys.executable, "-c", code], pass_fds=(theirs,), stderr=subprocess.PIPE, env=env)
    os.close(theirs)
    with pytest.raises(subprocess.TimeoutExpired):
        process.wait(2)
    process.terminate()  # nor does it go because a pod is told to
    begun = time.monotonic()
    os.close(ours)
    _, written = process.communicate(timeout=20)
    assert process.returncode == 1 and b"Timeout" in written and b"wandb.py" in written
    assert time.monotonic() - begun < 10


MLFLOW = """
import json, os, pathlib

class Metric:
    def __init__(self, key, value, timestamp, step):
        self.key, self.value, self.stamp, self.step = key, value, timestamp, step

class Param:
    def __init__(self, key, value): self.key, self.value = key, value

class MlflowClient:
    def __init__(self):
        self.folder = pathlib.Path(os.environ["MLFLOW_TRACKING_URI"].removeprefix("file://"))
    def note(self, *words):
        with (self.folder / "calls.jsonl").open("a") as file:
            file.write(json.dumps(words) + "\\n")
    def get_experiment_by_name(self, name): return None
    def create_experiment(self, name): return name
    def create_run(self, experiment, run_name, tags):
        self.note("create", experiment, run_name, tags)
        info = type("Info", (), {"run_id": "r1"})
        return type("Run", (), {"info": info})
    def update_run(self, run_id, status, name): self.note("update", run_id, status, name)
    def log_batch(self, run_id, metrics=(), params=()):
        assert len(metrics) <= 1000 and len(params) <= 100
        for one in metrics: self.note("metric", run_id, one.key, one.value, one.stamp, one.step)
        for one in params: self.note("param", run_id, one.key, one.value)
    def log_text(self, run_id, text, artifact_file): self.note("text", run_id, artifact_file, text)
    def set_terminated(self, run_id, status): self.note("end", run_id, status)
"""
AIM = """
import json, pathlib

class Text(str): pass

class Run:
    def __init__(self, run_hash, repo, experiment, **settings):
        assert not any(settings.values()) and len(settings) == 3, settings
        self.hash, self.file = run_hash or "h1", pathlib.Path(repo) / "calls.jsonl"
        self.note("run", run_hash, experiment)
    def note(self, *words):
        with self.file.open("a") as file:
            file.write(json.dumps(words) + "\\n")
    def __setitem__(self, name, value): self.note("set", name, value)
    def track(self, value, name, step, context=None): self.note("track", value, name, step, context)
    def close(self): self.note("close")
"""


def calls(path: Path) -> list[list[Any]]:
    return [json.loads(line) for line in path.read_text().splitlines()]


def followed_twice(run: Run, name: str, tmp_path: Path, **modules: str) -> list[list[Any]]:
    """What a stand-in of a tracker's library was told in two lives of the tracker's process."""
    for module, code in modules.items():
        path = tmp_path / "site" / module.replace("_", "/")
        path.mkdir(parents=True)
        (path / "__init__.py").write_text(code)
    write(run.journal, 1, make_run_started(), Sampled(step=0, prompt="<Who>?", completion="Me."))
    write(run.metrics, 1, step(1, 0.5), step(2, math.nan))
    run.trackers.mkdir()
    env = {"PYTHONPATH": f"{tmp_path / 'site'}:{os.environ.get('PYTHONPATH', '')}", "MLFLOW_TRACKING_URI": ""}
    assert (result := follow(run, name, **env)).returncode == 0, result.stderr
    write(run.metrics, 1, step(3, 0.25))
    assert (result := follow(run, name, **env)).returncode == 0, result.stderr
    return calls(run.trackers / name / "calls.jsonl")


def test_mlflow_gets_each_step_once_with_its_time_and_one_run(run: Run, tmp_path: Path) -> None:
    """A stand-in for its client: the library brings 45 distributions. docs/trackers.md says which one was tried."""
    told = followed_twice(
        run, "mlflow", tmp_path, mlflow="", mlflow_entities=MLFLOW, mlflow_tracking="from mlflow.entities import *"
    )
    assert told[0] == ["create", "ftui", "mine", {"ftui.run_id": "00112233aabbccdd"}]
    assert ["param", "r1", "train.learning_rate", "0.5"] in told
    losses = [line for line in told if line[:3] == ["metric", "r1", "train/loss"]]
    stamps = [round(record.time * 1000) for record in Tail(run.metrics).read()]
    assert [line[4:] for line in losses] == [[stamp, number] for number, stamp in enumerate(stamps, start=1)]
    assert (losses[0][3], losses[2][3]) == (0.5, 0.25) and math.isnan(losses[1][3])
    assert ["text", "r1", "samples/0/step-000000.txt", "<Who>?\n\nMe."] in told
    assert [line for line in told if line[0] in ("create", "update", "end")][1:] == [
        ["end", "r1", "FINISHED"], ["update", "r1", "RUNNING", "mine"], ["end", "r1", "FINISHED"],
    ]  # fmt: skip


def test_aim_gets_each_step_once_and_one_run(run: Run, tmp_path: Path) -> None:
    told = followed_twice(run, "aim", tmp_path, aim=AIM)
    assert [line for line in told if line[0] == "run"] == [["run", None, "ftui"], ["run", "h1", "ftui"]]
    losses = [line for line in told if line[0] == "track" and line[2:3] == ["loss"]]
    assert [line[3] for line in losses] == [1, 2, 3] and losses[0] == ["track", 0.5, "loss", 1, {"subset": "train"}]
    assert ["track", "<Who>?\n\nMe.", "samples/0", 0, None] in told and told[-1] == ["close"]


OWN = """
import json

class Tracker:
    def __init__(self, run):
        self.path = run.folder / "mine.txt"
        self.write(["begin", run.name, run.profile["train"]["learning_rate"]])
    def write(self, words):
        with self.path.open("a") as file:
            file.write(json.dumps(words) + "\\n")
    def scalars(self, step, time, values):
        self.write([step, values["train/loss"]])
"""


def test_a_package_of_ones_own_brings_a_tracker(run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A distribution as pip installs it: a module, and the metadata that names it."""
    site = tmp_path / "site"
    (site / "our_tracker-1.0.dist-info").mkdir(parents=True)
    (site / "our_tracker.py").write_text(OWN)
    (site / "our_tracker-1.0.dist-info" / "METADATA").write_text(
        "Metadata-Version: 2.1\nName: our-tracker\nVersion: 1.0\n"
    )
    points = "[ftui.trackers]\nours = our_tracker:Tracker\n../up = our_tracker:Tracker\nwandb = our_tracker:Tracker\n"
    (site / "our_tracker-1.0.dist-info" / "entry_points.txt").write_text(points)
    write(run.metrics, 1, step(1, 0.5), step(2, 0.25))
    run.trackers.mkdir()
    missing = follow(run, "ours")
    assert missing.returncode == 1 and "no installed package brings a tracker 'ours'" in missing.stderr
    env = {"PYTHONPATH": f"{site}:{os.environ.get('PYTHONPATH', '')}"}
    assert (result := follow(run, "ours", **env)).returncode == 0, result.stderr
    assert calls(run.trackers / "mine.txt") == [["begin", "mine", 0.5], [1, 0.5], [2, 0.25]]

    with pytest.raises(ValueError, match="there is no tracker 'ours'"):
        check_tracker("ours")
    monkeypatch.syspath_prepend(str(site))
    assert check_tracker("ours") == "ours" and [*own_trackers()] == ["ours"]
    with pytest.raises(ValueError, match="Did you mean ours"):
        check_tracker("our")
    assert LogSection.model_validate({"report_to": ["ours", "wandb"]}).report_to == ("ours", "wandb")
