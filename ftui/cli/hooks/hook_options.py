"""What can be typed about hooks and notices."""

from ftui.cli.options.command_parser import Verbs, add_allow_option, add_command, add_value_options


def add_keep(verbs: Verbs) -> None:
    """`ftui keep` and `ftui then-stop`."""
    text = "cancel the countdown of a run that is about to stop this machine (hooks.then_stop)"
    add_command(verbs, "keep", text, "hooks.then_stop:keep", on_run=True)
    text = "stop this machine as the profile of a run that has ended says, where that was cut off or cancelled"
    stop = add_command(verbs, "then-stop", text, "hooks.then_stop:then_stop", on_run=True)
    add_allow_option(stop)


def add_notify(verbs: Verbs) -> None:
    """`ftui notify`."""
    text = "send a test message to everybody that a profile tells of its run"
    notify = add_command(verbs, "notify", text, "hooks.notify:send_test")
    notify.add_argument("profile", metavar="P", help="a file, the name of a profile that comes with ftui")
    add_value_options(notify)
