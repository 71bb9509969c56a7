"""What the reference model, the one the run starts from, says of every answer: measured once, before the first step.

So no second model is held and no step waits for one, in full fine-tuning either. Rows are measured in the micro-batches
of the plan: what the first step computes with the same weights is the same to the last bit, its rewards exactly 0.
"""

import hashlib
import json
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np
import torch

from ftui.errors import DiskError, ModelError
from ftui.profile.schema import Profile
from ftui.runs.run_folder import Run
from ftui.units import duration

from ..data.load_rows import DataSplit, LogProbs
from ..distributed.process_group import ProcessGroup
from ..models.model_parts import ModelParts, autocast
from ..models.performance import uncompiled
from ..objectives.log_probs import target_log_probs
from ..planning.plan import Row
from ..runtime.disk_wait import DiskWait
from ..runtime.event_writer import EventWriter
from ..system.memory import no_memory, release_cached_memory, within_memory
from ..system.rng import RngState
from .collate import collate_examples
from .measured_values import Values, read_values, write_values
from .prepare import TrainingData

INPUTS = ("data", "evaluation_data", "tokenizer", "base_model", "adapter")
"""Fingerprints of what the log-probabilities depend on."""


def reference_values(
    run: Run,
    profile: Profile,
    data: TrainingData,
    parts: ModelParts,
    ranks: ProcessGroup,
    fingerprints: dict[str, str],
    disk_wait: DiskWait,
    events: EventWriter,
    report: Callable[[str], None],
) -> Values:
    """The log-probabilities of all targets: of an earlier attempt, of another run from the same, or measured now.

    They are kept in the run's folder, and for other runs beside the tokens in the cache, with which they are pruned.
    Rank 0 measures and stores them before the other ranks read them.

    Raises:
        Shutdown: between two batches.
        GpuMemoryError, HostMemoryError: not even one example fits.
    """

    def load() -> Values:
        inputs = inputs_hash(profile, data, parts, fingerprints) if ranks.is_leader else None
        stored = read_values(run.reference, inputs)
        if inputs is None:
            assert stored is not None, "rank 0 has written them"
            return stored
        cached = data.train.sequences.stores[0].folder / f"reference-{inputs}.safetensors"
        known = read_values(cached, inputs) if stored is None else stored
        values, is_new = measure(profile, data, parts, report, known)
        if is_new:
            try:
                write_values(cached, values, inputs)
            except DiskError as error:
                events.warn(f"other runs will measure the reference again: {error.message}")
        if is_new or stored is None:
            disk_wait.retry(lambda: write_values(run.reference, values, inputs))
        return values

    return ranks.leader_first(load)


def with_reference(data: TrainingData, values: Values) -> TrainingData:
    """The same rows, each target with its log-probability under the reference model."""
    splits = {name: _attach(split, values[name]) for name, split in _splits(data).items()}
    whole = {
        name: replace(splits[name], mismatched=splits.get(f"mismatched_{name}"))
        for name in ("train", "evaluation")
        if name in splits
    }
    return replace(data, train=whole["train"], evaluation=whole.get("evaluation"))


def _attach(split: DataSplit, values: np.ndarray) -> DataSplit:
    return replace(split, reference=LogProbs(values, _starts(split)))


def _starts(split: DataSplit) -> np.ndarray:
    """Where the targets of each sequence begin, and, at the end, their number (int64)."""
    return np.concatenate([[0], np.cumsum(split.sequences.num_targets[split.indices], dtype=np.int64)])


def inputs_hash(profile: Profile, data: TrainingData, parts: ModelParts, fingerprints: dict[str, str]) -> str:
    """A hash of all that the log-probabilities depend on: rows, weights, adapter as it begins, arithmetic."""
    adapter, model = profile.adapter, parts.model.config
    how = {
        "fingerprints": [fingerprints.get(name, "") for name in INPUTS],
        "seeds": [profile.train.seed, profile.train.rows_seed],  # new weights; partners of mismatched answers
        "dtype": profile.model.dtype,
        "adapter": adapter.model_dump(mode="json"),
        "new_tokens": list(data.new_token_ids),
        "precision": parts.hardware.precision,
        "attention": str(model._attn_implementation),
    }
    digest = hashlib.sha256(json.dumps(how, sort_keys=True).encode())
    for split in (data.train, data.evaluation):
        digest.update(b"" if split is None else np.ascontiguousarray(split.indices, dtype=np.int64).tobytes())
    return digest.hexdigest()


def measure(
    profile: Profile, data: TrainingData, parts: ModelParts, report: Callable[[str], None], known: Values | None
) -> tuple[Values, bool]:
    """Log-probabilities (float32, in nats) of all targets that the plan trains on, and of the evaluation rows.

    Moves no generator. A target that no step of the plan reaches is NaN. What is `known` is not measured again; the
    second value says whether anything was.

    Raises:
        Shutdown: between two batches, from `report`.
        GpuMemoryError, HostMemoryError: not even one example fits.
    """
    rng = RngState.capture(parts.device)
    parts.model.eval()
    splits = _splits(data)
    meter = Meter(sum(split.num_tokens for split in splits.values()), report)
    measured = {
        name: Measurement(profile, parts, split, data.pad_id, meter, (known or {}).get(name))
        for name, split in splits.items()
    }
    try:
        for name, one in measured.items():
            is_trained = splits[name].indices is data.train.indices
            one.run(_training_batches(profile, data) if is_trained else _evaluation_batches(profile, splits[name]))
    finally:
        parts.model.train()
        rng.restore(parts.device)
    return {name: one.values for name, one in measured.items()}, any(one.is_new for one in measured.values())


def _splits(data: TrainingData) -> dict[str, DataSplit]:
    """The rows that are measured, by name."""
    splits = {"train": data.train, "evaluation": data.evaluation}
    mismatched = {f"mismatched_{name}": split.mismatched for name, split in splits.items() if split is not None}
    return {name: split for name, split in (splits | mismatched).items() if split is not None}


def _training_batches(profile: Profile, data: TrainingData) -> Iterator[list[Row]]:
    """The micro-batches of the plan."""
    size = profile.train.per_device_train_batch_size
    steps = (data.plan.step(number) for number in range(1, data.plan.max_steps + 1))
    return (rows[start : start + size] for rows in steps for start in range(0, len(rows), size))


def _evaluation_batches(profile: Profile, split: DataSplit) -> Iterator[list[Row]]:
    """The batches of an evaluation."""
    size, order = profile.eval.per_device_eval_batch_size, split.longest_first.tolist()
    return ([(number,) for number in order[start : start + size]] for start in range(0, len(order), size))


@dataclass(eq=False)
class Meter:
    """Tells how far a measurement is, and how long it will take."""

    num_tokens: int
    report: Callable[[str], None]

    def __post_init__(self) -> None:
        self._begin, self._done = time.monotonic(), 0

    def add(self, num_tokens: int) -> None:
        """So many more of all tokens are done."""
        self._done += num_tokens
        share = self._done / self.num_tokens
        left = duration((time.monotonic() - self._begin) * (1 - share) / share)
        self.report(f"the reference model on each row · {100 * share:.0f} % · {left} left")


@dataclass(eq=False)
class Measurement:
    """Fills in the log-probabilities of a split, batch by batch; what was measured once is not measured again."""

    profile: Profile
    parts: ModelParts
    split: DataSplit
    pad_id: int
    meter: Meter
    known: np.ndarray | None
    is_new: bool = False

    def __post_init__(self) -> None:
        self._starts = _starts(self.split)
        self.values = np.full(int(self._starts[-1]), np.nan, np.float32) if self.known is None else self.known.copy()
        """(targets,) of all sequences of the split, one after the other."""
        first = self._starts[:-1][:: self.split.per_example]  # an example is measured whole
        self._left = np.isnan(self.values[first])

    def run(self, batches: Iterator[Sequence[Row]]) -> None:
        """Measure what is left of these rows."""
        lengths = self.split.lengths
        for rows in batches if self._left.any() else ():
            examples = np.array([number for row in rows for number in row])
            if not self._left[examples].any():
                continue
            self._add(rows)
            self.meter.add(int(lengths[examples[self._left[examples]]].sum()))
            self._left[examples] = False
            self.is_new = True
            if not self._left.any():
                break

    def _add(self, rows: Sequence[Row]) -> None:
        """Measure these rows; in halves where memory runs out."""
        values = self._measure(rows)
        if values is None and len(rows) == 1:
            tokens = int(self.split.lengths[list(rows[0])].sum())
            raise no_memory(self.parts.device, f"an example of {tokens} tokens", "Shorten data.max_length.")
        if values is None:
            middle = (len(rows) + 1) // 2
            self._add(rows[:middle])
            self._add(rows[middle:])
            return
        at = 0
        for number in (number for row in rows for number in row):
            first, last = (int(self._starts[one * self.split.per_example]) for one in (number, number + 1))
            if self._left[number]:
                self.values[first:last] = values[at : at + last - first]
            at += last - first

    def _measure(self, rows: Sequence[Row]) -> np.ndarray | None:
        """The values of these rows' targets, in their order; `None` when memory ran out."""
        batch = collate_examples(self.split, rows, self.pad_id, self.parts.joins_rows).to(self.parts.device)

        def measure() -> np.ndarray:
            with torch.no_grad(), uncompiled(self.profile.train), autocast(self.parts.hardware):
                return np.asarray(target_log_probs(self.parts.model, batch).values.float().cpu())

        values, _ = within_memory(measure)
        if values is None:
            release_cached_memory(self.parts.device)
        elif not np.isfinite(values).all():
            raise ModelError(
                "The reference model's log-probabilities are NaN or infinite.",
                hint='Set train.precision = "fp32", or check the weights that the run starts from.',
            )
        return values
