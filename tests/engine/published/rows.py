"""Published measurements: numbers with their source, as the files in measurements/ hold them.

Numbers only, each file with its source, licence and units. Known but not copied, since their licence is not stated: 15
rows of Unsloth's documents (the longest context that fits), one of LongLoRA quoted by a data set, one of an issue of
axolotl; they are given reasons in translate.py all the same.
"""

import json
from collections.abc import Mapping
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

HERE = Path(__file__).parent / "measurements"

GIBI = ("GiB", "G (not defined)", "GPU size, upper bound")
"""Units that mean 1024^3 bytes; the undefined one is what nvidia-smi would show."""


@dataclass(frozen=True)
class Row:
    """One measurement. `None`: not published.

    Attributes:
        peak_gb: in `peak_unit`; of which memory says `kind` (allocated, reserved, ...).
        other: what only some sources tell.
    """

    source: str
    repo_or_url: str
    model: str
    method: str
    peak_gb: float
    kind: str
    peak_unit: str
    params: float | None = None
    rank: int | None = None
    targets: str | None = None
    seq_len: int | None = None
    micro_batch: int | None = None
    grad_ckpt: bool | str | None = None
    optimizer: str | None = None
    dtype: str | None = None
    quant: str | None = None
    gpu: str | None = None
    other: Mapping[str, Any] | None = None

    @property
    def measured(self) -> float:
        """Bytes."""
        return self.peak_gb * (2**30 if self.peak_unit in GIBI else 1e9)

    def more(self, key: str) -> Any:
        return (self.other or {}).get(key)


def rows_of(path: Path) -> list[Row]:
    """Of a list of rows, or of one source's file: {source, licence, units, rows: [...]}."""
    data = json.loads(path.read_text())
    shared: dict[str, Any] = {}
    if isinstance(data, dict):
        shared, data = {"source": data["source"]}, data["rows"]
    names = {field.name for field in fields(Row)}
    return [Row(**{key: value for key, value in (shared | row).items() if key in names}) for row in data]


def all_rows() -> list[Row]:
    """Of all files of this repository."""
    return [row for path in sorted(HERE.glob("*.json")) for row in rows_of(path)]
