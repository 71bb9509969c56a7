"""A frozen base that is divided among processes or lies in host memory: what of it is on a device, and when.

Divided (`hardware.shard`), each process has its own rows of every tensor of the layers, the embeddings and the head
(engine/distributed/load_shards.py), and gathers what it computes with. Offloaded (`hardware.offload`), the layers' are
on the host and those of two at most on the device (engine/offload/base_layers.py).
"""

from collections.abc import Collection, Iterator
from dataclasses import dataclass
from typing import Literal, NamedTuple

from ftui.estimate.result import Phase
from ftui.estimate.setup import TrainingSetup
from ftui.estimate.trained import TrainedWeights
from ftui.models.shape import DecoderLayer

Way = Literal["here", "divided", "offloaded"]
FORWARD_COPIES, BACKWARD_COPIES = 2, 3
"""Whole layers at once where they are gathered: the one that computes and the flat tensor that it was cut from, which
torch 2.13 keeps until the next one is cut (`AllGatherState`); in a backward pass also that of the layer that comes next
(two ranks on CPUs grew as that says, to 1 %)."""


LEFT_IN_HEAP = 1.3
"""Of a divided base on a CPU, what glibc's heap holds at most between its blocks after many layers were gathered: 1.26
times all of its bytes were measured (two ranks, 580 MiB in float32: 1206 MiB over what a process has without a model,
481 with MALLOC_MMAP_THRESHOLD_=262144, 475 simulated)."""


class Rows(NamedTuple):
    """A tensor by what it is divided along: its rows, and the bytes of one."""

    number: int
    num_bytes: int

    @property
    def size(self) -> int:
        """Bytes of all."""
        return self.number * self.num_bytes

    def share(self, num_processes: int) -> int:
        """Bytes of the first process, which has most."""
        return -(-self.number // num_processes) * self.num_bytes


@dataclass(frozen=True)
class FrozenBase:
    """The frozen tensors of a model that can be elsewhere.

    Attributes:
        layers: those of each decoder layer, the constants of quantised ones left out.
        embeddings, head: `None` where it is trained, or the other one.
    """

    layers: tuple[tuple[Rows, ...], ...]
    embeddings: Rows | None
    head: Rows | None

    @property
    def ends(self) -> list[Rows]:
        """Embeddings and head."""
        return [rows for rows in (self.embeddings, self.head) if rows is not None]

    @property
    def layer_bytes(self) -> list[int]:
        """Bytes of each layer."""
        return [sum(rows.size for rows in layer) for layer in self.layers]


@dataclass(frozen=True)
class BasePlacement:
    """Where a frozen base is, for one of `num_processes` that divide it; `shares_memory`: the device computes in host
    memory."""

    base: FrozenBase
    num_processes: int
    way: Way
    shares_memory: bool = False

    @property
    def away(self) -> int:
        """Bytes of it that are not on the device for good."""
        if self.way == "divided":
            every = [*(rows for layer in self.base.layers for rows in layer), *self.base.ends]
            return sum(rows.size - rows.share(self.num_processes) for rows in every)
        return self.on_host

    @property
    def on_host(self) -> int:
        """Bytes of it in the host's memory, beside the device's."""
        return sum(self.base.layer_bytes) if self.way == "offloaded" and not self.shares_memory else 0

    @property
    def left_in_heap(self) -> int:
        """Bytes that a process on a CPU may hold beside what is alive."""
        if self.way != "divided" or not self.shares_memory:
            return 0
        return round(LEFT_IN_HEAP * (sum(self.base.layer_bytes) + sum(rows.size for rows in self.base.ends)))

    def gathered(self, phase: Phase, layer: int | None = None) -> int:
        """Bytes of what is there for a moment: in decoder layer number `layer`, or (`None`) at the head or in none."""
        each = self.base.layer_bytes
        if self.way == "here" or phase == "loading":
            return 0
        if self.way == "offloaded":
            return self._arrived(phase, layer)
        head = self.base.head or self.base.embeddings
        at_head = 0 if head is None or phase in ("backward", "optimizer") else head.size
        if phase == "optimizer":
            return 0
        if layer is None:
            return at_head + each[-1]
        if phase == "backward" and layer > 0:
            return (BACKWARD_COPIES - 1) * each[layer] + each[layer - 1]
        return FORWARD_COPIES * each[layer]

    def _arrived(self, phase: Phase, layer: int | None) -> int:
        each = self.base.layer_bytes
        if phase == "optimizer":  # what the next pass begins with is left there
            return each[0]
        if phase == "evaluation":
            number = len(each) - 1 if layer is None else layer
            return each[number] + each[(number + 1) % len(each)]
        if layer is None:
            return each[-1] if phase == "forward" else each[0]
        near = layer + 1 if phase == "forward" else layer - 1
        return each[layer] + (each[near] if 0 <= near < len(each) else 0)

    def moved(self) -> int:
        """Bytes that come to the device, or from the other processes, in one pass over the layers."""
        if self.way == "offloaded":
            return 0 if self.shares_memory else sum(self.base.layer_bytes)
        if self.way == "divided":
            return self.away
        return 0


def way_of(shard: str, offload: Collection[str], num_processes: int, *, is_lora: bool) -> Way:
    """Where the keys of `[hardware]` put a frozen base."""
    if shard == "all" and is_lora and num_processes > 1:
        return "divided"
    return "offloaded" if "base" in offload else "here"


def place_base(setup: TrainingSetup, trained: TrainedWeights) -> BasePlacement:
    """Where the frozen base of a setup is."""
    way = way_of(setup.shard, setup.offload, setup.num_processes, is_lora=setup.is_lora)
    base = FrozenBase((), None, None) if way == "here" else _frozen(setup, trained)
    return BasePlacement(base, setup.num_sharing, way, shares_memory=setup.card.kind == "cpu")


def _frozen(setup: TrainingSetup, trained: TrainedWeights) -> FrozenBase:
    shape, width = setup.shape, setup.storage * setup.shape.hidden_size

    def end(path: str) -> Rows | None:
        return None if f"{path}.weight" in trained.base else Rows(shape.vocab_size, width)

    layers = tuple(
        tuple(rows for path, rows in _rows(setup, layer) if f"{shape.stack}.{number}.{path}" not in trained.base)
        for number, layer in enumerate(shape.layers)
    )
    has_head = not (shape.tied or shape.gives_scores)
    return FrozenBase(layers, end(shape.embeddings), end(shape.head) if has_head else None)


def _rows(setup: TrainingSetup, layer: DecoderLayer) -> Iterator[tuple[str, Rows]]:
    for path, (inputs, outputs) in layer.linears.items():
        if setup.is_8bit:
            yield f"{path}.weight", Rows(outputs, inputs)
        elif setup.is_quantised:  # packed: two numbers a row
            yield f"{path}.weight", Rows(-(-inputs * outputs // 2), 1)
        else:
            yield f"{path}.weight", Rows(outputs, inputs * setup.storage)
        if path in layer.biased:
            yield f"{path}.bias", Rows(outputs, setup.storage)
    for path, elements in layer.others.items():
        yield path, Rows(elements, setup.storage)
