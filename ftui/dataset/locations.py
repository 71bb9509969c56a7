"""Places of rows in as few words as tell them apart: of long paths the end, and of any place its number."""

import os
import re
from collections.abc import Iterable, Mapping

from ftui.dataset.report import Example, Report, RowLocation
from ftui.text import cells, cut_front, shown

Names = Mapping[str, str]
"""Files, each with what it is called in short."""

CUT = ("…", "~")  # what stands in front of the end of a name, the second on screens in ASCII
_WHERE = re.compile(r"(?P<file>.+?)(?::(?P<line>\d{1,18})|, row (?P<row>\d{1,18}))")


def parse_location(text: str) -> RowLocation | None:
    """The place that somebody means by what findings print: `rows.jsonl:17` or `rows.parquet, row 17`."""
    match = _WHERE.fullmatch(text.strip())
    if match is None:
        return None
    file = os.path.expanduser(match["file"]) if match["file"].startswith("~/") else match["file"]
    return RowLocation(file, int(match["line"] or match["row"]), "line" if match["line"] else "row")


def matches_file(name: str, file: str) -> bool:
    """Whether `name` means that file: its whole path, the end of it, or the end that was left where it was cut."""
    ending = name.removeprefix("./")
    return file == ending or file.endswith(f"/{ending}") or (ending[:1] in CUT and file.endswith(ending[1:]))


def names_in_report(report: Report) -> dict[str, str]:
    """A short name for each file that an example of the report is in."""
    examples = [example for finding in report.findings for example in finding.examples]
    locations = [*(e.where for e in examples), *(e.like for e in examples if e.like is not None)]
    return short_names(location.file for location in locations)


def short_names(files: Iterable[str]) -> dict[str, str]:
    """Each file's name with as few of the folders above it as make it different from the others."""
    paths = {file: file.split("/") for file in files}
    names = {}
    for file, parts in paths.items():
        others = [other for name, other in paths.items() if name != file]
        number = next((n for n in range(1, len(parts)) if all(o[-n:] != parts[-n:] for o in others)), len(parts))
        names[file] = "/".join(parts[-number:]) or file
    return names


def location_text(where: RowLocation, names: Names, width: int) -> str:
    """A location as `rows.jsonl:17` in at most `width` columns, cut from the front so that the number stays."""
    return cut_front(shown(str(RowLocation(names.get(where.file, where.file), where.number, where.unit))), width)


def like_text(example: Example, names: Names, width: int) -> str:
    """The text in front of an excerpt that names the row it is like: `like line 17: `; nothing without one."""
    like = example.like
    if like is None:
        return ""
    is_here = like.file == example.where.file
    place = f"{like.unit} {like.number:,}" if is_here else location_text(like, names, max(8, width - cells("like : ")))
    return f"like {place}: "
