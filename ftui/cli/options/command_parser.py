"""What every command's options are made with: the parser, and options that several commands have."""

import argparse
from collections.abc import Collection
from typing import Any, NoReturn, TypeAlias

from ftui.errors import UsageError
from ftui.profile.consent import CONSENTS
from ftui.text import did_you_mean


class Parser(argparse.ArgumentParser):
    """Reports a wrong command line as ftui reports any error, with exit code 2."""

    commands: Collection[str] = ()
    """What the first word may be, where it is a command."""
    of_profile = "`ftui run {}` trains it. "
    """What to say of a profile in its place."""

    def parse_known_args(self, args: Any = None, namespace: Any = None) -> tuple[Any, list[str]]:
        """Parse, but for a first word that is no command."""
        first = args[0] if args and self.commands else "-"
        if first[:1] != "-" and first not in self.commands:
            is_profile = first.endswith(".toml")
            meant = self.of_profile.format(first) if is_profile else did_you_mean(first, self.commands)
            raise UsageError(f"There is no command {first!r}.", hint=f"{meant}ftui --help lists them.")
        return super().parse_known_args(args, namespace)

    def error(self, message: str) -> NoReturn:
        """Raise what argparse would print."""
        raise UsageError(message[0].upper() + message[1:] + ".", hint=f"{self.prog} --help lists what goes with it.")


Verbs: TypeAlias = "argparse._SubParsersAction[Parser]"


def add_command(verbs: Verbs, verb: str, help_text: str, handler: str, *, on_run: bool = False) -> Parser:
    """A command with the function that handles it; `on_run`: it takes the name of a run."""
    added = verbs.add_parser(verb, help=help_text, description=help_text[0].upper() + help_text[1:] + ".")
    added.set_defaults(handler=handler)
    if on_run:
        added.add_argument("name", metavar="RUN")
    return added


def add_on_profile(verbs: Verbs, verb: str, help_text: str, handler: str) -> Parser:
    """A command that looks at a profile."""
    added = add_command(verbs, verb, help_text, handler)
    added.add_argument("profile", metavar="PROFILE", help="a file, or the name of one that comes with ftui")
    add_value_options(added)
    add_allow_option(added)
    return added


def add_json_option(to: Parser, help_text: str = "as JSON") -> None:
    """`--json`."""
    to.add_argument("--json", action="store_true", dest="as_json", help=help_text)


def add_allow_option(to: Parser) -> None:
    """`--allow`: consent to what is refused otherwise."""
    to.add_argument(
        "--allow",
        metavar="WHAT",
        action="append",
        default=[],
        type=_allowed,
        help="; ".join(f"{name}: {text}" for name, text in CONSENTS.items()),
    )


def _allowed(text: str) -> str:
    """What may be allowed on the command line; what the rows may have is a matter of the profile."""
    if text not in CONSENTS:
        raise argparse.ArgumentTypeError(
            f"it is {' or '.join(CONSENTS)}, not {text!r}. What `ftui preview` finds is allowed in the profile, or by: "
            f"--set 'data.allow=[\"NAME\"]'"
        )
    return text


def add_value_options(to: Parser, *, tier: bool = True) -> None:
    """`--set` and, where a profile can stand on one, `--tier`: what is put above and below the values of a profile."""
    if tier:
        help_text = "what the profile leaves open is set to suit that card: rtx4090 ..., auto = this one"
        to.add_argument("--tier", metavar="T", help=help_text)
    to.add_argument(
        "--set",
        metavar="section.key=value",
        action="append",
        default=[],
        dest="overrides",
        help="change one value of the profile; may be given several times",
    )
