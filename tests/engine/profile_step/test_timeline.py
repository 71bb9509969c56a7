"""Each moment belongs to one label, and the moments add up."""

from hypothesis import given
from hypothesis import strategies as st

from ftui.engine.profile_step.timeline import Span, divide_time, label_at

MOMENTS = 40


@st.composite
def spans(draw: st.DrawFn) -> list[Span[str]]:
    chosen = []
    for number in range(draw(st.integers(0, 8))):
        start = draw(st.integers(-5, MOMENTS))
        chosen.append(Span(str(number), start, start + draw(st.integers(0, 20)), draw(st.integers(0, 1))))
    return chosen


@given(spans())
def test_it_is_what_looking_at_every_moment_says(chosen: list[Span[str]]) -> None:
    """The oracle asks for every nanosecond which span is on top; of two that are alike either may be."""
    expected: dict[tuple[int, int, int] | None, int] = {}
    place = {span.label: (span.layer, span.start, -span.end) for span in chosen}
    for moment in range(MOMENTS):
        active = [place[span.label] for span in chosen if span.start <= moment < span.end]
        top = max(active, default=None)
        expected[top] = expected.get(top, 0) + 1
    divided = divide_time(chosen, 0, MOMENTS, "nothing")
    assert sum(divided.values()) == MOMENTS
    found: dict[tuple[int, int, int] | None, int] = {}
    for label, moments in divided.items():
        top = place.get(label)
        found[top] = found.get(top, 0) + moments
    assert found == expected


def test_the_mark_of_a_moment() -> None:
    marks = [Span("a", 2, 5), Span("b", 5, 6), Span("c", 9, 12)]
    assert [label_at(marks, moment, "-") for moment in range(13)] == list("--aaab---ccc-")
