"""The loss chart: whatever a run did it fits its frame and says the truth; its axes are round and stand still."""

import math
from itertools import pairwise
from pathlib import Path

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from msgspec import structs

from ftui.reports.smoothing import SMOOTHINGS, smooth, stretches, with_fine
from ftui.reports.ticks import number_label, step_label
from ftui.runs.curves import AttemptCurves, Curves, Series
from ftui.runs.events import StageBegan
from ftui.runs.run_folder import Run
from ftui.runs.state import Evaluation, RunState, SavedCheckpoint
from ftui.tui.drawing.charts.braille import cells, stroke
from ftui.tui.drawing.charts.loss_chart import (
    LEFT,
    OTHER_ROWS,
    RIGHT,
    ChartSettings,
    Scale,
    change_measure,
    change_smoothing,
    chart,
    pan,
    zoom,
)
from ftui.tui.drawing.charts.spark import span_of
from ftui.tui.render.glyphs import ASCII, BLOCK, UNICODE, Glyphs
from ftui.tui.render.spans import Frame, Line, width_of
from ftui.tui.render.theme import BOLD, DARK
from ftui.tui.state.history import History
from ftui.tui.state.origin import Origin
from tests.support.events import make_evaluation, make_run_started
from tests.support.examples import examples

Values = list[float | None]
Evaluations = list[tuple[int, float | None]]
RAW = ChartSettings(smoothing=0)


def curves_of(*attempts: Values) -> Curves:
    """One attempt after the other, each from the step the one before had reached."""
    found: list[AttemptCurves] = []
    start = 0
    for number, values in enumerate(attempts, 1):
        series = Series()
        for step, value in enumerate(values, start + 1):
            series.add(step, value)
        end = start + len(values)
        found.append(AttemptCurves(number, "", start, end, {"loss": series} if values else {}))
        start = end
    return Curves(attempts=found)


def history_of(plan: int, evaluations: Evaluations | None = None, *, per_epoch: int = 10**9) -> History:
    """As the journal of a first attempt would tell it."""
    history = History(Run(Path("/nowhere")))
    begin(history, 1, 0, plan, per_epoch)
    best = math.inf
    for step, loss in evaluations or []:
        is_best = loss is not None and loss < best
        best = loss if is_best and loss is not None else best
        history.take(make_evaluation(step, loss, best=is_best, non_finite=["loss"] if loss is None else []))
    return history


def begin(history: History, attempt: int, start: int, plan: int, per_epoch: int) -> None:
    history.take(make_run_started(start, max_steps=plan, steps_per_epoch=per_epoch, attempt=attempt))


class Drawn:
    """A chart as a grid of signs and styles, and its parts."""

    def __init__(self, lines: list[Line], frame: Frame) -> None:
        self.lines = lines
        self.width = frame.width - LEFT - RIGHT
        self.rows = frame.height - OTHER_ROWS
        self.grid = [[(sign, style) for text, style in line for sign in text] for line in lines]

    @property
    def title(self) -> str:
        return "".join(text for text, _ in self.lines[0])

    @property
    def axis(self) -> list[tuple[str, str]]:
        return self.grid[-2][LEFT:]

    @property
    def numbers(self) -> str:
        return "".join(text for text, _ in self.lines[-1])

    @property
    def text(self) -> str:
        return "\n".join("".join(sign for sign, _ in row) for row in self.grid)

    def at(self, row: int, column: int) -> tuple[str, str]:
        """A cell of the plot."""
        return self.grid[1 + row][LEFT + column]

    def find(self, style: str) -> set[tuple[int, int]]:
        """The cells of the plot in a style, by row and column."""
        every = ((row, column) for row in range(self.rows) for column in range(self.width))
        return {(row, column) for row, column in every if self.at(row, column)[1] == style}

    def ticks(self) -> dict[int, str]:
        """The numbers at the loss axis by row of the plot."""
        found = {row: "".join(sign for sign, _ in self.grid[1 + row][: LEFT - 1]).strip() for row in range(self.rows)}
        return {row: label for row, label in found.items() if label}


def draw(
    curves: Curves,
    plan: int | None = 1000,
    *,
    history: History | None = None,
    settings: ChartSettings = RAW,
    scale: Scale | None = None,
    size: tuple[int, int] = (109, 23),
    glyphs: Glyphs = UNICODE,
    checkpoints: tuple[int, ...] = (),
    fine: Curves | None = None,
) -> Drawn:
    """A hundred columns and twenty rows of plot, if nothing else is said."""
    step = max((attempt.last_step for attempt in curves.attempts), default=0)
    saved = [SavedCheckpoint(number, f"checkpoint-{number}") for number in checkpoints]
    history = history or history_of(plan or 1)
    evaluations = [Evaluation(mark.step, mark.loss) for mark in history.evaluations]
    state = RunState(step=step, max_steps=plan, checkpoints=saved, evaluations=evaluations)
    frame = Frame(*size, glyphs)
    return Drawn(chart(frame, curves, history, state, settings, scale or Scale(), fine), frame)


numbers = st.none() | st.floats(allow_nan=False, allow_infinity=False) | st.floats(-5, 5)
attempts = st.lists(st.lists(numbers, max_size=60), max_size=4)


@given(
    attempts=attempts, repeat=st.sampled_from([1, 1, 40]), plan=st.none() | st.integers(1, 10**7),
    width=st.integers(20, 250), height=st.integers(5, 80), glyphs=st.sampled_from([UNICODE, BLOCK, ASCII]),
    log=st.booleans(), smoothing=st.integers(0, 5), window=st.none() | st.tuples(st.floats(0, 1e6), st.floats(20, 1e6)),
    evaluations=st.lists(st.tuples(st.integers(0, 300), numbers), max_size=30), is_fine=st.booleans(),
    per_epoch=st.integers(1, 10**6), starts=st.lists(st.integers(1, 300), max_size=3),
)  # fmt: skip
@settings(max_examples=examples(300))
def test_whatever_a_run_did_its_chart_fits_the_frame(
    attempts: list[Values], repeat: int, plan: int | None, width: int, height: int, glyphs: Glyphs, log: bool,
    smoothing: int, window: tuple[float, float] | None, evaluations: Evaluations, is_fine: bool, per_epoch: int,
    starts: list[int],
) -> None:  # fmt: skip
    curves = curves_of(*(values * repeat for values in attempts))
    history = history_of(plan or 1, sorted(evaluations, key=lambda pair: pair[0]), per_epoch=per_epoch)
    for number, start in enumerate(starts, 2):
        begin(history, number, start, plan or 1, per_epoch)
    shown = (window[0], window[0] + window[1]) if window is not None else None
    drawn = draw(
        curves, plan, history=history, settings=ChartSettings(log, shown, smoothing), size=(width, height),
        glyphs=glyphs, checkpoints=tuple(starts), fine=curves if is_fine else None,
    )  # fmt: skip
    assert len(drawn.lines) == height
    assert max(width_of(line) for line in drawn.lines) <= width
    assert {BOLD.get(style, style) for line in drawn.lines for _, style in line} <= DARK.keys()
    if glyphs is ASCII:
        assert drawn.text.isascii()


@pytest.mark.parametrize("size", [(1, 1), (8, 3), (16, 10), (60, 2), (30, 4)])
def test_where_there_is_no_room_for_a_plot_there_is_the_title(size: tuple[int, int]) -> None:
    drawn = draw(curves_of([1.0, 2.0]), size=size)
    assert len(drawn.lines) == 1
    assert width_of(drawn.lines[0]) <= size[0]


# -- smoothing


def reference(values: Values, constant: float) -> list[float | None]:
    """One step after the other, as the books have it."""
    decay = math.exp(-1 / constant)
    average = weight = 0.0
    found: list[float | None] = []
    for value in values:
        if value is not None:
            average = decay * average + (1 - decay) * value
            weight = decay * weight + (1 - decay)
        found.append(None if value is None else average / weight)
    return found


@given(st.lists(st.none() | st.floats(-100, 100), min_size=1, max_size=512), st.floats(1, 1000))
@settings(max_examples=examples(60))
def test_the_average_of_single_steps_is_that_of_the_books(values: Values, constant: float) -> None:
    found = smooth(stretches(curves_of(values)), constant)
    for ours, theirs in zip(found, reference(values, constant), strict=True):
        assert ours == (None if theirs is None else pytest.approx(theirs, abs=1e-9))


@given(st.lists(st.floats(-9, 9), min_size=64, max_size=64), st.floats(1, 300))
@settings(max_examples=examples(30))
def test_a_bucket_weighs_as_much_as_its_steps(values: Values, constant: float) -> None:
    steps = [value for value in values for _ in range(16)]  # 1,024: two a bucket
    line = stretches(curves_of(steps))
    assert len(line) == 512
    assert smooth(line, constant) == pytest.approx(reference(steps, constant)[1::2], abs=1e-9)


def test_the_average_runs_on_across_attempts() -> None:
    values: Values = [math.sin(n) for n in range(60)]
    whole, parts = curves_of(values), curves_of(values[:20], values[20:45], values[45:])
    assert smooth(stretches(parts), 9.0) == pytest.approx(smooth(stretches(whole), 9.0))


def test_no_smoothing_shows_the_steps_themselves() -> None:
    assert smooth(stretches(curves_of([3.0, None, 1.0])), 0.0) == [3.0, None, 1.0]


def test_the_average_in_the_title_does_not_depend_on_the_window() -> None:
    curves = curves_of([3 + math.sin(n / 3) for n in range(800)])
    whole = draw(curves, settings=ChartSettings())
    closer = draw(curves, settings=ChartSettings(window=(100.0, 300.0)), fine=curves_of([9.0] * 300))
    assert whole.title.split("ema")[0] == closer.title.split("ema")[0]
    assert "ema(10)" in whole.title


def test_the_title_says_what_the_average_is_taken_over() -> None:
    curves = curves_of([1.0] * 10)
    assert "ema(50)" in draw(curves, settings=ChartSettings(smoothing=SMOOTHINGS.index(0.05))).title
    assert "ema(1)" in draw(curves, 10, settings=ChartSettings()).title
    assert "ema" not in draw(curves, settings=RAW).title


# -- the curve


def test_columns_between_far_steps_are_filled() -> None:
    drawn = draw(curves_of([2.0, 1.0, 3.0, 1.5]), 5)
    assert {column for _, column in drawn.find("loss")} == set(range(19, 80))


def test_a_bucket_wider_than_a_column_is_shown_over_all_its_steps() -> None:
    curves = curves_of([float(n % 2) for n in range(512 * 64)])
    drawn = draw(curves, 512 * 64, settings=ChartSettings(window=(1000.0, 1100.0)))
    shown = drawn.find("loss") | drawn.find("band")
    assert {column for _, column in shown} == set(range(100))
    assert {row for row, _ in shown} >= set(range(4, 17))  # from 0 to 1


def test_the_range_of_the_steps_is_behind_the_line_and_never_in_its_cells() -> None:
    drawn = draw(curves_of([2.0 + (n % 7) / 7 for n in range(900)]), settings=ChartSettings())
    band, line = drawn.find("band"), drawn.find("loss")
    assert len(band) > 2 * len(line) > 0
    assert {column for _, column in line} >= {column for _, column in band}


def test_nothing_is_made_up_where_steps_have_no_number() -> None:
    values: Values = [1.0] * 400 + [None] * 200 + [1.0] * 100
    drawn = draw(curves_of(values))
    shown = {column for _, column in drawn.find("loss") | drawn.find("band")}
    assert not shown & set(range(41, 59))
    assert shown >= set(range(1, 39)) | set(range(61, 69))
    assert {column for row, column in drawn.find("bad") if row == 0} >= set(range(41, 59))
    assert drawn.at(0, 50) == ("×", "bad")  # noqa: RUF001
    assert draw(curves_of(values), glyphs=ASCII).at(0, 50) == ("x", "bad")


def test_a_run_without_any_number_says_so() -> None:
    drawn = draw(curves_of([None, None]))
    assert "no finite loss yet" in drawn.text
    assert drawn.find("bad")


def test_a_run_without_steps_says_so() -> None:
    drawn = draw(Curves())
    (row,) = {row for row, _ in drawn.find("muted")}
    text = "".join(drawn.at(row, column)[0] for column in range(100))
    assert row == 10 and text.strip() == "no steps yet"
    assert abs(len(text.rstrip()) - len(text) + text.index("n")) <= 1


def test_a_constant_loss_is_a_level_line() -> None:
    drawn = draw(curves_of([2.0] * 500))
    assert len({row for row, _ in drawn.find("loss")}) == 1
    assert "2.0000" in drawn.ticks().values()


def test_few_spikes_do_not_make_all_else_small() -> None:
    values: Values = [1e6 if n % 250 == 100 else 1.0 + (n % 10) / 10 for n in range(900)]
    drawn = draw(curves_of(values))
    assert max(float(label) for label in drawn.ticks().values()) <= 2
    assert drawn.at(0, 10)[1] in ("loss", "band")  # the spike leads out of the picture


def test_of_few_steps_none_is_clipped() -> None:
    values: Values = [9.0 if n == 20 else 1.0 for n in range(40)]
    drawn = draw(curves_of(values), 40)
    assert max(float(label) for label in drawn.ticks().values()) >= 8


@pytest.mark.parametrize(("before", "after"), [(1.0, 3.0), (3.0, 1.0)])
def test_the_line_is_whole_where_the_loss_jumps(before: float, after: float) -> None:
    values: Values = [before if n < 500 else after for n in range(900)]
    rows = {row for row, _ in draw(curves_of(values)).find("loss")}
    assert len(rows) >= 12 and rows == set(range(min(rows), max(rows) + 1))


def test_a_run_that_diverges_is_not_cut_off() -> None:
    values: Values = [50.0 if n >= 895 else 1.0 + (n % 10) / 10 for n in range(900)]
    drawn = draw(curves_of(values))
    assert max(float(label) for label in drawn.ticks().values()) >= 40


def test_the_newest_average_is_printed_at_the_tip_of_the_curve() -> None:
    drawn = draw(curves_of([1.25] * 500))
    (row,) = {row for row, _ in drawn.find("loss")}
    assert "".join(drawn.at(row, column)[0] for column in range(49, 57)).strip().endswith("1.250")
    assert {r for r, _ in drawn.find("key")} == {row}


def test_at_the_end_of_the_plan_the_number_makes_way_for_the_curve() -> None:
    drawn = draw(curves_of([1.25] * 1000), history=history_of(1000, [(1000, 1.3)]))
    assert {column for _, column in drawn.find("loss")} == set(range(100))
    assert "1.250" in "".join(drawn.at(row, column)[0] for row, column in sorted(drawn.find("key")))
    assert {drawn.at(*cell)[0] for cell in drawn.find("eval")} == {"◆"}


def test_the_line_is_two_dots_thick_where_there_is_room() -> None:
    thick, thin = draw(curves_of([1.0] * 900)), draw(curves_of([1.0] * 900), size=(109, 12))
    dots = [max(ord(d.at(*cell)[0]).bit_count() for cell in d.find("loss")) for d in (thick, thin)]
    assert dots[0] == dots[1] + 2  # two columns of dots a cell


@pytest.mark.parametrize(("glyphs", "sign"), [(ASCII, "*"), (BLOCK, "█")])
def test_without_braille_cells_are_drawn_whole(glyphs: Glyphs, sign: str) -> None:
    drawn = draw(curves_of([2.0 + (n % 7) / 7 for n in range(900)]), glyphs=glyphs, settings=ChartSettings())
    assert {drawn.at(*cell)[0] for cell in drawn.find("loss")} == {sign}
    assert {drawn.at(*cell)[0] for cell in drawn.find("band")} == {glyphs.band}


def test_dots_stand_where_they_should() -> None:
    assert cells([stroke(0, 0), stroke(3, 3)], 1) == {(0, 0): "⡈"}
    assert cells([stroke(0, 7), 0], 2) == {(0, 0): "⡇", (1, 0): "⡇"}
    assert cells([0, stroke(4, 4)], 2, "#") == {(0, 0): "#"}


# -- the loss axis


@pytest.mark.parametrize("values", [(0.52, 2.6), (-3.0, 4.0), (0.991, 1.012), (0.0, 1e6), (2e-5, 9e-5), (1.0, 40.0)])
@pytest.mark.parametrize("rows", [8, 20, 36])
def test_numbers_at_the_loss_axis_are_those_of_their_rows(values: tuple[float, float], rows: int) -> None:
    axis = Scale().fit(*values, rows=rows, log=False, window=None)
    assert len(axis.ticks) >= 2
    for row, label in axis.ticks:
        scale = {"k": 1e3, "M": 1e6}.get(label[-1], 1.0)
        assert axis.dot(float(label.rstrip("kM")) * scale) == 4 * row + 2
    assert len({b[0] - a[0] for a, b in pairwise(axis.ticks)}) == 1
    assert axis.dot(values[0]) < 6 and axis.dot(values[1]) > 4 * rows * 0.5


@pytest.mark.parametrize("values", [(0.52, 2.6), (0.9, 1.1), (1e-4, 3.0), (3.0, 1e6), (0.5, 20.0)])
@pytest.mark.parametrize("rows", [10, 20, 36])
def test_numbers_at_a_log_axis_are_less_than_a_row_from_their_place(values: tuple[float, float], rows: int) -> None:
    axis = Scale().fit(*values, rows=rows, log=True, window=None)
    assert axis.log and len(axis.ticks) >= 2
    for row, label in axis.ticks:
        scale = {"k": 1e3, "M": 1e6}.get(label[-1], 1.0)
        assert abs(axis.dot(float(label.rstrip("kM")) * scale) - (4 * row + 2)) <= 2
    middle = axis.dot(math.sqrt(values[0] * values[1]))
    assert abs(middle - (axis.dot(values[0]) + axis.dot(values[1])) / 2) <= 1


def test_a_log_axis_needs_losses_above_nought() -> None:
    on = ChartSettings(log=True, smoothing=0)
    assert "not possible" not in draw(curves_of([8.0, 1.0, 0.5]), settings=on).title
    for history, values in ((None, (8.0, 0.0, 0.5)), (history_of(1000, [(1, -1.0)]), (8.0, 1.0, 0.5))):
        drawn = draw(curves_of(list(values)), history=history, settings=on)
        assert "log: not possible" in drawn.title
        assert drawn.ticks() == draw(curves_of(list(values)), history=history).ticks()


def test_the_loss_axis_moves_only_when_it_must() -> None:
    scale = Scale()

    def fit(low: float, high: float, window: tuple[float, float] | None = None) -> object:
        return scale.fit(low, high, rows=20, log=False, window=window)

    first = fit(0.5, 2.5)
    assert fit(0.6, 2.4) is first and fit(0.9, 2.3) is first
    assert fit(0.9, 9.0) is not first
    wide = fit(0.5, 9.0)
    assert fit(0.5, 2.5) is not wide  # little of it would be used
    last = fit(0.5, 2.5)
    assert fit(0.5, 2.5, (0.0, 10.0)) is not last


@given(st.floats(-1e9, 1e9), st.floats(0, 1e9), st.integers(2, 70), st.booleans())
@settings(max_examples=examples(200))
def test_the_loss_axis_shows_all_it_was_made_for(low: float, span: float, rows: int, log: bool) -> None:
    assume(not log or low > 1e-6)
    axis = Scale().fit(low, low + span, rows=rows, log=log, window=None)
    ends = (math.log10(low), math.log10(low + span)) if log else (low, low + span)
    slack = axis.per_row * 1e-6
    assert axis.bottom - axis.per_row / 2 <= ends[0] + slack
    assert ends[1] - slack <= axis.bottom + axis.per_row * (rows - 0.5)
    assert 0 <= axis.dot(low) <= axis.dot(low + span) < 4 * rows
    assert all(0 <= row < rows and len(label) <= 7 for row, label in axis.ticks)


def test_numbers_are_written_as_people_write_them() -> None:
    assert [number_label(v, 0.5) for v in (0.0, 0.5, 2.0)] == ["0.0", "0.5", "2.0"]
    assert [number_label(v, 0.25) for v in (0.25, -1.5)] == ["0.25", "-1.50"]
    assert [number_label(v, 25_000) for v in (0.0, 75_000, 1_250_000)] == ["0", "75k", "1.25M"]
    assert number_label(2e-5, 1e-5) == "2e-5"
    assert [step_label(s, 500, 3000) for s in (0, 500, 2000)] == ["0", "0.5k", "2k"]
    assert step_label(12_340, 10, 12_400) == "12,340"
    assert step_label(100, 100, 400) == "100"
    assert step_label(1_500_000, 500_000, 3_000_000) == "1.5M"


# -- steps, and what happened at them


def test_the_step_axis_is_the_whole_plan_and_brighter_where_it_is_passed() -> None:
    drawn = draw(curves_of([1.0] * 300))
    assert drawn.numbers.split() == ["0", "200", "400", "600", "800", "1,000"]
    assert [style for _, style in drawn.axis] == ["muted"] * 31 + ["rule"] * 69


def test_steps_that_are_drawn_stay_as_they_are() -> None:
    values: Values = [2 + math.sin(n / 9) / (1 + n / 99) for n in range(400)]
    scale = Scale()
    before, after = draw(curves_of(values[:300]), scale=scale), draw(curves_of(values), scale=scale)
    for row in range(20):
        assert before.grid[1 + row][: LEFT + 29] == after.grid[1 + row][: LEFT + 29]


def test_without_a_plan_the_axis_grows_in_jumps() -> None:
    ends = {draw(curves_of([1.0] * steps), None).numbers.split()[-1] for steps in range(400, 440, 5)}
    assert len(ends) <= 2


def test_the_best_evaluation_is_filled_and_the_others_are_hollow() -> None:
    history = history_of(1000, [(100, 2.5), (300, 1.5), (500, 1.75), (600, None)])
    drawn = draw(curves_of([1.0 + (n % 3) for n in range(700)]), history=history)
    found = {column: drawn.at(row, column)[0] for row, column in drawn.find("eval")}
    assert found == {9: "◇", 29: "◆", 49: "◇"}
    assert drawn.at(0, 59) == ("×", "bad")  # noqa: RUF001
    assert "◇ nan eval" in drawn.title and "◆ 1.5000 best @ 300" in drawn.title


def test_many_evaluations_leave_the_curve_to_be_seen() -> None:
    many: Evaluations = [(step, 1.0) for step in range(5, 900, 5)]
    drawn = draw(curves_of([1.0] * 900), history=history_of(1000, many))
    hidden = {column for _, column in drawn.find("eval")}
    assert len(hidden) >= 15
    assert all(len(hidden & set(range(column, column + 4))) <= 1 for column in range(0, 90, 4))


def test_epochs_attempts_and_grid_are_behind_the_curve() -> None:
    curves = curves_of([2 + math.sin(n / 40) for n in range(400)], [2 + math.sin(n / 40) for n in range(400, 800)])
    history = history_of(1000, per_epoch=100)
    begin(history, 2, 400, 1000, 100)
    with_marks, without = draw(curves, history=history), draw(curves)
    assert with_marks.find("loss") == without.find("loss")
    assert with_marks.find("band") == without.find("band")
    assert {column for row, column in with_marks.find("faint") if row == 10} == {39}
    assert "#2" in "".join(sign for sign, _ in with_marks.grid[with_marks.rows])


def epoch_columns(per_epoch: int, plan: int = 1000) -> list[int]:
    drawn = draw(curves_of([1.0]), plan, history=history_of(plan, per_epoch=per_epoch))
    return [column for column in range(100) if drawn.at(5, column)[0] == UNICODE.epoch]


def test_epochs_are_marked_and_every_kth_of_many() -> None:
    assert epoch_columns(250) == [24, 49, 74]
    assert epoch_columns(10) == epoch_columns(100) == [9, 19, 29, 39, 49, 59, 69, 79, 89]
    assert len(epoch_columns(1, 10**6)) == 9
    drawn = draw(curves_of([1.0]), history=history_of(1000, per_epoch=250))
    assert all(f"epoch {number}" in drawn.text for number in (1, 2, 3))
    drawn = draw(curves_of([1.0]), history=history_of(1000, per_epoch=10))
    assert "epoch" not in drawn.text and " 90" in drawn.text.replace(UNICODE.epoch, " ")


def test_stages_of_a_curriculum_stand_in_place_of_epochs() -> None:
    history = history_of(1000, per_epoch=100)
    for number, step in ((1, 1), (2, 251), (3, 701), (3, 701)):  # an attempt that goes on says it again
        history.take(StageBegan(step=step, number=number, of=3, words="all rows"))
    drawn = draw(curves_of([1.0]), history=history)
    assert [column for column in range(100) if drawn.at(5, column)[0] == UNICODE.epoch] == [24, 69]
    assert "stage 2" in drawn.text and "stage 3" in drawn.text and "epoch" not in drawn.text


def test_stages_are_known_before_they_begin() -> None:
    """From the plan: no epoch of a mean length is drawn, and the first stage has its label too."""
    history = history_of(1000, per_epoch=100)
    assert history.plan is not None
    history.take(structs.replace(history.plan, stages=[1, 251, 701]))
    drawn = draw(curves_of([1.0]), history=history)
    assert [column for column in range(100) if drawn.at(5, column)[0] == UNICODE.epoch] == [0, 24, 69]
    assert all(f"stage {number}" in drawn.text for number in (1, 2, 3)) and "epoch" not in drawn.text


def test_checkpoints_are_triangles_on_the_axis() -> None:
    drawn = draw(curves_of([1.0] * 500), checkpoints=(100, 400))
    assert [c for c, cell in enumerate(drawn.axis) if cell == ("▲", "good")] == [9, 39]
    assert "▲ 2 checkpoints" in drawn.title
    closer = draw(curves_of([1.0] * 500), checkpoints=(100, 400), settings=ChartSettings(window=(300.0, 500.0)))
    assert [c for c, cell in enumerate(closer.axis) if cell == ("▲", "good")] == [49]


def test_a_narrow_title_leaves_out_what_is_on_the_right_first() -> None:
    curves = curves_of([1.0] * 50)
    history = history_of(1000, [(10, 2.0)])

    def at(width: int) -> str:
        drawn = draw(curves, history=history, checkpoints=(10,), settings=ChartSettings(), size=(width, 20))
        return drawn.title

    assert [word in at(120) for word in ("ema(10)", "eval", "checkpoint", "best")] == [True] * 4
    assert [word in at(60) for word in ("ema(10)", "eval", "checkpoint", "best")] == [True, True, False, True]
    assert [word in at(40) for word in ("ema(10)", "eval", "checkpoint", "best")] == [True, True, False, False]
    assert "ema(10)" in at(24) and "eval" not in at(24)


# -- closer looks


def test_fine_steps_take_the_place_of_their_bunches() -> None:
    coarse = curves_of([1.0] * 2000)
    fine = Curves(attempts=[AttemptCurves(1, "", 500, 600, {"loss": Series()})])
    for step in range(501, 601):
        fine.attempts[0].series["loss"].add(step, 2.0)
    line = with_fine(stretches(coarse), fine, coarse)
    assert [s.first for s in line[1:]] == [s.last + 1 for s in line[:-1]]
    assert (line[0].first, line[-1].last, sum(s.num_values for s in line)) == (1, 2000, 2000)
    assert {s.first for s in line if s.mean == 2.0} == set(range(501, 601))


def test_fine_steps_that_a_later_attempt_took_back_are_not_shown() -> None:
    curves = curves_of([1.0] * 550, [3.0] * 300)
    fine = Curves(attempts=[AttemptCurves(1, "", 0, 700, {"loss": Series()})])
    for step in range(501, 701):
        fine.attempts[0].series["loss"].add(step, 2.0)
    line = with_fine(stretches(curves), fine, curves)
    assert max(s.last for s in line if s.mean == 2.0) == 550
    assert min(s.first for s in line if s.mean == 3.0) == 551
    assert with_fine(stretches(curves), Curves(), curves) == stretches(curves)


def test_zooming_in_keeps_the_newest_step_in_its_place() -> None:
    state = RunState(step=750, max_steps=1000)
    closer = zoom(ChartSettings(log=True, smoothing=3), state, 0.5)
    assert closer == ChartSettings(True, (375.0, 875.0), 3)
    assert zoom(closer, state, 2.0) == ChartSettings(True, None, 3)


def test_only_a_window_can_be_moved_and_only_within_the_plan() -> None:
    state = RunState(step=500, max_steps=1000)
    assert pan(ChartSettings(), state, 0.25) == ChartSettings()
    assert pan(ChartSettings(window=(100.0, 300.0)), state, 0.25).window == (150.0, 350.0)
    assert pan(ChartSettings(window=(100.0, 300.0)), state, -1).window == (0.0, 200.0)
    assert pan(ChartSettings(window=(700.0, 900.0)), state, 3).window == (800.0, 1000.0)


@given(
    st.none() | st.integers(1, 10**6), st.integers(0, 10**6),
    st.lists(st.sampled_from([("zoom", 0.5), ("zoom", 2.0), ("pan", -0.25), ("pan", 0.25)]), max_size=40),
)  # fmt: skip
@settings(max_examples=examples(200))
def test_a_window_stays_in_the_plan_and_holds_twenty_steps(
    plan: int | None, step: int, keys: list[tuple[str, float]]
) -> None:
    assume(plan is None or step <= plan)
    state, chosen = RunState(step=step, max_steps=plan), ChartSettings()
    for key, amount in keys:
        chosen = zoom(chosen, state, amount) if key == "zoom" else pan(chosen, state, amount)
        if chosen.window is not None:
            first, last = chosen.window
            assert first >= 0 and last - first >= 20 - 1e-6
            assert plan is None or last <= plan + 1e-6


def test_smoothing_ends_at_both_ends() -> None:
    chosen = ChartSettings(smoothing=1)
    assert change_smoothing(chosen, -1).smoothing == 0
    assert change_smoothing(change_smoothing(chosen, -1), -1).smoothing == 0
    assert change_smoothing(chosen, 99).smoothing == len(SMOOTHINGS) - 1


# -- of a child run


def child_of(begin: int, end: int) -> Curves:
    """Its own steps, after `begin`."""
    series = Series()
    for step in range(begin + 1, end + 1):
        series.add(step, 1.0 + 1 / step)
    return Curves(attempts=[AttemptCurves(1, "", begin, end, {"loss": series} if end > begin else {})])


@pytest.mark.parametrize(("begin", "end", "plan", "first"), [
    (800, 1000, 1000, 760), (800, 820, 1000, 760), (500, 600, 1000, 400), (990, 1000, 1000, 988), (50, 900, 1000, 0),
    (800, 800, 1000, 760), (100, 150, None, 86),
])  # fmt: skip
@pytest.mark.parametrize("glyphs", [UNICODE, ASCII])
def test_a_childs_chart_begins_at_its_own_steps(
    begin: int, end: int, plan: int | None, first: int, glyphs: Glyphs
) -> None:
    """After a fifth as many of its parent's, which are dim; never before it, and never below its own curve."""
    history = history_of(plan or 200)
    history.origin = Origin(begin, "elder", tuple(stretches(curves_of([2.0 - n / 1000 for n in range(begin)]))))
    drawn = draw(child_of(begin, end), plan, history=history, glyphs=glyphs)
    view_end = plan or span_of(end)
    at = (begin - first) / (view_end - first) * drawn.width  # where its first step is drawn
    dim, own = drawn.find("loss_dim"), drawn.find("loss")
    assert {column for _, column in dim} >= set(range(1, int(at) - 1)), "the parent's curve leads up to its beginning"
    assert max(column for _, column in dim) <= at + 1
    assert not own or min(column for _, column in own) >= at - 1
    assert at <= 0.2 * drawn.width, "most of the width is for what it runs itself"
    assert "from elder" in drawn.text
    bright = [column for column, (_, style) in enumerate(drawn.axis) if style == "muted"]
    assert all(at - 1 <= column for column in bright), "only its own steps count as passed"


def test_a_child_whose_parent_is_gone_begins_at_its_own_first_step() -> None:
    history = history_of(1000)
    history.origin = Origin(800, "elder")
    drawn = draw(child_of(800, 1000), 1000, history=history)
    assert not drawn.find("loss_dim") and min(column for _, column in drawn.find("loss")) <= 1
    assert drawn.numbers.split()[0] == "800"


def test_zooming_out_of_a_child_shows_all_steps_of_its_parents() -> None:
    state, origin = RunState(step=900, max_steps=1000), Origin(800, "elder", tuple(stretches(curves_of([2.0] * 800))))
    assert zoom(ChartSettings(), state, 0.5, origin).window == (830.0, 950.0)
    assert zoom(ChartSettings(), state, 2.0, origin).window == (520.0, 1000.0)
    chosen = ChartSettings()
    for _ in range(6):
        chosen = zoom(chosen, state, 2.0, origin)
    assert chosen.window == (0.0, 1000.0)


# -- other measures


def test_another_measure_has_its_own_curve_evaluations_and_figures() -> None:
    """Margins may be below 0, where there is no logarithm; the loss beside them says nothing."""
    curves = curves_of([9.0] * 100)
    margins = Series()
    for step in range(1, 101):
        margins.add(step, step / 50 - 1)
    curves.attempts[0].series["rewards/margins"] = margins
    history = history_of(200)
    for step, margin in ((50, -0.1), (100, 0.8)):
        history.take(make_evaluation(step, 9.0, best=True, extras={"rewards/margins": margin}))
    drawn = draw(curves, 200, history=history, settings=ChartSettings(log=True, smoothing=0, measure="rewards/margins"))
    title = "".join(text for text, _ in drawn.lines[0])
    assert title.startswith(" reward margin") and "0.8000 eval" in title and "0.8000 best @ 100" in title
    assert "log: not possible" in title and "9.0" not in title
    numbers = sorted(float(label) for label in drawn.ticks().values())
    assert numbers[0] < 0 < numbers[-1] < 2
    assert len(drawn.find("eval")) == 2


def test_keys_go_through_the_measures_that_there_are() -> None:
    curves = curves_of([1.0, 2.0])
    for name in ("kl", "rewards/margins", "grad_norm"):
        curves.attempts[0].series[name] = Series()
    shown = [ChartSettings()]
    for _ in range(3):
        shown.append(change_measure(shown[-1], curves, 1))
    assert [settings.measure for settings in shown] == ["loss", "rewards/margins", "kl", "loss"]
    assert change_measure(shown[0], curves, -1).measure == "kl"
