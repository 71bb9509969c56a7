"""Two machines as two network namespaces with a link between them; as root only. Each trains one rank of a run."""

import contextlib
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import pytest

from ftui.launch.open_run import create
from ftui.profile.layers import resolve
from ftui.runs.events import ControlApplied, RunStarted, RunStopped
from ftui.runs.journal import Tail
from ftui.runs.records.supervisor_records import EngineEnded
from ftui.supervisor.engine_process import rank_environment
from tests.support.bench import Workbench, bench_at, compare_answers, records
from tests.support.driving import LONG, last, steps, wait_until
from tests.support.sameness import same_runs
from tests.support.zygote import Zygote, free_port, tail_of

NAMES = ("ftui-a", "ftui-b")
ADDRESSES = ("10.231.7.1", "10.231.7.2")
DECOY = "172.29.7.1"
TWO = ("--set", "hardware.num_processes=2", "--set", "train.gradient_accumulation_steps=1")
CONSTANTS = "from ftui.supervisor.nodes import keeper, node_group"
QUICK = f"{CONSTANTS}\nfor m in (keeper, node_group): m.BEAT_SECONDS, m.SILENCE_SECONDS = 0.2, 3.0\n"


def ip(*words: str, check: bool = True) -> None:
    subprocess.run(["ip", *words], check=check, capture_output=True)


@dataclass(frozen=True)
class Nodes:
    """Two namespaces; every command in them takes the bench's environment."""

    bench: Workbench

    def start(self, node: int, command: Sequence[str], **environment: str) -> "subprocess.Popen[str]":
        return subprocess.Popen(
            ["ip", "netns", "exec", NAMES[node], *command], cwd=self.bench.folder, env=self.bench.env | environment,
            stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, start_new_session=True,
        )  # fmt: skip

    def ftui(self, node: int, name: str, *options: str, **environment: str) -> "subprocess.Popen[str]":
        """`ftui --run` on a node, as a person starts it by hand."""
        place = {"NODE_RANK": str(node), "NNODES": "2", "MASTER_ADDR": ADDRESSES[0]}
        command = [sys.executable, "-m", "ftui", "--run", str(self.bench.profile(name)), *TWO, *options]
        return self.start(node, command, **place | environment)


@pytest.fixture(scope="module")
def network() -> Iterator[None]:
    if os.geteuid() != 0 or shutil.which("ip") is None:
        pytest.skip("network namespaces need root and the command ip")
    with contextlib.ExitStack() as stack:
        for name in NAMES:
            ip("netns", "del", name, check=False)
            ip("netns", "add", name)
            stack.callback(ip, "netns", "del", name)
        ip("link", "add", "ftui-va", "netns", NAMES[0], "type", "veth", "peer", "name", "ftui-vb", "netns", NAMES[1])
        for name, link, address in zip(NAMES, ("ftui-va", "ftui-vb"), ADDRESSES, strict=True):
            ip("-n", name, "link", "add", "docker0", "type", "bridge")  # comes before the real one
            ip("-n", name, "addr", "add", f"{DECOY}/16", "dev", "docker0")
            ip("-n", name, "addr", "add", f"{address}/24", "dev", link)
            for device in ("lo", "docker0", link):
                ip("-n", name, "link", "set", device, "up")
        yield


@pytest.fixture
def nodes(network: None, bench_source: Path, memory: Path) -> Nodes:
    return Nodes(bench_at(bench_source, memory / "bench"))


@pytest.fixture
def trials(request: pytest.FixtureRequest) -> None:
    if not request.config.getoption("--trials"):
        pytest.skip("with --trials only: ten seconds of two processors each")


def end(*processes: "subprocess.Popen[str]") -> list[tuple[int, str]]:
    """Exit code and output of each."""
    outputs = [process.communicate(timeout=180)[0] for process in processes]
    return [(process.returncode, output) for process, output in zip(processes, outputs, strict=True)]


def change_a_bit(path: Path) -> None:
    data = bytearray(path.read_bytes())
    data[-1] ^= 1
    path.write_bytes(data)


def kill_node(name: str) -> None:
    """As when the machine goes: everything in the namespace."""
    pids = subprocess.run(["ip", "netns", "pids", name], capture_output=True, text=True).stdout.split()
    for pid in pids:
        with contextlib.suppress(ProcessLookupError):
            os.kill(int(pid), signal.SIGKILL)


def test_two_nodes_are_one_bit_for_bit_and_a_killed_one_is_waited_for(nodes: Nodes, zygote: Zygote) -> None:
    """Through the right interface; the second node dies once, comes back, and the run ends as on one machine."""
    one, port = nodes.bench.run("one"), free_port()
    assert create(one, resolve(nodes.bench.profile("one"), overrides=TWO[1::2]))
    ranks = [zygote.start(one, rank_environment(rank, 2, port, nodes.bench.env)) for rank in range(2)]
    assert [rank.wait() for rank in ranks] == [0, 0], tail_of(one)
    leader, keeper = nodes.ftui(0, "two"), nodes.ftui(1, "two")
    run = nodes.bench.run("two")
    wait_until(lambda: run.metrics.exists() and len(steps(run)) >= 6)
    kill_node(NAMES[1])
    keeper.communicate()
    keeper = nodes.ftui(1, "two")
    (code, output), (kept, words) = end(leader, keeper)
    assert (code, kept) == (0, 0), output + words
    assert "through ftui-vb" in words
    assert next(r.lost_node for r in Tail(run.supervisor_log).read() if isinstance(r, EngineEnded))
    started = [r for r in records(run) if isinstance(r, RunStarted)]
    assert len(started) >= 2 and started[-1].reproducibility == "EXACT"
    same_runs(run, one)


@pytest.mark.parametrize("stage", ["sft", "dpo"])
def test_nodes_that_share_no_folder_are_one_bit_for_bit(
    stage: str, nodes: Nodes, zygote: Zygote, request: pytest.FixtureRequest
) -> None:
    """Node 1 has its own folders; it dies once, and gets the checkpoint. What both measure is put together."""
    if stage == "dpo" and not request.config.getoption("--trials"):
        pytest.skip("with --trials only: twenty seconds")
    keys = compare_answers(nodes.bench, "dpo") if stage == "dpo" else ()
    options = [word for key in keys for word in ("--set", key)]
    one, port, env = nodes.bench.run("one"), free_port(), nodes.bench.env | {"FTUI_CACHE": f"{nodes.bench.folder}/one"}
    assert create(one, resolve(nodes.bench.profile("one"), overrides=(*TWO[1::2], *keys)))
    ranks = [zygote.start(one, rank_environment(rank, 2, port, env)) for rank in range(2)]
    assert [rank.wait() for rank in ranks] == [0, 0], tail_of(one)
    reach = {"FTUI_NODE_SECRET": "s" * 32, "FTUI_NODE_PORT": "29544"}
    far = reach | {name: str(nodes.bench.folder / "far" / name) for name in ("FTUI_RUNS", "FTUI_CACHE")}
    leader, keeper = nodes.ftui(0, "two", *options, **reach), nodes.ftui(1, "two", *options, **far)
    run, own = nodes.bench.run("two"), Path(far["FTUI_RUNS"]) / ".two-node-1"
    wait_until(lambda: run.metrics.exists() and len(steps(run)) >= 6)
    kill_node(NAMES[1])
    keeper.communicate()
    keeper = nodes.ftui(1, "two", *options, **far)
    (code, output), (kept, words) = end(leader, keeper)
    assert (code, kept) == (0, 0), output + words
    assert f"this node works in {own}" in words
    started = [r for r in records(run) if isinstance(r, RunStarted)]
    assert len(started) >= 2 and started[-1].reproducibility == "EXACT"
    same_runs(run, one)
    assert "node-1.log" in {path.name for path in own.iterdir()} and not (own / "checkpoints").exists()


def test_a_node_without_the_files_of_the_profile_or_with_others_is_refused(nodes: Nodes, trials: None) -> None:
    """On its own disk: node 1 sees another folder in the bench's place."""
    reach = {"FTUI_NODE_SECRET": "s" * 32, "FTUI_NODE_PORT": "29545"}
    folder = nodes.bench.folder
    far = reach | {name: str(folder.parent / "far" / name) for name in ("FTUI_RUNS", "FTUI_CACHE")}
    other = folder.parent / "other"
    changes: dict[str, Callable[[], None]] = {
        "there is no file or folder rows.jsonl": (other / "rows.jsonl").unlink,
        "the base model is not what rank 0 has": partial(change_a_bit, other / "base" / "model.safetensors"),
    }
    for words, change in changes.items():
        shutil.rmtree(other, ignore_errors=True)
        nodes.bench.profile("differs")
        shutil.copytree(folder, other, ignore=shutil.ignore_patterns("runs", "cache"))
        change()
        mounted = f'mount --bind {other} {folder} && cd {folder} && exec "$@"'
        place = {"NODE_RANK": "1", "NNODES": "2", "MASTER_ADDR": ADDRESSES[0]}
        command = [sys.executable, "-m", "ftui", "--run", str(folder / "differs.toml"), *TWO]
        leader = nodes.ftui(0, "differs", **reach)
        keeper = nodes.start(1, ["unshare", "-m", "sh", "-c", mounted, "sh", *command], **place, **far)
        (code, output), (kept, told) = end(leader, keeper)
        assert code not in (0, 70) and kept == code and words in output, output + told


def test_a_link_that_is_down_ends_both_sides_but_a_pause_does_not_and_sigterm_to_node_1_both(
    nodes: Nodes, trials: None
) -> None:
    """With 3 seconds of silence instead of 30. Without --trials test_keeping.py has both sides in one process."""
    (nodes.bench.folder / "sitecustomize.py").write_text(QUICK)
    path = f"{nodes.bench.folder}:{nodes.bench.env.get('PYTHONPATH', '')}"
    leader, keeper = (nodes.ftui(number, "cut", *LONG, PYTHONPATH=path) for number in (0, 1))
    run = nodes.bench.run("cut")
    wait_until(lambda: run.metrics.exists() and len(steps(run)) >= 3)
    assert nodes.bench.ftui("pause", "cut").returncode == 0
    wait_until(lambda: any(isinstance(r, ControlApplied) for r in records(run)))
    wait_until(lambda: run.telemetry.read_text().count("\n") > 8)  # a second each: longer than the silence
    assert not [r for r in Tail(run.supervisor_log).read() if isinstance(r, EngineEnded)]
    ip("-n", NAMES[0], "link", "set", "ftui-va", "down")
    try:
        wait_until(lambda: any(isinstance(r, EngineEnded) for r in Tail(run.supervisor_log).read()), seconds=30)
    finally:
        ip("-n", NAMES[0], "link", "set", "ftui-va", "up")
    ended = next(r for r in Tail(run.supervisor_log).read() if isinstance(r, EngineEnded))
    assert "was not heard for 3 s" in ended.lost_node
    wait_until(lambda: any(s.attempt == 2 for s in steps(run)))
    keeper.terminate()
    (code, output), (kept, words) = end(leader, keeper)
    assert (code, kept) == (20, 20), output + words
    assert "was not heard" in words
    stopped = last(run, RunStopped)
    assert stopped.exit_code == 20 and stopped.checkpoint == f"checkpoints/checkpoint-{stopped.step}"


def test_sigterm_to_node_0_saves_and_ends_both(nodes: Nodes, trials: None) -> None:
    both = [nodes.ftui(number, "told", *LONG) for number in (0, 1)]
    run = nodes.bench.run("told")
    wait_until(lambda: run.metrics.exists() and len(steps(run)) >= 3)
    both[0].terminate()
    assert [code for code, _ in end(*both)] == [20, 20]
    assert last(run, RunStopped).exit_code == 20


def test_real_torchrun_with_one_process_a_node(nodes: Nodes, trials: None) -> None:
    words = ["-m", "torch.distributed.run", "--nnodes=2", "--nproc-per-node=1", f"--master-addr={ADDRESSES[0]}",
             "--master-port=29511", "--no-python", sys.executable, "-m", "ftui", "run"]  # fmt: skip
    profile = str(nodes.bench.profile("torchrun"))
    both = [nodes.start(n, [sys.executable, *words[:2], f"--node-rank={n}", *words[2:], profile, *TWO]) for n in (0, 1)]
    results = end(*both)
    assert [code for code, _ in results] == [0, 0], results
    assert nodes.bench.run("torchrun").final.exists()
    assert "Attempt 1: rank 1 of 2 through ftui-vb" in results[1][1]
