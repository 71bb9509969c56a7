"""What ranks share between steps: each turn holds exactly one pass of the model, whatever goes wrong in it. Over a
sharded model the others wait in theirs for ever otherwise."""

import functools
import itertools
from collections.abc import Callable
from contextlib import nullcontext
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import msgspec
import numpy as np
import pytest
import torch

from ftui.engine.distributed import shared_work
from ftui.engine.distributed.process_group import ProcessGroup
from ftui.engine.distributed.shared_work import OwnPart, Work
from ftui.engine.objectives.loss import Batch, RowLayout
from ftui.engine.planning.plan import Reuse
from ftui.engine.reinforcement.answer_batches import AnswerBatches
from ftui.engine.reinforcement.generating import AnswerGeneration
from ftui.engine.reinforcement.old_log_probs import OldLogProbs
from ftui.engine.rollouts.rollout import Rollout
from ftui.engine.system.train_state import TrainState
from ftui.engine.training.generate import TextGenerator
from ftui.errors import FtuiError, HostMemoryError, ModelError
from ftui.profile.schema import Profile
from tests.support.answering import PROMPTS, STOPS, make_model
from tests.support.tiny import make_profile

Trouble = Callable[[int, int], bool]
"""Whether pass n (1 is the first) of so many rows fails."""


class Turns:
    """Takes the turns of a rank's part; `passes` counts them, those over nothing too."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, parts: Any) -> None:
        self.passes, self._parts = 0, parts
        monkeypatch.setattr(shared_work, "fill_up", self.fill_up)

    def fill_up(self, parts: Any, number: int, *, backward: bool) -> None:
        self.passes += number

    def take(self, work: Work) -> tuple[list[int], FtuiError | None]:
        """The passes of each turn, and the error that the part has ended with."""
        part, found = OwnPart(ProcessGroup(), self._parts, work), []
        before = self.passes
        while part.take_turn() is not None:
            found.append(self.passes - before)
            before = self.passes
        assert self.passes == before, "there is none after the last turn"
        try:
            part.collect()
        except FtuiError as error:
            return found, error
        return found, None


def profile_for(stage: str, tmp_path: Path, **section: Any) -> Profile:
    rewards = {"reward_funcs": ["number_answer"]}
    train = {"per_device_train_batch_size": 4}
    return make_profile(
        tmp_path, tmp_path / "rows", run={"stage": stage}, train=train, rewards=rewards, **{stage: section}
    )


class Measuring(OldLogProbs):
    """Without a model."""

    turns: Turns
    fails: Trouble

    def _measure_batch(self, batch: Batch, with_values: bool) -> tuple[np.ndarray, np.ndarray]:
        assert batch.sequence_of is not None
        self.turns.passes += 1
        if self.fails(self.turns.passes, int(batch.sequence_of.max()) + 1):
            raise torch.OutOfMemoryError("out of memory (a test)")
        values = np.zeros(len(batch.sequence_of), np.float32)
        return values, values

    def _reference(self) -> Any:
        return nullcontext()


MEASURING: dict[str, tuple[Trouble, type[FtuiError] | None]] = {
    "enough": (lambda number, rows: False, None),
    "halves": (lambda number, rows: rows > 2, None),
    "quarters": (lambda number, rows: rows > 1, None),
    "second half": (lambda number, rows: number in (1, 3), None),
    "not even one": (lambda number, rows: number in (1, 3, 4), HostMemoryError),
    "never": (lambda number, rows: True, HostMemoryError),
}


@pytest.mark.parametrize("case", MEASURING)
def test_each_turn_of_measuring_is_one_pass(case: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    fails, expected = MEASURING[case]
    parts = cast(Any, SimpleNamespace(base=None, device=torch.device("cpu")))
    ids = [np.arange(5, 9, dtype=np.int32)] * 6
    rollout = Rollout(
        step=0, seed=0, group_size=1, rows=np.arange(6), prompt_ids=ids, completion_ids=ids,
        log_probs=[np.zeros(4, np.float32)] * 6, is_complete=np.ones(6, bool), prompts=[""] * 6, completions=[""] * 6,
    )  # fmt: skip
    batches = AnswerBatches(Reuse(), 0, ProcessGroup(), RowLayout.PADDED, masks_truncated=False, by_token=True)
    batches.load(rollout, [6], {})
    none = cast(Any, None)
    work = Measuring(
        none, profile_for("ppo", tmp_path, max_completion_length=8), parts, ProcessGroup(), none, none, none
    )
    work.turns, work.fails = Turns(monkeypatch, parts), fails
    turns, error = work.turns.take(work.measure_part(batches))
    assert set(turns) == {1} and len(turns) > 1
    assert type(error) is (expected or type(None)), error


def broken(forward: Callable[..., Any], turns: Turns, kind: str, place: int) -> Callable[..., Any]:
    """A forward pass that fails in pass `place`, with `never` in all that follow, too."""

    @functools.wraps(forward)  # whose signature says whether positions can be given
    def fail(*arguments: Any, **options: Any) -> Any:
        turns.passes += 1
        result = forward(*arguments, **options)
        if (kind == "memory" and turns.passes == place) or (kind == "never" and turns.passes >= place):
            raise torch.OutOfMemoryError("out of memory (a test)")
        if kind == "not finite" and turns.passes == place:
            result.logits[0] = torch.nan
        return result

    return fail


@pytest.mark.slow
def test_each_turn_of_generating_is_one_pass(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Memory runs out, and nothing finite is computed, in each pass of the first ones; for one or more answers."""
    profile = profile_for("grpo", tmp_path, num_generations=2, max_completion_length=4, max_num_seqs=3)
    model = make_model("llama")
    parts = cast(Any, SimpleNamespace(base=None, device=torch.device("cpu"), model=model, autocast=nullcontext))
    data, none, forward = cast(Any, SimpleNamespace(stop_ids=STOPS)), cast(Any, None), model.forward
    events = cast(Any, SimpleNamespace(warn=lambda message: None))
    generator = TextGenerator(profile, data, parts, TrainState(), none, events)
    asked = msgspec.msgpack.encode({"first": 0, "prompts": PROMPTS[:3], "stop_ids": None})
    for size, kind, place in itertools.product((1, 3), ("enough", "memory", "never", "not finite"), range(1, 6)):
        generation = AnswerGeneration(profile, data, parts, ProcessGroup(), TrainState(), generator, none, events)
        generation.batch_size = size
        turns = Turns(monkeypatch, parts)
        model.forward = broken(forward, turns, kind, place)
        found, error = turns.take(generation.answer_part(0, asked))
        model.forward = forward
        assert set(found) == {1} and len(found) >= place, (size, kind, place, found)
        assert (error is not None) == (kind in ("never", "not finite") or (kind == "memory" and size == 1))
        assert isinstance(error, ModelError | None)
