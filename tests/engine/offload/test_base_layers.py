"""Frozen layers in host memory: those of two are on the device at most, and each is there when it computes."""

import weakref
from typing import Any

import torch
from torch import Tensor, nn

from ftui.engine.offload.base_layers import HostLayers, HostWeights, base_on_host

NUM_LAYERS, WIDTH = 5, 4
CPU = torch.device("cpu")


class Layer(nn.Linear):
    """Frozen, with an adapter's part that is trained; it notes what is on the device while it computes."""

    def __init__(self, number: int, journal: list[tuple[int, list[int]]]) -> None:
        super().__init__(WIDTH, WIDTH)
        self.number, self.journal = number, journal
        self.weight.requires_grad_(False)

    def forward(self, x: Tensor) -> Tensor:
        self.journal.append((self.number, [*here]))
        return super().forward(x)


here: dict[int, None] = {}


def noted(layers: HostLayers) -> None:
    for number, weights in enumerate(layers.weights):
        bring, drop = weights.bring, weights.drop

        def bringing(stream: Any, number: int = number, bring: Any = bring) -> None:
            here[number] = None
            bring(stream)

        def dropping(number: int = number, drop: Any = drop) -> None:
            here.pop(number, None)
            drop()

        weights.bring, weights.drop = bringing, dropping  # type: ignore[method-assign]


def test_two_layers_at_most_are_there_and_come_ahead() -> None:
    here.clear()
    journal: list[tuple[int, list[int]]] = []
    model = nn.Sequential(*(Layer(number, journal) for number in range(NUM_LAYERS)))
    layers = HostLayers([*model], CPU)
    for weights in layers.weights:
        weights.drop()
    noted(layers)
    backward: list[list[int]] = []

    def watch(_layer: nn.Module, _inputs: Any, out: Tensor) -> None:
        if out.requires_grad:
            out.register_hook(lambda _: backward.append([*here]))

    for layer in model:
        layer.register_forward_hook(watch)
    output = model(torch.ones(1, WIDTH))
    assert [sorted(present) for _, present in journal] == [[0, 1], [1, 2], [2, 3], [3, 4], [4]]
    output.sum().backward()
    assert [sorted(present) for present in backward] == [[3, 4], [2, 3], [1, 2], [0, 1], [0]]
    with torch.no_grad():  # an evaluation's next pass begins with the first layer
        journal.clear()
        model(torch.ones(1, WIDTH))
    assert [sorted(present) for _, present in journal] == [[0, 1], [1, 2], [2, 3], [3, 4], [0, 4]]


def test_a_copy_on_the_device_ends_with_its_turn_and_the_host_keeps_the_values() -> None:
    weight = nn.Parameter(torch.arange(4.0), requires_grad=False)
    host = HostWeights([weight], CPU)
    assert weight.numel() == 0  # while the rest of the model moves
    host.bring(None)
    copy = weakref.ref(weight.data.untyped_storage())
    assert weight.tolist() == [0, 1, 2, 3] and copy() is not None
    host.drop()
    assert copy() is None and weight.tolist() == [0, 1, 2, 3]


def test_what_is_trained_or_shared_stays_on_the_device() -> None:
    shared = nn.Parameter(torch.ones(WIDTH), requires_grad=False)
    model = nn.Sequential(*(nn.Linear(WIDTH, WIDTH) for _ in range(3)))
    for layer in model:
        layer.weight.requires_grad_(False)  # the bias is trained
        layer.shared = shared
    with base_on_host([*model], CPU):
        away = [name for name, weight in model.named_parameters() if weight.numel() == 0]
    assert away == ["0.weight", "1.weight", "2.weight"]
    assert all(weight.numel() for weight in model.parameters())
