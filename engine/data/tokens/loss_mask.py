"""The loss mask: which tokens are trained on, from the characters that are; and whether they spell just those."""

import re
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from transformers import PreTrainedTokenizerBase

from ..forms.examples import Chat, Example, trained_part
from .chat_template import RenderedText
from .pieces import Span, TextTokens

WORD = re.compile(r"\w+")
LOOKED_AT = 400  # characters of a turn that are looked for
SHOWN = 24  # characters of a text in words about it


@dataclass(frozen=True)
class LossMask:
    """`targets` marks the tokens that are trained on (bool); `runs` are those of each span: (first, after the last).

    A span without a token has an empty run. `differs` says in words where a token is in a span in part only; empty =
    nowhere.
    """

    targets: np.ndarray
    runs: tuple[Span, ...]
    differs: str = ""


def loss_mask(encoding: TextTokens, text: str, spans: Sequence[Span]) -> LossMask:
    """A token is trained on when it has a character of a trained span, but for those that share white space only.

    So an answer never lacks its beginning where a token reaches back into the prompt; as in transformers and TRL.
    """
    targets = np.zeros(len(encoding), dtype=bool)
    runs = tuple(_token_run(encoding, text, span) for span in spans)
    for first, after in runs:
        targets[first:after] = True
    differs = (_partial_token(encoding, text, span, run) for span, run in zip(spans, runs, strict=True))
    return LossMask(targets, runs, next(filter(None, differs), ""))


def begin_together(
    turns: Sequence[RenderedText], ids: Sequence[Sequence[int] | np.ndarray], targets: Sequence[np.ndarray]
) -> None:
    """Have both answers of a pair begin with the first token that is not of the same prompt in both (in `targets`).

    Where the end of the prompt is one token with the beginning of one answer, the other one would else be asked for
    less text, after more of it. Nothing is done where the prompts differ, and to sequences that are no pair.
    """
    if [turn.label for turn in turns] != [1, -1] or not all(turn.spans for turn in turns):
        return
    if len({turn.text[: turn.spans[0][0]] for turn in turns}) > 1:
        return
    shortest = min(map(len, ids))
    chosen, rejected = (np.asarray(own[:shortest]) for own in ids)
    unlike = np.flatnonzero(chosen != rejected)
    for mask in targets:
        mask[int(unlike[0]) if len(unlike) else shortest : int(np.argmax(mask))] = True


def _token_run(encoding: TextTokens, text: str, span: Span) -> Span:
    """Asked of the encoding, which keeps offsets to itself: as lists they would take longer than all the rest."""
    start, end = span
    head = start + len(text[start:end]) - len(text[start:end].lstrip())
    first = _token_at(encoding, range(head if head < end else start, end))
    last = _token_at(encoding, range(end - 1, start - 1, -1))
    if first is None or last is None:
        return 0, 0
    while first and _chars(encoding, first - 1)[0] >= start:  # white space before the first word
        first -= 1
    while last + 1 < len(encoding) and start <= _chars(encoding, last + 1)[0] < end:  # the bytes of one character
        last += 1
    return first, last + 1


def _token_at(encoding: TextTokens, characters: range) -> int | None:
    """The first token of the first of these characters that is in one (white space may be in none)."""
    found = (encoding.char_to_token(at) for at in characters)
    return next((token for token in found if token is not None), None)


def _chars(encoding: TextTokens, token: int) -> Span:
    chars: Span | None = encoding.token_to_chars(token)
    return chars or (-1, -1)


def _partial_token(encoding: TextTokens, text: str, span: Span, run: Span) -> str:
    """In words, what is trained on that is not in the span. White space does not count: some offsets leave it out."""
    start, end = span
    if run[1] == run[0]:
        return ""
    begins, _ = _chars(encoding, run[0])
    _, ends = _chars(encoding, run[1] - 1)
    if 0 <= begins < start and text[begins:start].strip():
        return f"{text[begins:start]!r} before its start is in one token with it, so it is trained on too"
    if ends > end and text[end:ends].strip():
        return f"{text[end:ends]!r} after its end is in one token with it, so it is trained on too"
    return ""


def omits_text_beside_calls(example: Example, texts: Sequence[str]) -> bool:
    """Whether what is said beside a call is in none of these texts, as Llama 3.1's template leaves it out."""
    trained = trained_part(example)
    if not isinstance(trained, Chat) or not texts:
        return False
    said = [str(message.get("content") or "") for message in trained.messages if message.get("tool_calls")]
    return not all(_is_written(one.rpartition("</think>")[2], texts) for one in said)


def omitted_role(chat: Chat, texts: Sequence[str]) -> str:
    """The role of the first turn before the last answer of which nothing is in these texts; empty for none.

    Many templates write the roles they know and pass over others (Qwen's `developer`, Phi's `tool`).
    """
    answers = [
        n for n, message in enumerate(chat.messages) if message["role"] == "assistant" and n not in chat.untrained
    ]
    for message in chat.messages[: answers[-1]] if answers else ():
        content = message.get("content")
        if message["role"] != "assistant" and isinstance(content, str) and not _is_written(content, texts):
            return str(message["role"])
    return ""


def _is_written(said: str, texts: Sequence[str]) -> bool:
    """Whether its beginning stands in one of the texts, or its longest word, for a template may write it otherwise."""
    beginning = said[:LOOKED_AT].strip()[:SHOWN]
    if any(beginning in text for text in texts):
        return True
    word = max(WORD.findall(said[:LOOKED_AT]), key=len, default="")
    return any(word in text for text in texts)


def mask_difference(
    tokenizer: PreTrainedTokenizerBase, encoding: TextTokens, text: str, spans: Sequence[Span], mask: LossMask
) -> str:
    """In words, the first place where the trained tokens, read back, are not the trained text; empty = nowhere."""
    reasons = (
        spelling_difference(tokenizer, encoding.ids[first:after], text[start:end])
        for (start, end), (first, after) in zip(spans, mask.runs, strict=True)
    )
    return mask.differs or next(filter(None, reasons), "")


def spelling_difference(tokenizer: PreTrainedTokenizerBase, ids: Sequence[int], said: str) -> str:
    """In words, how the text of these tokens differs from what they were made of; empty where it does not.

    White space does not count (decoders add and drop some), nor what the tokenizer's normaliser does to any text.
    """
    (decoded,) = _decode(tokenizer, [ids])
    return _difference(tokenizer, decoded, said)


def spell_otherwise(tokenizer: PreTrainedTokenizerBase, each: Sequence[tuple[Sequence[int], str]]) -> list[bool]:
    """The same for many, which is read back together: a sixth of the time that making the tokens takes."""
    decoded = _decode(tokenizer, [ids for ids, _ in each])
    return [bool(_difference(tokenizer, text, said)) for text, (_, said) in zip(decoded, each, strict=True)]


def _decode(tokenizer: PreTrainedTokenizerBase, each: Sequence[Sequence[int]]) -> list[str]:
    backend = getattr(tokenizer, "backend_tokenizer")  # noqa: B009
    return [str(text) for text in backend.decode_batch([list(ids) for ids in each], skip_special_tokens=False)]


def _difference(tokenizer: PreTrainedTokenizerBase, decoded: str, said: str) -> str:
    if decoded == said or (found := _without_space(decoded)) == (wanted := _without_space(said)):
        return ""
    normalizer = getattr(tokenizer, "backend_tokenizer").normalizer  # noqa: B009
    if normalizer is not None and found == _without_space(normalizer.normalize_str(said)):
        return ""
    at = next((n for n, (a, b) in enumerate(zip(found, wanted, strict=False)) if a != b), min(len(found), len(wanted)))
    return f"{wanted[at : at + SHOWN]!r} of it is {found[at : at + SHOWN]!r} in its tokens"


def _without_space(text: str) -> str:
    return "".join(text.replace("\u2581", " ").split())
