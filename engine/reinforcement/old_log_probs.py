"""How likely the answers of a rollout were when they were sampled, and are under the reference; and what the value head
said.

Both are measured before the first step on them, in the micro-batches of the steps, so that a ratio is 1 to the last bit
where the model is the same; and kept beside the rollout, since a resumed run has only a later model. The reference is
the model without its new adapter, or with the weights that it began with in place of its own: no second one is held.
"""

import contextlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
import torch
from safetensors.numpy import load, save

from ftui.errors import DataError
from ftui.profile.schema import Profile
from ftui.rollouts.rollout_lines import rollout_name
from ftui.runs.run_folder import Run

from ..distributed.process_group import Action, ProcessGroup, RankCommand
from ..distributed.sharded_base import within_shared_memory
from ..distributed.shared_work import Work, share_work
from ..models.model_parts import ModelParts
from ..models.performance import uncompiled
from ..objectives.log_probs import target_log_probs
from ..objectives.loss import Batch
from ..planning.mixing import reuse_of
from ..runtime.control_flags import Control, RequestLevel
from ..runtime.disk_wait import DiskWait
from ..runtime.event_writer import EventWriter
from ..system.memory import no_memory, release_cached_memory
from ..training.measured_values import read_values, write_values
from .answer_batches import AnswerBatches, LogProbs
from .value_head import token_values

MEASURE = 1
"""The kind of work, for `RankCommand`."""


@dataclass(eq=False)
class OldLogProbs:
    """Measures them as far as the loss asks for them, each rank its part."""

    run: Run
    profile: Profile
    parts: ModelParts
    ranks: ProcessGroup
    control: Control
    events: EventWriter
    disk_wait: DiskWait

    @property
    def names(self) -> list[str]:
        """`old` where more than one step is on the same model's answers, `reference` where the loss has one; in stage
        ppo `old` and `values` always."""
        by_token = self.profile.run.stage == "ppo"
        needed = {
            "old": by_token or reuse_of(self.profile).length > 1,
            "values": by_token,
            "reference": self.profile.sampled.has_reference,
        }
        return [name for name, is_needed in needed.items() if is_needed]

    def obtain(
        self, number: int, rollout_hash: str, batches: AnswerBatches, num_answers: int, *, may_measure: bool
    ) -> LogProbs:
        """Those of all answers of the rollout that `batches` has, by name; `may_measure`: the model sampled them.

        Raises:
            Shutdown: between two micro-batches.
            DataError: they were measured by an earlier model, and their file is gone.
            GpuMemoryError, HostMemoryError: not even one answer fits.
        """
        if not self.names:
            return {}
        path = self.run.rollouts / f"{rollout_name(number)}.log_probs.safetensors"
        values = read_values(path, rollout_hash)
        if values is None:
            if not may_measure:
                raise DataError(f"{path} is missing or damaged, and the model that it was measured with is gone.")
            with self.events.within("scoring", "log-probabilities of the answers"):
                measured = self.measure(number, batches, num_answers)
            lengths = np.array([len(one) for one in measured[self.names[0]]], np.int64)
            values = {"lengths": lengths} | {name: np.concatenate(of_each) for name, of_each in measured.items()}
            kept = values
            self.disk_wait.retry(lambda: write_values(path, kept, rollout_hash))
        ends = np.cumsum(values["lengths"])[:-1]
        return {name: np.split(values[name], ends) for name in self.names}

    def measure(self, number: int, batches: AnswerBatches, num_answers: int) -> LogProbs:
        """Those of all answers by name, with the model as it is; of an answer that is not trained on there are none.

        Raises:
            Shutdown, GpuMemoryError, HostMemoryError: see `obtain`.
        """

        def look_around(num_measured: int) -> None:
            self.control.poll(RequestLevel.SAVE)
            self.events.progress()

        order = RankCommand(Action.SHARE, number, MEASURE)
        found: dict[str, list[np.ndarray]] = {name: [np.zeros(0, np.float32)] * num_answers for name in self.names}
        for data in share_work(self.ranks, self.parts, order, b"", self.measure_part(batches), look_around):
            for key, values in load(data).items():
                name, _, answer = key.partition(" ")
                found[name][int(answer)] = values
        return found

    def measure_part(self, batches: AnswerBatches) -> Work:
        """The same of this rank's micro-batches, as a safetensors file; whoever asks for the next pass looks around."""
        found: dict[str, np.ndarray] = {}
        for names in ([name for name in self.names if name != "reference"], ["reference"]):
            wanted = [name for name in names if name in self.names]
            for part in batches.parts if wanted else ():
                for answers, batch in batches.cut(part, self.profile.micro_batch):
                    yield from self._values(batches, answers, batch, wanted, found)
        return bytes(save(found))

    def _values(
        self, batches: AnswerBatches, answers: list[int], batch: Batch, names: Sequence[str],
        found: dict[str, np.ndarray],
    ) -> Iterator[int]:  # fmt: skip
        """Measure a micro-batch, in halves where memory runs out; gives how much is found after each pass, one that
        broke off, too: then whatever follows is in another turn."""
        is_reference, base = names == ["reference"], self.parts.base
        with self._reference() if is_reference else contextlib.nullcontext():  # nobody may save the model without it
            values, problem = within_shared_memory(base, partial(self._measure_batch, batch, "values" in names))
        if values is None:
            release_cached_memory(self.parts.device)
            yield len(found)
            if len(answers) == 1:
                key = f"{self.profile.run.stage}.max_completion_length"
                raise no_memory(self.parts.device, f"one answer ({problem})", f"Lower {key}.")
            for part, half in batches.cut(answers, len(answers) // 2, whole=True):
                yield from self._values(batches, part, half, names, found)
            return
        assert batch.sequence_of is not None, "answers are numbered"
        ends = np.cumsum(np.bincount(batch.sequence_of.numpy(), minlength=len(answers)))[:-1]
        log_probs, said = values
        for name in names:
            own = np.split(said if name == "values" else log_probs, ends)
            found |= {f"{name} {answer}": one for answer, one in zip(answers, own, strict=True)}
        yield len(found)

    def _measure_batch(self, batch: Batch, with_values: bool) -> tuple[np.ndarray, np.ndarray]:
        """(targets,) log-probabilities, and what the value head says before each, if asked for."""
        with torch.no_grad(), uncompiled(self.profile.train), self.parts.autocast():
            found = target_log_probs(
                self.parts.model, batch.to(self.parts.device), hidden=with_values,
                temperature=self.profile.sampled.temperature,
            )  # fmt: skip
            said = found.values if found.hidden is None else token_values(self.parts.model, found.hidden)
        return np.asarray(found.values.float().cpu()), np.asarray(said.float().cpu())

    def _reference(self) -> Any:
        kept = self.parts.reference
        return self.parts.model.disable_adapter() if kept is None else kept.in_place()
