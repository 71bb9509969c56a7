"""A 70 B base divided among cards or in host memory: bytes of each card against sums made by hand."""

from dataclasses import replace
from typing import Any, Literal

import pytest

from ftui.estimate import closed_form, timing
from ftui.estimate.api import Known, estimate, setup_for, suggestions
from ftui.estimate.fit import find_cheapest
from ftui.estimate.placement.rank_share import BUCKET_BYTES
from ftui.estimate.result import FIT, usable
from ftui.estimate.setup import TrainingSetup
from ftui.hardware.detect import MachineRoom
from ftui.hardware.devices import GiB, find_card
from ftui.profile.schema import Profile
from ftui.profile.sections.model import ModelSection

# Llama 3.1 70B: 80 layers of width 8192, keys and values 1024 wide, 28672 inside; 128256 entries, an untied head.
LINEAR = 2 * 8192 * 8192 + 2 * 8192 * 1024 + 3 * 8192 * 28672
NORMS = 2 * 8192 * 2  # of a layer, in 16 bits
LAYERS, LAYER = 80, LINEAR // 2 + NORMS  # two numbers of 4 bits a byte
HEAD = 128256 * 8192 * 2
CONSTANTS = LAYERS * (LINEAR // 64 + 4 * (LINEAR // 64 // 256))  # a byte a block of 64, a float32 for 256 of these
ADAPTERS = 207_093_760  # of rank 16 on all linear layers: 16 x (inputs + outputs), summed


def profile(card_count: int, **hardware: Any) -> Profile:
    train = {"per_device_train_batch_size": 1, "gradient_accumulation_steps": 8, "activation_checkpointing": True}
    return Profile.model_validate({
        "run": {"stage": "sft"}, "model": {"name_or_path": "meta-llama/Llama-3.3-70B-Instruct"},
        "adapter": {"method": "qlora", "r": 16}, "data": {"train": "rows", "max_length": 2048}, "train": train,
        "hardware": {"num_processes": card_count, **hardware},
    })  # fmt: skip


def setup(card_count: int, card: str, **hardware: Any) -> TrainingSetup:
    found = setup_for(profile(card_count, **hardware), find_card(card))
    assert isinstance(found, TrainingSetup)
    return found


DIVIDED = {
    # cards of a kind: weights of one (its part of layers, embeddings and head; the last norm), what is gathered as the
    # head computes (itself, and the layer that was gathered last), verdict. With the weights are counted autocast's
    # copies of the adapter in 16 bits, and the flat tensor that gradients are summed in.
    "2 x 24 GB": (2, "rtx4090", (LAYERS * LAYER + 2 * HEAD) // 2 + 8192 * 2, HEAD + LAYER, "no"),
    "4 x 24 GB": (4, "rtx4090", (LAYERS * LAYER + 2 * HEAD) // 4 + 8192 * 2, HEAD + LAYER, "tight"),
    "8 x 80 GB": (8, "a100-80", (LAYERS * LAYER + 2 * HEAD) // 8 + 8192 * 2, HEAD + LAYER, "fits"),
}


@pytest.mark.parametrize("case", DIVIDED)
def test_each_card_has_its_part_and_what_is_gathered(case: str) -> None:
    number, card, weights, gathered, verdict = DIVIDED[case]
    told = closed_form.memory(setup(number, card, shard="all"))
    assert told.breakdown["weights"] == weights + 2 * ADAPTERS + BUCKET_BYTES
    assert told.breakdown["gathered"] == gathered
    assert told.breakdown["quantisation"] == pytest.approx(CONSTANTS, rel=0.01)  # whole on each card, as the adapter is
    assert told.breakdown["adapters"] == 4 * ADAPTERS and told.breakdown["optimizer"] == 2 * 4 * ADAPTERS
    assert estimate(profile(number, shard="all"), find_card(card)).verdict == verdict


def test_one_card_has_two_layers_of_a_base_in_host_memory() -> None:
    one = setup(1, "rtx4090", offload=("base",))
    told = closed_form.memory(one)
    assert told.breakdown["weights"] == 2 * HEAD + 8192 * 2 + 2 * ADAPTERS // LAYERS  # the copy of a layer's adapter
    assert told.breakdown["gathered"] == 2 * LAYER
    assert told.process < usable(one.card) / 1.5
    on_host = closed_form.host_memory(one)
    assert LAYERS * LAYER < on_host < 1.4 * LAYERS * LAYER + 3 * GiB  # pinned memory comes in powers of two
    slow, fast = (timing.step_seconds(replace(one, card=replace(one.card, pcie=rate)), 8.0) for rate in (8, 16))
    assert slow is not None and fast is not None
    moved = 2 * one.accumulation * LAYERS * LAYER  # to compute forward, and again for the way back
    assert slow - fast == pytest.approx(moved / timing.LINK_SHARE / 1e9 * (1 / 8 - 1 / 16), rel=0.01)


def test_all_that_is_trained_is_divided() -> None:
    """Llama 3.1 8B in float32: 16 bytes a weight with gradient and moments, of which each of eight has an eighth."""
    eight = replace(setup(8, "a100-80"), shape=setup_8b().shape, method="full", trained=4, storage=4)
    told = {shard: closed_form.memory(replace(eight, shard=shard)) for shard in ("none", "state", "all")}
    number = 8_030_261_248
    for shard, whole in (("state", 4 * number), ("all", 0)):
        parts = told[shard].breakdown
        assert parts["optimizer"] == 2 * 4 * number // 8
        assert parts["weights"] > whole + 4 * number // 8
    assert told["all"].process < told["state"].process < told["none"].process
    assert told["all"].process < 80 * GiB / 1.5


@pytest.mark.parametrize("method", ["lora", "full"])
def test_a_card_of_a_group_has_what_it_has_without_the_others(method: Literal["lora", "full"]) -> None:
    four = replace(setup(4, "a100-80", shard="all"), method=method, trained=4, storage=4, num_cards=1)
    groups = replace(four, num_processes=16, dp_shard_size=4)
    assert closed_form.memory(groups).breakdown == closed_form.memory(four).breakdown
    whole = replace(groups, dp_shard_size=None)
    assert closed_form.memory(whole).breakdown["weights"] < closed_form.memory(groups).breakdown["weights"]


def test_weights_that_are_divided_take_time_to_gather() -> None:
    """Llama 3.1 8B in bf16, 2 bytes a weight: 7/8 of it twice for each of 2 micro-batches, hidden behind computation
    on a link that carries it, and all of the step on one that does not."""
    eight = replace(setup(8, "a100-80"), shape=setup_8b().shape, method="full", trained=4, storage=4, shard="all")
    eight = replace(eight, accumulation=2, compute=2, card=replace(eight.card, nvlink=None))
    slow, slower = (
        timing.step_seconds(replace(eight, card=replace(eight.card, pcie=rate)), 16.0) for rate in (1.0, 0.5)
    )
    assert slow is not None and slower is not None
    number = 8_030_261_248
    gathered, summed = 2 * 2 * 2 * number * 7 / 8, 2 * 4 * number * 7 / 8
    assert slower - slow == pytest.approx((gathered + summed) / timing.LINK_SHARE / 1e9, rel=0.01)
    once = timing.step_seconds(replace(eight, shard="state", card=replace(eight.card, pcie=1.0)), 16.0)
    assert once is not None and slow - once == pytest.approx(gathered / 2 / timing.LINK_SHARE / 1e9, rel=0.01)


def setup_8b() -> TrainingSetup:
    found = setup_for(
        profile(1).model_copy(update={"model": ModelSection(name_or_path="meta-llama/Llama-3.1-8B")}),
        find_card("a100-80"),
    )
    assert isinstance(found, TrainingSetup)
    return found


def test_what_finds_no_room_in_host_memory_is_refused_and_not_proposed() -> None:
    card = find_card("rtx4090")
    for memory, fits in ((64, True), (32, False)):
        known = Known(machine=MachineRoom(1, memory * GiB))
        result = estimate(profile(1, offload=("base",)), card, known)
        assert (result.verdict in FIT) is fits and ("host memory" in result.impossible) is not fits
        found = setup_for(profile(1), card, known)
        assert isinstance(found, TrainingSetup)
        proposed = [change.values.get(("hardware", "offload")) for change in suggestions(found, known)]
        assert (["base"] in proposed) is fits


def test_the_other_cards_of_a_machine_are_proposed() -> None:
    card, known = find_card("a100-80"), Known(machine=MachineRoom(4, 256 * GiB))
    found = setup_for(profile(1), replace(card, memory=40 * GiB), known)
    assert isinstance(found, TrainingSetup)
    first = suggestions(found, known)[0]
    assert first.values[("hardware", "shard")] == "all" and first.values[("hardware", "num_processes")] == 4
    rows = (
        first.values[("train", "per_device_train_batch_size")] * first.values[("train", "gradient_accumulation_steps")]
    )
    assert 4 * rows == 8 and first.slower is not None and first.slower < 0


def test_a_model_of_which_all_is_trained_is_divided_among_the_cards() -> None:
    """In bf16 a weight of 4 bytes is cast as its layer computes: with checkpointing the 2 bytes do not stay."""
    full = replace(setup(64, "h100"), method="full", trained=4, storage=4)
    divided = replace(full, shard="all")
    number, cards = 70_553_706_496, 64
    weights, kept = (
        closed_form.memory(replace(divided, checkpointing=every)).breakdown["weights"] for every in (1, None)
    )
    assert weights < 4 * number // cards + 6 * 4 * (LINEAR + HEAD) < 2 * number * 0.9 < kept - weights
    assert find_cheapest(full)[0].values == {("hardware", "shard"): "all"}
    assert closed_form.host_memory(divided) < cards * 8 * GiB < closed_form.host_memory(full) / 10
