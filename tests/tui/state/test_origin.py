"""Where a child run began: its parents are found by their ids, and what they did before counts once."""

from pathlib import Path

import msgspec
import pytest

from ftui.runs.curves import AttemptCurves, Curves, Series
from ftui.runs.run_folder import Run, RunFacts
from ftui.tui.state.origin import Origin, read_origin


def put(root: Path, name: str, own: range, parent: str | None = None, checkpoint: str | None = None) -> Run:
    """A run that took these steps; its loss at each is the step itself."""
    run = Run(root / name)
    run.folder.mkdir(parents=True)
    facts = RunFacts(
        f"id-of-{name}", name, 0.0, "p", parent_run=f"id-of-{parent}" if parent else None, parent_name=parent,
        parent_checkpoint=checkpoint,
    )  # fmt: skip
    run.facts.write_bytes(msgspec.json.encode(facts))
    series = Series()
    for step in own:
        series.add(step, float(step))
    run.metrics.write_bytes(b"\n" * 9)
    attempt = AttemptCurves(1, "", own.start - 1, own.stop - 1, {"loss": series})
    run.curves.write_bytes(msgspec.json.encode(Curves(offset=9, attempts=[attempt])))
    return run


def steps_of(origin: Origin | None) -> list[int]:
    assert origin is not None
    return [step for stretch in origin.line for step in range(stretch.first, stretch.last + 1)]


def test_the_losses_of_all_runs_before_it_are_one_line(tmp_path: Path) -> None:
    put(tmp_path, "first", range(1, 61))
    put(tmp_path, "second", range(31, 91), "first", "checkpoint-30")
    third = put(tmp_path, "third", range(51, 55), "second", "checkpoint-50")
    origin = read_origin(third)
    assert steps_of(origin) == list(range(1, 51)) and origin is not None
    assert (origin.step, origin.parent) == (50, "second")
    assert [stretch.mean for stretch in origin.line][29:31] == [30.0, 31.0]


@pytest.mark.parametrize(("steps", "begin"), [(10, 3), (512, 500), (1000, 999), (5000, 1203), (5000, 5000)])
def test_it_ends_where_the_child_begins(tmp_path: Path, steps: int, begin: int) -> None:
    """Also in the middle of steps that were put together."""
    put(tmp_path, "elder", range(1, steps + 1))
    child = put(tmp_path, "child", range(begin + 1, begin + 2), "elder", f"checkpoint-{begin}")
    assert steps_of(read_origin(child)) == list(range(1, begin + 1))


def test_a_parent_with_another_name_is_found(tmp_path: Path) -> None:
    put(tmp_path, "elder", range(1, 9))
    child = put(tmp_path, "child", range(5, 9), "elder", "checkpoint-4")
    put(tmp_path, "other", range(1, 9)).folder.rename(tmp_path / "nobody")
    (tmp_path / "elder").rename(tmp_path / "renamed")
    assert steps_of(read_origin(child)) == [1, 2, 3, 4]


@pytest.mark.parametrize("damage", ["gone", "another", "no-curves", "no-facts", "cycle"])
def test_what_is_missing_leaves_the_line_empty(tmp_path: Path, damage: str) -> None:
    elder = put(tmp_path, "elder", range(1, 9), *(("child", "checkpoint-0") if damage == "cycle" else ()))
    child = put(tmp_path, "child", range(5, 9), "elder", "checkpoint-4")
    if damage == "gone":
        elder.folder.rename(tmp_path.parent / f"{tmp_path.name}-away")
    elif damage == "another":  # a new run under the name of the old one
        elder.facts.write_bytes(msgspec.json.encode(RunFacts("id-of-new", "elder", 0.0, "p")))
    elif damage != "cycle":
        (elder.curves if damage == "no-curves" else elder.facts).write_bytes(b"{")
    origin = read_origin(child)
    assert origin is not None and origin.step == 4
    assert steps_of(origin) == ([1, 2, 3, 4] if damage == "cycle" else [])


def test_no_child_has_no_origin(tmp_path: Path) -> None:
    assert read_origin(put(tmp_path, "first", range(1, 3))) is None
    assert read_origin(Run(tmp_path / "nowhere")) is None
