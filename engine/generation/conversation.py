"""A conversation with a trained model: turns through its template, an answer token by token, what was computed kept."""

import hashlib
import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from ftui.errors import DataError
from ftui.helper.chat_facts import ChatAnswer, ModelFacts, TokenFacts

from ..data.tokens.chat_template import fix_date, template_errors
from ..data.tokens.template_fit import TemplateRefusal
from .decode import Memory, Prompt, Token, decode
from .load_trained import AnsweringModel
from .sampling import Sampling

NUM_LIKELIEST = 5
NO_CHARACTER = "\ufffd"  # in whose place the rest of a character is still to come


class Answer:
    """An answer in the making.

    Attributes:
        text: so far, without special tokens; what is no whole character yet is not in it.
        has_ended: nothing follows. `is_complete`: it ended with a token that ends a turn, not at the limit of tokens.
    """

    def __init__(
        self, model: AnsweringModel, adapter: str | None, ids: list[int], sampling: Sampling, max_new_tokens: int,
        memory: Memory,
    ) -> None:  # fmt: skip
        self.text = ""
        self.tokens: list[TokenFacts] = []
        self.has_ended = self.is_complete = False
        self._model, self._adapter = model, adapter
        self._ids: list[int] = []
        self._passes = decode(
            model.bare, [Prompt(ids)], sampling, stop_ids=model.stop_ids, max_new_tokens=max_new_tokens,
            num_likeliest=NUM_LIKELIEST, memory=memory,
        )  # fmt: skip

    def add_token(self) -> None:
        """Compute the next token."""
        with self._model.answering(self._adapter):
            tokens = next(self._passes, None)
        if tokens is None:
            self.has_ended = True
            return
        (token,) = tokens
        self._ids.append(token.id)
        text = str(self._model.tokenizer.decode(self._ids, skip_special_tokens=True)).rstrip(NO_CHARACTER)
        added = text.removeprefix(self.text) if len(text) >= len(self.text) else ""
        self.text = text
        self.tokens.append(self._describe(token, added))
        self.is_complete = self.has_ended = token.id in self._model.stop_ids

    def _describe(self, token: Token, text: str) -> TokenFacts:
        likeliest = [
            (str(self._model.tokenizer.decode([number])), math.exp(log_prob)) for number, log_prob in token.likeliest
        ]
        return TokenFacts(text, math.exp(token.log_prob), likeliest)

    def facts(self) -> ChatAnswer:
        """The answer so far, as it is sent to whoever asked."""
        return ChatAnswer(self.text, self.is_complete, self.tokens)


@dataclass(eq=False)
class Speaker:
    """One side that answers: a model with one of its adapters, or with none (`None`)."""

    model: AnsweringModel
    adapter: str | None
    memory: Memory = field(default_factory=Memory)

    def answer(self, messages: Sequence[dict[str, str]], sampling: Sampling, max_new_tokens: int) -> Answer:
        """Begin to answer the last of `messages` (each with role and content).

        A model without a chat template goes on with the text of all of them.

        Raises:
            DataError: the template takes no such conversation.
        """
        return Answer(self.model, self.adapter, self.prompt(messages), sampling, max_new_tokens, self.memory)

    def prompt(self, messages: Sequence[dict[str, str]]) -> list[int]:
        tokenizer: Any = self.model.tokenizer
        if not self.model.is_chat:
            return list(tokenizer("".join(message["content"] for message in messages))["input_ids"])
        try:
            with template_errors():
                fix_date(tokenizer.get_chat_template())
                text = tokenizer.apply_chat_template(list(messages), add_generation_prompt=True, return_dict=True)
        except TemplateRefusal as refusal:
            raise DataError(f"The chat template takes no such conversation: {refusal}", hint=refusal.hint) from refusal
        return list(text["input_ids"])


def describe_model(model: AnsweringModel) -> ModelFacts:
    """Where a model answers, and by which template."""
    template = model.tokenizer.get_chat_template() if model.is_chat else ""
    digest = hashlib.sha256(template.encode()).hexdigest() if template else ""
    return ModelFacts(model.hardware.name, model.hardware.precision, model.is_chat, digest)
