"""The keys of the editor: what stands first is first in its footer."""

from collections.abc import Iterable

from textual.binding import Binding, BindingType

PAGE = 10
TYPING_KEYS = ("edit", "back")
FINDING_KEYS = ("go", "back")
"""By their ids: those that stand in the footer while something is typed."""
TYPING_ACTIONS = ("edit", "leave", "move")
"""What a key still does then; every other key came before the line of input had the focus, and is typed."""

EDITOR_KEYS: list[BindingType] = [
    Binding("enter", "edit", "edit", tooltip="Change the value; choose from a list; open a table", id="edit"),
    Binding("enter", "edit", "go", tooltip="While finding: go to the key", id="go"),
    Binding("slash", "find", "find", key_display="/", tooltip="Find a key by its name or its help", id="find"),
    Binding("w", "open('save')", "save", tooltip="Write the file; comments and order stay", id="save"),
    Binding("s", "open('start')", "start", tooltip="Save it and see what would be started", id="start"),
    Binding("r", "open('rows')", "rows", tooltip="The rows as the model sees them, and what is wrong", id="rows"),
    Binding("t", "open('tier')", "tier", tooltip="The card to estimate for, and its tier below the profile", id="tier"),
    Binding("f", "open('fit')", "fit", tooltip="What would make it fit the card, or use it better", id="fit"),
    Binding("u,ctrl+z", "step(-1)", "undo", key_display="u", tooltip="Take the last change back", id="undo"),
    Binding("U,ctrl+y", "step(1)", "redo", key_display="U", show=False, tooltip="Do it again", id="redo"),
    Binding("v", "view('toml')", "text", tooltip="The profile's text; again: the form", id="text"),
    Binding("b", "view('estimate')", "memory", tooltip="Where the memory goes; again: the form", id="memory"),
    Binding("x,delete", "clear", "unset", key_display="x", tooltip="Unset the key: the layer below counts", id="unset"),
    Binding("d", "open('compare')", "diff", tooltip="What differs from the file, a tier or another profile", id="diff"),
    Binding("i", "open('help')", "key's help", show=False, tooltip="All that is known about this key", id="key-help"),
    Binding("a", "open('add')", "add", show=False, tooltip="Add a source of rows to data.train or data.eval", id="add"),
    Binding("W", "open('save_as')", "save as", show=False, tooltip="Write it to another file", id="save-as"),
    Binding("c", "open('closer')", "closer", show=False, tooltip="Count the rows, simulate the model", id="closer"),
    Binding("E", "open('outside')", "editor", show=False, tooltip="Edit the text in $EDITOR", id="outside"),
    Binding("n", "next('fault')", "next fault", show=False, tooltip="The next key with a fault", id="fault"),
    Binding("m", "next('change')", "next change", show=False, tooltip="The next changed key", id="change"),
    Binding("space", "cycle(1)", "toggle", show=False, tooltip="Switch it; the next choice", id="toggle"),
    Binding("right,l", "cycle(1)", "next choice", show=False, tooltip="The next choice; open a table", id="right"),
    Binding("left,h", "cycle(-1)", "choice before", show=False, tooltip="The choice before; close a table", id="left"),
    Binding("right_square_bracket", "table(1)", "next table", show=False, tooltip="The next table", id="table"),
    Binding(
        "left_square_bracket", "table(-1)", "table before", show=False, tooltip="The table before", id="table-before"
    ),
    Binding("up,shift+tab", "move(-1)", "up", show=False, tooltip="A key up; takes what is typed", id="up"),
    Binding("down,tab", "move(1)", "down", show=False, tooltip="A key down; takes what is typed", id="down"),
    Binding("k", "go(-1)", "up", show=False, tooltip="A key up", id="k"),
    Binding("j", "go(1)", "down", show=False, tooltip="A key down", id="j"),
    Binding("pageup", f"move(-{PAGE})", "page up", show=False, tooltip=f"{PAGE} keys up", id="page-up"),
    Binding("pagedown", f"move({PAGE})", "page down", show=False, tooltip=f"{PAGE} keys down", id="page-down"),
    Binding("home", "move(-1000000)", "first", show=False, tooltip="The first key", id="first"),
    Binding("end", "move(1000000)", "last", show=False, tooltip="The last key", id="last"),
    Binding("escape", "leave", "back", key_display="esc", tooltip="Back; asks where something is not saved", id="back"),
    Binding("backspace,q", "go_back", "back", show=False, tooltip="The same", id="back-too"),
]


def hidden_ids(mode: str, bindings: Iterable[Binding]) -> set[str]:
    """Ids of the keys that mean nothing in this mode of the line of input, and are not in the footer."""
    if not mode:
        return {"go"}
    visible = TYPING_KEYS if mode == "typing" else FINDING_KEYS
    return {binding.id for binding in bindings if binding.id and binding.id not in visible}
