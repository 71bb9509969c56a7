"""Greedy decoding equals transformers' `generate`; batches, shared prompts and kept turns equal answers made alone."""

from typing import Any

import pytest
import torch

from ftui.engine.generation.decode import Memory, Prompt, Token, decode
from ftui.engine.generation.sampling import Sampling
from ftui.errors import DataError
from tests.support.answering import LENGTH, PROMPTS, STOPS, make_model


def answers(model: Any, prompts: list[list[int]], **changes: Any) -> list[list[int]]:
    results: list[list[int]] = [[] for _ in prompts]
    options: dict[str, Any] = {"sampling": Sampling(), "stop_ids": STOPS, "max_new_tokens": LENGTH, **changes}
    for tokens in decode(model, [Prompt(ids, number) for number, ids in enumerate(prompts)], **options):
        for token in tokens:
            results[token.row].append(token.id)
    return results


def test_greedy_answers_are_those_of_generate(model: Any) -> None:
    expected = [
        model.generate(
            torch.tensor([ids]), do_sample=False, max_new_tokens=LENGTH, eos_token_id=list(STOPS), pad_token_id=0
        )[0, len(ids) :].tolist()
        for ids in PROMPTS
    ]  # fmt: skip
    assert len({tuple(answer) for answer in expected}) > 1
    assert [answers(model, [ids])[0] for ids in PROMPTS] == expected
    assert answers(model, PROMPTS) == expected, "in one batch"


def test_answers_drawn_in_a_batch_are_those_drawn_alone(model: Any) -> None:
    sampling = Sampling(1.0, top_p=0.95, seed=3)
    prompts = [Prompt(ids, 10 + number) for number, ids in enumerate(PROMPTS)]
    batch: list[list[int]] = [[] for _ in prompts]
    for tokens in decode(model, prompts, sampling, stop_ids=STOPS, max_new_tokens=LENGTH):
        for token in tokens:
            batch[token.row].append(token.id)
    for prompt, answer in zip(prompts, batch, strict=True):
        alone = decode(model, [prompt], sampling, stop_ids=STOPS, max_new_tokens=LENGTH)
        assert [token.id for (token,) in alone] == answer
    assert batch[0] != batch[3], "equal prompts, but answers of their own"


def test_finished_answers_and_repeated_prompts_cost_nothing(model: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    sizes, forward = [], model.forward

    def count(*arguments: Any, input_ids: torch.Tensor, **options: Any) -> Any:
        sizes.append(tuple(input_ids.shape))
        return forward(*arguments, input_ids=input_ids, **options)

    monkeypatch.setattr(model, "forward", count)
    options: dict[str, Any] = {"sampling": Sampling(1.0, seed=1), "max_new_tokens": 12, "stop_ids": range(5, 25)}
    lengths = [len(answer) for answer in answers(model, PROMPTS, **options)]
    assert len(set(lengths)) > 1
    assert sizes[0] == (3, 14), "two of the four prompts are the same"
    still_open = [sum(length > done for length in lengths) for done in range(1, max(lengths))]
    assert [rows for rows, _ in sizes[1:]] == still_open
    if model._supports_default_dynamic_cache():
        assert {width for _, width in sizes[1:]} == {1}


def test_a_conversation_computes_what_is_new(model: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    sizes, forward = [], model.forward

    def count(*arguments: Any, input_ids: torch.Tensor, **options: Any) -> Any:
        sizes.append(input_ids.shape[1])
        return forward(*arguments, input_ids=input_ids, **options)

    monkeypatch.setattr(model, "forward", count)
    memory, text = Memory(), PROMPTS[1]
    for turn in ([], [11, 12, 13], [14]):
        text = text + turn
        sizes.clear()
        answer = answers(model, [text], memory=memory, max_new_tokens=6)[0]
        if turn and model.config.model_type not in ("mamba", "qwen3_5_text"):
            assert sizes[0] <= len(turn) + 1, "the last token of the answer, and the turn"
        assert answer == answers(model, [text], max_new_tokens=6)[0]
        text = text + answer
    changed = [*text[:16], 20, *text[17:]]
    assert answers(model, [changed], memory=memory, max_new_tokens=6) == answers(model, [changed], max_new_tokens=6)


def test_a_failed_pass_leaves_no_half_memory(model: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    memory, forward, calls = Memory(), model.forward, []

    def fail(*arguments: Any, **options: Any) -> Any:
        result = forward(*arguments, **options)
        calls.append(1)
        if len(calls) == 3:
            raise MemoryError
        return result

    with monkeypatch.context() as patch, pytest.raises(MemoryError):
        patch.setattr(model, "forward", fail)
        answers(model, PROMPTS[:1], memory=memory, stop_ids=())
    assert answers(model, PROMPTS[:1], memory=memory) == answers(model, PROMPTS[:1])


def test_probabilities_are_those_of_the_model(model: Any) -> None:
    ids = PROMPTS[0]
    options: dict[str, Any] = {"stop_ids": STOPS, "max_new_tokens": 5, "num_likeliest": 3}
    tokens: list[Token] = [t for (t,) in decode(model, [Prompt(ids)], Sampling(0.5, top_k=2, seed=5), **options)]
    text = [*ids, *(token.id for token in tokens)]
    with torch.no_grad():
        logits = model(torch.tensor([text])).logits[0, len(ids) - 1 : -1]
    expected = torch.log_softmax(logits / 0.5, -1)
    for token, row in zip(tokens, expected, strict=True):
        assert token.log_prob == pytest.approx(float(row[token.id]), abs=1e-4)
        assert [number for number, _ in token.likeliest] == row.topk(3).indices.tolist()
        assert [value for _, value in token.likeliest] == pytest.approx(row.topk(3).values.tolist(), abs=1e-4)


def test_no_generator_moves(model: Any) -> None:
    before = torch.get_rng_state()
    answers(model, PROMPTS, sampling=Sampling(1.0))
    assert torch.equal(torch.get_rng_state(), before)


@pytest.mark.parametrize("kind", ["gpt2", "llama"])  # learned positions end there, others go on and make no sense
def test_answers_end_where_the_context_does(kind: str) -> None:
    model = make_model(kind)
    context = 128
    prompts = [[1, *range(8, 8 + length)] * 4 for length in (28, 20, 30)]
    whole = answers(model, prompts, stop_ids=(), max_new_tokens=1000)
    assert [len(ids) + len(answer) for ids, answer in zip(prompts, whole, strict=True)] == [context] * 3
    assert whole == [answers(model, [ids], stop_ids=(), max_new_tokens=1000)[0] for ids in prompts]
    assert len(answers(model, [[1] * (context - 1)], stop_ids=())[0]) == 1
    with pytest.raises(DataError, match=r"The prompt has 128 tokens, and the model sees 128"):
        answers(model, [PROMPTS[0], [1] * context])
