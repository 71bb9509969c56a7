"""Requests that a disk does not take are refused; the run trains on."""

from functools import partial
from types import SimpleNamespace
from typing import Any

import pytest

from ftui.engine.training import request_handlers
from ftui.engine.training.request_handlers import RequestHandler
from ftui.errors import DiskError, DiskFullError
from ftui.runs.requests import Pin


@pytest.mark.parametrize("error", [DiskFullError("No room."), DiskError("The pins could not be written: EIO.")])
def test_pins_that_cannot_be_written_end_no_run(error: DiskError, monkeypatch: pytest.MonkeyPatch) -> None:
    def write(run: Any, steps: Any) -> None:
        raise error

    refusals: list[str] = []
    monkeypatch.setattr(request_handlers, "write_pins", write)
    monkeypatch.setattr(request_handlers, "read_pins", lambda run: frozenset())
    handler: Any = SimpleNamespace(run=None, inbox=SimpleNamespace(refuse=lambda request, why: refusals.append(why)))
    handler._checkpoint = lambda step: SimpleNamespace()
    for name in ("_pin", "_write_pins"):
        setattr(handler, name, partial(getattr(RequestHandler, name), handler))
    RequestHandler.handle(handler, Pin(id="1", attempt=1, token="", step=3))
    assert refusals == [error.message]
