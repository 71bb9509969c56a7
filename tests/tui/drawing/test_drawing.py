"""The drawing rooms beside the chart: numbers as they are written, tiles, header, panes, endings."""

import re
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from ftui.runs.curves import AttemptCurves, Curves, Series
from ftui.runs.events import RankSeconds
from ftui.runs.records import result_lines
from ftui.runs.records.signs_of_life import Gpu, Telemetry
from ftui.runs.records.supervisor_records import EngineEnded
from ftui.runs.run_folder import Run
from ftui.runs.state import Restart, RunState, SavedCheckpoint
from ftui.runs.status import Status
from ftui.system.process_id import this_process
from ftui.tui.drawing.charts.spark import FLAT_SHARE, levels, points, span_of, spark
from ftui.tui.drawing.failure import failure
from ftui.tui.drawing.header import header
from ftui.tui.drawing.panes import Shows, next_pane, pane
from ftui.tui.drawing.rank_lines import has_ranks, rank_lines
from ftui.tui.drawing.tiles import tiles
from ftui.tui.drawing.wording import clock, gib, loss, norm, place, rate, short
from ftui.tui.key_table import key_line
from ftui.tui.render.glyphs import ASCII, UNICODE
from ftui.tui.render.spans import Frame, Line, width_of
from ftui.tui.state.history import Event
from ftui.tui.state.sent_requests import SentRequest

GIB = 1 << 30


def text_of(line: Line) -> str:
    return "".join(text for text, _ in line)


def curves_of(**quantities: list[float]) -> Curves:
    """One attempt whose quantities have these values at steps 1, 2, 3 ..."""
    series: dict[str, Series] = {}
    for name, values in quantities.items():
        series[name] = Series()
        for step, value in enumerate(values, 1):
            series[name].add(step, value)
    last = max(map(len, quantities.values()), default=0)
    return Curves(attempts=[AttemptCurves(1, "t", 0, last, series)])


@pytest.mark.parametrize(("seconds", "text"), [
    (None, "-"), (0, "0s"), (59.4, "59s"), (60, "1m00"), (185, "3m05"), (3599.6, "1h00"), (7620, "2h07"),
    (100_800, "1d04h"), (10**9, "11574d"), (-5, "0s"),
])  # fmt: skip
def test_times_are_short(seconds: float | None, text: str) -> None:
    assert clock(seconds) == text and len(clock(seconds)) <= 6


@pytest.mark.parametrize(("number", "text"), [
    (None, "-"), (0, "0"), (938, "938"), (9380.4, "9,380"), (9999.6, "10.0k"), (18_432, "18.4k"), (1_200_000, "1.20M"),
    (3.1e9, "3.10B"), (-20_000, "-20.0k"),
])  # fmt: skip
def test_counts_are_short(number: float | None, text: str) -> None:
    assert short(number) == text


@given(st.floats(allow_nan=False, allow_infinity=False, min_value=-1e300, max_value=1e300))
def test_every_number_has_a_few_columns(value: float) -> None:
    assert len(short(value)) <= 9 and len(loss(value)) <= 9 and len(norm(value)) <= 9 and len(rate(value)) <= 9


def test_what_is_not_known_is_never_a_number() -> None:
    assert [f(None) for f in (clock, short, rate, norm, gib, loss)] == ["-"] * 6
    assert loss(None, finite=False) == "nan"


@pytest.mark.parametrize(("value", "text"), [(4.6e-5, "4.6e-5"), (0.0, "0"), (2e-4, "2.0e-4"), (1.0, "1.0e0")])
def test_learning_rates_are_in_scientific_notation(value: float, text: str) -> None:
    assert rate(value) == text


def test_places_begin_at_home(tmp_path: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    assert place(tmp_path / "runs" / "mine") == "~/runs/mine"
    assert place(tmp_path) == str(tmp_path)
    assert place(tmp_path.parent / "elsewhere") == str(tmp_path.parent / "elsewhere")


def test_a_flat_line_looks_flat_and_a_step_does_not() -> None:
    flat = levels([10.0, 10.0 * (1 + FLAT_SHARE / 10), 10.0], UNICODE)
    assert len(set(flat)) == 1
    assert levels([0.0, 1.0], UNICODE) == "▁█"
    assert levels([0.0, 0.0], ASCII) == "__"


@given(st.integers(1, 10**6))
def test_a_spark_is_nearly_full_and_stands_still(steps: int) -> None:
    assert steps <= span_of(steps)
    assert steps < 8 or steps >= span_of(steps) / 1.3, "at least three quarters of the bars are drawn"


def test_only_the_last_bar_is_apart() -> None:
    found = points(curves_of(loss=[5.0, 4.0, 3.0, 2.0]), "loss")
    body, last = spark(found, 8, UNICODE)
    assert len(last) == 1 and body[0] == "█" and last == "▁"
    assert spark([], 8, UNICODE) == ("", "")


@pytest.mark.parametrize("start", [0, 40, 800, 10**6])
def test_a_childs_spark_is_that_of_its_own_steps(start: int) -> None:
    """The same bars whatever the step it began after."""
    values = [5.0 - n / 40 for n in range(160)]
    own = [(float(n), value) for n, value in enumerate(values, 1)]
    assert spark([(start + n, value) for n, value in own], 30, UNICODE, start) == spark(own, 30, UNICODE)


def test_tiles_without_a_gpu_show_the_engines_memory() -> None:
    state = RunState(tokens_per_second=18_400, learning_rate=2e-4, grad_norm=0.53, memory=3 * GIB)
    curves = curves_of(
        tokens_per_second=[12_900.0, 19_200.0], learning_rate=[1e-4, 2e-4], grad_norm=[0.3, 1.0], memory=[2.0 * GIB],
    )  # fmt: skip
    first, second, third = (text_of(line) for line in tiles(Frame(120, 3, UNICODE), state, curves, []))
    assert re.search(r"throughput +18\.4k tok/s +memory +3\.0 GiB +learning rate +2\.0e-4 +gradient norm +0\.53", first)
    assert "█" in second and f"12.9k {UNICODE.dash} 19.2k" in third and f"0.30 {UNICODE.dash} 1.00" in third


def gpu_samples(**values: Any) -> list[Telemetry]:
    return [Telemetry(time=float(i), gpus=[Gpu(name="NVIDIA H100", **values)]) for i in range(3)]


def test_a_gpu_brings_its_own_tiles() -> None:
    samples = gpu_samples(
        memory_used=64 * GIB, memory_total=80 * GIB, utilization=0.97, temperature=71.0, power_watts=412.0
    )
    state = RunState(memory=65 * GIB)
    for width in (80, 120):
        first, _, third = (text_of(line) for line in tiles(Frame(width, 3, UNICODE), state, Curves(), samples))
        assert "vram" in first and "64.0/80" in first and "97%" in first
        assert "71 C" in third and "peak 65.0" in third
    assert "412 W" in third


def test_what_the_driver_hides_is_not_shown_as_zero() -> None:
    lines = tiles(Frame(120, 3, UNICODE), RunState(memory=GIB), curves_of(memory=[1.0 * GIB]), gpu_samples())
    first, _, third = (text_of(line) for line in lines)
    assert "vram" not in first and re.search(r"gpu +-", first) and " C" not in third and "0%" not in first


REWARDS = {"rewards/accuracies": 0.9, "rewards/margins": 0.0034, "rewards/chosen": -0.5, "rewards/rejected": -0.6}


@pytest.mark.parametrize(
    ("extras", "width", "names"),
    [
        (REWARDS, 80, "accuracy +0.90  margin +0.0034  chosen +-0.50  tok/s +-  memory +-"),
        (REWARDS, 120, "accuracy .* margin .* chosen .* tok/s .* memory .* lr .* grad .* reject +-0.60"),
        ({"rewards/margins": 1.5, "rewards/chosen": None, "kl": 0.2}, 80, "margin +1.50  kl +0.20  chosen +-  tok/s"),
        ({"mean_token_accuracy": 0.61, "perplexity": 8.2}, 80, "tok/s +-  memory .* lr .* grad .* accuracy +0.61"),
    ],
)  # fmt: skip
def test_measures_of_a_stage_have_tiles(extras: dict[str, float | None], width: int, names: str) -> None:
    """Those of stages that compare answers first: three of them leave room for the machine's."""
    first, *_ = (text_of(line) for line in tiles(Frame(width, 3, UNICODE), RunState(extras=extras), Curves(), []))
    assert re.search(names, first), first


@pytest.mark.parametrize("width", [80, 120])
def test_several_ranks_have_a_tile(width: int) -> None:
    """The share of communication, a bar for each rank as high as its own time, the slowest marked and named."""
    ranks = RankSeconds(passes=[1.0, 0.5, 2.0], data=[0.0, 0.5, 0.0], communication=[1.0, 1.0, 0.0])
    lines = tiles(Frame(width, 3, UNICODE), RunState(ranks=ranks), Curves(), [])
    first, second, third = (text_of(line) for line in lines)
    name = "comm" if width == 80 else "in communication"
    assert re.search(rf"{name} +33%", first) and "▅▅█" in second and "rank 2 +100%" in third
    assert ("█", "warn") in lines[1]


def test_cards_of_other_machines_stand_beside_their_ranks() -> None:
    ranks = RankSeconds([1.0, 2.0], [0.0, 0.0], [1.0, 0.0])
    own, other = (Gpu(name="H100", rank=rank, utilization=0.5 + rank / 4) for rank in range(2))
    machine = Telemetry(gpus=[own], others=[Telemetry(node=1, gpus=[other, Gpu(name="A40")])])
    lines = [text_of(line) for line in rank_lines(Frame(80, 8, UNICODE), ranks, [machine, *machine.others])]
    assert lines[0].startswith(" rank 1 slowest (+100%)")
    assert "50%" in lines[1] and lines[2].startswith(" ▸1 ") and "75%" in lines[2]
    assert "other card" in lines[3] and "A40" in lines[3]
    assert has_ranks(None, [machine, *machine.others]) and not has_ranks(None, [machine])


def test_the_card_of_rank_0_is_shown() -> None:
    cards = [Gpu(name="one", utilization=0.1), Gpu(name="other", rank=0, utilization=0.9)]
    first, *_ = (text_of(line) for line in tiles(Frame(120, 3, UNICODE), RunState(), Curves(), [Telemetry(gpus=cards)]))
    assert "90%" in first


@pytest.mark.parametrize("width", [20, 40, 60, 80, 120, 200])
@pytest.mark.parametrize("glyphs", [UNICODE, ASCII])
def test_tiles_fit(width: int, glyphs: Any) -> None:
    curves = curves_of(tokens_per_second=[1e12, 1e-12], learning_rate=[0.0], grad_norm=[1e30], memory=[1e15])
    state = RunState(tokens_per_second=1e12, grad_norm=None, non_finite=["grad_norm"], memory=10**15)
    for line in tiles(Frame(width, 3, glyphs), state, curves, gpu_samples(memory_used=10**15, memory_total=10**15)):
        assert width_of(line) <= width


ALIVE = Status(
    engine=this_process(), supervisor=this_process(),
    state=RunState(
        phase="training", step=2299, max_steps=3000, start_step=0, started=0.0, step_time=2299.0, paced_from=1.0,
        paced_step=1, epoch=2.3,
        model="org/Qwen3-8B", method="lora", precision="bf16", attempt=2, reproducibility="EXACT",
        checkpoints=[SavedCheckpoint(2250, "checkpoints/checkpoint-2250")],
    ),
)  # fmt: skip


def test_the_header_says_which_where_how_far_and_how_long() -> None:
    first, second = (text_of(line) for line in header(Frame(120, 2, UNICODE), "mine", ALIVE, "H100 80GB", 0.0))
    assert first.startswith(" ● mine  training   Qwen3-8B · lora · bf16 · attempt 2 EXACT · H100 80GB")
    assert first.endswith("ETA 11m41   76% ")
    assert "2,299 / 3,000  epoch 2.30  49 unsaved" in second and second.lstrip().startswith("━")


def test_the_header_names_the_stage_of_a_curriculum() -> None:
    staged = replace(ALIVE, state=replace(ALIVE.state, stage="2/3"))
    for width, is_there in ((80, True), (60, False)):
        second = text_of(header(Frame(width, 2, UNICODE), "mine", staged, "H100", 0.0)[1])
        assert ("epoch 2.30  stage 2/3" in second) == is_there and width_of([(second, "")]) <= width


def test_a_narrow_header_drops_facts_not_numbers() -> None:
    first, second = (text_of(line) for line in header(Frame(50, 2, ASCII), "a-rather-long-name", ALIVE, "H100", 0.0))
    assert "a-rather-long-name" in first and "76%" in first and "ETA" in first and "H100" not in first
    assert "2,299 / 3,000" in second
    assert len(first) <= 50 and len(second) <= 50


def test_a_pause_says_how_long() -> None:
    held = replace(ALIVE, state=replace(ALIVE.state, phase="held", paused_since=100.0))
    assert "paused 3m20" in text_of(header(Frame(80, 2, UNICODE), "mine", held, "", 300.0)[0])


def test_nobody_saved_is_the_whole_run_at_stake() -> None:
    unsaved = replace(ALIVE, state=replace(ALIVE.state, checkpoints=[]))
    assert "2,299 unsaved" in text_of(header(Frame(120, 2, UNICODE), "mine", unsaved, "", 0.0)[1])


EVENTS = [Event(float(i), f"event {i}", "text") for i in range(20)]


def no_ranks(frame: Frame) -> list[Line]:
    raise AssertionError("they are not shown")


def test_a_pane_shows_the_newest() -> None:
    def lines(width: int, shows: Shows) -> list[str]:
        drawn = pane(Frame(width, 5, UNICODE), EVENTS, ["log line"], None, no_ranks, shows=shows)
        return [text_of(line) for line in drawn]

    narrow, log, wide = lines(80, "events"), lines(80, "log"), lines(160, "events")
    assert narrow[0].startswith(" events ─")
    assert [line.split()[-1] for line in narrow[1:]] == ["16", "17", "18", "19"]
    assert log[0].startswith(" log") and log[1] == " log line"
    assert "events and log" in wide[0] and "event 16" in wide[1] and "log line" in wide[1]


@pytest.mark.parametrize(
    ("width", "with_ranks", "order"),
    [
        (80, True, ["log", "ranks", "events"]),
        (80, False, ["log", "events", "log"]),
        (160, True, ["ranks", "events", "ranks"]),
        (160, False, ["events", "events", "events"]),
    ],
)  # fmt: skip
def test_the_pane_has_turns(width: int, with_ranks: bool, order: list[str]) -> None:
    shows: Shows = "events"
    for expected in order:
        shows = next_pane(shows, with_ranks=with_ranks, width=width)
        assert shows == expected
    assert next_pane("ranks", with_ranks=False, width=width) == "events"


@pytest.mark.parametrize("width", [30, 60, 80, 200])
def test_the_fate_of_the_last_order_stands_on_the_rule(width: int) -> None:
    request = SentRequest("id", "hold", 0.0, "refused", "hold refused at step 7: " + "because " * 40)
    line = pane(Frame(width, 5, UNICODE), EVENTS, [], request, no_ranks, shows="events")[0]
    assert "hold refused" in text_of(line) and width_of(line) <= width


def test_the_least_important_keys_go_first() -> None:
    keys = [(request, "word") for request in "abcdef"] + [("q", "quit"), ("?", "help")]
    for width in range(10, 100, 7):
        (line,) = key_line(Frame(width, 1, UNICODE), keys)
        text = text_of(line)
        assert "q quit" in text and "? help" in text
        assert width < 20 or width_of(line) <= width + 2
    assert text_of(key_line(Frame(40, 1, UNICODE), keys, "said", "bad")[0]) == " said"


FAILED = RunState(
    phase="failed", step=60, max_steps=430, exit_code=41, message="Out of memory.\nOne row did not fit.",
    hint="Use a shorter data.max_length.", last_lines=[f"line {i}" for i in range(40)],
    restarts=[Restart(1, 50, "x", 1)], checkpoints=[SavedCheckpoint(40, "checkpoints/checkpoint-40", verified=True)],
)  # fmt: skip
KILLED = EngineEnded(code=None, signal="SIGKILL", oom_kills=2, last_lines=[])


def drawn_failure(state: RunState, ended: EngineEnded | None, height: int, top: int = 0) -> str:
    lines, _ = failure(Frame(80, height, UNICODE), "mine", state, ended, "evaluation at step 60", [], top)
    assert len(lines) <= height
    return "\n".join(text_of(line) for line in lines)


def test_an_ending_says_what_how_cause_and_what_to_do() -> None:
    text = drawn_failure(FAILED, KILLED, 60)
    for part in (
        "mine failed", "step 60/430", "Out of memory.", "One row did not fit.", "exit code 41 (GPU memory)",
        "signal SIGKILL", "out-of-memory killer", "started again 1 time before", "evaluation at step 60",
        "even one row at a time", "Use a shorter data.max_length.", "checkpoint-40, read back whole", "line 39",
    ):  # fmt: skip
        assert part in text, part
    assert "line 9" not in text.split("last lines")[1].split(), "30 lines, not all of them"


@pytest.mark.parametrize("code", [20, 21, 30, 31, 32, 33, 40, 41, 42, 43, 44, 50, 70])
@pytest.mark.parametrize("by", ["engine", "supervisor", "lost"])
def test_nobody_is_sent_to_a_checkpoint_that_is_not_there(code: int, by: str) -> None:
    phase, ended_by = ("lost", "") if by == "lost" else ("failed", by)
    state = replace(FAILED, phase=phase, ended_by=ended_by, exit_code=code, checkpoints=[], hint="")
    text = " ".join(drawn_failure(state, None, 60).split())
    assert "newest checkpoint" not in text and "saved none" in text
    assert "newest checkpoint" not in result_lines.failure(Run(Path("mine")), state)
    with_one = replace(state, checkpoints=FAILED.checkpoints)
    assert code in (30, 31, 32, 41) or "newest checkpoint" in " ".join(drawn_failure(with_one, None, 60).split())


def test_a_short_screen_shows_the_newest_lines_first_and_all_on_demand() -> None:
    text = drawn_failure(FAILED, KILLED, 23)
    assert "line 39" in text and "down shows all" in text and "line 10" not in text
    assert "line 10" in drawn_failure(FAILED, KILLED, 23, top=1) and "line 39" in drawn_failure(FAILED, KILLED, 23, 999)


def test_the_traceback_of_an_error_that_is_no_bug_stays_in_the_log() -> None:
    log = [
        "a library's warning", "Traceback (most recent call last):", '  File "findings.py", line 216, in stop',
        "    raise DataError(message)", "", "ftui.errors.DataError: The rows would spoil the run:", "  85 of 91",
    ]  # fmt: skip
    state = replace(
        FAILED, exit_code=31, ended_by="engine", last_lines=[], message="The rows would spoil the run:\n  85 of 91"
    )

    def printed(state: RunState, lines: list[str]) -> str:
        drawn, _ = failure(Frame(80, 40, UNICODE), "mine", state, None, "", lines, 0)
        return "\n".join(map(text_of, drawn)).split("last lines")[1]

    text = printed(state, log)
    assert "a library's warning" in text and "its traceback is in the log" in text
    assert not any(word in text for word in ("Traceback (", "findings.py", "raise", "DataError", "85 of 91"))
    assert "no other output" in printed(state, log[1:])
    assert "findings.py" in printed(replace(state, exit_code=70), log), "a bug is looked for with it"


def test_user_host_and_gpu_are_told_apart() -> None:
    causes = {
        code: drawn_failure(replace(FAILED, exit_code=code), None, 60).split("cause")[1].split("do")[0]
        for code in (21, 41, 42, 43, 44)
    }
    assert "from outside" in causes[21] and "GPU memory" in causes[41] and "RAM" in causes[42]
    assert len(set(causes.values())) == 5


def test_an_ending_that_was_wanted_has_no_cause() -> None:
    text = drawn_failure(RunState(phase="parked", exit_code=11, reason="on request"), None, 30)
    assert "is parked" in text and "cause" not in text and "no output" in text
