"""What launchers put into the environment, and which node that makes this one."""

import pytest

from ftui.errors import FtuiError, ProfileError, UsageError
from ftui.supervisor.nodes.node_place import NodePlace, check_is_named, expand_nodelist, find_place, place_in

TORCHRUN = {"GROUP_RANK": "1", "GROUP_WORLD_SIZE": "2", "LOCAL_WORLD_SIZE": "1", "RANK": "1", "WORLD_SIZE": "2",
            "MASTER_ADDR": "10.0.0.1", "MASTER_PORT": "29500"}  # fmt: skip
SLURM = {"SLURM_NODEID": "2", "SLURM_NNODES": "3", "SLURM_JOB_NODELIST": "gpu[08-10]"}
SKY = {"SKYPILOT_NODE_RANK": "1", "SKYPILOT_NUM_NODES": "2", "SKYPILOT_NODE_IPS": "10.1.0.4\n10.1.0.5\n"}
KUBEFLOW = {"PET_NODE_RANK": "0", "PET_NNODES": "4", "PET_MASTER_ADDR": "job-master-0", "PET_MASTER_PORT": "23456"}
BY_HAND = {"NODE_RANK": "1", "NNODES": "2", "MASTER_ADDR": "10.0.0.1", "MASTER_PORT": "4711"}
HAND = "NODE_RANK and NNODES"


@pytest.mark.parametrize(
    ("environment", "place"),
    [
        ({}, None),
        ({"RANK": "0", "WORLD_SIZE": "1", "MASTER_ADDR": "localhost"}, None),  # some pods have these for every process
        (TORCHRUN, NodePlace(1, 2, "10.0.0.1", "torchrun")),  # its own store listens on MASTER_PORT
        (TORCHRUN | {"FTUI_NODE_PORT": "5000"}, NodePlace(1, 2, "10.0.0.1", "torchrun", 5000)),
        (TORCHRUN | {"GROUP_WORLD_SIZE": "1", "GROUP_RANK": "0"}, None),
        (SLURM, NodePlace(2, 3, "gpu08", "SLURM")),
        (SLURM | {"SLURM_STEP_NUM_NODES": "1"}, None),  # srun --nodes=1 within a job of three
        (
            SLURM | {"SLURM_NODEID": "1", "SLURM_STEP_NUM_NODES": "2", "SLURM_STEP_NODELIST": "gpu[09-10]"},
            NodePlace(1, 2, "gpu09", "SLURM"),
        ),
        (SLURM | {"SLURM_STEP_TASKS_PER_NODE": "1(x3)"}, NodePlace(2, 3, "gpu08", "SLURM")),
        (SKY, NodePlace(1, 2, "10.1.0.4", "SkyPilot")),
        (KUBEFLOW, NodePlace(0, 4, "job-master-0", "Kubeflow", 23456)),
        (BY_HAND, NodePlace(1, 2, "10.0.0.1", HAND, 4711)),
        (BY_HAND | {"MASTER_PORT": ""}, NodePlace(1, 2, "10.0.0.1", HAND)),
        (SLURM | TORCHRUN, NodePlace(1, 2, "10.0.0.1", "torchrun")),  # srun torchrun ftui
        (SLURM | BY_HAND, NodePlace(1, 2, "10.0.0.1", HAND, 4711)),
    ],
)
def test_the_place_of_each_launcher(environment: dict[str, str], place: NodePlace | None) -> None:
    assert place_in(environment) == place


@pytest.mark.parametrize(
    ("environment", "words"),
    [
        (BY_HAND | {"NNODES": ""}, "NNODES is not set"),
        (BY_HAND | {"NNODES": "two"}, "NNODES='two'"),
        (BY_HAND | {"NNODES": "0"}, "NNODES='0'"),
        (BY_HAND | {"NODE_RANK": "-1"}, "NODE_RANK='-1'"),
        (BY_HAND | {"NODE_RANK": "2"}, "NODE_RANK=2, but there are 2 nodes"),
        (BY_HAND | {"MASTER_ADDR": ""}, "MASTER_ADDR is not set"),
        (BY_HAND | {"MASTER_PORT": "99999"}, "MASTER_PORT=99999 is no port"),
        (BY_HAND | {"MASTER_PORT": "http"}, "MASTER_PORT='http'"),
        (TORCHRUN | {"LOCAL_WORLD_SIZE": "4"}, "LOCAL_WORLD_SIZE=4"),
        (SLURM | {"SLURM_STEP_TASKS_PER_NODE": "8(x3)"}, "SLURM_STEP_TASKS_PER_NODE=8(x3)"),
        (SLURM | {"SLURM_JOB_NODELIST": "gpu[08-"}, "SLURM_JOB_NODELIST='gpu[08-'"),
        (SLURM | {"SLURM_JOB_NODELIST": ""}, "SLURM_JOB_NODELIST is not set"),
        (KUBEFLOW | {"PET_NNODES": "1:4"}, "PET_NNODES=1:4"),
        (SKY | {"SKYPILOT_NODE_IPS": " "}, "SKYPILOT_NODE_IPS is not set"),
    ],
)
def test_bad_values_are_named(environment: dict[str, str], words: str) -> None:
    with pytest.raises(UsageError) as caught:
        place_in(environment)
    assert words in caught.value.message


@pytest.mark.parametrize(
    ("nodes", "num_processes", "environment", "expected"),
    [
        (None, 4, {}, None),
        (1, 4, BY_HAND, None),
        (None, 4, BY_HAND, 1),
        (2, 4, BY_HAND, 1),
        (2, 4, {}, 0),  # the profile alone: this is node 0
        (3, 6, BY_HAND, ProfileError),
        (None, 3, BY_HAND, ProfileError),
        (None, 1, BY_HAND, ProfileError),
    ],
)
def test_profile_and_launcher_agree(
    nodes: int | None, num_processes: int, environment: dict[str, str], expected: int | type[FtuiError] | None
) -> None:
    if isinstance(expected, type):
        with pytest.raises(expected, match=r"hardware\.n"):
            find_place(nodes, num_processes, environment)
    else:
        place = find_place(nodes, num_processes, environment)
        assert (place and place.rank) == expected


@pytest.mark.parametrize("environment", [BY_HAND, SLURM, SKY])
def test_a_run_of_several_nodes_is_started_where_it_is_said_which_this_is(environment: dict[str, str]) -> None:
    """Each machine would be node 0, and none would ever meet the others."""
    check_is_named(2, environment)
    for nodes in (None, 1):
        check_is_named(nodes, {})
    with pytest.raises(UsageError, match="nothing says which of them this machine is") as caught:
        check_is_named(2, {})
    words = dict(word.split("=") for word in caught.value.hint.split() if "=" in word)
    assert place_in(words | {"NODE_RANK": "0"}) == NodePlace(0, 2, "ADDRESS_OF_NODE_0", "NODE_RANK and NNODES")


@pytest.mark.parametrize(
    ("text", "names"),
    [  # as `scontrol show hostnames` expands them
        ("node1", ["node1"]),
        ("a,b", ["a", "b"]),
        ("gpu[1-3]", ["gpu1", "gpu2", "gpu3"]),
        ("gpu[08-10,12]", ["gpu08", "gpu09", "gpu10", "gpu12"]),
        ("a[1-2]-ib,login,c[099-100]", ["a1-ib", "a2-ib", "login", "c099", "c100"]),
        ("r1-[3]", ["r1-3"]),
    ],
)
def test_lists_of_nodes(text: str, names: list[str]) -> None:
    assert expand_nodelist(text) == names


@pytest.mark.parametrize("text", ["a[", "a[]", "a[x]", "a[3-1]", "a]", "a,", ",a", "a[1-2]]", "a[1,,2]"])
def test_what_is_no_list_of_nodes(text: str) -> None:
    with pytest.raises(ValueError):
        expand_nodelist(text)
