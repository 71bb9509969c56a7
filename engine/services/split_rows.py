"""Splits a file of rows in two: one to train on and one to evaluate on.

Rows that say the same, nearly the same, or ask the same go to one side. Reads the file twice and keeps about 150 bytes
for each row. Imports no training library.
"""

import re
import secrets
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from hashlib import blake2b
from pathlib import Path
from shlex import quote
from typing import IO, Any

import msgspec
import numpy as np

from ftui.dataset.split import SplitRequest, SplitResult
from ftui.errors import DataError, DiskError

from ..data.facts import near_duplicates
from ..data.facts.row_content import RowContent, row_content
from ..data.files.blocks import RowBlock, parse_block, read_blocks
from ..data.files.dataset_info import NAME, files_in_table
from ..data.files.raw_rows import BadRow, Row
from ..data.forms.column_names import STANDARD_NAMES
from ..data.forms.detect_form import EXPLICIT_FORMS, detect_form
from ..data.forms.formats import to_example
from ..system.distinct import distinct

ONE_TEXT = 'A text file is one document: data.eval_fraction sets parts of it aside (run.stage = "pretrain").'
_LINE_ENDS = re.compile(rb"[ \t\r\n]*[\r\n][ \t\r\n]*")
LEAST = 0.5  # of the rows asked for; where keeping equal prompts together gives fewer, they are parted


def split(on_detail: Callable[[str], None], request: dict[str, Any]) -> SplitResult:
    """Answer `ftui split`: see `split_file`."""
    return split_file(msgspec.convert(request, SplitRequest))


def split_file(request: SplitRequest) -> SplitResult:
    """Write both files, or none.

    Raises:
        DataError: a row cannot be read, or there are too few.
        DiskError: the files cannot be written.
    """
    source = Path(request.file)
    if source.name == NAME and (files := files_in_table(source)):
        raise DataError(
            f"{source} is a list of data sets (LLaMA-Factory's), not rows.",
            hint=f"Split the file of one of them, for example: ftui split {quote(str(files[0]))} --eval 10%",
        )
    content, prompts, words, bands = _facts(source, request.encoding)
    num_rows = _num_eval_rows(request, len(content))
    near = _near(content, bands)
    alike = near_duplicates.group_by_pairs(len(content), near)
    asking = [_same(values, np.flatnonzero(values)) for values in (prompts, words)]
    groups = near_duplicates.group_by_pairs(len(content), np.concatenate([near, *asking]))
    apart, asks_parted = _mask_eval_rows(groups, num_rows, request.seed), False
    if apart.sum() < LEAST * num_rows:
        apart, asks_parted = _mask_eval_rows(alike, num_rows, request.seed), True
    if not apart.any():
        raise DataError(
            f"{source}: too many rows belong together (say the same, or nearly) to set {num_rows} of them aside.",
            hint="Delete the duplicates, or ask for more rows with --eval.",
        )
    _write(source, request, apart)
    _, firsts = np.unique(content, return_index=True)
    return SplitResult(
        train=request.train, eval=request.eval, num_train_rows=int((~apart).sum()), num_eval_rows=int(apart.sum()),
        num_wanted=num_rows, num_same=len(content) - len(firsts),
        num_similar=int((alike != np.arange(len(alike))).sum()) - (len(content) - len(firsts)),
        num_asking_same=int((groups != np.arange(len(groups))).sum() - (alike != np.arange(len(alike))).sum()),
        are_asks_parted=asks_parted,
    )  # fmt: skip


def _num_eval_rows(request: SplitRequest, num_present: int) -> int:
    number = request.num_rows if request.num_rows is not None else max(1, round((request.fraction or 0) * num_present))
    if number >= num_present:
        if num_present == 1:
            raise DataError(f"{request.file} has one row, which cannot be parted.", hint=ONE_TEXT)
        raise DataError(
            f"{request.file} has {num_present:,} rows, and {number:,} are to be set aside.", hint="Lower --eval."
        )
    return number


def _facts(source: Path, encoding: str | None) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """Of each row: hashes (uint64; 0: nothing) of its content, its prompt and its words, and its bands (similar.py)."""
    hashes: list[list[tuple[int, int, int]]] = []
    bands: list[np.ndarray] = []
    reading: Callable[[Row], RowContent] | None = None
    for block in read_blocks([source], encoding=encoding):
        rows = _rows(block)
        reading = reading or _reading(rows)
        contents = [reading(row) for row in rows]
        hashes.append([(_hash(entry.content), _hash(entry.prompt), _hash(entry.words)) for entry in contents])
        bands.append(near_duplicates.hash_bands([entry.text for entry in contents]))
    if not hashes:
        raise DataError(f"There are no rows in {source}.")
    content, prompts, words = np.concatenate([np.array(some, dtype=np.uint64).reshape(-1, 3) for some in hashes]).T
    return content, prompts, words, np.concatenate(bands)


def _rows(block: RowBlock) -> list[Row]:
    rows = []
    for row in parse_block(block):
        if isinstance(row, BadRow):
            raise row.error()
        rows.append(row)
    return rows


def _reading(rows: list[Row]) -> Callable[[Row], RowContent]:
    """A function that reads rows like these; of an unknown form it takes all text in them.

    Pairs and verdicts are no problem here, though a profile has to name them.
    """
    form = detect_form(rows[:64], STANDARD_NAMES)
    if form.problem and form.form not in EXPLICIT_FORMS:
        return _plain

    def understood(row: Row) -> RowContent:
        try:
            return row_content(to_example(row, form.form))
        except DataError:  # a run would stop at it or skip it; here it is a row like others
            return _plain(row)

    return understood


def _plain(row: Row) -> RowContent:
    text = "\n".join(_texts(row.value))
    return RowContent([], text, msgspec.json.encode(row.value, enc_hook=str, order="sorted"))


def _texts(value: object) -> Iterator[str]:
    if isinstance(value, str):
        yield value
    elif isinstance(value, dict | list):
        for inner in value.values() if isinstance(value, dict) else value:
            yield from _texts(inner)


def _hash(content: bytes) -> int:
    return int.from_bytes(blake2b(content, digest_size=8).digest(), "little") if content else 0


def _same(values: np.ndarray, rows: np.ndarray) -> np.ndarray:
    """Pairs (n, 2) of these rows that have one value: each with the first of them."""
    _, firsts, first_of = np.unique(values[rows], return_index=True, return_inverse=True)
    return np.stack([rows[firsts[first_of]], rows], axis=1)


def _near(content: np.ndarray, bands: np.ndarray) -> np.ndarray:
    """Pairs (n, 2) of rows that say the same, or look alike."""
    same = _same(content, np.arange(len(content)))
    firsts = distinct(same[:, 0])
    return np.concatenate([same, firsts[near_duplicates.likely_pairs(bands[firsts])]])


def _mask_eval_rows(groups: np.ndarray, num_rows: int, seed: int) -> np.ndarray:
    """The mask of the rows set aside: whole groups in a random order, each that still fits."""
    names, group_of = np.unique(groups, return_inverse=True)
    sizes = np.bincount(group_of)
    is_taken = np.zeros(len(names), dtype=bool)
    num_left = num_rows
    for group in np.random.default_rng([seed, 0x5B117]).permutation(len(names)).tolist():
        if not num_left:
            break
        if sizes[group] <= num_left:
            is_taken[group] = True
            num_left -= int(sizes[group])
    return np.asarray(is_taken[group_of])


def _write(source: Path, request: SplitRequest, apart: np.ndarray) -> None:
    targets = [Path(request.train), Path(request.eval)]
    staged = [path.with_name(f".{path.name}.{secrets.token_hex(4)}.partial") for path in targets]
    try:
        targets[0].parent.mkdir(parents=True, exist_ok=True)
        with ExitStack() as stack:
            files: list[IO[bytes]] = [stack.enter_context(path.open("xb")) for path in staged]
            number = 0
            for block in read_blocks([source], encoding=request.encoding):
                for text in block.texts:
                    if number < len(apart):
                        files[int(apart[number])].write(_on_one_line(text) + b"\n")
                    number += 1
        if number != len(apart):
            raise DataError(f"{source} has changed while it was read.", hint="Try again when nobody writes it.")
        for path, target in zip(staged, targets, strict=True):
            path.replace(target)
    except OSError as error:
        raise DiskError(f"{error.filename or request.train} cannot be written: {error.strerror or error}.") from error
    finally:
        for path in staged:
            path.unlink(missing_ok=True)


def _on_one_line(text: bytes) -> bytes:
    """The JSON of a row without ends of lines, as it has them where the file is indented: in strings there are none."""
    return _LINE_ENDS.sub(b"", text) if b"\n" in text or b"\r" in text else text
