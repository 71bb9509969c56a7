"""A text that is no TOML: file, line and key of what is wrong, and what to write instead; not the parser's words."""

from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ftui.errors import ProfileError
from ftui.profile.layers import resolve
from ftui.profile.presets import find_profile, shipped_presets
from ftui.profile.toml_reader import read_text, read_toml
from tests.support.examples import examples

HERE = Path("/nowhere/p.toml")


@pytest.mark.parametrize(
    ("text", "where", "what", "fix"),
    [
        ("[run]\nstage='a'\n\nstage='b'\n", "4: run.stage", "given in line 2 already", "Leave one of them out."),
        ("[train]\nx=1\nx.y=3\n", "3: train.x.y", "already", "Leave one of them out."),
        ("[run]\nstage='a'\n[run]\n", "3: ", "[run] already, in line 1", "below one [run]"),
        (
            "data.allow = []\n[data]\ntrain='a'\n",
            "2: ",
            "[data] already, by line 1",
            "Move line 1 below [data], without",
        ),
        ("[run]\nname=None\n", "2: run.name", "None is no value", 'Write name = "none"'),
        ("[a]\nb=True # yes\n", "2: a.b", "True is no value", "Write b = true."),
        ("[a]\nb=off\n", "2: a.b", "off is no value", "Write b = false."),
        ("stage=sft\n", "1: stage", "sft is no value", 'stage = "sft"'),
        ("[model]\nname_or_path = Qwen/Qwen3-0.6B\n", "2: model.name_or_path", "no value", '"Qwen/Qwen3-0.6B"'),
        ("[a]\nb=\n", "2: a.b", "there is no value", "leave the line out"),
        ("[a]\nb = 2,5\n", "2: a.b", "2,5 is not a number", "Write b = 2.5."),
        ("[a]\nb = 007\n", "2: a.b", "007 is not a number", "Write b = 7."),
        ("[a]\nb = 'x', 'y'\n", "2: a.b", "several values", "b = ['x', 'y']"),
        ("[a]\nb = 1 c = 2\n", "2: a.b", "text after the value", "one key = value"),
        ("[a\nb = 1\n", "1: ", "not closed", "Write [a]."),
        ("[a]\nb = [1,\n 2\n\n[c]\n", "2: a.b", "a list is not closed", "Close it with ]."),
        ("[a]\nb = {c = 1\n", "2: a.b", "a table in one line is not closed", "Close it with }."),
        ('[a]\nb = "x\nc = 1\n', "2: a.b", "no closing quote on its line", "Add the quote"),
        ('[a]\nb = "C:\\users"\n', "2: a.b", "special character", "single quotes"),
        ("a: 3\n", "1: ", "followed by =", "Write a = 3."),
        ("[a]\nlearning rate = 3\n", "2: ", "cannot contain spaces", "learning_rate = 3"),
        ("[a]\nb\n", "2: ", "no value", "Write key = value."),
        ('{"run": 3}\n', "1: ", "JSON", "tables as [name]"),
        ("[a]\nb = ?\n", "2: a.b", "no value", "key = value"),
    ],
)
def test_what_people_write_by_mistake(text: str, where: str, what: str, fix: str) -> None:
    with pytest.raises(ProfileError) as caught:
        read_toml(text, HERE)
    assert caught.value.message.startswith(f"{HERE}:{where}"), caught.value.message
    assert what in caught.value.message and "(at line" not in caught.value.message
    assert fix in caught.value.hint, caught.value.hint


@settings(max_examples=examples(150))
@given(st.sampled_from([preset.path.read_text() for preset in shipped_presets()]), st.data())
def test_every_slip_has_a_line_and_a_fix(text: str, data: st.DataObject) -> None:
    """Wherever the finger slips: the line is one of the text, and the hint is not empty."""
    at = data.draw(st.integers(0, len(text)))
    text = text[:at] + data.draw(st.text("[]{}=\"'\\,.# \nabN0\x00é", min_size=1, max_size=4)) + text[at:]
    try:
        read_toml(text, HERE)
    except ProfileError as error:
        line = error.message.removeprefix(f"{HERE}:").partition(":")[0]
        assert 1 <= int(line) <= text.count("\n") + 1, error.message
        assert error.hint, error.message


def test_bytes_that_are_no_utf8_have_a_line(tmp_path: Path) -> None:
    path = tmp_path / "p.toml"
    for mark in (b"", b"\xef\xbb\xbf"):
        path.write_bytes(mark + b'[run]\nname = "M\xfcller"\n')
        for read in (resolve, read_text):
            with pytest.raises(ProfileError) as caught:
                read(path)
            assert f"{path}:2: " in caught.value.message and "0xfc in column 10" in caught.value.message
            assert caught.value.hint == "Save the file as UTF-8."


def test_a_folder_is_no_profile(tmp_path: Path) -> None:
    (tmp_path / "mine.toml").touch()
    for read in (resolve, read_text, lambda path: find_profile(str(path))):
        with pytest.raises(ProfileError, match="is a folder") as caught:
            read(tmp_path)
        assert caught.value.hint == "Name a file in it: mine.toml."
