"""`ftui make-task`: rows of a task that a program knows the answers of, as a file to train on."""

import os
import sys
from pathlib import Path

import msgspec

from ftui.cli.terminal import table
from ftui.errors import FINISHED, UsageError
from ftui.rollouts.made_tasks import LONGEST_LEVEL, TASKS, make_rows
from ftui.rollouts.reasoning_gym_rows import COLUMN, PREFIX, make_gym_rows
from ftui.system.files import replace_file
from ftui.system.volume import disk_error

Columns = dict[str, str]
"""What a row has beside its prompt."""


def write_task(task: str | None, num_rows: int, seed: int, level: int, plain: bool, out: Path | None) -> int:
    """Print the rows as JSON lines, or write them to `out`; without a task list those there are.

    Raises:
        UsageError: there is no such task, a number is out of its range, or the file is there already.
        DiskError: it cannot be written.
    """
    if task is None:
        tasks = [(name, one.reward, one.words) for name, one in TASKS.items()]
        tasks.append((f"{PREFIX}NAME", COLUMN, "a task of reasoning-gym, which has its own levels"))
        print("\n".join(table([("task", "reward", "asks for"), *tasks], ())))
        return FINISHED
    if not 1 <= level <= LONGEST_LEVEL or num_rows < 1:
        raise UsageError(f"--level is from 1 to {LONGEST_LEVEL}, and --rows at least 1.")
    if task.startswith(PREFIX):
        reward, rows = COLUMN, _gym_rows(task.removeprefix(PREFIX), num_rows, seed)
    elif task in TASKS:
        reward = TASKS[task].reward
        rows = [(ask, {"answer": answer}) for ask, answer in make_rows(task, num_rows, seed=seed, level=level)]
    else:
        hint = f"There are {', '.join(TASKS)}, and {PREFIX}NAME."
        raise UsageError(f"There is no task {task!r}.", hint=hint)
    lines = b"".join(
        msgspec.json.encode({"prompt": ask if plain else [{"role": "user", "content": ask}], **columns}) + b"\n"
        for ask, columns in rows
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
    print(f"{num_rows} rows in {out}; the reward that judges their answers: {reward}")
    return FINISHED


def _gym_rows(task: str, num_rows: int, seed: int) -> list[tuple[str, Columns]]:
    try:
        made = list(make_gym_rows(task, num_rows, seed=seed))
    except ValueError as error:
        raise UsageError(f"{PREFIX}{task}: {error}.") from error
    return [(row.question, {COLUMN: row.made} | ({} if row.answer is None else {"answer": row.answer})) for row in made]
