"""Which weights a run trains, by the rules of PEFT 0.21 and of engine/models/methods.py, counted without a model."""

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import cached_property

from ftui.estimate.setup import TrainingSetup
from ftui.models.shape import DecoderLayer
from ftui.system.expression_time import check_expressions_end

ADAPTED_EXPERTS = frozenset({"qwen3_moe", "mixtral", "olmoe"})


@dataclass(frozen=True)
class TrainedWeights:
    """What is trained.

    Attributes:
        ranks: for each decoder layer, path: rank of every linear layer in it that has an adapter.
        num_adapter: elements of all adapter matrices (and lengths, for DoRA).
        copied: name: elements of what is trained as a copy beside the frozen base (modules_to_save).
        base: name: elements of the base's own weights that are trained.
        adapted_ends: which of embeddings and head have an adapter.
    """

    ranks: tuple[Mapping[str, int], ...]
    num_adapter: int
    copied: Mapping[str, int]
    base: Mapping[str, int]
    adapted_ends: frozenset[str] = frozenset()

    @cached_property
    def num_copied(self) -> int:
        """Elements of all copies."""
        return sum(self.copied.values())

    @cached_property
    def num_base(self) -> int:
        """Elements of the base's own weights that are trained."""
        return sum(self.base.values())

    @property
    def total(self) -> int:
        """Elements of all that is trained."""
        return self.num_adapter + self.num_copied + self.num_base


def find_trained(setup: TrainingSetup) -> TrainedWeights:
    """What a setup trains.

    Raises:
        ProfileError: a regular expression of the profile does not come to an end.
    """
    shape = setup.shape
    nothing: tuple[Mapping[str, int], ...] = ({},) * shape.num_layers
    if setup.method == "full":
        return TrainedWeights(nothing, 0, {}, dict(shape.parameters()))
    paths = [path for name, _ in shape.parameters() for path in (name, name.rpartition(".")[0])]
    check_expressions_end(_expressions(setup), paths)
    if setup.method == "freeze":
        return TrainedWeights(nothing, 0, {}, _unfrozen(setup))
    ranks, number, ends = _adapters(setup)
    return TrainedWeights(ranks, number, _copied(setup), _biases(setup, ranks), ends)


def _expressions(setup: TrainingSetup) -> dict[str, str]:
    """The regular expressions that are matched with names here, and their keys."""
    found: dict[str, str] = {}
    for key in ("target_modules", "exclude_modules", "layers_pattern", "rank_pattern", "trainable_modules"):
        value = getattr(setup, key) or ()
        found |= dict.fromkeys([value] if isinstance(value, str) else value, f"adapter.{key}")
    return found


def _unfrozen(setup: TrainingSetup) -> dict[str, int]:
    shape = setup.shape
    chosen: dict[str, int] = {}
    if setup.trainable_layers is not None:
        for number in range(max(0, shape.num_layers - setup.trainable_layers), shape.num_layers):
            start = f"{shape.stack}.{number}."
            chosen |= {start + path: elements for path, elements in shape.layers[number].parameters()}
    if shape.gives_scores:  # always trained
        chosen[f"{shape.head}.weight"] = shape.outer[f"{shape.head}.weight"]
    patterns = [re.compile(pattern) for pattern in setup.trainable_modules]
    if patterns:
        tied = [(f"{shape.head}.weight", f"{shape.embeddings}.weight")] if shape.tied else []
        for name, elements in shape.parameters():
            names = [name, *(head for head, own in tied if own == name)]
            if any(pattern.search(alias) for pattern in patterns for alias in names):
                chosen[name] = elements
    return chosen


def _adapters(setup: TrainingSetup) -> tuple[tuple[Mapping[str, int], ...], int, frozenset[str]]:
    """Ranks by layer, the elements of all matrices, and which of embeddings and head have some."""
    shape, total, ends = setup.shape, 0, set()
    choice, layers = _Choice(setup), []
    counted: dict[int, tuple[dict[str, int], int]] = {}  # layers that are alike have the same adapters
    for number, layer in enumerate(shape.layers):
        if choice.is_by_name and id(layer) in counted:
            ranks, elements = counted[id(layer)]
        else:
            start, ranks, elements = f"{shape.stack}.{number}.", {}, 0
            for path, (inputs, outputs) in layer.linears.items():
                if rank := choice.rank(start + path):
                    ranks[path] = rank
                    elements += rank * (inputs + outputs) + (outputs if setup.use_dora else 0)
            elements += _of_experts(setup, layer)
            counted[id(layer)] = ranks, elements
        total += elements
        layers.append(ranks)
    at_ends = {name: choice.rank(name, is_end=True) for name in (shape.embeddings, shape.head)}
    if shape.tied:  # PEFT 0.21 adapts both where one is named
        at_ends = dict.fromkeys(at_ends, max(at_ends.values()))
    for name, rank in at_ends.items():
        if rank:
            outputs = shape.hidden_size if name == shape.embeddings else shape.vocab_size
            total += rank * (shape.vocab_size + shape.hidden_size) + (outputs if setup.use_dora else 0)
            ends.add(name)
    return tuple(layers), total, frozenset(ends)


def adapts_experts(setup: TrainingSetup) -> bool:
    """Whether PEFT 0.21 gives experts and router adapters too: it does with `all-linear`, where it knows the type."""
    every = setup.target_modules == "all-linear" and setup.layers_to_transform is None
    return setup.is_lora and every and setup.shape.model_type in ADAPTED_EXPERTS


def _of_experts(setup: TrainingSetup, layer: DecoderLayer) -> int:
    """Elements of their adapters: one for each expert, gate and way up with twice the rank, for they are one matrix."""
    if layer.experts is None or not adapts_experts(setup):
        return 0
    number, width, hidden = layer.experts.num, layer.experts.width, setup.shape.hidden_size
    router = hidden + number
    return setup.r * (router + number * (2 * (hidden + 2 * width) + width + hidden))


class _Choice:
    """PEFT's choice of the modules that get an adapter, and of their rank."""

    def __init__(self, setup: TrainingSetup) -> None:
        self._setup = setup
        targets = setup.target_modules
        self._every = targets == "all-linear"
        self._pattern = re.compile(targets) if isinstance(targets, str) and not self._every else None
        self._numbers = None if setup.layers_to_transform is None else set(setup.layers_to_transform)
        self._place = re.compile(rf".*\.{setup.layers_pattern or '[^.]*'}\.(\d+)\.")

    @property
    def is_by_name(self) -> bool:
        """Whether the number of a layer has no say."""
        setup = self._setup
        by_pattern = isinstance(setup.exclude_modules, str) or self._pattern is not None or bool(setup.rank_pattern)
        return not by_pattern and self._numbers is None

    def rank(self, name: str, *, is_end: bool = False) -> int:
        """The rank of a module's adapter, 0 where it has none. `is_end`: the embeddings or the head."""
        setup = self._setup
        if not self._is_target(name, is_end) or _is_named(name, setup.exclude_modules):
            return 0
        if self._numbers is not None:
            place = self._place.match(name)
            if place is None or int(place.group(1)) not in self._numbers:
                return 0
        for pattern, rank in setup.rank_pattern.items():
            if re.match(rf"(.*\.)?({pattern})$", name):
                return rank
        return setup.r

    def _is_target(self, name: str, is_end: bool) -> bool:
        if self._every:
            return not is_end
        if self._pattern is not None:
            return self._pattern.fullmatch(name) is not None
        return _is_named(name, self._setup.target_modules)


def _is_named(name: str, names: str | Iterable[str] | None) -> bool:
    """Whether a name is one of a list (its last parts are enough), or matches one regular expression."""
    if names is None:
        return False
    if isinstance(names, str):
        return re.fullmatch(names, name) is not None
    return any(name == part or name.endswith(f".{part}") for part in names)


def _copied(setup: TrainingSetup) -> dict[str, int]:
    """Weights of the modules that are trained whole beside an adapter; a tied head is its embeddings."""
    shape, modules = setup.shape, tuple(setup.modules_to_save)
    if shape.gives_scores:  # always trained
        modules = (*modules, shape.head)
    if not modules:
        return {}
    copied = {}
    names = dict(shape.parameters())
    if shape.tied and shape.head.endswith(modules):
        copied[f"{shape.embeddings}.weight"] = names[f"{shape.embeddings}.weight"]
    for name, elements in names.items():
        if any(_part(name, count).endswith(modules) for count in range(1, name.count(".") + 1)):
            copied[name] = elements
    return copied


def _part(name: str, count: int) -> str:
    """The first `count` parts of a name: a module that holds the weight of that name."""
    return ".".join(name.split(".")[:count])


def _biases(setup: TrainingSetup, ranks: tuple[Mapping[str, int], ...]) -> dict[str, int]:
    """Biases of the base that are trained beside an adapter."""
    shape = setup.shape
    if setup.bias == "all":
        return {name: elements for name, elements in shape.parameters() if name.endswith(".bias")}
    if setup.bias != "lora_only":
        return {}
    return {
        f"{shape.stack}.{number}.{path}.bias": shape.layers[number].linears[path][1]
        for number, its in enumerate(ranks)
        for path in its
        if path in shape.layers[number].biased
    }
