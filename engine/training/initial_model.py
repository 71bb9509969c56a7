"""What the model says of the rows before it is trained, measured once and kept in the run's folder.

The loss of the base model on each row, for a plan that sorts by it; the log-probability of each answer's tokens, for a
loss that compares with what the model was. So no second model is held and no step waits for one, in full fine-tuning
either. Answers are measured in the micro-batches of the plan: what the first step computes with the same weights is the
same to the last bit, its rewards exactly 0.
"""

import contextlib
import hashlib
import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

import numpy as np

from ftui.errors import DiskError
from ftui.profile.schema import Profile
from ftui.profile.sections.curriculum import needs_losses
from ftui.profile.sections.preference import REFERENCE_STAGES
from ftui.runs.run_folder import Run
from ftui.supervisor.engine_process import RankLostError

from ..data.load_rows import DataSplit, LoadedData, LogProbs
from ..distributed.node_files import collect_parts, send_to_nodes
from ..distributed.process_group import ProcessGroup
from ..models.model_parts import ModelParts
from ..planning.plan import Row
from ..runtime.control_flags import Shutdown
from ..runtime.disk_wait import DiskWait
from ..runtime.event_writer import EventWriter
from ..system.rng import RngState
from .measure_log_probs import BatchLogProbs, Measurement, measure
from .measured_values import Values, part_path, part_paths, read_values, values_hash, write_values
from .prepare import TrainingData

LOSSES_FROM = ("data", "tokenizer", "base_model")
REFERENCE_FROM = ("data", "evaluation_data", "tokenizer", "base_model", "adapter")
"""Fingerprints of what the values depend on."""


@dataclass(frozen=True)
class Place:
    """Where values are kept: their file in the run's folder, the key that says what they were made from, and the file
    that other runs find."""

    path: Path
    key: str
    cached: Path | None = None


@dataclass(frozen=True, eq=False)
class InitialModel:
    """The model as the run begins.

    `fingerprints` are those of rank 0, which makes the keys; the hashes of the values are added to them.
    """

    run: Run
    profile: Profile
    parts: ModelParts
    ranks: ProcessGroup
    fingerprints: dict[str, str]
    disk_wait: DiskWait
    events: EventWriter
    report: Callable[[str], None]

    def complete(self, data: TrainingData) -> TrainingData:
        """The same rows with what their plan and their loss need of this model.

        It was measured by an earlier attempt, or is now; a reference also by another run from the same: it lies beside
        the tokens in the cache, and is pruned with them.

        Raises:
            Shutdown: between two batches.
            GpuMemoryError, HostMemoryError: not even one row fits.
            ModelError: the model says NaN.
        """
        profile = self.profile
        if needs_losses(profile.curriculum, profile.train.train_sampling_strategy):
            batches = partial(_evaluation_batches, profile, data.train)
            wanted = {"losses": Measurement(data.train, batches, as_losses=True)}
            place = Place(self.run.losses, self._key_of_leader(losses_key(profile, data, self.fingerprints)))
            with self._predicting(base_only=True):
                losses = self._obtain(data, wanted, place, "the base model's loss on each row")["losses"]
            data = data.sort_by_losses(profile, losses)
        if profile.run.stage in REFERENCE_STAGES:
            wanted = {name: Measurement(split, _batches(profile, data, split)) for name, split in _splits(data).items()}
            key = self._key_of_leader(reference_key(profile, data, arithmetic_of(self.parts), self.fingerprints))
            cached = data.train.sequences.stores[0].folder / f"reference-{key}.safetensors"
            place = Place(self.run.reference, key, cached)
            with self._predicting():
                data = with_reference(data, self._obtain(data, wanted, place, "the reference model on each row"))
        return data

    def _key_of_leader(self, key: str) -> str:
        """The key that rank 0 has: the others have no fingerprints."""
        return self.ranks.gather(key.encode())[0].decode()

    def _obtain(self, data: TrainingData, wanted: Mapping[str, Measurement], place: Place, doing: str) -> Values:
        """The values that are wanted, the same on every rank; their hash is a fingerprint of the run.

        Raises:
            FtuiError: the ranks do not see the same file.
        """
        digest = self._share(wanted, place)
        log_probs = BatchLogProbs(self.profile, self.parts, data.pad_id)
        keep = partial(self._keep_part, wanted, place)
        if any(np.isnan(one.values).any() for one in wanted.values()):
            self.events.set_phase("preparing", doing)

        def report(words: str) -> None:
            self.report(f"{doing} · {words}")

        try:
            is_new = measure(list(wanted.values()), log_probs, self.ranks, report, keep)
        except (Shutdown, RankLostError):
            keep()
            raise
        if is_new:
            self.ranks.act_together(lambda: None if self.ranks.is_leader else keep())
            digest = self._share(wanted, place)
        self.fingerprints[place.path.stem] = digest
        return _values_of(wanted)

    def _share(self, wanted: Mapping[str, Measurement], place: Place) -> str:
        """Let all ranks have what was measured with this key; its hash."""
        collect_parts(self.ranks, partial(part_path, place.path))
        if self.ranks.is_leader:
            self._join(wanted, place)
        self.ranks.wait_for_all()
        send_to_nodes(self.ranks, place.path)
        if not self.ranks.is_leader:
            self._join(wanted, place)
        digest = values_hash(_values_of(wanted))
        self.ranks.check_same(digest, f"the values in {place.path.name}")  # else they would not measure the same
        return digest

    def _keep_part(self, wanted: Mapping[str, Measurement], place: Place) -> None:
        """Write down what this rank has measured."""
        values: Values = {}
        for name, one in wanted.items():
            values[name], values[f"{name}.examples"] = one.own_part()
        path = part_path(place.path, self.ranks.rank)
        self.disk_wait.retry(lambda: write_values(path, values, place.key))

    def _join(self, wanted: Mapping[str, Measurement], place: Place) -> None:
        """Take in all that was measured with this key. Rank 0 writes it down in one file, which the others read."""
        stored = read_values(place.path, place.key)
        shared = read_values(place.cached, place.key) if place.cached and self.ranks.is_leader else None
        known = stored or shared or {}
        for name, one in wanted.items():
            if name in known:
                np.copyto(one.values, known[name], where=np.isnan(one.values))
        if not self.ranks.is_leader:
            return
        for part in (read_values(path, place.key) or {} for path in part_paths(place.path)):
            for name in wanted.keys() & part.keys():
                wanted[name].add_part(part[name], part[f"{name}.examples"])
        values = _values_of(wanted)
        if place.cached is not None and _has_more(values, known):
            try:
                write_values(place.cached, (shared or {}) | values, place.key, arithmetic_of(self.parts))
            except DiskError as error:
                self.events.warn(f"other runs will measure the reference again: {error.message}")
        if _has_more(values, stored or {}):
            self.disk_wait.retry(lambda: write_values(place.path, values, place.key))
        for path in part_paths(place.path):
            path.unlink()

    @contextlib.contextmanager
    def _predicting(self, *, base_only: bool = False) -> Iterator[None]:
        """A block in which the model does nothing else, with its adapter or without. Moves no generator."""
        model, rng = self.parts.model, RngState.capture(self.parts.device)
        is_off = base_only and hasattr(model, "peft_config")
        model.eval()
        try:
            with model.disable_adapter() if is_off else contextlib.nullcontext():
                yield
        finally:
            model.train()
            rng.restore(self.parts.device)


def _values_of(wanted: Mapping[str, Measurement]) -> Values:
    return {name: one.values for name, one in wanted.items()}


def _has_more(values: Values, known: Values) -> bool:
    """Whether something is measured that is not known."""
    return any(
        (~np.isnan(array) & (np.isnan(known[name]) if name in known else True)).any() for name, array in values.items()
    )


def losses_key(profile: Profile, data: TrainingData, fingerprints: Mapping[str, str]) -> str:
    """A hash of all that the base model's losses depend on."""
    made_from = [fingerprints.get(name, "") for name in LOSSES_FROM]
    if profile.model.from_scratch is not None:
        made_from.append(str(profile.train.seed))
    digest = hashlib.sha256("\n".join(made_from).encode())
    digest.update(np.ascontiguousarray(data.train.indices, dtype=np.int64).tobytes())
    return digest.hexdigest()


def arithmetic_of(parts: ModelParts) -> str:
    """How the model computes, in words."""
    return f"{parts.hardware.precision}, {parts.attention}"


def reference_key(
    profile: Profile, data: TrainingData | LoadedData, arithmetic: str, fingerprints: Mapping[str, str]
) -> str:
    """A hash of all that the log-probabilities depend on: rows, weights, adapter as it begins, arithmetic."""
    adapter = profile.adapter
    how = {
        "fingerprints": [fingerprints.get(name, "") for name in REFERENCE_FROM],
        "seeds": [profile.train.seed, profile.train.rows_seed],  # new weights; partners of mismatched answers
        "dtype": profile.model.dtype,
        "adapter": adapter.model_dump(mode="json", exclude={"name_or_path"}),
        "new_tokens": list(data.new_token_ids),
        "arithmetic": arithmetic,
    }
    digest = hashlib.sha256(json.dumps(how, sort_keys=True).encode())
    for split in (data.train, data.evaluation):
        digest.update(b"" if split is None else np.ascontiguousarray(split.indices, dtype=np.int64).tobytes())
    return digest.hexdigest()


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
    ends = np.cumsum(split.sequences.num_targets[split.indices], dtype=np.int64)
    return replace(split, reference=LogProbs(values, np.concatenate([[0], ends])))


def _splits(data: TrainingData) -> dict[str, DataSplit]:
    """The rows that a reference is measured on, by name."""
    splits = {"train": data.train, "evaluation": data.evaluation}
    mismatched = {f"mismatched_{name}": split.mismatched for name, split in splits.items() if split is not None}
    return {name: split for name, split in (splits | mismatched).items() if split is not None}


def _batches(profile: Profile, data: TrainingData, split: DataSplit) -> Callable[[], Iterator[Sequence[Row]]]:
    """The micro-batches that a split goes through the model in, later on."""
    is_trained = split.indices is data.train.indices
    return partial(_training_batches, profile, data) if is_trained else partial(_evaluation_batches, profile, split)


def _training_batches(profile: Profile, data: TrainingData) -> Iterator[Sequence[Row]]:
    """The micro-batches of the plan."""
    size = profile.micro_batch
    steps = (data.plan.step(number) for number in range(1, data.plan.max_steps + 1))
    return (rows[start : start + size] for rows in steps for start in range(0, len(rows), size))


def _evaluation_batches(profile: Profile, split: DataSplit) -> Iterator[Sequence[Row]]:
    """The batches of an evaluation."""
    size, order = profile.eval.per_device_eval_batch_size, split.longest_first.tolist()
    return ([(number,) for number in order[start : start + size]] for start in range(0, len(order), size))
