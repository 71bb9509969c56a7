"""Code in an interpreter of its own, for what happens once in a process: imports."""

import subprocess
import sys


def answer_of(code: str, *arguments: str) -> str:
    """What a fresh interpreter prints that runs `code`."""
    done = subprocess.run([sys.executable, "-P", "-c", code, *arguments], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return done.stdout
