"""`ftui --run P` on another node than node 0: the run is opened there, and this command keeps its node."""

import os
from functools import partial

from ftui.errors import UsageError
from ftui.hardware.card_locks import RunCards
from ftui.launch.claim_cards import claimed_cards
from ftui.launch.open_run import successors
from ftui.profile.schema import Profile
from ftui.runs.run_folder import Run
from ftui.runs.state import has_begun, has_ended
from ftui.runs.status import read_status
from ftui.supervisor.nodes.node_place import NodePlace, find_place
from ftui.text import shown


def place_of(profile: Profile) -> NodePlace | None:
    """Which node of the run this is, by the profile and what the launcher has put into the environment."""
    return find_place(profile.hardware.nodes, profile.hardware.num_processes, os.environ)


def keep_node(
    run: Run, profile: Profile, place: NodePlace, *, again: bool, detach: bool, makes_child: bool,
    resume_stopped: bool = False,
) -> int:  # fmt: skip
    """Keep this node until the run is over; returns the run's exit code. Options as those of node 0's `open_run`.

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

    def exit_code_of(run: Run) -> int | None:
        return None if again else code_of_ended(run, resume_stopped=resume_stopped)

    patience = None if minutes is None else 60 * minutes
    with claimed_cards(profile) as locks:
        cards = RunCards(run.folder, [lock.descriptor for lock in locks])
        find = partial(newest_opened, run, again=again)
        return Keeper(find, place, patience, say, exit_code_of=exit_code_of, cards=cards).keep()


def code_of_ended(run: Run, *, resume_stopped: bool) -> int | None:
    """The exit code of a run that node 0 will not go on with; `None` where it will, or is about to make it."""
    if not run.facts.exists():
        return None
    state = read_status(run).state
    goes_on = not has_ended(state) or (state.phase == "stopped" and (resume_stopped or not has_begun(state)))
    return None if goes_on else state.exit_code


def newest_opened(run: Run, *, again: bool) -> Run:
    """The run itself; with `again` the last of NAME, NAME-2 ... that exists."""
    for successor in successors(run) if again else ():
        if not successor.facts.exists():
            break
        run = successor
    return run
