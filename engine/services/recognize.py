"""What files of rows are recognised as and what folders hold, for lists of paths to choose from."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

from ftui.errors import DataError

from ..data.files.blocks import BadRow, parse_block, read_blocks
from ..data.files.folders import first_names, list_files
from ..data.files.streams import printable
from ..data.forms.column_names import ColumnNames
from ..data.forms.detect_form import detect_form

MOST_FILES = 20


def recognise(
    on_detail: Callable[[str], object],
    path: str,
    columns: dict[str, str] | None = None,
    roles: dict[str, str] | None = None,
    encoding: str | None = None,
) -> list[dict[str, Any]]:
    """The form of rows that each file is recognised as by its first rows; at most 20 files.

    Of each `file` the `form` with its `confidence` (0..1), how many rows were `num_looked` at and `why`, and the
    `problem` with it, if there is one.
    """
    shape = ColumnNames(columns or {}, roles or {})
    return [_recognised(file, shape, encoding) for file in list_files(Path(path)).files[:MOST_FILES]]


def describe_folder(on_detail: Callable[[str], object], path: str) -> list[str]:
    """What would be trained on if a profile named that folder, and what a run says of the files it leaves out.

    Raises:
        DataError: a run would refuse the folder.
    """
    top = Path(path)
    listing = list_files(top)
    names = first_names(file.relative_to(top) for file in listing.files)
    number = len(listing.files)
    return [
        f"{number} file{'s' * (number != 1)} of rows to train on: {names}",
        *(note.replace(f"{printable(top)}/", "") for note in listing.notes),
    ]


def _recognised(file: Path, shape: ColumnNames, encoding: str | None) -> dict[str, Any]:
    facts: dict[str, Any] = {"file": str(file)}
    try:
        rows = parse_block(next(read_blocks([file], encoding=encoding)))
        good = [row for row in rows if not isinstance(row, BadRow)]
        if not good:
            raise next(row for row in rows if isinstance(row, BadRow)).error()
        detected = detect_form(good, shape)
    except DataError as error:
        return facts | {"problem": error.message}
    facts |= {"form": detected.form, "confidence": detected.confidence, "num_looked": detected.num_looked}
    return facts | {"why": detected.why} | ({"problem": detected.problem} if detected.problem else {})
