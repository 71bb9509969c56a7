"""One row made into a sample: its tokens with their text, the trained ones, who speaks, and what is odd."""

import re
from bisect import bisect_left, bisect_right
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from transformers import PreTrainedTokenizerBase

from ftui.dataset.report import RowLocation
from ftui.dataset.row import RowView, Token, Turn

from ..data.facts.row_facts import Oddity
from ..data.files.raw_rows import Row
from ..data.tokens import encode
from ..data.tokens.encode import Encoder
from .explain import Explanation, explain_row
from .raw_row import raw_text

MOST_CUT = 2000  # tokens beyond data.max_length that are told unless more are wanted
BEHIND_HIT = 200  # tokens told behind a text that was sought there
MOST_HITS = 1000
CHANGED = "Its file has changed since it was tokenised: read it again."
WORDS = {
    Oddity.EMPTY_ANSWER: "An answer is empty.",
    Oddity.PLACEHOLDER: "It holds a placeholder such as {{name}} in place of text.",
    Oddity.BOILERPLATE: 'An answer says "as an AI language model" or the like.',
    Oddity.DAMAGED_TEXT: "Some of its text was read with the wrong encoding.",
    Oddity.ENDS_UNANSWERED: "It does not end with an answer.",
    Oddity.SAME_ROLE_TWICE: "The same speaker comes twice in a row.",
    Oddity.BEGINS_WITH_ANSWER: "It begins with an answer.",
    Oddity.LATE_SYSTEM: "A system turn stands inside.",
    Oddity.NO_TARGET: "None of it is trained on: it is left out.",
    Oddity.TWO_BOS: "It begins with two tokens that start a text.",
    Oddity.NO_EOS: "It ends without a token that ends a turn.",
    Oddity.MASKS_DIFFER: "The tokens that are trained on do not spell out an answer exactly.",
    Oddity.UNKNOWN_TOKENS: "It has characters that the tokenizer does not know.",
    Oddity.JOINED_LINES: "Hard line breaks in its text were joined to paragraphs.",
}


@dataclass(frozen=True, kw_only=True)
class LoadedRow:
    """A row with all that it takes to show it. `flags` are an `Oddity`; `sequences` are its own in the store."""

    number: int
    num_rows: int
    source: str
    form: str
    row: Row
    where: RowLocation
    raw: str
    flags: int
    sequences: list[encode.Sequence]
    encoder: Encoder
    max_length: int
    is_plain: bool = False  # its file is one text

    @cached_property
    def explained(self) -> list[Explanation]:
        """Raises `DataError` where it cannot be trained on as it stands now."""
        return explain_row(self.encoder, self.row, self.form)


def count_parts(taken: LoadedRow) -> int:
    """Sequences that the model sees of it; at least one is shown."""
    return max(1, len(_pieces(taken)))


def _pieces(taken: LoadedRow) -> list[tuple[int, int, int]]:
    """(sequence, first token, behind the last) of each part. Stage sft cuts, every other one splits.

    A last piece of one token would be predicted from nothing: it gets one of the piece before (as in sequences.py).
    """
    pieces = []
    for index, sequence in enumerate(taken.sequences):
        length = len(sequence.input_ids)
        if taken.encoder.stage == "sft":
            pieces.append((index, 0, length))
            continue
        starts = list(range(0, length, taken.max_length))
        if len(starts) > 1 and length - starts[-1] == 1:
            starts[-1] -= 1
        pieces += [(index, start, end) for start, end in zip(starts, [*starts[1:], length], strict=True)]
    return pieces


def find_part(taken: LoadedRow, text: str, first: int = 0) -> int | None:
    """The first part from `first` on in which this text begins, whatever the case and the blanks in it."""
    pieces, wanted = _pieces(taken), _pattern(text)
    for number, (index, start, _) in enumerate(pieces):
        if number < first or index >= len(taken.explained) or (number > first and start):
            continue  # one look at a sequence finds the first of all its parts
        one = taken.explained[index]
        if (hit := next(_hits(one, wanted, start), None)) is not None:
            its = (n for n, (other, _, end) in enumerate(pieces) if n >= number and other == index and hit[0] < end)
            return next(its, None)
    return None


def _pattern(text: str) -> re.Pattern[str]:
    return re.compile(r"\s+".join(map(re.escape, text.split())) or re.escape(text), re.IGNORECASE)


def _hits(one: Explanation, wanted: re.Pattern[str], start: int) -> Iterator[tuple[int, int]]:
    """The tokens of each place where it is found, from token `start` on: the first, and behind the last."""
    begins, ends = [offset[0] for offset in one.offsets], [offset[1] for offset in one.offsets]
    for found in wanted.finditer(one.text, begins[start] if start < len(begins) else len(one.text)):
        yield bisect_right(ends, found.start()), bisect_left(begins, found.end())


def _hits_within(one: Explanation, text: str, start: int, end: int) -> list[tuple[int, int]]:
    """The same of those that begin before token `end`, counted from `start`."""
    found: list[tuple[int, int]] = []
    for first, last in _hits(one, _pattern(text), start) if text else ():
        if first >= end or len(found) == MOST_HITS:
            break
        found.append((first - start, min(last, end) - start))
    return found


def make_row_view(
    taken: LoadedRow, part: int, extra: Sequence[str] = (), *, most_cut: int = MOST_CUT, sought: str = ""
) -> RowView:
    """Part `part` of a row, with `extra` notes, up to `most_cut` tokens beyond data.max_length, and where `sought` is.

    Raises:
        DataError: its file has changed, and what stands there now cannot be trained on.
    """
    pieces = _pieces(taken)
    index, start, end = pieces[min(part, len(pieces) - 1)] if pieces else (0, 0, 0)
    one = taken.explained[index] if index < len(taken.explained) else None
    notes = [words for oddity, words in WORDS.items() if taken.flags & oddity]
    if one is None:
        tokens, turns, hits = [], [], []
    else:
        notes += [f"Of an answer, {one.differs}."] if one.differs else []
        its = taken.sequences[index].input_ids if pieces else np.asarray(one.ids)
        if not np.array_equal(np.asarray(one.ids), its):
            notes.append(CHANGED)
        if not pieces:
            end = len(one.ids)
        cut = taken.max_length if taken.encoder.stage == "sft" else end
        hits = _hits_within(one, sought, start, end)
        last = min(end, start + max(cut + most_cut, hits[0][1] + BEHIND_HIT if hits else 0))
        tokens = _tokens(taken.encoder.tokenizer, one, start, last, cut)
        turns = _turns(one, start, last)
    num_trained = sum(token.is_target and not token.is_cut for token in tokens)
    if not num_trained and tokens and any(token.is_target for token in tokens):
        notes.append(
            f"None of it is trained on: all that would be stands beyond data.max_length = {taken.max_length:,}."
        )
    raw, raw_line = _raw_text(taken, one, start, end, is_part=len(pieces) > 1)
    return RowView(
        number=taken.number, num_rows=taken.num_rows, where=taken.where, source=taken.source, form=taken.form,
        part=min(part, max(0, len(pieces) - 1)), num_parts=max(1, len(pieces)), tokens=tokens, turns=turns,
        num_tokens=end - start, num_target_tokens=num_trained,
        max_length=taken.max_length, raw=raw, raw_line=raw_line, notes=[*extra, *notes],
        hits=[(first, min(behind, len(tokens))) for first, behind in hits if first < len(tokens)],
        num_row_tokens=sum(len(sequence.input_ids) for sequence in taken.sequences) or end - start,
    )  # fmt: skip


def _raw_text(
    taken: LoadedRow, one: Explanation | None, start: int, end: int, *, is_part: bool
) -> tuple[str, int | None]:
    said, share = "", 0.0
    if one is not None and is_part and start < end <= len(one.offsets):
        begin, behind = one.offsets[start][0], one.offsets[end - 1][1]
        said, share = one.text[begin:behind], begin / max(1, len(one.text))
    return raw_text(taken.raw, is_plain=taken.is_plain, line=taken.where.number, said=said, share=share)


def _tokens(tokenizer: PreTrainedTokenizerBase, one: Explanation, start: int, end: int, cut: int) -> list[Token]:
    """Each character stands in one token: what several make up (bytes of it) in the first, a gap in the one behind."""
    special = {number for number, added in tokenizer.added_tokens_decoder.items() if added.special}
    covered = one.offsets[start - 1][1] if start else 0
    tokens = []
    for at in range(start, end):
        last = max(covered, one.offsets[at][1])
        number, is_target = int(one.ids[at]), bool(one.targets[at]) and at > start
        tokens.append(Token(number, one.text[covered:last], is_target, number in special, at - start >= cut))
        covered = last
    return tokens


def _turns(one: Explanation, start: int, end: int) -> list[Turn]:
    """Turns by their tokens. What stands before the first belongs to it."""
    if not one.turns:
        return []
    begins = [offset[0] for offset in one.offsets]
    firsts = [int(np.searchsorted(begins, at)) for _, at, _ in one.turns]
    firsts[0] = 0
    found = []
    for (role, _, _), first, last in zip(one.turns, firsts, [*firsts[1:], len(begins)], strict=True):
        if first < end and last > start:
            found.append(Turn(str(role), max(first, start) - start, min(last, end) - start))
    return found
