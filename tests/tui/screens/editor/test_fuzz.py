"""The editor on any text: whatever stands in a file, and whatever is done to it, is never a traceback."""

from contextlib import suppress
from pathlib import Path

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from ftui.errors import FtuiError
from ftui.tui.drawing.editor.form import details, form_lines
from ftui.tui.drawing.editor.form_toml import toml_lines
from ftui.tui.form.profile_form import ProfileForm
from ftui.tui.render.glyphs import UNICODE
from ftui.tui.render.spans import Frame, width_of
from tests.support.examples import examples

LINES = [
    "[run]",
    'stage = "sft"',
    "[data]",
    'train = "rows.jsonl"',
    "train = [1, {path = 2}, []]",
    "[[data.train]]",
    'path = "a"',
    "weight = nan",
    "[train]",
    "optim_args = 3",
    "[train.optim_args]",
    "momentum = 1979-05-27",
    "[model]",
    "from_scratch = {}",
    'name_or_path = "a\\u0000b"',
    "[model.from_scratch]",
    "x = [[[]]]",
    "[adapter]",
    "rank_pattern = {a = 1, 'b.c' = 2}",
    "train = {}",
    "run = 1",
    "[[eval]]",
    "a.b.c = inf",
    '"" = 1',
    "eval = []",
    "# [/]",
    'chat_template = """',
    '"""',
    "r = 99999999999999999999",
    "[unknown.table]",
    "data.eval.path = 1",
    "[",
    "= 3",
    "\x1b[2J",
]
ACTS = ["cycle", "clear", "rename", "undo", "redo", "toggle", "type", "next", "table", "find"]


@settings(max_examples=examples(60), suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    st.lists(st.sampled_from(LINES), max_size=12, unique=True),
    st.lists(st.tuples(st.sampled_from(ACTS), st.integers(0, 150))),
    st.text(max_size=5),
)
def test_no_text_and_no_key_is_a_traceback(lines: list[str], acts: list[tuple[str, int]], typed: str) -> None:
    """Whatever stands in the file and whatever is done to it; undone, it is what it was."""
    text = "\n".join(lines)
    form = ProfileForm(Path("mine.toml"), text, text)
    for act, place in acts:
        form.move(-1000)
        form.move(place)
        with suppress(FtuiError):
            match act:
                case "cycle":
                    form.cycle(1)
                case "clear":
                    form.unset()
                case "rename":
                    form.rename()
                case "undo" | "redo":
                    form.step_history(-1 if act == "undo" else 1)
                case "toggle":
                    form.toggle()
                case "type" if form.row is not None and form.row.field is not None:
                    form.preview_input(typed)
                    form.accept_input(typed)
                case "next":
                    form.move_to_next("fault")
                case "table":
                    form.move_to_table(1)
                case "find":
                    form.filter_rows(typed)
                    form.filter_rows(None)
        form.cancel_input()
        drawn = form_lines(Frame(80, 200, UNICODE), form)
        assert all(width_of(line) <= 80 for line in drawn)
        details(Frame(80, 5, UNICODE), form.row)
        toml_lines(Frame(60, 20, UNICODE), form.text, at=1, wrong=set(), top=0)
    while form.step_history(-1):
        pass
    assert form.draft.text == text
