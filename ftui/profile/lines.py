"""Where in a TOML text a key stands, so that an error can name its line (tomllib keeps no positions)."""

import re
from collections import Counter

_TABLE = re.compile(r"\s*\[+\s*([^\]]+?)\s*\]+")
_KEY = re.compile(r"\s*([A-Za-z0-9_.\"' -]+?)\s*=")


def _parts(dotted: str) -> tuple[str, ...]:
    return tuple(part.strip().strip("\"'") for part in dotted.split("."))


def line_of(text: str, key: tuple[str, ...]) -> int | None:
    """The 1-based line of `key` (a path such as `("train", "learning_rate")`), or of the nearest table above it.

    Tables of a list (`[[data.train]]`) are counted from 0: `("data", "train", "0", "path")`.
    """
    table: tuple[str, ...] = ()
    best: tuple[int, int] | None = None
    counts: Counter[tuple[str, ...]] = Counter()
    for number, line in enumerate(text.split("\n"), start=1):
        if match := _TABLE.match(line):
            here = table = _parts(match[1])
            if line.lstrip().startswith("[["):  # the nth table of a list; the first one is where the list begins
                counts[here] += 1
                table = (*here, str(counts[here] - 1))
                here = here if key == here else table
        elif match := _KEY.match(line):
            here = (*table, *_parts(match[1]))
        else:
            continue
        if key[: len(here)] == here and (best is None or len(here) > best[0]):
            best = (len(here), number)
    return best[1] if best else None
