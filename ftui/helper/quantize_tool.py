"""The library that stores numbers as llama.cpp's K-quants: `libgguf`, in the extra `gguf`."""

from importlib.util import find_spec

from ftui.errors import UsageError

TOOL = "libgguf"


def check_tool() -> None:
    """Raises `UsageError` with the command that installs it, where it is not there."""
    if find_spec(TOOL) is None:
        raise UsageError(
            f"K-quants are made by {TOOL} (Apache-2.0), which is not there.",
            hint="Install it: pip install 'finetune-tui[gguf]'",
        )
