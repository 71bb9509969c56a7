"""The live view: every key, the requests it sends, and what becomes of them."""

import asyncio
import subprocess
import sys
import time
from collections.abc import Awaitable, Callable
from dataclasses import replace
from typing import Any

import msgspec
import pytest

from ftui.hooks.then_stop import KEEP
from ftui.runs.events import ControlApplied, ControlRefused, PhaseChanged, RunFailed, RunStopped
from ftui.runs.journal import encode
from ftui.runs.records.hook_records import JOURNAL, StopCancelled, StopPlanned
from ftui.runs.records.supervisor_records import EngineEnded
from ftui.runs.requests import AnyRequest, read_requests
from ftui.runs.run_folder import Run, runs_root
from ftui.runs.state import RunState
from ftui.runs.status import read_status
from ftui.system.process_id import identity_of
from ftui.tui.app import FtuiApp
from ftui.tui.key_table import bindings_of
from ftui.tui.screens import monitor
from ftui.tui.screens.checkpoints import CheckpointsScreen
from ftui.tui.screens.dialogs import ConfirmScreen, MessageScreen, PromptScreen
from ftui.tui.screens.help import HelpScreen
from ftui.tui.screens.log import LogScreen
from ftui.tui.screens.monitor import MonitorScreen
from ftui.tui.screens.problem import ProblemScreen
from ftui.tui.screens.resolved import ResolvedScreen
from ftui.tui.screens.runs import RunsScreen
from tests.support.replayed import replay, with_rewards, write_summaries
from tests.support.shown_app import ShownApp, shown_app
from tests.tui.conftest import Recorded

Play = Callable[[ShownApp], Awaitable[None]]


def watch(run: Run, play: Play, **options: Any) -> Any:
    """Open the live view, let `play` press keys, and return what the application returned."""

    async def main() -> Any:
        async with shown_app(run=run, **options) as shown:
            await play(shown)
        return shown.app.return_value

    return asyncio.run(main())


def letters(run: Run) -> list[AnyRequest]:
    return [found.request for found in read_requests(run) if found.request is not None]


def answer(run: Run, record: Any) -> None:
    """Write a record as the run's engine would."""
    state: RunState = read_status(run).state
    with run.journal.open("ab") as file:
        file.write(encode(msgspec.structs.replace(record, attempt=state.attempt, token=state.token)))


def test_what_has_not_changed_is_not_drawn_again(recorded: Recorded, monkeypatch: pytest.MonkeyPatch) -> None:
    """Counted: of looks in vain only the header is drawn, for the time of day; news and keys draw all."""
    drawn: list[str] = []

    def count(name: str) -> None:
        draw = getattr(monitor, name)

        def note_and_draw(*given: Any, **more: Any) -> Any:
            drawn.append(name)
            return draw(*given, **more)

        monkeypatch.setattr(monitor, name, note_and_draw)

    for name in ("header", "chart", "tiles", "pane"):
        count(name)
    run = recorded("wiki-style-lora", living=True)

    async def play(shown: ShownApp) -> None:
        while shown.screen.run_view.look():
            continue
        drawn.clear()
        shown.screen.tick()
        assert set(drawn) <= {"header"}
        answer(run, ControlApplied(request="0", verb="checkpoint", step=1))
        shown.screen.tick()
        assert {"chart", "tiles", "pane"} <= set(drawn)
        drawn.clear()
        await shown.press("l")
        assert "chart" in drawn

    watch(run, play)


CONTROLS = [
    (("space",), "hold"), (("h",), "hold"), (("s",), "checkpoint"), (("e",), "evaluate"), (("p", "y"), "park"),
    (("x", "y"), "stop"), (("x", "enter", "x", "y"), "stop"), (("X", "y"), "abort"),
]  # fmt: skip


@pytest.mark.parametrize(("keys", "verb"), CONTROLS)
def test_a_control_sends_one_request_to_the_running_attempt(
    keys: tuple[str, ...], verb: str, recorded: Recorded
) -> None:
    run = recorded("wiki-style-lora", living=True)

    async def play(shown: ShownApp) -> None:
        await shown.press(*keys)
        assert f"{verb.replace('hold', 'pause')}: sent" in shown.text()

    watch(run, play)
    state = read_status(run).state
    assert [(request.verb, request.attempt, request.token) for request in letters(run)] == [
        (verb, state.attempt, state.token)
    ]


@pytest.mark.parametrize("key", ["p", "x", "X"])
@pytest.mark.parametrize("no", ["n", "escape", "q"])
def test_what_ends_the_run_is_asked_first(key: str, no: str, recorded: Recorded) -> None:
    run = recorded("wiki-style-lora", living=True)

    async def play(shown: ShownApp) -> None:
        await shown.press(key)
        assert shown.shows(ConfirmScreen) and run.name in shown.text()
        await shown.press(no)
        assert shown.shows(MonitorScreen)

    watch(run, play)
    assert letters(run) == []


def test_space_continues_a_paused_run(recorded: Recorded) -> None:
    run = recorded("wiki-style-held", living=True)

    async def play(shown: ShownApp) -> None:
        assert "paused" in shown.lines()[0]
        await shown.press("space")

    watch(run, play)
    assert [request.verb for request in letters(run)] == ["continue"]


def test_the_learning_rate_and_other_settings_are_typed(recorded: Recorded) -> None:
    run = recorded("wiki-style-lora", living=True)

    async def play(shown: ShownApp) -> None:
        await shown.press("f")
        assert shown.shows(PromptScreen)
        await shown.press("enter")
        await shown.press("m", *"700 save_steps=50", "enter")
        assert "set max_steps = 700, save_steps = 50: sent" in shown.text()

    watch(run, play)
    found = [getattr(request, "settings", None) for request in letters(run)]
    assert found == [{"learning_rate_factor": 0.5}, {"max_steps": 700, "save_steps": 50}]


def test_a_wrong_setting_is_named_while_it_is_typed_and_not_sent(recorded: Recorded) -> None:
    run = recorded("wiki-style-lora", living=True)

    async def play(shown: ShownApp) -> None:
        for typed in ("many", "-3", "0.5"):
            await shown.press("m", *typed)
            assert "must be a whole number from 1 to 10^12" in " ".join(shown.text().split())
            await shown.press("enter")
            assert shown.shows(PromptScreen) and f"max_steps={typed}" in shown.text(), "the text stays"
            await shown.press("escape")
        await shown.press("f", "ctrl+u", *"learning_rate_factor=-3", "enter")
        assert "must be a number from 0 to 1000" in " ".join(shown.text().split())
        assert shown.shows(PromptScreen) and " learning_rate_factor=-3" in shown.text()
        await shown.press("escape")
        assert shown.shows(MonitorScreen)

    watch(run, play)
    assert letters(run) == []


def test_sent_becomes_applied_or_refused_by_the_journal(recorded: Recorded) -> None:
    run = recorded("wiki-style-lora", living=True)

    async def play(shown: ShownApp) -> None:
        await shown.press("space")
        answer(run, ControlApplied(request=letters(run)[0].id, verb="hold", step=501))
        await shown.until(lambda: "paused at step 501" in shown.lines()[-6])
        await shown.press("s")
        assert "checkpoint: sent" in shown.text()
        second = ControlRefused(request=letters(run)[1].id, verb="checkpoint", step=502, reason="the disk is full")
        answer(run, second)
        await shown.until(lambda: "checkpoint refused at step 502: the disk is full" in shown.text())

    watch(run, play)


def test_a_request_that_was_never_answered_says_so(recorded: Recorded) -> None:
    run, process = living_by_another(recorded)

    async def play(shown: ShownApp) -> None:
        await shown.press("s")
        answer(run, RunStopped(step=500, reason="on request", exit_code=11))
        process.kill()
        process.wait()
        await shown.until(lambda: "the run ended before it answered" in shown.text())

    watch(run, play, size=(120, 40))


def living_by_another(recorded: Recorded) -> "tuple[Run, subprocess.Popen[bytes]]":
    """A run whose engine is a process that can be killed."""
    process = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"])
    return replay("wiki-style-lora", runs_root(), process=identity_of(process.pid)), process


def test_stop_ends_the_push_of_a_run_that_has_finished(recorded: Recorded) -> None:
    process = subprocess.Popen([sys.executable, "-S", "-c", "import time; time.sleep(600)"])
    run = recorded("wiki-style-finished")
    write_summaries(run, time=time.time(), supervisor=identity_of(process.pid))

    async def play(shown: ShownApp) -> None:
        await shown.press("x")
        await shown.press("y")
        assert "The push ends" in shown.text()

    try:
        watch(run, play, size=(120, 40))
        assert process.wait(60) != 0 and letters(run) == []
    finally:
        process.kill()
        process.wait()


def test_any_key_keeps_a_machine_that_is_about_to_be_stopped(recorded: Recorded) -> None:
    run = recorded("wiki-style-finished")
    attempt = read_status(run).state.attempt

    def write(record: Any) -> None:
        run.hooks.mkdir(exist_ok=True)
        with (run.hooks / JOURNAL).open("ab") as file:
            file.write(encode(msgspec.structs.replace(record, attempt=attempt)))

    async def play(shown: ShownApp) -> None:
        write(StopPlanned(at=time.time() + 3600, command=["x"]))
        await shown.until(lambda: "This machine is stopped in" in shown.text())
        await shown.press("c")
        assert isinstance(shown.app.screen, MonitorScreen), "the key does nothing else"
        assert "The machine stays." in shown.text()
        write(StopCancelled(reason="somebody has asked for it"))
        await shown.until(lambda: "the machine stays: somebody" in shown.text())
        await shown.press("c")
        assert isinstance(shown.app.screen, CheckpointsScreen)

    watch(run, play, size=(80, 24))
    assert (run.hooks / KEEP).exists()


def test_it_calls_once_for_what_is_new(recorded: Recorded, monkeypatch: pytest.MonkeyPatch) -> None:
    calls: list[tuple[str, str]] = []
    monkeypatch.setattr(FtuiApp, "call", lambda self, *words: calls.append(words))
    run = recorded("wiki-style-lora", living=True)

    async def play(shown: ShownApp) -> None:
        await shown.press("v")
        assert calls == [], "how it stood when it was opened is no news"
        answer(run, PhaseChanged(phase="held"))
        await shown.until(lambda: len(calls) > 0)
        await shown.press("v", "v")

    watch(run, play)
    assert calls == [(run.name, "paused")]


def test_a_run_that_fails_shows_why_once(recorded: Recorded) -> None:
    run, process = living_by_another(recorded)

    async def play(shown: ShownApp) -> None:
        answer(run, RunFailed(message="The loss is not finite.", hint="Lower it.", exit_code=43, error="non-finite"))
        process.kill()
        process.wait()
        await shown.until(lambda: shown.shows(ProblemScreen) and "The loss is not finite." in shown.text())
        assert "exit code 43 (non-finite)" in shown.text()
        await shown.press("escape")
        assert shown.shows(MonitorScreen)
        await shown.pilot.pause(0.5)
        assert shown.shows(MonitorScreen)
        await shown.press("w")
        assert shown.shows(ProblemScreen)

    watch(run, play)


def test_controls_of_a_run_that_is_not_running_say_so(recorded: Recorded) -> None:
    run = recorded("full-parked")

    async def play(shown: ShownApp) -> None:
        assert "pause" not in shown.lines()[-1] and "resume" in shown.lines()[-1]
        await shown.press("s")
        assert shown.shows(MessageScreen) and "is not running (parked)" in shown.text()
        await shown.press("escape")
        assert shown.shows(MonitorScreen)

    watch(run, play)
    assert letters(run) == []


def test_resume_goes_on_with_the_run(recorded: Recorded, monkeypatch: pytest.MonkeyPatch) -> None:
    run = recorded("full-parked")
    done: list[Any] = []
    monkeypatch.setattr(
        "ftui.tui.state.launch_plan.carry_out", lambda options, plan: done.append((options.run, plan.act))
    )

    async def play(shown: ShownApp) -> None:
        await shown.press("r")
        await shown.until(lambda: "full-parked resumes." in shown.lines()[-1])

    watch(run, play)
    assert done == [(run, "resume")]


def test_a_run_among_fewer_gpus_is_not_resumed_blindly(recorded: Recorded, monkeypatch: pytest.MonkeyPatch) -> None:
    """The page before a start shows what fits, and nothing is started before enter."""
    run = recorded("full-parked")
    monkeypatch.setattr(
        "ftui.tui.state.launch_plan.fitting_options",
        lambda options, plan: replace(options, overrides=("checkpoint.save_steps=7",)),
    )
    monkeypatch.setattr("ftui.tui.state.launch_plan.carry_out", lambda options, plan: pytest.fail("nobody said so"))

    async def play(shown: ShownApp) -> None:
        await shown.press("r")
        await shown.until(lambda: shown.shows(ResolvedScreen))
        await shown.until(lambda: any("1 differs" in line for line in shown.lines()))
        assert "Fewer GPUs here" in shown.lines()[-1]
        await shown.press("escape")
        assert shown.shows(MonitorScreen)

    watch(run, play)


def test_a_run_whose_processes_are_still_going_is_resumed_once_they_are_gone(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """It says that it is parked a moment before they end."""
    going = subprocess.Popen(["sleep", "60"])
    run = replay("full-parked", runs_root(), process=identity_of(going.pid))
    done: list[Any] = []
    monkeypatch.setattr("ftui.tui.state.launch_plan.carry_out", lambda options, plan: done.append(plan.act))

    async def play(shown: ShownApp) -> None:
        await shown.press("r")
        assert "is being started again" in shown.lines()[-1] and not done
        going.kill()
        going.wait()
        await shown.until(lambda: "full-parked resumes." in shown.lines()[-1])

    watch(run, play)
    assert done == ["resume"]


def test_a_finished_run_is_not_resumed(recorded: Recorded) -> None:
    async def play(shown: ShownApp) -> None:
        await shown.press("r")
        await shown.until(lambda: "has finished" in shown.lines()[-1])

    watch(recorded("wiki-style-finished"), play)


def test_resume_of_a_run_whose_profile_is_gone_says_so(recorded: Recorded) -> None:
    run = recorded("full-parked")
    run.profile.unlink()

    async def play(shown: ShownApp) -> None:
        await shown.press("r")
        await shown.until(lambda: shown.shows(MessageScreen))
        assert "profile.toml" in "".join(shown.text().split())
        await shown.press("enter")
        assert shown.shows(MonitorScreen)

    watch(run, play)


def test_a_living_run_is_not_resumed(recorded: Recorded) -> None:
    async def play(shown: ShownApp) -> None:
        await shown.press("r")
        assert "is running" in shown.lines()[-1]

    watch(recorded("wiki-style-lora", living=True), play)


def test_keys_of_the_chart(recorded: Recorded) -> None:
    async def play(shown: ShownApp) -> None:
        screen = shown.screen
        await shown.press("l")
        assert screen.settings.log
        await shown.press("z")
        first = screen.settings.window
        assert first is not None and first[1] - first[0] == pytest.approx(645 / 2)
        await shown.press("left")
        assert screen.settings.window[0] < first[0]
        await shown.press("right")
        assert screen.settings.window[0] == pytest.approx(first[0])
        await shown.press("Z")
        assert screen.settings.window is None
        await shown.press("z", "0")
        assert screen.settings.window is None and screen.settings.log
        before = screen.settings.smoothing
        await shown.press("right_square_bracket")
        assert screen.settings.smoothing == before + 1
        await shown.press("left_square_bracket", "left_square_bracket")
        assert screen.settings.smoothing == before - 1

    watch(recorded("wiki-style-finished"), play)


def test_a_zoomed_window_shows_single_steps(recorded: Recorded) -> None:
    """Of whatever is drawn."""

    async def play(shown: ShownApp) -> None:
        await shown.press("z", "z", "z")
        for measure in ("loss", "rewards/accuracies", "rewards/margins"):
            assert shown.screen.settings.measure == measure
            attempts = shown.screen._fine.attempts
            widths = {name: series.width for attempt in attempts for name, series in attempt.series.items()}
            assert widths == {measure: 1}
            await shown.press("y")
        await shown.press("0", "Y")
        assert (shown.screen.settings.measure, shown.screen.settings.window) == ("rewards/margins", None)

    watch(with_rewards(recorded("wiki-style-finished")), play)


def test_events_and_log_share_a_pane(recorded: Recorded) -> None:
    async def play(shown: ShownApp) -> None:
        assert any(line.startswith(" events") for line in shown.lines())
        await shown.press("v")
        assert any(line.startswith(" log") for line in shown.lines())
        assert "warnings.warn(" in shown.text()

    watch(recorded("wiki-style-finished"), play)


@pytest.mark.parametrize(
    ("key", "kind"), [("L", LogScreen), ("c", CheckpointsScreen), ("w", ProblemScreen), ("question_mark", HelpScreen)]
)
def test_screens_over_it_come_and_go(key: str, kind: type, recorded: Recorded) -> None:
    async def play(shown: ShownApp) -> None:
        await shown.press(key)
        assert shown.shows(kind)
        await shown.press("escape")
        assert shown.shows(MonitorScreen)

    watch(recorded("wiki-style-finished"), play)


@pytest.mark.parametrize(("name", "living", "words"), [
    ("wiki-style-lora", True, {"pause": "pause", "back": "detach"}),
    ("wiki-style-held", True, {"pause": "continue", "back": "detach"}),
    ("wiki-style-finished", False, {"back": "quit"}), ("full-parked", False, {"back": "quit"}),
    ("exploded", False, {"back": "quit"}), ("killed-by-host", False, {"back": "quit"}),
])  # fmt: skip
def test_a_key_says_what_it_does_now(name: str, living: bool, words: dict[str, str], recorded: Recorded) -> None:
    """In the footer, the help and the palette, which all ask `bindings_of`."""

    async def play(shown: ShownApp) -> None:
        while not shown.shows(MonitorScreen):  # a failed run opens on how it ended
            await shown.press("escape")
        hidden = shown.screen.hidden_keys
        keys = {str(key.id): key.description for key in bindings_of(shown.screen) if key.id not in hidden}
        assert {key: word for key, word in keys.items() if key in ("pause", "back")} == words
        assert all(word in shown.lines()[-1] for word in words.values())

    watch(recorded(name, living=living), play)


@pytest.mark.parametrize(("name", "living", "words"), [
    ("wiki-style-lora", True, "The run wiki-style-lora keeps running."),
    ("full-parked", False, "The run full-parked is parked."),
])  # fmt: skip
def test_q_leaves_and_says_what_becomes_of_the_run(name: str, living: bool, words: str, recorded: Recorded) -> None:
    async def play(shown: ShownApp) -> None:
        await shown.press("q")

    run = recorded(name, living=living)
    farewell = watch(run, play)
    assert farewell[0] == words and f"ftui attach {name}" in farewell[1]
    assert letters(run) == []


@pytest.mark.parametrize("key", ["escape", "backspace"])
def test_back_leads_to_the_list_also_when_it_was_opened_first(key: str, recorded: Recorded) -> None:
    async def play(shown: ShownApp) -> None:
        await shown.press(key)
        assert shown.shows(RunsScreen)
        await shown.press("enter")
        assert shown.shows(MonitorScreen)
        await shown.press(key)
        assert shown.shows(RunsScreen)

    watch(recorded("wiki-style-finished"), play)


@pytest.mark.parametrize(("text", "tone", "stays"), [
    ("short", "good", False), ("x" * 78, "warn", False), ("x" * 79, "good", True), ("a reason " * 20, "bad", True),
    ("\u65e5" * 39, "text", False), ("\u65e5" * 40, "text", True),
])  # fmt: skip
def test_an_answer_that_does_not_fit_stays_until_it_is_read(
    text: str, tone: str, stays: bool, recorded: Recorded
) -> None:
    async def play(shown: ShownApp) -> None:
        shown.app.say(text, tone)
        await shown.pilot.pause()
        assert shown.shows(MessageScreen) == stays
        assert text.replace(" ", "") in "".join(shown.text().split())
        await shown.press("enter" if stays else "question_mark", "escape")
        shown.app.note(text, tone)
        await shown.pilot.pause()
        assert not shown.shows(MessageScreen), "what nobody asked for never takes the keys away"

    watch(recorded("wiki-style-lora", living=True), play)


def test_ctrl_c_ends_nothing(recorded: Recorded) -> None:
    run = recorded("wiki-style-lora", living=True)

    async def play(shown: ShownApp) -> None:
        await shown.press("ctrl+c", "ctrl+c", "ctrl+c")
        assert "every run keeps running" in shown.lines()[-1]

    watch(run, play)
    assert letters(run) == []


def test_a_volume_that_is_away_for_a_moment_ends_nothing(recorded: Recorded, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse() -> bool:
        raise OSError(5, "Input/output error")

    async def play(shown: ShownApp) -> None:
        look = shown.screen.run_view.look
        monkeypatch.setattr(shown.screen.run_view, "look", refuse)
        await shown.until(lambda: "Input/output error" in shown.lines()[-1])
        monkeypatch.setattr(shown.screen.run_view, "look", look)
        await shown.press("v")
        assert shown.shows(MonitorScreen)

    watch(recorded("wiki-style-lora", living=True), play)


def test_a_run_that_was_lost_shows_why_at_once(recorded: Recorded) -> None:
    async def play(shown: ShownApp) -> None:
        assert shown.shows(ProblemScreen)
        assert "ended without writing why" in shown.text()

    watch(recorded("killed-by-host"), play)


def test_an_engine_killed_by_a_signal_is_told_from_others(recorded: Recorded) -> None:
    run = recorded("wiki-style-lora")
    state = read_status(run).state
    end = EngineEnded(code=None, signal="SIGKILL", oom_kills=1, last_lines=["last words"])
    with run.supervisor_log.open("ab") as file:
        stamps = {"attempt": state.attempt, "token": state.token, "time": time.time()}
        file.write(encode(msgspec.structs.replace(end, **stamps)))

    async def play(shown: ShownApp) -> None:
        text = " ".join(shown.text().split())
        assert "the host ran out of memory" in text and "signal SIGKILL" in text
        assert "exit code 42 (host memory)" in text and "last words" in text

    watch(run, play)
