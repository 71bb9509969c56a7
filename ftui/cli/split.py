"""`ftui split FILE --eval 10%`: two files of one, to train and to evaluate on. The engine's process does the work."""

import re
from contextlib import closing
from pathlib import Path

import msgspec

from ftui.dataset.split import SplitRequest, SplitResult
from ftui.errors import FtuiError, UsageError
from ftui.helper.client import Helper
from ftui.system.input_files import name_special
from ftui.text import shown

LEAVE_OUT = 'or leave out all such rows: data.on_bad_row = "skip"'
KINDS = (".jsonl", ".json", ".csv", ".tsv", ".parquet", ".arrow", ".txt", ".gz", ".zst")


def print_split(
    file: Path, how_many: str, seed: int, out: Path | None, encoding: str | None, force: bool, as_json: bool
) -> int:
    """`ftui split FILE --eval SHARE`: split the file and say what was done.

    Raises:
        UsageError, DataError, DiskError.
    """
    done = split(wish_for(file, how_many, seed=seed, out=out, encoding=encoding, force=force))
    if as_json:
        print(msgspec.json.encode(done).decode())
        return 0
    for line in lines(done):
        print(line)
    return 0


def wish_for(
    file: Path,
    how_many: str,
    *,
    seed: int = 0,
    out: Path | None = None,
    encoding: str | None = None,
    force: bool = False,
) -> SplitRequest:
    """Raises `UsageError` where it cannot be meant, or would overwrite something."""
    if special := name_special(file):
        raise UsageError(f"{file} is {special}, not a regular file.", hint="ftui split ROWS.jsonl --eval 10%")
    if not file.is_file():
        raise UsageError(f"There is no file {file}.", hint="ftui split ROWS.jsonl --eval 10%")
    fraction, num_rows = _amount(how_many)
    stem = file.name
    while Path(stem).suffix.lower() in KINDS:
        stem = Path(stem).stem
    folder = (out or file.parent).absolute()
    train, evaluation = folder / f"{stem}.train.jsonl", folder / f"{stem}.eval.jsonl"
    for path in (train, evaluation):
        if path.exists() and not force:
            raise UsageError(f"{path} is there already.", hint="--force overwrites it; --out DIR writes elsewhere.")
    return SplitRequest(
        file=str(file.absolute()), train=str(train), eval=str(evaluation), fraction=fraction, num_rows=num_rows,
        seed=seed, encoding=encoding,
    )  # fmt: skip


def _amount(text: str) -> tuple[float | None, int | None]:
    """A share (`10%`, `0.1`) or a number of rows."""
    if found := re.fullmatch(r"(\d+(?:\.\d+)?)%", text):
        share = float(found[1]) / 100
    elif re.fullmatch(r"0?\.\d+", text):
        share = float(text)
    elif text.isdecimal() and int(text):
        return None, int(text)
    else:
        raise UsageError(f"--eval {text} is neither a share nor a number of rows.", hint="--eval 10%, or --eval 200")
    if not 0 < share < 1:
        raise UsageError(f"--eval {text} leaves one of the files empty.", hint="--eval 10%")
    return share, None


def split(request: SplitRequest) -> SplitResult:
    """Let a process of the engine do it.

    Raises:
        DataError, DiskError: the engine's.
    """
    try:
        with closing(Helper()) as helper:
            return msgspec.convert(helper.ask("split", request=msgspec.to_builtins(request)), SplitResult)
    except FtuiError as error:
        error.hint = _as_option(error.hint)
        raise


def _as_option(hint: str) -> str:
    """A hint about a profile's key as one about this command, which skips no rows."""
    hint = hint.replace(f", {LEAVE_OUT}", "").replace(LEAVE_OUT, "").strip()
    return re.sub(r"data\.encoding(?: = \"([^\"]*)\")?", lambda match: f"--encoding {match[1] or ''}".strip(), hint)


def lines(done: SplitResult) -> list[str]:
    sides = [
        (f"{done.num_train_rows:,}", "to train on", done.train),
        (f"{done.num_eval_rows:,}", "to evaluate on", done.eval),
    ]
    width = max(len(number) for number, _, _ in sides)
    told = [f"{number:>{width}} rows {what:<14}  {shown(path)}" for number, what, path in sides]
    if done.num_eval_rows < done.num_wanted:
        told.append(f"{done.num_wanted:,} were asked for: what is left belongs together and does not fit.")
    kept = [
        f"{number:,} {words}"
        for number, words in (
            (done.num_same, "say what another one says"),
            (done.num_similar, "nearly so"),
            (0 if done.are_asks_parted else done.num_asking_same, "ask the same"),
        )
        if number
    ]
    if kept:
        told.append(f"Kept on one side: rows that belong together ({', '.join(kept)}).")
    if done.are_asks_parted:
        told.append(f"{done.num_asking_same:,} rows that ask the same are on both sides: too many of them do.")
    return told
