"""Sources of rows in the form: what is shown in short is no value, and what is not there cannot be changed."""

import tomllib
from pathlib import Path
from typing import Any

import pytest

from ftui.errors import ProfileError
from ftui.tui.form.profile_form import ProfileForm
from ftui.tui.screens.editor.editor_screen import EditorScreen
from ftui.tui.screens.pick import PickScreen
from tests.tui.screens.editor.test_editor import EVALUATED, PROFILE, at_home, editor, person

__all__ = ["at_home"]  # the fixture

LISTS = [
    'KEY = ["rows.jsonl", { path = "b", weight = 0.5 }]',
    'KEY = ["rows.jsonl"]',
    'KEY = [{ path = "rows.jsonl", weight = 2 }]',
    'KEY = [\n  "rows.jsonl", # first\n  "b",\n  "c",\n]',
    "KEY = []",
]  # fmt: skip


def text_with(key: str, line: str) -> str:
    old = 'train = "rows.jsonl"' if key == "train" else 'eval = "rows.jsonl"'
    return EVALUATED.replace(old, line.replace("KEY", key))


def sources_in(text: str, key: str) -> Any:
    return tomllib.loads(text)["data"][key]


@pytest.mark.parametrize(("key", "line"), [*(("train", line) for line in LISTS), ("eval", LISTS[0])])
def test_enter_on_a_list_goes_into_it(key: str, line: str) -> None:
    """And what is typed there changes that one source: every other one, and all that is said of them, stays."""
    text = text_with(key, line)

    async def script() -> None:
        async with editor(text) as at:
            await at.find(f"data.{key}")
            assert at.key == f"data.{key}"
            await at.press("enter")
            assert at.shows(EditorScreen) and at.key == f"data.{key}.0.path" and at.text == text
            await at.press("enter")
            assert at.shows(PickScreen)
            await at.press("end", "2", "enter")
            before, after = sources_in(text, key), sources_in(at.text, key)
            assert isinstance(after, list) and len(after) == max(1, len(before)) and after[1:] == before[1:]
            if before and isinstance(before[0], dict):
                assert after[0] == before[0] | {"path": "rows.jsonl2"}
            elif before:
                assert after[0] == "rows.jsonl2"

    person(script)


def test_a_source_of_evaluation_rows_is_added() -> None:
    async def script() -> None:
        async with editor(text_with("eval", 'KEY = ["rows.jsonl"]')) as at:
            await at.find("data.eval")
            await at.press("a")
            await at.fill("more.jsonl")
            await at.press("enter")
            assert sources_in(at.text, "eval") == ["rows.jsonl", "more.jsonl"] and at.key == "data.eval.1.path"

    person(script)


@pytest.mark.parametrize("line", LISTS)
def test_a_list_is_never_replaced_by_its_short_form(line: str) -> None:
    """Whatever way the text comes."""
    form = ProfileForm(Path("mine.toml"), text_with("train", line), None)
    form.filter_rows("data.train")
    form.go_to(("data", "train"))
    assert form.row is not None and form.row.key == ("data", "train")
    for typed in (form.row.text + "2", form.row.text or "x"):
        assert "list of sources" in form.preview_input(typed)
        with pytest.raises(ProfileError, match="list of sources"):
            form.accept_input(typed)
    form.accept_input('["a", "b"]')
    assert sources_in(form.draft.text, "train") == ["a", "b"], "a list takes its place"


@pytest.mark.parametrize("text", [PROFILE, EVALUATED.replace('"rows.jsonl"', "[]"), PROFILE.replace("train = ", "#")])
def test_of_no_source_only_a_path_is_offered(text: str) -> None:
    form = ProfileForm(Path("mine.toml"), text, None)
    for name in ("eval", *(["train"] if "train = " not in text else [])):
        for words in (f"{name} weight", f"data.{name}.weight", f"data.{name}.split"):
            form.filter_rows(words)
            assert not [row for row in form.rows if row.key[:2] == ("data", name) and len(row.key) == 4], words
        form.filter_rows(f"data.{name}.path")
        assert form.row is not None and form.row.key == ("data", name, "0", "path")
        form.accept_input("there.jsonl")
        assert sources_in(form.draft.text, name) in ("there.jsonl", ["there.jsonl"])
        form.step_history(-1)


def test_what_is_typed_goes_where_it_was_begun() -> None:
    """Though the rows above it go while it is typed, since the sources there cannot stand beside it."""
    text = text_with("eval", 'KEY = ["rows.jsonl", "b", "c"]')
    form = ProfileForm(Path("mine.toml"), text, None)
    form.go_to(("data", "eval", "0", "path"))
    form.go_to(("data", "eval_fraction"))
    for typed in ("0", "0.", "0.5"):
        form.preview_input(typed)
        assert form.row is not None and form.row.key == ("data", "eval_fraction")
    form.cancel_input()
    assert form.row is not None and form.row.key == ("data", "eval_fraction") and form.text == text
    form.preview_input("0.5")
    form.accept_input("0.5")
    assert sources_in(form.draft.text, "eval_fraction") == 0.5


def test_of_a_source_that_is_there_every_key_is_found() -> None:
    form = ProfileForm(Path("mine.toml"), EVALUATED, None)
    form.filter_rows("eval split")
    assert form.row is not None and form.row.key == ("data", "eval", "0", "split")


def test_files_that_are_not_there_are_faults_that_keep_it_from_starting(at_home: Path) -> None:
    text = PROFILE.replace('"rows.jsonl"', '"no.jsonl"').replace("Qwen/Qwen3-0.6B", "./base")

    async def script() -> None:
        async with editor(text) as at:
            assert "2 errors" in at.words("title") and at.key == "model.name_or_path"
            assert "there is no folder" in at.words("details")
            await at.press("n")
            assert at.key == "data.train" and "no.jsonl" in at.words("details")
            await at.press("s")
            assert "2 errors keep it from starting" in at.words("keys") and at.shows(EditorScreen)
            await at.press("w")
            assert "says the same already" in at.words("keys")
            await at.find("chat_template")
            await at.press("enter")
            await at.fill("mine.jinja")
            await at.press("enter")
            assert 'chat_template = "mine.jinja"' in at.text, "it may be on the machine the profile is for"
            assert "3 errors" in at.words("title")

    person(script)
