"""What a forward pass stores for its backward pass, kept in host memory until then.

torch's `save_on_cpu` would also copy every weight that a layer stores, a tensor once for each operation that reads it,
and give it back in another memory layout, for which a kernel may round otherwise. Here storages are copied as they
are, once, and weights stay. Copies run in the order of the computation: nothing waits, nothing overlaps.
"""

import weakref
from functools import wraps
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

LEAST_BYTES = 4096
"""Smaller storages stay where they are: to move one takes as long, and frees nothing."""


def offload_activations(model: Any) -> None:
    """Let the decoder of a language model, with or without an adapter, store on the host."""
    base = model.get_base_model() if hasattr(model, "get_base_model") else model
    decoder = base.base_model
    forward = decoder.forward

    @wraps(forward)
    def storing(*arguments: Any, **options: Any) -> Any:
        if not torch.is_grad_enabled():
            return forward(*arguments, **options)
        with HostStore(decoder):
            return forward(*arguments, **options)

    decoder.forward = storing


class StoredView(NamedTuple):
    """A tensor as a view of a storage that is on the host."""

    copy: "HostCopy"
    dtype: torch.dtype
    offset: int
    size: torch.Size
    stride: tuple[int, ...]


class HostCopy:
    """A storage's bytes on the host; on its device again for as long as something there needs them.

    Of a storage on `meta` (a simulation of the device) only the size is kept.
    """

    def __init__(self, storage: torch.UntypedStorage) -> None:
        self._device, self._num_bytes = storage.device, storage.nbytes()
        self._back: weakref.ref[torch.UntypedStorage] | None = None
        self._content: Tensor | None = None
        if self._device.type != "meta":
            pinned = self._device.type == "cuda"
            content = torch.empty(0, dtype=torch.uint8, device=self._device).set_(storage)
            self._content = torch.empty(self._num_bytes, dtype=torch.uint8, pin_memory=pinned)
            self._content.copy_(content, non_blocking=pinned)

    def storage(self) -> torch.UntypedStorage:
        """The bytes on the device."""
        if self._back is not None and (there := self._back()) is not None:
            return there
        content = torch.empty(self._num_bytes, dtype=torch.uint8, device=self._device)
        if self._content is not None:
            content.copy_(self._content, non_blocking=True)
        storage = content.untyped_storage()
        self._back = weakref.ref(storage)
        return storage


class HostStore(torch.autograd.graph.saved_tensors_hooks):
    """A block in which everything but the weights of a module is stored on the host."""

    def __init__(self, module: nn.Module) -> None:
        super().__init__(self._store, self._load)
        tensors = [*module.parameters(), *module.buffers()]
        self._weights = {tensor.untyped_storage()._cdata for tensor in tensors}
        self._copies: dict[int, tuple[weakref.ref[torch.UntypedStorage], int, HostCopy]] = {}

    def _store(self, tensor: Tensor) -> StoredView | Tensor:
        storage = tensor.untyped_storage()
        if storage._cdata in self._weights or storage.nbytes() < LEAST_BYTES:
            return tensor
        copy = self._copy_of(storage, tensor._version)
        return StoredView(copy, tensor.dtype, int(tensor.storage_offset()), tensor.size(), tensor.stride())

    def _copy_of(self, storage: torch.UntypedStorage, version: int) -> HostCopy:
        alive, written, copy = self._copies.get(storage._cdata, (None, -1, None))
        if copy is None or alive is None or alive() is None or written != version:
            copy = HostCopy(storage)
            self._copies[storage._cdata] = (weakref.ref(storage), version, copy)
        return copy

    @staticmethod
    def _load(packed: StoredView | Tensor) -> Tensor:
        if isinstance(packed, Tensor):
            return packed
        copy, dtype, *view = packed
        storage = copy.storage()
        return torch.empty(0, dtype=dtype, device=storage.device).set_(storage, *view)
