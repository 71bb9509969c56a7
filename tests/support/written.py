"""Files of a checkpoint put into a folder as `publish` would."""

from collections.abc import Mapping
from pathlib import Path

from ftui.system.checked_write import Pieces, write_checked
from ftui.system.files import make_private_folder


def put(folder: Path, files: Mapping[str, Pieces]) -> None:
    for name, pieces in files.items():
        make_private_folder((folder / name).parent)
        write_checked(folder / name, pieces)
