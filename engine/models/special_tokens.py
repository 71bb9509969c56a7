"""Tokenizer and embeddings brought together: the profile's own special tokens, and rows for them."""

from collections.abc import Sequence
from typing import Any

from transformers import PreTrainedModel, PreTrainedTokenizerBase

from ftui.errors import ModelError


def add_special_tokens(tokenizer: PreTrainedTokenizerBase, tokens: Sequence[str]) -> tuple[int, ...]:
    """Give the tokenizer those of `tokens` that it lacks; returns their ids, which no model has been trained on."""
    vocabulary = tokenizer.get_vocab()
    new = [token for token in tokens if token not in vocabulary]
    if new:
        tokenizer.add_special_tokens({"extra_special_tokens": new}, replace_extra_special_tokens=False)
    ids = tokenizer.get_vocab()
    return tuple(ids[token] for token in new)


def check_new_tokens(model: Any, new_ids: Sequence[int]) -> None:
    """Tokens that no model has been trained on must be trained now.

    Raises:
        ModelError: the embeddings are frozen.
    """
    if new_ids and not any(weight.requires_grad for weight in model.get_input_embeddings().parameters()):
        raise ModelError(
            "The embeddings of model.extra_special_tokens would never be trained: they are frozen.",
            hint='Name the embeddings in adapter.trainable_modules, such as "embed_tokens".',
        )


def fit_embeddings(model: PreTrainedModel, tokenizer: PreTrainedTokenizerBase, new_ids: Sequence[int] = ()) -> None:
    """Add rows for new tokens; where the embeddings have rows to spare, those are used as they are.

    New rows are drawn around the mean of the old ones (torch's generator), as transformers does; a head that is tied to
    the embeddings stays so.

    Raises:
        ModelError: the tokenizer had more entries than the model before anything was added to it.
    """
    embeddings: Any = model.get_input_embeddings()
    rows = embeddings.weight.shape[0]
    if len(tokenizer) <= rows:
        return
    own = [token_id for token_id in tokenizer.get_vocab().values() if token_id not in set(new_ids)]
    if max(own) >= rows:
        raise ModelError(
            f"The tokenizer has {len(tokenizer) - len(new_ids)} entries, the model only {rows}.",
            hint="Use the tokenizer that belongs to the model.",
        )
    model.resize_token_embeddings(len(tokenizer), mean_resizing=not embeddings.weight.is_meta)
