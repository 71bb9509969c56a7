"""How a terminal is asked to call for its user: the bell, or a notification of the desktop it runs on."""

from typing import Literal, get_args

from ftui.text import shown

Attention = Literal["bell", "osc9", "osc777", "none"]
ATTENTIONS: tuple[Attention, ...] = get_args(Attention)
BELL = "\a"


def attention_sequence(how: Attention, title: str, body: str, *, in_tmux: bool) -> str:
    """What to write: the bell; OSC 9 (iTerm2, Windows Terminal, Ghostty) or OSC 777 (VTE, foot, kitty, WezTerm).

    tmux hands such a sequence on where it is wrapped, and `allow-passthrough` is on; a bell it hands on by itself.
    """
    text = f"{shown(title)}: {shown(body)}"
    match how:
        case "none":
            return ""
        case "bell":
            return BELL
        case "osc9":
            sequence = f"\x1b]9;{text}{BELL}"
        case "osc777":  # a semicolon would begin another field
            sequence = f"\x1b]777;notify;{shown(title).replace(';', ',')};{shown(body).replace(';', ',')}{BELL}"
    return "\x1bPtmux;" + sequence.replace("\x1b", "\x1b\x1b") + "\x1b\\" if in_tmux else sequence
