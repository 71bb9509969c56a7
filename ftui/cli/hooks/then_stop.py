"""`ftui keep RUN` and `ftui then-stop RUN`: whether a run that has ended stops this machine."""

from collections.abc import Collection

from ftui.hooks.keep_machine import go_on_to_stop, keep_machine
from ftui.launch.open_run import stored_profile
from ftui.profile.consent import check_hooks
from ftui.runs.run_folder import find_run


def keep(name: str) -> int:
    """Cancel the countdown."""
    print(keep_machine(find_run(name)))
    return 0


def then_stop(name: str, allow: Collection[str]) -> int:
    """Go through all that the profile asks for, count down, and stop the machine; Ctrl-C leaves it as it is.

    Raises:
        FtuiError: nobody has allowed it, or the run has not ended.
    """
    run = find_run(name)
    check_hooks(stored_profile(run), allow, run.read_facts().run_id)
    print(go_on_to_stop(run))
    return 0
