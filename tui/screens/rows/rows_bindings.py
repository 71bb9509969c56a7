"""The keys of the X-ray: what stands first is first in its footer."""

from textual.binding import Binding, BindingType

ALWAYS = {"back"}
ON_ROWS = {"go", "next-finding", "finding-before", "rows"}
ON_REPORT = {"next", "before", "report", "raw", "boundaries", "more"}
"""Keys (by their ids) that mean something before there is a row; nothing beside a row; nothing on the report."""

NEXT = "The next row, or the next part of a long one; on the report: the next finding"
BEFORE = "The row or the part before; on the report: the finding before"
TURN = "What was found in the rows; again: the row"
"""What a key does on either page: help tells it once."""

LEGEND = {
    "third line": "the whole row: thick where it is trained on, thin where it is not, dots where it is cut",
    "beside": "{wall} a line with something to train on  {attempt} one that is cut  {cursor} one that was found",
    "findings": "{best} red: a run would not start  {checkpoint} yellow  {idle} note",
}
"""What the signs on these pages mean."""

XRAY_KEYS: list[BindingType] = [
    Binding("enter", "go", "go to row", tooltip="On the report: the row under the cursor", id="go"),
    Binding("n", "step(1)", "next", tooltip=NEXT, id="next"),
    Binding("p", "step(-1)", "previous", tooltip=BEFORE, id="before"),
    Binding("n", "step(1)", "next", tooltip=NEXT, id="next-finding"),
    Binding("p", "step(-1)", "previous", tooltip=BEFORE, id="finding-before"),
    Binding("R", "turn", "report", tooltip=TURN, id="report"),
    Binding("R", "turn", "row", tooltip=TURN, id="rows"),
    Binding("v", "raw", "raw", tooltip="The row as it stands in its file, beside or instead", id="raw"),
    Binding("slash", "search", "find", key_display="/", tooltip="The next row with a text in it", id="search"),
    Binding("l", "jump('longest')", "longest", tooltip="The longest row; again: the second longest", id="longest"),
    Binding("c", "jump('most_truncated')", "most cut", tooltip="The row that loses most at max_length", id="cut"),
    Binding("t", "jump('least_trained')", "least", tooltip="The row of which the least is trained on", id="least"),
    Binding("r", "jump('random')", "random", tooltip="Any row, or any part of one", id="random"),
    Binding("s", "jump('shortest')", "shortest", tooltip="The shortest row; again: the next one", id="shortest"),
    Binding("g", "number", "number", tooltip="A row by its number or its place, FILE:LINE; a part", id="number"),
    Binding("b", "boundaries", "tokens", tooltip="Where one token ends and the next begins", id="boundaries"),
    Binding("m", "more", "more", show=False, tooltip="More of what is cut, where not all of it is shown", id="more"),
    Binding("a", "again", "again", show=False, tooltip="Read the files again", id="again"),
    Binding("up,k", "scroll(-1)", "up", show=False, tooltip="A line up", id="up"),
    Binding("down,j", "scroll(1)", "down", show=False, tooltip="A line down", id="down"),
    Binding("pageup", "page(-1)", "page up", show=False, tooltip="A page up", id="page-up"),
    Binding("pagedown,space", "page(1)", "page down", show=False, tooltip="A page down", id="page-down"),
    Binding("home", "scroll(-1000000)", "first", show=False, tooltip="The first line", id="first"),
    Binding("end", "scroll(1000000)", "last", show=False, tooltip="The last line", id="last"),
    Binding("escape,backspace,q", "leave", "back", key_display="esc", tooltip="To the row; from there back", id="back"),
]
