"""Runs that are removed, renamed and archived: what is freed, what stays, and what a kill at any moment leaves."""

import io
import os
from collections.abc import Callable
from itertools import count
from pathlib import Path
from typing import Any

import pytest

from ftui.cli.main import main
from ftui.errors import DiskError, LostRunError, UsageError
from ftui.launch import manage_runs
from ftui.launch.manage_runs import archive, describe_removal, plan_removal, remove, rename, sweep_removed, unarchive
from ftui.launch.open_run import create, locate_run, open_run, stored_profile
from ftui.profile.layers import resolve
from ftui.runs.checkpoint_folders import checkpoints_in, exporting, fault, link_copy, read_manifest
from ftui.runs.journal import encode
from ftui.runs.records.push_records import PushBegan
from ftui.runs.run_folder import Run, all_runs, find_run, runs_root
from ftui.runs.status import read_status
from ftui.system.files import UnsafePathError, try_lock
from ftui.system.process_id import this_process
from tests.support import shelf
from tests.support.replayed import write_summaries

PROFILE = '[run]\nstage = "sft"\nname = "{}"\n[model]\nname_or_path = "{}"\n[data]\ntrain = ["{}"]\n'


@pytest.fixture
def run() -> Run:
    return finished("mine")


def finished(name: str, model: str = "hub/model", rows: str = "/data/rows.jsonl") -> Run:
    run = shelf.finished(runs_root() / name)
    run.profile.write_text(PROFILE.format(name, model, rows))
    return run


def is_whole(run: Run) -> bool:
    steps = [checkpoint.step for checkpoint in checkpoints_in(run.checkpoints)]
    return steps == [12, 8, 4] and all(fault(c.path) is None for c in checkpoints_in(run.checkpoints))


def names_left() -> list[str]:
    return sorted(os.listdir(runs_root()))


# -- what is freed


def test_all_files_of_a_run_are_freed(run: Run) -> None:
    total = sum(path.stat().st_size for path in run.folder.rglob("*") if path.is_file())
    removal = plan_removal(run)
    assert (removal.num_bytes, removal.num_shared_bytes, removal.children, removal.foreign) == (total, 0, [], [])
    assert remove(run) and names_left() == []


def test_files_that_a_child_has_too_are_not_freed_and_it_keeps_them(run: Run) -> None:
    child = shelf.opened(runs_root() / "mine-2", parent=shelf.RUN_ID, run_id="child")
    source = run.checkpoints / "checkpoint-8"
    link_copy(source, child.checkpoints / source.name)
    shared = sum(path.stat().st_size for path in source.rglob("*") if path.is_file())
    before, removal = plan_removal(child).num_bytes, plan_removal(run)
    assert (removal.num_shared_bytes, removal.children) == (shared, ["mine-2"])
    assert "mine-2 continued from a checkpoint" in "\n".join(describe_removal(removal))
    assert remove(run) and fault(child.checkpoints / source.name, run_id=child.read_facts().family) is None
    assert plan_removal(child).num_bytes == before + shared  # nobody else has them now


def test_two_names_of_a_file_in_the_run_itself_are_freed_once(run: Run) -> None:
    before = plan_removal(run).num_bytes
    (run.folder / "weights").write_bytes(b"x" * 1000)
    (run.folder / "again").hardlink_to(run.folder / "weights")
    removal = plan_removal(run)
    assert (removal.num_bytes - before, removal.num_shared_bytes, removal.foreign) == (1000, 0, ["again", "weights"])
    assert "Also deleted, although ftui did not write it: again, weights" in describe_removal(removal)[-1]


def test_what_was_exported_is_freed_and_named(run: Run) -> None:
    before = plan_removal(run).num_bytes
    manifest = read_manifest(run.checkpoints / "checkpoint-8")
    for name in ("final-bf16", "final-q8_0"):
        with exporting(run.exports / name, manifest) as staged:
            staged.write("weights", [b"x" * 500, b"x" * 500])
    (run.exports / "ftui-export-1-2-3-half").mkdir()
    num_bytes = sum(path.stat().st_size for path in run.exports.rglob("*") if path.is_file())
    removal = plan_removal(run)
    assert (removal.num_bytes - before, removal.foreign) == (num_bytes, []) and num_bytes > 2000
    assert "final-bf16, final-q8_0 in exports/. Frees" in describe_removal(removal)[0]
    renamed = rename(run, "other")
    assert (renamed.exports / "final-bf16" / "weights").is_file()
    assert remove(renamed) and names_left() == []


# -- what is refused


@pytest.mark.parametrize("act", [remove, archive, lambda run: rename(run, "other"), plan_removal])
def test_a_run_that_is_running_is_left_alone(act: Callable[[Run], Any]) -> None:
    living = shelf.living(runs_root() / "living")
    with pytest.raises(UsageError, match="living is running") as refusal:
        act(living)
    assert "`ftui stop living`" in refusal.value.hint and is_whole(living) and names_left() == ["living"]
    living.pushes.write_bytes(encode(PushBegan(to="/x", what="checkpoint-8", seal="", process=this_process())))
    with pytest.raises(UsageError, match="living is running"):
        act(living)
    over = finished("over")
    write_summaries(over, time=0.0, supervisor=this_process())
    with pytest.raises(UsageError, match="over has finished and is being pushed") as refusal:
        act(over)
    assert "`ftui stop over`" in refusal.value.hint


@pytest.mark.parametrize("lock", ["supervisor.lock", "engine.lock", "push.lock", "trackers/wandb.lock"])
@pytest.mark.parametrize("act", [remove, archive, lambda run: rename(run, "other")])
def test_a_run_that_is_in_use_is_left_alone(run: Run, act: Callable[[Run], Any], lock: str) -> None:
    run.trackers.mkdir()
    user = try_lock(run.folder / lock)
    assert user is not None
    with pytest.raises(LostRunError, match="mine is in use"):
        act(run)
    user.close()
    assert is_whole(run) and names_left() == ["mine"] and not run.archived.exists()


@pytest.mark.parametrize(
    ("model", "rows", "key"),
    [
        ("{}/final", "/data/rows.jsonl", "model.name_or_path"),
        ("{}/checkpoints/checkpoint-8", "/data/rows.jsonl", "model.name_or_path"),
        ("hub/model", "{}/answers.jsonl", "data.train"),
        ("{}/../mine/final", "/data/rows.jsonl", "model.name_or_path"),
    ],
)
@pytest.mark.parametrize("is_archived", [False, True])
def test_files_that_another_run_needs_stay(run: Run, model: str, rows: str, key: str, is_archived: bool) -> None:
    other = finished("other", model.format(run.folder), rows.format(run.folder))
    if is_archived:
        archive(other)
    for act in (remove, plan_removal, lambda run: rename(run, "new")):
        with pytest.raises(UsageError, match=rf"other needs /.* \({key}\)"):
            act(run)
    archive(run)  # which moves nothing
    assert is_whole(run) and remove(other) and remove(run)


def test_a_run_beside_one_of_a_longer_name_is_not_needed_by_its_reader(run: Run) -> None:
    finished("other", f"{run.folder}-2/final")
    assert remove(run)


def test_nothing_outside_is_reached_through_links(run: Run, tmp_path: Path) -> None:
    outside = tmp_path / "outside"
    (outside / "inner").mkdir(parents=True)
    (outside / "file").write_text("precious")
    (run.folder / "a-folder").symlink_to(outside)
    (run.folder / "a-file").symlink_to(outside / "file")
    (run.checkpoints / "checkpoint-8" / "up").symlink_to("../../../..")
    (run.inbox).symlink_to(outside)
    (run.folder / "name").hardlink_to(outside / "file")
    assert remove(run) and names_left() == []
    assert (outside / "file").read_text() == "precious" and (outside / "inner").is_dir()


def test_a_folder_that_is_a_link_is_refused(run: Run) -> None:
    link = Run(runs_root() / "link")
    link.folder.symlink_to(run.folder)
    for act in (remove, archive, plan_removal, lambda run: rename(run, "new")):
        with pytest.raises(UnsafePathError, match="is a link"):
            act(link)
    assert is_whole(run)


@pytest.mark.parametrize("lock", ["supervisor.lock", "engine.lock", "trackers"])
def test_a_lock_that_is_a_link_is_refused(run: Run, tmp_path: Path, lock: str) -> None:
    victim = tmp_path / "victim"
    victim.mkdir()
    (victim / "wandb.lock").write_text("precious")
    (victim / "wandb.lock").chmod(0o644)
    (run.folder / lock).symlink_to(victim if lock == "trackers" else victim / "wandb.lock")
    with pytest.raises(UnsafePathError, match="is a link"):
        remove(run)
    assert (victim / "wandb.lock").read_text() == "precious" and is_whole(run)
    assert (victim / "wandb.lock").stat().st_mode & 0o777 == 0o644


# -- kills


class KilledError(BaseException):
    """In place of SIGKILL."""


def killed_at(number: int, monkeypatch: pytest.MonkeyPatch, act: Callable[[], object]) -> bool:
    """Whether the n-th change of a file or folder came, at which all ends."""
    calls = 0

    def deadly(function: Callable[..., Any]) -> Callable[..., Any]:
        def call(*arguments: Any, **options: Any) -> Any:
            nonlocal calls
            calls += 1
            if calls == number:
                raise KilledError
            return function(*arguments, **options)

        return call

    with monkeypatch.context() as patch:
        for name in ("rename", "unlink", "rmdir", "replace"):
            patch.setattr(os, name, deadly(getattr(os, name)))
        try:
            act()
        except KilledError:
            return True
    return False


@pytest.mark.parametrize("renames_folders", [True, False])
def test_a_removal_that_is_killed_leaves_the_run_or_what_is_swept(
    renames_folders: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    if not renames_folders:
        monkeypatch.setattr(manage_runs, "rename_folder", lambda folder, place: False)
    num_whole = 0
    for number in count(1):
        run = finished("mine")
        was_killed = killed_at(number, monkeypatch, lambda: remove(run))  # noqa: B023
        left = [run.name for run in all_runs()]
        assert left in ([], ["mine"]) and (not left or is_whole(run))
        num_whole += bool(left)
        sweep_removed(runs_root())
        if left:
            assert is_whole(run) and remove(run)
        if names_left():  # what a new run of that name takes the place of
            run.folder.rmdir()
        assert names_left() == []
        if not was_killed:
            break
    assert num_whole == 1 and number > 10


def test_a_renaming_that_is_killed_leaves_one_of_both_names(monkeypatch: pytest.MonkeyPatch) -> None:
    seen = set()
    for number in count(1):
        run = finished("mine")
        was_killed = killed_at(number, monkeypatch, lambda: rename(run, "new"))  # noqa: B023
        [run] = all_runs()
        assert run.name in ("mine", "new") and is_whole(run)
        assert locate_run(str(run.profile), None, ())[0] == run.folder  # its own profile means no other run
        seen.add(run.name)
        remove(run)
        if not was_killed:
            break
    assert seen == {"mine", "new"} and names_left() == []


def test_a_new_run_sweeps_what_a_removal_left(run: Run, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    assert killed_at(2, monkeypatch, lambda: remove(run)) and names_left() != []
    path = tmp_path / "next.toml"
    path.write_text(PROFILE.format("next", "hub/model", "/data/rows.jsonl"))
    assert create(Run(runs_root() / "next"), resolve(path)) and names_left() == ["next"]


def test_a_folder_of_something_else_is_never_swept(run: Run, tmp_path: Path) -> None:
    for name in (".notes", ".my.trash", ".mine.old.trash", ".trash", "mine.0123abcd.trash"):
        (runs_root() / name).mkdir()
    (runs_root() / ".mine.0123abcd.trash").symlink_to(tmp_path)
    (run.folder / ".removed").touch()  # killed before run.json went
    sweep_removed(runs_root())
    assert is_whole(run) and len(names_left()) == 7 and tmp_path.is_dir()


# -- another name


def test_a_renamed_run_is_the_same_run(run: Run) -> None:
    before, facts = read_status(run).state, run.read_facts()
    new = rename(run, "better.name-2")
    assert new.folder == runs_root() / "better.name-2" and names_left() == ["better.name-2"]
    assert read_status(new).state == before and new.read_facts() == facts and is_whole(new)
    assert stored_profile(new).run.name == "better.name-2"
    assert resolve(new.profile).profile.model_dump(exclude={"run"}) == resolve(
        Path(write(PROFILE.format("x", "hub/model", "/data/rows.jsonl")))
    ).profile.model_dump(exclude={"run"})


def write(text: str) -> Path:
    path = runs_root().parent / "same.toml"
    path.write_text(text)
    return path


@pytest.mark.parametrize("name", ["other", "a-file", "Mine", "../mine", "", "-x", "x" * 65, "mine"])
def test_a_name_that_cannot_be_had_is_refused(run: Run, name: str) -> None:
    finished("other")
    (runs_root() / "a-file").touch()
    with pytest.raises(UsageError):
        rename(run, name)
    assert is_whole(run) and names_left() == ["a-file", "mine", "other"]


def test_a_volume_that_renames_no_folders_keeps_the_name(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(manage_runs, "rename_folder", lambda folder, place: False)
    with pytest.raises(DiskError, match="cannot rename folders"):
        rename(run, "new")
    assert is_whole(run) and stored_profile(run).run.name == "mine"


# -- out of the lists


def test_an_archived_run_is_out_of_the_lists_and_found_by_name(run: Run) -> None:
    other = finished("other")
    archive(run)
    assert (all_runs(), all_runs(archived=True)) == ([other], [run])
    assert find_run("mine") == run and is_whole(run)
    archive(run)
    unarchive(run)
    unarchive(run)
    assert (all_runs(), all_runs(archived=True)) == ([run, other], [])


def test_a_run_that_is_resumed_comes_back_into_the_lists(tmp_path: Path) -> None:
    run = shelf.trained(runs_root() / "mine")
    (tmp_path / "rows.jsonl").touch()
    run.profile.write_text(PROFILE.format("mine", "hub/model", tmp_path / "rows.jsonl"))
    archive(run)
    assert open_run(run.folder, resolve(run.profile)).decision == "resume"
    assert all_runs() == [run]


# -- the commands


def test_removing_asks_and_says_what_is_freed(
    run: Run, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    for answer, code, left in (("\n", 10, ["mine"]), ("no\n", 10, ["mine"]), ("y\n", 0, [])):
        monkeypatch.setattr("sys.stdin", Terminal(answer))
        assert main(["remove", "mine"]) == code and names_left() == left
        text = capsys.readouterr().out
        assert text.index("its result in final/") < text.index("Frees ") < text.index("[y/N]")


class Terminal:
    """A terminal at which somebody types `answer`."""

    def __init__(self, answer: str) -> None:
        self.answer = answer

    def isatty(self) -> bool:
        return True

    def readline(self) -> str:
        return self.answer


def test_scripts_say_yes(run: Run, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    finished("other")
    monkeypatch.setattr("sys.stdin", io.StringIO())
    assert main(["remove", "mine", "other"]) == 2 and "--yes" in capsys.readouterr().err
    assert main(["remove", "mine", "nobody", "--yes"]) == 2 and names_left() == ["mine", "other"]
    assert main(["remove", "mine", "other", "mine", "--yes"]) == 0 and names_left() == []


def test_names_and_lists_by_commands(run: Run, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["rename", "mine", "yours"]) == 0 and main(["archive", "yours"]) == 0
    assert main(["runs"]) == 0 and "1 archived" in capsys.readouterr().out.splitlines()[-1]
    assert main(["runs", "--archived"]) == 0 and "yours" in capsys.readouterr().out
    assert main(["unarchive", "yours"]) == 0 and main(["runs", "--archived"]) == 0
    assert "No run is archived" in capsys.readouterr().out
