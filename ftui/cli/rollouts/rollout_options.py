"""What can be typed after `ftui rollouts` and `ftui make-task`."""

from pathlib import Path

from ftui.cli.options.command_parser import Verbs, add_command, add_json_option


def add_rollouts(verbs: Verbs) -> None:
    """`ftui rollouts RUN`."""
    text = "the answers that a run of stage grpo or ppo has learned from, with their rewards"
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


def add_task(verbs: Verbs) -> None:
    """`ftui make-task NAME`."""
    text = "write rows of a task whose answers are known, for stage grpo; without a name: list the tasks"
    task = add_command(verbs, "make-task", text, "rollouts.write_task:write_task")
    task.add_argument(
        "task", metavar="NAME", nargs="?", help="sums, sorting, letters, format, units or reasoning-gym:NAME"
    )
    task.add_argument("--rows", metavar="N", dest="num_rows", type=int, default=1000, help="so many rows (1000)")
    task.add_argument("--seed", metavar="N", type=int, default=0, help="other rows (0)")
    task.add_argument("--level", metavar="N", type=int, default=2, help="how hard, from 1 to 12 (2)")
    task.add_argument("--plain", action="store_true", help="prompts as text, for a model without a chat template")
    task.add_argument("-o", "--out", metavar="FILE", type=Path, help="write to this file; otherwise they are printed")
