"""What a look at the rows told the editor, and lists whose items are chosen from what may stand there."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from ftui.data_report import Finding, Report
from ftui.profile import Profile
from ftui.tui.drawing.form_pick import Choice
from ftui.tui.form_change import with_value
from ftui.tui.form_entry import inner
from ftui.tui.form_rows import Row
from ftui.tui.screens.pick import PickScreen

if TYPE_CHECKING:
    from ftui.tui.screens.editor import EditorScreen

ALLOW = ("data", "allow")


@dataclass(frozen=True)
class RowsSeen:
    """The report on the rows of a profile."""

    profile: Profile
    report: Report


def red_rows(screen: "EditorScreen") -> list[Finding]:
    """What was found that would stop a run of the draft: of the last look, if it was at the rows the draft means."""
    profile = screen.editing.seen.profile
    if profile is None:
        return []
    return [one for one in _findings(screen, profile) if one.severity == "red" and one.name not in profile.data.allow]


def _findings(screen: "EditorScreen", profile: Profile) -> Sequence[Finding]:
    seen = screen.rows_seen
    return seen.report.findings if seen is not None and _rows_of(seen.profile) == _rows_of(profile) else ()


def _rows_of(profile: Profile) -> tuple[object, ...]:
    """All that the report depends on."""
    return profile.data.model_copy(update={ALLOW[1]: ()}), profile.model, profile.run.stage


def choose_items(screen: "EditorScreen", row: Row) -> None:
    """What is chosen is put into the list, or taken out where it is in already."""
    field, profile = row.field, screen.editing.seen.profile
    assert field is not None, "the cursor stands on a key"

    def inside() -> list[str]:
        given = screen.editing.seen.value(field, row.key)
        return [str(item) for item in given] if isinstance(given, list | tuple) else []

    items = inside()
    found = {one.name: one for one in _findings(screen, profile)} if profile is not None and row.key == ALLOW else {}
    choices = [
        Choice(
            name,
            f"{found[name].severity}: {found[name].message}" if name in found else "",
            name,
            facts=(found[name].message,) if name in found else (),
            group="found in these rows" if name in found else "in the list" if name in items else "all",
            is_current=name in items,
        )
        for name in sorted(field.choices, key=lambda name: (name not in found, name not in items))
    ]

    def toggle(choice: Choice) -> list[Choice]:
        name, items = str(choice.value), inside()
        now = [item for item in items if item != name] if name in items else [*items, name]
        draft, source = screen.editing.draft, "[" + ", ".join(map(inner, now)) + "]"
        screen.tried(lambda: screen.take(with_value(draft, field, row.key, source)))
        return [replace(one, is_current=one.name in inside()) for one in choices]

    pick = PickScreen(f"{row.name}: enter puts one in or takes it out, esc when done", choices, toggle=toggle)
    pick.cursor = 0
    screen.app.push_screen(pick)
