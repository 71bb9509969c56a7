"""What the editor says of what was done, and of what there is not."""

from typing import TYPE_CHECKING

from ftui.errors import FtuiError
from ftui.estimate.result import Estimate
from ftui.profile.toml_edit.document import Draft

from ...form.editor import Editing
from ...form.edits import went
from ...stage import stage

if TYPE_CHECKING:
    from .editor_screen import EditorScreen

NOT_COUNTED = "It fits as it is. c counts the rows: if some are cut, f may find room for longer ones."


def nothing(editing: Editing, wanted: str) -> str:
    """Why there is no next one to go to."""
    if wanted != "fault":
        return "Nothing differs from the file."
    problem = next(iter(editing.seen.told), None)
    return "Nothing is wrong." if problem is None else f"{'.'.join(problem.key)}: {problem.message}. {problem.fix}"


def problem_with(editing: Editing, text: str) -> str:
    """Try out what is typed into the row under the cursor; what is wrong with it, in words."""
    row = editing.row
    try:
        editing.try_out(text)
    except FtuiError as error:
        return f"{error.message} {error.hint}".strip()
    fault = editing.seen.own_fault(row.key) if row is not None else None
    return f"{fault.message}. {fault.fix}".strip() if fault is not None and text.strip() else ""


def tell_what_went(screen: "EditorScreen", before: Draft) -> None:
    """Say which keys were taken out because they cannot stand beside what was just set."""
    row = screen.editing.row
    gone = went(before, screen.editing.draft, row.key if row is not None else ())
    if gone:
        words = f"{', '.join(gone)} {'was' if len(gone) == 1 else 'were'} taken out"
        stage(screen).say(f"{words}, which cannot stand beside it; u takes that back.", "warn")


def nothing_found(told: Estimate, is_counted: bool) -> str:
    """Where nothing makes it fit, or nothing would use the card better: as many rows at once as a step has are taken
    then, and longer rows help only where some are known to be cut."""
    if told.verdict in ("tight", "no"):
        return "Nothing is known that would make it fit."
    return "It fits as it is, and nothing larger is known to help." if is_counted else NOT_COUNTED
