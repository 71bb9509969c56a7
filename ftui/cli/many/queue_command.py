"""`ftui queue add | list | move | remove | pause | continue`: runs that wait for a card."""

import shutil
import sys
from collections.abc import Collection, Sequence
from contextlib import closing
from dataclasses import replace

import msgspec

from ftui import units
from ftui.cli.terminal import LiveOutput, table
from ftui.errors import UsageError
from ftui.queue import change
from ftui.queue.queue_files import QueueFiles, all_queues
from ftui.queue.queue_view import QueueView, view_queues
from ftui.queue.wake import wake
from ftui.runs.run_folder import runs_root
from ftui.text import complaint, escape_document, shown

HEADINGS = ("", "run", "phase", "on", "memory", "waits because")


def add_run(
    profile: str, run_name: str | None, overrides: Sequence[str], tier: str | None, allow: Collection[str], again: bool
) -> int:
    """`ftui queue add P`: report on the data, estimate, and put the run behind those that wait.

    Raises:
        FtuiError: the run would be refused when it is started; nothing was added.
    """
    from ftui.dataset.row_counts import count_lines  # pydantic and more (0.2 s), which the other commands do without
    from ftui.estimate.estimate_text import estimate_lines
    from ftui.hardware.devices import price_of
    from ftui.helper.client import Helper
    from ftui.launch.open_run import locate_run
    from ftui.profile.checks.warnings import find_warnings, warning_lines
    from ftui.queue.add_run import add, find_candidate

    folder, resolved = locate_run(profile, run_name, overrides, tier)
    with closing(Helper(allow)) as helper, LiveOutput(sys.stderr) as lines:
        lines.draw("counting rows and tokens, simulating the model ...")
        candidate = find_candidate(helper, folder, resolved, allow, again=again)
    known, card = candidate.known, candidate.card
    if known.counts is not None:
        print("\n".join(count_lines(known.counts)))
    else:
        for line in warning_lines(find_warnings(resolved.profile)):
            print(f"warning: {shown(line)}")
    if known.counting_problem is not None:
        print(complaint(f"The rows were not counted: {known.counting_problem.message}", known.counting_problem.hint))
    told_above = candidate.estimate if known.counts is None else replace(candidate.estimate, warnings=())
    estimated = estimate_lines(told_above, card, price_of(card, resolved.profile.hardware.price_per_hour))
    print("\n".join(shown(line) for line in estimated))
    place = add(candidate)
    files = QueueFiles(candidate.run.folder.parent)
    wake(files)
    print(f"\n{shown(candidate.run.name)} is {_place_words(place)}.")
    if files.read().is_paused:
        print("The queue is paused: `ftui queue continue` starts it.")
    return 0


def _place_words(place: int) -> str:
    return "next in the queue" if place == 0 else f"in the queue, behind {place} other{'s' if place > 1 else ''}"


def print_queue(as_json: bool = False) -> int:
    """`ftui queue list`."""
    views = view_queues()
    if as_json:
        print(escape_document(msgspec.json.format(msgspec.json.encode([_plain(view) for view in views])).decode()))
        return 0
    for view in views:
        if len(views) > 1:
            print(f"{shown(str(view.root))}:")
        rows = [
            (
                str(row.place or ""), shown(row.name), row.phase, shown(row.cards),
                units.size(row.memory), shown(row.reason),
            )
            for row in view.rows
        ]  # fmt: skip
        if rows:
            print("\n".join(table([HEADINGS, *rows], (0, 4), width=shutil.get_terminal_size().columns)))
        if view.is_paused:
            print("The queue is paused: `ftui queue continue` starts runs again.")
        if view.problem:
            print(complaint(f"The queue of {view.root} cannot be read: {view.problem}"), file=sys.stderr)
    if not views:
        print("No run waits. `ftui queue add PROFILE` adds one.")
    return 0


def _plain(view: QueueView) -> dict[str, object]:
    rows = [
        {
            "run": row.name, "folder": None if row.run is None else str(row.run.folder), "place": row.place,
            "phase": row.phase, "device": row.entry.added.device, "num_cards": row.entry.added.num_cards,
            "cards": [] if row.entry.started is None else list(row.entry.started.cards), "memory": row.memory,
            "reason": row.reason,
        }
        for row in view.rows
    ]  # fmt: skip
    problem = {"problem": view.problem} if view.problem else {}
    plain = {"root": str(view.root), "paused": view.is_paused, "dispatcher": view.has_dispatcher, "runs": rows}
    return plain | problem


def move_run(name: str, place: str) -> int:
    """`ftui queue move RUN PLACE`.

    Raises:
        UsageError: it does not wait, or that is no place.
    """
    files, entry = change.find_waiting(name)
    number = {"first": 1, "last": len(files.read().waiting)}.get(place) or (int(place) if place.isdecimal() else 0)
    if number < 1:
        raise UsageError(f"{shown(place)!r} is no place in the queue.", hint="1 is started next; or first, last.")
    now = change.move(files, entry, number - 1)
    print(f"{shown(name)} is {_place_words(now)}.")
    return 0


def remove_runs(names: Sequence[str]) -> int:
    """`ftui queue remove RUN ...`.

    Raises:
        UsageError: one does not wait; then none is removed.
    """
    for name, (files, entry) in {name: change.find_waiting(name) for name in names}.items():
        is_deleted = change.remove(files, entry)
        print(f"{shown(name)} is out of the queue" + (", and its folder deleted." if is_deleted else "."))
    return 0


def pause() -> int:
    """`ftui queue pause`."""
    return _set_paused(paused=True)


def go_on() -> int:
    """`ftui queue continue`."""
    return _set_paused(paused=False)


def _set_paused(*, paused: bool) -> int:
    queues = all_queues() or [QueueFiles(runs_root())]
    changed = [change.set_paused(files, paused=paused) for files in queues if files.root.is_dir()]
    already = "" if any(changed) else " already"
    words = "is paused: runs that are running go on, no other is started" if paused else "starts runs"
    print(f"The queue {words}{already}.")
    return 0
