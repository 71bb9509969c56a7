"""The tool that stores numbers as llama.cpp's K-quants: `libgguf`, in a folder of its own beside ftui's libraries."""

import os
import shlex
import sys
from pathlib import Path

from ftui.errors import UsageError
from ftui.system.user_folders import state_folder

TOOL, VERSION = "libgguf", "0.2.2"


def tool_folder() -> Path:
    """Where pip is told to put it."""
    return state_folder() / "tools" / TOOL


def check_tool() -> None:
    """Raises `UsageError` with the command that installs it, where it is not there."""
    if os.path.isfile(tool_folder() / TOOL / "__init__.py"):
        return
    target = shlex.quote(str(tool_folder()))
    command = f"{shlex.quote(sys.executable)} -m pip install --no-deps --target {target} {TOOL}=={VERSION}"
    raise UsageError(
        f"K-quants are made by {TOOL} (Apache-2.0), which is not there.",
        hint=f"Install it into a folder of its own: {command}",
    )
