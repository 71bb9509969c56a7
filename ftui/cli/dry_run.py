"""`ftui --run P --dry-run`: every value and where it comes from, then what the rows amount to. Starts nothing."""

import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import msgspec

from ftui import units
from ftui.errors import BUG
from ftui.hardware.detect import find_machine
from ftui.profile.layers import ResolvedProfile
from ftui.profile.serialize import flat_values, to_toml
from ftui.supervisor.attempt import LAST_LINES
from ftui.supervisor.process_tree import clean_environment
from ftui.system.files import replace_file
from ftui.text import cells, complaint, shown, toml_value

WIDEST_VALUE = 40


class Problem(msgspec.Struct, frozen=True):
    message: str
    hint: str = ""
    exit_code: int = BUG


class DryRun(msgspec.Struct, frozen=True, kw_only=True):
    """What the engine's dry run prints: counts of one epoch (tokens, rows, sequences) and the plan, or a problem.

    Of a curriculum the epoch is a mean one, for those of its `stages` (in words) differ. `num_tokens` are those of all
    steps.
    """

    num_train_rows: int | None = None
    num_eval_rows: int | None = None
    num_train_tokens: int | None = None
    num_target_tokens: int | None = None
    num_sequences: int | None = None
    steps_per_epoch: int | None = None
    max_steps: int | None = None
    num_tokens: int | None = None
    stages: list[str] = []
    effective_batch: int | None = None
    longest: int | None = None
    num_cut: int | None = None
    num_skipped: int | None = None
    warnings: list[str] = []
    error: Problem | None = None


def dry_run_command(profile: Path) -> list[str]:
    return [sys.executable, "-P", "-m", "ftui.engine.services.dry_run", str(profile)]


def preview(resolved: ResolvedProfile) -> int:
    """Print values, origins and counts; returns the exit code the run would have failed with, else 0."""
    for line in [*value_lines(resolved), "", *machine_lines(resolved)]:
        print(line)
    print(flush=True)
    waiting = sys.stdout.isatty()
    if waiting:
        print("counting rows and tokens ...", end="", flush=True)
    try:
        result = count_rows(resolved)
    finally:
        if waiting:
            print("\r\x1b[K", end="", flush=True)
    if result.error is not None:
        print(complaint(result.error.message, result.error.hint), file=sys.stderr)
        return result.error.exit_code
    for line in count_lines(result):
        print(line)
    return 0


def value_lines(resolved: ResolvedProfile) -> list[str]:
    """The profile's file; then each key, its value as in TOML, and where it comes from, section by section."""
    sections: dict[str, list[tuple[str, str, str]]] = {}
    for key, value in flat_values(resolved.profile).items():
        origin = str(resolved.origin(key)).replace(str(resolved.path), resolved.path.name)
        entry = (key[-1], shown(toml_value(value)), shown(origin))
        if key[:-1] or value:  # a list of tables stands by itself, and an empty one nowhere
            sections.setdefault(".".join(key[:-1]) or key[-1], []).append(entry)
    entries = [entry for section in sections.values() for entry in section]
    key_width = max(len(key) for key, _, _ in entries)
    value_width = min(WIDEST_VALUE, max(cells(value) for _, value, _ in entries))
    lines = [f"profile {shown(str(resolved.path))}"]
    for title, section in sections.items():
        lines += [f"[{title}]", *(_padded(entry, key_width, value_width) for entry in section)]
    return lines


def machine_lines(resolved: ResolvedProfile) -> list[str]:
    """What is in this machine, and the tier that suits it where the profile stands on none."""
    machine = find_machine()
    titles = [found.title for found in machine.cards] or [machine.cpu.card.title]
    lines = [f"machine {shown(', '.join(titles))}"]
    if not any(str(origin).startswith("tier ") for origin in resolved.origins.values()):
        lines.append(f"--tier {machine.proposed} sets what the profile leaves open as that suits: {machine.reason}")
    return lines


def _padded(entry: tuple[str, str, str], key_width: int, value_width: int) -> str:
    key, value, origin = entry
    return f"  {key:<{key_width}}  {value}{' ' * (value_width - cells(value))}  {origin}"


def count_rows(resolved: ResolvedProfile) -> DryRun:
    """Let the engine read, tokenise and plan in a process of its own."""
    with tempfile.TemporaryDirectory(prefix="ftui-") as folder:
        profile = Path(folder) / "profile.toml"
        replace_file(profile, to_toml(resolved.profile).encode())
        ended = subprocess.run(
            dry_run_command(profile),
            stdin=subprocess.DEVNULL,
            capture_output=True,
            check=False,
            env=clean_environment(),
        )
    return read_result(ended.stdout, ended.stderr, ended.returncode)


def read_result(output: bytes, errors: bytes, code: int) -> DryRun:
    """The JSON object on the last line of `output`; without one, a problem with the last lines of `errors`."""
    last = output.strip().rpartition(b"\n")[2]
    try:
        return msgspec.json.decode(last, type=DryRun)
    except msgspec.DecodeError:
        tail = errors.decode(errors="backslashreplace").rstrip("\n").split("\n")[-LAST_LINES:]
        return DryRun(error=Problem(f"The engine's dry run failed (exit code {code}):\n" + "\n".join(tail)))


def count_lines(result: DryRun) -> list[str]:
    epoch = "mean epoch" if result.stages else "epoch"
    facts: Mapping[str, Any] = {
        "rows to train on": result.num_train_rows,
        "rows to evaluate on": result.num_eval_rows,
        f"tokens per {epoch}": result.num_train_tokens,
        f"target tokens per {epoch}": result.num_target_tokens,
        f"sequences per {epoch}": result.num_sequences,
        "longest": result.longest,
        "cut": result.num_cut,
        "left out": result.num_skipped,
        "effective batch": result.effective_batch,
        f"steps per {epoch}": result.steps_per_epoch,
        "steps": result.max_steps,
        "tokens of all steps": result.num_tokens,
    }
    stages = [f"stage {number} of {len(result.stages)}: {words}" for number, words in enumerate(result.stages, start=1)]
    return [*_aligned(facts), *stages, *(f"warning: {shown(warning)}" for warning in result.warnings)]


def _aligned(facts: Mapping[str, int | None]) -> Iterator[str]:
    width = max(map(len, facts))
    for label, number in facts.items():
        yield f"{label:<{width}}  {units.MISSING if number is None else f'{number:,}':>12}"
