"""What a comparison says of recorded runs, and of runs made to differ in one thing."""

import shutil
from pathlib import Path

import msgspec
import pytest

from ftui.errors import UsageError
from ftui.evaluation.results import RowAnswer, RowLoss, RowResult
from ftui.reports.run_curves import AXES, interpolate, read_run_curves
from ftui.reports.run_differences import RunComparison, check_number, compare
from ftui.reports.run_record import read_record, read_records
from ftui.runs.events import EvaluationDone, RunOpened, Step
from ftui.runs.journal import Tail, encode
from ftui.runs.manifest import MANIFEST, read_manifest, write_manifest
from ftui.runs.run_folder import Run
from tests.support.replayed import list_recordings, replay


def compared(*runs: Run) -> RunComparison:
    records = read_records([*runs])
    return compare(records, [read_run_curves(record) for record in records])


def copy_of(run: Run, name: str) -> Run:
    shutil.copytree(run.folder, run.folder.parent / name)
    return Run(run.folder.parent / name)


@pytest.fixture
def twins(tmp_path: Path) -> tuple[Run, Run]:
    run = replay("wiki-style-finished", tmp_path)
    return run, copy_of(run, "twin")


def test_equal_runs_differ_in_nothing(twins: tuple[Run, Run]) -> None:
    comparison = compared(*twins)
    assert comparison.differences == {} and comparison.warnings == [] and comparison.num_same > 80
    for lines in (comparison.results, comparison.evaluations, comparison.equal):
        assert lines and all(len({*line.values}) == 1 for line in lines)


def test_a_changed_key_is_all_that_differs(twins: tuple[Run, Run]) -> None:
    run, twin = twins
    text = twin.profile.read_text()
    assert "learning_rate = 0.004" in text
    twin.profile.write_text(text.replace("learning_rate = 0.004", "learning_rate = 0.002"))
    (line,) = compared(run, twin).differences["profile"]
    assert (line.name, line.values) == ("train.learning_rate", ["0.004", "0.002"])


def test_other_evaluation_rows_are_warned_of(twins: tuple[Run, Run]) -> None:
    run, twin = twins
    for folder in [twin.final, *twin.checkpoints.glob("checkpoint-*")]:
        manifest = read_manifest(folder)
        prints = manifest.fingerprints | {"evaluation_data": "0" * 64}
        (folder / MANIFEST).unlink()
        write_manifest(folder, msgspec.structs.replace(manifest, fingerprints=prints))
    comparison = compared(run, twin)
    assert "evaluation rows differ" in comparison.warnings[0]
    (line,) = comparison.differences["data and base"]
    assert line.name == "evaluation rows" and line.values[1] == "0" * 12
    for folder in [twin.final, *twin.checkpoints.glob("checkpoint-*")]:
        shutil.rmtree(folder)
    assert "is not known: no checkpoint of twin says it" in compared(run, twin).warnings[0]


def evaluated(run: Run, name: str, digest: str, losses: list[float], **scores: float) -> None:
    """What `ftui evaluate` leaves behind, of a model and its base."""
    folder = run.evaluations / name
    folder.mkdir(parents=True)
    settings = {
        "sides": [{"title": f"{run.name}/final"}], "data": "/somewhere/test.jsonl", "num_rows": None,
        "max_new_tokens": 16, "sampling": "greedy", "sha256": {f"/at/{run.name}.jsonl": digest},
    }  # fmt: skip
    (folder / "evaluation.json").write_bytes(msgspec.json.encode(settings))
    side = f"{run.name}/final"
    rows: list[RowResult] = [
        RowLoss(part="data", number=n, where="", side=side, nats=loss * 4, num_targets=4, num_right=2)
        for n, loss in enumerate(losses)
    ]
    rows.append(RowAnswer(number=0, where="", side=side, reference="a", answer="a", ending="stop", scores=scores))
    (folder / "rows.jsonl").write_bytes(b"".join(msgspec.json.encode(row) + b"\n" for row in rows))


def test_evaluations_of_both_on_the_same_rows_stand_beside_each_other(twins: tuple[Run, Run]) -> None:
    run, twin = twins
    evaluated(run, "one", "aa", [1.0, 3.0], exact_match=0.5, mine=2.0)
    assert compared(run, twin).measured == {}, "one alone is no comparison"
    evaluated(twin, "other-rows", "bb", [9.0])
    assert compared(run, twin).measured == {}
    evaluated(twin, "one", "aa", [1.0, 1.5], exact_match=0.25)
    (twin.evaluations / "torn").mkdir()
    (twin.evaluations / "torn" / "evaluation.json").write_text('{"sides": 1')
    ((title, lines),) = compared(run, twin).measured.items()
    assert title == "evaluated on test.jsonl"
    figures = {line.name: line.values for line in lines}
    assert figures["model"] == [f"{run.name}/final", "twin/final"]
    assert figures["loss"] == ["2", "1.25"] and figures["mine"] == ["2", "n/a"]
    assert figures["rows"] == ["2", "2"]


def test_versions_and_the_card_are_compared(twins: tuple[Run, Run]) -> None:
    run, twin = twins
    records = Tail(twin.journal).read()
    changed = [
        msgspec.structs.replace(r, device="cuda: NVIDIA L4", versions=r.versions | {"torch": "2.6.0"})
        if isinstance(r, RunOpened)
        else r
        for r in records
    ]
    twin.journal.write_bytes(b"".join(map(encode, changed)))
    differences = compared(run, twin).differences
    assert [line.name for line in differences["machine"]] == ["card"]
    assert [(line.name, line.values[1]) for line in differences["versions"]] == [("torch", "2.6.0")]
    price = read_record(twin).dollars
    assert price is not None and price == pytest.approx(0.44 * read_record(twin).seconds / 3600)


@pytest.mark.parametrize("name", list_recordings())
def test_curves_are_those_of_the_records(name: str, tmp_path: Path) -> None:
    """Ends of the axes and sums against the records themselves."""
    run = replay(name, tmp_path)
    record = read_record(run)
    curves = read_run_curves(record)
    steps = {r.step: r for r in Tail(run.metrics).read() if isinstance(r, Step)}  # of a step taken twice the later one
    assert record.seconds >= 0
    if not steps:
        assert curves.line("loss", "step") == [] and curves.end("step") is None
        return
    assert curves.end("step") == max(steps)
    assert curves.end("tokens") == sum(step.num_target_tokens for step in steps.values())
    assert curves.end("epoch") == steps[max(steps)].epoch
    end = curves.end("time")
    assert end is not None and 0 < end <= record.seconds
    assert "money" not in curves.positions  # a CPU has no price
    losses = [step.loss for _, step in sorted(steps.items())]
    line = curves.line("loss", "step", smoothing=0)
    low = min(place.low for place in line if place.low is not None)
    assert low == min(loss for loss in losses if loss is not None)
    for axis in AXES:
        places = [place.last for place in curves.line("loss", axis)]
        assert places == sorted(places)


def test_money_runs_with_time_at_the_price_of_the_profile(twins: tuple[Run, Run]) -> None:
    run, _ = twins
    text = run.profile.read_text()
    head, _, tail = text.partition("[hardware]\n")
    assert tail
    run.profile.write_text(f"{head}[hardware]\nprice_per_hour = 3.6\n" + tail.replace('price_per_hour = "none"\n', ""))
    record = read_record(run)
    assert record.dollars == pytest.approx(record.seconds / 1000)
    curves = read_run_curves(record)
    time, money = curves.end("time"), curves.end("money")
    assert time is not None and money == pytest.approx(time / 1000)
    at = curves.value_at("loss", "money", time / 2000)
    assert at == pytest.approx(curves.value_at("loss", "time", time / 2))


def test_evaluations_are_those_of_the_line_that_counts(tmp_path: Path) -> None:
    run = replay("wiki-style-finished", tmp_path)
    there = {r.step for r in Tail(run.journal).read() if isinstance(r, EvaluationDone)}
    assert {one.step for one in read_record(run).evaluations} == there


def test_only_two_to_six_runs_are_compared(tmp_path: Path) -> None:
    for number in (0, 1, 7):
        with pytest.raises(UsageError):
            check_number(number)
    run = replay("exploded", tmp_path)
    with pytest.raises(UsageError, match="named twice"):
        read_records([run, run])


def test_small_helpers() -> None:
    points = [(0.0, 1.0), (2.0, 3.0), (2.0, 4.0), (4.0, 8.0)]
    assert [interpolate(points, x) for x in (-1, 0, 1, 3, 9)] == [1.0, 1.0, 2.0, 6.0, 8.0]
