"""Files that somebody or something has changed: whatever stands in them, they are read or refused, and nothing else.

A few mutations of each kind run always; `pytest tests/faults/test_mutated_files.py --examples 100000` tries so
many of each (`make torture`), from `--first-seed` on. The seed of a failure is in its message.
"""

import gzip
import io
import json
import random
import resource
import shutil
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pyarrow
import pytest
import zstandard
from pyarrow import parquet
from safetensors.numpy import save_file

from ftui.engine.data.files.blocks import parse_block, read_blocks
from ftui.engine.ledger.ledger_file import LedgerWriter, read_ledger, rewind
from ftui.errors import FtuiError
from ftui.importers import import_file
from ftui.models.safetensors_header import read_header
from ftui.profile.layers import resolve
from ftui.runs.checkpoint_folders import checkpoints_in, fault
from ftui.runs.curves import read_stored_curves
from ftui.runs.journal import Tail
from ftui.runs.requests import Set, new_id, read_requests, write_request
from ftui.runs.run_folder import Run
from ftui.runs.status import read_status
from tests.engine.ledger.test_ledger_file import PRINT, rows_of
from tests.faults.conftest import Account

RUNS = Path(__file__).parents[1] / "fixtures" / "runs"
IMPORTING = Path(__file__).parents[1] / "fixtures" / "importing"
ALWAYS = 150
MOST_MEMORY = 300 << 20  # bytes more than before
WORDS = (
    b"null", b"-1", b"1e999", b"NaN", b"\x00", b"\xff\xfe", b"\xed\xa0\x80", b"[" * 3000, b'{"a":' * 3000, b"9" * 400,
    b"\n", b'"', b"}", b"\xe2\x80\xa8", b"true", b"../../x", b"!!python/object:os.system ", b"&a [*a]", b"0" * 70_000,
)  # fmt: skip


def mutate(data: bytes, chance: random.Random) -> bytes:
    """One to four changes: bytes flipped, cut out, doubled, moved, or replaced by what readers stumble over."""
    changed = bytearray(data)
    for _ in range(chance.randint(1, 4)):
        start = chance.randrange(len(changed) + 1)
        end = min(len(changed), start + chance.choice([1, 4, 40, 4000]))
        kind = chance.randrange(5)
        if kind == 0 and end > start:
            changed[chance.randrange(start, end)] ^= 1 << chance.randrange(8)
        elif kind == 1:
            del changed[start:end]
        elif kind == 2:
            changed[start:start] = changed[start:end] * chance.choice([1, 1, 30])
        elif kind == 3:
            changed[start:end] = chance.choice(WORDS)
        else:
            changed[start:start] = chance.choice(WORDS)
    return bytes(changed)


Reader = Callable[[Path], object]


def _read_run_file(name: str, read: Callable[[Run], object]) -> tuple[list[Path], Reader]:
    """Every recorded file of that name, read in its place in a run's folder."""
    found = sorted(path for path in RUNS.glob(f"*/{name}") if path.stat().st_size < 1 << 18)
    return found, lambda path: read(Run(path.parent))


def _read_manifests(path: Path) -> object:
    return [fault(one.path, quick=quick) for one in checkpoints_in(path.parents[1]) for quick in (True, False)]


def _read_rows(path: Path) -> object:
    ledger = read_ledger(path.parent)
    rewind(path.parent, 3)
    return ledger


TARGETS: dict[str, tuple[list[Path], Reader]] = {
    "journal": _read_run_file("journal.jsonl", lambda run: Tail(run.journal).read()),
    "metrics": _read_run_file("metrics.jsonl", lambda run: Tail(run.metrics).read()),
    "telemetry": _read_run_file("telemetry.jsonl", lambda run: Tail(run.telemetry).read()),
    "status": _read_run_file("status.json", read_status),
    "curves": _read_run_file("curves.json", read_stored_curves),
    "profile": _read_run_file("profile.toml", lambda run: resolve(run.profile)),
    "facts": _read_run_file("run.json", lambda run: run.read_facts()),
    "manifest": (sorted(RUNS.glob("*/checkpoints/*/MANIFEST.json")), _read_manifests),
    "imported": (sorted(path for path in IMPORTING.iterdir() if path.is_file()), lambda p: import_file(p, p.parent)),
}


@pytest.mark.parametrize("name", [*TARGETS, "request", "ledger", "weights", "rows"])
def test_a_mutated_file_is_read_or_refused(
    name: str, tmp_path: Path, pytestconfig: pytest.Config, account: Account
) -> None:
    trials, first = pytestconfig.getoption("examples") or ALWAYS, pytestconfig.getoption("first_seed")
    account.row, account.figures["trials"] = f"fuzz: {name}", trials
    seeds, read = TARGETS.get(name) or made_here(name, tmp_path / "made")
    assert seeds
    before, ends = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss, Counter[str]()
    for seed in range(first, first + trials):
        chance = random.Random(f"{name} {seed}")
        source = chance.choice(seeds)
        path = tmp_path / "checkpoints" / "checkpoint-5" / source.name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(mutate(source.read_bytes(), chance))
        try:
            read(path)
            ends["read"] += 1
        except (FtuiError, OSError) as error:
            ends[type(error).__name__] += 1
        except Exception as error:
            raise AssertionError(f"{name}, seed {seed}, {source}: {type(error).__name__}: {error}") from error
        shutil.rmtree(path.parent)
    account.figures.update(ends)
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < MOST_MEMORY >> 10


PACKERS: dict[str, Callable[[bytes], bytes]] = {
    "": bytes, ".gz": gzip.compress, ".zst": zstandard.ZstdCompressor(write_checksum=False).compress,
}  # fmt: skip


def write_row_files(folder: Path) -> list[Path]:
    """A file of every kind that rows are read from, packed and not."""
    rows = [{"text": f"Row {n} \u2028 é", "messages": [{"role": "user", "content": "a" * n}]} for n in range(6)]
    table = io.BytesIO()
    parquet.write_table(pyarrow.Table.from_pylist(rows), table)
    kinds = {
        ".jsonl": b"".join(json.dumps(row).encode() + b"\n" for row in rows), ".json": json.dumps(rows).encode(),
        ".csv": b'text,other\n"a ""b""",1\nc,2\n', ".tsv": b"text\tother\na\t1\n", ".txt": b"One.\n\nTwo.\n",
        ".parquet": table.getvalue(),
    }  # fmt: skip
    for kind, data in kinds.items():
        for packed, pack in PACKERS.items():
            (folder / f"rows{kind}{packed}").write_bytes(pack(data))
    return sorted(folder.iterdir())


def _read_row_file(path: Path) -> object:
    return [parse_block(block) for block in read_blocks([path], encoding=None, size=3)]


def made_here(name: str, folder: Path) -> tuple[list[Path], Reader]:
    """Of what no recorded run has."""
    if name == "ledger":
        writer = LedgerWriter(folder, PRINT, 0)
        for step in range(1, 9):
            writer.write(step, rows_of(step))
        return sorted(folder.iterdir()), _read_rows
    folder.mkdir(parents=True)
    if name == "rows":
        return write_row_files(folder), _read_row_file
    if name == "weights":
        save_file({"a.weight": np.ones((4, 6), np.float32), "b": np.zeros(3, np.float16)}, folder / "model.safetensors")
        return sorted(folder.iterdir()), read_header
    write_request(Run(folder), Set(id=new_id(), attempt=1, token="t", learning_rate_factor=0.5))

    def read(path: Path) -> object:
        inbox = path.parent / "inbox"
        inbox.mkdir()
        path.rename(inbox / path.name)
        return list(read_requests(Run(path.parent)))

    return sorted((folder / "inbox").iterdir()), read
