"""Files of a checkpoint put into a folder as `publish` would."""

from collections.abc import Mapping
from pathlib import Path

from ftui.system.files import Pieces, make_private_folder, write_checked


def put(folder: Path, files: Mapping[str, Pieces]) -> None:
    for name, pieces in files.items():
        make_private_folder((folder / name).parent)
        write_checked(folder / name, pieces)
