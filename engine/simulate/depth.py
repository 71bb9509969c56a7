"""The events of a deep model from those of a flat one: a few of its layers stand for all.

Layers are alike when their weights, flags and kinds are. A flat model keeps the first layer, the last, and between them
one of each kind with each pair of neighbours; its events are then told again for every layer of the deep one.
"""

from collections.abc import Hashable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import groupby
from typing import Any

from torch import nn

from .trace import Trace
from .tracker import Event, PhaseMark

PLAIN = (bool, int, float, str, type(None))


class UnfoldError(Exception):
    """The layers do not run once each, in their order: only the whole depth tells what happens."""


@dataclass(frozen=True)
class LayerPlan:
    """Which layers stay (`kept`, by number), and for every layer which of the kept ones stands for it (by place)."""

    kept: tuple[int, ...]
    sample: tuple[int, ...]


def find_layers(base: Any) -> list[nn.Module]:
    """The decoder layers, in their order; empty where they are in no list of that length."""
    stack = _find_stack(base)
    return [] if stack is None else list(stack[2])


def _find_stack(base: Any) -> tuple[nn.Module, str, nn.ModuleList] | None:
    """The list of decoder layers: its parent, its name there, and itself."""
    size = base.config.get_text_config().num_hidden_layers
    for parent in base.modules():
        for name, child in parent.named_children():
            if isinstance(child, nn.ModuleList) and len(child) == size:
                return parent, name, child
    return None


def layer_kinds(base: Any, layers: Sequence[nn.Module]) -> list[Hashable]:
    """What tells each layer from the others as far as memory is concerned."""
    config = base.config.get_text_config()
    lists = [value for value in vars(config).values() if isinstance(value, list | tuple) and len(value) == len(layers)]
    inside = {id(weight) for layer in layers for weight in layer.parameters()}
    flows = False
    for weight in base.parameters():
        if id(weight) in inside:
            break
        flows |= weight.requires_grad
    kinds: list[Hashable] = []
    for number, layer in enumerate(layers):
        modules = tuple((type(module).__name__, *_flags(module)) for module in layer.modules())
        weights = tuple((name, w.shape, w.dtype, w.requires_grad) for name, w in layer.named_parameters())
        kinds.append((flows, modules, weights, tuple(str(values[number]) for values in lists)))
        flows |= any(weight.requires_grad for weight in layer.parameters())
    return kinds


def _flags(module: nn.Module) -> list[tuple[str, Any]]:
    return [
        (name, value) for name, value in vars(module).items() if isinstance(value, PLAIN) and not name.endswith("_idx")
    ]


def plan_layers(kinds: Sequence[Hashable]) -> LayerPlan:
    """Keep as few layers as show every kind of layer between its neighbours."""
    last = len(kinds) - 1
    among = [tuple(kinds[max(0, number - 1) : number + 2]) for number in range(last + 1)]
    kept, missing = [0], set(among[1:last])
    while kept[-1] != last:
        here = kept[-1]
        following = [n for n in range(here + 1, last + 1) if (kinds[n - 1], kinds[n]) == (kinds[here], kinds[here + 1])]
        goal = next((number for number in range(here + 1, last) if among[number] in missing), last)
        kept.append(max((number for number in following if number <= goal), default=here + 1))
        missing.discard(among[kept[-1]])
    stands = {among[number]: place for place, number in enumerate(kept) if 0 < number < last}
    between = [stands[among[number]] for number in range(1, last)]
    return LayerPlan(tuple(kept), (0, *between, *([len(kept) - 1] if last else [])))


def keep_layers(base: Any, plan: LayerPlan) -> None:
    """Leave only the kept layers in the model, in place."""
    stack = _find_stack(base)
    assert stack is not None, "who cuts has found the layers"
    parent, name, everything = stack
    setattr(parent, name, nn.ModuleList(everything[number] for number in plan.kept))
    config = base.config.get_text_config()
    for key, value in list(vars(config).items()):
        if isinstance(value, list | tuple) and len(value) == len(everything):
            setattr(config, key, type(value)(value[number] for number in plan.kept))
    config.num_hidden_layers = len(plan.kept)


@dataclass(frozen=True)
class _Stretch:
    """Events `begin` to `end` (excluded) of one phase of one pass, inside kept layer number `layer` or in none."""

    phase: int
    layer: int | None
    begin: int
    end: int

    @property
    def is_inside(self) -> bool:
        """Whether it is in a layer."""
        return self.layer is not None


def unfold(trace: Trace, plan: LayerPlan) -> Trace:
    """The trace of the whole depth.

    Raises:
        UnfoldError: the layers' events cannot be told again.
    """
    stretches, phases = _stretches(trace)
    return _Unfolding(trace, plan, stretches, phases).told()


def _stretches(trace: Trace) -> tuple[list[_Stretch], list[PhaseMark]]:
    """What is between two layers belongs to the first of them; what comes after the last one belongs to none."""
    ends = [mark.index for mark in trace.marks[1:]] + [len(trace.events)]
    phases: list[PhaseMark] = []
    stretches: list[_Stretch] = []
    for mark, end in zip(trace.marks, ends, strict=True):
        if not phases or (mark.phase, mark.iteration) != (phases[-1].phase, phases[-1].iteration):
            phases.append(mark)
        number, begin = len(phases) - 1, mark.index
        before = stretches[-1] if stretches and stretches[-1].phase == number and stretches[-1].is_inside else None
        if mark.layer is None and before is not None and mark.phase != "backward":
            follows = next((other for other in trace.marks if other.index >= end), None)
            between = follows is not None and follows.layer is not None
            begin = end if between else _first_made(trace, begin, end)
            stretches[-1] = replace(before, end=begin)
        if begin < end:
            stretches.append(_Stretch(number, mark.layer, begin, end))
    return stretches, phases


def _first_made(trace: Trace, begin: int, end: int) -> int:
    """Where the first block is made: what a layer has left is given back before its successor begins."""
    return next((index for index in range(begin, end) if trace.events[index][1] > 0), end)


class _Unfolding:
    """Tells events again. Blocks get new numbers; a block of a layer has one for each layer it stands for."""

    def __init__(self, trace: Trace, plan: LayerPlan, stretches: list[_Stretch], phases: list[PhaseMark]) -> None:
        self._trace, self._plan, self._stretches, self._phases = trace, plan, stretches, phases
        self._events: list[Event] = []
        self._parts: list[str] = []
        self._marks: list[PhaseMark] = []
        self._owner: dict[int, int] = {}
        self._alive: dict[tuple[int, int | None], int] = {}
        self._borrowed: dict[tuple[int, int, int], list[int]] = {}
        pairs: set[tuple[int, int]] = set()
        for stretch in stretches:
            if stretch.layer is None:
                continue
            if (stretch.phase, stretch.layer) in pairs:
                raise UnfoldError(f"layer {stretch.layer} runs twice")
            pairs.add((stretch.phase, stretch.layer))
            for number, size in trace.events[stretch.begin : stretch.end]:
                if size > 0:
                    self._owner[number] = stretch.layer
                elif number in self._owner and (distance := self._owner[number] - stretch.layer):
                    self._borrowed.setdefault((stretch.phase, stretch.layer, distance), []).append(number)

    def told(self) -> Trace:
        for (number, is_inside), group in groupby(self._stretches, lambda stretch: (stretch.phase, stretch.is_inside)):
            phase = self._phases[number]
            told = list(group)
            ordered = [*self._in_order(told)] if is_inside else [(None, stretch) for stretch in told]
            last = {stretch.layer: position for position, stretch in ordered}
            for position, stretch in ordered:
                self._marks.append(PhaseMark(len(self._events), phase.iteration, phase.phase, position))
                self._tell(stretch, position, is_last=position == last[stretch.layer])
        return Trace(tuple(self._events), tuple(self._parts), tuple(self._marks))

    def _in_order(self, group: list[_Stretch]) -> Iterator[tuple[int, _Stretch]]:
        """The layers of the deep model as they run, by number, each with the stretch that stands for it."""
        order = [stretch.layer or 0 for stretch in group]
        places = range(len(self._plan.sample))
        if order == sorted(order, reverse=True) and len(order) > 1:
            places = places[::-1]
        elif order != sorted(order):
            raise UnfoldError("layers do not run in their order")
        of_layer = {stretch.layer: stretch for stretch in group}
        for position in places:
            if (stretch := of_layer.get(self._plan.sample[position])) is not None:
                yield position, stretch

    def _tell(self, stretch: _Stretch, position: int | None, *, is_last: bool) -> None:
        """A block that all layers of a kind share goes with the last one that `stretch` stands for (`is_last`)."""
        for number, size in self._trace.events[stretch.begin : stretch.end]:
            if size > 0:
                self._take(number, size, position)
            elif number not in self._owner:
                if is_last:
                    self._give_back(number, None, size)
            elif position is None:
                for place in range(len(self._plan.sample)):
                    self._give_back(number, place, size)
            elif self._owner[number] == stretch.layer:
                self._give_back(number, position, size)
            else:
                self._give_back_of(stretch, number, position, size)

    def _take(self, number: int, size: int, position: int | None) -> None:
        self._alive[number, position] = len(self._parts)
        self._events.append((len(self._parts), size))
        self._parts.append(self._trace.parts[number])

    def _give_back(self, number: int, position: int | None, size: int) -> None:
        block = self._alive.pop((number, position), None)
        if block is not None:
            self._events.append((block, size))

    def _give_back_of(self, stretch: _Stretch, number: int, position: int, size: int) -> None:
        """A layer gives back a block of another one: of its neighbour, or of the first or last one of all."""
        assert stretch.layer is not None, "who calls has looked"
        owner = self._owner[number]
        distance = owner - stretch.layer
        if abs(distance) > 1:
            self._give_back(number, self._plan.kept[owner], size)
            return
        target = position + distance
        stands = self._plan.sample[target]
        ours = self._borrowed[stretch.phase, stretch.layer, distance]
        theirs = self._borrowed.get((stretch.phase, stands - distance, distance), [])
        if len(ours) != len(theirs):
            raise UnfoldError(f"neighbours differ at layer {position}")
        self._give_back(theirs[ours.index(number)], target, size)
