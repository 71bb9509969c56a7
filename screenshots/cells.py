"""Terminal cells as a PNG: text by a font, blocks, lines and braille as shapes, the way terminals draw them."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from PIL import Image, ImageDraw, ImageFont
from textual.strip import Strip

from ftui.text import cells

WIDTH, HEIGHT, MARGIN = 20, 42, 24  # pixels of a cell and around the screen
FONT_SIZE = 33  # a letter of DejaVu Sans Mono is as wide as a cell then
COLORS = 128  # of the picture: there are about 25, and their blends at the edges of letters
REGULAR, BOLD = "DejaVuSansMono.ttf", "DejaVuSansMono-Bold.ttf"
THIN, THICK = 2, 4

ARMS = {
    "─": "lr", "━": "LR", "│": "ud", "┤": "udl", "┴": "lru", "╰": "ur", "└": "ur", "╸": "L",
}  # fmt: skip
"""Which ways the strokes of a line sign go; capitals are thick."""
DASHED = {"┊": 4, "╎": 2}
"""Vertical lines of so many dashes."""


@dataclass(frozen=True)
class Cell:
    """A character with its colours (`#rrggbb`): its own, and the one behind it."""

    sign: str
    color: str
    behind: str
    bold: bool


def cells_of(strips: Sequence[Strip], color: str, behind: str) -> list[list[Cell]]:
    """Every cell of the rows; `color` and `behind` where a style says nothing."""
    rows = []
    for strip in strips:
        row: list[Cell] = []
        for text, style, _ in strip._segments:
            front = style.color.get_truecolor().hex if style and style.color else color
            back = style.bgcolor.get_truecolor().hex if style and style.bgcolor else behind
            if style and style.reverse:
                front, back = back, front
            for sign in text:
                row.append(Cell(sign, front, back, bool(style and style.bold)))
                row += [Cell(" ", front, back, False)] * (cells(sign) - 1)
        rows.append(row)
    return rows


def draw(rows: Sequence[Sequence[Cell]], behind: str, target: Path) -> None:
    """Write the picture as PNG."""
    paint(rows, behind).quantize(COLORS, method=Image.Quantize.MAXCOVERAGE).save(target, optimize=True)


def paint(rows: Sequence[Sequence[Cell]], behind: str) -> Image.Image:
    """The cells as a picture, WIDTH x HEIGHT pixels each, with a margin in the colour `behind`."""
    size = (max(map(len, rows)) * WIDTH + 2 * MARGIN, len(rows) * HEIGHT + 2 * MARGIN)
    image = Image.new("RGB", size, behind)
    pen = ImageDraw.Draw(image)
    fonts = {False: ImageFont.truetype(REGULAR, FONT_SIZE), True: ImageFont.truetype(BOLD, FONT_SIZE)}
    for y, row in enumerate(rows):
        for x, cell in enumerate(row):
            place = (MARGIN + x * WIDTH, MARGIN + y * HEIGHT)
            pen.rectangle((*place, place[0] + WIDTH - 1, place[1] + HEIGHT - 1), fill=cell.behind)
    for y, row in enumerate(rows):
        for x, cell in enumerate(row):
            if cell.sign != " ":
                _sign(pen, (MARGIN + x * WIDTH, MARGIN + y * HEIGHT), cell, fonts[cell.bold])
    return image


def _sign(pen: ImageDraw.ImageDraw, place: tuple[int, int], cell: Cell, font: ImageFont.FreeTypeFont) -> None:
    code, (x, y) = ord(cell.sign), place
    if 0x2800 <= code <= 0x28FF:
        _braille(pen, x, y, code - 0x2800, cell.color)
    elif 0x2581 <= code <= 0x2588:  # a bar of so many eighths
        pen.rectangle((x, y + HEIGHT - round(HEIGHT * (code - 0x2580) / 8), x + WIDTH - 1, y + HEIGHT - 1), cell.color)
    elif cell.sign in ARMS:
        _line(pen, x, y, ARMS[cell.sign], cell.color)
    elif cell.sign in DASHED:
        _dashes(pen, x, y, DASHED[cell.sign], cell.color)
    elif code > 0x2190:  # a symbol: in the middle of its cell, whatever its font thinks
        left, top, right, bottom = font.getbbox(cell.sign)
        middle = x + (WIDTH - (right - left)) / 2 - left, y + (HEIGHT - (bottom - top)) / 2 - top
        pen.text(middle, cell.sign, font=font, fill=cell.color)
    else:
        pen.text((x, y + (HEIGHT - FONT_SIZE * 1.25) / 2), cell.sign, font=font, fill=cell.color)


def _braille(pen: ImageDraw.ImageDraw, x: int, y: int, bits: int, color: str) -> None:
    radius = WIDTH * 0.16
    for bit, (column, row) in enumerate(((0, 0), (0, 1), (0, 2), (1, 0), (1, 1), (1, 2), (0, 3), (1, 3))):
        if bits >> bit & 1:
            px, py = x + WIDTH * (0.25 + 0.5 * column), y + HEIGHT * (0.125 + 0.25 * row)
            pen.ellipse((px - radius, py - radius, px + radius, py + radius), fill=color)


def _line(pen: ImageDraw.ImageDraw, x: int, y: int, arms: str, color: str) -> None:
    middle_x, middle_y = x + WIDTH // 2, y + HEIGHT // 2
    for arm in arms:
        half = (THICK if arm.isupper() else THIN) // 2
        across = (middle_y - half, middle_y + half - 1)
        along = (middle_x - half, middle_x + half - 1)
        match arm.lower():
            case "l":
                pen.rectangle((x, across[0], middle_x, across[1]), fill=color)
            case "r":
                pen.rectangle((middle_x, across[0], x + WIDTH - 1, across[1]), fill=color)
            case "u":
                pen.rectangle((along[0], y, along[1], middle_y), fill=color)
            case _:
                pen.rectangle((along[0], middle_y, along[1], y + HEIGHT - 1), fill=color)


def _dashes(pen: ImageDraw.ImageDraw, x: int, y: int, number: int, color: str) -> None:
    middle, length = x + WIDTH // 2, HEIGHT / number
    for dash in range(number):
        top = y + round(length * (dash + 0.2))
        pen.rectangle((middle - 1, top, middle, top + round(length * 0.6) - 1), fill=color)
