"""`ftui make-task`: rows of a task that a program knows the answers of, as a file to train on."""

import os
import sys
from pathlib import Path

import msgspec

from ftui.cli.terminal import table
from ftui.errors import FINISHED, UsageError
from ftui.rollouts.made_tasks import LONGEST_LEVEL, TASKS, make_rows
from ftui.system.files import replace_file
from ftui.system.volume import disk_error


def write_task(task: str | None, num_rows: int, seed: int, level: int, plain: bool, out: Path | None) -> int:
    """Print the rows as JSON lines, or write them to `out`; without a task list those there are.

    Raises:
        UsageError: there is no such task, a number is out of its range, or the file is there already.
        DiskError: it cannot be written.
    """
    if task is None:
        rows = [(name, one.reward, one.words) for name, one in TASKS.items()]
        print("\n".join(table([("task", "reward", "asks for"), *rows], ())))
        return FINISHED
    if task not in TASKS:
        raise UsageError(f"There is no task {task!r}.", hint=f"There are {', '.join(TASKS)}.")
    if not 1 <= level <= LONGEST_LEVEL or num_rows < 1:
        raise UsageError(f"--level is from 1 to {LONGEST_LEVEL}, and --rows at least 1.")
    lines = b"".join(
        msgspec.json.encode({"prompt": ask if plain else [{"role": "user", "content": ask}], "answer": answer}) + b"\n"
        for ask, answer in make_rows(task, num_rows, seed=seed, level=level)
    )
    if out is None:
        sys.stdout.write(lines.decode())
        return FINISHED
    if os.path.lexists(out):
        raise UsageError(f"{out} is there already.", hint="Remove it, or name another file.")
    try:
        replace_file(out, lines)
    except OSError as error:
        raise disk_error(error, f"{out} cannot be written", out.parent) from error
    print(f"{num_rows} rows in {out}; the reward that judges their answers: {TASKS[task].reward}")
    return FINISHED
