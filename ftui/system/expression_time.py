"""Regular expressions out of a profile: tried where one that never ends can be ended, before they are used here."""

import functools
import json
import re
import signal
import subprocess
import sys
from collections.abc import Iterable, Mapping

from ftui.errors import FtuiError, ProfileError

SECONDS = 5  # of a processor, for all of them; an expression that is meant takes microseconds for each name
OUT_OF_TIME = (-signal.SIGXCPU, -signal.SIGKILL)
_CHOICES = re.compile(r"[*+?{|]")
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

    Only in a process of its own can one be ended: what it takes may double with each letter. It doubles only where each
    way of one repeat or alternative is tried with each way of another, so one with a single `* + ? {` or `|` needs no
    process (0.05 s): there are as many ways to try it as a name has letters, from each of them.

    Args:
        patterns: the key of the profile that has it, by expression.

    Raises:
        ProfileError: it took longer or is not valid; the error names the key.
    """
    tried = tuple(pattern for pattern in patterns if len(_CHOICES.findall(pattern)) > 1)
    if not tried or (failed := _find_failing(tried, tuple(names))) is None:
        return
    pattern, reason = failed
    if reason:
        raise ProfileError(f"{patterns[pattern]}: {pattern!r} is no regular expression that can be used: {reason}")
    raise ProfileError(
        f"{patterns[pattern]}: {pattern!r} is not done with the names of this model's modules in {SECONDS} s.",
        hint="Write it without a repeat inside another, or name the modules in a list.",
    )


@functools.lru_cache(maxsize=16)
def _find_failing(patterns: tuple[str, ...], names: tuple[str, ...]) -> tuple[str, str] | None:
    """The first expression that does not come to an end, or cannot be used, and why: nothing where it has no end."""
    command = [sys.executable, "-I", "-S", "-c", _TRY]
    told = subprocess.run(command, input=json.dumps([patterns, names]), capture_output=True, text=True, timeout=600)
    if not told.returncode:
        return None
    last_words = told.stderr.strip().rpartition("\n")[2]
    if not told.stdout:
        raise FtuiError(
            f"The regular expressions of [adapter] could not be tried: the process for it ended with {told.returncode}"
            f" before the first of them{': ' * bool(last_words)}{last_words}."
        )
    reason = "" if told.returncode in OUT_OF_TIME else last_words or f"it ended the process with {told.returncode}"
    return patterns[int(told.stdout.split()[-1])], reason
