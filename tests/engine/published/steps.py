"""Training steps as the measured programs wrote them: what they keep alive, and for how long, decides their peaks."""

from collections.abc import Iterator
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from tests.support.tracing import Step

HEAD_CHUNK = 128
"""Positions that go through the head and the loss at once in litgpt (finetune/lora.py, `lm_head_chunk_size`)."""


def tokens(batch: int, length: int) -> Tensor:
    return torch.empty((batch, length), dtype=torch.long, device="meta")


def fitcheck(batch: int, length: int) -> Step:
    """fitcheck 0.3.1 scripts/measure.py, `one_step`: gradients live until the next step, logits until its end."""
    ids = tokens(batch, length)

    def step(model: nn.Module, optimizer: Any) -> Iterator[str]:
        yield "forward"
        optimizer.zero_grad()
        out = model(input_ids=ids, labels=ids)
        yield "backward"
        out.loss.backward()
        yield "optimizer"
        optimizer.step()

    return step


def metamathqa(batch: int, length: int) -> Step:
    """PEFT method_comparison/MetaMathQA/run.py, `train`: padded rows; outputs live until those of the next batch."""
    kept: dict[str, Any] = {}

    def step(model: nn.Module, optimizer: Any) -> Iterator[str]:
        yield "forward"
        ids, mask, labels = (tokens(batch, length) for _ in range(3))
        optimizer.zero_grad()
        kept["out"] = model(input_ids=ids, attention_mask=mask, labels=labels, num_items_in_batch=batch * length)
        yield "backward"
        kept["out"].loss.backward()
        yield "optimizer"
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()

    return step


def litgpt(batch: int, length: int, chunked_head: bool) -> Step:
    """litgpt finetune/lora.py and full.py, `fit`: it accumulates; logits live until those of the next micro-batch."""
    ids = tokens(batch, length)
    kept: dict[str, Any] = {}

    def loss_of(model: Any) -> Tensor:
        base = model.get_base_model() if hasattr(model, "get_base_model") else model
        hidden = base.base_model(input_ids=ids)[0]
        head = base.get_output_embeddings()
        if chunked_head:
            logits = kept["logits"] = [head(part) for part in hidden.split(HEAD_CHUNK, dim=1)]
            logits[-1] = logits[-1][:, :-1]
            targets = [part.reshape(-1) for part in ids[:, 1:].split(HEAD_CHUNK, dim=1)]
            parts = [part.reshape(-1, part.shape[-1]) for part in logits]
        else:
            kept["logits"] = head(hidden)
            whole = kept["logits"][:, :-1]
            parts = list(whole.reshape(-1, whole.shape[-1]).split(HEAD_CHUNK))
            targets = list(ids[:, 1:].reshape(-1).split(HEAD_CHUNK))
        losses = [
            F.cross_entropy(part, part_of, reduction="none") for part, part_of in zip(parts, targets, strict=True)
        ]
        return torch.cat(losses).mean()

    def step(model: nn.Module, optimizer: Any) -> Iterator[str]:
        for _ in range(2):
            yield "forward"
            loss = loss_of(model)
            yield "backward"
            loss.backward()
            del loss
        yield "optimizer"
        optimizer.step()
        optimizer.zero_grad()

    return step


def torchtune(batch: int, length: int) -> Step:
    """torchtune recipes/full_finetune_single_device.py: all logits in float32, no accumulation."""
    ids = tokens(batch, length)

    def step(model: nn.Module, optimizer: Any) -> Iterator[str]:
        yield "forward"
        logits = model(input_ids=ids).logits.float()
        loss = F.cross_entropy(logits.reshape(-1, logits.shape[-1]), ids.reshape(-1))
        del logits
        yield "backward"
        loss.backward()
        yield "optimizer"
        optimizer.step()
        optimizer.zero_grad()

    return step


def trainer(batch: int, length: int) -> Step:
    """transformers' Trainer with accumulation (Qwen's finetune.py): two micro-batches a step."""
    ids = tokens(batch, length)

    def step(model: nn.Module, optimizer: Any) -> Iterator[str]:
        for _ in range(2):
            yield "forward"
            loss = model(input_ids=ids, labels=ids).loss
            yield "backward"
            loss.backward()
            del loss
        yield "optimizer"
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad()

    return step
