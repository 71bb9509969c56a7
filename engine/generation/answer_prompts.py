"""Answers to many prompts: in batches of like lengths, halved where memory runs out, each given as it is finished."""

from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, Literal, Protocol

from ..distributed.sharded_base import ShardedBase, within_shared_memory
from ..system.memory import release_cached_memory
from .decode import Prompt, Token, decode
from .sampling import NonFiniteLogitsError, Sampling

Ending = Literal["stop", "length", "memory", "not finite"]


@dataclass(frozen=True)
class FinishedAnswer:
    """The answer to prompt `number` of those that were given.

    `log_probs` (nats) are those of each id under the model, at the temperature.
    `ending`: `stop`, with a stop token, which is the last of `ids`; `length`, at the limit of tokens; one of
    `ftui.evaluation.results.UNANSWERED`, and there are no ids.
    """

    number: int
    ids: tuple[int, ...]
    ending: Ending
    log_probs: tuple[float, ...] = ()


class AnswerGenerator(Protocol):
    """What answers prompts: the loop here (`answer_prompts`), or another engine behind the same call.

    Whoever calls it sets evaluation mode and precision, and keeps them until the last answer.
    """

    def __call__(
        self,
        model: Any,
        prompts: Sequence[Prompt],
        sampling: Sampling,
        *,
        stop_ids: Sequence[int],
        max_new_tokens: int,
        batch_size: int,
        before_pass: Callable[[], None] = ...,
        on_smaller: Callable[[int], None] = ...,
    ) -> Iterator[FinishedAnswer | None]:
        """Each answer as soon as it is finished, `None` after each pass of the model: ranks of a run make theirs
        together. The arguments are those of `answer_prompts`."""
        ...


def answer_prompts(
    model: Any,
    prompts: Sequence[Prompt],
    sampling: Sampling,
    *,
    stop_ids: Sequence[int],
    max_new_tokens: int,
    batch_size: int,
    before_pass: Callable[[], None] = lambda: None,
    on_smaller: Callable[[int], None] = lambda size: None,
) -> Iterator[FinishedAnswer | None]:
    """Answer all prompts, the longest first; each answer is given as soon as it is finished, in whatever order, and
    `None` after each pass of the model.

    At most `batch_size` prompts are answered at once. Where memory runs out, what is not finished is answered anew in
    batches of half the size, and all that follow have that size: `on_smaller` gets it. An answer does not depend on
    the others of its batch, except for the last bits of the model's arithmetic.

    `before_pass` is called before each pass of the model, and may leave by an exception. Who iterates sets what
    `decode` asks for (evaluation mode, precision) and keeps it until the end.
    """
    left, size = in_batch_order([prompt.ids for prompt in prompts]), batch_size
    while left:
        batch, left = left[:size], left[size:]
        passes = decode(
            model, [prompts[number] for number in batch], sampling, stop_ids=stop_ids, max_new_tokens=max_new_tokens
        )
        base = getattr(model, "sharded_base", None)
        unfinished, is_short = yield from _answer_batch(passes, batch, stop_ids, before_pass, base)
        if is_short:
            release_cached_memory(model.device)
            if len(batch) == 1:
                yield FinishedAnswer(batch[0], (), "memory")
                continue
            size = (len(batch) + 1) // 2
            on_smaller(size)
        left = [*unfinished, *left]


def _answer_batch(
    passes: Iterator[list[Token]],
    batch: Sequence[int],
    stop_ids: Sequence[int],
    before_pass: Callable[[], None],
    base: ShardedBase | None,
) -> Generator[FinishedAnswer | None, None, tuple[list[int], bool]]:
    """Returns the prompts that are to be answered anew, and whether memory ran out for them.

    Else they were beside others for which the model computes nothing finite.
    """
    ids: dict[int, list[int]] = {number: [] for number in batch}
    log_probs: dict[int, list[float]] = {number: [] for number in batch}
    while True:
        before_pass()
        try:
            tokens, problem = within_shared_memory(base, partial(next, passes, None))
        except NonFiniteLogitsError as error:
            yield None  # before whoever iterates may leave for it
            for row in error.rows:
                del ids[batch[row]]
                yield FinishedAnswer(batch[row], (), "not finite")
            return list(ids), False
        if problem:
            yield None  # a pass that broke off is one
            return list(ids), True
        if tokens is None:
            break
        for token in tokens:
            number = batch[token.row]
            ids[number].append(token.id)
            log_probs[number].append(token.log_prob)
            if token.id in stop_ids:
                yield FinishedAnswer(number, tuple(ids.pop(number)), "stop", tuple(log_probs[number]))
        yield None
    for number, all_ids in ids.items():
        yield FinishedAnswer(number, tuple(all_ids), "length", tuple(log_probs[number]))
    return [], False


def in_batch_order(prompts: Sequence[Sequence[int]]) -> list[int]:
    """The numbers of prompts (ids) in the order in which they are cut into batches: the longest first, equal ones
    beside each other, as these are computed once."""
    return sorted(range(len(prompts)), key=lambda number: (-len(prompts[number]), *prompts[number]))


def finished_answers(passes: Iterable[FinishedAnswer | None]) -> Iterator[FinishedAnswer]:
    """The answers alone, of what `answer_prompts` gives."""
    return (answer for answer in passes if answer is not None)


def in_order(answers: Iterable[FinishedAnswer]) -> Iterator[FinishedAnswer]:
    """The answers in the order of their prompts, each as soon as those before it are there."""
    waiting: dict[int, FinishedAnswer] = {}
    number = 0
    for answer in answers:
        waiting[answer.number] = answer
        while number in waiting:
            yield waiting.pop(number)
            number += 1
