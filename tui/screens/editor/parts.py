"""The table of the editor's rooms."""

from ..rows import open_rows
from . import choices, file_actions, key_info, simulation

ROOMS = {
    "tier": choices.choose_card, "fit": choices.choose_change, "compare": choices.compare,
    "help": key_info.show_help, "add": choices.add_source,
    "closer": simulation.look_closer, "save": file_actions.save, "save_as": file_actions.save_as,
    "rows": open_rows.open_rows_of_draft, "start": file_actions.start, "outside": file_actions.edit_outside,
}  # fmt: skip
"""What the keys open, each in a room of its own."""
