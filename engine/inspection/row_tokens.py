"""One row made into a sample: its tokens with their text, the trained ones, who speaks, and what is odd."""

import re
from bisect import bisect_left, bisect_right
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from transformers import PreTrainedTokenizerBase

from ftui.dataset.report import RowLocation
from ftui.dataset.row import AnswerSide, ComparedAnswers, RowView, Token, Turn
from ftui.profile.sections.preference import PAIR_STAGES, REFERENCE_STAGES, VERDICT_STAGES
from ftui.profile.sections.sampled_stages import POLICY_STAGES

from ..data.facts.compared_answers import common_start
from ..data.facts.oddity import Oddity, without_answers
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
    Oddity.IDENTICAL_ANSWERS: "Both answers are the same: they cancel each other out.",
    Oddity.EMPTY_REJECTED: "The rejected answer is empty.",
    Oddity.PROMPTS_DIFFER: "The prompt before the rejected answer is another one.",
    Oddity.ANSWER_IN_PROMPT: "The answer to prefer stands word for word in the prompt.",
    Oddity.END_ON_ONE_SIDE: "One answer has more end-of-text tokens at its end than the other.",
}


@dataclass(frozen=True, kw_only=True)
class LoadedRow:
    """A row with all that it takes to show it. `flags` are an `Oddity`; `sequences` are its own in the store.

    `log_probs` are those of each of them under the reference (in nats), none where they are not measured; `None` where
    nobody has looked.
    """

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
    log_probs: tuple[float, ...] | None = None

    @cached_property
    def explained(self) -> list[Explanation]:
        """Raises `DataError` where it cannot be trained on as it stands now."""
        return explain_row(self.encoder, self.row, self.form)


def count_parts(row: LoadedRow) -> int:
    """Sequences that the model sees of it; at least one is shown."""
    return max(1, len(_pieces(row)))


def _pieces(row: LoadedRow) -> list[tuple[int, int, int]]:
    """(sequence, first token, behind the last) of each part. Stage sft cuts, every other one splits.

    A last piece of one token would be predicted from nothing: it gets one of the piece before (as in sequences.py).
    """
    pieces = []
    for index, sequence in enumerate(row.sequences):
        length = len(sequence.input_ids)
        if row.encoder.stage != "pretrain":
            pieces.append((index, 0, length))
            continue
        starts = list(range(0, length, row.max_length))
        if len(starts) > 1 and length - starts[-1] == 1:
            starts[-1] -= 1
        pieces += [(index, start, end) for start, end in zip(starts, [*starts[1:], length], strict=True)]
    return pieces


def find_part(row: LoadedRow, text: str, first: int = 0) -> int | None:
    """The first part from `first` on in which this text begins, whatever the case and the blanks in it."""
    pieces, pattern = _pieces(row), _pattern(text)
    for number, (index, start, _) in enumerate(pieces):
        if number < first or index >= len(row.explained) or (number > first and start):
            continue  # one look at a sequence finds the first of all its parts
        explanation = row.explained[index]
        if (hit := next(_hits(explanation, pattern, start), None)) is not None:
            its = (n for n, (other, _, end) in enumerate(pieces) if n >= number and other == index and hit[0] < end)
            return next(its, None)
    return None


def _pattern(text: str) -> re.Pattern[str]:
    return re.compile(r"\s+".join(map(re.escape, text.split())) or re.escape(text), re.IGNORECASE)


def _hits(explanation: Explanation, pattern: re.Pattern[str], start: int) -> Iterator[tuple[int, int]]:
    """The tokens of each place where it is found, from token `start` on: the first, and behind the last."""
    begins, ends = [offset[0] for offset in explanation.offsets], [offset[1] for offset in explanation.offsets]
    for match in pattern.finditer(explanation.text, begins[start] if start < len(begins) else len(explanation.text)):
        yield bisect_right(ends, match.start()), bisect_left(begins, match.end())


def _hits_within(explanation: Explanation, text: str, start: int, end: int) -> list[tuple[int, int]]:
    """The same of those that begin before token `end`, counted from `start`."""
    hits: list[tuple[int, int]] = []
    for first, last in _hits(explanation, _pattern(text), start) if text else ():
        if first >= end or len(hits) == MOST_HITS:
            break
        hits.append((first - start, min(last, end) - start))
    return hits


def make_row_view(
    row: LoadedRow, part: int, extra: Sequence[str] = (), *, most_cut: int = MOST_CUT, sought: str = ""
) -> RowView:
    """Part `part` of a row, with `extra` notes, up to `most_cut` tokens beyond data.max_length, and where `sought` is.

    Raises:
        DataError: its file has changed, and what stands there now cannot be trained on.
    """
    pieces = _pieces(row)
    index, start, end = pieces[min(part, len(pieces) - 1)] if pieces else (0, 0, 0)
    explanation = row.explained[index] if index < len(row.explained) else None
    flags = without_answers(row.flags) if row.encoder.stage in POLICY_STAGES else row.flags
    notes = [*(words for oddity, words in WORDS.items() if flags & oddity), *_notes_on_cut_pair(row)]
    if explanation is None:
        tokens, turns, hits = [], [], []
    else:
        notes += [f"Of an answer, {explanation.differs}."] if explanation.differs else []
        its = row.sequences[index].input_ids if pieces else np.asarray(explanation.ids)
        if not np.array_equal(np.asarray(explanation.ids), its):
            notes.append(CHANGED)
        if not pieces:
            end = len(explanation.ids)
        cut = row.max_length if row.encoder.stage != "pretrain" else end
        hits = _hits_within(explanation, sought, start, end)
        last = min(end, start + max(cut + most_cut, hits[0][1] + BEHIND_HIT if hits else 0))
        tokens = _tokens(row.encoder.tokenizer, explanation, start, last, cut)
        turns = _turns(explanation, start, last)
    num_trained = sum(token.is_target and not token.is_cut for token in tokens)
    if not num_trained and tokens and any(token.is_target for token in tokens):
        notes.append(f"None of it is trained on: all that would be stands beyond data.max_length = {row.max_length:,}.")
    raw, raw_line = _raw_text(row, explanation, start, end, is_part=len(pieces) > 1)
    return RowView(
        number=row.number, num_rows=row.num_rows, where=row.where, source=row.source, form=row.form,
        part=min(part, max(0, len(pieces) - 1)), num_parts=max(1, len(pieces)), tokens=tokens, turns=turns,
        num_tokens=end - start, num_target_tokens=num_trained,
        max_length=row.max_length, raw=raw, raw_line=raw_line, notes=[*extra, *notes],
        hits=[(first, min(behind, len(tokens))) for first, behind in hits if first < len(tokens)],
        num_row_tokens=sum(len(sequence.input_ids) for sequence in row.sequences) or end - start,
        label=row.sequences[index].label if pieces else 0, compared=_compared(row),
        is_halved=row.encoder.stage in VERDICT_STAGES and len(pieces) == 2,
        margin=row.sequences[index].margin if pieces and row.encoder.stage == "rm" else 0.0,
    )  # fmt: skip


def _compared(row: LoadedRow) -> ComparedAnswers | None:
    """Both sides as they are seen; `None` where nothing is compared."""
    sides = [one for one in row.sequences if one.label]
    if not sides:
        return None
    log_probs = row.log_probs or (None,) * len(sides)
    seen = [
        AnswerSide(
            one.label, min(len(one.input_ids), row.max_length), int(one.targets[1 : row.max_length].sum()), log_prob
        )
        for one, log_prob in zip(sides, log_probs, strict=True)
    ]
    at = common_start(sides)
    differs = len(sides) > 1 and at < max(side.num_tokens for side in seen)
    has_reference = row.encoder.stage in REFERENCE_STAGES and row.log_probs is not None
    return ComparedAnswers(seen, at if differs else None, has_reference)


def _notes_on_cut_pair(row: LoadedRow) -> Iterator[str]:
    """What data.max_length takes from the two answers of a pair: they are cut at the same place (sequences.py)."""
    if row.encoder.stage not in PAIR_STAGES or len(row.sequences) != 2:
        return
    sizes = [len(sequence.input_ids) for sequence in row.sequences]
    if max(sizes) <= row.max_length:
        return
    lost = [f"{max(0, size - row.max_length):,} of its {size:,} tokens" for size in sizes]
    yield (
        f"data.max_length = {row.max_length:,} cuts both answers at the same place: the chosen one loses {lost[0]}, "
        f"the rejected one {lost[1]}."
    )
    sides = zip(("chosen", "rejected"), row.sequences, strict=True)
    if empty := [side for side, its in sides if not its.targets[1 : row.max_length].any()]:
        yield f"The pair is left out: no trained token of the {' and the '.join(empty)} answer is left."


def _raw_text(
    row: LoadedRow, explanation: Explanation | None, start: int, end: int, *, is_part: bool
) -> tuple[str, int | None]:
    part, share = "", 0.0
    if explanation is not None and is_part and start < end <= len(explanation.offsets):
        begin, behind = explanation.offsets[start][0], explanation.offsets[end - 1][1]
        part, share = explanation.text[begin:behind], begin / max(1, len(explanation.text))
    return raw_text(row.raw, is_plain=row.is_plain, line=row.where.number, part=part, share=share)


def _tokens(
    tokenizer: PreTrainedTokenizerBase, explanation: Explanation, start: int, end: int, cut: int
) -> list[Token]:
    """Each character stands in one token: what several make up (bytes of it) in the first, a gap in the one behind."""
    special = {number for number, added in tokenizer.added_tokens_decoder.items() if added.special}
    covered = explanation.offsets[start - 1][1] if start else 0
    tokens = []
    for at in range(start, end):
        last = max(covered, explanation.offsets[at][1])
        number, is_target = int(explanation.ids[at]), bool(explanation.targets[at]) and at > start
        tokens.append(Token(number, explanation.text[covered:last], is_target, number in special, at - start >= cut))
        covered = last
    return tokens


def _turns(explanation: Explanation, start: int, end: int) -> list[Turn]:
    """Turns by their tokens. What stands before the first belongs to it."""
    if not explanation.turns:
        return []
    begins = [offset[0] for offset in explanation.offsets]
    firsts = [int(np.searchsorted(begins, at)) for _, at, _ in explanation.turns]
    firsts[0] = 0
    turns = []
    for (role, _, _), first, last in zip(explanation.turns, firsts, [*firsts[1:], len(begins)], strict=True):
        if first < end and last > start:
            turns.append(Turn(str(role), max(first, start) - start, min(last, end) - start))
    return turns
