"""The table of the editor's rooms."""

from ftui.tui.screens import editor_choices, editor_closer, editor_files, editor_info, xray_opening

ROOMS = {
    "tier": editor_choices.choose_card, "fit": editor_choices.choose_change, "compare": editor_choices.compare,
    "help": editor_info.show_help, "add": editor_choices.add_source,
    "closer": editor_closer.look_closer, "save": editor_files.save, "save_as": editor_files.save_as,
    "rows": xray_opening.open_rows_of_draft, "start": editor_files.start, "outside": editor_files.edit_outside,
}  # fmt: skip
"""What the keys open, each in a room of its own."""
