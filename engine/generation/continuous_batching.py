"""Answers by transformers' continuous batching (paged attention): another engine behind the call of `answer_prompts`.

It fills a batch again as answers end, which pays where their lengths differ much on a GPU. What it draws comes from
torch's generator, in an order that its own thread decides: sampled answers are not those of another run with the same
seed. Greedy ones are those of the engine's own loop.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from typing import Any

from transformers import GenerationConfig
from transformers.generation.configuration_utils import ContinuousBatchingConfig

from ftui.errors import ModelError

from .answer_prompts import FinishedAnswer
from .decode import Prompt
from .sampling import Sampling

PAGE_SIZE = 32
"""Tokens: a page belongs to one answer, and its last one is half empty."""
WAIT_SECONDS = 0.02
NO_TOKEN = -1
"""Where nothing ends an answer; transformers takes `None` for the model's own end token."""


def batch_continuously(
    model: Any,
    prompts: Sequence[Prompt],
    sampling: Sampling,
    *,
    stop_ids: Sequence[int],
    max_new_tokens: int,
    batch_size: int,
    before_pass: Callable[[], None] = lambda: None,
    on_smaller: Callable[[int], None] = lambda size: None,
) -> Iterator[FinishedAnswer | None]:
    """See `answer_prompts`. The cache has room for `batch_size` of the longest answers; others wait for it.

    `before_pass` is called while it works, not before each pass; `on_smaller` never. Keys and values that do not fit
    are an error.

    Raises:
        ModelError: it failed, or it is to sample otherwise than by a temperature: then it tells the log-probabilities
            of what is left to choose from, not those of the model.
    """
    if replace(sampling, temperature=0.0, seed=0) != Sampling():
        raise ModelError(
            "Continuous batching samples by a temperature only.",
            hint="Leave top_k, top_p, min_p and repetition_penalty out.",
        )
    longest = max(len(prompt.ids) for prompt in prompts) + max_new_tokens
    pages = batch_size * -(-longest // PAGE_SIZE)
    config = ContinuousBatchingConfig(
        page_size=PAGE_SIZE, num_blocks=pages, max_batch_tokens=max(longest, batch_size), return_logprobs=True,
        use_cuda_graph=False,
    )  # fmt: skip
    manager = model.init_continuous_batching(_generation_config(sampling, stop_ids, max_new_tokens), config)
    numbers: dict[str, int] = {}
    manager.start()
    try:
        numbers |= {manager.add_request(list(prompt.ids)): number for number, prompt in enumerate(prompts)}
        while numbers:
            before_pass()
            if (found := manager.get_result(timeout=WAIT_SECONDS)) is not None:
                yield _finished(numbers.pop(found.request_id), found, stop_ids)
            elif not manager.is_running():
                raise ModelError("Continuous batching has ended before its answers.")
            yield None
    finally:
        manager.stop(block=True, hard_stop=bool(numbers))


def _generation_config(sampling: Sampling, stop_ids: Sequence[int], max_new_tokens: int) -> GenerationConfig:
    drawn: dict[str, Any] = {"do_sample": False}
    if sampling.temperature:
        drawn = {"do_sample": True, "temperature": sampling.temperature, "top_k": 0, "top_p": 1.0}
    return GenerationConfig(
        **drawn, eos_token_id=list(stop_ids) or NO_TOKEN, pad_token_id=0, max_new_tokens=max_new_tokens
    )


def _finished(number: int, found: Any, stop_ids: Sequence[int]) -> FinishedAnswer:
    """Raises `ModelError` where the request failed."""
    if found.error is not None:
        raise ModelError(f"Continuous batching failed: {found.error}.")
    ids = tuple(found.generated_tokens)
    return FinishedAnswer(number, ids, "stop" if ids[-1] in stop_ids else "length", tuple(found.logprobs))
