"""Each screen as it is drawn, compared with its picture (tests/tui/pictures): recorded runs, a frozen clock.

After a wanted change: look at the screens (`python -m screenshots.make`), then `pytest tests/tui --update-pictures`.
"""

import asyncio
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from ftui.runs.run_folder import Run, all_runs
from ftui.tui.render.glyphs import ASCII, BLOCK, UNICODE
from tests.support.replayed import list_recordings, time_of_last_record, with_rewards
from tests.support.shown_app import PROFILE, picture, shown_app
from tests.tui.conftest import Recorded

SamePicture = Callable[[str, str], None]

SIZES = {"60x20": (60, 20), "80x24": (80, 24), "120x40": (120, 40), "200x60": (200, 60)}
LIVE = {
    "running": ("wiki-style-lora", True), "held": ("wiki-style-held", True), "finished": ("wiki-style-finished", False),
    "parked": ("full-parked", False),
}  # fmt: skip
ENDED = {"failed": "no-such-rows", "exploded": "exploded", "lost": "killed-by-host", "out-of-memory": "out-of-memory"}


def drawn(*keys: str, run: Run | None = None, size: str = "80x24", clock: Callable[[], float], **options: Any) -> str:
    """The screen after some keys."""

    async def main() -> str:
        async with shown_app(run=run, size=SIZES[size], clock=clock, **options) as shown:
            await shown.press(*keys)
            await shown.app.workers.wait_for_complete()
            await shown.pilot.pause()
            return picture(shown.app)

    return asyncio.run(main())


def clock_of(run: Run) -> Callable[[], float]:
    end = time_of_last_record(run) + 3
    return lambda: end


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("state", LIVE)
def test_live_view(state: str, size: str, recorded: Recorded, same_picture: SamePicture) -> None:
    name, living = LIVE[state]
    run = recorded(name, living=living)
    same_picture(f"live-{state}-{size}", drawn(run=run, size=size, clock=clock_of(run)))


@pytest.mark.parametrize(
    ("name", "keys", "size"),
    [("compared", (), "80x24"), ("compared", (), "120x40"), ("margin", ("y", "y"), "80x24")],
)  # fmt: skip
def test_live_view_of_compared_answers(
    name: str, keys: tuple[str, ...], size: str, recorded: Recorded, same_picture: SamePicture
) -> None:
    run = with_rewards(recorded("wiki-style-lora", living=True))
    same_picture(f"live-{name}-{size}", drawn(*keys, run=run, size=size, clock=clock_of(run)))


@pytest.mark.parametrize("size", ["60x20", "80x24", "120x40"])
@pytest.mark.parametrize("state", ENDED)
def test_endings(state: str, size: str, recorded: Recorded, same_picture: SamePicture) -> None:
    run = recorded(ENDED[state])
    same_picture(f"ending-{state}-{size}", drawn(run=run, size=size, clock=clock_of(run)))


@pytest.mark.parametrize("size", SIZES)
def test_list_of_runs(size: str, recorded: Recorded, same_picture: SamePicture) -> None:
    for name in list_recordings():
        recorded(name, living=name in ("wiki-style-lora", "wiki-style-held"))
    now = max(clock_of(run)() for run in all_runs())
    same_picture(f"runs-{size}", drawn(size=size, clock=lambda: now))


@pytest.mark.parametrize("size", ["60x20", "80x24"])
def test_no_runs(size: str, same_picture: SamePicture) -> None:
    same_picture(f"runs-none-{size}", drawn(size=size, clock=lambda: 0.0))


KEYS = {
    "help": ("question_mark",), "log-pane": ("v",), "log": ("L",), "ask": ("p",), "prompt": ("f",),
    "palette": ("ctrl+p",), "zoomed": ("z", "z"), "log-axis": ("l",), "refused": ("f", *"x", "enter"),
}  # fmt: skip


@pytest.mark.parametrize("what", KEYS)
def test_what_keys_show(what: str, recorded: Recorded, same_picture: SamePicture) -> None:
    run = recorded("wiki-style-lora", living=True)
    same_picture(f"live-{what}-80x24", drawn(*KEYS[what], run=run, clock=clock_of(run)))


@pytest.fixture
def at_home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A person's home with a profile of their own in it: places are shown from there."""
    home = tmp_path / "home"
    monkeypatch.setenv("HOME", str(home))
    monkeypatch.setenv("FTUI_RUNS", str(home / "runs"))
    (home / "project").mkdir(parents=True)
    monkeypatch.chdir(home / "project")
    (home / "project" / "mine.toml").write_text(PROFILE)
    (home / "project" / "broken.toml").write_text(PROFILE.replace("max_length", "max_lenght"))
    return home


@pytest.mark.parametrize("size", ["60x20", "80x24", "120x40"])
def test_start(size: str, at_home: Path, recorded: Recorded, same_picture: SamePicture) -> None:
    for name in ("full-parked", "exploded", "killed-by-host"):
        recorded(name)
    same_picture(f"start-{size}", drawn("n", size=size, clock=lambda: 0.0))


@pytest.mark.parametrize("size", ["60x20", "80x24", "120x40"])
def test_resolved(size: str, at_home: Path, same_picture: SamePicture) -> None:
    keys = ("n", "down", "enter", "e", "ctrl+u", *"adapter.r=64", "enter")
    same_picture(f"resolved-{size}", drawn(*keys, size=size, clock=lambda: 0.0))


def test_a_broken_profile(at_home: Path) -> None:
    text = " ".join(drawn("n", "enter", size="200x60", clock=lambda: 0.0).split())
    assert "broken.toml:9: data.max_lenght: there is no such key" in text and "Did you mean data.max_length?" in text


@pytest.mark.parametrize("size", ["60x20", "80x24", "120x40"])
def test_checkpoints(size: str, at_home: Path, recorded: Recorded, same_picture: SamePicture) -> None:
    run = recorded("wiki-style-finished")
    same_picture(f"checkpoints-{size}", drawn("c", run=run, size=size, clock=clock_of(run)))


LOOKS: dict[str, dict[str, Any]] = {
    "ascii": {"glyphs": ASCII}, "block": {"glyphs": BLOCK}, "light": {"theme": "light"},
    "dark-256": {"truecolor": False}, "light-256": {"theme": "light", "truecolor": False, "glyphs": UNICODE},
}  # fmt: skip


@pytest.mark.parametrize("look", LOOKS)
def test_other_looks(look: str, recorded: Recorded, same_picture: SamePicture) -> None:
    run = recorded("wiki-style-lora", living=True)
    same_picture(f"live-{look}-80x24", drawn(run=run, clock=clock_of(run), **LOOKS[look]))
