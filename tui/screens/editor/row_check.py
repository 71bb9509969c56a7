"""What a look at the rows told the editor, and lists whose items are chosen from what may stand there."""

from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from ftui.dataset.report import Finding
from ftui.profile.schema import Profile

from ...drawing.editor.form_pick import Choice
from ...form.edits import with_value
from ...form.form_fields import field_at
from ...form.form_rows import Row
from ...form.text_values import inner
from ...stage import stage
from ..pick import PickScreen

if TYPE_CHECKING:
    from .editor_screen import EditorScreen

ALLOW = ("data", "allow")


def red_rows(screen: "EditorScreen") -> list[Finding]:
    """What was found that would stop a run of the draft: of the last look, if it was at the rows the draft means."""
    profile = screen.editing.seen.profile
    if profile is None:
        return []
    return [one for one in _findings(screen, profile) if one.severity == "red" and one.name not in profile.data.allow]


def allow(screen: "EditorScreen", found: Sequence[Finding]) -> bool:
    """Put the names of these findings into data.allow of the draft, as one step; returns that it was done.

    Raises:
        FtuiError: the text cannot take it.
    """
    profile, field = screen.editing.seen.profile, field_at(ALLOW)
    assert profile is not None and field is not None, "they were found in the rows of a sound draft"
    names = [*profile.data.allow, *dict.fromkeys(one.name for one in found)]
    screen.take(with_value(screen.editing.draft, field, ALLOW, "[" + ", ".join(map(inner, names)) + "]"))
    return True


def _findings(screen: "EditorScreen", profile: Profile) -> Sequence[Finding]:
    seen = stage(screen).rows_seen
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
