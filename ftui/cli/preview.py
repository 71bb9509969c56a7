"""`ftui preview PROFILE`: its first rows as the model sees them, then what is found in all. Needs no weights."""

import os
import re
import shutil
import sys
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import closing
from functools import partial
from pathlib import Path
from typing import Any

import msgspec

from ftui.cli.terminal import LiveOutput
from ftui.dataset import report_text
from ftui.dataset.locations import Names, like_text, location_text, names_in_report, parse_location
from ftui.dataset.report import Finding, Report, RowLocation
from ftui.dataset.row import Jump, RowView
from ftui.dataset.row_text import PieceKind, RowLine, Signs, comparison_lines, layout_row
from ftui.errors import FINISHED, DataError, UsageError
from ftui.helper.checks import find_refusal
from ftui.helper.client import Helper
from ftui.launch.open_run import check_files, locate_run
from ftui.profile.checks.warnings import find_warnings, warning_lines
from ftui.profile.layers import ResolvedProfile
from ftui.text import cells, cut, shown, wrapped

NARROWEST, WIDEST = 40, 160
LABEL = 17  # columns of the labels
MOST_CUT = 50  # tokens beyond data.max_length that are printed
JUMPS: tuple[Jump, ...] = ("longest", "shortest", "most_truncated", "least_trained", "random")
PLACE = re.compile(r"(\d{1,18})(?:/(\d{1,18}))?")  # a row, or a part of it
MARKS = (("[[", "]]"), ("<<<", ">>>"), ("{{{", "}}}"), ("[trained:", ":trained]"))
LEGEND = "What stands between {} and {} is trained on."
COLOURS: dict[PieceKind, str] = {
    "trained": "1", "ignored": "2", "trained special": "1;35", "special": "35", "cut": "2;31", "mark": "2",
    "trained mark": "2",    "role": "36", "rule": "2", "note": "2",
    "alarm": "31",
}  # fmt: skip
"""Numbers of terminal styles: bold and dim are seen on light and on dark backgrounds."""
SEVERITY_COLOURS = {"error": "1;31", "warning": "33", "note": "36"}


def print_preview(
    profile: str, overrides: Sequence[str], tier: str | None, allow: Collection[str],
    num_rows: int, jump: str | None, only_report: bool, as_json: bool,
) -> int:  # fmt: skip
    """`ftui preview PROFILE`: the report, and so many rows.

    Args:
        jump: which rows: one of `JUMPS`, the number of a row, or its place as findings print it.

    Returns:
        31 where a finding would stop the run, as the run itself would, else 0.

    Raises:
        FtuiError: the profile's model or rows are wrong, or, once they are printed, a run here would be refused for
            another reason; `UsageError`: there is no such row.
    """
    if num_rows < 0:
        raise UsageError(f"--rows {num_rows}: fewer than none.", hint="--rows 3, or --report for the report alone.")
    _, resolved = locate_run(profile, None, overrides, tier)
    check_files(resolved)
    with closing(Helper(allow)) as helper, LiveOutput(sys.stderr) as lines:
        lines.draw("getting ready (some seconds) ...")
        ask = partial(helper.ask, on_detail=lines.draw, profile=resolved.profile)
        is_early = not as_json and not only_report and jump is None and num_rows > 0
        first = msgspec.convert(ask("first_rows", number=num_rows), list[RowView]) if is_early else []
        if first:
            lines.clear()
            _print_first(first)
            lines.draw("reading the rest ...")
        report = msgspec.convert(ask("report"), Report)
        samples = [] if only_report or first else _samples(ask, report, num_rows, jump)
        refusal = find_refusal(helper, resolved.profile)
    if as_json:
        told = {
            "profile": str(resolved.path),
            "report": report,
            "warnings": warning_lines(find_warnings(resolved.profile)),
            "samples": [for_programs(one) for one in samples],
            "refusal": None if refusal is None else {"message": refusal.message, "hint": refusal.hint},
        }
        print(msgspec.json.format(msgspec.json.encode(told), indent=2).decode())
    else:
        _print(resolved, report, samples)
    if refusal is not None:
        raise refusal
    return DataError.exit_code if report.stopping else FINISHED


def _samples(ask_helper: Callable[..., Any], report: Report, num_rows: int, jump: str | None) -> list[RowView]:
    """The first ones, or those the jump leads to: the longest, the second longest ..."""

    def ask(jump: str, number: int, part: int = 0, **more: Any) -> RowView:
        given = {"jump": jump, "number": number, "part": part, "seed": number, **more}
        return msgspec.convert(ask_helper("sample", **given), RowView)

    place = PLACE.fullmatch(jump or "1")
    if place is not None:
        return _from(ask, int(place[1]), int(place[2]) if place[2] else None, report.num_rows, num_rows)
    if (where := parse_location(jump or "")) is not None:
        return _from_place(ask, where, report.num_rows, num_rows)
    if jump not in JUMPS:
        hint = (
            f"{', '.join(JUMPS)}, the number of a row (from 1), or of one and a part of it: 3/2; "
            "or its place as findings print it: rows.jsonl:17."
        )
        raise UsageError(f"There is no jump {jump!r}.", hint=hint)
    return [ask(jump, number) for number in range(min(num_rows, report.num_rows))]


def _from(ask: Callable[..., RowView], row: int, part: int | None, num_rows: int, num_shown: int) -> list[RowView]:
    """So many rows from this one on. From a part, and where there is but one row, a long text: so many parts.

    Raises:
        UsageError: there is no such row or part.
    """
    row, part = (1, row) if num_rows == 1 and part is None else (row, part)
    if not 1 <= row <= num_rows or part == 0:
        there = "there is only one" if num_rows == 1 else f"there are {num_rows:,}"
        number = f"row {row:,}: {there}" if part != 0 else "part 0"
        raise UsageError(f"There is no {number}.", hint="Rows and their parts are counted from 1.")
    if part is None:
        return [ask("number", number) for number in range(row - 1, min(row - 1 + num_shown, num_rows))]
    views = [ask("number", row - 1, part - 1)][:num_shown]
    if views and views[0].part != part - 1:
        parts = views[0].num_parts
        there = f"{parts:,}" if parts > 1 else "one part"
        raise UsageError(
            f"There is no part {part:,}: row {row:,} has {there}.", hint="Rows and their parts are counted from 1."
        )
    while views and len(views) < num_shown:
        after = ask("next", views[-1].number, views[-1].part)
        if (after.number, after.part) == (views[-1].number, views[-1].part):
            break
        views.append(after)
    return views


def _from_place(ask: Callable[..., RowView], where: RowLocation, num_rows: int, num_shown: int) -> list[RowView]:
    """So many rows from the one at that place on. A file that is here is that one, however it is written."""
    here = Path(where.file)
    file = str(here.resolve()) if here.is_file() else where.file
    views = [ask("number", 0, where={"file": file, "number": where.number})][:num_shown]
    if views:
        behind = views[0].number + 1
        views += [ask("number", number) for number in range(behind, min(behind + num_shown - 1, num_rows))]
    return views


def for_programs(sample: RowView) -> dict[str, Any]:
    """As JSON: rows and parts count from 1, as everywhere on the command line, and what a token is has a name."""
    tokens = [msgspec.structs.asdict(token) for token in sample.tokens]
    return msgspec.structs.asdict(sample) | {"number": sample.number + 1, "part": sample.part + 1, "tokens": tokens}


# -- printing


def width() -> int:
    """Columns to print in."""
    return max(NARROWEST, min(WIDEST, shutil.get_terminal_size().columns))


def has_colours() -> bool:
    """Whether standard output shows them: not into a file or a pipe, and not against NO_COLOR."""
    return sys.stdout.isatty() and not os.environ.get("NO_COLOR") and os.environ.get("TERM", "dumb") != "dumb"


def _print_first(samples: Sequence[RowView]) -> None:
    """Rows that are there before the report is."""
    rows = "The first row" if len(samples) == 1 else f"The first {len(samples)} rows"
    for line in _wrapped(f"{rows}; reading the rest for the report, which stands below.", ""):
        print(line)
    _print_rows(samples)
    print(flush=True)


def _print(resolved: ResolvedProfile, report: Report, samples: Sequence[RowView]) -> None:
    coloured = has_colours()
    for line in report_lines(resolved.path.stem, report, coloured=coloured):
        print(line)
    for warning in find_warnings(resolved.profile):
        severity = _styled("warning", SEVERITY_COLOURS["warning"] if coloured else "")
        print(f"{severity} {'.'.join(warning.key)}")
        for line in (*_wrapped(warning.message, "  "), *_wrapped(warning.fix, "  fix: ")):
            print(line)
    _print_rows(samples)


def _print_rows(samples: Sequence[RowView]) -> None:
    coloured = has_colours()
    encoding = (sys.stdout.encoding or "").lower().replace("-", "")
    newline, rule = ("↵", "─") if encoding.startswith("utf") else ("\\n", "-")
    marks = ("", "") if coloured else marks_for(samples)
    signs = Signs(newline, rule, marks, more="cut as well")
    if samples and not coloured:
        print(f"\n{LEGEND.format(*marks)}")
    for sample in samples:
        print()
        for line in row_lines(sample, width(), signs, coloured=coloured):
            print(line)


def marks_for(samples: Sequence[RowView]) -> tuple[str, str]:
    """The first pair of which no text has either, so that a mark is always a mark."""
    texts = ["".join(token.text for token in sample.tokens) for sample in samples]
    free = (pair for pair in MARKS if not any(mark in text for mark in pair for text in texts))
    return next(free, MARKS[-1])


def report_lines(name: str, report: Report, *, coloured: bool = False) -> list[str]:
    """The numbers, then the findings, the gravest first."""
    lines = [cut(shown(name), width())]
    for label, text in report_text.totals(report):
        lines += _fact(label, text)
    for number, source in enumerate(report.sources):
        lines += _fact("from" if not number else "", f"{source.name}: {report_text.source_facts(source)}")
    if lengths := report_text.length_facts(report):
        lines += _fact("lengths", ", ".join(f"{label} {told}" for label, told in lengths))
    for number, other in enumerate(report.other_lengths):
        length, rows, share, lost, lost_share = report_text.describe_length(other, report)
        now = " (as it is)" if other.max_length == report.max_length else ""
        told = f"at {length}{now}: {rows} rows cut ({share}), {lost} trained tokens lost ({lost_share})"
        lines += _fact("max_length" if not number else "", told)
    for label, text in report_text.detail_facts(report):
        lines += _fact(label, text)
    findings, names = report_text.sort_findings(report.findings), names_in_report(report)
    lines.append("" if findings else "Nothing was found to be wrong.")
    for finding in findings:
        lines += _finding(finding, names, coloured)
    return lines


def _fact(label: str, text: str) -> list[str]:
    return _wrapped(text, f"  {label:<{LABEL}}")


def _wrapped(text: str, before: str) -> list[str]:
    """In lines of the terminal's width; `before` stands in front of the first, as many blanks before the others."""
    room = max(10, width() - len(before))
    return [(before if not n else " " * len(before)) + line for n, line in enumerate(wrapped(text, room))]


def _finding(finding: Finding, names: Names, coloured: bool) -> list[str]:
    severity = report_text.gravity(finding)
    allowed = " (allowed)" if finding.allowed and finding.severity == "error" else ""
    head = _styled(f"{severity}{allowed}", SEVERITY_COLOURS[severity] if coloured else "")
    lines = [f"{head} {cut(shown(finding.name), width() - len(severity) - len(allowed) - 1)}"]
    lines += _wrapped(finding.message, "  ")
    for example in finding.examples:
        where = location_text(example.where, names, width() - 4)
        room = width() - cells(where) - 6
        like = like_text(example, names, room)
        excerpt = cut(f"{like}{shown(example.excerpt)}", room) if room > 8 else ""
        lines.append(f"    {where}  {excerpt}".rstrip())
    if told := report_text.describe_fix(finding):
        lines += _wrapped(told, "  fix: ")
    return lines


def row_lines(sample: RowView, width: int, signs: Signs, *, coloured: bool = False) -> Iterator[str]:
    """One row: where it stands and how much of it is trained on, what is odd, then its tokens."""
    yield from wrapped(headline(sample), width)
    for told in comparison_lines(sample):
        yield from wrapped(told, width)
    for note in sample.notes:
        yield from (_styled(line, SEVERITY_COLOURS["warning"] if coloured else "") for line in wrapped(note, width))
    seen = msgspec.structs.replace(sample, tokens=sample.tokens[: sample.max_length + MOST_CUT])
    for line in layout_row(seen, width, signs):
        yield _row_line(line, coloured)


def headline(sample: RowView) -> str:
    """`row 13 of 800, rows.jsonl:13, messages: 297 tokens, 122 trained (41%)`; of a row that is cut, of those kept."""
    part = f", part {sample.part + 1} of {sample.num_parts}" if sample.num_parts > 1 else ""
    part += f" ({sample.verdict})" if sample.verdict else ""
    seen = min(sample.num_tokens, sample.max_length)
    share = report_text.percent(sample.num_target_tokens, seen)
    whole = f" of the row's {sample.num_row_tokens:,}" if sample.num_row_tokens > sample.num_tokens else ""
    kept, lost = "", ""
    if sample.num_tokens > seen:
        kept, lost = f" of the {seen:,} kept", f", {sample.num_tokens - seen:,} cut"
    there = f"the first {sample.num_first:,}" if sample.num_first else f"{sample.num_rows:,}"
    return (
        f"row {sample.number + 1:,} of {there}{part}, {sample.where}, {sample.form}: "
        f"{sample.num_tokens:,} tokens{whole}, {sample.num_target_tokens:,}{kept} trained ({share}){lost}"
    )


def _row_line(line: RowLine, coloured: bool) -> str:
    return "".join(_styled(piece.text, COLOURS[piece.kind] if coloured else "") for piece in line.pieces)


def _styled(text: str, style: str) -> str:
    return f"\x1b[{style}m{text}\x1b[m" if style and text else text
