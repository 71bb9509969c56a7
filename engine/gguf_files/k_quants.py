"""llama.cpp's K-quants: which tensor has which type in a file of them, and the process that stores numbers so."""

import math
import os
import re
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from gguf import GGMLQuantizationType, LlamaFileType
from gguf.quants import quant_shape_to_byte_shape, quantize

from ftui.errors import ModelError
from ftui.helper.quantize_tool import TOOL, check_tool
from ftui.supervisor.engine_process import clean_environment
from ftui.system.files import open_private
from ftui.system.scratch import scratch

from .gguf_architectures import Array
from .quantize_process import REQUEST

Kind = GGMLQuantizationType
Quantize = Callable[[Array, Kind], Array]
MIXTURES = {"q4_k_m": Kind.Q4_K, "q5_k_m": Kind.Q5_K, "q6_k": Kind.Q6_K}
"""The type of most tensors of such a file."""
FILE_TYPES = {
    "q4_k_m": LlamaFileType.MOSTLY_Q4_K_M, "q5_k_m": LlamaFileType.MOSTLY_Q5_K_M, "q6_k": LlamaFileType.MOSTLY_Q6_K,
}  # fmt: skip
BLOCK = 256  # numbers of a row that share a scale
SHORT_ROWS = {Kind.Q4_K: Kind.Q5_0, Kind.Q5_K: Kind.Q5_1, Kind.Q6_K: Kind.Q8_0}
"""For rows that are no multiple of a block: llama.cpp's choice, of blocks of 32."""
_LAYER = re.compile(r"blk\.(\d+)\.(\w+)\.weight")
LAST_LINES = 4


def k_kind(name: str, length: int, kind: Kind, num_layers: int, *, is_tied: bool) -> Kind:
    """The type of a matrix whose rows have so many numbers, in a file of mostly `kind`, as llama.cpp chooses it.

    (llama-quant.cpp, `llama_tensor_get_type`: the head has 6 bits, and so have values and the way down of a layer in
    the first and last eighth of the layers, and in each third between.)
    """
    found = _LAYER.fullmatch(name)
    is_head = name == "output.weight" or (is_tied and name == "token_embd.weight")
    if is_head or (found and found[2] in ("attn_v", "ffn_down") and _is_telling(int(found[1]), num_layers)):
        kind = Kind.Q6_K
    elif found and found[2] == "attn_qkv":
        kind = {Kind.Q4_K: Kind.Q5_K}.get(kind, Kind.Q6_K)
    if length % BLOCK:
        kind = SHORT_ROWS[kind]
    return Kind.F16 if length % 32 else kind


def _is_telling(layer: int, num_layers: int) -> bool:
    eighth = num_layers // 8
    return layer < eighth or layer >= 7 * num_layers // 8 or (layer - eighth) % 3 == 2


@contextmanager
def k_quantizer() -> Iterator[Quantize]:
    """What stores rows in a type, as gguf's `quantize`, K-quants too: these by a process that has the tool.

    Raises:
        UsageError: the tool is not there.
    """
    check_tool()
    with scratch("quantize") as folder:
        output = folder / "output"
        printed = open_private(output, os.O_WRONLY)
        command = [sys.executable, "-P", "-m", f"{__package__}.quantize_process"]
        try:
            process = subprocess.Popen(
                command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=printed, env=clean_environment()
            )
        finally:
            os.close(printed)
        try:
            yield partial(_stored, process, output)
        finally:
            process.kill()
            process.communicate()


def _stored(process: "subprocess.Popen[bytes]", output: Path, values: Array, kind: Kind) -> Array:
    """Raises `ModelError` with the last lines of the process, where it has ended."""
    if kind not in MIXTURES.values():
        return np.asarray(quantize(values, kind))
    rows: Any = np.ascontiguousarray(values, np.float32).reshape(-1, values.shape[-1])
    shape = quant_shape_to_byte_shape(values.shape, kind)
    assert process.stdin is not None and process.stdout is not None, "both are pipes"
    try:
        process.stdin.write(REQUEST.pack(int(kind), *rows.shape))
        process.stdin.write(rows.data)
        process.stdin.flush()
        answer = process.stdout.read(math.prod(shape))
    except BrokenPipeError:
        answer = b""
    if len(answer) != math.prod(shape):
        process.wait()
        lines = output.read_text(errors="backslashreplace").strip().splitlines()[-LAST_LINES:]
        raise ModelError(f"{TOOL} cannot store {kind.name}:\n" + "\n".join(lines))
    return np.frombuffer(answer, np.uint8).reshape(shape)
