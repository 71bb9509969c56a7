"""The editor's lists: choices of a key, models, rows, cards and tiers, changes that fit, what to compare with."""

import asyncio
import os
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ftui.errors import FtuiError
from ftui.profile import recent
from ftui.profile.layers import Layer
from ftui.profile.paths import CURRICULUM
from ftui.profile.presets import shipped
from ftui.profile.tiers import reasons, tier_layer, tier_names
from ftui.profile.toml_edit.toml_errors import read_text
from ftui.text import shown

from ...drawing.editor.form_diff import Difference, DiffPage, text_difference
from ...drawing.editor.form_pick import Choice
from ...drawing.wording import place
from ...form.edits import is_list, went, with_all, with_source, with_stage, with_value
from ...form.estimates import card_of, cards, changes
from ...form.form_fields import Field, all_fields
from ...form.form_rows import Row
from ...form.pickers import data, facts_of_data, facts_of_model, models
from ...form.snapshot import Seen, look
from ...form.text_values import source_for, spelt
from ...stage import stage
from ..diff import DiffScreen
from ..pick import PickScreen
from .notices import nothing_found, tell_what_went
from .recognize import recognise
from .row_check import choose_items

if TYPE_CHECKING:
    from .editor_screen import EditorScreen


# -- the value of a key


def choose_value(screen: "EditorScreen") -> None:
    """From what may stand there; of models and rows, from what there is, or anything typed."""
    row = screen.editing.row
    assert row is not None and row.field is not None, "the cursor stands on a key"
    field, folder = row.field, screen.editing.path.absolute().parent
    if field.kind == "list":
        choose_items(screen, row)
        return
    if is_list(screen.editing.draft, row):
        screen.editing.go_to((*row.key, "0", "path"))
        return
    if field.picks == "model":
        found = [*models(folder, row.text), *_none(field, row)]
        facts = lambda choice: facts_of_model(str(choice.value), folder)  # noqa: E731
    elif field.picks == "data":
        found = [*data(folder, [row.text]), *_none(field, row)]
        facts = lambda choice: facts_of_data(str(choice.value), folder)  # noqa: E731
    else:
        found = [
            Choice(choice, _words(field, choice), choice, is_current=choice == row.text) for choice in field.choices
        ]
        screen.app.push_screen(PickScreen(f"{row.name}: {field.meaning}", found), lambda c: _chosen(screen, row, c))
        return
    title = f"{row.name}: type a path or a name on the hub, or choose"
    text = "" if row.text == "none" else row.text
    if text and not any(choice.is_current for choice in found):
        found.insert(0, Choice(text, "as it is now", text, is_current=True))
    pick = PickScreen(
        title, found, text=text, takes_any=True, facts=facts, hint="Nothing here yet: type a path or a name."
    )
    screen.app.push_screen(pick, lambda choice: _chosen(screen, row, choice))
    if field.picks == "data":
        recognise(screen, pick, found, folder)


def _none(field: Field, row: Row) -> list[Choice]:
    return [Choice("none", "", "none", ("No value.",), is_current=row.text == "none")] if field.is_optional else []


def _words(field: Field, choice: str) -> str:
    return "the default" if spelt(field.default) == choice else ""


def _chosen(screen: "EditorScreen", row: Row, choice: Choice | None) -> None:
    if choice is None or row.field is None:
        return
    field, value = row.field, str(choice.value)

    def change() -> None:
        before = screen.editing.draft
        screen.take(with_value(before, field, row.key, source_for(field, value)))
        tell_what_went(screen, before)

    screen.tried(change)
    if field.picks is not None and value != "none":
        _note(screen, field, value)


def _note(screen: "EditorScreen", field: Field, value: str) -> None:
    """Remember it; a path as an absolute one."""
    try:
        path = screen.editing.path.parent / Path(value).expanduser()
        name = os.path.realpath(path) if path.exists() else value
    except (OSError, RuntimeError):  # no file can have this name
        return
    recent.note("model" if field.picks == "model" else "data", name)


def rename(screen: "EditorScreen") -> None:
    """An unknown key gets the name that was meant."""
    row = screen.editing.row
    meant = screen.tried(screen.editing.rename)
    if meant is None and row is not None:
        stage(screen).say(f"What {row.name} was meant for is not known; x takes it out.", "warn")


def add_source(screen: "EditorScreen") -> None:
    """One more source of the rows under the cursor."""
    row = screen.editing.row
    if row is not None and row.key[:1] == CURRICULUM:
        return _add_stage(screen)
    if row is None or row.key[:2] not in (("data", "train"), ("data", "eval")):
        stage(screen).say("a adds a source of rows, or a stage: go to data.train, data.eval or curriculum first.")
        return
    key, folder = row.key[:2], screen.editing.path.absolute().parent

    def chosen(choice: Choice | None) -> None:
        if choice is not None:
            before = screen.editing.draft
            screen.tried(lambda: screen.take(with_source(before, key, str(choice.value))))
            screen.editing.opened.add(key)
            screen.take(screen.editing.draft)
            sources = screen.editing.seen.given.get(key)
            number = len(sources) - 1 if isinstance(sources, list) else 0
            screen.editing.go_to((*key, str(number), "path"))
            tell_what_went(screen, before)
            screen.draw()

    title = f"one more source of {'.'.join(key)}"
    facts = lambda choice: facts_of_data(str(choice.value), folder)  # noqa: E731
    found = data(folder, [])
    pick = PickScreen(title, found, takes_any=True, facts=facts)
    screen.app.push_screen(pick, chosen)
    recognise(screen, pick, found, folder)


def _add_stage(screen: "EditorScreen") -> None:
    """One more stage of the curriculum; the cursor goes to it."""
    before = screen.editing.draft
    screen.tried(lambda: screen.take(with_stage(before)[0]))
    stages = screen.editing.seen.given.get(CURRICULUM)
    if screen.editing.draft is not before and isinstance(stages, list):
        screen.editing.go_to((*CURRICULUM, str(len(stages) - 1), "sort_by"))
    screen.draw()


# -- cards and changes


def choose_card(screen: "EditorScreen") -> None:
    """The card it is estimated for; its tier goes below the profile."""
    tier = screen.editing.tier.name.removeprefix("tier ") if screen.editing.tier else ""
    found = cards(screen.editing.seen.profile, screen.place, tier)

    def chosen(choice: Choice | None) -> None:
        if choice is not None:
            recent.note_tier(str(screen.editing.path), choice.value)
            _wear(screen, choice.value)

    screen.app.push_screen(PickScreen("the card to estimate for, and its tier below the profile", found), chosen)


def _wear(screen: "EditorScreen", name: str) -> None:
    """`name`: of a tier, empty for none."""
    screen.card = card_of(name, screen.place) if name else screen.place.detected
    screen.editing.wear(tier_layer(name) if name else None, reasons(name) if name else {})
    screen.draw()


def put_on_tier(screen: "EditorScreen") -> None:
    """The tier that was chosen for this profile last, where none is yet."""
    name = recent.tier_of(str(screen.editing.path))
    if screen.card is not None:
        return
    if name in tier_names() and not screen.mode:
        _wear(screen, name)
    else:
        screen.card = screen.place.detected


def choose_change(screen: "EditorScreen") -> None:
    """Changes that make it fit, or use the card better; looked for in a thread (some 100 ms)."""
    profile, card = screen.editing.seen.profile, screen.card
    if profile is None or card is None:
        stage(screen).say("The profile has faults: mend them first." if card else "t chooses a card first.", "warn")
        return
    asked = screen.editing.draft.text
    known = screen.known[1] if screen.known is not None and screen.known[0] == (profile, card) else None

    def chosen(choice: Choice | None) -> None:
        if choice is not None and screen.editing.draft.text == asked:
            draft = screen.editing.draft
            screen.tried(lambda: screen.take(with_all(draft, choice.value)))
            gone = [key for key in went(draft, screen.editing.draft, ()) if key not in map(".".join, choice.value)]
            without = f", without {', '.join(gone)}" if gone else ""
            stage(screen).say(f"Taken: {choice.name}{without}. u takes it back.", "good")

    async def look_for() -> None:
        try:
            found = await asyncio.to_thread(changes, profile, card, screen.place, known)
        except FtuiError as error:
            stage(screen).complain(error)
            return
        told = screen.forecast.told
        title = (
            "what would make it fit" if told and told.verdict in ("tight", "no") else "what would use the card better"
        )
        if found:
            screen.app.push_screen(PickScreen(f"{title}: {card.title}", found), chosen)
        else:
            stage(screen).say(
                "The model is not known." if not told or not told.memory else nothing_found(told, known is not None)
            )

    screen.run_worker(look_for(), group="fit", exclusive=True)


# -- comparing


def compare(screen: "EditorScreen") -> None:
    """With the file as it is on the disk, a tier, or another profile."""
    editing = screen.editing
    found = [] if editing.on_disk is None else [Choice("the file", place(editing.path.absolute()), ("file", ""))]
    below = editing.tier.name if editing.tier is not None else ""
    suits = screen.place.proposed
    tiers = sorted(tier_names(), key=lambda name: (f"tier {name}" != below, name != suits))
    told = {suits: "suits this machine", below.removeprefix("tier "): "lies below this profile"}
    found += [Choice(f"tier {name}", told.get(name, ""), ("tier", name), group="tiers") for name in tiers]
    here = sorted(path for path in editing.path.absolute().parent.glob("*.toml") if path != editing.path.absolute())
    found += [Choice(path.name, place(path), ("profile", str(path)), group="profiles in this folder") for path in here]
    found += [
        Choice(one.name, one.description, ("profile", str(one.path)), group="profiles that come with ftui")
        for one in shipped()
    ]

    def chosen(choice: Choice | None) -> None:
        if choice is not None:
            kind, path = choice.value
            page = screen.tried(lambda: difference(screen, kind, path, choice.name))
            if page is not None:
                screen.app.push_screen(DiffScreen(page))

    screen.app.push_screen(PickScreen("what to compare this draft with", found), chosen)


def difference(screen: "EditorScreen", kind: str, path: str, name: str) -> DiffPage:
    """Key by key; of the file on the disk the text too.

    Raises:
        FtuiError: the other one cannot be read.
    """
    editing = screen.editing
    if kind == "file":
        there = look(editing.on_disk or "", editing.path, below=editing.tier)
        lines = text_difference(shown(editing.draft.text, newlines=True), shown(editing.on_disk or "", newlines=True))
        return DiffPage("the file", _differences(editing.seen, there), lines)
    if kind == "tier":
        return DiffPage(name, _beside(editing.seen, tier_layer(path)))
    return DiffPage(name, _differences(editing.seen, look(read_text(Path(path)), Path(path))))


def _differences(here: Seen, there: Seen) -> list[Difference]:
    found = []
    are_whole = here.profile is not None and there.profile is not None
    for field in all_fields():
        if (field.inside and field.kind == "group") or (len(field.key) > 2 and field.key[0] == "data"):
            continue
        if len(field.key) > 1 and field.key[:1] == CURRICULUM:
            continue
        mine, theirs = (spelt(_value(seen, field, are_whole)) for seen in (here, there))
        if mine != theirs:
            found.append(Difference(field.name, mine, theirs))
    return found


def _value(seen: Seen, field: Field, is_whole: bool) -> Any:
    """Of a whole profile with absolute paths, so that the same file from another folder is the same."""
    return seen.effective[field.key] if is_whole and field.key in seen.effective else seen.value(field, field.key)


def _beside(here: Seen, tier: Layer) -> list[Difference]:
    """The values of a tier that the profile says otherwise."""
    found = []
    for field in all_fields():
        if field.key in tier.values:
            mine, theirs = spelt(here.value(field, field.key)), spelt(tier.values[field.key])
            if mine != theirs:
                found.append(Difference(field.name, mine, theirs))
    return found
