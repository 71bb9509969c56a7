"""How a terminal is called: never with anything foreign in the sequence, in tmux wrapped for it."""

from hypothesis import given
from hypothesis import strategies as st

from ftui.tui.render.terminal import look_around
from ftui.tui.render.terminal_call import ATTENTIONS, attention_sequence


def test_each_way() -> None:
    def sequence(how: str, **options: bool) -> str:
        return attention_sequence(how, "mine", "a;b", **{"in_tmux": False, **options})  # type: ignore[arg-type]

    assert sequence("none") == "" and sequence("bell") == sequence("bell", in_tmux=True) == "\a"
    assert sequence("osc9") == "\x1b]9;mine: a;b\a"
    assert sequence("osc777") == "\x1b]777;notify;mine;a,b\a"
    assert sequence("osc9", in_tmux=True) == "\x1bPtmux;\x1b\x1b]9;mine: a;b\a\x1b\\"


@given(st.sampled_from(ATTENTIONS), st.text(), st.text())
def test_foreign_text_ends_no_sequence(how: str, title: str, body: str) -> None:
    sequence = attention_sequence(how, title, body, in_tmux=False)  # type: ignore[arg-type]
    assert sequence.count("\x1b") == how.startswith("osc") and sequence.count("\a") == (how != "none")


def test_the_environment_chooses() -> None:
    assert look_around({}).attention == look_around({"FTUI_BELL": "?"}).attention == "bell"
    assert look_around({"FTUI_BELL": "osc777"}).attention == "osc777"
