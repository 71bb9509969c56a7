"""What can be typed after `ftui rollouts`."""

from ftui.cli.options.command_parser import Verbs, add_command, add_json_option


def add_rollouts(verbs: Verbs) -> None:
    """`ftui rollouts RUN`."""
    text = "the answers that a run of stage grpo has learned from, with their rewards"
    rollouts = add_command(verbs, "rollouts", text, "rollouts.print_rollouts:print_rollouts", on_run=True)
    orders = rollouts.add_mutually_exclusive_group()
    for order, what in (
        ("newest", "of the newest rollout, in its order (the default)"),
        ("best", "those with the highest reward first"),
        ("worst", "those with the lowest reward first"),
        ("longest", "those with the most tokens first"),
    ):
        orders.add_argument(f"--{order}", action="store_const", const=order, dest="order", help=what)
    rollouts.set_defaults(order="newest")
    rollouts.add_argument(
        "--rollout", metavar="N", dest="number", type=int, help="of this one (otherwise the newest 20)"
    )
    rollouts.add_argument("-n", metavar="N", dest="num_groups", type=int, default=3, help="so many prompts (3)")
    rollouts.add_argument("--whole", action="store_true", help="cut no text")
    add_json_option(rollouts)
