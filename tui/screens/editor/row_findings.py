"""What the last look at the rows found that concerns the draft: shown in the form, asked about before a start."""

from collections.abc import Sequence

from ftui.dataset.report import Finding
from ftui.profile.schema import Profile

from ...stage import RowReport

ALLOW = ("data", "allow")


def findings_of(last: RowReport | None, profile: Profile | None) -> Sequence[Finding]:
    """What was found in the rows that the profile means; nothing where others, or none, were looked at."""
    if profile is None or last is None or _rows_of(last.profile) != _rows_of(profile):
        return ()
    return last.report.findings


def blocking_findings(last: RowReport | None, profile: Profile | None) -> list[Finding]:
    """Those that would stop a run of the profile."""
    allowed = profile.data.allow if profile is not None else ()
    return [each for each in findings_of(last, profile) if each.severity == "red" and each.name not in allowed]


def _rows_of(profile: Profile) -> tuple[object, ...]:
    """All that the report depends on."""
    return profile.data.model_copy(update={ALLOW[1]: ()}), profile.model, profile.run.stage
