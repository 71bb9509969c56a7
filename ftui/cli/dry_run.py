"""`ftui --run P --dry-run`: every value and where it comes from, then what the rows amount to. Starts nothing."""

import sys
from collections.abc import Collection
from contextlib import closing

from ftui.cli.terminal import LiveOutput
from ftui.dataset.row_counts import count_lines
from ftui.estimate.api import Known, budget_forecast
from ftui.estimate.simulation import count_rows
from ftui.hardware.detect import find_machine
from ftui.helper.client import Helper
from ftui.profile.layers import ResolvedProfile
from ftui.profile.serialize import flat_values
from ftui.text import cells, shown, toml_value

WIDEST_VALUE = 40


def preview(resolved: ResolvedProfile, allow: Collection[str] = ()) -> int:
    """Print values, origins and counts.

    Raises:
        FtuiError: what the run itself would fail with.
    """
    for line in [*value_lines(resolved), "", *machine_lines(resolved)]:
        print(line)
    print(flush=True)
    with closing(Helper(allow)) as helper, LiveOutput(sys.stdout) as lines:
        lines.draw("counting rows and tokens ...")
        counts = count_rows(helper, resolved.profile)
    card = find_machine().card
    for line in [*count_lines(counts), *budget_forecast(resolved.profile, card, Known(counts=counts))]:
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
