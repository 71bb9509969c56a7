"""`ftui rollouts RUN`: prompts with their answers, as lines or as JSON."""

import shutil

import msgspec

from ftui.errors import FINISHED, UsageError
from ftui.rollouts.read_rollouts import Order, find_groups
from ftui.rollouts.rollout_text import group_lines
from ftui.runs.run_folder import find_run
from ftui.text import escape_document, shown


def print_rollouts(name: str, order: Order, number: int | None, num_groups: int, whole: bool, as_json: bool) -> int:
    """Print `num_groups` prompts with the answers to them, of rollout `number` or the newest ones.

    Raises:
        UsageError: there is no such run or rollout.
        DiskError: one cannot be read.
    """
    if num_groups < 1:
        raise UsageError("-n takes a number from 1.", hint=f"ftui rollouts {name} -n 3")
    run = find_run(name)
    groups = find_groups(run.rollouts, order, number)[:num_groups]
    if as_json:
        print(escape_document(msgspec.json.encode(groups).decode()))
    elif not groups:
        print(f"{shown(run.name)} has no rollouts: stages grpo and ppo have, once answers have their rewards.")
    else:
        width = shutil.get_terminal_size().columns
        print("\n\n".join("\n".join(group_lines(group, width, whole=whole)) for group in groups))
    return FINISHED
