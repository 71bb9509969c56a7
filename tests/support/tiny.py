"""A tokenizer of 300 entries, rows, and whole engine runs that take a second: what the engine's tests are made of."""

import json
import random
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import torch
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, processors, trainers
from transformers import LlamaConfig, LlamaForCausalLM, PreTrainedTokenizerFast

from ftui.engine.data.sources import ResolvedSource
from ftui.engine.data.stores.cache import load_store
from ftui.engine.data.stores.sequences import Sequences, cut_to_length
from ftui.engine.data.tokens.encode import Encoder
from ftui.engine.recipe import train
from ftui.engine.runtime.control_flags import Control
from ftui.engine.runtime.event_writer import EventWriter
from ftui.engine.runtime.request_inbox import RequestInbox
from ftui.profile.schema import Profile
from ftui.profile.serialize import to_toml
from ftui.runs.events import Step
from ftui.runs.journal import Tail
from ftui.runs.run_folder import Run, RunFacts

Rows = list[dict[str, Any]]

TEXT = "the a kernel shell daemon prints reads forks quietly badly into of cache page fault and then it ran away"

# ChatML twice: the same text, but MARKED says itself what the assistant wrote.
_TURN = "{{ '<|im_start|>' + message['role'] + '\\n' }}"
_SAID = "{{ message['content'] + '<|im_end|>' }}"
_MARKED_SAID = "{% generation %}" + _SAID + "{% endgeneration %}"
_SPEAK = "{% if add_generation_prompt %}{{ '<|im_start|>assistant\\n' }}{% endif %}"
PLAIN = "{% for message in messages %}" + _TURN + _SAID + "{{ '\\n' }}{% endfor %}" + _SPEAK
MARKED = (
    "{% for message in messages %}" + _TURN + "{% if message['role'] == 'assistant' %}" + _MARKED_SAID
    + "{% else %}" + _SAID + "{% endif %}{{ '\\n' }}{% endfor %}" + _SPEAK
)  # fmt: skip


def make_tokenizer(template: str | None = PLAIN, *, bos: bool = False) -> PreTrainedTokenizerFast:
    """A byte-level BPE; with `bos` it begins every text with `<s>`, as Llama's does."""
    backend = Tokenizer(models.BPE())
    backend.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    backend.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=300, special_tokens=["<|pad|>", "<|im_start|>", "<|im_end|>", "<s>"], show_progress=False,
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
    )  # fmt: skip
    backend.train_from_iterator([TEXT, "user assistant system\n"] * 20, trainer)
    if bos:
        pieces: Any = [("<s>", backend.token_to_id("<s>"))]
        backend.post_processor = processors.TemplateProcessing(single="<s> $A", special_tokens=pieces)
    tokenizer = PreTrainedTokenizerFast(
        tokenizer_object=backend, pad_token="<|pad|>", eos_token="<|im_end|>", bos_token="<s>" if bos else None,
        extra_special_tokens=["<|im_start|>"], clean_up_tokenization_spaces=False, model_max_length=256,
    )  # fmt: skip
    tokenizer.chat_template = template
    return tokenizer


def chats(number: int) -> Rows:
    """Conversations of one to three turns whose lengths differ much."""
    chance, words = random.Random(7), TEXT.split()

    def some(most: int) -> str:
        return " ".join(chance.choice(words) for _ in range(chance.randint(1, most)))

    def conversation() -> Rows:
        turns = range(chance.choice([1, 1, 2, 3]))
        return [
            {"role": role, "content": some(most)} for _ in turns for role, most in (("user", 12), ("assistant", 24))
        ]

    return [{"messages": conversation()} for _ in range(number)]


def completions(number: int) -> Rows:
    """Prompts and completions; each prompt ends where a token ends, so that nobody can cut it elsewhere."""
    first_turns = [row["messages"][:2] for row in chats(number)]
    return [{"prompt": f"Q: {q['content']}\nA:", "completion": f" {a['content']}"} for q, a in first_turns]


def preference_pairs(number: int) -> Rows:
    """Prompts with two answers, each of words of its own; lengths differ much."""
    chance, words = random.Random(11), TEXT.split()
    half = len(words) // 2

    def some(least: int, most: int, some_of: list[str]) -> str:
        return " ".join(chance.choice(some_of) for _ in range(chance.randint(least, most)))

    return [
        {
            "prompt": [{"role": "user", "content": some(1, 12, words)}],
            "chosen": [{"role": "assistant", "content": some(2, 20, words[:half])}],
            "rejected": [{"role": "assistant", "content": some(2, 20, words[half:])}],
        }
        for _ in range(number)
    ]


def judged_answers(number: int) -> Rows:
    """Single answers with a verdict, more of them good; good ones and bad ones are of words of their own."""
    pairs = preference_pairs(number)
    sides = [("rejected", False) if n % 3 == 0 else ("chosen", True) for n in range(number)]
    return [
        {"prompt": pair["prompt"], "completion": pair[side], "label": good}
        for pair, (side, good) in zip(pairs, sides, strict=True)
    ]


def write_rows(path: Path, rows: Sequence[Any]) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(b"".join(json.dumps(row, ensure_ascii=False).encode() + b"\n" for row in rows))
    return path


def seen(
    paths: Sequence[Path], encoder: Encoder, cache: Path, *, form: str = "auto", max_length: int = 512
) -> Sequences:
    """The rows of some files as the model sees them."""
    found = ResolvedSource("rows", tuple(paths), form)
    return cut_to_length(load_store(found, encoder, cache, lambda detail: None), encoder.stage, max_length)


def make_model(folder: Path) -> Path:
    """A Llama of two layers and width 32 with its tokenizer. Its weights are large, so that 20 steps move it far."""
    tokenizer = make_tokenizer()
    config = LlamaConfig(
        vocab_size=len(tokenizer), hidden_size=32, intermediate_size=64, num_hidden_layers=2, num_attention_heads=4,
        num_key_value_heads=2, max_position_embeddings=256, initializer_range=0.15, tie_word_embeddings=False,
        pad_token_id=tokenizer.pad_token_id, eos_token_id=tokenizer.eos_token_id, bos_token_id=None,
    )  # fmt: skip
    torch.manual_seed(1)
    LlamaForCausalLM(config).save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    return folder


def make_profile(model: Path, rows: Path, /, **sections: dict[str, Any]) -> Profile:
    """Full fine-tuning on one CPU thread in fp32, no evaluation, no checkpoints, unless `sections` say otherwise."""
    base: dict[str, dict[str, Any]] = {
        "run": {"stage": "sft"},
        "model": {"name_or_path": str(model)},
        "adapter": {"method": "full"},
        "data": {"train": str(rows), "max_length": 256},
        "train": {"precision": "fp32", "seed": 5},
        "checkpoint": {"save_steps": None, "save_minutes": None},
        "hardware": {"device": "cpu", "num_threads": 1},
    }
    merged = base | {name: base.get(name, {}) | values for name, values in sections.items()}
    return Profile.model_validate_json(json.dumps(merged))


def train_run(folder: Path, profile: Profile) -> list[Step]:
    """Train a new run in `folder` with the whole real engine; the lines of its metrics file."""
    folder.mkdir(parents=True, exist_ok=True)
    run = Run(folder)
    run.profile.write_text(to_toml(profile))
    facts = RunFacts(run_id="0123456789abcdef", name=folder.name, created=0.0, profile_name="test")
    run.facts.write_bytes(msgspec.json.encode(facts))
    events, control = EventWriter(run, attempt=1, token="test"), Control()
    control.open(RequestInbox(run, events))
    assert train(run, profile, events, control) == 0
    return [record for record in Tail(run.metrics).read() if isinstance(record, Step)]


def column(steps: list[Step], name: str) -> np.ndarray:
    """One quantity of every step."""
    return np.array([getattr(step, name) for step in steps], dtype=np.float64)
