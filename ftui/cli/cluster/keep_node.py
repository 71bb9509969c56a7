"""`ftui --run P` on another node than node 0: the run is opened there, and this command keeps its node."""

import contextlib
import os
from collections.abc import Callable, Iterator
from functools import partial

from ftui.errors import FtuiError, UsageError
from ftui.hardware.card_locks import RunCards
from ftui.launch.claim_cards import claimed_cards
from ftui.launch.open_run import successors
from ftui.profile.schema import Profile
from ftui.runs.run_folder import Run
from ftui.runs.state import has_begun, has_ended
from ftui.runs.status import read_status
from ftui.supervisor.nodes.node_place import NodePlace, find_place
from ftui.system.files import is_locked
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
    from ftui.supervisor.peer_copies import peer_copy_variables

    minutes = profile.hardware.node_patience_minutes

    def say(line: str) -> None:
        print(f"node {place.rank}: {shown(line)}", flush=True)

    def exit_code_of(run: Run) -> int | None:
        return None if again else code_of_ended(run, resume_stopped=resume_stopped)

    patience = None if minutes is None else 60 * minutes
    with claimed_cards(profile) as locks:
        cards = RunCards(run.folder, [lock.descriptor for lock in locks])
        find = partial(newest_opened, run, again=again)
        num_ranks = profile.hardware.num_processes // place.num_nodes
        variables, warnings = peer_copy_variables(num_ranks, {**os.environ, **cards.environment})
        for warning in warnings:
            say(f"warning: {warning}")
        return Keeper(find, place, patience, say, exit_code_of=exit_code_of, cards=cards, variables=variables).keep()


@contextlib.contextmanager
def refusals_told(run: Run, place: NodePlace | None, say: Callable[[str], None]) -> Iterator[None]:
    """A block in which an error (`FtuiError`) of node 0 is told to the other nodes before it is raised on.

    Not where a supervisor has the run: then it talks to them. `place`: `None` where there are no others.
    """
    try:
        yield
    except FtuiError as error:
        if place is not None and not is_locked(run.supervisor_lock):
            from ftui.supervisor.nodes.node_messages import Refused
            from ftui.supervisor.nodes.refusal import tell_refusal

            say("node 0: the run is refused here, and the other nodes are told why.")
            if untold := tell_refusal(run, place, Refused(error.message, error.hint, error.exit_code)):
                say(f"node 0: {', '.join(f'node {node}' for node in untold)} did not ask.")
        raise


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
