"""Stage grpo: generating and training apart, in memory and time; rollouts on the disk; what is proposed."""

from dataclasses import replace
from pathlib import Path

import pytest

from ftui.dataset.row_counts import RowCounts
from ftui.estimate import closed_form, disk, timing
from ftui.estimate.api import Known, estimate, setup_for, suggestions
from ftui.estimate.measurements import PhaseMeasured, ProbeRecord, describe_setting, describe_subject
from ftui.estimate.peak import memory_points
from ftui.estimate.rollouts.rollout_cost import reuse_of_rollouts
from ftui.estimate.setup import RolloutSize, TrainingSetup
from ftui.hardware.devices import find_card
from ftui.profile.layers import resolve
from ftui.profile.schema import Profile

TEXT = """
run.stage = "grpo"
model.name_or_path = "Qwen/Qwen3-8B"
data = {train = "r.jsonl", max_length = 2560}
rewards.reward_funcs = ["exact_answer"]
train = {max_steps = 90, per_device_train_batch_size = 4, gradient_accumulation_steps = 8}
grpo = {num_generations = 8, max_completion_length = 2048}
"""


def given(tmp_path: Path, *overrides: str) -> Profile:
    path = tmp_path / "p.toml"
    path.write_text(TEXT)
    return resolve(path, overrides=overrides).profile


def made(profile: Profile, card: str = "a100-80") -> TrainingSetup:
    setup = setup_for(profile, find_card(card))
    assert isinstance(setup, TrainingSetup)
    return setup


def test_a_rollout_is_that_of_the_profile(tmp_path: Path) -> None:
    setup = made(given(tmp_path, "grpo.steps_per_generation=3", "grpo.max_num_seqs=48", "grpo.num_iterations=2"))
    assert setup.sampled == RolloutSize("grpo", 12, 96, 48, 96, 512, 2048)
    assert made(given(tmp_path)).sampled == RolloutSize("grpo", 4, 32, 32, 32, 512, 2048)
    for keys, expected in (((), (1, 0)), (("grpo.num_iterations=2",), (2, 1)), (("grpo.beta=0.1",), (1, 1))):
        assert reuse_of_rollouts(given(tmp_path, "adapter.method=lora", *keys)) == expected


def test_each_process_has_its_part(tmp_path: Path) -> None:
    """Of four GPUs each generates a quarter, as fast as one that has so many."""
    one, four = (made(given(tmp_path, f"hardware.num_processes={n}", *keys)) for n, keys in (
        (1, ("train.gradient_accumulation_steps=2",)), (4, ("train.gradient_accumulation_steps=2",))
    ))  # fmt: skip
    assert one.sampled is not None and four.sampled is not None
    assert (four.sampled.num_rows, four.sampled.at_once) == (32, 8) and one.sampled.num_rows == 8
    assert timing.generating_seconds(four, 4000) == pytest.approx(timing.generating_seconds(one, 1000))
    assert closed_form.phase_peaks(four)[0] == pytest.approx(closed_form.phase_peaks(one)[0], rel=0.01)


def test_whole_groups_are_dealt(tmp_path: Path) -> None:
    """Of three groups of 8 a process has two, and no more at once than it may; where it may, half of them."""
    keys = ("train.effective_batch=24", "hardware.num_processes=2")
    parts = []
    for limit in ("none", "4", "12", "20"):
        setup = made(given(tmp_path, *keys, f"grpo.max_num_seqs={limit}"))
        assert setup.sampled is not None
        parts.append((setup.sampled.part, setup.sampled.at_once, timing.generating_seconds(setup, 1000.0)))
    assert [sizes[:2] for sizes in parts] == [(16, 16), (12, 4), (12, 12), (12, 12)]
    assert parts[1][2] > 2 * parts[2][2], "three times as many passes"


def test_what_dynamic_sampling_may_add_is_said_and_not_counted(tmp_path: Path) -> None:
    plain, drawn = (
        estimate(given(tmp_path, *keys), find_card("a100-80")) for keys in ((), ("grpo.dynamic_sample=true",))
    )
    assert any("up to 4 times as many where groups have no spread: not counted" in note for note in drawn.notes)
    assert plain.duration == drawn.duration and not any("dynamic_sample" in note for note in plain.notes)


def test_evaluations_by_reward_are_answers_and_no_loss(tmp_path: Path) -> None:
    """Their time is that of generating so many answers; a batch for a loss takes no memory."""
    plain, held_out = given(tmp_path), given(tmp_path, "data.eval_num_rows=24", "grpo.num_generations_eval=2")
    counts = RowCounts(num_train_rows=76, num_eval_rows=24, num_sequences=76, steps_per_epoch=19, longest=2560)
    setups = [setup_for(one, find_card("a100-80"), Known(counts=counts)) for one in (plain, held_out)]
    assert all(isinstance(one, TrainingSetup) for one in setups)
    (without, rows) = (one.answered for one in setups if isinstance(one, TrainingSetup))
    assert without is None and rows is not None and (rows.num_rows, rows.new_tokens) == (48, 2048)
    times = [
        estimate(one, find_card("a100-80"), Known(counts=counts)).duration.total_seconds for one in (plain, held_out)
    ]
    assert times[0] is not None and times[1] is not None and times[1] > times[0]
    phases = [point.phase for point in memory_points(setups[1])] if isinstance(setups[1], TrainingSetup) else []
    assert phases.count("evaluation") == 1, "of answers"


def test_the_weights_of_the_start_are_in_host_memory(tmp_path: Path) -> None:
    """4 bytes for each that is trained, where there is no new adapter to be switched off."""
    keys = (("method=full", "0"), ("method=full", "0.1"), ("method=lora", "0.1"))
    full, held, lora = (made(given(tmp_path, f"adapter.{how}", f"grpo.beta={beta}")) for how, beta in keys)
    assert closed_form.reference_bytes(held) == 4 * closed_form.num_trainable(held) > 8e9
    assert closed_form.host_memory(held) - closed_form.host_memory(full) == closed_form.reference_bytes(held)
    assert closed_form.reference_bytes(lora) == 0 == closed_form.reference_bytes(full)
    assert closed_form.memory(held) == closed_form.memory(full), "none of the card's"


def test_keys_and_values_are_the_peak_of_generating(tmp_path: Path) -> None:
    """Of a token of Qwen3-8B: 36 layers, 8 heads of 128, two of them, 2 bytes each; one layer's keys a second time."""
    setup = made(given(tmp_path))
    rows = setup.sampled
    assert rows is not None

    def peak(at_once: int) -> int:
        points = memory_points(replace(setup, sampled=replace(rows, at_once=at_once)))
        return next(point.total for point in points if point.phase == "generation")

    logits = 2 * 4 * 151936
    kept = 2560 * 2 * 36 * 8 * 128 * 2
    assert (peak(32) - peak(16)) / 16 == pytest.approx(kept + kept / 72 + logits, rel=0.02)
    generating, stepping = closed_form.phase_peaks(setup)
    assert max(generating, stepping) == closed_form.memory(setup).process, "neither is hidden by the other"
    assert closed_form.phase_peaks(replace(setup, sampled=replace(rows, at_once=1)))[1] == stepping


def test_time_and_disk_count_every_rollout(tmp_path: Path) -> None:
    profile = given(tmp_path)
    found, setup = estimate(profile, find_card("a100-80"), Known()), made(profile)
    rows = setup.sampled
    assert rows is not None and found.duration.total_seconds and found.duration.tokens_per_second
    each = timing.generating_seconds(setup, found.duration.tokens_per_second)
    steps = timing.duration(setup, num_steps=90, tokens_per_step=4 * 8 * 2560).total_seconds
    assert steps and found.duration.total_seconds - steps == pytest.approx(90 * each, rel=0.1)
    slower = timing.generating_seconds(replace(setup, sampled=replace(rows, at_once=16)), 1000.0)
    assert slower > 1.5 * timing.generating_seconds(setup, 1000.0), "the weights are read for each pass"
    [note] = [note for note in found.notes if "rollout" in note]
    assert "32 answers of up to 2048 tokens, 32 at once, in up to" in note and "Generating takes" in note
    shared = estimate(given(tmp_path, "grpo.num_iterations=3"), find_card("a100-80"), Known())
    assert shared.duration.total_seconds and shared.duration.total_seconds < found.duration.total_seconds
    one = disk.rollout_bytes(setup, 0)
    assert one == 32 * 2048 * 12 + 4 * 512 * 8 and disk.rollout_bytes(setup, 2) == one + 32 * 2048 * 8
    fewer = estimate(given(tmp_path, "log.rollout_total_limit=10"), find_card("a100-80"), Known())
    assert found.disk and fewer.disk and found.disk - fewer.disk == 80 * one


def test_a_probe_of_this_setting_tells_what_a_rollout_takes(tmp_path: Path) -> None:
    profile, card = given(tmp_path), find_card("a100-80")
    setup = made(profile)
    phases = {"generating": (50.0, 20), "scoring": (10.0, 30), "updating": (4.0, 30)}
    probe = ProbeRecord(
        what=describe_subject(setup), setting=describe_setting(setup), estimated=1 << 30, allocated=None, reserved=None,
        process=30 << 30, step_seconds=4.0, num_tokens=8 * 2560, versions={}, time=1.0,
        rollout={name: PhaseMeasured(seconds, peak << 30) for name, (seconds, peak) in phases.items()},
    )  # fmt: skip
    found = estimate(profile, card, Known(probes=[probe]))
    loading = timing.loading_seconds(setup) + disk.checkpoint_bytes(setup) / timing.WRITING
    assert found.duration.total_seconds == pytest.approx(90 * (60 + 4.0 * 4) + loading, rel=0.01)
    [note] = [note for note in found.notes if "rollout" in note]
    assert "generated in up to 50 s, scored in 10 s" in note
    assert "Generating takes 20.0 GiB at most, a step 30.0 GiB" in note


def test_fewer_answers_at_once_are_proposed_where_they_are_too_many(tmp_path: Path) -> None:
    profile = given(
        tmp_path, "adapter.method=qlora", "train.activation_checkpointing=true", "train.per_device_train_batch_size=1",
        "train.gradient_accumulation_steps=64",
    )  # fmt: skip
    setup = made(profile, "rtx4090")
    assert closed_form.memory(setup).phase == "generation"
    best = suggestions(setup)[0]
    assert list(best.values) == [("grpo", "max_num_seqs")] and best.memory.process < 24 << 30
    size = best.values["grpo", "max_num_seqs"]
    changed = given(
        tmp_path, "adapter.method=qlora", "train.activation_checkpointing=true", "train.per_device_train_batch_size=1",
        "train.gradient_accumulation_steps=64", f"grpo.max_num_seqs={size}",
    )  # fmt: skip
    assert closed_form.memory(made(changed, "rtx4090")) == best.memory
