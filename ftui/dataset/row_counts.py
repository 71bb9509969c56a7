"""What the rows of a profile amount to: rows, tokens and steps, as values and as lines of text."""

from collections.abc import Iterator, Mapping

import msgspec

from ftui import units
from ftui.text import shown


class Cut(msgspec.Struct, frozen=True, kw_only=True):
    """What a shorter `data.max_length` would cut: rows, and the tokens behind that length (of `pretrain` none is lost:
    what is behind becomes a row of its own)."""

    length: int
    num_rows: int
    num_tokens: int


class RowCounts(msgspec.Struct, frozen=True, kw_only=True):
    """Counts of one epoch (rows, tokens, sequences) and the steps of a run. `None`: not known.

    In a curriculum the stages (`stages`, in words) differ, and the counts are those of the mean epoch. `num_tokens`
    counts the tokens of all steps. `bytes_per_token` is there where no tokenizer was: the least, the usual and the most
    bytes that a token was taken for; tokens are told with the usual, `longest` with the least. `longest_example`:
    tokens of the longest pair, what both answers begin with counted once. `num_answered` evaluation rows are answered
    at each evaluation, to prompts of up to `longest_prompt` tokens with up to `longest_answer`. `drawn`: the fewest and
    the most prompts of a step that draws them as it needs them.
    """

    num_train_rows: int | None = None
    num_eval_rows: int | None = None
    num_train_tokens: int | None = None
    num_target_tokens: int | None = None
    num_sequences: int | None = None
    steps_per_epoch: int | None = None
    max_steps: int | None = None
    num_tokens: int | None = None
    stages: list[str] = []
    effective_batch: int | None = None
    longest: int | None = None
    longest_example: int | None = None
    num_answered: int | None = None
    longest_prompt: int | None = None
    longest_answer: int | None = None
    num_cut: int | None = None
    num_skipped: int | None = None
    cuts: list[Cut] = []
    bytes_per_token: tuple[float, float, float] | None = None
    drawn: tuple[int, int] | None = None
    warnings: list[str] = []


def count_lines(counts: RowCounts) -> list[str]:
    """A label and a number on each line; then the stages of a curriculum, then the warnings."""
    epoch = "mean epoch" if counts.stages else "epoch"
    facts = {
        "rows to train on": counts.num_train_rows,
        "rows to evaluate on": counts.num_eval_rows,
        **({} if counts.num_answered is None else {"rows to answer": counts.num_answered}),
        f"tokens per {epoch}": counts.num_train_tokens,
        f"target tokens per {epoch}": counts.num_target_tokens,
        f"sequences per {epoch}": counts.num_sequences,
        "longest": counts.longest,
        "cut": counts.num_cut,
        "left out": counts.num_skipped,
        "effective batch": counts.effective_batch,
        f"steps per {epoch}{', at most' if counts.drawn else ''}": counts.steps_per_epoch,
        "steps": counts.max_steps,
        "tokens of all steps": counts.num_tokens,
    }
    stages = [f"stage {number} of {len(counts.stages)}: {words}" for number, words in enumerate(counts.stages, start=1)]
    if counts.drawn is not None:
        least, most = counts.drawn
        stages = [f"a step answers {least} to {most} prompts (grpo.dynamic_sample): how many is known as it is made"]
    return [*_aligned(facts), *stages, *(f"warning: {shown(warning)}" for warning in counts.warnings)]


def _aligned(facts: Mapping[str, int | None]) -> Iterator[str]:
    width = max(map(len, facts))
    for label, number in facts.items():
        yield f"{label:<{width}}  {units.MISSING if number is None else f'{number:,}':>12}"
