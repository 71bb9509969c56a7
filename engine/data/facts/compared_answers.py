"""What is odd about answers that are compared: the two of a pair, or one with a verdict."""

from collections.abc import Sequence

from ..forms.examples import JudgedAnswer, Pair
from ..tokens.encode import EncodedRow, num_common
from ..tokens.encode import Sequence as Tokens
from .oddity import Oddity
from .row_content import RowContent, is_asked_alike, prompt_text

LONG_ANSWER = 32  # characters: shorter ones, such as the right one of several, often stand in what is asked


def common_start(sides: Sequence[Tokens]) -> int:
    """The tokens that both sequences of a pair begin with: they part behind them. 0 of what is no pair."""
    return num_common([side.input_ids for side in sides]) if len(sides) == 2 and sides[0].label else 0


def answer_oddities(encoded: EncodedRow, its: RowContent) -> int:
    """An `Oddity`; nothing where the row is no comparison."""
    if not (its.chosen or its.rejected):
        return 0
    flags, example = 0, encoded.example
    if isinstance(example, Pair):
        if its.chosen == its.rejected:
            flags |= Oddity.IDENTICAL_ANSWERS
        elif any(map(str.strip, its.answers)) and not any(map(str.strip, its.unwanted)):
            flags |= Oddity.EMPTY_REJECTED
        if not is_asked_alike(example.chosen, example.rejected):
            flags |= Oddity.PROMPTS_DIFFER
    answer = its.answers[-1].strip() if its.answers else ""
    if len(answer) >= LONG_ANSWER and isinstance(example, Pair | JudgedAnswer):
        prompt = prompt_text(example.chosen if isinstance(example, Pair) else example.answer)
        if answer in prompt and not any(_stands_in(other.strip(), prompt) for other in its.unwanted):
            flags |= Oddity.ANSWER_IN_PROMPT
            flags |= Oddity.ANSWER_ENDS_PROMPT if prompt.rstrip().endswith(answer) else 0
    return int(flags)


def _stands_in(answer: str, prompt: str) -> bool:
    return len(answer) >= LONG_ANSWER and answer in prompt
