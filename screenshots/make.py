"""Make the pictures of this folder: `python -m screenshots.make [NAME ...]`. Needs Pillow (the `test` extra).

The runs are recordings of real ones (tests/fixtures/runs), the clock stands where they end; no engine runs, and what is
drawn is what the screens draw. The rows that are looked at are made up (tests/support/rows_helper.py).
"""

import asyncio
import os
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from ftui.runs.run_folder import Run, all_runs, runs_root
from ftui.tui.screens.rows import rows_screen
from screenshots.animate import animate
from screenshots.cells import cells_of, draw
from tests.support.replayed import list_recordings, replay, time_of_last_record
from tests.support.rows_helper import StandIn
from tests.support.shown_app import PROFILE, shown_app, strips_of

HERE = Path(__file__).parent
LIVING = ("wiki-style-lora",)


@dataclass(frozen=True)
class Scene:
    """A screen: the run it opens on (none: the list), the keys that lead there, its size in cells."""

    name: str
    size: tuple[int, int]
    run: str | None = None
    keys: tuple[str, ...] = ()


SCENES = (
    Scene("runs", (80, 24)),
    Scene("failed", (80, 24), "exploded"),
    Scene("live", (120, 40), "wiki-style-lora"),
    Scene("form", (120, 40), None, ("n", "e", "t", *"rtx4090", "enter", "slash", *"lora_alpha", "enter")),
    Scene("rows", (120, 40), None, ("n", "r")),
    Scene("report", (120, 40), None, ("n", "r", "R")),
)
"""What README.md and docs/ show; tests/architecture/test_docs.py keeps both in step."""


def main(names: list[str]) -> None:
    """Make the named pictures, or all of them where none is named."""
    with tempfile.TemporaryDirectory() as place:
        settle(Path(place))
        now = max(time_of_last_record(run) for run in all_runs()) + 3
        for scene in SCENES:
            if not names or scene.name in names:
                asyncio.run(shoot(scene, clock_of(scene, now)))
        if not names or "live-animation" in names:
            run = replay("wiki-style-finished", Path(place) / "animation", living=True)
            asyncio.run(animate(run, HERE / "live.gif"))


def settle(place: Path) -> None:
    """A home with every recorded run in it, and a folder with a profile."""
    os.environ |= {"HOME": str(place), "FTUI_RUNS": str(place / "runs"), "XDG_STATE_HOME": str(place / ".state")}
    os.environ["TZ"] = "UTC"
    time.tzset()
    for name in list_recordings():
        replay(name, runs_root(), living=name in LIVING)
    (place / "project").mkdir()
    (place / "project" / "mine.toml").write_text(PROFILE)
    (place / "project" / "rows.jsonl").write_text('{"prompt": "What is a kernel?", "completion": "A seed."}\n')
    os.chdir(place / "project")
    setattr(rows_screen, "Helper", StandIn)  # noqa: B010 (no process is started for a picture)


def clock_of(scene: Scene, now: float) -> Callable[[], float]:
    """The time at which the scene's run was recorded; the newest of all for the list."""
    end = now if scene.run is None else time_of_last_record(Run(runs_root() / scene.run)) + 3
    return lambda: end


async def shoot(scene: Scene, clock: Callable[[], float]) -> None:
    """One scene as PNG."""
    run = None if scene.run is None else Run(runs_root() / scene.run)
    async with shown_app(run=run, size=scene.size, clock=clock) as shown:
        for key in scene.keys:
            await shown.press(key)
            await shown.app.workers.wait_for_complete()
        await shown.pilot.pause()
        palette = shown.app.look.palette
        rows = cells_of(strips_of(shown.app), palette["text"], palette["background"])
        draw(rows, palette["background"], HERE / f"{scene.name}.png")
        print(scene.name, flush=True)


if __name__ == "__main__":
    main(sys.argv[1:])
