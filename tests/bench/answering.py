"""Answers a second in batches against one by one, in CPU seconds: `python -m tests.bench.answering [ROWS ...]`.

A Llama of SmolLM2-135M's sizes with random weights in float32; prompts of 32 to 96 tokens, answers of 32.
"""

import random
import resource
import sys
from typing import Any

import torch
from transformers import LlamaConfig, LlamaForCausalLM

from ftui.engine.generation.answer_prompts import answer_prompts, finished_answers
from ftui.engine.generation.decode import Prompt
from ftui.engine.generation.sampling import Sampling

NUM_PROMPTS, NEW_TOKENS = 16, 32
SIZES: dict[str, Any] = {
    "vocab_size": 49152, "hidden_size": 576, "intermediate_size": 1536, "num_hidden_layers": 30,
    "num_attention_heads": 9, "num_key_value_heads": 3, "max_position_embeddings": 2048,
}  # fmt: skip


def cpu_seconds() -> float:
    return resource.getrusage(resource.RUSAGE_SELF).ru_utime


def main(batch_sizes: list[int]) -> None:
    torch.set_num_threads(1)
    torch.manual_seed(0)
    model = LlamaForCausalLM(LlamaConfig(**SIZES)).eval()
    draw = random.Random(1)
    prompts = [Prompt([draw.randrange(49152) for _ in range(draw.randint(32, 96))]) for _ in range(NUM_PROMPTS)]
    num_tokens = sum(len(prompt.ids) for prompt in prompts)
    start = cpu_seconds()
    with torch.no_grad():
        for prompt in prompts:
            model(torch.tensor([prompt.ids]), logits_to_keep=1)
    forward = (cpu_seconds() - start) / num_tokens
    print(f"forward alone: {1000 * forward:.2f} ms a token")
    for round_number in range(2):
        for size in batch_sizes:
            start = cpu_seconds()
            answers = answer_prompts(
                model, prompts, Sampling(), stop_ids=(), max_new_tokens=NEW_TOKENS, batch_size=size
            )
            found = list(finished_answers(answers))
            seconds = cpu_seconds() - start
            assert len(found) == NUM_PROMPTS
            each = (seconds - forward * num_tokens) / (NUM_PROMPTS * NEW_TOKENS)
            print(
                f"round {round_number}, batches of {size}: {NUM_PROMPTS / seconds:.2f} answers/s, "
                f"{1000 * each:.1f} ms a new token ({each / forward:.1f} of a forward token)"
            )


if __name__ == "__main__":
    main([int(size) for size in sys.argv[1:]] or [1, 4, 8, 16])
