"""What is proposed to a person: least loss first, and each of it simulated before it is shown."""

from collections.abc import Callable
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any, cast

import pytest

from ftui.dataset.row_counts import Cut, RowCounts
from ftui.errors import ModelError, UnavailableError
from ftui.estimate import closed_form, levers
from ftui.estimate.api import NOTHING, Known, setup_for
from ftui.estimate.fit import Change
from ftui.estimate.result import FIT, SAFE, Memory, usable, verdict
from ftui.estimate.setup import TrainingSetup
from ftui.estimate.simulation import find_changes, with_values
from ftui.hardware.detect import MachineRoom
from ftui.hardware.devices import Card, GiB, find_card
from ftui.helper.client import Helper
from ftui.profile.layers import resolve
from ftui.profile.schema import Profile
from ftui.text import toml_value

LLAMA_1B, LLAMA_8B, QWEN_8B = "meta-llama/Llama-3.2-1B-Instruct", "meta-llama/Llama-3.1-8B-Instruct", "Qwen/Qwen3-8B"
SPEED = {
    levers.MICRO_BATCH, levers.ACCUMULATION, levers.EVAL_BATCH, levers.CHECKPOINTING, levers.CHECKPOINTING_KWARGS,
    levers.OPTIM, levers.ATTENTION, levers.OFFLOAD, levers.STORED, levers.SHARD, levers.PROCESSES,
}  # fmt: skip
ONE = ("train.per_device_train_batch_size=1", "train.gradient_accumulation_steps=8")
CHECKPOINTED = ("train.activation_checkpointing=true",)
FULL, QLORA = ("adapter.method=full",), ("adapter.method=qlora",)


def profile(folder: Path, model: str, *overrides: str) -> Profile:
    path = folder / "p.toml"
    path.write_text(f'[run]\nstage="sft"\n[model]\nname_or_path="{model}"\n[data]\ntrain="r.jsonl"\n')
    return resolve(path, overrides=overrides).profile


class StandIn:
    """A helper whose simulation is the closed form times `factor`, of each profile that it is asked about."""

    def __init__(self, factor: Callable[[TrainingSetup], float] = lambda setup: 1.0) -> None:
        self.asked: list[tuple[Profile, Memory]] = []
        self._factor = factor

    def ask(
        self, method: str, *, profile: Profile, card: dict[str, Any], longest: int | None, longest_example: int | None
    ) -> Any:
        assert method == "simulate"
        counts = RowCounts(longest=longest)
        setup = setup_for(profile, Card(**card), Known(counts=counts))
        assert isinstance(setup, TrainingSetup)
        memory = simulated(setup, self._factor(setup))
        self.asked.append((profile, memory))
        return asdict(memory)


def simulated(setup: TrainingSetup, factor: float) -> Memory:
    closed = closed_form.memory(setup)
    process, widest = round(closed.process * factor), (1.08, 1.15, 1.25)[min(2, len(closed.unvalidated))]
    return replace(closed, process=process, high=round(process * widest), basis="simulated")


def changes_for(helper: Any, chosen: Profile, card: Card, known: Known = NOTHING) -> list[Change]:
    return find_changes(cast(Helper, helper), chosen, card, known)


FIRST: dict[str, tuple[str, tuple[str, ...], str, set[str]]] = {
    "1 B whole, one row": (LLAMA_1B, (*FULL, *ONE, *CHECKPOINTED, "data.max_length=2048"), "rtx3090", {"train.optim"}),
    "1 B whole, rows": (LLAMA_1B, (*FULL, "data.max_length=512"), "rtx4090", {"train.optim"}),
    "8 B QLoRA": (LLAMA_8B, (*QLORA, "data.max_length=2048"), "rtx4090", {"train.per_device_train_batch_size"}),
    "8 B QLoRA, eager": (
        LLAMA_8B, (*QLORA, *ONE, "data.max_length=2048", "model.attn_implementation=eager"), "rtx4090",
        {"model.attn_implementation"},
    ),
    "8 B whole, 80 GB": (QWEN_8B, (*FULL, *ONE, *CHECKPOINTED), "a100-80", {"model.dtype", "train.optim"}),
    "8 B whole, 24 GB": (QWEN_8B, (*FULL, *ONE, *CHECKPOINTED, "data.max_length=512"), "rtx4090", {"adapter.method"}),
    "8 B LoRA, 16 GB": (QWEN_8B, (*ONE, *CHECKPOINTED, "data.max_length=512"), "t4", {"hardware.offload"}),
    "lion": (LLAMA_1B, (*FULL, *ONE, *CHECKPOINTED, "train.optim=lion_32bit"), "l4", {"train.optim"}),
}  # fmt: skip


@pytest.mark.parametrize("case", FIRST)
def test_the_first_change_is_the_one_that_loses_least(case: str, tmp_path: Path) -> None:
    model, overrides, card, keys = FIRST[case]
    first, *rest = changes_for(StandIn(), profile(tmp_path, model, *overrides), find_card(card))
    written = {".".join(key) for key in first.values}
    assert keys <= written, written
    if keys <= {".".join(key) for key in SPEED}:
        assert first.values.keys() <= SPEED
    losing = [not change.values.keys() <= SPEED for change in (first, *rest)]
    assert losing == sorted(losing) and all(levers.MAX_LENGTH not in change.values for change in (first, *rest))


ERRORS: dict[str, Callable[[TrainingSetup], float]] = {
    "exact": lambda setup: 1.0,
    "above": lambda setup: 1.15,
    "below": lambda setup: 0.85,
    "8-bit moments take more": lambda setup: 1.3 if "8bit" in setup.optim else 1.0,
    "small batches take more": lambda setup: 1.4 if setup.micro_batch == 1 else 0.9,
    "LoRA takes more": lambda setup: 2.5 if setup.method == "lora" else 1.0,
}
WHERE = [
    (LLAMA_1B, (*FULL, "data.max_length=1024"), "rtx3090"), (LLAMA_8B, (*QLORA, "data.max_length=2048"), "rtx4090"),
    (QWEN_8B, FULL, "a100-80"), (QWEN_8B, (), "t4"), (LLAMA_8B, FULL, "a40"),
]  # fmt: skip


@pytest.mark.slow
@pytest.mark.parametrize("error", ERRORS)
@pytest.mark.parametrize(("model", "overrides", "card"), WHERE)
def test_every_change_that_is_shown_was_simulated(
    model: str, overrides: tuple[str, ...], card: str, error: str, tmp_path: Path
) -> None:
    """As the very profile that it makes, and it fits with the figure that is shown: however wrong the guesses are."""
    helper, chosen, on = StandIn(ERRORS[error]), profile(tmp_path, model, *overrides), find_card(card)
    changes = changes_for(helper, chosen, on)
    assert len(helper.asked) <= 19 and len(changes) <= 6
    for change in changes:
        written = [f"{'.'.join(key)}={toml_value(value)}" for key, value in change.values.items()]
        (memory,) = [
            memory for asked, memory in helper.asked if asked == profile(tmp_path, model, *overrides, *written)
        ]
        assert change.memory == memory and change.memory.basis == "simulated"
        assert min(memory.high, memory.process * SAFE) <= usable(on)


TIGHT = [
    (LLAMA_1B, (*FULL, *ONE, *CHECKPOINTED, "train.optim=adamw_8bit", "data.max_length=2048"), "rtx3090"),
    (QWEN_8B, (*FULL, *ONE, *CHECKPOINTED, "train.optim=adamw_8bit", "model.dtype=bfloat16", "data.max_length=8192"),
     "a100-80"),
]  # fmt: skip


@pytest.mark.parametrize(("model", "overrides", "card"), TIGHT)
def test_what_is_tight_for_its_doubts_only_gets_changes_that_end_them(
    model: str, overrides: tuple[str, ...], card: str, tmp_path: Path
) -> None:
    chosen, on = profile(tmp_path, model, *overrides), find_card(card)
    setup = setup_for(chosen, on)
    assert isinstance(setup, TrainingSetup) and verdict(simulated(setup, 1.0), on) == "tight"
    changes = changes_for(StandIn(), chosen, on)
    assert changes and all(change.verdict in FIT for change in changes)


def test_what_does_not_fit_when_it_is_simulated_is_looked_for_again(tmp_path: Path) -> None:
    """One row at a time takes 40 % more than was guessed, so that it is not enough."""
    chosen = profile(tmp_path, LLAMA_8B, *QLORA, "data.max_length=2048")
    for error, fits in (("exact", True), ("small batches take more", False)):
        first = changes_for(StandIn(ERRORS[error]), chosen, find_card("rtx4090"))[0]
        assert (first.values.keys() == {levers.MICRO_BATCH, levers.ACCUMULATION}) == fits
        assert first.values.keys() <= SPEED


def test_a_change_that_the_engine_refuses_is_not_shown(tmp_path: Path) -> None:
    class Refusing(StandIn):
        def ask(self, method: str, *, profile: Profile, card: dict[str, Any], **rows: int | None) -> Any:
            if profile.adapter.method == "qlora":
                raise ModelError("Only 3 % of the weights can be held in few bits.")
            return super().ask(method, profile=profile, card=card, **rows)

    on, chosen = find_card("rtx4090"), profile(tmp_path, LLAMA_8B, "data.max_length=2048")
    assert any(change.values.get(levers.METHOD) == "qlora" for change in changes_for(StandIn(), chosen, on))
    assert all(change.values.get(levers.METHOD) != "qlora" for change in changes_for(Refusing(), chosen, on))


def test_what_cannot_be_simulated_says_that_it_is_not(tmp_path: Path) -> None:
    class Offline(StandIn):
        def ask(self, method: str, **_: Any) -> Any:
            raise UnavailableError("The hub cannot be reached.")

    chosen, on = profile(tmp_path, LLAMA_8B, *QLORA, "data.max_length=2048"), find_card("rtx4090")
    for helper, known in ((Offline(), Known()), (None, Known()), (StandIn(), Known(parallel="fsdp"))):
        changes = changes_for(helper, chosen, on, known)
        assert changes and {change.memory.basis for change in changes} == {"closed form"}


ROWS = RowCounts(
    num_train_rows=1000, num_train_tokens=4_000_000, longest=32768, steps_per_epoch=125, num_sequences=1000,
    cuts=[Cut(length=n, num_rows=400, num_tokens=3_000_000) for n in (256, 512, 1024, 2048, 4096, 8192, 16384)],
)  # fmt: skip


def test_rows_are_cut_only_where_nothing_else_fits_and_it_says_what_is_lost(tmp_path: Path) -> None:
    rest = (*ONE, *QLORA, *CHECKPOINTED, "train.optim=adamw_8bit", "adapter.rank_pattern={q_proj=8}")
    chosen = profile(tmp_path, LLAMA_8B, *rest, "data.max_length=32768")
    known = Known(counts=ROWS, machine=MachineRoom(1, 4 * GiB))  # nothing finds room in host memory either
    (only,) = changes_for(StandIn(), chosen, find_card("t4"), known)
    assert levers.MAX_LENGTH in only.values
    assert only.reasons[-1] == "400 of 1,000 rows are longer: 75% of all tokens are lost"
    of_pretrain = replace_cuts(known, num_tokens=0)
    (only,) = changes_for(StandIn(), chosen, find_card("t4"), of_pretrain)
    assert only.reasons[-1] == "400 of 1,000 rows are longer: they become several"


def replace_cuts(known: Known, num_tokens: int) -> Known:
    cuts = [Cut(length=cut.length, num_rows=cut.num_rows, num_tokens=num_tokens) for cut in ROWS.cuts]
    counts = RowCounts(**{name: getattr(ROWS, name) for name in ROWS.__struct_fields__} | {"cuts": cuts})
    return replace(known, counts=counts)


def test_a_profile_with_other_values_is_the_one_that_would_be_read(tmp_path: Path) -> None:
    before = ("train.activation_checkpointing=true", "train.activation_checkpointing_kwargs={every_n_layers=3}")
    chosen = profile(tmp_path, LLAMA_8B, *before, "adapter.method=freeze", "adapter.trainable_layers=4")
    values: dict[levers.Key, Any] = {
        levers.METHOD: "lora", levers.LAYERS: "none", levers.CHECKPOINTING_KWARGS: "none", levers.RANK: 8,
    }  # fmt: skip
    written = [f"{'.'.join(key)}={toml_value(value)}" for key, value in values.items()]
    after = profile(tmp_path, LLAMA_8B, *before, "adapter.method=freeze", "adapter.trainable_layers=4", *written)
    assert with_values(chosen, values) == after
