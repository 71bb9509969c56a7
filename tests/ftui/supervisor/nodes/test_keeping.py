"""Node 0 and a keeper in one process, with a line of Python as each rank: who starts, who is lost, who is told."""

import re
import signal
import socket
import sys
import threading
import time
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import msgspec
import pytest

from ftui.cli.cluster import keep_node as keep_nodes
from ftui.cli.cluster.keep_node import code_of_ended, keep_node, refusals_told
from ftui.errors import PREEMPTED_NOT_SAVED, FtuiError, HardwareError, ProfileError, UsageError
from ftui.hardware.card_locks import is_taken
from ftui.runs.events import ControlApplied, ControlRefused, RunFinished, Warned
from ftui.runs.journal import Tail
from ftui.runs.records.supervisor_records import EngineEnded
from ftui.runs.requests import Park, Stop, write_request
from ftui.runs.run_folder import Run
from ftui.runs.send_request import address_request
from ftui.runs.status import read_status
from ftui.supervisor import attempt as attempts
from ftui.supervisor.engine_process import LOST_RANK, start_engine
from ftui.supervisor.nodes import keeper as keeping
from ftui.supervisor.nodes import node_group
from ftui.supervisor.nodes import refusal as refusals
from ftui.supervisor.nodes.announcement import announce, node_versions
from ftui.supervisor.nodes.keeper import Keeper
from ftui.supervisor.nodes.node_group import NodeGroup
from ftui.supervisor.nodes.node_messages import NodeBeat, RunOver
from ftui.supervisor.nodes.node_place import RANK_VARIABLES, NodePlace
from ftui.supervisor.settings import SupervisorSettings
from ftui.supervisor.supervise import place_of, supervise
from tests.support.stand_in_queue import CARDS, driver
from tests.support.zygote import free_port

LEADER, OTHER = NodePlace(0, 2, "127.0.0.1"), NodePlace(1, 2, "127.0.0.1")
BEAT, SILENCE = 0.05, 0.8
WAITS = "import time; time.sleep(60)"


@pytest.fixture
def run(make_run: Any) -> Run:
    made: Run = make_run("mine")
    return made


@pytest.fixture
def told() -> list[str]:
    return []


@pytest.fixture
def group(run: Run, told: list[str]) -> Iterator[NodeGroup]:
    made = NodeGroup(run, LEADER, lambda: told.append("terminate"), beat=BEAT, silence=SILENCE)
    yield made
    made.close(0)


@pytest.fixture
def keeper(run: Run, told: list[str], monkeypatch: pytest.MonkeyPatch) -> Iterator[Keeper]:
    ranks(monkeypatch, WAITS)
    made = Keeper(lambda: run, OTHER, 60.0, told.append, beat=BEAT, silence=SILENCE)
    yield made
    made.close()


def ranks(monkeypatch: pytest.MonkeyPatch, program: str) -> None:
    """What each rank of the keeper runs instead of the engine."""
    monkeypatch.setattr(keeping, "engine_command", lambda run: [sys.executable, "-S", "-c", program])


def look_until(keeper: Keeper, condition: Callable[[], Any], seconds: float = 20.0) -> int | None:
    deadline, code = time.monotonic() + seconds, None
    while not condition():
        assert time.monotonic() < deadline, "it did not come true"
        code = keeper._look()
        time.sleep(0.01)
    return code


def start(group: NodeGroup, run: Run, program: str = WAITS) -> Any:
    """Both nodes' ranks, two on each; returns those of node 0."""
    begin = partial(start_engine, run, [sys.executable, "-S", "-c", program])
    return group.start_engine(begin, {}, 1, "token", per_node=2)


def test_the_real_constants() -> None:
    """Both sides notice a dead link within 35 seconds, whatever the phase of their beats."""
    assert (node_group.BEAT_SECONDS, node_group.SILENCE_SECONDS) == (1.0, 30.0)
    assert node_group.SILENCE_SECONDS + 2 * node_group.BEAT_SECONDS + keeping.LOOK_SECONDS < 35


def test_each_node_starts_its_own_ranks_and_tells_how_they_ended(
    group: NodeGroup, keeper: Keeper, run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    names = "RANK LOCAL_RANK WORLD_SIZE LOCAL_WORLD_SIZE MASTER_ADDR GLOO_SOCKET_IFNAME NCCL_SOCKET_IFNAME FTUI_ATTEMPT"
    names += " CUDA_VISIBLE_DEVICES"
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    cards: Any = SimpleNamespace(environment={"CUDA_VISIBLE_DEVICES": "GPU-a,GPU-b"}, descriptors=())
    keeper._cards = cards
    values = f"[str(os.environ.get(name)) for name in {names.split()}]"
    program = f"import os; os.write(1, (' '.join({values}) + '\\n').encode())"  # two ranks write one file
    ranks(monkeypatch, program)
    assert group.missing() == [1]
    look_until(keeper, lambda: not group.missing())
    own = start(group, run, program.replace("(' '", "('own ' + ' '"))
    look_until(keeper, lambda: not group._is_working() and own.has_ended())
    lines = sorted(run.node_log(1).read_text().splitlines())
    assert lines == ["2 0 4 2 127.0.0.1 lo =lo 1 GPU-a", "3 1 4 2 127.0.0.1 lo =lo 1 GPU-b"]
    assert sorted(run.engine_log.read_text().splitlines())[1] == "own 1 1 4 2 127.0.0.1 lo =lo None 1"
    assert group.explain(0, None) == (0, None, "") and not group.loss()
    with group._lock:
        group._send(group._members[1], RunOver(20))
        group._send(group._members[1], NodeBeat())  # the thread may send one more before it ends
    time.sleep(0.05)
    assert keeper._look() == 20


def test_how_a_rank_of_another_node_failed_stands_for_the_attempt(
    group: NodeGroup, keeper: Keeper, run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    text = "rank 3 failed: no"
    ranks(
        monkeypatch,
        f"import os; bad = os.environ['RANK'] == '3'; print({text!r} if bad else ''); raise SystemExit(31 * bad)",
    )
    look_until(keeper, lambda: not group.missing())
    own = start(group, run, f"raise SystemExit({LOST_RANK})")
    look_until(keeper, lambda: not group._is_working() and own.has_ended())
    assert group.explain(*own.exit_status()) == (31, None, "") and "rank 3 failed: no" in group.last_lines()


def test_a_keeper_that_falls_silent_is_lost_and_ends_its_own_ranks(
    group: NodeGroup, keeper: Keeper, run: Run, told: list[str]
) -> None:
    """As when the link between them is down: neither hears the other. In a pause both hear each other: nothing ends."""
    look_until(keeper, lambda: not group.missing())
    own = start(group, run)
    begun = time.monotonic()
    look_until(keeper, lambda: time.monotonic() > begun + 2 * SILENCE)
    assert keeper._engine is not None and not group.loss(), "a long pause ends nothing"
    with group._lock:  # node 0 beats no more, nor does it listen
        look_until(keeper, lambda: keeper._engine is None)
    assert any("was not heard" in line for line in told)
    deadline = time.monotonic() + 10
    while not group.loss():
        assert time.monotonic() < deadline
        time.sleep(0.02)
    group.end_with_lost(own)
    while not own.has_ended():
        time.sleep(0.02)
    code, name, lost = group.explain(*own.exit_status())
    assert lost.startswith("node 1 (") and (code, name) == (None, "SIGKILL")


def test_a_new_keeper_means_that_the_ranks_of_its_node_are_gone(
    group: NodeGroup, keeper: Keeper, run: Run, told: list[str]
) -> None:
    look_until(keeper, lambda: not group.missing())
    own = start(group, run)
    other = Keeper(lambda: run, OTHER, 60.0, told.append, beat=BEAT, silence=SILENCE)
    look_until(other, lambda: "come back without its ranks" in group.loss())
    with pytest.raises(FtuiError, match="Another command has joined as node 1"):
        look_until(keeper, lambda: False)
    group.end_with_lost(own)
    assert own.codes() == [-signal.SIGKILL] * 2
    other.close()


def test_sigterm_goes_to_node_0(group: NodeGroup, keeper: Keeper, told: list[str]) -> None:
    look_until(keeper, lambda: not group.missing())
    keeper._receive(signal.SIGTERM, None)
    look_until(keeper, lambda: "terminate" in told)


def test_sigterm_while_node_0_is_away_ends_the_keeper(keeper: Keeper) -> None:
    keeper._receive(signal.SIGTERM, None)
    assert keeper._look() == PREEMPTED_NOT_SAVED


@pytest.mark.parametrize(("name", "there"), [("torch", "1.0"), ("ftui", "0.0.1")])
def test_other_versions_are_refused(
    name: str, there: str, group: NodeGroup, keeper: Keeper, monkeypatch: pytest.MonkeyPatch
) -> None:
    versions = node_versions()
    monkeypatch.setattr(keeping, "node_versions", lambda: versions | {name: there})
    with pytest.raises(HardwareError, match=re.escape(f"has {name} {there}, and node 0 has {versions[name]}")):
        look_until(keeper, lambda: False)


@pytest.mark.parametrize(
    ("place", "words"),
    [(NodePlace(1, 3, "127.0.0.1"), "node 0 waits for 2 nodes"), (NodePlace(2, 3, "127.0.0.1"), "node 2 of 3")],
)
def test_another_number_of_nodes_is_refused(place: NodePlace, words: str, group: NodeGroup, run: Run) -> None:
    with pytest.raises(UsageError, match=words):
        look_until(Keeper(lambda: run, place, 60.0, print, beat=BEAT, silence=SILENCE), lambda: False)


def test_a_wrong_secret_is_refused(group: NodeGroup, keeper: Keeper, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FTUI_NODE_SECRET", "not that of the run")
    with pytest.raises(HardwareError, match="another secret"):
        look_until(keeper, lambda: False)


@pytest.fixture
def far(
    group: NodeGroup, run: Run, tmp_path: Path, told: list[str], monkeypatch: pytest.MonkeyPatch
) -> Iterator[Keeper]:
    """A keeper that does not see node 0's folder. A network volume is given time to show it."""
    run.profile.write_text("[hardware]\nnum_processes = 4\n")
    monkeypatch.setattr(keeping, "SHARE_SECONDS", 0.3)
    monkeypatch.setenv("FTUI_NODE_SECRET", group._announcement.secret)
    place = OTHER._replace(port=group._announcement.port)
    made = Keeper(lambda: Run(tmp_path / "far" / "mine"), place, 60.0, told.append, beat=BEAT, silence=SILENCE)
    yield made
    made.close()


def test_a_node_that_does_not_see_the_folder_works_in_one_of_its_own(
    group: NodeGroup, far: Keeper, run: Run, told: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    ranks(monkeypatch, "import os; print(os.getcwd(), os.environ['FTUI_OWN_FOLDER'], flush=True)")
    begun = time.monotonic()
    look_until(far, lambda: not group.missing())
    assert time.monotonic() - begun > 0.3
    own = start(group, run, "import os; assert 'FTUI_OWN_FOLDER' not in os.environ")
    look_until(far, lambda: not group._is_working() and own.has_ended())
    folder = tmp_path / "far" / ".mine-node-1"
    assert own.codes() == [0, 0] and f"works in {folder}" in told[-2]
    assert Run(folder).node_log(1).read_text() == f"{folder} 1\n" * 2
    assert Run(folder).profile.read_bytes() == run.profile.read_bytes()
    (folder / "checkpoints" / "checkpoint-4").mkdir(parents=True)
    with group._lock:
        group._send(group._members[1], RunOver(0))
    time.sleep(0.05)
    assert far._look() == 0
    assert sorted(path.name for path in folder.iterdir()) == ["node-1.log", "profile.toml"]


def test_another_run_of_that_name_is_refused(group: NodeGroup, far: Keeper, tmp_path: Path) -> None:
    """The nonce in nodes.json proves whose folder it is, not the path."""
    current, other = group._announcement, Run(tmp_path / "far" / "mine")
    other.folder.mkdir(parents=True)
    announce(other.nodes, current.address, current.port, 2, current.secret)
    with pytest.raises(UsageError, match="sees another folder of a run mine than node 0"):
        look_until(far, lambda: False)


def test_a_keeper_that_cannot_reach_node_0_says_what_is_missing(
    far: Keeper, told: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("FTUI_NODE_SECRET")
    look_until(far, lambda: told)
    far._next_connect = 0.0
    far._look()
    assert told == [keeping.NO_WAY]


def test_ranks_wait_for_none_that_have_failed_elsewhere(
    group: NodeGroup, keeper: Keeper, run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(node_group, "LINGER_SECONDS", 0.2)
    ranks(monkeypatch, "raise SystemExit(30)")
    look_until(keeper, lambda: not group.missing())
    own = start(group, run)

    def has_ended() -> bool:
        group.end_with_lost(own)
        return bool(own.has_ended())

    look_until(keeper, has_ended)
    assert group.explain(*own.exit_status()) == (30, None, "")


@pytest.fixture
def node_0(run: Run, monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[[], None]]:
    """Its supervisor, in this process: it waits for node 1, which never comes."""
    monkeypatch.setattr(attempts, "SAY_SECONDS", 0.1)
    for name, value in {"NODE_RANK": "0", "NNODES": "2", "MASTER_ADDR": "127.0.0.1"}.items():
        monkeypatch.setenv(name, value)
    before = [(number, signal.getsignal(number)) for number in (signal.SIGTERM, signal.SIGHUP)]
    yield lambda: supervise(run, [sys.executable, "-c", "raise SystemExit(70)"])
    for number, handler in before:
        signal.signal(number, handler)


def test_patience_ends_and_the_run_is_parked(run: Run, node_0: Callable[[], None]) -> None:
    run.profile.write_text("[hardware]\nnum_processes = 2\nnode_patience_minutes = 0.01\n")
    node_0()
    warned, ended = Tail(run.supervisor_log).read()
    assert isinstance(warned, Warned) and warned.message.startswith("node 1 is away")
    assert isinstance(ended, EngineEnded) and (ended.code, ended.attempt) == (11, 1)
    state = read_status(run).state
    assert (state.phase, state.exit_code) == ("parked", 11) and "node 1 is away" in state.message
    assert not run.nodes.exists(), "nobody listens any more"


def test_a_run_that_waits_for_a_node_can_be_parked(run: Run, node_0: Callable[[], None]) -> None:
    """No engine is there to answer; what needs one is refused with a reason."""
    run.profile.write_text("[hardware]\nnum_processes = 2\n")

    def ask() -> None:
        for kind in (Stop, Park):
            while (status := read_status(run)).state.attempt == 0:  # it says first that it waits
                time.sleep(0.02)
            write_request(run, address_request(run, status, kind, {}))

    thread = threading.Thread(target=ask)
    thread.start()
    node_0()
    thread.join()
    answers = {type(r): r for r in Tail(run.supervisor_log).read()}
    refused, applied = answers[ControlRefused], answers[ControlApplied]
    assert isinstance(refused, ControlRefused) and "`ftui park mine` ends the wait" in refused.reason
    assert isinstance(applied, ControlApplied) and applied.verb == "park"
    state = read_status(run).state
    assert state.exit_code == 11 and state.message == "The run was parked: on request, while node 1 is away."
    assert not list(run.inbox.iterdir())


@pytest.mark.parametrize(
    ("runs", "nodes", "announced", "place"),
    [
        (True, None, True, NodePlace(0, 3, "10.0.0.1")),  # any command starts the next supervisor
        (True, 1, True, None), (True, None, False, None),
        (False, None, True, None),  # of a time when it had several: they are not waited for
    ],
)  # fmt: skip
def test_a_supervisor_that_no_launcher_has_started_knows_of_the_other_nodes(
    runs: bool, nodes: int | None, announced: bool, place: NodePlace | None, run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in RANK_VARIABLES:
        monkeypatch.delenv(name, raising=False)
    if announced:
        announce(run.nodes, "10.0.0.1", 4711, 3, "s" * 20)
    assert place_of(run, SupervisorSettings(num_processes=3, nodes=nodes), runs=runs) == place
    assert run.nodes.exists() == (place is not None)


def test_a_keeper_does_not_wait_for_a_run_that_has_ended(run: Run, append: Any) -> None:
    """Node 0 says so and ends at once, and tells nobody."""
    find: Callable[[Run], int | None] = partial(code_of_ended, resume_stopped=False)
    keeper = Keeper(lambda: run, OTHER, 60.0, print, exit_code_of=find)
    assert keeper._look() is None
    append(run.journal, RunFinished(step=1, reason="", final="final"), attempt=1)
    keeper._next_connect = 0.0
    assert keeper._look() == 0
    assert code_of_ended(Run(run.folder.with_name("none")), resume_stopped=False) is None


def test_a_keeper_that_read_before_node_0_announced_itself_anew_tries_again(
    group: NodeGroup, keeper: Keeper, run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    """On a port that stays the same it reaches a new node 0 with the number of the old one."""
    current = group._announcement
    old = msgspec.structs.replace(current, nonce="old", secret="s" * 20)
    reads = iter([old])
    monkeypatch.setattr(keeping, "read_announcement", lambda file: next(reads, current) if file == run.nodes else None)
    assert keeper._look() is None
    keeper._next_connect = 0.0
    look_until(keeper, lambda: not group.missing())


def test_a_keeper_has_the_cards_of_its_node(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    """A queue there starts no run on them."""
    monkeypatch.setitem(sys.modules, "pynvml", driver())
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    for name, value in {"NODE_RANK": "1", "NNODES": "2", "MASTER_ADDR": "127.0.0.1"}.items():
        monkeypatch.setenv(name, value)
    seen: dict[str, Any] = {}

    def keep(keeper: Keeper) -> int:
        assert keeper._cards is not None
        seen.update(keeper._cards.environment, taken=[is_taken(card) for card in CARDS])
        return 0

    monkeypatch.setattr(Keeper, "keep", keep)
    hardware = SimpleNamespace(device="cuda", num_processes=2, nodes=2, node_patience_minutes=1.0)  # one on each
    profile: Any = SimpleNamespace(hardware=hardware)
    assert keep_node(run, profile, OTHER, again=False, detach=False, makes_child=False) == 0
    assert seen == {"CUDA_VISIBLE_DEVICES": "GPU-a", "taken": [True, False]} and not is_taken("GPU-a")


def test_strangers_do_not_use_up_node_0(group: NodeGroup, keeper: Keeper, monkeypatch: pytest.MonkeyPatch) -> None:
    """Those beyond a number are turned away at once; a keeper gets in as soon as one of them is gone."""
    group._admissions = threading.Semaphore(2)
    address = group._announcement.address, group._announcement.port
    strangers = [socket.create_connection(address) for _ in range(3)]
    strangers[2].settimeout(5.0)
    assert strangers[2].recv(100) == b""
    for one in strangers:
        one.close()
    look_until(keeper, lambda: not group.missing())
    time.sleep(0.05)
    assert group._admissions._value == 2


@pytest.mark.parametrize("shares_folder", [True, False])
def test_what_node_0_refuses_is_told_to_the_others(
    shares_folder: bool, run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A keeper would wait for its patience: nobody listens yet, and of the run there may be no folder."""
    said: list[str] = []
    monkeypatch.setattr(keeping, "SHARE_SECONDS", 0.1)
    absent = Run(tmp_path / "none" / "mine") if shares_folder else Run(tmp_path / "far" / "mine")
    absent.folder.parent.mkdir()
    place = LEADER if shares_folder else LEADER._replace(port=free_port())
    if not shares_folder:
        monkeypatch.setenv("FTUI_NODE_SECRET", "s" * 20)
    refused = Run(tmp_path / "none" / "mine")
    (tmp_path / "none").mkdir(exist_ok=True)
    caught: list[FtuiError] = []

    def refuse() -> None:
        try:
            with refusals_told(refused, place, said.append):
                raise ProfileError("The profile is another one.", hint="--fork")
        except FtuiError as error:
            caught.append(error)

    thread = threading.Thread(target=refuse)
    thread.start()
    keeper = Keeper(lambda: absent, OTHER._replace(port=place.port), 60.0, print, beat=BEAT, silence=SILENCE)
    with pytest.raises(ProfileError, match="The profile is another one") as told:
        look_until(keeper, lambda: False)
    thread.join()
    assert told.value.hint == "--fork" and told.value.exit_code == 30
    assert [type(one) for one in caught] == [ProfileError] and "are told why" in said[0] and len(said) == 1
    assert not list((tmp_path / "none").iterdir()), "nothing of it stays"


def test_a_node_that_does_not_ask_is_named(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    """A stranger on the port is told nothing, and node 1 never comes."""
    said: list[str] = []
    monkeypatch.setattr(refusals, "TELL_SECONDS", 0.2)
    with pytest.raises(UsageError), refusals_told(run, LEADER, said.append):
        raise UsageError("no")
    assert said[1] == "node 0: node 1 did not ask."
    with pytest.raises(UsageError), refusals_told(run, None, said.append):
        raise UsageError("no")
    monkeypatch.setattr(keep_nodes, "is_locked", lambda path: path == run.supervisor_lock)
    with pytest.raises(UsageError), refusals_told(run, LEADER, said.append):
        raise UsageError("its supervisor talks to them")
    assert len(said) == 2
