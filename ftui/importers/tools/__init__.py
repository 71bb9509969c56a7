"""The tools whose files are imported: a module for each, which holds its table of rules."""

from ftui.errors import ProfileError
from ftui.importers.config_file import Document
from ftui.importers.rules import SourceTool
from ftui.importers.tools.axolotl import AXOLOTL
from ftui.importers.tools.deepspeed import DEEPSPEED
from ftui.importers.tools.guides import GUIDE
from ftui.importers.tools.llamafactory import LLAMAFACTORY
from ftui.importers.tools.torchtune import TORCHTUNE
from ftui.importers.tools.trl import TRL

TOOLS = (TORCHTUNE, DEEPSPEED, AXOLOTL, LLAMAFACTORY, TRL, GUIDE)
"""In the order in which they are asked: the keys of an earlier one are less like those of others."""


def find_tool(document: Document) -> SourceTool:
    """Whose file it is, by its keys.

    Raises:
        ProfileError: nobody's that is known.
    """
    for tool in TOOLS:
        if tool.recognizes(document):
            return tool
    known = ", ".join(tool.name for tool in (AXOLOTL, LLAMAFACTORY, TRL, TORCHTUNE, DEEPSPEED))
    raise ProfileError(
        f"{document.path} has no shape that can be imported.",
        hint=f"Known: the training files of {known}, and tables model, lora, data, training as guides have them.",
    )
