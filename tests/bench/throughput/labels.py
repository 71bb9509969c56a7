"""Rows as token ids and labels, by the tokenizer that is given. Imports nothing."""

from typing import Any


def label_chat(tokenizer: Any, row: dict[str, Any], max_length: int | None = None) -> dict[str, list[int]]:
    """Token ids and labels of a conversation; the prompt is not learned."""
    messages = row["messages"]
    prompt = tokenizer.apply_chat_template(messages[:-1], add_generation_prompt=True, tokenize=False)
    text = tokenizer.apply_chat_template(messages, tokenize=False)
    ids, start = tokenizer(text).input_ids[:max_length], len(tokenizer(prompt).input_ids)
    return {"input_ids": ids, "attention_mask": [1] * len(ids), "labels": [-100] * start + ids[start:]}


def label_pair(tokenizer: Any, row: dict[str, Any]) -> dict[str, dict[str, list[int]]]:
    """Token ids and labels of both conversations of a pair."""
    return {side: label_chat(tokenizer, {"messages": [*row["prompt"], *row[side]]}) for side in ("chosen", "rejected")}


def label_text(tokenizer: Any, row: dict[str, Any]) -> dict[str, list[int]]:
    ids = [*tokenizer(row["text"]).input_ids, tokenizer.eos_token_id]
    return {"input_ids": ids, "attention_mask": [1] * len(ids), "labels": ids}
