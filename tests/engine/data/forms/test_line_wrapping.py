"""Text with hard line breaks: prose is joined to paragraphs; verse, code, lists and tables stay as they are."""

import random
import textwrap
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ftui.engine.data.files.raw_rows import Row
from ftui.engine.data.forms.examples import Text
from ftui.engine.data.forms.formats import to_example
from ftui.engine.data.forms.line_wrapping import unwrap_lines

PROSE = (
    "the daemon that had been left alone with a page cache for most of an uneventful night began to read whatever it "
    "was given and printed quietly at first then with growing conviction until shell which never asked ran away"
)
WORDS = PROSE.split()
CHANCE = random.Random(3)
SAID = [" ".join(CHANCE.choices(WORDS, k=CHANCE.randint(40, 120))) + "." for _ in range(9)]
VERSE = "\n".join(["The kernel sleeps,", "the shell is still,", "a page has gone", "beyond the hill,"] * 12)
CODE = Path(textwrap.__file__).read_text()
TABLE = "\n".join(f"{n:<6}  {WORDS[n % 36]:<32}  {n * 37 % 101:>8} of the total read" for n in range(60))
LIST = "\n".join(f"- read page {n} of the cache, then go on" + " and on" * (n % 9) for n in range(60))


def paragraphs(width: int) -> list[str]:
    return ["\n".join(textwrap.wrap(said, width)) for said in SAID]


@pytest.mark.parametrize("width", [55, 72, 100])
@pytest.mark.parametrize("end", ["\n", "\r\n"])
def test_wrapped_prose_is_joined(width: int, end: str) -> None:
    wrapped = paragraphs(width)
    text, num_joined = unwrap_lines("\n\n".join(wrapped).replace("\n", end) + end)
    assert text == "\n\n".join(SAID) + "\n"
    assert num_joined == sum(one.count("\n") for one in wrapped)


@pytest.mark.parametrize("text", [VERSE, CODE, TABLE, LIST, SAID[0], "", "\n" * 50, "\n\n".join(SAID) * 9])
def test_other_text_stays_as_it_is(text: str) -> None:
    assert unwrap_lines(text) == (text, 0)


def test_verse_and_lists_between_wrapped_paragraphs_keep_their_lines() -> None:
    verse = "\n".join(VERSE.split("\n")[:4])
    listed = "\n".join(LIST.split("\n")[:3])
    quoted = textwrap.indent(paragraphs(60)[0], "    ")
    kept = [verse, listed, quoted]
    text, num_joined = unwrap_lines("\n\n".join([*paragraphs(72), *kept, *paragraphs(72)]))
    assert all(one in text for one in kept)
    assert num_joined == 2 * sum(one.count("\n") for one in paragraphs(72))


def test_hyphens_and_dashes_at_the_end_of_a_line_take_no_space() -> None:
    for mark in ("-", "--", "\u2014"):
        lines = "\n".join([*paragraphs(72), f"{'word ' * 13}well{mark}\nknown {'word ' * 3}"])
        assert f"well{mark}known" in unwrap_lines(lines)[0]


@given(st.text(alphabet="ab -\n\r\t.", max_size=400))
def test_no_word_is_lost(text: str) -> None:
    assert unwrap_lines(text * 9)[0].replace("-\n", "-").split() == (text * 9).replace("-\n", "-").split()


def test_only_text_files_are_joined() -> None:
    text = "\n\n".join(paragraphs(72))
    for name, num_joined in (("book.txt", 1), ("book.txt.gz", 1), ("rows.jsonl", 0)):
        example = to_example(Row(Path(name), 1, {"text": text}), "text")
        assert isinstance(example, Text)
        assert bool(example.num_joined) == bool(num_joined)
