"""Make every picture in this folder: `python -m screenshots.make [NAME ...]`. Needs Pillow (the `test` extra).

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
from screenshots.cells import cells_of, draw
from tests.support.replayed import moment, recorded, replay
from tests.support.rows_helper import StandIn
from tests.support.shown_app import PROFILE, shown_app, strips_of

HERE = Path(__file__).parent
SIZES = {"80x24": (80, 24), "120x40": (120, 40)}
LIVING = ("wiki-style-lora", "wiki-style-held")


@dataclass(frozen=True)
class Scene:
    """A screen: the run it opens on (none: the list), the keys that lead there."""

    name: str
    run: str | None = None
    keys: tuple[str, ...] = ()


SCENES = (
    Scene("runs"),
    Scene("live", "wiki-style-lora"),
    Scene("held", "wiki-style-held"),
    Scene("finished", "wiki-style-finished"),
    Scene("checkpoints", "wiki-style-finished", ("c",)),
    Scene("failed", "exploded"),
    Scene("start", None, ("n",)),
    Scene("profile", None, ("n", "enter", "e", "ctrl+u", *"adapter.r=64", "enter")),
    Scene("form", None, ("n", "e", "t", *"rtx4090", "enter", "slash", *"lora_alpha", "enter")),
    Scene("fit", None, ("n", "e", "t", *"rtx4090", "enter", "f")),
    Scene("rows", None, ("n", "r")),
    Scene("report", None, ("n", "r", "R")),
    Scene("help", "wiki-style-lora", ("question_mark",)),
    Scene("question", "wiki-style-lora", ("p",)),
)


def main(names: list[str]) -> None:
    with tempfile.TemporaryDirectory() as place:
        settle(Path(place))
        now = max(moment(run) for run in all_runs()) + 3
        for scene in SCENES:
            if not names or scene.name in names:
                for size in SIZES:
                    for theme in ("dark", "light"):
                        asyncio.run(shoot(scene, size, theme, clock_of(scene, now)))


def settle(place: Path) -> None:
    """A home with every recorded run in it, and a folder with a profile."""
    os.environ |= {"HOME": str(place), "FTUI_RUNS": str(place / "runs"), "XDG_STATE_HOME": str(place / ".state")}
    os.environ["TZ"] = "UTC"
    time.tzset()
    for name in recorded():
        replay(name, runs_root(), living=name in LIVING)
    (place / "project").mkdir()
    (place / "project" / "mine.toml").write_text(PROFILE)
    os.chdir(place / "project")
    setattr(rows_screen, "Helper", StandIn)  # noqa: B010 (no process is started for a picture)


def clock_of(scene: Scene, now: float) -> Callable[[], float]:
    """The time at which the scene's run was recorded; the newest of all for the list."""
    end = now if scene.run is None else moment(Run(runs_root() / scene.run)) + 3
    return lambda: end


async def shoot(scene: Scene, size: str, theme: str, clock: Callable[[], float]) -> None:
    """One scene as SVG and PNG."""
    run = None if scene.run is None else Run(runs_root() / scene.run)
    async with shown_app(run=run, size=SIZES[size], theme=theme, clock=clock) as shown:
        for key in scene.keys:
            await shown.press(key)
            await shown.app.workers.wait_for_complete()
        await shown.pilot.pause()
        name = f"{scene.name}-{size}-{theme}"
        (HERE / f"{name}.svg").write_text(shown.app.export_screenshot(title="ftui"), encoding="utf-8")
        palette = shown.app.look.palette
        rows = cells_of(strips_of(shown.app), palette["text"], palette["background"])
        draw(rows, palette["background"], HERE / f"{name}.png")
        print(name, flush=True)


if __name__ == "__main__":
    main(sys.argv[1:])
