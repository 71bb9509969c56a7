"""`ftui notify P`: does what a profile tells people arrive?"""

import os
from collections.abc import Sequence

from ftui.errors import UsageError
from ftui.launch.check_start import check_environment
from ftui.launch.open_run import locate_run
from ftui.notices.notice_text import Notice
from ftui.notices.sender import Sender
from ftui.system.redact import hide_variables


def send_test(profile: str, overrides: Sequence[str], tier: str | None) -> int:
    """Send one message to every address of `notify.urls`; 1 where one has not taken it.

    Raises:
        FtuiError: the profile is wrong, tells nobody, or names what is not set or no address.
    """
    run, resolved = locate_run(profile, None, overrides, tier)
    variables = resolved.profile.notify.variables
    if not variables:
        raise UsageError(f"{profile} tells nobody.", hint='notify.urls = "env:NTFY_URL", for one.')
    hide_variables(variables)
    check_environment(resolved.profile, os.environ)
    sender = Sender({name: os.environ[name] for name in variables})
    told = ", ".join(resolved.profile.notify.events) or "nothing: notify.events is empty"
    notice = Notice("test", f"{run.name}: a test of ftui", f"You will be told of: {told}")
    taken = {name: sender.send(name, notice) for name in variables}
    for name, has_taken in taken.items():
        print(f"env:{name} {'has taken it' if has_taken else 'has not taken it'}")
    return 0 if all(taken.values()) else 1
