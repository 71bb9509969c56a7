"""A model in training that is asked something is afterwards the model that it was."""

from pathlib import Path
from typing import Any

import torch
from peft import LoraConfig, get_peft_model
from transformers import LlamaConfig, LlamaForCausalLM

from ftui.engine.generation.answer_requests import RequestAnswerer
from ftui.engine.generation.load_trained import AnsweringModel
from ftui.engine.system.device import Hardware
from ftui.engine.system.rng import RngState
from tests.support.tiny import make_profile


def test_nothing_of_the_model_is_moved(tmp_path: Path) -> None:
    """PEFT sets all weights of an adapter to be trained as it comes back: those that were frozen stay so."""
    sizes: dict[str, Any] = {"hidden_size": 8, "intermediate_size": 8, "num_hidden_layers": 1, "num_attention_heads": 2}
    base = LlamaForCausalLM(LlamaConfig(**sizes, vocab_size=16))
    model: Any = get_peft_model(base, LoraConfig(target_modules=["q_proj", "v_proj"], r=2))
    for name, weight in model.named_parameters():
        if "lora_A" in name:
            weight.requires_grad_(False)
    model.train()
    trained = [name for name, weight in model.named_parameters() if weight.requires_grad]
    nothing: Any = None
    asked = AnsweringModel(model, nothing, (), Hardware(torch.device("cpu"), "fp32", 1, "cpu", None), True)
    profile = make_profile(tmp_path, tmp_path, adapter={"method": "lora"})
    answerer = RequestAnswerer(nothing, profile, asked, nothing, nothing, nothing)
    before = RngState.capture(torch.device("cpu"))
    with answerer._undisturbed(), asked.answering(None):
        assert not model.training
        torch.rand(3)
    assert [name for name, weight in model.named_parameters() if weight.requires_grad] == trained
    assert model.training and torch.equal(torch.get_rng_state(), before.torch_cpu)
