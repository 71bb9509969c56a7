"""A model in transformers format as a GGUF file, written tensor by tensor."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from io import BytesIO
from pathlib import Path
from typing import Any

import numpy as np
from gguf import GGUFWriter, LlamaFileType
from gguf.gguf_writer import WriterState
from gguf.quants import quantize
from transformers import AutoConfig

from . import k_quants
from .gguf_architectures import Architecture, Array, find_architecture, write_header
from .k_quants import Quantize
from .tensors import KINDS, PlannedTensor, plan_tensors, read_pieces
from .vocabulary import Vocabulary, read_vocabulary, write_vocabulary

FILE_TYPES = {
    "f16": LlamaFileType.MOSTLY_F16, "bf16": LlamaFileType.MOSTLY_BF16, "q8_0": LlamaFileType.MOSTLY_Q8_0,
    **k_quants.FILE_TYPES,
}  # fmt: skip
HEAD_BYTES = 64  # of a token or a merge in the header, more than they take


@dataclass(frozen=True)
class ModelPlan:
    """Everything that is known of a file before it is written."""

    config: Any
    architecture: Architecture
    vocabulary: Vocabulary
    tensors: list[PlannedTensor]
    kind: str

    @property
    def num_bytes(self) -> int:
        """About the size of the file, and not less."""
        words = len(self.vocabulary.tokens) + len(self.vocabulary.merges)
        return sum(tensor.num_bytes + 256 for tensor in self.tensors) + words * HEAD_BYTES + (1 << 20)


def plan_model(folder: Path, kind: str) -> ModelPlan:
    """What the file of the model in `folder` will hold; `kind` is one of `KINDS`.

    Raises:
        ModelError: its architecture, its tokenizer or its weights cannot be written as GGUF.
    """
    config = AutoConfig.from_pretrained(folder, local_files_only=True)
    architecture = find_architecture(config)
    tensors = plan_tensors(folder, config, architecture, KINDS[kind])
    return ModelPlan(config, architecture, read_vocabulary(folder, config), tensors, kind)


def model_pieces(plan: ModelPlan, name: str, quantize: Quantize = quantize) -> Iterator[memoryview]:
    """The bytes of the file from its beginning, a part of a tensor at a time.

    Raises:
        ModelError: a tensor holds what its type cannot.
    """
    writer = GGUFWriter(None, plan.architecture.name)
    writer.add_type("model")
    writer.add_name(name)
    writer.add_file_type(FILE_TYPES[plan.kind])
    writer.add_quantization_version(2)
    write_header(writer, plan.config)
    write_vocabulary(writer, plan.vocabulary)
    yield from file_pieces(
        writer, plan.tensors, lambda tensor: read_pieces(tensor, plan.config, plan.architecture, quantize)
    )


def file_pieces(
    writer: GGUFWriter, tensors: Sequence[PlannedTensor], read: Callable[[PlannedTensor], Iterable[Array]]
) -> Iterator[memoryview]:
    """The keys that a writer has got, then what `read` gives of each tensor. (It takes whole tensors only.)"""
    for tensor in tensors:
        writer.add_tensor_info(tensor.name, tensor.shape, np.dtype(np.float32), tensor.num_bytes, tensor.kind)
    head: Any = BytesIO()
    writer.fout, writer.state = [head], WriterState.EMPTY  # in place of a file that it would open
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_ti_data_to_file()
    writer.write_padding(head, head.tell())
    yield head.getbuffer()
    for tensor in tensors:
        written = 0
        for values in read(tensor):
            yield values.reshape(-1).view(np.uint8).data
            written += values.nbytes
        assert written == tensor.num_bytes, f"{tensor.name}: {written} of {tensor.num_bytes} bytes"
        yield memoryview(bytes(-written % writer.data_alignment))
