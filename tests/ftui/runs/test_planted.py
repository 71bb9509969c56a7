"""Runs from elsewhere may hold links and devices under the names of their files: nothing outside is ever changed."""

import errno
import os
import stat
from collections.abc import Callable
from pathlib import Path

import pytest

from ftui.cli.main import main
from ftui.errors import DiskError
from ftui.runs import checkpoint_folders
from ftui.runs.checkpoint_folders import Checkpoint
from ftui.runs.journal import Writer
from ftui.runs.pins import write_pins
from ftui.runs.requests import Stop, new_id, read_requests, remove_request, write_request
from ftui.runs.run_folder import FOLDERS, Run
from ftui.supervisor.engine_process import start_engine
from ftui.supervisor.spawn import launch
from ftui.supervisor.trackers import Trackers
from ftui.system.files import UnsafePathError, make_private_folder, open_private, replace_file, try_lock, wait_lock
from ftui.system.volume import make_reserve, release_reserve
from tests.support.replayed import replay

TEXT = b"precious\nhalf a li"  # a torn last line, which a writer of records would cut off
FILES = (
    "engine.lock", "supervisor.lock", "journal.jsonl", "metrics.jsonl", "telemetry.jsonl", "supervisor.jsonl",
    "supervisor.log", "engine.log", "engine.log.1", "beat.json", "status.json", "curves.json", "pins.json",
    "profile.toml", "run.json", "losses.safetensors", "reference.safetensors", ".reserve", "archived",
    "pushes.jsonl", "push.lock", "push.log", "answer.json", "nodes.json", "rewards.log",
)  # fmt: skip
PLACES = (
    "checkpoints", "checkpoints/quarantine", "checkpoints/superseded", "final", "inbox", "trackers", "chats",
    "exports", "evaluations", "ledger", "rollouts", "hooks", "notices", "segments",
)  # fmt: skip


def link(path: Path, victim: Path) -> None:
    path.symlink_to(victim)


def link_to_a_link(path: Path, victim: Path) -> None:
    between = victim.with_name("between")
    between.symlink_to(victim)
    path.symlink_to(os.path.relpath(between, path.parent))


def dangling_link(path: Path, victim: Path) -> None:
    path.symlink_to(victim.with_name("not-there-yet"))


def second_name(path: Path, victim: Path) -> None:
    path.hardlink_to(victim)


def fifo(path: Path, victim: Path) -> None:
    os.mkfifo(path)


def device(path: Path, victim: Path) -> None:
    path.symlink_to("/dev/zero")


def folder(path: Path, victim: Path) -> None:
    path.mkdir()


Plant = Callable[[Path, Path], None]
PLANTS: list[Plant] = [link, link_to_a_link, dangling_link, second_name, fifo, device, folder]


@pytest.fixture
def victim(tmp_path: Path) -> Path:
    path = tmp_path / "home" / "precious"
    path.parent.mkdir()
    path.write_bytes(TEXT)
    path.chmod(0o644)
    return path


@pytest.fixture
def run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Run:
    monkeypatch.setenv("FTUI_RUNS", str(tmp_path / "runs"))
    return replay("full-parked", tmp_path / "runs")


def is_untouched(victim: Path) -> bool:
    names = {path.name for path in victim.parent.iterdir()} - {"between"}
    return names == {victim.name} and victim.read_bytes() == TEXT and stat.S_IMODE(victim.stat().st_mode) == 0o644


def put_in_place(run: Run, name: str, plant: Plant, victim: Path) -> Path:
    path = run.folder / name
    if path.is_dir():
        path.rename(run.folder.with_name("aside"))
    path.unlink(missing_ok=True)
    path.parent.mkdir(exist_ok=True)
    plant(path, victim)
    return path


def test_the_names_are_all_there_are() -> None:
    run = Run(Path("/x"))
    paths = {str(path.relative_to(run.folder)) for name in dir(Run) if isinstance(path := getattr(run, name), Path)}
    assert paths - {"."} == {*FILES, *PLACES}
    assert {Path(place).name for place in PLACES} == FOLDERS


@pytest.mark.parametrize("plant", PLANTS)
@pytest.mark.parametrize("name", [*FILES, "reference.0.safetensors"])
def test_a_planted_file_is_refused_by_name(
    name: str, plant: Plant, run: Run, victim: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = put_in_place(run, name, plant, victim)
    with pytest.raises(UnsafePathError) as caught:
        run.check()
    assert str(path) in caught.value.message and caught.value.hint
    if name != "run.json":  # without which there is no run of that name to be resumed
        expected = {DiskError.exit_code, *([30] if name == "profile.toml" else [])}  # what it points at is no profile
        assert main(["resume", run.name]) in expected
        assert str(path) in capsys.readouterr().err
    assert is_untouched(victim)


@pytest.mark.parametrize("plant", [link, dangling_link, fifo, second_name])
@pytest.mark.parametrize("name", PLACES)
def test_a_planted_folder_is_refused_by_name(
    name: str, plant: Plant, run: Run, victim: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    if plant is link:
        path = put_in_place(run, name, lambda path, victim: link(path, victim.parent), victim)
    else:
        path = put_in_place(run, name, plant, victim)
    for command in (["resume", run.name], ["pin", run.name, "1"]):
        assert main(command) == DiskError.exit_code
        assert str(path) in capsys.readouterr().err
    assert is_untouched(victim)


@pytest.mark.parametrize("plant", [link, second_name])
@pytest.mark.parametrize("name", [*FILES, *PLACES])
def test_a_run_is_logged_renamed_archived_and_removed_without_touching_what_is_planted(
    name: str, plant: Plant, run: Run, victim: Path
) -> None:
    is_folder = plant is link and name in PLACES
    put_in_place(run, name, (lambda path, victim: link(path, victim.parent)) if is_folder else plant, victim)
    assert main(["log", run.name]) in (0, DiskError.exit_code)
    assert main(["log", run.name, "--output"]) in (0, DiskError.exit_code)
    left = "new" if main(["rename", run.name, "new"]) == 0 else run.name
    for command in ("archive", "unarchive"):
        assert main([command, left]) in (0, DiskError.exit_code)
    code = main(["remove", left, "--yes"])
    assert code == (DiskError.exit_code if name.endswith(".lock") or (name == "trackers") else 0)
    assert (run.folder.with_name(left)).exists() == (code != 0)
    assert is_untouched(victim)


def write_record(run: Run, name: str) -> None:
    Writer(run.folder / name).close()


def take_lock(run: Run, name: str) -> None:
    lock = try_lock(run.folder / name)
    assert lock is not None
    lock.close()


def wait_for_lock(run: Run, name: str) -> None:
    with wait_lock(run.folder / name):
        pass


def start(run: Run, name: str) -> None:
    start_engine(run, ["true"], dict(os.environ), size=1)


def supervise(run: Run, name: str) -> None:
    launch(run)


@pytest.mark.parametrize("plant", [link, link_to_a_link, dangling_link, second_name, fifo, device, folder])
@pytest.mark.parametrize(
    ("name", "act"),
    [
        ("journal.jsonl", write_record), ("metrics.jsonl", write_record), ("telemetry.jsonl", write_record),
        ("supervisor.jsonl", write_record), ("engine.lock", take_lock), ("supervisor.lock", take_lock),
        ("engine.lock", wait_for_lock), ("engine.log", start), ("supervisor.log", supervise),
    ],
)  # fmt: skip
def test_what_is_planted_after_the_look_is_refused_by_the_one_that_opens_it(
    name: str, act: Callable[[Run, str], None], plant: Plant, run: Run, victim: Path
) -> None:
    path = put_in_place(run, name, plant, victim)
    with pytest.raises(UnsafePathError, match=str(path)):
        act(run, name)
    assert is_untouched(victim)


@pytest.mark.parametrize("plant", [link, link_to_a_link, dangling_link, second_name, fifo, device])
def test_a_file_that_is_replaced_takes_the_place_of_a_link(plant: Plant, run: Run, victim: Path) -> None:
    for name in ("pins.json", f".pins.json.{os.getpid()}.tmp"):
        put_in_place(run, name, plant, victim)
        write_pins(run, {3})
        assert run.pins.read_bytes() == b'{"steps":[3]}' and not run.pins.is_symlink()
        assert is_untouched(victim)
        for made in ("between",):
            (victim.parent / made).unlink(missing_ok=True)
    put_in_place(run, ".reserve", plant, victim)
    make_reserve(run.reserve)
    assert release_reserve(run.reserve)
    assert is_untouched(victim)


def test_folders_on_the_way_are_never_links(run: Run, victim: Path) -> None:
    outside = victim.parent
    run.inbox.symlink_to(outside)
    run.trackers.symlink_to(outside)
    request = Stop(id=new_id(), attempt=1, token="t")
    with pytest.raises(UnsafePathError, match="inbox is a link"):
        write_request(run, request)
    with pytest.raises(UnsafePathError, match="inbox is a link"):
        make_private_folder(run.inbox / "deeper" / "still", inside=run.folder)
    (warning,) = Trackers(run, ["wandb"]).look()
    assert f"{run.trackers} is a link" in warning
    assert is_untouched(victim)
    sent = outside / f"{1:020d}-{request.id}.json"
    sent.write_bytes(b"{}")
    for file in read_requests(run):
        remove_request(file)
    assert sent.exists(), "what somebody keeps there is no request to this run"


@pytest.mark.parametrize("name", ["checkpoints", "quarantine", "superseded"])
def test_no_checkpoint_moves_out(name: str, run: Run, victim: Path) -> None:
    step = max(checkpoint.step for checkpoint in checkpoint_folders.checkpoints_in(run.checkpoints))
    path = getattr(run, name)
    if name == "checkpoints":
        run.checkpoints.rename(run.folder.with_name("aside"))
        path.symlink_to(run.folder.with_name("aside"))
    else:
        path.symlink_to(victim.parent)
    checkpoint = Checkpoint(run.checkpoints / f"checkpoint-{step}", step)
    if name != "superseded":
        with pytest.raises(UnsafePathError, match=f"{path} is a link"):
            checkpoint_folders.quarantine(checkpoint)
    if name != "quarantine":
        with pytest.raises(UnsafePathError, match=f"{path} is a link"):
            checkpoint_folders.supersede(run.checkpoints, 0)
    assert checkpoint.path.exists() and is_untouched(victim)


def test_a_file_of_another_user_is_refused_unless_its_folder_is_his(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """On a network volume all that this user makes may belong to another: that is no reason to refuse it."""
    path = tmp_path / "journal.jsonl"
    path.write_bytes(b"")
    monkeypatch.setattr(os, "geteuid", lambda: path.stat().st_uid + 1)
    os.close(open_private(path, os.O_RDWR))
    real = os.fstat

    def of_a_folder_of(uid: int) -> Callable[[int], os.stat_result]:
        def fstat(descriptor: int) -> os.stat_result:
            found = real(descriptor)
            fields = list(found)
            fields[stat.ST_UID] = uid if stat.S_ISDIR(found.st_mode) else found.st_uid
            return os.stat_result(fields)

        return fstat

    monkeypatch.setattr(os, "fstat", of_a_folder_of(path.stat().st_uid + 1))
    with pytest.raises(UnsafePathError, match="belongs to another user"):
        open_private(path, os.O_RDWR)


def test_the_folder_of_a_run_may_itself_be_reached_by_a_link(run: Run, tmp_path: Path) -> None:
    """Somebody has moved it to a larger volume and left a link: that name is the user's own."""
    run.folder.rename(tmp_path / "moved")
    run.folder.symlink_to(tmp_path / "moved")
    run.check()
    write_record(run, "journal.jsonl")
    replace_file(run.pins, b"{}", durable=True)
    write_request(run, Stop(id=new_id(), attempt=1, token="t"))
    assert len(list(read_requests(run))) == 1


def test_what_refuses_is_both_an_expected_failure_and_a_failed_system_call(tmp_path: Path) -> None:
    (tmp_path / "x").symlink_to("y")
    with pytest.raises(OSError) as caught:
        open_private(tmp_path / "x", os.O_RDWR)
    assert isinstance(caught.value, DiskError) and caught.value.errno is None
    assert caught.value.exit_code == 40 and errno.ELOOP not in (caught.value.errno,)
