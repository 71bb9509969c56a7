"""Terminals, readers and supervisors come and go, the engine stays; and no process is taken for another."""

import os
import pty
import shutil
import signal
import subprocess
import sys
from collections import Counter
from functools import partial
from pathlib import Path

import msgspec
import pytest

from ftui.runs import checkpoint_folders
from ftui.runs.events import RunStarted
from ftui.runs.journal import Tail
from ftui.runs.records.supervisor_records import Adopted, EngineStarted
from ftui.runs.run_folder import Run
from ftui.runs.status import Status
from ftui.system.process_id import identity_of
from tests.support.bench import Workbench, newest, opened, records
from tests.support.driving import LONG, is_running, last, started, status, steps, wait_for_end, wait_until

SUPPORT = Path(__file__).parents[1] / "support"


def test_whatever_watches_may_die(workbench: Workbench) -> None:
    """A closed terminal, a killed tmux server, a killed reader, a killed supervisor, a stopped engine: one attempt."""
    profile = str(workbench.profile("kept"))
    run = workbench.run("kept")
    command = [sys.executable, "-m", "ftui", "--run", profile, *LONG]
    pid, terminal = pty.fork()
    if pid == 0:
        os.chdir(workbench.folder)
        os.execvpe(command[0], command, workbench.env | {"TERM": "xterm"})
    wait_until(lambda: run.metrics.exists() and len(steps(run)) >= 4)
    os.close(terminal)
    os.waitpid(pid, 0)
    going_on(workbench, "kept")

    if shutil.which("tmux"):
        env = workbench.env | {"TMUX_TMPDIR": str(workbench.folder)}
        subprocess.run(["tmux", "-L", "t", "new-session", "-d", *command], cwd=workbench.folder, env=env, check=True)
        going_on(workbench, "kept")
        subprocess.run(["tmux", "-L", "t", "kill-server"], env=env, check=True)
        going_on(workbench, "kept")

    reader = subprocess.Popen(command, cwd=workbench.folder, env=workbench.env, stdout=subprocess.PIPE)
    assert reader.stdout is not None and b"kept is running" in reader.stdout.readline()
    reader.kill()
    reader.communicate()
    going_on(workbench, "kept")

    before = status(workbench, "kept")
    os.kill(before["supervisor"]["pid"], signal.SIGKILL)
    wait_until(lambda: status(workbench, "kept")["supervisor"]["pid"] != before["supervisor"]["pid"])
    wait_until(lambda: any(isinstance(r, Adopted) for r in Tail(run.supervisor_log).read()))
    going_on(workbench, "kept")

    engine = before["engine"]["pid"]
    os.kill(engine, signal.SIGSTOP)
    wait_until(lambda: status(workbench, "kept").get("frozen", False))
    assert is_running(status(workbench, "kept"))
    os.kill(engine, signal.SIGCONT)
    going_on(workbench, "kept")

    assert workbench.ftui("hold", "kept").returncode == 0  # or it is beyond its end before it hears of it
    end = len(steps(run)) + 40
    assert workbench.ftui("set", "kept", f"max_steps={end}").returncode == 0
    assert workbench.ftui("continue", "kept").returncode == 0
    finished = wait_for_end(workbench, run)
    assert (finished["state"]["phase"], finished["state"]["attempt"]) == ("finished", 1)
    assert [r.step for r in steps(run)] == list(range(1, end + 1))
    assert checkpoint_folders.fault(run.final) is None


def going_on(bench: Workbench, name: str) -> None:
    run = bench.run(name)
    before = len(steps(run))
    wait_until(lambda: len(steps(run)) > before + 2, 30)
    assert len([r for r in records(run) if isinstance(r, RunStarted)]) == 1


NUM_STARTS = 10


def test_ten_starts_at_once_make_one_engine_whose_command_line_holds_no_secret(workbench: Workbench) -> None:
    secret = ("--set", 'eval.sample_prompts=["canary prompt"]')
    command = [sys.executable, "-m", "ftui", "--run", str(workbench.profile("rush")), *LONG, *secret, "--detach"]

    def start() -> "subprocess.Popen[bytes]":
        out = subprocess.PIPE
        return subprocess.Popen(command, cwd=workbench.folder, env=workbench.env, stdout=out, stderr=subprocess.STDOUT)

    starts = [start() for _ in range(NUM_STARTS)]
    outputs = [start.communicate(timeout=120)[0].decode() for start in starts]
    assert Counter(start.returncode for start in starts) == {0: NUM_STARTS}, outputs
    first = Counter("starting" if "starting rush" in output else "attached" for output in outputs)
    assert first == {"starting": 1, "attached": NUM_STARTS - 1}, outputs
    assert all("rush is running (process " in output for output in outputs if "starting rush" not in output), outputs
    run = workbench.run("rush")
    engines = [r for r in Tail(run.supervisor_log).read() if isinstance(r, EngineStarted)]
    assert len(engines) == 1
    wait_until(lambda: len(steps(run)) >= 1)  # it holds the lock: before, a start by hand may win the race to it
    direct = subprocess.run(
        [sys.executable, "-P", "-m", "ftui.engine", str(run.folder)], env=workbench.env, capture_output=True, timeout=60
    )
    assert direct.returncode == 50
    now = status(workbench, "rush")
    for who in ("engine", "supervisor"):
        words = Path(f"/proc/{now[who]['pid']}/cmdline").read_bytes().split(b"\0")
        assert all(word == str(run.folder).encode() or b"canary" not in word for word in words)
        assert words[-2] == str(run.folder).encode() or who == "supervisor"
    workbench.ftui("abort", "rush")
    wait_for_end(workbench, run)


def copy_of_living(folder: Path, copy: Path) -> None:
    """Copy a run while its engine writes and rotates: what it takes away meanwhile is left out, anything else fails."""
    try:
        shutil.copytree(folder, copy, ignore=shutil.ignore_patterns(".trial-*", ".partial-*", ".trash-*"))
    except shutil.Error as error:
        assert all(not Path(source).exists() for source, _, _ in error.args[0]), error


def test_nobody_else_is_taken_for_the_engine(workbench: Workbench) -> None:
    """A pid that was given to a stranger, and a copied folder: neither lives, neither harms anyone."""
    run = started(workbench, "mine")
    copy = workbench.run("copy")
    copy_of_living(run.folder, copy.folder)
    assert status(workbench, "mine")["state"]["phase"] != "lost"
    assert status(workbench, "copy")["state"]["phase"] == "lost", "its processes work on another folder"
    assert workbench.ftui("stop", "copy").returncode == 2
    assert is_running(status(workbench, "mine"))
    workbench.ftui("park", "mine")
    wait_for_end(workbench, run)

    stranger = subprocess.Popen(["sleep", "600"], start_new_session=True)
    true = identity_of(stranger.pid)
    assert true is not None
    stored = msgspec.json.decode(copy.status.read_bytes(), type=Status)
    for changed in ({"started": "1"}, {"namespace": "pid:[1]"}, {"boot": "another"}):
        reused = msgspec.structs.replace(true, **changed)
        state = msgspec.structs.replace(stored.state, engine=reused)
        copy.status.write_bytes(
            msgspec.json.encode(msgspec.structs.replace(stored, state=state, engine=reused, supervisor=reused))
        )
        assert status(workbench, "copy")["state"]["phase"] == "lost"
        assert workbench.ftui("abort", "copy").returncode == 2
    assert workbench.ftui("--run", "copy", "--detach").returncode == 0
    wait_until(lambda: last(copy, RunStarted).attempt == 2)
    workbench.ftui("abort", "copy")
    wait_for_end(workbench, copy)
    assert stranger.poll() is None
    stranger.kill()
    stranger.wait()


def test_a_pid_given_again_in_a_new_namespace_is_a_stranger(workbench: Workbench) -> None:
    """The pod was replaced: on the same volume, after the same boot, the engine's pid belongs to somebody else."""
    run = started(workbench, "moved")
    pid = status(workbench, "moved")["engine"]["pid"]
    os.kill(status(workbench, "moved")["supervisor"]["pid"], signal.SIGKILL)
    os.kill(pid, signal.SIGKILL)
    program = f"""
        echo {pid - 1} > /proc/sys/kernel/ns_last_pid
        sleep 60 & stranger=$!
        echo $stranger
        {sys.executable} -m ftui status moved --json
        {sys.executable} -m ftui abort moved; echo "abort $?"
        kill -0 $stranger && echo unharmed
        kill $stranger
    """
    inside = ["unshare", "--fork", "--pid", "--mount-proc", "sh", "-c", program]
    result = subprocess.run(inside, cwd=workbench.folder, env=workbench.env, capture_output=True, text=True, timeout=60)
    if result.stdout.splitlines()[:1] != [str(pid)]:
        pytest.skip(f"a pid namespace needs privileges this machine does not give: {result.stderr}")
    assert '"phase": "lost"' in result.stdout
    assert "abort 2" in result.stdout and "is not running" in result.stderr
    assert result.stdout.splitlines()[-1] == "unharmed"
    assert newest(run) is not None


def has_steps(run: Run, number: int) -> bool:
    return run.metrics.exists() and len(steps(run)) >= number


def test_the_wall_clock_does_not_matter(workbench: Workbench, tmp_path: Path) -> None:
    """Attempts ten years ahead and an hour back: the highest step is the newest, whatever the dates say."""
    compiler = shutil.which("gcc") or shutil.which("cc")
    if sys.platform != "linux" or compiler is None:
        pytest.skip("another clock needs Linux and a C compiler")
    shim = tmp_path / "clock.so"
    subprocess.run(
        [compiler, "-shared", "-fPIC", "-O1", "-Wall", "-Werror", "-o", shim, SUPPORT / "clock.c", "-ldl"], check=True
    )
    run = opened(workbench, workbench.profile("clocks"))
    for offset in (10 * 365 * 86400, -3600):
        expected, begun = newest(run), len(steps(run)) if run.metrics.exists() else 0
        there = Workbench(workbench.folder, workbench.env | {"LD_PRELOAD": str(shim), "CLOCK_OFFSET": str(offset)})
        assert there.ftui("--run", "clocks", *LONG, "--detach").returncode == 0
        wait_until(partial(has_steps, run, begun + 10))
        assert last(run, RunStarted).resumed_from == expected
        assert status(workbench, "clocks")["state"]["phase"] in ("training", "saving", "evaluating")
        assert there.ftui("park", "clocks").returncode == 0
        wait_for_end(workbench, run)
    present = [c.step for c in checkpoint_folders.checkpoints_in(run.checkpoints)]
    assert present[0] == max(present) == steps(run)[-1].step
    assert all(checkpoint_folders.fault(c.path) is None for c in checkpoint_folders.checkpoints_in(run.checkpoints))
    assert workbench.ftui("runs").returncode == 0


def test_no_secret_is_left_anywhere(workbench: Workbench) -> None:
    """A token in the environment and one in the hub's address, with a hub that cannot be reached."""
    secrets = {"HF_TOKEN": "hf_canaryCanaryCanaryCanary01", "WANDB_API_KEY": "canary-wandb-0123456789"}
    address = {"HF_ENDPOINT": "http://someone:canary-in-the-address@127.0.0.1:9", "HF_HUB_OFFLINE": "0"}
    profile = workbench.profile("quiet")
    hub = ("--set", "model.name_or_path=nobody/nothing")
    there = Workbench(workbench.folder, workbench.env | secrets | address)
    result = there.ftui("--run", str(profile), *hub)
    assert result.returncode == 32, result.stdout + result.stderr
    written = b"".join(p.read_bytes() for p in workbench.folder.rglob("*") if p.is_file())
    for canary in [*secrets.values(), "canary-in-the-address"]:
        assert canary.encode() not in written
        assert canary not in result.stdout + result.stderr
    named = workbench.ftui(
        "--run", str(profile), "--set", "model.name_or_path=https://me:canary@hub/x", "--name", "url"
    )
    assert named.returncode == 30, named.stderr
    assert not workbench.run("url").folder.exists()
