"""A few layers tell what all of them take: the unfolded events against a simulation of every layer."""

import pytest

from ftui.engine.simulate.depth import plan_layers
from ftui.models.logits import PLAIN_HEADS
from ftui.profile.schema import Profile
from tests.support.simulated import A100, CPU, T4, profile, told, traced

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
    """Peaks of every phase and what the allocator reserves: the same to the byte."""
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
