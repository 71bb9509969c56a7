"""The screen of the queue: every key, on a queue that is paused."""

import asyncio

import msgspec
import pytest

from ftui.queue import wake as waking
from ftui.queue.queue_files import QueueFiles
from ftui.queue.waiting_runs import Added, Paused
from ftui.runs.run_folder import Run, RunFacts, runs_root
from ftui.tui.screens.many.queue import QueueScreen
from ftui.tui.screens.monitor import MonitorScreen
from tests.support.shown_app import ShownApp, shown_app


@pytest.fixture
def files(monkeypatch: pytest.MonkeyPatch) -> QueueFiles:
    monkeypatch.setattr(waking, "wake", lambda files: None)
    monkeypatch.setattr("ftui.queue.change.wake", lambda files: None)
    files = QueueFiles(runs_root())
    for name in ("one", "two", "three"):
        run = Run(files.root / name)
        run.folder.mkdir(parents=True)
        run.facts.write_bytes(msgspec.json.encode(RunFacts(f"id-{name}", name, 0.0, name, queued=True)))
        with files.changing() as pen:
            pen.write(Added(run_id=f"id-{name}", name=name, device="cpu", memory=1 << 30))
    with files.changing() as pen:
        pen.write(Paused())
    return files


def order(files: QueueFiles) -> list[str]:
    return [entry.added.name for entry in files.read().waiting]


@pytest.mark.slow
def test_the_order_is_changed_by_keys(files: QueueFiles) -> None:
    async def play(shown: ShownApp) -> None:
        await shown.press("w")
        assert shown.shows(QueueScreen)
        await shown.until(lambda: "the queue is paused" in shown.text())
        await shown.press("end", "K")
        await shown.until(lambda: order(files) == ["one", "three", "two"])
        await shown.until(lambda: shown.screen.row[1].place == 2)  # the cursor stays on its run
        await shown.press("J")
        await shown.until(lambda: order(files) == ["one", "two", "three"])
        await shown.press("d", "y")
        await shown.until(lambda: order(files) == ["one", "two"])
        assert not (files.root / "three").exists()
        await shown.press("p")
        await shown.until(lambda: not files.read().is_paused)
        await shown.until(lambda: "paused" not in shown.text())
        await shown.press("n", *"nope", "enter")
        await shown.until(lambda: "There is no profile or run 'nope'" in shown.text())
        await shown.press("escape")
        if not shown.shows(QueueScreen):  # where it did not fit into the last line it stood in a dialog
            await shown.press("w")
        await shown.until(lambda: "one" in shown.text())
        await shown.press("home", "enter")
        await shown.until(lambda: shown.shows(MonitorScreen))

    async def main() -> None:
        async with shown_app() as shown:
            await play(shown)

    asyncio.run(main())
