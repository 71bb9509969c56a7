"""A few layers tell what all of them take: the unfolded events are those of a simulation of every layer, one by one."""

from pathlib import Path
from typing import Any

import pytest
from torch import nn
from transformers import AutoConfig

from ftui.engine.services import simulate as service
from ftui.engine.simulate import meta_step
from ftui.engine.simulate.depth import UnfoldError, plan_layers
from ftui.engine.simulate.profile_memory import simulate
from ftui.engine.simulate.trace import mark_layer
from ftui.engine.simulate.tracker import MemoryTracker
from ftui.estimate.result import Memory
from ftui.hardware.devices import MiB, find_card
from ftui.models.known import known_config
from ftui.models.logits import PLAIN_HEADS
from ftui.profile.schema import Profile
from tests.support.simulated import A100, CPU, T4, config, profile, told, traced

OTHERS = {"gemma2", "gemma3_text", "cohere", "cohere2", "granite", "gpt_oss", "glm4", "olmo3"}
CHECKPOINTED = {"activation_checkpointing": True}
LORA, FULL = profile(), profile(adapter={"method": "full"})
METHODS = {
    "qlora, checkpointing": profile(adapter={"method": "qlora"}, train=CHECKPOINTED),
    "8 bits": profile(adapter={"load_in_8bit": True}),
    "freeze": profile(adapter={"method": "freeze", "trainable_layers": 2}),
    "every second layer": profile(train=CHECKPOINTED | {"activation_checkpointing_kwargs": {"every_n_layers": 2}}),
    "some layers": profile(adapter={"target_modules": ["q_proj", "v_proj"], "layers_to_transform": [1, 2, 4]}),
    "8-bit moments": profile(adapter={"method": "full"}, train={"optim": "paged_adamw_8bit"}),
    "full, checkpointing": profile(adapter={"method": "full"}, train=CHECKPOINTED | {"gradient_accumulation_steps": 2}),
    "adafactor": profile(adapter={"method": "full"}, train={"optim": "adafactor"}),
}


@pytest.mark.parametrize("kind", sorted(PLAIN_HEADS | OTHERS))
def test_few_layers_tell_of_every_type(kind: str) -> None:
    """Peaks of every phase, and every event: the same to the byte."""
    few, every = (told(traced(kind, FULL, A100, full_depth=full)) for full in (False, True))
    assert few == every


@pytest.mark.parametrize("kind", sorted(PLAIN_HEADS | OTHERS))
def test_few_layers_tell_of_every_type_with_an_adapter(kind: str, request: pytest.FixtureRequest) -> None:
    if not request.config.getoption("--trials"):
        pytest.skip("a minute in all: --trials 1")
    for chosen, card in ((LORA, T4), (FULL, CPU)):
        few, every = (told(traced(kind, chosen, card, full_depth=full)) for full in (False, True))
        assert few == every, chosen.adapter.method


@pytest.mark.parametrize("chosen", METHODS.values(), ids=METHODS)
def test_few_layers_tell_of_every_method(chosen: Profile) -> None:
    few, every = (told(traced("llama", chosen, A100, full_depth=full)) for full in (False, True))
    assert few == every


@pytest.mark.parametrize(
    ("layers", "kept"),
    [
        ("AAAAAAAA", "AAA"), ("FTTTTTT", "FTTT"), ("ABABABAB", "ABAB"), ("SSSSSFSSSSSFSSSSSFSS", "SSSFSS"),
        ("DDDDDDMMMM", "DDDMMM"), ("AB", "AB"), ("A", "A"),
    ],
)  # fmt: skip
def test_layers_that_stay(layers: str, kept: str) -> None:
    """First and last, and every kind with every pair of neighbours; each layer is stood for by one of its kind."""
    plan = plan_layers(list(layers))
    assert "".join(layers[number] for number in plan.kept) == kept
    assert [layers[plan.kept[place]] for place in plan.sample] == list(layers)


DEEP: dict[str, tuple[str, str, dict[str, Any]]] = {
    "8 B, QLoRA": ("meta-llama/Llama-3.1-8B-Instruct", "rtx4090", {"adapter": {"method": "qlora"}}),
    "70 B, QLoRA": ("meta-llama/Llama-3.3-70B-Instruct", "h200", {"adapter": {"method": "qlora"}}),
    "tied, full": ("Qwen/Qwen3-0.6B", "a100-40", {"adapter": {"method": "full"}}),
    "windows, LoRA": ("google/gemma-3-1b-it", "l4", {"adapter": {"method": "lora"}}),
    "experts, LoRA": ("qwen3_moe", "a100-80", {"adapter": {"method": "lora"}}),
    "CPU": ("HuggingFaceTB/SmolLM2-135M-Instruct", "cpu", {"adapter": {"method": "lora"}}),
}
LONG = ("70 B, QLoRA", "windows, LoRA")  # a third of a minute each; what is new in them, a small model has above


@pytest.mark.parametrize("name", DEEP)
def test_the_answer_of_models_that_people_train_is_that_of_the_full_depth(
    name: str, monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest
) -> None:
    """The whole of it: parts, range, phase, and what glibc's heap holds on a CPU."""
    if name in LONG and not request.config.getoption("--trials"):
        pytest.skip("--trials 1")
    monkeypatch.setattr("ftui.engine.simulate.profile_memory.resident_bytes", lambda folder, threads: 400 * MiB)
    model, card, sections = DEEP[name]
    known = known_config(model)
    chosen = profile(**sections, data={"max_length": 256, "eval_fraction": 0.1}, train=CHECKPOINTED)

    def answer(full_depth: bool) -> Memory:
        flat = config(model, num_hidden_layers=12) if known is None else AutoConfig.for_model(**known)
        return simulate(chosen, flat, find_card(card), full_depth=full_depth)

    assert answer(full_depth=False) == answer(full_depth=True)


def test_the_helper_computes_few_layers(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    computed: list[int] = []

    def note_layer(tracker: MemoryTracker, number: int, layer: nn.Module) -> None:
        computed.append(number)
        mark_layer(tracker, number, layer)

    monkeypatch.setattr(meta_step, "mark_layer", note_layer)
    monkeypatch.setattr(service, "find_config", lambda *_: config("llama", num_hidden_layers=80))
    monkeypatch.setattr(service, "given_profile", lambda _: profile(data={"max_length": 64}))
    found = service.simulate(print, "", {"name": "a100-80", "title": "", "kind": "cuda", "memory": 80 << 30}, 64)
    assert len(computed) == 4 and found.basis == "simulated"


def test_layers_that_cannot_stand_for_each_other_are_all_computed(monkeypatch: pytest.MonkeyPatch) -> None:
    chosen, flat = profile(data={"max_length": 64}), config("llama", num_hidden_layers=9)
    every = simulate(chosen, flat, A100, full_depth=True)

    def fail(*_: object) -> None:
        raise UnfoldError("neighbours differ")

    monkeypatch.setattr(meta_step, "unfold", fail)
    assert simulate(chosen, flat, A100) == every


def test_layers_that_share_what_others_computed_are_all_computed() -> None:
    """Cut short, Gemma 4 fails in its own code."""
    chosen = profile(data={"max_length": 64})
    few, every = (
        simulate(chosen, config("gemma4_text", num_hidden_layers=12), A100, full_depth=full) for full in (False, True)
    )
    assert few == every
