"""The report on the rows in words and numbers, for commands and screens: pure functions."""

from collections.abc import Sequence

from ftui import units
from ftui.dataset.report import Finding, OtherLength, Report, Severity, SourceFacts

SEVERITIES: tuple[Severity, ...] = ("error", "warning", "note")
PERCENTILES = (0, 50, 90, 95, 99, 100)
NAMES = {0: "shortest", 50: "half below", 100: "longest"}

Fact = tuple[str, str]
"""A label and its text."""


def percent(part: float, whole: float = 1.0) -> str:
    """A share as `0%`, `0.3%`, `41%`; only all is 100%, and only nothing is 0%."""
    if not whole or part <= 0:
        return "0%"
    share = 100 * part / whole
    if share < 0.1:
        return "<0.1%"
    if share < 9.95:
        return f"{share:.1f}%"
    return ">99%" if 99 < share < 100 else f"{share:.0f}%"


def sort_findings(findings: Sequence[Finding]) -> list[Finding]:
    """The gravest first; of the same gravity in their own order. Those that are allowed stand with the warnings."""
    return sorted(findings, key=lambda finding: SEVERITIES.index(gravity(finding)))


def gravity(finding: Finding) -> Severity:
    """The severity that counts: an error that the profile allows stops nothing, so it is a warning."""
    return "warning" if finding.severity == "error" and finding.allowed else finding.severity


def tally(report: Report) -> list[tuple[Severity, str]]:
    """The number of findings of each gravity, in words: `2 errors`, `1 warning`, `3 notes`."""
    grades = [gravity(finding) for finding in report.findings]
    counts: list[tuple[Severity, str]] = []
    for severity in SEVERITIES:
        number = grades.count(severity)
        if number:
            counts.append((severity, f"{number} {severity}{'s' * (number > 1)}"))
    return counts


def describe_fix(finding: Finding) -> str:
    """The advice on a finding and, where it stops a run, the key that allows it."""
    allow = f'data.allow = ["{finding.name}"] lets a run start with it.'
    if finding.severity != "error" or not finding.is_allowable:
        return finding.fix
    return f"{finding.fix} {'It is allowed by data.allow.' if finding.allowed else allow}".strip()


def totals(report: Report) -> list[Fact]:
    """Rows, and of those to train on: tokens, and the trained ones."""
    trained = f"{report.num_target_tokens:,} ({percent(report.num_target_tokens, report.num_tokens)})"
    facts = [("rows", rows_text(report))]
    if report.num_sequences != report.num_train_rows:
        facts.append(("sequences", f"{report.num_sequences:,}"))
    return [*facts, ("tokens", f"{report.num_tokens:,}"), ("trained", trained)]


def rows_text(report: Report) -> str:
    """The rows and their use: `4,334 to train on, 228 to evaluate on`, and what is left out."""
    parts = [f"{report.num_train_rows:,} to train on"]
    if report.num_eval_parts:
        number = report.num_sequences + report.num_eval_parts
        parts.append(f"{report.num_eval_parts:,} of its {number:,} parts to evaluate on")
    elif report.num_eval_rows:
        parts.append(f"{report.num_eval_rows:,} to evaluate on")
    if report.num_judged_bad:
        parts.append(f"{report.num_judged_bad:,} judged bad and not trained on")
    if report.num_skipped:
        parts.append(f"{report.num_skipped:,} skipped")
    return ", ".join(parts)


def source_facts(source: SourceFacts) -> str:
    """Form, rows, tokens, and what is particular to it."""
    sure = "" if source.confidence >= 1 else f" ({percent(source.confidence)} of the rows looked at)"
    rows = f"{source.num_rows:,} row{'' if source.num_rows == 1 else 's'}"
    parts = [f"{source.form}{sure}", rows, f"{units.amount(source.num_tokens)} tokens"]
    if source.num_skipped:
        parts.append(f"{source.num_skipped:,} skipped")
    if source.weight != 1:
        parts.append(f"weight {source.weight:g}")
    if source.share is not None:
        parts.append(f"{percent(source.share)} of an epoch")
    if source.is_eval:
        parts.append("to evaluate on")
    return ", ".join(parts)


def length_facts(report: Report) -> list[Fact]:
    """The percentiles of the lengths that people ask for."""
    percentiles = dict(report.lengths)
    if len(set(percentiles.values())) == 1:
        return [("all", f"{percentiles[PERCENTILES[0]]:,.0f}")]
    return [(NAMES.get(p, f"{p}% below"), f"{percentiles[p]:,.0f}") for p in PERCENTILES if p in percentiles]


def share_facts(report: Report) -> str:
    """The share of a row that is trained: least, median, most."""
    percentiles = dict(report.target_shares)
    names = {0: "least trained", 50: "half the rows below", 100: "most trained"}
    return ", ".join(f"{name} {percent(percentiles[p])}" for p, name in names.items() if p in percentiles)


def describe_length(other: OtherLength, report: Report) -> list[str]:
    """The columns for another data.max_length: itself, rows cut, trained tokens lost, each with its share."""
    trained = sum(source.num_target_tokens for source in report.sources if not source.is_eval)
    return [
        f"{other.max_length:,}",
        f"{other.num_cut:,}",
        percent(other.num_cut, report.num_rows),
        f"{other.num_lost_target_tokens:,}",
        percent(other.num_lost_target_tokens, trained),
    ]


def answers_text(report: Report) -> str:
    """How the two sides of what is compared differ in number and length."""
    facts = report.answers
    if facts is None:
        return ""
    if not facts.are_pairs:
        return (
            f"{facts.num_chosen:,} judged good (half below {facts.median_chosen:,} trained tokens), "
            f"{facts.num_rejected:,} judged bad ({facts.median_rejected:,})"
        )
    unequal = facts.num_chosen - facts.num_same
    return (
        f"half of the chosen ones below {facts.median_chosen:,} trained tokens, of the rejected ones "
        f"{facts.median_rejected:,}; the longer one is chosen in {percent(facts.num_longer, unequal)} of "
        f"{unequal:,} pairs of unequal length"
    )


def padding_text(report: Report) -> str:
    """Waste as the profile is, and what packing would make of it."""
    padding = report.padding
    if padding is None:
        return ""
    current = f"{percent(padding.as_set)} of the places in a micro-batch"
    without, packed = percent(padding.without_packing), percent(padding.with_packing)
    alternatives = (("without packing", without), ("with packing", packed))
    changes = [f"{words} {share}" for words, share in alternatives if share != percent(padding.as_set)]
    return "; ".join([current, ", ".join(changes)] if changes else [current])


def scripts_text(report: Report) -> str:
    """The scripts of the letters with their shares: `Latin 97%, Cyrillic 3%`, the most first."""
    return ", ".join(f"{name} {percent(share)}" for name, share in report.scripts)


def detail_facts(report: Report) -> list[Fact]:
    """The facts that take one line each; those without a text are left out."""
    facts = [("answers", answers_text(report)), ("trained share", share_facts(report))]
    facts.append(("padding", padding_text(report)))
    facts.append(("scripts", scripts_text(report)))
    facts += [("special tokens" if not n else "", text) for n, text in enumerate(report.special)]
    return [(label, text) for label, text in facts if text]
