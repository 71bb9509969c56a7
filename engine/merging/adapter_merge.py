"""What an adapter does to the weights of its base, layer by layer: PEFT's own layers merge, one at a time, in float32.

The whole model stands on `meta`. A layer gets its weights from the files when its turn comes, merges, and gives them
back: ranks, scales, DoRA, single tokens and whole modules are PEFT's own business.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import torch
from peft import get_peft_model_state_dict
from peft.tuners.lora import LoraLayer
from peft.tuners.lora.layer import ParamWrapper
from peft.tuners.lora.variants import DoraLinearVariant
from peft.utils.other import ModulesToSaveWrapper, TrainableTokensWrapper
from torch import Tensor, nn

from ftui.errors import ModelError

from ..models.adapter_files import ADAPTER
from ..models.lora import adapter_layers
from ..models.transformers_internals import StoredPart
from .stored_tensors import places_in

NAME = "default"
BLOCK = 1 << 20  # numbers of a weight whose norms are computed at once


@dataclass(frozen=True, eq=False)
class Change:
    """How a weight of the base becomes that of the merged model.

    `weights` are those of the adapter that it takes, by their ids. `apply` gets the base's weight (float32, which it
    may change), or `None` where the change is the whole weight: then `needs_base` is false. `rows` are those that it
    sets, where it sets single rows. `apply_part` does the same for a tensor that is a part of the weight.
    """

    weights: frozenset[int]
    apply: Callable[[Tensor | None], Tensor]
    needs_base: bool = True
    rows: frozenset[int] = frozenset()
    apply_part: Callable[[Tensor, StoredPart], Tensor] | None = None


class AdapterMerge:
    """The changes that the adapter in a folder makes to a base on `meta`, by the names of the base's weights.

    Raises:
        ModelError: the adapter does not fit the base, or not all of its tensors would be used.
    """

    def __init__(self, model: Any, folder: Path) -> None:
        self._places = places_in(folder / ADAPTER)
        adapted = adapter_layers(model, folder)
        self._keys = self._find_keys(adapted, folder)
        self.changes: dict[str, Change] = dict(self._find_changes(adapted.base_model.model))
        changed = {weight for change in self.changes.values() for weight in change.weights}
        used = {key for weight in changed for key in self._keys.get(weight, ())}
        if unused := sorted(self._places.keys() - used):
            raise ModelError(
                f"{folder / ADAPTER} has {len(unused)} tensors that the merge would not use, such as {unused[0]}.",
                hint="The adapter is for another base, or of a kind that this ftui cannot merge.",
            )

    def _find_keys(self, adapted: Any, folder: Path) -> dict[int, list[str]]:
        """The names in the file of each weight of the adapter, by its id; one that is tied may have two."""
        state = adapted.state_dict(keep_vars=True)
        found = get_peft_model_state_dict(adapted, state, save_embedding_layers=False)
        keys: dict[int, list[str]] = {id(weight): [] for weight in found.values()}
        for key, weight in found.items():
            if key not in self._places:
                continue
            shape = self._places[key].stored.shape
            if shape != tuple(weight.shape):
                raise ModelError(
                    f"{folder / ADAPTER}: {key} has the shape {list(shape)}, the base needs {list(weight.shape)}.",
                    hint="It was made for another base: check model.name_or_path.",
                )
            keys[id(weight)].append(key)
        if missing := sorted(key for key, weight in found.items() if not keys[id(weight)]):
            raise ModelError(f"{folder / ADAPTER} lacks {missing[0]} and {len(missing) - 1} others.")
        return keys

    def _find_changes(self, base: nn.Module) -> Iterator[tuple[str, Change]]:
        for path, module in base.named_modules():
            weights = frozenset(id(one) for one in module.parameters() if id(one) in self._keys)
            if isinstance(module, ParamWrapper):  # one inside the other, where several weights have an adapter
                name = f"{path.removesuffix('.base_layer')}.{module.parameter_name}"
                own = frozenset(id(one) for one in _own_parameters(module) if id(one) in self._keys)
                merge = partial(self._merge, module, module.parameter_name)
                yield name, Change(own, merge, apply_part=partial(self._merge_part, module))
            elif isinstance(module, LoraLayer):
                if any(module.lora_bias.values()):
                    raise ModelError(f"{path}: the adapter has a bias of its own (lora_bias), which is not merged.")
                yield f"{path}.weight", Change(weights, partial(self._merge, module, "weight"))
            elif isinstance(module, TrainableTokensWrapper):
                rows = frozenset(module.token_adapter.token_indices[NAME])
                yield f"{path}.weight", Change(weights, partial(self._merge, module.token_adapter, "weight"), rows=rows)
            elif isinstance(module, ModulesToSaveWrapper):
                for name, weight in module.modules_to_save[NAME].named_parameters():
                    yield f"{path}.{name}", Change(frozenset([id(weight)]), partial(self._whole, weight), False)
        for path, weight in base.named_parameters():  # biases
            if id(weight) in self._keys and NAME not in path.split("."):
                name = path.replace(".base_layer.", ".")
                yield name, Change(frozenset([id(weight)]), partial(self._whole, weight), False)

    def _whole(self, weight: nn.Parameter, base: Tensor | None) -> Tensor:
        return self._read(weight)

    def _merge_part(self, layer: Any, base: Tensor, part: StoredPart) -> Tensor:
        """As PEFT's layer for stacks of experts merges: (experts, outputs, inputs), the parts among the outputs."""
        if not layer._did_swap_in_out_features or part.expert is None:
            raise ModelError(f"{part.name}: its experts lie the other way round in the files, and are not merged.")
        inner, outer = (self._read(side[NAME].weight) for side in (layer.lora_A, layer.lora_B))
        inner = inner.reshape(layer.num_experts, -1, inner.shape[-1])[part.expert]
        outer = outer.reshape(outer.shape[0], -1, layer.num_experts)[:, :, part.expert]
        rows = len(outer) // part.num_parts
        outer = outer[part.part * rows : (part.part + 1) * rows]
        return base.add_((outer @ inner) * layer.scaling[NAME])

    def _merge(self, layer: Any, name: str, base: Tensor | None) -> Tensor:
        """By the layer's own merge."""
        inner = layer.get_base_layer()
        with torch.no_grad(), self._filled(layer), _parameter(inner, name, base):
            if _is_dora(layer):
                return _merge_dora(layer, inner.weight.data)
            layer.merge(adapter_names=[NAME])
            merged: Tensor = getattr(inner, name).data
        layer.merged_adapters.clear()
        return merged

    @contextmanager
    def _filled(self, layer: nn.Module) -> Iterator[None]:
        """A block in which the weights of the adapter in a layer are there."""
        own = [(name, weight) for name, weight in layer.named_parameters() if id(weight) in self._keys]
        owners = [(layer.get_submodule(name.rpartition(".")[0]), name.rpartition(".")[2]) for name, _ in own]
        for (owner, name), (_, weight) in zip(owners, own, strict=True):
            owner._parameters[name] = nn.Parameter(self._read(weight), requires_grad=False)
        try:
            yield
        finally:
            for (owner, name), (_, weight) in zip(owners, own, strict=True):
                owner._parameters[name] = weight

    def _read(self, weight: nn.Parameter) -> Tensor:
        return self._places[self._keys[id(weight)][0]].read().float()


def _is_dora(layer: Any) -> bool:
    """Whether it is a DoRA layer whose weight has a row for each output."""
    variant = getattr(layer, "lora_variant", {}).get(NAME)
    return isinstance(variant, DoraLinearVariant) and not layer.fan_in_fan_out


def _merge_dora(layer: Any, base: Tensor) -> Tensor:
    """As `DoraLinearVariant.merge_unsafe`, bit for bit, with three copies of the weight in memory, not five."""
    delta = layer.get_delta_weight(NAME)
    number = max(1, BLOCK // base.shape[1])
    norms = [
        torch.linalg.norm(base[at : at + number] + delta[at : at + number], dim=1) for at in range(0, len(base), number)
    ]
    factors = layer.lora_magnitude_vector[NAME].weight / torch.cat(norms)
    return base.add_(delta).mul_(factors.view(-1, 1))


def _own_parameters(layer: Any) -> Iterator[nn.Parameter]:
    """Those of a layer's adapter, and not of one inside it."""
    for side in (layer.lora_A, layer.lora_B):
        yield from side.parameters()


@contextmanager
def _parameter(module: nn.Module, name: str, value: Tensor | None) -> Iterator[None]:
    """A block in which a module has this weight."""
    assert value is not None
    before = module._parameters[name]
    module._parameters[name] = nn.Parameter(value, requires_grad=False)
    try:
        yield
    finally:
        module._parameters[name] = before
