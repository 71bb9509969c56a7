"""The C files beside this one, compiled for LD_PRELOAD."""

import shutil
import subprocess
import sys
from pathlib import Path

import pytest


def compiled(name: str, folder: Path) -> Path:
    """The library of NAME.c; without Linux and a C compiler the test is skipped."""
    compiler = shutil.which("gcc") or shutil.which("cc")
    if sys.platform != "linux" or compiler is None:
        pytest.skip("a shim needs Linux and a C compiler")
    library = folder / f"{name}.so"
    source = Path(__file__).with_name(f"{name}.c")
    command = [compiler, "-shared", "-fPIC", "-O1", "-Wall", "-Werror", "-o", str(library), str(source), "-ldl"]
    subprocess.run(command, check=True)
    return library
