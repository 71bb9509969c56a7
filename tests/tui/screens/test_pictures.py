"""Each screen as it is drawn, compared with its picture (tests/tui/pictures): recorded runs, a frozen clock.

After a wanted change: look at the screens (`python -m screenshots.make`), then `pytest tests/tui --update-pictures`.
"""

import asyncio
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from ftui.errors import DiskFullError, FtuiError
from ftui.launch.answering_sides import Addressee
from ftui.launch.long_job import LongJob
from ftui.launch.prompt_file import Question
from ftui.launch.transcript import Exchange, SideAnswer, add_exchange
from ftui.queue.queue_view import QueueRow, QueueView
from ftui.queue.waiting_runs import Added, Entry, Started
from ftui.runs.requests import SamplingKeys
from ftui.runs.run_folder import Run, all_runs
from ftui.system.process_id import this_process
from ftui.tui.render.glyphs import ASCII, BLOCK, UNICODE
from ftui.tui.screens.answers import AnswersScreen
from ftui.tui.screens.job import JobScreen
from ftui.tui.screens.many import queue
from ftui.tui.state.job_course import JobCourse, Phase
from tests.support.replayed import list_recordings, time_of_last_record, with_ranks, with_rewards
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


@pytest.mark.parametrize(
    ("num_ranks", "cards", "size"),
    [(2, False, "80x24"), (8, True, "80x24"), (8, True, "120x40"), (64, False, "80x24")],
)  # fmt: skip
def test_ranks(num_ranks: int, cards: bool, size: str, recorded: Recorded, same_picture: SamePicture) -> None:
    """Beside each other where there are many; the slowest ones where there are too many."""
    run = with_ranks(recorded("wiki-style-lora", living=True), num_ranks, cards=cards)
    same_picture(f"live-ranks-{num_ranks}-{size}", drawn("v", "v", run=run, size=size, clock=clock_of(run)))


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


@pytest.mark.parametrize("size", ["60x20", "80x24", "120x40"])
def test_queue(size: str, at_home: Path, monkeypatch: pytest.MonkeyPatch, same_picture: SamePicture) -> None:
    """Two that were started, one that needs more cards than are free, and one with a long name behind it."""
    root = at_home / "runs"
    started = Started(run_id="", by=this_process(), cards=["GPU-a"])

    def row(name: str, place: int | None, cards: str, reason: str, num_cards: int = 1) -> QueueRow:
        added = Added(run_id=name, name=name, device="cuda", num_cards=num_cards, memory=20 << 30)
        entry = Entry(added, started if place is None else None)
        phase = "training" if place is None else "queued"
        return QueueRow(name, Run(root / name), entry, place, phase, cards, added.memory, reason)

    rows = [
        row("mine", None, "GPU 0", ""), row("slower", None, "GPU 1", ""),
        row("both", 1, "2 GPUs", "waits for 2 cards", 2),
        row("a-run-with-a-name-that-is-far-too-long-for-a-screen", 2, "1 GPU", "waits for a card"),
    ]  # fmt: skip
    monkeypatch.setattr(queue, "view_queues", lambda: [QueueView(root, rows, is_paused=False, has_dispatcher=True)])
    same_picture(f"queue-{size}", drawn("w", "j", "j", "j", size=size, clock=lambda: 0.0))


@pytest.mark.parametrize("size", ["80x24"])
def test_menu_of_what_to_make(size: str, at_home: Path, recorded: Recorded, same_picture: SamePicture) -> None:
    run = recorded("wiki-style-finished")
    same_picture(f"after-menu-{size}", drawn("c", "e", run=run, size=size, clock=clock_of(run)))


def course_of(phase: Phase) -> JobCourse:
    """A merge that has come so far."""
    course = JobCourse("merge", "merge wiki-style@final", phase)
    course.plan = [("writes", "exports/merged-bf16"), ("disk", "2.3 GiB needed, 40.0 GiB free")]
    if phase in ("ready", "checking"):
        return course
    course.begin()
    course.hear("reading the base: 3 of 3 files", 0.0)
    course.hear("merging: 120 of 272 tensors, 1m 14s left", 14.0)
    if phase == "done":
        course.hear("comparing with base and adapter: 16 of 16 rows", 120.0)
        course.end(
            170.0, [("measure", "base + adapter", "merged"), ("loss", "1.8712", "1.8713"), ("top-1", "", "99.8%")]
        )
    elif phase == "failed":
        full = "exports cannot take 2.3 GiB: the disk is full, 1.1 GiB free."
        course.end(75.0, problem=DiskFullError(full, hint="Free some space there."))
    return course


@pytest.mark.parametrize(("phase", "size"), [
    ("ready", "80x24"), ("working", "80x24"), ("working", "120x40"), ("done", "80x24"), ("failed", "60x20"),
])  # fmt: skip
def test_long_work(phase: Phase, size: str, same_picture: SamePicture) -> None:
    def make() -> LongJob:
        raise FtuiError("never begun")

    async def main() -> str:
        async with shown_app(size=SIZES[size], clock=lambda: 75.0) as shown:
            screen = JobScreen("merge", "merge wiki-style", make)
            await shown.app.push_screen(screen)
            await shown.app.workers.wait_for_complete()
            screen._course = course_of(phase)
            screen.draw()
            await shown.pilot.pause()
            return picture(shown.app)

    same_picture(f"job-{phase}-{size}", asyncio.run(main()))


ANSWERS = [
    ("What is a fork of a run?", "A run that starts from a checkpoint of another run, in a folder of its own.",
     "A run that starts from a copy of another one. It has the same folder, and it may go on at any time."),
    ("Who writes the journal?", "The engine.", "The engine."),
    ("How do I pause a run?", "Press p, or `ftui pause RUN`.", "You can pause a run with:\n\nftui pause RUN"),
]  # fmt: skip


@pytest.mark.parametrize("size", ["80x24", "120x40"])
def test_answers_side_by_side(size: str, tmp_path: Path, same_picture: SamePicture) -> None:
    path = tmp_path / "answers.jsonl"
    for prompt, *texts in ANSWERS:
        sides = [SideAnswer(of, "", text, True, 9) for of, text in zip(("final", "base"), texts, strict=True)]
        add_exchange(path, Exchange(0.0, "mine", prompt, None, 1, sides, SamplingKeys(), "", "bf16", "cuda"))

    async def main() -> str:
        async with shown_app(size=SIZES[size]) as shown:
            await shown.app.push_screen(AnswersScreen(Question(Addressee(Run(tmp_path / "mine")), path)))
            await shown.until(lambda: "3 of 3 answered" in shown.text())
            return picture(shown.app)

    same_picture(f"answers-{size}", asyncio.run(main()))


LOOKS: dict[str, dict[str, Any]] = {
    "ascii": {"glyphs": ASCII}, "block": {"glyphs": BLOCK}, "light": {"theme": "light"},
    "dark-256": {"truecolor": False}, "light-256": {"theme": "light", "truecolor": False, "glyphs": UNICODE},
}  # fmt: skip


@pytest.mark.parametrize("look", LOOKS)
def test_other_looks(look: str, recorded: Recorded, same_picture: SamePicture) -> None:
    run = recorded("wiki-style-lora", living=True)
    same_picture(f"live-{look}-80x24", drawn(run=run, clock=clock_of(run), **LOOKS[look]))
