"""Secrets kept out of logs, records, messages and profiles: what Python prints passes through here on its way to a log.

Known by their place (user:password or `?token=` in a URL), by their look (`hf_...`, `sk-...`), or because they stand in
an environment variable whose name says so. What C code or a crash handler writes to the descriptor does not pass.
"""

import atexit
import contextlib
import functools
import json
import os
import re
import sys
import threading
from collections.abc import Callable, Iterable
from typing import Any, TextIO, cast
from urllib.parse import quote

from ftui.system.log_lines import LogLines

HIDDEN = "***"
SHORTEST = 8
_NAMES = re.compile("TOKEN(?!IZ)|SECRET|PASSWORD|API_?KEY|ACCESS_KEY|CREDENTIALS", re.IGNORECASE)
_TOKENS = {
    "hf_": "[A-Za-z0-9]{20,}",  # Hugging Face
    "sk-": r"(?=[\w-]*\d)(?:[a-z0-9]{2,8}-){0,3}[A-Za-z0-9_]{20,}[\w-]*",  # OpenAI, Anthropic and others
    "wandb_v1_": r"\w{20,}",
    "ghp_": r"\w{20,}", "gho_": r"\w{20,}", "ghs_": r"\w{20,}", "github_pat_": r"\w{20,}", "glpat-": r"[\w-]{20,}",
    "AKIA": "[0-9A-Z]{16}", "xoxb-": r"[\w-]{20,}", "AIza": r"[\w-]{35}",
}  # fmt: skip
"""What tokens of services begin with, and what follows."""
_IN_QUERY = "(?:[a-z_-]*(?:token|api_?key|secret|password|passwd|signature|credential)|auth|key|pwd|sig)"
_SHAPES = "|".join((
    r"(?P<url>://)[^\s/?#]*@",
    rf"(?P<query>[?&](?i:{_IN_QUERY})=)[^\s&#\"'<>*]+",
    *(f"(?P<token{number}>{start}){rest}" for number, (start, rest) in enumerate(_TOKENS.items())),
))  # fmt: skip
_OPEN_SHAPES = re.compile(r"(?::/?|://[^\s/?#]*|[?&](?i:[a-z_-]*)(?:=[^\s&#\"'<>*]*)?)\Z")
_LAST_WORD = re.compile(r"[\w-]*\Z")
_LONGEST_HELD = 64 << 10


def redact(text: str) -> str:
    """Replace every secret in `text` by `***` (what says that it is one stays, as `hf_` and `?token=`)."""
    return _pattern(_secrets()).sub(_hide, text)


def redact_value(value: Any) -> Any:
    """The same for every text in a value of a profile or of a record: in lists, in tables and their keys."""
    return value_redactor()(value)


def value_redactor() -> Callable[[Any], Any]:
    """`redact_value` with the environment as it is now, for many values: to read it costs more than to search them."""
    pattern = _pattern(_secrets())

    def redacted(value: Any) -> Any:
        if isinstance(value, str):
            return pattern.sub(_hide, value)
        if isinstance(value, dict):
            return {redacted(key): redacted(inner) for key, inner in value.items()}
        if isinstance(value, list | tuple):
            return type(value)(map(redacted, value))
        return value

    return redacted


_more_names: set[str] = set()


def hide_variables(names: Iterable[str]) -> None:
    """From here on the values of these environment variables are secrets too, whatever their names look like."""
    _more_names.update(names)


def is_secret_name(name: str) -> bool:
    """Whether the value of an environment variable of this name is a secret."""
    return _NAMES.search(name) is not None


def _hide(match: re.Match[str]) -> str:
    if match["url"]:
        return f"://{HIDDEN}@"
    kept = next((group for group in match.groups() if group), "")
    return f"{kept}{HIDDEN}"


def _secrets() -> frozenset[str]:
    """The values of secret environment variables as they are now; of those with several lines, each line."""
    values = (value for name, value in os.environ.items() if name in _more_names or is_secret_name(name))
    return frozenset(part for value in values for line in value.splitlines() if len(part := line.strip()) >= SHORTEST)


@functools.lru_cache(maxsize=8)
def _spellings(secrets: frozenset[str]) -> tuple[str, ...]:
    """Each secret as it stands and as `repr`, JSON and URLs write it; longest first, so that no part hides a whole."""
    spelt = {form for secret in secrets for form in _forms(secret)}
    return tuple(sorted(spelt, key=lambda form: (-len(form), form)))


def _forms(secret: str) -> Iterable[str]:
    return secret, repr(secret)[1:-1], json.dumps(secret)[1:-1], quote(secret, safe="", errors="replace")


@functools.lru_cache(maxsize=8)
def _pattern(secrets: frozenset[str]) -> re.Pattern[str]:
    return re.compile("|".join([*map(re.escape, _spellings(secrets)), _SHAPES]))


def _open_end(text: str) -> int:
    """Where the part of `text` begins that more text could still turn into a secret; its length if there is none."""
    secrets = _secrets()
    starts = [len(text)]
    if match := _OPEN_SHAPES.search(text):
        starts.append(match.start())
    word = _LAST_WORD.search(text)
    assert word is not None, "it may be empty"
    for beginning in _TOKENS:
        if (place := word[0].find(beginning)) >= 0:
            starts.append(word.start() + place)
    for form in (*_spellings(secrets), *_TOKENS):
        longest = min(len(form) - 1, len(text))
        starts += [len(text) - n for n in range(longest, 0, -1) if text.endswith(form[:n])][:1]
    start = min(starts)
    for match in _pattern(secrets).finditer(text):
        if match.start() < start < match.end():
            return match.start()
    return start


class RedactingStream:
    """A text stream that writes whole lines, redacted, to another one, as a log has them (log_lines.py).

    Everything else is that one's. A secret may come in several writes, so what could be the beginning of one waits for
    its end, even over a flush.
    """

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream
        self._line = ""
        self._log = LogLines()
        self._lock = threading.RLock()

    def write(self, text: str) -> int:
        """Take the text, and pass on what is a whole line by now; returns the number of characters, as streams do."""
        with self._lock:
            whole, newline, self._line = (self._line + text).rpartition("\n")
            if newline:
                self._pass_on(whole + newline)
            if len(self._line) > _LONGEST_HELD:
                self._let_out()
        return len(text)

    def writelines(self, lines: Iterable[str]) -> None:
        """`write` each of them; as of every stream, no newlines are added."""
        for line in lines:
            self.write(line)

    def flush(self) -> None:
        """Write what has come of the last line, but for an end that could be the beginning of a secret."""
        with self._lock:
            self._let_out()
            with contextlib.suppress(OSError):
                self._stream.flush()

    def _pass_on(self, text: str) -> None:
        """A log on a full disk must not end whoever writes to it: the stream keeps the text for its next flush."""
        with contextlib.suppress(OSError):
            self._stream.write(self._log.take(redact(text)))

    def _let_out(self) -> None:
        end = _open_end(self._line)
        if len(self._line) - end > _LONGEST_HELD:  # no secret is this long
            end = len(self._line)
        if end:
            self._pass_on(self._line[:end])
            self._line = self._line[end:]

    def finish(self) -> None:
        """Write all that is left, redacted: nothing more comes."""
        with self._lock:
            self._pass_on(self._line)
            self._line = ""
            with contextlib.suppress(OSError):
                self._stream.write(self._log.finish())
            self.flush()

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)


def finish_output() -> None:
    """Let go of the last words that were held back; for a process that ends without the interpreter's own end."""
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, RedactingStream):
            stream.finish()


def redact_output() -> None:
    """From here on all that Python prints to stdout and stderr is redacted, until the interpreter ends."""
    for name in ("stdout", "stderr"):
        stream = RedactingStream(getattr(sys, name))
        setattr(sys, name, cast(TextIO, stream))
        atexit.register(stream.finish)
