"""`ftui --run P` on another node than node 0: the run is opened there, and this command keeps its node."""

import os

from ftui.errors import UsageError
from ftui.launch.open_run import successors
from ftui.profile.schema import Profile
from ftui.runs.run_folder import Run
from ftui.supervisor.nodes.node_place import NodePlace, find_place
from ftui.text import shown


def place_of(profile: Profile) -> NodePlace | None:
    """Which node of the run this is, by the profile and what the launcher has put into the environment."""
    return find_place(profile.hardware.nodes, profile.hardware.num_processes, os.environ)


def keep_node(run: Run, profile: Profile, place: NodePlace, *, again: bool, detach: bool, makes_child: bool) -> int:
    """Keep this node until the run is over; returns the run's exit code.

    Raises:
        UsageError: the options are for node 0 only.
    """
    if detach:
        hint = f"This is node {place.rank}: it needs a command that stays."
        raise UsageError("--detach goes with node 0 only.", hint=hint)
    if makes_child:
        hint = "Make the child run on node 0 with --detach and --set hardware.nodes=1; then give `ftui --run CHILD`."
        raise UsageError("A child run cannot be begun on several nodes at once: its name is not known yet.", hint=hint)
    from ftui.supervisor.nodes.keeper import Keeper  # psutil: 20 ms that no other command needs

    minutes = profile.hardware.node_patience_minutes

    def say(line: str) -> None:
        print(f"node {place.rank}: {shown(line)}", flush=True)

    patience = None if minutes is None else 60 * minutes
    return Keeper(lambda: newest_opened(run, again=again), place, patience, say).keep()


def newest_opened(run: Run, *, again: bool) -> Run:
    """The run itself; with `again` the last of NAME, NAME-2 ... that exists."""
    for successor in successors(run) if again else ():
        if not successor.facts.exists():
            break
        run = successor
    return run
