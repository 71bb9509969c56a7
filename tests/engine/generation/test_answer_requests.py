"""A model in training that is asked something is afterwards the model that it was, and trains on whatever happens."""

import errno
from collections.abc import Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest
import torch
from peft import LoraConfig, get_peft_model
from transformers import LlamaConfig, LlamaForCausalLM

from ftui.engine.generation import answer_requests
from ftui.engine.generation.answer_requests import AnswerRefusedError, RequestAnswerer
from ftui.engine.generation.load_trained import AnsweringModel
from ftui.engine.models.model_parts import ModelParts
from ftui.engine.runtime.control_flags import Control
from ftui.engine.runtime.event_writer import EventWriter
from ftui.engine.system.device import Hardware
from ftui.engine.system.memory import UpdateMemoryError
from ftui.engine.system.rng import RngState
from ftui.engine.training.generate import TextGenerator
from ftui.runs.events import Answered, PhaseChanged, Sampled, Warned
from ftui.runs.journal import Tail
from ftui.runs.requests import AnswerChat, SamplingKeys, Turn
from ftui.runs.run_folder import Run
from tests.support.answering import make_model
from tests.support.tiny import make_profile

CPU = Hardware(torch.device("cpu"), "fp32", 1, "cpu", None)


class LetterTokenizer:
    """A token for each letter, and none of its own at the beginning."""

    chat_template = None

    def __call__(self, text: str) -> dict[str, list[int]]:
        return {"input_ids": [ord(letter) % 64 for letter in text]}

    def decode(self, ids: Sequence[int], skip_special_tokens: bool = False) -> str:
        return "a" * len(ids)


def overflow(model: Any) -> None:
    """From now on the model computes nothing finite."""
    with torch.no_grad():
        model.lm_head.weight.fill_(torch.nan)


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
    asked = AnsweringModel(model, nothing, (), CPU, True)
    profile = make_profile(tmp_path, tmp_path, adapter={"method": "lora"})
    answerer = RequestAnswerer(nothing, profile, asked, nothing, nothing, nothing)
    before = RngState.capture(torch.device("cpu"))
    with answerer._undisturbed(), asked.answering(None):
        assert not model.training
        torch.rand(3)
    assert [name for name, weight in model.named_parameters() if weight.requires_grad] == trained
    assert model.training and torch.equal(torch.get_rng_state(), before.torch_cpu)


@pytest.mark.parametrize("temperature", [0.0, 1.0])
@pytest.mark.parametrize(
    ("text", "fault", "reason"),
    [
        ("", "", "The prompt has no tokens"),
        ("why", "overflow", "NaN or infinite"),
        ("why", "disk", "The answer could not be written: Stale file handle"),
        ("why", "full", "The answer could not be written: the disk is full"),
    ],
)
def test_a_question_ends_no_run(
    text: str, fault: str, reason: str, temperature: float, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: Any, **options: Any) -> None:
        raise OSError(errno.ENOSPC if fault == "full" else errno.ESTALE, "Stale file handle")

    run, model, tokenizer, state = Run(tmp_path), make_model("llama"), LetterTokenizer(), SimpleNamespace(step=3)
    events = EventWriter(run, attempt=1, token="test")
    events.set_phase("training")
    if fault == "overflow":
        overflow(model)
    elif fault:
        monkeypatch.setattr(answer_requests, "replace_file", refuse)
    asked = AnsweringModel(model, tokenizer, (5,), CPU, False)  # type: ignore[arg-type]
    profile = make_profile(tmp_path, tmp_path)
    answerer = RequestAnswerer(run, profile, asked, state, Control(), events)  # type: ignore[arg-type]
    request = AnswerChat(
        id="0" * 16, attempt=1, token="test", sides=("now",), conversations=((Turn("user", text),),),
        sampling=SamplingKeys(temperature=temperature, max_new_tokens=2),
    )  # fmt: skip
    with pytest.raises(AnswerRefusedError, match=reason):
        answerer.answer(request)
    written = list(Tail(run.journal).read())
    assert [one.step for one in written if isinstance(one, Answered)] == [3]
    assert [one.phase for one in written if isinstance(one, PhaseChanged)] == ["training", "evaluating", "training"]
    assert model.training


@pytest.mark.parametrize(("is_shared", "can_finish"), [(False, False), (True, True), (True, False)])
def test_a_question_that_does_not_fit_is_refused_or_ends_the_attempt(
    is_shared: bool, can_finish: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Ranks that share the base wait inside the pass. Where it cannot be finished the next attempt goes on from the
    newest checkpoint."""

    def run_out(*_: Any, **options: Any) -> None:
        raise torch.OutOfMemoryError("out of memory (a test)")

    model, state = make_model("llama"), SimpleNamespace(step=3)
    events = EventWriter(Run(tmp_path), attempt=1, token="test")
    events.set_phase("training")
    if is_shared:
        model.sharded_base = SimpleNamespace(finish_pass=lambda: can_finish)
    monkeypatch.setattr(model, "forward", run_out)
    asked = AnsweringModel(model, LetterTokenizer(), (5,), CPU, False)  # type: ignore[arg-type]
    answerer = RequestAnswerer(
        Run(tmp_path), make_profile(tmp_path, tmp_path), asked, cast(Any, state), Control(), events
    )
    request = AnswerChat(
        id="0" * 16, attempt=1, token="test", sides=("now",), conversations=((Turn("user", "why"),),),
        sampling=SamplingKeys(max_new_tokens=2),
    )  # fmt: skip
    with pytest.raises(UpdateMemoryError if is_shared and not can_finish else AnswerRefusedError, match="memory"):
        answerer.answer(request)
    assert model.training


def test_samples_that_cannot_be_answered_are_left_out(tmp_path: Path) -> None:
    run, model = Run(tmp_path), make_model("llama")
    events = EventWriter(run, attempt=1, token="test")
    data: Any = SimpleNamespace(tokenizer=LetterTokenizer(), stop_ids=(5,))
    nothing: Any = None
    parts = ModelParts(model, nothing, nothing, nothing, CPU)
    state: Any = SimpleNamespace(step=3)
    profile = make_profile(tmp_path, tmp_path, eval={"sample_max_new_tokens": 2})
    generator = TextGenerator(profile, data, parts, state, Control(), events)
    long = "a" * 200
    assert generator.answer(["", "why", long]) == ["aa"]
    overflow(model)
    assert generator.answer(["why"]) == []
    written = list(Tail(run.journal).read())
    assert [one.prompt for one in written if isinstance(one, Sampled)] == ["why"]
    assert [one.message for one in written if isinstance(one, Warned)] == [
        "'' has no tokens, and the next one is predicted from those before it",
        f"{long!r:.60} has 200 tokens, and the model sees 128: no answer fits behind it",
        "'why' is not answered: the model's output is NaN or infinite",
    ]
