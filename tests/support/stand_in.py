"""Small scripts in place of the helper process."""

import json
import sys
from typing import Any

import pytest

from ftui.helper import client


def stand_in(monkeypatch: pytest.MonkeyPatch, code: str) -> None:
    """The process runs `code` instead; requests are lines on its standard input."""
    monkeypatch.setattr(client, "COMMAND", [sys.executable, "-S", "-c", code])


def answer_with(monkeypatch: pytest.MonkeyPatch, answer: dict[str, Any]) -> None:
    """Every request gets this answer."""
    lines = [
        "import json, sys",
        "for line in sys.stdin:",
        f"    answer = {{'id': json.loads(line)['id']}} | json.loads({json.dumps(answer)!r})",
        "    print(json.dumps(answer), flush=True)",
    ]
    stand_in(monkeypatch, "\n".join(lines))
