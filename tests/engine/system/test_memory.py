"""What is freed on the host goes back to the system."""

import ctypes
import subprocess
import sys

import pytest

GROWTH = """
import sys
import numpy as np
from ftui.engine.system.memory import return_large_blocks

def in_use():
    return next(int(line.split()[1]) for line in open("/proc/self/status") if line.startswith("RssAnon")) >> 10

if sys.argv[1:]:
    return_large_blocks()
before, kept = in_use(), []
for size in (28, 24, 24):  # MiB: the first that is freed raises glibc's limit to its size
    block = np.ones(size << 17)
    kept.append(np.ones(1 << 13))  # behind it in the heap
    del block
print(in_use() - before)
"""


@pytest.mark.slow
@pytest.mark.skipif(not hasattr(ctypes.CDLL(None), "mallopt"), reason="glibc's")
def test_large_blocks_that_are_freed_are_returned() -> None:
    def growth(*arguments: str) -> int:
        command = [sys.executable, "-c", GROWTH, *arguments]
        return int(subprocess.run(command, capture_output=True, text=True, check=True).stdout)

    assert growth("return") < 8 <= growth()
