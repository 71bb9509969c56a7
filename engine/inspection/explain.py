"""What became of a row, for people: the text of its sequences, where each token stands in it, and who speaks."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from transformers import PreTrainedTokenizerBase

from ftui.errors import DataError

from ..data.files.raw_rows import Row
from ..data.forms.examples import Chat, Completion, Tokens, labelled_part
from ..data.tokens.chat_template import RenderedText, locate_turns
from ..data.tokens.encode import Encoder
from ..data.tokens.loss_mask import begin_together, loss_mask, mask_difference
from ..data.tokens.template_fit import TemplateRefusal

TurnSpan = tuple[str, int, int]
"""Who says the characters from one to before another."""
PART = "\N{REPLACEMENT CHARACTER}"  # what a decoder shows of a part of a character
MOST_BYTES = 4  # tokens that may make up one


@dataclass(frozen=True)
class Explanation:
    """One sequence. `offsets` are the characters of each token in `text`, `targets` whether it is trained on (bool).

    `differs` says in words what its trained tokens do not spell, or spell beside; empty where they do.
    """

    text: str
    ids: Sequence[int]
    offsets: Sequence[tuple[int, int]]
    targets: Sequence[bool]
    turns: Sequence[TurnSpan]
    differs: str = ""


def explain_row(encoder: Encoder, row: Row, form: str) -> list[Explanation]:
    """The sequences of a row, encoded as they were for the store.

    Raises:
        DataError: the row cannot be trained on.
    """
    encoded = encoder.prepare(row, form)
    if isinstance(encoded, DataError):
        raise encoded
    if encoded.tokens is not None:
        return [_of_tokens(encoder.tokenizer, encoded.tokens)]
    explanations, encodings = [], encoder.tokenised([turn.text for turn in encoded.turns])
    masks = [loss_mask(one, turn.text, turn.spans) for one, turn in zip(encodings, encoded.turns, strict=True)]
    begin_together(encoded.turns, [one.ids for one in encodings], [mask.targets for mask in masks])
    for rendered, encoding, mask in zip(encoded.turns, encodings, masks, strict=True):
        turns = _turns(encoder, labelled_part(encoded.example, rendered.label), rendered)
        differs = mask_difference(encoder.tokenizer, encoding, rendered.text, rendered.spans, mask)
        targets = mask.targets.tolist()
        explanations.append(Explanation(rendered.text, encoding.ids, encoding.offsets, targets, turns, differs))
    return explanations


def _turns(encoder: Encoder, example: Any, rendered: RenderedText) -> list[TurnSpan]:
    text = rendered.text
    if isinstance(example, Chat):
        try:
            return locate_turns(encoder.tokenizer, example, text)
        except TemplateRefusal:  # it was rendered in another way (a mark of the template's): without turns, then
            return []
    if isinstance(example, Completion):
        start = text.find(example.prompt) + len(example.prompt)
        return [("prompt", 0, start), ("completion", start, len(text))]
    return []


def _of_tokens(tokenizer: PreTrainedTokenizerBase, tokens: Tokens) -> Explanation:
    """Of a row that somebody else has tokenised: the text is what its tokens decode to."""
    ids, text = tokens.input_ids.tolist(), ""
    offsets: list[tuple[int, int]] = []
    pending: list[int] = []
    for number, token in enumerate(ids):
        pending.append(token)
        piece = str(tokenizer.decode(pending, skip_special_tokens=False, clean_up_tokenization_spaces=False))
        is_part = piece.endswith(PART) and len(pending) < MOST_BYTES and number + 1 < len(ids)
        if not is_part:  # several tokens may make up one character
            offsets += [(len(text), len(text) + len(piece))] * len(pending)
            text, pending = text + piece, []
    return Explanation(text, ids, offsets, tokens.targets.tolist(), [])
