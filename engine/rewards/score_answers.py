"""All rewards of a run together: each function is asked at the same time, and one that fails stands for none."""

import hashlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import msgspec
import numpy as np

from ftui.errors import RewardError

from .reward_specs import AnswersToScore, Judgement, RewardSpec
from .reward_table import RewardTable, reward_table
from .worker_process import LostWorkerError, RewardLog, RewardWorker

MAX_FAILED_CALLS = 3
"""After so many failed calls in a row a function counts as broken."""

AGAIN = (
    "`ftui continue RUN` scores these answers again. After a change of the file: `ftui park RUN`, then"
    " `ftui resume RUN --allow reward-code`."
)

MEMORY = 8 << 30
SECONDS = 60.0

Scorer = Callable[[AnswersToScore], Sequence[float | None]]
"""What judges answers in the engine itself: a reward model."""


class Rewards:
    """The rewards of a run, from `open_rewards`."""

    def __init__(
        self,
        specs: Sequence[RewardSpec],
        workers: Mapping[str, RewardWorker],
        scorers: Mapping[str, Scorer],
        warn: Callable[[str], object],
    ) -> None:
        self.specs = list(specs)
        self._workers, self._scorers, self._warn = workers, scorers, warn
        self._failed = dict.fromkeys(workers, 0)

    @property
    def fingerprint(self) -> str:
        """SHA-256 (hex) of the functions, their options and weights."""
        return hashlib.sha256(msgspec.json.encode(self.specs)).hexdigest()

    def score(
        self,
        prompts: list[Any],
        completions: list[Any],
        completion_ids: list[list[int]],
        columns: dict[str, list[Any]],
    ) -> RewardTable:
        """What each function gives for each answer; one entry for each answer in all that is given.

        A function that fails, hangs or dies gives `None` for all of this call, with a warning. After an error the same
        answers can be given again.

        Raises:
            RewardError: one gives something that is no list of rewards, or fails `MAX_FAILED_CALLS` times in a row.
        """
        taken = ("prompts", "completions", "completion_ids")
        columns = {name: values for name, values in columns.items() if name not in taken}
        answers = AnswersToScore(prompts, completions, completion_ids, columns)
        number, scored = len(completions), {}
        try:
            asked = {name: self._ask(worker, answers) for name, worker in self._workers.items()}
            for name, scorer in self._scorers.items():  # while the workers work
                scored[name] = list(scorer(answers))
            judged = {name: asked[name] or self._hear(worker, number) for name, worker in self._workers.items()}
        except BaseException:  # an answer that nobody has read would be taken for that of the next call
            for worker in self._workers.values():
                worker.end()
            raise
        for name, judgement in judged.items():
            scored[name] = self._note(name, judgement, number)
        return reward_table(
            [spec.name for spec in self.specs],
            [spec.weight for spec in self.specs],
            [scored[spec.name] for spec in self.specs],
            {name: judgement.error for name, judgement in judged.items() if judgement.error},
        )

    def _ask(self, worker: RewardWorker, answers: AnswersToScore) -> Judgement | None:
        try:
            worker.send(answers)
        except LostWorkerError as error:
            return Judgement(error=f"{worker.spec.name} {error}")
        return None

    def _hear(self, worker: RewardWorker, number: int) -> Judgement:
        try:
            return worker.receive(number)
        except LostWorkerError as error:
            return Judgement(error=f"{worker.spec.name} {error}")

    def _note(self, name: str, judgement: Judgement, number: int) -> list[float | None]:
        """The values; what is wrong with them is said."""
        if judgement.is_wrong:
            raise RewardError(f"Reward {judgement.error}.", hint=AGAIN)
        if judgement.num_odd:
            self._warn(f"reward {name} gave NaN or infinity for {judgement.num_odd} of {number} answers: not counted")
        if judgement.values is not None:
            self._failed[name] = 0
            return judgement.values
        self._failed[name] += 1
        if self._failed[name] >= MAX_FAILED_CALLS:
            self._failed[name] = 0
            raise RewardError(f"Reward {judgement.error}, {MAX_FAILED_CALLS} times in a row.", hint=AGAIN)
        self._warn(f"reward {judgement.error}: these {number} answers go without it")
        return [None] * number


def check_rewarded(table: RewardTable) -> None:
    """See that some answer of a whole rollout has a reward: of few answers, a function may rightly judge none.

    Raises:
        RewardError: none has.
    """
    if len(table.values) and np.isnan(table.totals).all():
        why = "; ".join(table.errors.values()) or "every function gave None"
        raise RewardError(f"No answer has a reward: {why}.", hint=AGAIN)


@contextmanager
def open_rewards(
    specs: Sequence[RewardSpec],
    *,
    log: Path,
    warn: Callable[[str], object],
    scorers: Mapping[str, Scorer] | None = None,
    seconds: float = SECONDS,
    memory: int = MEMORY,
    while_waiting: Callable[[], None] = lambda: None,
) -> Iterator[Rewards]:
    """The rewards of a run: a worker for each function, started here, so that a broken one is known at once.

    Args:
        specs: what to score with. A `code` in one is run: consent to it was checked by whoever read the file.
        log: where the output of the functions goes.
        warn: gets what a person should know.
        scorers: by name, what judges in this process.
        seconds: how long a call may take.
        memory: bytes of address space of a worker.
        while_waiting: called again and again while functions are at work; it may leave by an exception.

    Raises:
        RewardError: a function cannot be loaded.
    """
    scorers = scorers or {}
    output = RewardLog(log)
    workers = {
        spec.name: RewardWorker(spec, output, memory=memory, seconds=seconds, while_waiting=while_waiting)
        for spec in specs
        if spec.name not in scorers
    }
    with ExitStack() as stack:
        for worker in workers.values():
            stack.callback(worker.end)
        for worker in workers.values():
            worker.start()
        yield Rewards(specs, workers, scorers, warn)
