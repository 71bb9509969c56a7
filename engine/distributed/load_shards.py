"""The frozen base of a model read into shards: a rank reads its own rows of each tensor, and never has a whole model.

What is stored in 4 bits is read whole, one tensor at a time, and quantised, since its constants are those of the whole
tensor; its own part of the result is kept. At most two tensors of the size of the largest are there beside the shards.
"""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch
from accelerate import init_empty_weights
from peft.tuners.lora import LoraLayer
from safetensors import safe_open
from torch import Tensor, nn
from torch.distributed.device_mesh import DeviceMesh, init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.distributed.tensor import DTensor, Replicate, Shard
from transformers import BitsAndBytesConfig, GenerationConfig, PreTrainedModel
from transformers.quantizers.auto import AutoHfQuantizer

from ftui.errors import ModelError
from ftui.models.shape import SCORE_HEAD
from ftui.profile.sections.model import ModelSection

from ..models.attention import attention_for
from ..models.files.blame import blame
from ..models.load_model import auto_class, check_kind, check_score_head, has_score_head, read_config, settle_head
from ..models.performance import decoder_layers
from ..models.transformers_internals import parts_of_model
from ..models.weights import read_tensors
from ..reinforcement.value_head import is_of_value_head
from ..system.device import Hardware
from ..system.memory import return_freed_memory
from .process_group import ProcessGroup
from .sharded_base import ShardedBase, own_part

WHOLE = 'Set hardware.shard and hardware.offload to "none".'


def load_shards(
    folder: Path,
    section: ModelSection,
    dtype: torch.dtype | str,
    ranks: ProcessGroup,
    *,
    hardware: Hardware,
    quantization: BitsAndBytesConfig | None = None,
    scores: bool = False,
    trained: bool = False,
    keeps_layers: bool = False,
    group_size: int | None = None,
) -> PreTrainedModel:
    """The model in `folder` as `load_model` gives it, frozen unless it is `trained`, of which this rank has its own
    rows of each tensor. `keeps_layers`: what is gathered for a forward pass stays until the backward pass.
    `group_size`: so many neighbouring ranks divide it among them, and other groups have the same (`None`: one group).

    What the ranks do together for it is its attribute `sharded_base`.

    Raises:
        ModelError: as `load_model`; or its tensors cannot be read by rows.
    """
    config = read_config(folder)
    check_kind(config, folder, scores=scores)
    model = empty_model(config, dtype, attention_for(section.attn_implementation, config, hardware), folder, scores)
    if quantization is not None:
        store_in_4bit(model, quantization, hardware)
    model.requires_grad_(trained)
    mesh = _mesh(hardware.device.type, ranks.size, group_size or ranks.size, trained=trained)
    with blame(folder, "loaded"):
        reader = ShardReader(model, folder, mesh, hardware.device)
        reader.fill_buffers(model)
        sharded_base = _shard(model, reader, mesh, ranks, has_head=not scores, keeps_layers=keeps_layers)
    if scores:
        make_score_head(model, folder, hardware)
    setattr(model, "sharded_base", sharded_base)  # noqa: B010
    model.eval()
    return model


def _mesh(device: str, num_ranks: int, group_size: int, *, trained: bool) -> DeviceMesh:
    """All ranks as one group, or groups of neighbours. A frozen base needs to know its own group only."""
    if group_size == num_ranks:
        return init_device_mesh(device, (num_ranks,))
    sizes = (num_ranks // group_size, group_size)
    groups = init_device_mesh(device, sizes, mesh_dim_names=("replicas", "fsdp"))
    return groups if trained else groups["fsdp"]  # PEFT takes a mesh of another name for tensor parallelism


def empty_model(
    config: Any, dtype: torch.dtype | str, attention: str | None, folder: Path, scores: bool
) -> PreTrainedModel:
    """The model with its constants, and its weights on `meta`. Draws nothing that is kept."""
    if scores:
        config.num_labels = 1
    with torch.random.fork_rng(), init_empty_weights(include_buffers=False):
        model: Any = auto_class(scores=scores).from_config(config, dtype=dtype, attn_implementation=attention)
    model.tie_weights()
    if scores:
        check_score_head(model)
    elif (folder / "generation_config.json").is_file():
        model.generation_config = GenerationConfig.from_pretrained(folder, local_files_only=True)
    assert isinstance(model, PreTrainedModel)
    return model


def make_score_head(model: Any, folder: Path, hardware: Hardware) -> None:
    """The score head of a model of which all else was read, as `load_model` has it."""
    is_new, head = not has_score_head(read_config(folder)), getattr(model, SCORE_HEAD)
    head.to_empty(device=hardware.device)
    if is_new:
        model._init_weights(head)  # moves torch's generator as `load_model` does: the adapter is drawn from it
    settle_head(model, None if is_new else folder)


def store_in_4bit(model: PreTrainedModel, quantization: BitsAndBytesConfig, hardware: Hardware) -> None:
    """Replace the linear layers of a model on `meta` by those of bitsandbytes."""
    quantizer: Any = AutoHfQuantizer.from_config(quantization, pre_quantized=False)
    quantizer.preprocess_model(model=model, device_map={"": hardware.device})
    quantizer.postprocess_model(model)


def check_can_shard(model: Any) -> None:
    """Refuse a model whose tensors cannot be divided by rows as they are read.

    Raises:
        ModelError: decoder layers are not marked or have experts.
    """
    layers = decoder_layers(model)
    if not layers or model._keep_in_fp32_modules or model._keep_in_fp32_modules_strict:
        raise ModelError(f"A {type(model).__name__} cannot be sharded yet.", hint=WHOLE)
    if any(weight.dim() > 2 for layer in layers for weight in layer.parameters()):
        raise ModelError("The experts of a mixture cannot be sharded yet.", hint=WHOLE)


def check_adapter(model: Any, adapted: Any) -> None:
    """Refuse an adapter that reads or trains what is divided.

    Raises:
        ModelError: it is more than matrices beside layers.
    """
    ends = [model.get_input_embeddings(), model.get_output_embeddings()]
    if any(isinstance(end, LoraLayer) for end in ends):
        raise ModelError(
            "Embeddings and head of a sharded base cannot have an adapter yet.",
            hint="Leave them out of adapter.target_modules.",
        )
    for name, weight in adapted.named_parameters():
        is_beside = "lora_" in name or SCORE_HEAD in name or is_of_value_head(name)
        if weight.requires_grad and not is_beside:
            raise ModelError(f"Beside a sharded base only LoRA's matrices are trained, not {name}.", hint=WHOLE)
    if any(isinstance(module, LoraLayer) and module.lora_variant for module in adapted.modules()):
        raise ModelError("Beside a sharded base DoRA and other variants of LoRA do not work yet.", hint=WHOLE)


def _shard(
    model: Any, reader: "ShardReader", mesh: DeviceMesh, ranks: ProcessGroup, *, has_head: bool, keeps_layers: bool
) -> ShardedBase:
    for layer in decoder_layers(model):
        _shard_layer(layer, reader, mesh, keeps_layers=keeps_layers)
    embeddings: Any = model.get_input_embeddings()
    head: Any = model.get_output_embeddings() if has_head else None
    is_tied = head is not None and head.weight is embeddings.weight
    ends = [embeddings] if head is None else [embeddings, head]
    for end in ends[:1] if is_tied else ends:
        end.weight = reader.sharded(end.weight)
    if is_tied:
        head.weight = embeddings.weight
    small = []
    for module in model.modules():  # what is small
        for name, weight in module._parameters.items():
            if weight is not None and weight.is_meta and not isinstance(weight, DTensor) and reader.has(weight):
                if weight.requires_grad:  # the optimizer's moments of it are divided, too
                    module._parameters[name] = reader.sharded(weight)
                    small.append(module)
                else:
                    module._parameters[name] = nn.Parameter(reader.read(weight), requires_grad=False)
    decoder = model.base_model
    fully_shard(decoder, mesh=mesh, reshard_after_forward=True, ignored_params=set(decoder.parameters()))
    return ShardedBase(decoder, [*ends, *small], head, ranks, torch.device(mesh.device_type))


def _shard_layer(layer: nn.Module, reader: "ShardReader", mesh: DeviceMesh, *, keeps_layers: bool) -> None:
    """Divide a layer on `meta`, then read this rank's part of it."""
    places = [
        (module, name, weight) for module in layer.modules() for name, weight in module._parameters.items()
        if weight is not None
    ]  # fmt: skip
    packed: dict[int, Tensor] = {}
    for module, name, weight in places:
        if hasattr(weight, "quant_type"):
            rows, size = reader.quantised(weight)
            packed[id(weight)] = rows
            module._parameters[name] = nn.Parameter(
                torch.empty(size, dtype=rows.dtype, device="meta"), requires_grad=False
            )
    sharded_layer = fully_shard(layer, mesh=mesh, reshard_after_forward=not keeps_layers)
    sharded_layer.set_gradient_divide_factor(1.0)
    sharded_layer.set_force_sum_reduction_for_comms(True)
    for module, name, weight in places:
        if id(weight) not in packed:
            module._parameters[name] = reader.sharded(weight)
            continue
        sharded: Any = reader.wrap(packed[id(weight)], module._parameters[name])
        for key in ("compress_statistics", "quant_type"):  # PEFT looks at them as it makes the adapter
            setattr(sharded, key, getattr(weight, key))
        sharded.quant_state = module.quant_state
        module._parameters[name] = sharded


class ShardReader:
    """Reads the weights of a model on `meta` from the files in its folder, each by its rows or whole.

    Raises:
        ModelError: the files lack one, or it is made of several tensors.
    """

    def __init__(self, model: PreTrainedModel, folder: Path, mesh: DeviceMesh | None, device: torch.device) -> None:
        self._mesh, self._device, self._dtype = mesh, device, model.dtype
        files = sorted(folder.glob("*.safetensors"))
        file_of = {name: file for file in files for name in _names_in(file)}
        of_weight = {part.name: (name, part) for name, part in parts_of_model(model, file_of).items()}
        self._places: dict[int, tuple[Path, str, Tensor]] = {}  # a weight lives as long as its id is one
        missing = []
        for path, weight in model.named_parameters():
            if (found := of_weight.get(path)) is None or found[1].expert is not None:
                missing.append(path)
            else:
                self._places[id(weight)] = file_of[found[0]], found[0], weight
        for path, buffer in model.named_buffers():
            if path in of_weight:
                self._places[id(buffer)] = file_of[of_weight[path][0]], of_weight[path][0], buffer
        if missing := [path for path in missing if not path.startswith(f"{SCORE_HEAD}.")]:
            raise ModelError(
                f"The files in {folder} lack weights that could be read as they are: {', '.join(missing[:3])}.",
                hint=f"Is it a language model, and did its download end? {WHOLE}",
            )

    def fill_buffers(self, model: nn.Module) -> None:
        """Read the numbers of a model that are no weights and yet in its files (gemma4's `layer_scalar`)."""
        for buffer in model.buffers():
            if self.has(buffer):
                file, name, _ = self._places[id(buffer)]
                with safe_open(file, "pt") as tensors:
                    buffer.copy_(tensors.get_tensor(name))

    def has(self, weight: Tensor) -> bool:
        """Whether the files have it."""
        return id(weight) in self._places

    def read(self, weight: Tensor) -> Tensor:
        """All of a weight, on the device, in the type of the model."""
        file, name, _ = self._places[id(weight)]
        with safe_open(file, "pt") as tensors:
            whole: Tensor = tensors.get_tensor(name)
        _check_shape(weight, whole.shape, name)
        return whole.to(self._device, self._dtype, copy=True)  # not the mapped file

    def rows(self, weight: Tensor) -> Tensor:
        """This rank's rows of a weight, on the device, in its type."""
        file, name, _ = self._places[id(weight)]
        with safe_open(file, "pt") as tensors:
            stored = tensors.get_slice(name)
            _check_shape(weight, stored.get_shape(), name)
            rows: Tensor = stored[self._own_rows(len(weight))]
        return rows.to(self._device, self._dtype, copy=True)

    def sharded(self, weight: Tensor) -> nn.Parameter:
        """A weight of which this rank has read its own rows."""
        return self.wrap(self.rows(weight), weight)

    def quantised(self, weight: Any) -> tuple[Tensor, torch.Size]:
        """This rank's rows of a weight in 4 bits, and the shape of all of it. Its layer gets the constants."""
        packed = self.packed(weight)
        return_freed_memory()
        return packed.data[self._own_rows(len(packed))].clone(), packed.shape

    def packed(self, weight: Any) -> Any:
        """All of a weight in 4 bits, on the device. Its layer gets the constants."""
        return type(weight)(self.read(weight), requires_grad=False, **weight.__dict__).to(self._device)

    def wrap(self, rows: Tensor, like: Any) -> nn.Parameter:
        """A rank's rows as a weight of the shape of `like`."""
        assert self._mesh is not None, "rows are of what is divided"
        shape, stride = like.shape, like.stride()
        places = [*[Replicate()] * (self._mesh.ndim - 1), Shard(0)]
        dtensor = DTensor.from_local(rows, self._mesh, places, run_check=False, shape=shape, stride=stride)
        return nn.Parameter(dtensor, requires_grad=like.requires_grad)

    def _own_rows(self, number: int) -> slice:
        assert self._mesh is not None, "rows are of what is divided"
        return own_rows(self._mesh, number)


def fill_shards(model: Any, folder: Path) -> None:
    """Put the weights in `folder` into a model of which this rank has its own rows.

    Raises:
        ModelError: the folder lacks one.
        ValueError: one has another shape.
    """
    divided = next(weight for weight in model.parameters() if isinstance(weight, DTensor))
    reader = ShardReader(model, folder, divided.device_mesh, own_part(divided).device)
    for weight in model.parameters():
        own_part(weight.detach()).copy_(reader.rows(weight) if isinstance(weight, DTensor) else reader.read(weight))


def read_moments(optimizer: torch.optim.Optimizer, path: Path) -> dict[str, Tensor]:
    """An optimizer's tensors ("index.name") from a checkpoint: of a weight that is divided, this rank's rows."""
    weights = [weight for group in optimizer.param_groups for weight in group["params"]]
    if not any(isinstance(weight, DTensor) for weight in weights):
        return read_tensors(path)
    moments: dict[str, Tensor] = {}
    with safe_open(path, "pt") as tensors:
        for key in tensors.keys():  # noqa: SIM118
            weight, stored = weights[int(key.partition(".")[0])], tensors.get_slice(key)
            if not isinstance(weight, DTensor) or list(stored.get_shape()) != list(weight.shape):
                moments[key] = tensors.get_tensor(key)
                continue
            rows = stored[own_rows(weight.device_mesh, len(weight))].to(own_part(weight).device)
            moments[key] = DTensor.from_local(
                rows, weight.device_mesh, weight.placements, run_check=False, shape=weight.shape, stride=weight.stride()
            )
    return moments


def own_rows(mesh: DeviceMesh, number: int) -> slice:
    """As torch cuts a tensor of so many rows among the ranks of a group, the last dimension of the mesh: the last ones
    may have fewer, or none."""
    size = -(-number // mesh.size(mesh.ndim - 1))
    start = min(number, mesh.get_local_rank(mesh.ndim - 1) * size)
    return slice(start, min(number, start + size))


def _check_shape(weight: Tensor, stored: Sequence[int], name: str) -> None:
    if list(stored) != list(weight.shape):  # of more rows the first ones would be taken
        raise ValueError(f"{name} has the shape {list(stored)} in the file, not {list(weight.shape)}")


def _names_in(file: Path) -> list[str]:
    with safe_open(file, "pt") as tensors:
        return list(tensors.keys())
