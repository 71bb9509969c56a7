"""Work between steps that all ranks share, each its part: answers to prompts, measurements of them.

Rank 0 orders each pass, and looks around before it: so all stand still while it is paused, can do something else for it
(a checkpoint) between two passes, and leave the work where it leaves. No rank is more than a pass ahead of another.
"""

import json
from collections.abc import Callable, Generator, Sequence
from typing import Protocol

import torch

from ftui.errors import FtuiError, error_with

from ..models.model_parts import ModelParts
from .process_group import Action, ProcessGroup, RankCommand
from .sharded_base import fill_up, together

Work = Generator[int, None, bytes]
"""A rank's part. It gives how many things it has finished so far after each pass of the model, of which it makes none
before the first `next`, and in the end what it has made. It is left between two passes by being closed.

From one to the next it makes exactly one pass, and none before its end or an error: of a sharded model every rank
makes one in each turn, and one more or less is waited for forever."""

BETWEEN_PASSES = (Action.TURN, Action.COLLECT, Action.SEND_STATE, Action.GATHER, Action.CHECK_FINITE)
"""What may be ordered while a work goes on."""


class SharedWork(Protocol):
    """What a rank above 0 does between steps beside the orders that every run has."""

    def begin(self, kind: int, number: int, details: bytes) -> Work:
        """This rank's part of the work of a kind for rollout `number`, of which rank 0 says the details."""
        ...

    def load(self, number: int, parts: Sequence[bytes]) -> None:
        """Take what rank 0 has sent of rollout `number`."""
        ...


class OwnPart:
    """This rank's part of a work that is under way."""

    def __init__(self, ranks: ProcessGroup, parts: ModelParts, work: Work) -> None:
        self._ranks, self._parts, self._work = ranks, parts, work
        self._num_finished, self._result = 0, b""
        self._is_done = False
        self._error: FtuiError | None = None

    def take_turn(self) -> int | None:
        """Make one pass, if there is one left; how many things are finished on all ranks, `None` where all have made
        their last pass, or one has failed."""
        facts = torch.tensor([int(not self._is_done), int(self._error is not None), self._num_finished])
        self._ranks.add(facts)
        num_working, num_failed, num_finished = facts.tolist()
        if not num_working or num_failed:
            return None
        with together(self._parts):
            if not self._advance():
                fill_up(self._parts, 1, backward=False)
        return int(num_finished)

    def collect(self) -> list[bytes]:
        """What each rank has made, by rank.

        Raises:
            FtuiError: the error of a rank, on all of them.
        """
        error = self._error
        told = [] if error is None else [error.exit_code, error.message, error.hint, type(error).__name__]
        results = []
        for data in self._ranks.gather(json.dumps(told).encode() + b"\n" + self._result):
            problem, _, result = data.partition(b"\n")
            if other := json.loads(problem):
                raise error or error_with(*other)
            results.append(result)
        return results

    def close(self) -> None:
        """Leave the work as it is."""
        self._work.close()

    def _advance(self) -> bool:
        """Make one pass; whether there was one left."""
        if self._is_done:
            return False
        try:
            self._num_finished = next(self._work)
            return True
        except StopIteration as end:
            self._result = end.value
        except FtuiError as error:
            self._error = error
        self._is_done = True
        return False


def share_work(
    ranks: ProcessGroup, parts: ModelParts, order: RankCommand, details: bytes, work: Work,
    look_around: Callable[[int], None],
) -> list[bytes]:  # fmt: skip
    """On rank 0: do `work`, its part, while the others do theirs of what is ordered; what each has made, by rank.

    `look_around` is called before each pass with how many things are finished; what it raises ends the work.

    Raises:
        FtuiError: the error of any rank's part.
    """
    part = OwnPart(ranks, parts, work)
    try:
        ranks.order(order)
        ranks.broadcast(details)
        num_finished: int | None = 0
        while num_finished is not None:
            look_around(num_finished)
            ranks.order(RankCommand(Action.TURN))
            num_finished = part.take_turn()
        ranks.order(RankCommand(Action.COLLECT))
        return part.collect()
    finally:
        part.close()


class WorkerShare:
    """On the other ranks: what rank 0 orders of shared work; `shared` is `None` in a run that has none."""

    def __init__(self, ranks: ProcessGroup, parts: ModelParts, shared: SharedWork | None) -> None:
        self._ranks, self._parts, self._shared = ranks, parts, shared
        self._part: OwnPart | None = None

    def obey(self, command: RankCommand) -> None:
        """Do what is ordered, where it is of this; with any other order but a save's, rank 0 has left the work.

        Raises:
            FtuiError: the error of any rank's part.
        """
        if self._shared is None:
            return
        if self._part is not None and command.action not in BETWEEN_PASSES:
            self._part.close()
        match command:
            case RankCommand(action=Action.SHARE, number=number, size=kind):
                self._part = OwnPart(
                    self._ranks, self._parts, self._shared.begin(kind, number, self._ranks.broadcast())
                )
            case RankCommand(action=Action.LOAD, number=number, size=num_pieces):
                self._shared.load(number, [self._ranks.broadcast() for _ in range(num_pieces)])
            case RankCommand(action=Action.TURN) if self._part is not None:
                self._part.take_turn()
            case RankCommand(action=Action.COLLECT) if self._part is not None:
                self._part.collect()


def send_rollout(ranks: ProcessGroup, number: int, parts: Sequence[bytes]) -> None:
    """On rank 0: give the others the files of rollout `number`."""
    ranks.order(RankCommand(Action.LOAD, number, len(parts)))
    for data in parts:
        ranks.broadcast(data)
