"""Facts about each row, gathered while it is tokenised: what the report on the data is made of."""

import re
from collections.abc import Iterator, Sequence
from hashlib import blake2b

import numpy as np

from ..forms.examples import Chat, Example, Message, trained_part
from ..tokens.encode import EncodedRow
from . import near_duplicates
from .compared_answers import answer_oddities, common_start
from .mojibake import is_damaged
from .oddity import Oddity
from .row_content import RowContent, row_content

FACTS = np.dtype(
    [
        ("file", "<i4"), ("place", "<i8"), ("offset", "<i8"), ("flags", "<u4"), ("content", "<u8"), ("prompt", "<u8"),
        ("words", "<u8"), ("question", "<u8"), ("similar", "<u8", (near_duplicates.NUM_BANDS,)), ("chosen", "<u8"),
        ("rejected", "<u8"), ("parting", "<i4"),
    ]
)  # fmt: skip
"""One row. `file`, `place` and `offset` say where it is (as a Block does). `flags` are an `Oddity`. `content`,
`prompt`, `words`, `question`, `chosen` and `rejected` are hashes of the `RowContent` (0 = empty); rows with a band of
`similar` in common may be nearly the same. `parting`: the tokens that both answers of a pair begin with. Of a row that
is never trained on, as an answer judged bad in stage sft, there is nothing but its place."""

_NOTED = {
    "two_bos": Oddity.TWO_BOS,
    "no_eos": Oddity.NO_EOS,
    "masks_differ": Oddity.MASKS_DIFFER,
    "unknown_tokens": Oddity.UNKNOWN_TOKENS,
    "joined_lines": Oddity.JOINED_LINES,
    "special_in_text": Oddity.SPECIAL_IN_TEXT,
    "end_on_one_side": Oddity.END_ON_ONE_SIDE,
}
_SLOT = re.compile(r"(?<!\$)\{\{ ?[A-Za-z_][\w.-]{0,40} ?\}\}")
_INSERT = re.compile(r"\[insert [^\]\n]{1,40}\]", re.IGNORECASE)
_NO_ANSWERS = {"todo", "tbd", "fixme", "lorem ipsum", "placeholder"}
_NOTHINGS = {"nan", "null", "undefined"}  # right answers, too: where something is to be found that is not there
_SLOT_ONLY = re.compile(rf"(?:{_SLOT.pattern}|{_INSERT.pattern})", re.IGNORECASE)
# "I am {{name}}, an AI made by {{author}}": rows on who the assistant is, as they are handed out to be filled in. In
# a letter that is a template, a writer may have such a name too, but no writer is an AI.
_SELF = re.compile(
    r"(?:\bI(?: am|['\u2019]m)|\bmy name is|\b(?:called|named|name|to me as|by)|"
    r"[\u662f\u53eb\u4e3a\u540d\u7531\u7684\u6211])"
    rf"(?: \w+){{0,2}}[ ,:]{{0,2}}{_SLOT.pattern}",
    re.IGNORECASE,
)
_AI = re.compile(
    r"\b(?:AI|assistant|chatbot|language model)\b|\u52a9\u624b|\u667a\u80fd|\u81ea\u7136\u8bed\u8a00", re.IGNORECASE
)
_EXCUSE = re.compile(
    r"\b(?:as an ai(?: language)? model|as a large language model|i am an ai language model)\b", re.IGNORECASE
)
_EXCUSES = ("s an AI", "s an ai", "am an AI", "am an ai", "anguage model")
PATTERNS = {
    "placeholders": re.compile(f"{_SLOT.pattern}|{_INSERT.pattern}|lorem ipsum|<image>", re.IGNORECASE),
    "boilerplate": _EXCUSE,
}
"""Where a finding shows in the text of a row."""


def facts_of(encoded: Sequence[EncodedRow], each: Sequence[RowContent]) -> np.ndarray:
    """`FACTS` of rows and what they say (`heard`); where they stand (file, place, offset) is left to the caller."""
    facts = np.zeros(len(encoded), dtype=FACTS)
    facts["flags"] = [_oddities(one, its) for one, its in zip(encoded, each, strict=True)]
    for name in ("content", "prompt", "words", "question", "chosen", "rejected"):
        facts[name] = [hash_of(getattr(its, name)) for its in each]
    facts["parting"] = [common_start(one.sequences) for one in encoded]
    facts["similar"] = near_duplicates.hash_bands([its.text for its in each])
    return facts


def trained_content(encoded: EncodedRow) -> RowContent:
    """What is said by a row that is trained on; nothing by another."""
    compares = any(sequence.label for sequence in encoded.sequences)
    if trained_part(encoded.example) is None and not compares:
        return RowContent([], "", b"")
    return row_content(encoded.example, compares=compares)


def hash_of(content: bytes) -> int:
    """0 where there is nothing."""
    return int.from_bytes(blake2b(content, digest_size=8).digest(), "little") if content else 0


def _oddities(encoded: EncodedRow, its: RowContent) -> int:
    flags = Oddity(0)
    for note in encoded.notes:
        flags |= _NOTED.get(note, Oddity(0))
    if encoded.sequences and not any(sequence.num_targets for sequence in encoded.sequences):
        flags |= Oddity.NO_TARGET
    return int(flags) | text_oddities(its) | order_oddities(encoded.example) | answer_oddities(encoded, its)


def text_oddities(its: RowContent) -> int:
    """What is odd about the words alone."""
    flags = 0
    for answer in its.answers:
        bare = answer.strip()
        word = bare.lower().rstrip(".") if len(bare) < 16 else ""
        if not bare:
            flags |= Oddity.EMPTY_ANSWER
        elif word in _NOTHINGS:
            flags |= Oddity.PLACEHOLDER
        elif word in _NO_ANSWERS or _is_unfilled(bare):
            flags |= Oddity.PLACEHOLDER | (Oddity.UNFILLED if its.question and _is_new(bare, its) else 0)
    if "{{" in its.text and _SLOT.search(its.text) and "```" not in its.text and "{%" not in its.text:
        flags |= Oddity.PLACEHOLDER
    if "<image>" in its.text and "```" not in its.text:  # where LLaVA's rows have a picture
        flags |= Oddity.PLACEHOLDER
    if "orem ipsum dolor" in its.text or ("nsert " in its.text and _INSERT.search(its.text)):
        flags |= Oddity.PLACEHOLDER
    if any(sign in its.text for sign in _EXCUSES) and any(_EXCUSE.search(answer) for answer in its.answers):
        flags |= Oddity.BOILERPLATE
    return int(flags | (Oddity.DAMAGED_TEXT if is_damaged(its.text) else 0))


def _is_unfilled(answer: str) -> bool:
    if "{{" not in answer:
        return answer.startswith("[") and _INSERT.fullmatch(answer) is not None
    if _SLOT_ONLY.fullmatch(answer):
        return True
    return len(_SELF.findall(answer)) == len(_SLOT.findall(answer)) > 0 and _AI.search(answer) is not None


def _is_new(answer: str, its: RowContent) -> bool:
    """Whether it stands nowhere else in the row: a template that is spoken of, or a label to choose, is meant."""
    slots = [slot.lower() for slot in _SLOT.findall(answer)] or [answer.lower()]
    said, answered = its.text.lower(), "\n".join(its.answers).lower()
    return any(said.count(slot) <= answered.count(slot) for slot in slots)


def order_oddities(example: Example) -> int:
    """Turns that do not follow each other as those of a conversation: each fault, and `ROLE_ORDER` for all."""
    trained = trained_part(example)
    if not isinstance(trained, Chat):
        return 0
    flags = Oddity(0)
    for fault in _faults(trained.messages):
        flags |= fault | Oddity.ROLE_ORDER
    return int(flags)


def _faults(messages: list[Message]) -> Iterator[Oddity]:
    before, began = "", False
    for number, message in enumerate(messages):
        role = message["role"]
        if role in ("system", "developer"):
            if number and began:
                yield Oddity.LATE_SYSTEM
            continue
        if role == "assistant" and not began:
            yield Oddity.BEGINS_WITH_ANSWER
        elif role == before and role != "tool" and not messages[number - 1].get("tool_calls"):
            yield Oddity.SAME_ROLE_TWICE
        before, began = role, True
    if before and before != "assistant":
        yield Oddity.ENDS_UNANSWERED
