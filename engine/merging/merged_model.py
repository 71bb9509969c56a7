"""A model with an adapter merged in, as files: made one tensor at a time, in the order of the base's own files."""

import json
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from transformers import PreTrainedModel

from ftui.errors import ModelError
from ftui.models.model_files import INDEX, WEIGHTS
from ftui.models.shape import SCORE_HEAD
from ftui.runs.checkpoint_folders import StagedExport

from ..models.lora import is_tied
from ..models.transformers_internals import StoredPart, parts_of_model
from ..models.weights import safetensors_file
from .adapter_merge import AdapterMerge, Change
from .stored_tensors import TensorPlace, places_in, weight_files

NARROW = (torch.bfloat16, torch.float16)
Tick = Callable[[], object]


@dataclass(frozen=True, eq=False)
class MergedTensor:
    """A tensor of the result: its type and shape as a tensor on `meta`, and what makes its values."""

    outline: Tensor
    make: Callable[[], Tensor]


@dataclass(frozen=True, eq=False)
class Base:
    """What is merged into: the folder of its files, the model on `meta` (as large as the result), and what becomes of a
    weight, by its name in the model, before it is merged (of a quantised run: packed and made whole again)."""

    folder: Path
    model: PreTrainedModel
    as_computed: Callable[[str, Tensor], Tensor]


class MergedModel:
    """The tensors of the result by file, and which of them are changed.

    Args:
        merge: `None` where nothing is merged, and weights are only stored in another type.
        dtype: of the result.

    Raises:
        ModelError: base and adapter do not fit, or rows of the vocabulary would be left random.
    """

    def __init__(self, base: Base, merge: AdapterMerge | None, dtype: torch.dtype) -> None:
        self._base, self.outline = base, base.model
        self.changes: dict[str, Change] = {} if merge is None else dict(merge.changes)
        files = {file.name: places_in(file) for file in weight_files(base.folder)}
        self._stored_dtype = _main_dtype(place for places in files.values() for place in places.values())
        self.dtype = dtype
        self.weights = dict(base.model.named_parameters(remove_duplicate=False)) | dict(base.model.named_buffers())
        self._parts = parts_of_model(base.model, [stored for places in files.values() for stored in places])
        self.places = {
            self._parts[stored].name: place
            for places in files.values()
            for stored, place in places.items()
            if stored in self._parts and self._parts[stored].expert is None
        }
        self._tied_head = ""
        self.is_untied = self._settle_tied()
        self.files = self._plan(files)
        self._check_all_changed()

    @property
    def num_bytes(self) -> int:
        """Of all tensors."""
        outlines = [tensor.outline for tensors in self.files.values() for tensor in tensors.values()]
        return sum(outline.numel() * outline.element_size() for outline in outlines)

    @property
    def num_tensors(self) -> int:
        return sum(map(len, self.files.values()))

    @property
    def num_changed(self) -> int:
        return len(self.changes)

    def write(self, staged: StagedExport, tick: Tick) -> None:
        """Write the files of weights and their index; `tick` is called with each tensor.

        Raises:
            ModelError: a weight is no number in the type it is stored in.
            OSError: the disk is full, or fails.
        """
        for name, tensors in self.files.items():
            staged.write(name, _pieces(tensors, tick))
        if list(self.files) != [WEIGHTS]:
            total = {"total_size": self.num_bytes}
            where = {name: file for file, tensors in self.files.items() for name in tensors}
            text = json.dumps({"metadata": total, "weight_map": dict(sorted(where.items()))}, indent=2)
            staged.write(INDEX, [text.encode() + b"\n"])

    def value(self, name: str) -> Tensor:
        """A weight of the model by its name, merged, in float32."""
        change, place = self.changes.get(name), self.places.get(name)
        base = None
        if place is not None and (change is None or change.needs_base):
            base = self._grown(name, self._base.as_computed(name, place.read().float()))
        if change is None:
            assert base is not None, "what is not in a file is changed"
            return base
        return change.apply(base)

    def _settle_tied(self) -> bool:
        """Whether embeddings and head, which are one tensor in the base, become two."""
        model = self._base.model
        if not is_tied(model):
            return False
        modules = {module: path for path, module in model.named_modules()}
        embeddings: Any = model.get_input_embeddings()
        head: Any = model.get_output_embeddings()
        inner, outer = f"{modules[embeddings]}.weight", f"{modules[head]}.weight"
        stored = next(self.places[name] for name in (inner, outer) if name in self.places)
        self.places[inner] = self.places[outer] = stored
        self._tied_head = outer
        if not self.changes.keys() & {inner, outer}:
            return False
        return not torch.equal(self.value(inner), self.value(outer))

    def _plan(self, files: Mapping[str, Mapping[str, TensorPlace]]) -> dict[str, dict[str, MergedTensor]]:
        planned: dict[str, dict[str, MergedTensor]] = {}
        written = {self._tied_head}
        for file, places in files.items():
            planned[file] = {}
            for stored, place in places.items():
                part = self._parts.get(stored)
                if part is None and self._is_left_out(stored):
                    continue
                if part is not None and part.name == self._tied_head:
                    continue  # it is the embeddings, or comes last
                planned[file][stored] = self._part(part, place)
                written.add("" if part is None else part.name)
        last = planned[list(planned)[-1]]
        for name in [*sorted(self.changes.keys() - written), *([self._tied_head] if self.is_untied else [])]:
            last[name] = MergedTensor(self.weights[name].detach().to(self.dtype), partial(self.value, name))
        return {file: tensors for file, tensors in planned.items() if tensors}

    def _is_left_out(self, stored: str) -> bool:
        """A reward model has a score in place of the head."""
        return SCORE_HEAD in {name.partition(".")[0] for name in self.weights} and stored.startswith("lm_head.")

    def _part(self, part: StoredPart | None, place: TensorPlace) -> MergedTensor:
        """A tensor of the files, which is a weight, a part of one, or none that the model has by itself."""
        is_changed = part is not None and part.name in self.changes
        dtype = place.dtype if not is_changed and self._keeps_dtype(place.dtype) else self.dtype
        if part is None or part.expert is not None:
            outline = torch.empty(place.stored.shape, dtype=dtype, device="meta")
            return MergedTensor(outline, partial(self._expert, part, place))
        return MergedTensor(self.weights[part.name].detach().to(dtype), partial(self.value, part.name))

    def _expert(self, part: StoredPart | None, place: TensorPlace) -> Tensor:
        change = None if part is None else self.changes.get(part.name)
        if part is None or change is None:
            return place.read()
        if change.apply_part is None:
            raise ModelError(f"{part.name} lies in parts in the files, and is not merged.")
        return change.apply_part(place.read().float(), part)

    def _keeps_dtype(self, stored: torch.dtype) -> bool:
        """What is no float, and what the base itself stores wider than the rest (a router's bias, say)."""
        is_wide = stored == torch.float32 and self._stored_dtype in NARROW and self.dtype in NARROW
        return not stored.is_floating_point or is_wide

    def _grown(self, name: str, weight: Tensor) -> Tensor:
        """With rows for entries that the vocabulary has gained."""
        shape = self.weights[name].shape
        if weight.shape == shape:
            return weight
        change, missing = self.changes.get(name), range(weight.shape[0], shape[0])
        if weight.shape[1:] != shape[1:] or not missing:
            raise ModelError(f"{name} has the shape {list(weight.shape)} in the base, and should have {list(shape)}.")
        if change is None or not change.rows.issuperset(missing):
            raise ModelError(
                f"{name} has {len(missing)} rows for new entries of the vocabulary, which the adapter does not bring.",
                hint="They would be random. Train them: model.extra_special_tokens, or modules_to_save.",
            )
        return torch.cat([weight, weight.new_zeros(len(missing), *shape[1:])])

    def _check_all_changed(self) -> None:
        """Every change has a weight to change, and every new row somebody who sets it."""
        stored = self.places.keys() | {part.name for part in self._parts.values()}
        for name, change in self.changes.items():
            if change.needs_base and name not in stored:
                raise ModelError(
                    f"The adapter changes {name}, which the files in {self._base.folder} do not have by that name.",
                    hint="transformers joins or renames weights of this kind of model as it loads them: not merged.",
                )
        for name, place in self.places.items():
            if self.weights[name].shape != place.stored.shape and name not in self.changes:
                self._grown(name, torch.empty(place.stored.shape, device="meta"))


def _main_dtype(places: Iterator[TensorPlace]) -> torch.dtype:
    """The type of most numbers."""
    counts: dict[torch.dtype, int] = {}
    for place in places:
        counts[place.dtype] = counts.get(place.dtype, 0) + place.stored.num_elements
    return max(counts, key=lambda dtype: counts[dtype])


def _pieces(tensors: Mapping[str, MergedTensor], tick: Tick) -> Iterator[bytes | memoryview]:
    """A safetensors file, of which one tensor at a time exists."""
    file = safetensors_file({name: tensor.outline for name, tensor in tensors.items()}, {"format": "pt"})
    names = {id(tensor.outline): name for name, tensor in tensors.items()}
    yield file.head
    for outline in file.tensors:
        name = names[id(outline)]
        yield _bytes_of(name, tensors[name].make(), outline)
        tick()


def _bytes_of(name: str, made: Tensor, outline: Tensor) -> memoryview:
    if made.shape != outline.shape:
        raise ModelError(f"{name} has the shape {list(made.shape)}, and the model needs {list(outline.shape)}.")
    stored = made.to(outline.dtype).contiguous()
    if stored.is_floating_point() and not torch.isfinite(stored).all():
        raise ModelError(
            f"{name} holds a weight that is NaN, infinite or too large for {outline.dtype}.",
            hint="--dtype bf16 and fp32 have room for larger numbers." if outline.dtype == torch.float16 else "",
        )
    view: memoryview = stored.reshape(-1).view(torch.uint8).numpy().data
    return view
