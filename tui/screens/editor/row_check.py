"""What the last look at the rows found that concerns the draft: shown in the form, asked about before a start."""

from collections.abc import Sequence

from ftui.dataset.report import Finding
from ftui.profile.schema import Profile

from ...form.edits import with_value
from ...form.form_fields import field_at
from ...form.text_values import format_list
from ..rows.open_rows import open_rows
from .component import Component

ALLOW = ("data", "allow")


class RowCheck(Component):
    """The findings in the rows that the draft means; none where other rows, or none, were looked at."""

    def findings(self) -> Sequence[Finding]:
        """All that the last look found in these rows."""
        profile, seen = self.form.snapshot.profile, self.stage.row_report
        if profile is None or seen is None or _rows_of(seen.profile) != _rows_of(profile):
            return ()
        return seen.report.findings

    def blocking(self) -> list[Finding]:
        """The findings that would stop a run of the draft."""
        profile = self.form.snapshot.profile
        allowed = profile.data.allow if profile is not None else ()
        return [finding for finding in self.findings() if finding.severity == "red" and finding.name not in allowed]

    def allow(self, findings: Sequence[Finding]) -> bool:
        """Puts the names of these findings into data.allow, as one step; whether the text could take it."""
        profile, field = self.form.snapshot.profile, field_at(ALLOW)
        assert profile is not None and field is not None, "they were found in the rows of a valid draft"
        names = [*profile.data.allow, *dict.fromkeys(finding.name for finding in findings)]
        return self.edit(lambda draft: with_value(draft, field, ALLOW, format_list(names)))

    def open_rows(self) -> None:
        """Shows the rows as the model sees them, saved or not."""
        profile = self.form.snapshot.profile
        if profile is None:
            self.stage.say("The profile has faults: mend them first; n goes to the next.", "warn")
        else:
            open_rows(self.screen, profile, self.form.path.name, self.redraw)


def _rows_of(profile: Profile) -> tuple[object, ...]:
    """All that the report depends on."""
    return profile.data.model_copy(update={ALLOW[1]: ()}), profile.model, profile.run.stage
