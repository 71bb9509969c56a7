"""What the components of the editor share: the form, a screen to speak through, the findings in the draft's rows.

A component knows the form and the screen's general abilities, never the editor's screen itself or its other parts.
"""

from collections.abc import Callable, Sequence
from typing import Any, TypeVar

from textual.screen import Screen

from ftui.dataset.report import Finding
from ftui.errors import FtuiError
from ftui.profile.schema import Profile
from ftui.profile.toml_edit.document import ProfileDocument

from ...form.edits import removed_keys
from ...form.profile_form import ProfileForm
from ...stage import RowReport, Stage, stage
from ..dialogs import confirm

T = TypeVar("T")
ALLOW = ("data", "allow")


class Component:
    """One part of the editor with a state of its own. `redraw`: to be called after a change of form or state."""

    def __init__(self, screen: Screen[Any], form: ProfileForm, redraw: Callable[[], None]) -> None:
        self.screen, self.form, self.redraw = screen, form, redraw

    @property
    def stage(self) -> Stage:
        """The application, for messages to the user."""
        return stage(self.screen)

    def attempt(self, act: Callable[[], T]) -> T | None:
        """The result; `None` where it failed, and then the user has been told why."""
        try:
            return act()
        except FtuiError as error:
            self.stage.complain(error)
            return None

    def edit(self, change: Callable[[ProfileDocument], ProfileDocument]) -> bool:
        """Changes the draft and names the keys that had to go with it; whether that could be done."""
        before = self.form.draft
        draft = self.attempt(lambda: change(before))
        if draft is None:
            return False
        self.form.set_draft(draft)
        self.tell_removed_keys(before)
        self.redraw()
        return True

    def tell_removed_keys(self, before: ProfileDocument) -> None:
        """Names the keys that were taken out since `before` because they exclude what was just set."""
        names = removed_keys(before, self.form.draft, self.form.key)
        if names:
            verb, why = ("was", "it excludes") if len(names) == 1 else ("were", "they exclude")
            self.stage.say(f"{', '.join(names)} {verb} taken out: {why} this key. u undoes that.", "warn")

    def ask(self, question: str, yes: str, then: Callable[[], object]) -> None:
        """Asks, and goes on with `then` after a yes. `yes`: what that does."""
        confirm(self.screen, question, yes, then)


def findings_of(last: RowReport | None, profile: Profile | None) -> Sequence[Finding]:
    """What was found in the rows that the profile means; nothing where others, or none, were looked at."""
    if profile is None or last is None or _rows_of(last.profile) != _rows_of(profile):
        return ()
    return last.report.findings


def blocking_findings(last: RowReport | None, profile: Profile | None) -> list[Finding]:
    """Those that would stop a run of the profile."""
    allowed = profile.data.allow if profile is not None else ()
    return [each for each in findings_of(last, profile) if each.severity == "error" and each.name not in allowed]


def _rows_of(profile: Profile) -> tuple[object, ...]:
    """All that the report depends on."""
    return profile.data.model_copy(update={ALLOW[1]: ()}), profile.model, profile.run.stage
