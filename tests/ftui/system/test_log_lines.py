"""Lines of a log: bars in one state, no line too long, everything else as it was printed."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ftui.system.log_lines import LONGEST_LINE, LogLines


def logged(*pieces: str) -> str:
    log = LogLines()
    return "".join(map(log.take, pieces)) + log.finish()


@pytest.mark.parametrize(
    ("printed", "expected"),
    [
        ("a\nb\n", "a\nb\n"), ("a\r\nb\r\n", "a\nb\n"), ("a", "a"), ("a\r", "a"), ("\r\r\n", "\n"),
        ("\r 1%\r 2%\r 3%\nnext\n", " 3%\nnext\n"), (" 1%\r 2%\r 3%\r\nnext", " 1%\n 3%\nnext"),
        ("Files\n\r 1%\r 2%", "Files\n 2%"), ("\r1\r2\n\r3\r4\n", "2\n4\n"), ("\n\n\r\n", "\n\n\n"),
        ("x" * (LONGEST_LINE + 7) + "\ny", "x" * LONGEST_LINE + " ... 7 more characters\ny"),
        ("\r" + "x" * 10**6 + "\rdone\n", "done\n"), ("\x1b[A\r50%\r\x1b[K", "\x1b[A\n\x1b[K"),
    ],
)  # fmt: skip
def test_what_is_left_of_it(printed: str, expected: str) -> None:
    assert logged(printed) == expected


@given(st.text(st.sampled_from("ab\r\n%")), st.lists(st.integers(0, 60)))
def test_it_is_the_same_however_it_is_cut(text: str, cuts: list[int]) -> None:
    ends = sorted(min(cut, len(text)) for cut in cuts)
    pieces = [text[start:end] for start, end in zip([0, *ends], [*ends, len(text)], strict=True)]
    assert logged(*pieces) == logged(text)


@given(st.lists(st.text(st.characters(exclude_characters="\r\n"), max_size=30), min_size=1), st.booleans())
def test_lines_without_bars_stay_as_they_are(lines: list[str], by_two: bool) -> None:
    assert logged(("\r\n" if by_two else "\n").join(lines)) == "\n".join(lines)


@given(st.lists(st.text(st.sampled_from("ab%"), min_size=1, max_size=9), min_size=1), st.integers(1, 9))
def test_a_bar_leaves_its_last_state_and_a_log_stays_small(states: list[str], size: int) -> None:
    text = "".join(f"\r{state}" for state in states * 50) + "\n"
    pieces = [text[start : start + size] for start in range(0, len(text), size)]
    assert logged(*pieces) == states[-1] + "\n"
