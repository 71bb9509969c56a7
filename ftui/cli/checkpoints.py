"""`ftui checkpoints`: what a run has saved, as lines or as JSON; with --verify every byte is read back and hashed."""

from collections.abc import Sequence

import msgspec

from ftui import units
from ftui.cli.terminal import table
from ftui.errors import FINISHED, DiskError, UsageError
from ftui.runs.checkpoint_folders import step_of
from ftui.runs.checkpoint_index import CheckpointEntry, CheckpointList, describe_entry, read_checkpoints, verify_entry
from ftui.runs.run_folder import Run, find_run
from ftui.runs.status import read_status
from ftui.supervisor.spawn import ensure_supervised
from ftui.text import escape_document, shown

HEADINGS = ("checkpoint", "kind", "eval loss", "size", "state")
NUMBERS = (2, 3)  # columns that stand against their right edge


def checkpoints(name: str, as_json: bool, verify: str | None) -> int:
    """`ftui checkpoints RUN`: every checkpoint by its sizes and headers; or with `verify` as its bytes are.

    Args:
        verify: which one is hashed; empty: all of them.
    """
    run = find_run(name)
    entries = read_checkpoints(run, ensure_supervised(run, read_status(run)).state)
    if verify is not None:
        return verify_checkpoints(run, entries, verify, as_json=as_json)
    if as_json:
        _print_json(run, entries, hashed=False)
        return FINISHED
    if not entries:
        print(f"{shown(run.name)} has saved no checkpoint yet.")
    else:
        print("\n".join(table([HEADINGS, *map(row, entries)], NUMBERS)))
    return FINISHED


def verify_checkpoints(run: Run, entries: Sequence[CheckpointEntry], checkpoint: str, *, as_json: bool) -> int:
    """Hash one checkpoint, or all but those in quarantine; the exit code is that of a disk error where one is damaged.

    Raises:
        UsageError: there is no such checkpoint.
    """
    chosen = [find_entry(run, entries, checkpoint)] if checkpoint else [e for e in entries if e.place != "quarantine"]
    done = []
    for entry in filter(None, (verify_entry(run, entry) for entry in chosen)):
        done.append(entry)
        if not as_json:
            # flushed: hashing the next may take minutes
            print(f"{shown(entry.name)}: {shown(describe_entry(entry))}", flush=True)
    bad = sum(entry.problem is not None for entry in done)
    if as_json:
        _print_json(run, done, hashed=True)
    else:
        print(summary(len(done), bad))
    return DiskError.exit_code if bad else FINISHED


def summary(number: int, bad: int) -> str:
    """How many of the checkpoints that were hashed are not usable."""
    if bad:
        return f"{bad} of {number} {'is' if bad == 1 else 'are'} not usable."
    return (
        "Nothing to verify." if number == 0 else f"Every byte of {'it' if number == 1 else f'all {number}'} is right."
    )


def find_entry(run: Run, entries: Sequence[CheckpointEntry], text: str) -> CheckpointEntry:
    """The entry of that step, name or path below the run's folder.

    Raises:
        UsageError: there is none.
    """
    if (named := next((entry for entry in entries if text in (entry.path, entry.name)), None)) is not None:
        return named
    step = step_of(text)
    if (found := next((e for e in entries if e.place == "checkpoints" and e.step == step), None)) is not None:
        return found
    names = ", ".join(entry.name for entry in entries) or "none"
    raise UsageError(f"{run.name} has no checkpoint-{step}.", hint=f"There are: {names}.")


def _print_json(run: Run, entries: list[CheckpointEntry], *, hashed: bool) -> None:
    document = msgspec.json.encode(CheckpointList(run.name, str(run.folder), hashed, entries))
    print(escape_document(msgspec.json.format(document, indent=2).decode()))


def row(entry: CheckpointEntry) -> tuple[str, ...]:
    """A checkpoint in the table: what is wrong with it stands last, in full."""
    step = f" (step {entry.step})" if entry.place == "final" and entry.step is not None else ""
    loss = units.quantity(entry.eval_loss) if entry.eval_finite else "not finite"
    if "reward" in entry.eval_measures:
        loss = f"reward {units.figure(entry.eval_measures['reward'])}"
    state = describe_entry(entry) + ", pinned" * entry.pinned
    return shown(entry.name), shown(", ".join(entry.kinds) + step), loss, units.size(entry.size), shown(state)
