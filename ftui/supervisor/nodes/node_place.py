"""Which of several machines (nodes) this one is: one table of what launchers put into the environment. Pure."""

import re
import socket
from collections.abc import Iterator, Mapping
from typing import NamedTuple

from ftui.errors import ProfileError, UsageError


class NodePlace(NamedTuple):
    """This node's number, how many there are, and the name or address of node 0.

    `port`: where node 0 listens, for nodes that do not share its folder of runs (`None`: it is announced there).
    `launcher` says whose variables these are.
    """

    rank: int
    num_nodes: int
    leader: str
    launcher: str = ""
    port: int | None = None


class Launcher(NamedTuple):
    """The variables of one launcher. `leader` may hold one name, a list of them, or a list as SLURM writes it.

    The first variable of each that is set counts. `own_port`: the launcher itself listens on the port it names.
    """

    name: str
    rank: tuple[str, ...]
    num_nodes: tuple[str, ...]
    leader: tuple[str, ...]
    port: tuple[str, ...] = ()
    own_port: bool = False


LAUNCHERS = (
    Launcher("torchrun", ("GROUP_RANK",), ("GROUP_WORLD_SIZE",), ("MASTER_ADDR",), ("MASTER_PORT",), own_port=True),
    Launcher("NODE_RANK and NNODES", ("NODE_RANK",), ("NNODES",), ("MASTER_ADDR",), ("MASTER_PORT",)),
    Launcher(
        "SLURM",
        ("SLURM_NODEID",),
        ("SLURM_STEP_NUM_NODES", "SLURM_NNODES"),
        ("SLURM_STEP_NODELIST", "SLURM_JOB_NODELIST"),
    ),
    Launcher("SkyPilot", ("SKYPILOT_NODE_RANK",), ("SKYPILOT_NUM_NODES",), ("SKYPILOT_NODE_IPS",)),
    Launcher("Kubeflow", ("PET_NODE_RANK",), ("PET_NNODES",), ("PET_MASTER_ADDR",), ("PET_MASTER_PORT",)),
)
"""The first whose rank is set counts: what is started by hand, or by torchrun within SLURM, is meant so."""

RANK_VARIABLES = tuple(name for launcher in LAUNCHERS for name in launcher.rank)
"""Without them no launcher says that there are several nodes."""

TASKS_ON_A_NODE = {
    "torchrun": ("LOCAL_WORLD_SIZE", "--nproc-per-node=1"),
    "SLURM": ("SLURM_STEP_TASKS_PER_NODE", "--ntasks-per-node=1"),
}
"""The variable with the number of commands that a launcher starts on each node, and the option that makes it one."""

PORT_VARIABLE = "FTUI_NODE_PORT"
BRACKETS = re.compile(r"([^\[\],]*)\[([^\[\]]*)\]([^\[\],]*)|([^\[\],]+)")


def find_place(nodes: int | None, num_processes: int, environment: Mapping[str, str]) -> NodePlace | None:
    """The place of this node; `None` where the run has one. `nodes` and `num_processes` are those of the profile.

    Where the profile alone says that there are several, this one is node 0: `check_is_named` refuses to start a run so.

    Raises:
        UsageError: as `place_in`.
        ProfileError: profile and launcher disagree, or the processes cannot be divided among the nodes.
    """
    place = None if nodes == 1 else place_in(environment)
    if place is None and nodes is not None and nodes > 1:
        place = NodePlace(0, nodes, socket.gethostname())
    if place is None:
        return None
    if nodes is not None and nodes != place.num_nodes:
        raise ProfileError(
            f"hardware.nodes is {nodes}, and {place.launcher} has started {place.num_nodes}.",
            hint="Leave hardware.nodes out: the launcher says it.",
        )
    if num_processes % place.num_nodes:
        raise ProfileError(
            f"hardware.num_processes is {num_processes}: {place.num_nodes} nodes cannot have the same number of them.",
            hint=f"It counts all nodes together: {place.num_nodes} x the GPUs of one.",
        )
    return place


def check_is_named(nodes: int | None, environment: Mapping[str, str]) -> None:
    """See that something says which of several nodes this is, before a run is started here: without that each of them
    would be node 0.

    Raises:
        UsageError: the profile alone says that there are several.
    """
    if nodes is not None and nodes > 1 and not any(environment.get(name) for name in RANK_VARIABLES):
        raise UsageError(
            f"hardware.nodes is {nodes}, and nothing says which of them this machine is.",
            hint=f"Start it by a launcher (docs/scale.md), or by hand: NODE_RANK=0 NNODES={nodes} "
            "MASTER_ADDR=ADDRESS_OF_NODE_0 before the command, with NODE_RANK=1 on the next one.",
        )


def place_in(environment: Mapping[str, str]) -> NodePlace | None:
    """The place that the environment names; `None` where there is one node, or nothing says that there are more.

    Raises:
        UsageError: a variable is missing or no number, or the launcher starts several commands on each node.
    """
    for launcher in LAUNCHERS:
        if any(environment.get(name) for name in launcher.rank):
            return _read(launcher, environment)
    return None


def _read(launcher: Launcher, environment: Mapping[str, str]) -> NodePlace | None:
    num_nodes = _number(launcher, launcher.num_nodes, environment, lowest=1)
    if num_nodes == 1:
        return None
    rank = _number(launcher, launcher.rank, environment, lowest=0)
    if rank >= num_nodes:
        name = _first_set(launcher.rank, environment)
        raise UsageError(
            f"{name}={rank}, but there are {num_nodes} nodes ({launcher.name}).", hint="Nodes are counted from 0."
        )
    _check_tasks(launcher, environment)
    leader = _leader(launcher, environment)
    return NodePlace(rank, num_nodes, leader, launcher.name, _port(launcher, environment))


def _check_tasks(launcher: Launcher, environment: Mapping[str, str]) -> None:
    variable, option = TASKS_ON_A_NODE.get(launcher.name, ("", ""))
    count = environment.get(variable, "1")
    if re.match(r"\d+", count) and not re.fullmatch(r"1(\(x\d+\))?(,1(\(x\d+\))?)*", count):
        raise UsageError(
            f"{variable}={count}: {launcher.name} starts several commands on a node.",
            hint=f"ftui starts the processes of its node itself (hardware.num_processes): use {option}.",
        )


def _leader(launcher: Launcher, environment: Mapping[str, str]) -> str:
    name = _first_set(launcher.leader, environment)
    text = environment.get(name, "").strip()
    try:
        names = expand_nodelist(text) if launcher.name == "SLURM" else text.split()
    except ValueError as error:
        raise UsageError(f"{name}={text!r} is no list of nodes: {error}.") from None
    if not names:
        raise UsageError(f"{name} is not set: {launcher.name} does not say which machine is node 0.")
    return names[0]


def _port(launcher: Launcher, environment: Mapping[str, str]) -> int | None:
    names = (PORT_VARIABLE, *(() if launcher.own_port else launcher.port))
    if not any(environment.get(name) for name in names):
        return None
    port = _number(launcher, names, environment, lowest=1)
    if port > 65535:
        raise UsageError(f"{_first_set(names, environment)}={port} is no port: they end at 65535.")
    return port


def _first_set(names: tuple[str, ...], environment: Mapping[str, str]) -> str:
    return next((name for name in names if environment.get(name)), names[-1])


def _number(launcher: Launcher, names: tuple[str, ...], environment: Mapping[str, str], *, lowest: int) -> int:
    name = _first_set(names, environment)
    text = environment.get(name, "").strip()
    if not text:
        raise UsageError(f"{name} is not set, and {launcher.rank[0]} is.", hint=f"{launcher.name} needs both.")
    if re.fullmatch(r"\d+:\d+", text):
        raise UsageError(
            f"{name}={text}: a number of nodes that changes (elastic) is not supported.", hint="Name one number."
        )
    if not re.fullmatch(r"\d{1,9}", text) or int(text) < lowest:
        raise UsageError(f"{name}={text!r} is no whole number from {lowest}.")
    return int(text)


def expand_nodelist(text: str) -> list[str]:
    """The names in a list as SLURM writes it: `a[1-3,7]-ib,b` is a1-ib a2-ib a3-ib a7-ib b.

    Raises:
        ValueError: it is no such list.
    """
    names: list[str] = []
    end = 0
    while end < len(text):
        match = BRACKETS.match(text, end)
        if match is None or match.end() == end:
            raise ValueError(f"{text[end:]!r} cannot be read")
        before, numbers, after, plain = match.groups()
        names += [plain] if plain is not None else [before + number + after for number in _numbers(numbers)]
        end = match.end()
        if end < len(text):
            if text[end] != "," or end + 1 == len(text):
                raise ValueError(f"{text[end:]!r} cannot be read")
            end += 1
    return names


def _numbers(text: str) -> Iterator[str]:
    """The numbers of `1-3,07`, as they are written: leading zeros stay."""
    for part in text.split(","):
        first, dash, last = part.partition("-")
        if not first.isdigit() or (dash and not last.isdigit()) or (dash and int(last) < int(first)):
            raise ValueError(f"{part!r} is no number and no range")
        for number in range(int(first), int(last or first) + 1):
            yield str(number).zfill(len(first))
