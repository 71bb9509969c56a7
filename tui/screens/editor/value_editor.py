"""Changing a value without typing: choices, models, files of rows, items of a list, one more source or stage."""

import os
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

from ftui.profile import recent
from ftui.profile.paths import CURRICULUM

from ...drawing.editor.form_pick import Choice
from ...form.edits import is_source_list, with_source, with_stage, with_value
from ...form.form_fields import Field
from ...form.form_rows import FormRow
from ...form.path_choices import data_choices, describe_data, describe_model, model_choices
from ...form.text_values import NONE, format_list, format_value, parse_value
from ..pick import PickScreen, pick
from .component import ALLOW, Component, findings_of
from .path_lookup import PathLookup

MOST_FILES = 60  # of those here, that are looked at one after the other


class ValueEditor(Component):
    """Changes values by one key, or by a choice from a list."""

    def cycle(self, by: int) -> None:
        """The next choice (1) or the one before (-1) of a key; opens or closes a table."""
        row, before = self.form.row, self.form.draft
        if row is not None and row.is_open is not None:
            self.form.toggle(by > 0)
        else:
            if self.attempt(lambda: self.form.cycle(by)) is False and by < 0:
                self.form.close_around()
            self.tell_removed_keys(before)
        self.redraw()

    def unset(self) -> None:
        """Takes the key out of the text."""
        row = self.form.row
        if self.attempt(self.form.unset) is False and row is not None:
            self.stage.say(f"{row.name} is not in the file: what counts comes from elsewhere.")
        self.redraw()

    def rename(self, row: FormRow) -> None:
        """Gives an unknown key the name that was meant."""
        if self.attempt(self.form.rename) is False:
            self.stage.say(f"What {row.name} was meant for is not known; x takes it out.", "warn")
        self.redraw()

    @property
    def _folder(self) -> Path:
        """What paths in the draft are relative to."""
        return self.form.path.parent

    def choose(self, row: FormRow, field: Field) -> None:
        """Opens the list of what may stand there; models and files of rows may be typed too."""
        current = row.text
        if field.kind == "list":
            self._choose_items(row, field)
        elif is_source_list(self.form.draft, row):
            self.form.go_to((*row.key, "0", "path"))
        elif field.picks is None:
            default = format_value(field.default)
            choices = [
                Choice(name, "the default" if name == default else "", name, is_current=name == current)
                for name in field.choices
            ]
            title = f"{row.name}: {field.meaning}"
            pick(self.screen, PickScreen(title, choices), lambda choice: self._set(row, field, choice))
        else:
            is_model = field.picks == "model"
            choices = model_choices(self._folder, current) if is_model else data_choices(self._folder, [current])
            if field.is_optional:
                choices.append(Choice(NONE, "", NONE, ("No value.",), is_current=current == NONE))
            text = "" if current == NONE else current
            if text and not any(choice.is_current for choice in choices):
                choices.insert(0, Choice(text, "as it is now", text, is_current=True))
            title = f"{row.name}: type a path or a name on the hub, or choose"
            self._pick_path(title, choices, lambda choice: self._set(row, field, choice), text=text, is_model=is_model)

    def _pick_path(
        self,
        title: str,
        choices: list[Choice],
        then: Callable[[Choice], None],
        *,
        text: str = "",
        is_model: bool = False,
    ) -> None:
        def facts(choice: Choice) -> tuple[str, ...]:
            if is_model:
                return describe_model(str(choice.value), self._folder)
            if choice not in choices:  # it was typed
                lookup.add([choice])
            return describe_data(str(choice.value), self._folder)

        hint = "Nothing here yet: type a path or a name."
        opened = PickScreen(title, choices, text=text, takes_any=True, facts=facts, hint=hint)
        lookup = PathLookup(self.screen, opened, self._folder, self._reading_options())
        pick(self.screen, opened, then)
        if not is_model:
            lookup.add(choices[:MOST_FILES])

    def _set(self, row: FormRow, field: Field, choice: Choice) -> None:
        value = str(choice.value)
        self.edit(lambda draft: with_value(draft, field, row.key, parse_value(field, value)))
        if field.picks is not None and value != NONE:
            try:
                path = self._folder / Path(value).expanduser()
                name = os.path.realpath(path) if path.exists() else value
            except (OSError, RuntimeError):  # no file can have this name
                return
            recent.remember(field.picks, name)

    def _choose_items(self, row: FormRow, field: Field) -> None:
        """Items go into the list, or out of it where they are in already, until the list is left."""

        def current() -> list[str]:
            value = self.form.snapshot.value(field, row.key)
            return [str(item) for item in value] if isinstance(value, list | tuple) else []

        items = current()
        last_look = findings_of(self.stage.row_report, self.form.snapshot.profile)
        findings = {finding.name: finding for finding in last_look if row.key == ALLOW}
        choices = [
            Choice(
                name,
                f"{findings[name].severity}: {findings[name].message}" if name in findings else "",
                name,
                facts=(findings[name].message,) if name in findings else (),
                group="found in these rows" if name in findings else "in the list" if name in items else "all",
                is_current=name in items,
            )
            for name in sorted(field.choices, key=lambda name: (name not in findings, name not in items))
        ]

        def toggle(choice: Choice) -> list[Choice]:
            name, items = str(choice.value), current()
            new = [item for item in items if item != name] if name in items else [*items, name]
            self.edit(lambda draft: with_value(draft, field, row.key, format_list(new)))
            return [replace(choice, is_current=choice.name in current()) for choice in choices]

        opened = PickScreen(f"{row.name}: enter puts one in or takes it out, esc when done", choices, toggle=toggle)
        opened.cursor = 0
        self.screen.app.push_screen(opened)

    # -- one more

    def add(self) -> None:
        """One more source of the rows, or stage of the curriculum, that the cursor is in."""
        key = self.form.key[:2]
        if key[:1] == CURRICULUM:
            if self.edit(with_stage):
                self._go_to_last(CURRICULUM, "sort_by")
        elif key in (("data", "train"), ("data", "eval")):

            def add_source(choice: Choice) -> None:
                if self.edit(lambda draft: with_source(draft, key, str(choice.value))):
                    self._go_to_last(key, "path")

            self._pick_path(f"one more source of {'.'.join(key)}", data_choices(self._folder, []), add_source)
        else:
            self.stage.say("a adds a source of rows, or a stage: go to data.train, data.eval or curriculum first.")

    def _go_to_last(self, key: tuple[str, ...], name: str) -> None:
        """Puts the cursor on that key of the last table of a list."""
        tables = self.form.snapshot.file_values.get(key)
        self.form.go_to((*key, str(len(tables) - 1 if isinstance(tables, list) else 0), name))
        self.redraw()

    def _reading_options(self) -> dict[str, Any]:
        """How the draft says that rows are read, where it has no faults."""
        if self.form.snapshot.profile is None:
            return {}
        data = self.form.snapshot.profile.data
        return {"columns": dict(data.columns), "roles": dict(data.roles), "encoding": data.encoding}
