"""Waiting for an application at rest, without the time that Textual's pilot sleeps: 20 ms, three times a key."""

import asyncio
from collections.abc import Callable
from typing import Any

import pytest

SOON_SECONDS = 0.02  # what Textual's own wait sees: timers that go off within it, and threads that end within it
FRAME_SECONDS = 1e-4  # of Textual's sixtieths of a second, nearly two thirds of the time of a key was waiting


def make_pilot_quick(monkeypatch: pytest.MonkeyPatch) -> None:
    """Have the pilot look whether anything is left to do, instead of measuring for 20 ms how busy the process is.

    Textual takes a process for idle that uses little CPU time, and so also one that a busy machine does not let run.
    """
    at_work = 0
    to_thread = asyncio.to_thread

    async def counted(work: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Any:
        nonlocal at_work
        at_work += 1
        try:
            return await to_thread(work, *args, **kwargs)
        finally:
            at_work -= 1

    async def until_idle(min_sleep: float = 0.0, max_sleep: float = 1.0) -> None:
        loop: Any = asyncio.get_running_loop()
        end = loop.time() + max_sleep
        soon = loop.time() + SOON_SECONDS
        while loop.time() < end:
            await asyncio.sleep(0)
            if loop._ready:  # what the loop has to run; asyncio has no public word for it
                soon = loop.time() + SOON_SECONDS
                continue
            due = min((timer.when() for timer in loop._scheduled if not timer.cancelled()), default=soon)
            if at_work and loop.time() < soon:
                await asyncio.sleep(0.001)
            elif due < soon:
                await asyncio.sleep(max(0.0, due - loop.time()))
            else:
                return

    monkeypatch.setattr(asyncio, "to_thread", counted)
    monkeypatch.setattr("textual.screen.UPDATE_PERIOD", FRAME_SECONDS)
    monkeypatch.setattr("textual.app.wait_for_idle", until_idle)
    monkeypatch.setattr("textual.pilot.wait_for_idle", until_idle)
