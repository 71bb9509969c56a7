"""What `hooks.then_stop` requires must be possible: a machine that nobody stops costs money until somebody looks."""

from collections.abc import Iterator

from ftui.profile.checks.known_values import KnownValues, contradiction
from ftui.profile.origins import ProfileFault
from ftui.profile.sections.around.push_target import COMMAND

REQUIRES = "hooks.then_stop_requires"


def _pushed_somewhere(values: KnownValues) -> Iterator[ProfileFault]:
    required, to = values(REQUIRES) or (), values("push.to")
    if to is None and (asked := [name for name in ("pushed", "verified") if name in required]):
        yield contradiction(f"{REQUIRES} push.to", f"it requires {asked[0]!r}, and nothing is pushed", "Set push.to.")
    if to is not None and to.startswith(COMMAND) and "verified" in required:
        why = "nobody can verify what a command has pushed"
        yield contradiction(f"{REQUIRES} push.to", why, f'Set {REQUIRES} = ["pushed"].')


def _a_hook_to_require(values: KnownValues) -> Iterator[ProfileFault]:
    if "hooks" in (values(REQUIRES) or ()) and not values("hooks.ended"):
        why = "it requires 'hooks', and there is no command that runs at the end"
        yield contradiction(f"{REQUIRES} hooks.ended", why, "Set hooks.ended, or leave 'hooks' out.")


def _something_to_require_for(values: KnownValues) -> Iterator[ProfileFault]:
    if values.is_wished(REQUIRES) and values(REQUIRES) and not values("hooks.then_stop"):
        why = "there is no command that stops the machine"
        yield contradiction(f"{REQUIRES} hooks.then_stop", why, "Set hooks.then_stop, or leave it out.")


CHECKS = (_pushed_somewhere, _a_hook_to_require, _something_to_require_for)
