"""Probes: kept as lines, and what they make of later estimates."""

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace as replace_struct

from ftui.dataset.row_counts import RowCounts
from ftui.estimate import closed_form, timing
from ftui.estimate.api import Known, estimate, setup_for, timing_of
from ftui.estimate.estimate_text import duration_words
from ftui.estimate.measurements import (
    ProbeRecord,
    correct_memory,
    describe_setting,
    describe_subject,
    find_probe,
    probes_file,
    read_probes,
    save_probe,
)
from ftui.estimate.result import PARTS, Memory, verdict
from ftui.estimate.setup import TrainingSetup, build_setup
from ftui.hardware.devices import Card, GiB
from ftui.models.config_reader import read_shape
from ftui.profile.layers import resolve

LLAMA = {
    "model_type": "llama", "hidden_size": 2048, "intermediate_size": 8192, "num_hidden_layers": 16,
    "num_attention_heads": 32, "num_key_value_heads": 8, "head_dim": 64, "vocab_size": 128256,
    "tie_word_embeddings": True, "max_position_embeddings": 131072,
}  # fmt: skip
CARD = Card("l4", "NVIDIA L4", "cuda", 24 * GiB, 89, 121.0, 300.0, 300 << 20)


@pytest.fixture
def profile_path(tmp_path: Path) -> Path:
    (tmp_path / "model").mkdir()
    (tmp_path / "model" / "config.json").write_text(json.dumps(LLAMA))
    path = tmp_path / "p.toml"
    path.write_text(
        '[run]\nstage="sft"\n[model]\nname_or_path="./model"\n[data]\ntrain="r.jsonl"\nmax_length=2048\n'
        "[train]\nper_device_train_batch_size=4\n"
    )
    return path


@pytest.fixture
def setup(profile_path: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> TrainingSetup:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    shape = read_shape(LLAMA)
    assert shape is not None
    return build_setup(resolve(profile_path).profile, shape, CARD)


def probe(setup: TrainingSetup, process: int) -> ProbeRecord:
    return ProbeRecord(
        what=describe_subject(setup), setting=describe_setting(setup), estimated=closed_form.memory(setup).process,
        allocated=process - 3 * GiB, reserved=process - GiB, process=process, step_seconds=2.0, num_tokens=8192,
        versions={"torch": "2.13.0"}, time=1.0,
    )  # fmt: skip


def test_what_was_measured_is_kept(setup: TrainingSetup) -> None:
    assert read_probes() == []
    save_probe(probe(setup, 9 * GiB))
    with probes_file().open("ab") as file:
        file.write(b'{"of": "another version"}\n\xff torn')
    assert read_probes() == [probe(setup, 9 * GiB)]
    assert probes_file().stat().st_mode & 0o777 == 0o600
    save_probe(probe(setup, 10 * GiB))
    assert [one.process for one in read_probes()] == [9 * GiB, 10 * GiB]


def test_the_very_setting_is_told_as_measured(setup: TrainingSetup) -> None:
    closed = closed_form.memory(setup)
    found = correct_memory(closed, setup, closed, [probe(setup, 8 * GiB), probe(setup, 9 * GiB)])
    assert (found.process, found.reserved, found.allocated) == (9 * GiB, 8 * GiB, 6 * GiB)  # the newest
    assert found.basis == "measured here" and found.low < found.process < found.high
    assert sum(found.breakdown.values()) == found.process and set(found.breakdown) <= set(PARTS)


def test_another_setting_is_moved_by_the_same_share(setup: TrainingSetup) -> None:
    closed = closed_form.memory(setup)
    measured = probe(setup, round(closed.process * 1.2))
    longer = replace(setup, length=4096)
    before = closed_form.memory(longer)
    found = correct_memory(before, longer, before, [measured])
    assert found.process == pytest.approx(before.process * 1.2, rel=1e-6)
    assert found.basis == "corrected here"
    simulated = replace(before, process=before.process + GiB, basis="simulated")
    assert correct_memory(simulated, longer, before, [measured]).process == pytest.approx(
        before.process * 1.2, rel=1e-6
    )


EVERYTHING_ELSE: dict[str, object] = {
    "micro_batch": 2, "r": 64, "target_modules": ("q_proj",), "exclude_modules": ("q_proj",), "use_dora": True,
    "lora_dropout": 0.1, "modules_to_save": ("lm_head",), "storage": 4, "trained": 2, "attention": "eager",
    "checkpointing": 1, "optim": "sgd", "momentum": True, "packing": True, "bias": "all", "accumulation": 7,
    "rank_pattern": {"q_proj": 4}, "layers_to_transform": (1,), "trainable_layers": 2, "eval_batch": 64,
    "num_processes": 2, "is_compiled": True,
}  # fmt: skip


@pytest.mark.parametrize("name", EVERYTHING_ELSE)
def test_nothing_that_changes_memory_is_the_very_setting(setup: TrainingSetup, name: str) -> None:
    other = replace(setup, **{name: EVERYTHING_ELSE[name]})  # type: ignore[arg-type]
    assert other != setup
    closed = closed_form.memory(other)
    found = correct_memory(closed, other, closed, [probe(setup, round(closed_form.memory(setup).process * 1.1))])
    assert found.process == pytest.approx(closed.process * 1.1, rel=1e-6) and found.basis == "corrected here"


def test_a_probe_says_nothing_of_ways_that_are_not_ours(setup: TrainingSetup) -> None:
    other = replace(setup, num_processes=8, parallel="zero3")
    closed = closed_form.memory(other)
    assert correct_memory(closed, other, closed, [probe(setup, 9 * GiB)]) is closed


def test_lines_that_cannot_be_true_are_left_out(setup: TrainingSetup) -> None:
    for wrong in ({"estimated": 0}, {"num_tokens": 0}, {"process": -1}, {"step_seconds": 0.0}):
        save_probe(replace_struct(probe(setup, 9 * GiB), **wrong))
    assert read_probes() == []


def test_other_models_cards_and_methods_are_left_alone(setup: TrainingSetup) -> None:
    known = [probe(setup, 9 * GiB)]
    others = [
        replace(setup, card=replace(CARD, title="NVIDIA T4")),
        replace(setup, method="full"),
        replace(setup, is_8bit=True),
        replace(setup, precision="fp32"),
        replace(setup, shape=replace(setup.shape, model_type="mistral")),
    ]
    for other in others:
        closed = closed_form.memory(other)
        assert find_probe(other, known) is None
        assert correct_memory(closed, other, closed, known) is closed


@pytest.mark.parametrize(
    ("gib", "basis", "word"),
    [
        (20.0, "simulated", "fits"), (21.5, "simulated", "likely"), (23.0, "simulated", "tight"),
        (25.5, "simulated", "no"), (22.5, "measured here", "fits"), (23.6, "measured here", "tight"),
        (23.9, "simulated", "no"),
    ],
)  # fmt: skip
def test_verdicts(gib: float, basis: str, word: str) -> None:
    spread = 0.03 if basis == "measured here" else 0.08
    process = int(gib * GiB)
    memory = Memory(
        process, process, process, int(process * (1 - spread / 1.6)), int(process * (1 + spread)), {}, "backward",
        basis,  # type: ignore[arg-type]
    )  # fmt: skip
    assert verdict(memory, CARD) == word
    assert verdict(None, CARD) == verdict(memory, replace(CARD, memory=0)) == "unknown"


COUNTS: dict[str, RowCounts] = {
    "rows cut": RowCounts(longest=2048, num_cut=3, num_sequences=50, num_train_tokens=60_000, steps_per_epoch=4),
    "none cut": RowCounts(longest=2048, num_cut=0, num_sequences=50, num_eval_rows=9, num_train_rows=50),
    "few rows": RowCounts(longest=2048, num_cut=1, num_sequences=4, num_eval_rows=1, num_train_rows=4),
}  # fmt: skip


@pytest.mark.parametrize("name", COUNTS)
@pytest.mark.parametrize("wishes", [(), ("data.eval_fraction=0.1", "eval.per_device_eval_batch_size=8")], ids=str)
def test_a_probe_of_this_very_profile_is_known_again(name: str, wishes: tuple[str, ...], profile_path: Path) -> None:
    """A probe has seen the longest rows and knows no more of them; whatever the counts say beside, the profile is the
    one that it measured."""
    given = resolve(profile_path, overrides=wishes).profile
    counts = COUNTS[name]
    took = RowCounts(longest=2048, num_sequences=min(4, counts.num_sequences or 4), num_eval_rows=counts.num_eval_rows)
    seen, asked = (setup_for(given, CARD, Known(counts=one)) for one in (took, counts))
    assert isinstance(seen, TrainingSetup) and isinstance(asked, TrainingSetup)
    found = replace_struct(probe(seen, 9 * GiB), step_seconds=3.0, num_tokens=8192)
    told = estimate(given, CARD, Known(counts=counts, probes=[found]))
    assert told.memory is not None and (told.memory.basis, told.memory.process) == ("measured here", 9 * GiB)
    assert told.duration.basis == "measured here"
    assert told.duration.tokens_per_second == pytest.approx(8192 / 3)


NOT_OF_THE_MEMORY = {"rows_are_cut": True, "has_bitsandbytes": False, "lora_alpha": 7, "use_rslora": True}


@pytest.mark.parametrize("name", NOT_OF_THE_MEMORY)
def test_what_changes_no_memory_and_no_speed_is_no_other_setting(name: str, setup: TrainingSetup) -> None:
    other = replace(setup, **{name: NOT_OF_THE_MEMORY[name]})  # type: ignore[arg-type]
    assert closed_form.memory(other) == closed_form.memory(setup)
    assert timing.step_seconds(other, 8192) == timing.step_seconds(setup, 8192)
    assert describe_setting(other) == describe_setting(setup)


@pytest.mark.parametrize("change", [{"micro_batch": 2}, {"length": 512}, {"r": 64}, {"checkpointing": 1}], ids=str)
def test_the_speed_of_another_setting_is_told_with_a_wider_range(
    change: dict[str, Any], setup: TrainingSetup, profile_path: Path
) -> None:
    """On a CPU, whose speed nothing else tells; on a card that the clock knows, by how far the clock was off."""
    given = resolve(profile_path).profile
    cpu = replace(CARD, name="cpu", title="CPU", kind="cpu", tflops=None, bandwidth=None)
    asked = replace(setup, card=cpu, precision="fp32", **change)
    measured = replace_struct(probe(replace(setup, card=cpu, precision="fp32"), 9 * GiB), step_seconds=4.0)
    told = timing_of(given, asked, Known(probes=[measured]))
    assert told.tokens_per_second == pytest.approx(8192 / 4) and told.basis == "corrected here"
    assert told.spread > timing.duration(asked, num_steps=1, tokens_per_step=1.0, measured_step_seconds=1.0).spread
    assert "another setting" in duration_words(told, None)
    asked, plain = replace(setup, **change), timing.step_seconds(setup, 8192)
    assert plain is not None
    measured = replace_struct(probe(setup, 9 * GiB), step_seconds=1.4 * plain, estimated_seconds=plain)
    closed = timing_of(given, asked, Known())
    told = timing_of(given, asked, Known(probes=[measured]))
    assert told.step_seconds == pytest.approx(1.4 * (closed.step_seconds or 0)) and told.basis == "corrected here"
    far = replace_struct(measured, step_seconds=4 * plain)
    assert timing_of(given, asked, Known(probes=[far])) == closed
