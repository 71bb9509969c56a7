import json
import subprocess
import sys
import tomllib
import unicodedata

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ftui.text import cells, complaint, cut, cut_middle, did_you_mean, escape_document, shown, toml_value

BIDI = "\u061c\u200e\u200f\u202a\u202b\u202c\u202d\u202e\u2066\u2067\u2068\u2069"


@pytest.mark.parametrize(
    ("raw", "visible"),
    [
        ("\x1b[2J", "\u241b[2J"),
        ("a\x00b\tc\rd\x7f", "a\u2400b\u2409c\u240dd\u2421"),
        ("\x85\x9b31m", "\\x85\\x9b31m"),
        ("abc\u202egpj", "abc\\u202egpj"),
        ("x\u2028y", "x\\u2028y"),
        ("\udc80", "\\udc80"),
        ("héllo · 日本 👩‍💻", "héllo · 日本 👩‍💻"),
    ],
)
def test_controls_become_visible_and_the_rest_stays(raw: str, visible: str) -> None:
    assert shown(raw) == visible


def test_newlines_stay_only_when_asked() -> None:
    assert shown("a\nb") == "a\u240ab"
    assert shown("a\r\nb", newlines=True) == "a\u240d\nb"


@given(st.text(st.characters()))
def test_nothing_shown_can_steer_a_terminal(text: str) -> None:
    result = shown(text)
    assert not any(unicodedata.category(character) in ("Cc", "Cs") or character in BIDI for character in result)
    assert shown(result) == result


@given(st.text(), st.integers(1, 30))
def test_cut_text_fits(text: str, width: int) -> None:
    assert cells(cut(shown(text), width)) <= width


@given(st.text(), st.integers(0, 40))
def test_text_cut_in_its_middle_fits_and_keeps_both_ends(text: str, width: int) -> None:
    text = shown(text)
    short = cut_middle(text, width)
    assert cells(short) <= width
    if cells(text) <= width:
        assert short == text
    else:
        start, _, end = short.partition("…") if "…" not in text else (short[:1], "", "")
        assert text.startswith(start) and text.endswith(end)


@pytest.mark.parametrize(("text", "width", "short"), [
    ("../data/2026/tickets-cleaned.jsonl", 34, "../data/2026/tickets-cleaned.jsonl"),
    ("../data/2026/tickets-cleaned.jsonl", 21, "../data/20…aned.jsonl"), ("qwen3-8b-lora-r64-2", 8, "qwen…4-2"),
    ("abcdef", 3, "a…f"), ("abcdef", 2, "a…"), ("abcdef", 1, "…"), ("abcdef", 0, ""), ("日本語テキスト", 8, "日本…ト"),
])  # fmt: skip
def test_the_middle_is_what_is_cut_away(text: str, width: int, short: str) -> None:
    assert cut_middle(text, width) == short


def test_wide_characters_take_two_columns() -> None:
    assert cells("日本") == 4
    assert cut("日本語", 5) == "日本…"
    assert cut("abc", 3) == "abc"


def test_complaint_has_message_and_hint_and_no_escapes() -> None:
    assert complaint("one\ntwo\x1b", "do") == "error: one\ntwo\u241b\n  hint: do"
    assert complaint("one") == "error: one"


@given(st.text(st.characters(exclude_categories=["Cs"]) | st.sampled_from("\x1b\x7f\x9b\u202e\u200b")))
def test_documents_mean_the_same_when_they_are_escaped(text: str) -> None:
    document = escape_document(json.dumps(text, ensure_ascii=False))
    assert (json.loads(document) == text and shown(document) == document) or any(ord(c) > 0xFFFF for c in text)
    assert tomllib.loads(f"key = {toml_value(text)}") == {"key": text}


@pytest.mark.parametrize(
    ("text", "width"),
    [("\u0378", 1), ("\U0010ffff", 1), ("\U0002fffd", 2), ("\u0600", 1), ("\u1161", 0), ("\u302e", 0)],
)
def test_columns_of_rare_characters(text: str, width: int) -> None:
    assert cells(text) == width


def test_text_as_the_screens_draw_it_does_not_load_the_width_tables() -> None:
    drawn = "\u2500\u2578\u25cf\u25c6\u25b2\u28ff\u2581\u2588 1\u20132 \u2026 \xd7"
    program = f"import sys; from ftui.text import cells; print(cells({drawn!r}), 'wcwidth' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout == f"{len(drawn)} False\n"


def test_what_is_unseen_is_seen() -> None:
    assert shown("a\u200bb\ufeff\U000e0041") == "a\\u200bb\\ufeff\\U000e0041"


NAMES = ["quickstart", "qlora-8b", "qlora-8b-2", "status", "stop", "run-a", "a\x1b"]


@pytest.mark.parametrize(
    ("name", "hint"),
    [
        ("quick", "Did you mean quickstart? "),
        ("Quickstart", "Did you mean quickstart? "),
        ("quikstart", "Did you mean quickstart? "),
        ("stauts", "Did you mean status? "),
        ("qlora", "Did you mean qlora-8b or qlora-8b-2? "),
        ("qlora8b", "Did you mean qlora-8b or qlora-8b-2? "),
        ("st", "Did you mean status or stop? "),
        ("8b", ""),
        ("start", "Did you mean quickstart or status? "),
        ("a", "Did you mean a\u241b? "),
        ("zebra", ""),
        ("", ""),
    ],
)
def test_names_that_may_have_been_meant(name: str, hint: str) -> None:
    assert did_you_mean(name, [*NAMES, *NAMES]) == hint
