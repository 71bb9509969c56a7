"""What can be typed after `ftui queue`."""

from ftui.cli.options.command_parser import (
    Parser,
    Verbs,
    add_allow_option,
    add_command,
    add_json_option,
    add_value_options,
)


def add_queue(verbs: Verbs) -> None:
    """`ftui queue` and its own commands; without one it lists."""
    text = "runs that wait for a card and are started one after the other; without a command: list them"
    queue = add_command(verbs, "queue", text, "many.queue_command:print_queue")
    queue.of_profile = "`ftui queue add {}` adds it. "
    own: Verbs = queue.add_subparsers(metavar="COMMAND", parser_class=Parser)
    adding = _add(own, "add", "check a profile now, and start its run when a card is free", "add_run")
    adding.add_argument("profile", metavar="P", help="a file, the name of one that comes with ftui, or a run to go on")
    adding.add_argument("--name", metavar="N", dest="run_name", help="name of the run (otherwise the profile's)")
    adding.add_argument("--again", action="store_true", help="if the run has ended, add NAME-2, NAME-3 ...")
    add_value_options(adding)
    add_allow_option(adding)
    listing = _add(own, "list", "show what is running and what waits, in its order", "print_queue")
    add_json_option(listing)
    moving = _add(own, "move", "give a waiting run another place", "move_run")
    moving.add_argument("name", metavar="RUN")
    moving.add_argument("place", metavar="PLACE", help="1 is started next; or first, last")
    removing = _add(
        own, "remove", "take waiting runs out; folders of those that have not trained are deleted", "remove_runs"
    )
    removing.add_argument("names", metavar="RUN", nargs="+")
    _add(own, "pause", "start no more runs; those that are running go on", "pause")
    _add(own, "continue", "start runs again", "go_on")
    queue.commands = own.choices


def _add(verbs: Verbs, verb: str, help_text: str, function: str) -> Parser:
    return add_command(verbs, verb, help_text, f"many.queue_command:{function}")
