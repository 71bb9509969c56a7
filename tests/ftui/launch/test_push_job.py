from pathlib import Path

import pytest
from msgspec.structs import replace

from ftui.errors import DiskFullError, FtuiError, UsageError
from ftui.launch.long_job import LongJob
from ftui.launch.push_job import describe_push, push_job
from ftui.runs.manifest import MANIFEST
from ftui.runs.run_folder import Run
from ftui.runs.state import Push, RunState
from ftui.system import volume
from ftui.system.process_id import this_process
from tests.support.shelf import finished, opened, saved


@pytest.fixture
def run(tmp_path: Path) -> Run:
    return finished(tmp_path / "runs" / "mine")


def plan(job: LongJob) -> dict[str, str]:
    return {label: text for label, text in job.plan}


@pytest.mark.parametrize(("public", "seen_by"), [(False, "you only"), (True, "everybody")])
def test_it_says_what_goes_where_before_anything_does(run: Run, public: bool, seen_by: str) -> None:
    job = push_job(run, None, "hub:me/mine", public=public)
    assert job.title == "push mine@final to hub:me/mine" and plan(job)["seen by"].startswith(seen_by)
    assert plan(job)["sends"] == "final: 1 file, 1.0 KiB", "not what only a resumed run needs"


def test_room_is_asked_for_copies(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    to = "command:rclone copy {folder} remote:x"
    assert "needed" in plan(push_job(run, "checkpoint-8", to))["disk"]
    monkeypatch.setattr(volume, "free_bytes", lambda folder: 100)
    with pytest.raises(DiskFullError, match="100 B free"):
        push_job(run, None, to)


def test_a_folder_that_has_become_full_is_no_reason_not_to_go_on(
    run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Most of it may be there already: the push itself asks for the room of what is missing."""
    target = tmp_path / "out" / "mine"
    monkeypatch.setattr(volume, "free_bytes", lambda folder: 100)
    assert plan(push_job(run, None, str(target)))["disk"].startswith("1.0 KiB at most") and not target.exists()


@pytest.mark.parametrize(("what", "to", "words"), [
    ("base", "hub:me/mine", "The base"), ("checkpoint-9999", "hub:me/mine", "has no checkpoint-9999"),
    ("x" * 300, "hub:me/mine", "names no checkpoint"), (None, "hub:../up", "no name on the hub"),
    (None, "elsewhere", "is no target"),
])  # fmt: skip
def test_what_cannot_be_pushed(run: Run, what: str | None, to: str, words: str) -> None:
    with pytest.raises(FtuiError, match=words):
        push_job(run, what, to)


@pytest.mark.parametrize(("manifest", "words"), [(None, "missing"), ("{", "unreadable"), ("[]", "unreadable")])
def test_an_export_that_is_not_whole_is_not_pushed(run: Run, manifest: str | None, words: str) -> None:
    export = run.exports / "final-bf16"
    export.mkdir(parents=True)
    if manifest is not None:
        (export / MANIFEST).write_text(manifest)
    with pytest.raises(UsageError, match=f"final-bf16 of mine is damaged: {MANIFEST}: {words}"):
        push_job(run, "final-bf16", "hub:me/mine")


def test_a_run_without_a_result_names_the_way(tmp_path: Path) -> None:
    run = opened(tmp_path / "runs" / "young")
    saved(run, 2)
    with pytest.raises(UsageError, match="has no final/ yet") as caught:
        push_job(run, None, "hub:me/mine")
    assert "ftui push young@checkpoint-N" in caught.value.hint


@pytest.mark.parametrize(("push", "words"), [
    (None, "to hub:me/mine has not ended: `ftui push mine` goes on"),
    (Push("hub:me/mine", "final"), "to hub:me/mine has not ended: `ftui push mine` goes on"),
    (Push("hub:me/mine", "final", process=this_process()), "to hub:me/mine is under way"),
    (Push("hub:me/mine", "final", process=replace(this_process(), started="1")), "to hub:me/mine has not ended"),
    (Push("hub:me/mine", "final", problem="No room."), "failed: No room. `ftui push mine` goes on"),
    (Push("hub:me/mine", "final", place="https://there", commit="c0ffee"), "https://there (commit c0ffee)"),
    (Push("hub:me/mine", "checkpoint-8", place="https://there"), "to hub:me/mine has not ended"),
    (Push("/elsewhere", "final", place="/elsewhere"), "to hub:me/mine has not ended"),
])  # fmt: skip
def test_the_last_lines_of_a_run_say_what_became_of_its_push(run: Run, push: Push | None, words: str) -> None:
    state = RunState(phase="finished", pushes=[] if push is None else [push])
    assert describe_push(run, state, None) == []
    (line,) = describe_push(run, state, "hub:me/mine")
    assert words in line
    assert describe_push(run, RunState(phase="stopped"), "hub:me/mine") == []
