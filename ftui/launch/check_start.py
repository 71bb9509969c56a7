"""What must be so before a run of a profile starts here, whichever command starts it: consents, what the environment
has to hold."""

import importlib.util
import os
from collections.abc import Collection, Mapping

from ftui.errors import ProfileError
from ftui.launch.budget.check_budget import check_budget
from ftui.profile.consent import check_consents
from ftui.profile.schema import Profile
from ftui.runs.run_folder import Run
from ftui.system.variables import variables_of

OWN = "FTUI_"  # variables that a hook gets from the run


def check_may_start(
    profile: Profile, allow: Collection[str], run: Run | None = None, *, parent_id: str | None = None
) -> None:
    """See that nobody must be asked, that something is left of the budget, and that hooks and notices have what they
    need.

    Args:
        run: the one that would go on; its consents and costs count.
        parent_id: of the run that a child is made from, whose consents count.

    Raises:
        ProfileError: something is missing.
    """
    check_consents(profile, allow, parent_id if run is None else run.read_facts().run_id)
    check_environment(profile, os.environ)
    check_budget(profile, run)


def check_environment(profile: Profile, environment: Mapping[str, str]) -> None:
    """See that the variables that hooks and notices name are set, and that there is something to send notices with.

    Raises:
        ProfileError: it says which key names what.
    """
    for name, words in profile.hooks.commands.items():
        for variable in variables_of(words):
            if not environment.get(variable) and not variable.startswith(OWN):
                raise ProfileError(
                    f"hooks.{name} names ${variable}, and there is no such environment variable here.",
                    hint=f"export {variable}=..., or take it out of the command.",
                )
    for variable in profile.notify.variables:
        if not environment.get(variable):
            raise ProfileError(
                f"notify.urls names {variable}, and there is no such environment variable here.",
                hint=f"export {variable}=ntfys://ntfy.sh/TOPIC, for one; or take env:{variable} out of notify.urls.",
            )
    if profile.notify.urls and importlib.util.find_spec("apprise") is None:
        raise ProfileError(
            "[notify] is set, and apprise, which sends the messages, is not installed.",
            hint="pip install 'ftui[notify]', or take [notify] out.",
        )
