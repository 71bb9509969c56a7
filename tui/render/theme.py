"""How the screens look: one accent per meaning, everything else a grey, in three palettes a theme.

Over SSH and in tmux 256 colours are the normal case, and the nearest colours that a library would pick there are not
good ones (dark slate becomes navy), so those palettes are made of exact xterm-256 values. Contrast against the
background (WCAG): text above 10:1, muted above 4.5:1, faint above 3:1. No meaning hangs on a colour alone.
"""

from collections.abc import Mapping
from functools import cache

import msgspec
from rich.style import Style

from .glyphs import Glyphs

Palette = Mapping[str, str]

DARK: Palette = {
    "background": "#0e1116", "panel": "#171c24", "rule": "#2b3440", "faint": "#667388", "muted": "#8490a6",
    "text": "#c5cedb", "bright": "#f2f5f9", "cursor": "#1f2935",
    "loss": "#6cb6ff", "loss_dim": "#3a5f86", "band": "#35506f", "eval": "#f0b45b", "eval_dim": "#7d6238",
    "good": "#6fcf97", "good_dim": "#3c6b52", "warn": "#f0b45b", "bad": "#ff7b72", "violet": "#b69cff",
    "violet_dim": "#5b5087", "pink": "#f191c1", "pink_dim": "#7c4a66",
}  # fmt: skip
DARK_256: Palette = {
    "background": "#121212", "panel": "#1c1c1c", "rule": "#444444", "faint": "#767676", "muted": "#8a8a8a",
    "text": "#d0d0d0", "bright": "#ffffff", "cursor": "#303030",
    "loss": "#5fafff", "loss_dim": "#005f87", "band": "#005f87", "eval": "#ffaf5f", "eval_dim": "#875f00",
    "good": "#87d787", "good_dim": "#5f875f", "warn": "#ffaf5f", "bad": "#ff5f5f", "violet": "#af87ff",
    "violet_dim": "#5f5f87", "pink": "#ff87af", "pink_dim": "#875f5f",
}  # fmt: skip
LIGHT: Palette = {
    "background": "#fbfbf8", "panel": "#f1f1ec", "rule": "#d3d6d6", "faint": "#858b93", "muted": "#626a75",
    "text": "#2a3140", "bright": "#05080d", "cursor": "#e0e7f0",
    "loss": "#1463b8", "loss_dim": "#8fb4dd", "band": "#b9cfe8", "eval": "#a85b00", "eval_dim": "#e0bb8c",
    "good": "#157a42", "good_dim": "#9bcdb0", "warn": "#a85b00", "bad": "#c22b22", "violet": "#6a45c4",
    "violet_dim": "#c0b2e8", "pink": "#b0286f", "pink_dim": "#e3b0ca",
}  # fmt: skip
LIGHT_256: Palette = {
    "background": "#ffffff", "panel": "#eeeeee", "rule": "#c6c6c6", "faint": "#808080", "muted": "#626262",
    "text": "#303030", "bright": "#000000", "cursor": "#d7d7ff",
    "loss": "#005faf", "loss_dim": "#87afd7", "band": "#afd7ff", "eval": "#af5f00", "eval_dim": "#d7af87",
    "good": "#00875f", "good_dim": "#87d7af", "warn": "#af5f00", "bad": "#d70000", "violet": "#5f5faf",
    "violet_dim": "#afafd7", "pink": "#af005f", "pink_dim": "#d7afaf",
}  # fmt: skip

BOLD = {"title": "text", "number": "bright", "key": "loss", "alarm": "bad", "special": "violet"}
"""Styles that are another one in bold."""


class Look(msgspec.Struct, frozen=True):
    """A palette and the signs that go with the terminal. Two looks that are equal share their styles."""

    name: str
    dark: bool
    palette: Palette
    glyphs: Glyphs

    def __hash__(self) -> int:
        return hash(self.name)

    def style(self, name: str, *, on: str = "background") -> Style:
        """The style of that name; `on` is the palette's name of what is behind it."""
        return _style(self, name, on)


@cache
def _style(look: Look, name: str, on: str) -> Style:
    color = look.palette[BOLD.get(name, name)]
    return Style(color=color, bgcolor=look.palette[on], bold=name in BOLD or None)


def choose(name: str, *, truecolor: bool, glyphs: Glyphs) -> Look:
    """The `dark` or `light` look for a terminal."""
    palettes = {
        ("dark", True): DARK, ("dark", False): DARK_256, ("light", True): LIGHT, ("light", False): LIGHT_256,
    }  # fmt: skip
    return Look(f"{name}-{'rgb' if truecolor else '256'}", name == "dark", palettes[name, truecolor], glyphs)
