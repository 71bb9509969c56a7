"""Every tensor that is made and dies while real training code runs on the `meta` device, as a list of events."""

import weakref
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch.utils._python_dispatch import TorchDispatchMode

from .kernels import PRODUCTS, Kernels

Event = tuple[int, int]
"""A block's number and its bytes: positive when it is made, negative when it is given back."""

CLEAR: Event = (-1, 0)
"""The program empties the allocator's cache (`torch.cuda.empty_cache`): whole free segments go back to the driver."""

READ_SCALAR = torch.ops.aten._local_scalar_dense.default
CAST = torch.ops.aten._to_copy.default


@dataclass(frozen=True)
class PhaseMark:
    """From the event at `index` on, `phase` runs (of pass `iteration`), in layer number `layer` (`None`: in none)."""

    index: int
    iteration: int
    phase: str
    layer: int | None


class MemoryTracker(TorchDispatchMode):
    """Follows storages by weak references. Sizes are rounded as the device's allocator rounds them.

    Attributes:
        events: what was made and given back, in order.
        parts: what each block holds, by its number: a name of `ftui.estimate.result.PARTS`.
        marks: which phase and layer the events belong to.
        vocab_size: tensors whose last dimension is as long are logits.
        truth: the answer to every boolean that the model's code reads from a tensor. True says: no padding, one
            sequence a row.
    """

    def __init__(self, kernels: Kernels, vocab_size: int = 0, truth: bool = True) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.events: list[Event] = []
        self.parts: list[str] = []
        self.marks: list[PhaseMark] = [PhaseMark(0, 0, "loading", None)]
        self.vocab_size, self.truth = vocab_size, truth
        self._temporaries, self._rounding = kernels.temporaries, kernels.rounding
        self._workspace, self._threads = kernels.workspace, set[str]()
        self._blocks: dict[int, tuple[weakref.ref[torch.UntypedStorage], int]] = {}
        self._cast_from: dict[int, int] = {}  # number of a block that is another one in another type: of that one

    def take(self, num_bytes: int, part: str) -> int:
        """Note a block that no tensor stands for; returns its number, for `give_back`."""
        number = len(self.parts)
        self.events.append((number, -(-num_bytes // self._rounding) * self._rounding))
        self.parts.append(part)
        return number

    def give_back(self, number: int, num_bytes: int) -> None:
        """The block `number` of `num_bytes`, as they were taken, is free."""
        self.events.append((number, -(-num_bytes // self._rounding) * -self._rounding))

    def see(self, tensor: torch.Tensor, part: str) -> None:
        """Note a tensor's storage, if it is new and on the `meta` device; it is given back when the storage dies."""
        if tensor.device.type != "meta":
            return
        storage = tensor.untyped_storage()
        key, size = storage._cdata, storage.nbytes()
        if size == 0 or key in self._blocks:
            return
        number = self.take(size, part)

        def died(_: object) -> None:
            if self._blocks.pop(key, None) is not None:
                self.give_back(number, size)

        self._blocks[key] = (weakref.ref(storage, died), number)

    def label(self, tensor: torch.Tensor, part: str) -> None:
        """Say what a tensor that was seen is for; what it was cast from is for the same."""
        number: int | None = self._number(tensor)
        while number is not None:
            self.parts[number] = part
            number = self._cast_from.pop(number, None)

    def ignore(self, tensor: torch.Tensor) -> None:
        """Never note this tensor's storage: something else stands for it."""
        key = tensor.untyped_storage()._cdata
        forget = weakref.ref(tensor.untyped_storage(), lambda _: self._blocks.pop(key, None))
        self._blocks[key] = (forget, -1)

    def enter(self, phase: str, iteration: int) -> None:
        """A phase begins, outside the layers."""
        self.marks.append(PhaseMark(len(self.events), iteration, phase, None))

    def enter_layer(self, layer: int | None) -> None:
        """What follows belongs to this layer; `None`: to none."""
        last = self.marks[-1]
        self.marks.append(PhaseMark(len(self.events), last.iteration, last.phase, layer))

    def take_workspace(self) -> None:
        """cuBLAS makes its workspace at the first product in a thread, and keeps it. The backward pass has a thread."""
        thread = "backward" if self.marks[-1].phase == "backward" else "main"
        if self._workspace and thread not in self._threads:
            self._threads.add(thread)
            self.take(self._workspace, "workspace")

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        if func is READ_SCALAR and args[0].device.type == "meta":
            kind = args[0].dtype
            return self.truth if kind == torch.bool else 1.0 if kind.is_floating_point else 1
        inside = self._temporaries.get(func)
        temporaries = self._hold(inside.sizes(args, kwargs)) if inside is not None and inside.is_first else []
        result = func(*args, **kwargs)
        for tensor in _tensors(result):
            self.see(tensor, self._part_of(tensor))
        if func is CAST:
            self._note_cast(args[0], result)
        if func in PRODUCTS:
            self.take_workspace()
        if inside is not None and not inside.is_first:
            temporaries = self._hold(inside.sizes(args, kwargs))
        for number, size in temporaries:
            self.give_back(number, size)
        return result

    def _hold(self, sizes: Sequence[int]) -> list[tuple[int, int]]:
        part = "optimizer" if self.marks[-1].phase == "optimizer" else "activations"
        return [(self.take(size, part), size) for size in sizes if size]

    def _part_of(self, tensor: torch.Tensor) -> str:
        """What a tensor is for that an operation makes, in the words of `ftui.estimate.peak`.

        One as high as the vocabulary is a gradient of head or embeddings, one as wide holds logits.
        """
        if self.marks[-1].phase == "optimizer":
            return "optimizer"
        if not tensor.dim():
            return "activations"
        if tensor.shape[-1] == self.vocab_size:
            return "logits"
        return "gradients" if tensor.shape[0] == self.vocab_size else "activations"

    def _note_cast(self, source: torch.Tensor, result: torch.Tensor) -> None:
        """A weight in another type counts as weights; what a gradient was cast from is labelled with it."""
        old, new = self._number(source), self._number(result)
        if old is None or new is None or old == new:
            return
        if self.parts[old] in ("weights", "adapters"):
            self.parts[new] = "weights"
        elif self.marks[-1].phase == "backward":
            self._cast_from[new] = old

    def _number(self, tensor: torch.Tensor) -> int | None:
        """The number of a tensor's block; `None` for one that was never seen, or is ignored."""
        block = self._blocks.get(tensor.untyped_storage()._cdata) if tensor.device.type == "meta" else None
        return None if block is None or block[1] < 0 else block[1]


def _tensors(result: Any) -> Iterator[torch.Tensor]:
    if isinstance(result, torch.Tensor):
        yield result
    elif isinstance(result, (tuple, list)):
        for part in result:
            yield from _tensors(part)
