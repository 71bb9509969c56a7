"""Regular expressions out of a profile: tried where one that never ends can be ended, before they are used here."""

import functools
import json
import re
import subprocess
import sys
from collections.abc import Iterable, Mapping

from ftui.errors import ProfileError

SECONDS = 5  # of a processor, for all of them; an expression that is meant takes microseconds for each name
_REPEATS = re.compile(r"[*+]|\{\d*,\}")
_TRY = f"""
import json, re, resource, sys
resource.setrlimit(resource.RLIMIT_CPU, ({SECONDS}, {SECONDS}))
patterns, names = json.load(sys.stdin)
for number, pattern in enumerate(patterns):
    print(number, flush=True)
    compiled = re.compile(pattern)
    for name in names:
        compiled.search(name), compiled.fullmatch(name)
"""


def check_expressions_end(patterns: Mapping[str, str], names: Iterable[str]) -> None:
    """See that each expression is done with all names in `SECONDS` of a processor's time.

    Only in a process of its own can one be ended: what it takes may double with each letter. One with fewer than two
    repeats takes no such time, and needs no process (0.05 s).

    Args:
        patterns: the key of the profile that has it, by expression.

    Raises:
        ProfileError: it took longer; the error names the key.
    """
    tried = tuple(pattern for pattern in patterns if len(_REPEATS.findall(pattern)) > 1)
    if tried and (endless := _find_endless(tried, tuple(names))) is not None:
        raise ProfileError(
            f"{patterns[endless]}: {endless!r} is not done with the names of this model's modules in {SECONDS} s.",
            hint="Write it without a repeat inside another, or name the modules in a list.",
        )


@functools.lru_cache(maxsize=16)
def _find_endless(patterns: tuple[str, ...], names: tuple[str, ...]) -> str | None:
    command = [sys.executable, "-I", "-S", "-c", _TRY]
    told = subprocess.run(command, input=json.dumps([patterns, names]), capture_output=True, text=True, timeout=600)
    return patterns[int(told.stdout.split()[-1])] if told.returncode else None
