"""`python -P -m ftui.engine.gguf_files.quantize_process`: numbers as K-quants, by libgguf.

A process of its own: what the library's native code does ends nobody else.
"""

import os
import struct
import sys

REQUEST = struct.Struct("<iqq")
"""The type by ggml's number, rows, numbers of a row; as many float32 follow. The answer is their bytes in that type."""


def main() -> None:
    """Answer until the input ends."""
    requests, answers = sys.stdin.buffer, os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)  # what the library prints is no answer
    import libgguf
    import numpy as np

    while head := requests.read(REQUEST.size):
        kind, num_rows, length = REQUEST.unpack(head)
        rows = np.frombuffer(requests.read(4 * num_rows * length), np.float32).reshape(num_rows, length)
        answers.write(np.ascontiguousarray(libgguf.quantize_rows(rows, kind)).tobytes())
        answers.flush()


if __name__ == "__main__":
    main()
