"""Columns share the width there is: none is cut while another one has more than it needs."""

from collections.abc import Callable
from pathlib import Path
from typing import cast

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec import structs

from ftui.runs.checkpoint_index import CheckpointEntry
from ftui.runs.run_folder import Run
from ftui.runs.state import Evaluation, RunState
from ftui.runs.status import Status, Watch
from ftui.text import cells
from ftui.tui.drawing.checkpoint_table import checkpoint_table
from ftui.tui.drawing.columns import GAP, Column, share_width
from ftui.tui.drawing.editor.form import form_lines
from ftui.tui.drawing.editor.form_diff import Difference, DiffPage, diff_lines
from ftui.tui.drawing.editor.form_pick import Choice, PickPage, pick_lines
from ftui.tui.drawing.panes import SIDE_BY_SIDE, pane
from ftui.tui.drawing.resolved_table import ResolvedPage, rows
from ftui.tui.drawing.run_table import run_table
from ftui.tui.drawing.start_list import start_list
from ftui.tui.form.profile_form import ProfileForm
from ftui.tui.render.glyphs import ASCII, UNICODE, Glyphs
from ftui.tui.render.spans import Frame, Line
from ftui.tui.state.history import Event
from ftui.tui.state.resolved_values import Value
from ftui.tui.state.run_list import RunRow
from ftui.tui.state.start_choices import HERE, StartChoice
from tests.support.shown_app import PROFILE

columns = st.builds(Column, st.integers(0, 40), st.integers(0, 120), st.booleans())


@given(st.lists(columns, min_size=1, max_size=8), st.integers(60, 300))
def test_no_column_is_cut_while_another_one_has_room_to_spare(columns: list[Column], room: int) -> None:
    widths = share_width(columns, room)
    assert sum(widths) <= room and all(width >= 0 for width in widths)
    spare = [max(0, width - column.wish) for width, column in zip(widths, columns, strict=True)]
    if any(width < column.wish for width, column in zip(widths, columns, strict=True)):
        assert sum(widths) == room and not any(spare)
    assert not any(free for free, column in zip(spare, columns, strict=True) if not column.grows)
    if any(column.grows for column in columns):
        assert sum(widths) == room, "all of the width is used"
    least = [min(column.least, column.wish) for column in columns]
    if sum(least) <= room:
        assert all(width >= needed for width, needed in zip(widths, least, strict=True))


@pytest.mark.parametrize(("asked", "room", "widths"), [
    ([(4, 30), (4, 6)], 36, [30, 6]), ([(4, 30), (4, 6)], 30, [24, 6]), ([(4, 30), (4, 30)], 40, [20, 20]),
    ([(4, 30), (4, 10), (4, 30)], 40, [15, 10, 15]), ([(12, 64), (8, 8)], 15, [12, 3]), ([(5, 0)], 80, [0]),
])  # fmt: skip
def test_what_is_free_goes_to_those_that_are_cut(asked: list[tuple[int, int]], room: int, widths: list[int]) -> None:
    assert share_width([Column(*each) for each in asked], room) == widths


def test_what_nobody_needs_goes_to_a_curve() -> None:
    assert share_width([Column(6, 20), Column(6, 6, grows=True), Column(9, 9)], 100) == [20, 71, 9]


# -- the tables that use it

NAMES = ["mine", "qwen3-8b-instruct-sft-alpaca-cleaned-lr2e-4-r64-packing-v2-final", "llama-3.1-8b-customer-support-2"]
PATH = "../data-sets/customer-support/2026-11/a-long-directory-name/tickets-cleaned-and-deduplicated.jsonl"
REASON = "The engine and its supervisor ended without writing why (the pod was restarted, or both were killed)."


class Row(RunRow):
    """A run with a curve that fills what it is given."""

    def loss_spark(self, width: int, glyphs: Glyphs) -> tuple[str, str]:
        return glyphs.bars[3] * (width - 1), glyphs.bars[0]


def run_row(number: int) -> Row:
    state = RunState(phase="finished", step=600 + number, max_steps=645, loss=2.5 + number, tokens_per_second=3e3)
    return Row(Run(Path("/runs") / NAMES[number]), Status(state=state), 5.0, cast(Watch, None), ())


def runs(frame: Frame) -> list[Line]:
    return run_table(frame, [run_row(number) for number in range(len(NAMES))], 1, 400.0)


def test_runs_are_compared_by_the_accuracy_that_they_have() -> None:
    """Of the newest evaluation; where no run has one there is no such column."""
    rows = [run_row(number) for number in range(2)]
    frame = Frame(160, 5, UNICODE)
    assert "accuracy" not in "".join(text for text, _ in run_table(frame, rows, 0, 400.0)[0])
    evaluation = Evaluation(600, 0.4, extras={"rewards/accuracies": 0.8125, "rewards/margins": 1.5})
    state = structs.replace(rows[1].status.state, evaluations=[evaluation])
    rows[1].status = Status(state=state)
    head, first, second = ("".join(text for text, _ in line) for line in run_table(frame, rows, 0, 400.0))
    end = head.index("accuracy") + len("accuracy")
    assert first[end - 8 : end].strip() == "" and second[end - 4 : end] == "0.81"


def checkpoints(frame: Frame) -> list[Line]:
    kinds = [["periodic", "was best", "manual"], ["best"], ["last"]]
    entries = [
        CheckpointEntry(
            step=number, name=f"checkpoint-{number}", path=f"checkpoints/checkpoint-{number}", place="checkpoints",
            kinds=kinds[number], eval_loss=2.5, size=2 << 20, created=1.0, problem=REASON if number == 1 else None,
            pinned=number == 2,
        )
        for number in range(3)
    ]  # fmt: skip
    return checkpoint_table(frame, "mine", entries, 1, None, 400.0)


def choices(frame: Frame) -> list[Line]:
    found = [Choice(name, words, name) for name, words in zip([*NAMES, PATH], ["", "2 MiB", REASON, "x"], strict=True)]
    return pick_lines(frame, PickPage("a title", found, 1, num_all=4))


def starts(frame: Frame) -> list[Line]:
    found = [StartChoice(HERE, name, REASON[: 20 * n]) for n, name in enumerate(NAMES)]
    return start_list(frame, found, 1, "x")[1:]


def values(frame: Frame) -> list[Line]:
    found = [
        Value("data", "train", f'"{PATH}"', "mine.toml:7"), Value("data", "max_length", "1024", "--set", "512"),
        Value("data", "packing", "true", "a-profile-with-a-long-name.toml:12"),
    ]  # fmt: skip
    return [row.line for row in rows(frame, ResolvedPage("mine.toml", (), values=found))][1:]


def differences(frame: Frame) -> list[Line]:
    found = [Difference("data.train", "a.jsonl", PATH), Difference("train.learning_rate", "1", "2")]
    return diff_lines(frame, DiffPage("the file", found))


FORM = ProfileForm(Path("mine.toml"), PROFILE.replace("rows.jsonl", PATH), None)


def form(frame: Frame) -> list[Line]:
    lines = form_lines(Frame(frame.width, 400, frame.glyphs), FORM)
    return [line for line in lines if line and not line[0][0].startswith(" [")]  # headings are no columns


TABLES = [form, runs, checkpoints, choices, starts, values, differences]


@pytest.mark.parametrize("table", TABLES)
@pytest.mark.parametrize("glyphs", [UNICODE, ASCII])
def test_no_table_cuts_a_text_beside_empty_columns(table: Callable[[Frame], list[Line]], glyphs: Glyphs) -> None:
    """At every width from 60 to 300: where something is cut, no two texts are more than the gap apart in every line."""
    num_cut = 0
    for width in range(60, 301):
        lines = ["".join(text for text, _ in line).rstrip() for line in table(Frame(width, 20, glyphs))]
        assert all(cells(line) <= width for line in lines)
        if any("…" in line for line in lines):
            num_cut += 1
            blank = "".join(" " if all(not line[at : at + 1].strip() for line in lines) else "x" for at in range(width))
            inside = blank.strip().split("x")
            assert max(map(len, inside)) <= GAP, f"{width} columns:\n" + "\n".join(lines)
            assert width - len(blank.rstrip()) <= 2, f"{width} columns:\n" + "\n".join(lines)
    assert num_cut or table is differences, "else nothing was tried; differences are wrapped"
    assert not any("…" in text for line in table(Frame(300, 20, glyphs)) for text, _ in line)


def test_a_curve_takes_what_a_wide_terminal_has() -> None:
    lines = [runs(Frame(width, 9, UNICODE))[1] for width in (160, 200, 240)]
    widths = [sum(len(text) for text, style in line if style in ("loss", "loss_dim")) for line in lines]
    assert widths[1] - widths[0] == widths[2] - widths[1] == 40


@pytest.mark.parametrize(("event", "printed"), [(150, 20), (20, 150), (70, 120), (199, 40), (90, 90)])
def test_events_and_log_share_a_wide_terminal(event: int, printed: int) -> None:
    """Half for each only where both need it."""
    history = [Event(0.0, "e" * event, "text")]
    width = 10 + event + GAP + printed + 1  # a time before the event, a blank before what was printed
    assert width >= SIDE_BY_SIDE
    lines = pane(Frame(width, 8, UNICODE), history, ["p" * printed], None, lambda frame: [], shows="events")
    texts = "".join(text for line in lines for text, _ in line)
    assert texts.count("e" * event) == 1 and texts.count("p" * printed) == 1
