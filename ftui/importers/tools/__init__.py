"""The tools whose files are imported: a module for each, which holds its table of rules."""

from ftui.errors import ProfileError
from ftui.importers.accelerate_config import ACCELERATE
from ftui.importers.config_file import Document
from ftui.importers.rules import SourceTool
from ftui.importers.tools.axolotl import AXOLOTL
from ftui.importers.tools.deepspeed import DEEPSPEED
from ftui.importers.tools.guides import GUIDE
from ftui.importers.tools.litgpt import LITGPT
from ftui.importers.tools.llamafactory import LLAMAFACTORY
from ftui.importers.tools.torchtune import TORCHTUNE
from ftui.importers.tools.trl import TRL
from ftui.importers.tools.unread import unread_tool
from ftui.text import shown

TOOLS = (TORCHTUNE, LITGPT, DEEPSPEED, ACCELERATE, AXOLOTL, LLAMAFACTORY, TRL, GUIDE)
"""In the order in which they are asked: the keys of an earlier one are less like those of others."""

FEW = 2  # unknown keys that a file may have however short it is: slips, and what is new


def find_tool(document: Document) -> SourceTool:
    """Whose file it is, by its keys. A key never gets the meaning that it has for another tool.

    Raises:
        ProfileError: nobody's that is read.
    """
    known = ", ".join(tool.name for tool in TOOLS if tool is not GUIDE)
    hint = f"Read are the training files of {known}, and tables model, lora, data, training as guides have them."
    if name := unread_tool(document):
        raise ProfileError(f"{document.path} is a file of {name}: ftui does not read those.", hint=hint)
    why = ""
    for tool in TOOLS:
        if tool.recognizes(document):
            strange = [leaf.name for leaf in document.leaves if tool.is_strange(leaf)]
            if len(strange) <= max(FEW, tool.most_strange * len(document.leaves)):
                return tool
            why = f" {len(strange)} of its {len(document.leaves)} keys are unknown, such as {shown(strange[0])}."
    raise ProfileError(f"{document.path} has no shape that can be imported: it is of no known tool.{why}", hint=hint)
