"""The report on the rows: findings with their examples as lines a cursor can stand on, and the numbers beside them."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from ftui.dataset import report_text
from ftui.dataset.locations import like_text, location_text, names_in_report
from ftui.dataset.report import Finding, Report, RowLocation

from ...render.spans import (
    Frame,
    Line,
    Span,
    around,
    heading,
    labelled,
    left,
    middle,
    on_cursor,
    paragraph,
    right,
    spread,
    thin_line,
    width_of,
    wrapped,
)
from ..columns import GAP, Column, share_width, widest
from ..wording import place, short
from .row_view import SEVERITY_STYLES

NAME = 20  # columns of a finding's name
WHERE, EXCERPT = 24, 30  # columns: the least of an example's place, and of its text
INDENT = " " * 7  # of an example
LONGEST_PLACE = 400  # columns that the place of a row may ask for
LABEL = 15
MOST_BARS = 12


@dataclass(frozen=True)
class ReportLine:
    """A line; `finding` is what it belongs to, `where` the row that enter leads to."""

    line: Line
    finding: Finding | None = None
    where: RowLocation | None = None
    is_head: bool = False


def report_title(frame: Frame, name: str, report: Report | None) -> list[Line]:
    """What the rows amount to, and how many findings there are."""
    head: Line = [(f" {name}", "title"), ("  report on the rows", "muted")]
    if report is None:
        return [head]
    share = report_text.percent(report.num_target_tokens, report.num_tokens)
    numbers: Line = [
        (f" {report.num_train_rows:,}", "number"), (" rows  ", "muted"), (short(report.num_tokens), "number"),
        (" tokens  ", "muted"), (short(report.num_target_tokens), "number"), (f" trained {share}", "muted"),
    ]  # fmt: skip
    tally = report_text.tally(report)
    numbers_found: Line = [(f" {words} ", SEVERITY_STYLES[severity]) for severity, words in tally]
    verdict: Span = ("a run would not start ", "bad") if report.stopping else ("ready to start ", "good")
    return [
        spread(frame.width, head, [verdict]),
        spread(frame.width, numbers, numbers_found or [("no findings ", "good")]),
        _share(frame, report),
    ]


def _share(frame: Frame, report: Report) -> Line:
    """What of all tokens is trained on, as a bar."""
    width = max(1, frame.width - 2)
    full = round(width * report.num_target_tokens / report.num_tokens) if report.num_tokens else 0
    return [(" " + frame.glyphs.full * full, "good"), (frame.glyphs.rule * (width - full), "rule")]


def finding_lines(frame: Frame, report: Report) -> list[ReportLine]:
    """The gravest first, each with its examples below it."""
    if not report.findings:
        return [ReportLine([("  Nothing was found to be wrong with the rows.", "good")])]
    lines: list[ReportLine] = []
    names = names_in_report(report)
    examples = [example for finding in report.findings for example in finding.examples]
    wheres = Column(WHERE, widest(location_text(example.where, names, LONGEST_PLACE) for example in examples))
    texts = Column(EXCERPT, widest(example.excerpt.strip() for example in examples))
    width, _ = share_width([wheres, texts], frame.width - len(INDENT) - GAP - 1)
    for finding in report_text.sort_findings(report.findings):
        lines.append(ReportLine(_head(frame, finding), finding, _first(finding), is_head=True))
        for example in finding.examples:
            where = location_text(example.where, names, width)
            like = like_text(example, names, frame.width - width - GAP - len(INDENT))
            place_words = INDENT + left(where, width) + " " * GAP
            line: Line = [(place_words, "muted"), (like, "text"), (example.excerpt.strip(), "faint")]
            lines.append(ReportLine(line, finding, example.where))
    return lines


def _first(finding: Finding) -> RowLocation | None:
    return finding.examples[0].where if finding.examples else None


def _head(frame: Frame, finding: Finding) -> Line:
    gravity = report_text.gravity(finding)
    sign = {"error": frame.glyphs.best, "warning": frame.glyphs.checkpoint, "note": frame.glyphs.idle}[gravity]
    style = SEVERITY_STYLES[gravity]
    head: Line = [(f"   {sign} ", style), (left(finding.name, NAME), style)]
    fits = width_of([*head, (finding.message, "text")]) <= frame.width
    few = f"{finding.count:,} of {finding.total:,} {finding.unit}"  # all of it stands below, under the cursor
    return [*head, (finding.message if fits else few, "text")]


def finding_details(frame: Frame, line: ReportLine | None) -> list[Line]:
    """All that is known about the finding under the cursor."""
    if line is None or line.finding is None:
        return [thin_line(frame)]
    finding = line.finding
    gravity = report_text.gravity(finding)
    allowed = ", allowed" if finding.allowed and finding.severity == "error" else ""
    state: Span = (f"{gravity}{allowed} ", SEVERITY_STYLES[gravity])
    lines = [thin_line(frame), spread(frame.width, [(f" {finding.name}", "title")], [state])]
    lines += paragraph(finding.message, frame.width, "text")
    if fix := report_text.describe_fix(finding):
        lines += paragraph(fix, frame.width, "good")
    return lines[: frame.height]


def report_page(frame: Frame, lines: Sequence[ReportLine], cursor: int) -> list[Line]:
    """As many lines as there is room for, the one under the cursor among them."""
    shown = around(lines, cursor, frame.height)
    return [_marked(frame, line.line) if chosen else line.line for line, chosen in shown]


def _marked(frame: Frame, line: Line) -> Line:
    marked = on_cursor(line)
    if marked and marked[0][0].startswith("  "):
        marked[0] = (marked[0][0][2:], marked[0][1])
        marked.insert(0, (f" {frame.glyphs.cursor}", "loss@cursor"))
    return [*marked, ("", "text@cursor")]


# -- the numbers


def number_lines(frame: Frame, report: Report) -> list[Line]:
    """Sources, lengths, what other lengths would lose, and the rest in a line each."""
    lines: list[Line] = [heading(frame, "sources")]
    for source in report.sources:
        name = place(Path(source.name)) if source.name.startswith("/") else source.name
        lines.append([(" " + middle(name, frame.width - 2), "text")])
        lines += [[("   " + line, "muted")] for line in wrapped(report_text.source_facts(source), frame.width - 4)]
    lines += [[], heading(frame, "lengths"), *_histogram(frame, report), *_percentiles(frame, report)]
    if report.other_lengths:
        lines += [[], heading(frame, "max_length"), *_other_lengths(frame, report)]
    lines += [[], heading(frame, "more")]
    if report.num_eval_rows or report.num_judged_bad or report.num_skipped:  # else the title has said it
        lines += _fact(frame, "rows", report_text.rows_text(report))
    for label, text in report_text.detail_facts(report):
        lines += _fact(frame, label, text)
    return lines


def _fact(frame: Frame, label: str, text: str) -> list[Line]:
    if len(label) >= LABEL:
        return [[(f" {label}", "muted")], *_fact(frame, "", text)]
    return labelled([(" " + left(label, LABEL), "muted")], text, frame.width, "text")


def _histogram(frame: Frame, report: Report) -> list[Line]:
    """A bar for each range of lengths; what is longer than max_length in another colour and with another sign."""
    bars = _merged(report.histogram)
    most = max((rows for _, rows in bars), default=0)
    width = max(4, frame.width - 24)
    lines: list[Line] = []
    for longest, rows in bars:
        full = max(1, round(width * rows / most)) if rows else 0
        is_cut = longest > report.max_length
        bar: Span = (frame.glyphs.half * full, "warn") if is_cut else (frame.glyphs.full * full, "loss")
        line: Line = [(right(f"to {longest:,}", 12), "muted"), (right(short(rows), 8), "bright"), ("  ", "text"), bar]
        lines.append(line)
    return lines


def _merged(bars: Sequence[tuple[int, int]]) -> list[tuple[int, int]]:
    """No more bars than are read at a glance: neighbours are put together."""
    step = -(-len(bars) // MOST_BARS) or 1
    groups = [bars[at : at + step] for at in range(0, len(bars), step)]
    return [(group[-1][0], sum(rows for _, rows in group)) for group in groups]


def _percentiles(frame: Frame, report: Report) -> list[Line]:
    """As many beside each other as there is room for."""
    lines: list[Line] = []
    for label, number in report_text.length_facts(report):
        pair: Line = [(f" {label} ", "muted"), (number, "text"), (" ", "text")]
        if lines and width_of([*lines[-1], *pair]) <= frame.width:
            lines[-1] += pair
        else:
            lines.append(pair)
    return lines


def _other_lengths(frame: Frame, report: Report) -> list[Line]:
    """A table; the length of the profile is marked."""
    lines: list[Line] = [[(right("", 12) + right("rows cut", 16) + right("trained lost", 18), "faint")]]
    for other in report.other_lengths:
        length, rows, share, lost, lost_share = report_text.describe_length(other, report)
        is_now = other.max_length == report.max_length
        style = "bright" if is_now else "muted"
        mark = frame.glyphs.cursor if is_now else " "
        cells: Line = [(f" {mark}", "loss"), (right(length, 10), style), (right(rows, 8) + right(share, 8), style)]
        lines.append([*cells, (right(lost, 10) + right(lost_share, 8), style)])
    return lines
