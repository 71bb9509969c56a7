"""What the terminal at hand can show, from the environment and, in tmux, from tmux itself."""

import os
import subprocess
from collections.abc import Mapping

import msgspec

from .glyphs import ASCII, SETS, UNICODE, Glyphs
from .terminal_call import ATTENTIONS, Attention

TMUX_SECONDS = 1.0  # it answers in 5 ms; a hung server must not hang the screens
LOCAL_HZ = 4.0
REMOTE_HZ = 2.0  # half the bytes on the link, and nobody reads faster


class Terminal(msgspec.Struct, frozen=True):
    """`hz`: how often the live view looks and paints. `attention`: how it calls for its user."""

    truecolor: bool
    glyphs: Glyphs
    hz: float
    attention: Attention = "bell"
    in_tmux: bool = False


def look_around(environment: Mapping[str, str] = os.environ) -> Terminal:
    """Ask the environment: FTUI_GLYPHS (braille, block, ascii), FTUI_HZ and FTUI_BELL insist."""
    unicode, truecolor = _speaks_unicode(environment), environment.get("COLORTERM") in ("truecolor", "24bit")
    if environment.get("TMUX"):  # it knows the terminal it is shown on, which the environment does not
        utf8, features = ask_tmux()
        unicode, truecolor = unicode and utf8, truecolor or "RGB" in features
    glyphs = SETS.get(environment.get("FTUI_GLYPHS", ""), UNICODE if unicode else ASCII)
    remote = bool(environment.get("SSH_CONNECTION"))
    hz = _hertz(environment.get("FTUI_HZ", ""), REMOTE_HZ if remote else LOCAL_HZ)
    attention = next((how for how in ATTENTIONS if how == environment.get("FTUI_BELL")), ATTENTIONS[0])
    return Terminal(truecolor, glyphs, hz, attention, bool(environment.get("TMUX")))


def _hertz(text: str, default: float) -> float:
    try:
        return min(10.0, max(0.2, float(text)))
    except ValueError:
        return default


def _speaks_unicode(environment: Mapping[str, str]) -> bool:
    locale = next((environment[name] for name in ("LC_ALL", "LC_CTYPE", "LANG") if environment.get(name)), "")
    if environment.get("TERM") in ("linux", "vt100", "vt220"):
        return False
    return "utf" in locale.lower() or not locale  # pods often set no locale, and their terminals are UTF-8


def ask_tmux() -> tuple[bool, str]:
    """Whether tmux's client speaks UTF-8, and its features; what most have where tmux does not answer."""
    try:
        answer = subprocess.run(
            ["tmux", "display-message", "-p", "#{client_utf8} #{client_termfeatures}"],
            capture_output=True,
            text=True,
            timeout=TMUX_SECONDS,
            check=True,
        )
    except (OSError, subprocess.SubprocessError):
        return True, ""
    utf8, _, features = answer.stdout.strip().partition(" ")
    return utf8 != "0", features
