"""The signs the screens draw with: one set for terminals that know Unicode, one in ASCII for those that do not."""

import msgspec
from msgspec.structs import replace


class Glyphs(msgspec.Struct, frozen=True):
    """`bars` are eight levels of a spark, lowest first; `dots` says whether curves are drawn in braille."""

    dots: bool
    alive: str
    idle: str
    rule: str
    wall: str
    tick: str
    corner: str
    mark: str
    grid: str
    epoch: str
    attempt: str
    full: str
    half: str
    best: str
    evaluation: str
    checkpoint: str
    cursor: str
    band: str
    curve: str
    dash: str
    separator: str
    bars: str
    newline: str


UNICODE = Glyphs(
    dots=True, alive="●", idle="○", rule="─", wall="│", tick="┤", corner="╰", mark="┴", grid="·", epoch="┊",
    attempt="╎", full="━", half="╸", best="◆", evaluation="◇", checkpoint="▲", cursor="▸", band="⣿", curve="⣿",
    dash="\N{EN DASH}", separator="·", bars="▁▂▃▄▅▆▇█", newline="↵",
)  # fmt: skip
BLOCK = replace(UNICODE, dots=False, corner="└", attempt="│", band="░", curve="█")
ASCII = Glyphs(
    dots=False, alive="*", idle="o", rule="-", wall="|", tick="+", corner="+", mark="+", grid=".", epoch=":",
    attempt="!", full="=", half="-", best="@", evaluation="o", checkpoint="^", cursor=">", band=":", curve="*",
    dash="-", separator="|", bars="_.-=+*#@", newline="\\n",
)  # fmt: skip

PLAIN = str.maketrans({"…": "~", "·": ASCII.separator})
"""What texts are written with that come from rooms which know no set, and what stands for it in ASCII; as wide."""

SETS = {"braille": UNICODE, "block": BLOCK, "ascii": ASCII}
"""By the names that FTUI_GLYPHS takes."""
