"""The profile of real steps of a tiny model, in this process; and its floors against operations that torch counts."""

import gzip
import json
from pathlib import Path
from typing import Any

import pytest
from torch.utils.flop_counter import FlopCounterMode

from ftui.engine.profile_step import machine_speed
from ftui.engine.profile_step.measured_rollout import MeasuredRollout
from ftui.engine.rollouts.rollout import Rollout
from ftui.engine.services.probe import probe
from ftui.engine.services.profile_step import profile_step
from ftui.engine.training import forward_backward
from ftui.errors import DataError, ProfileError
from ftui.estimate.api import setup_for
from ftui.estimate.setup import TrainingSetup
from ftui.estimate.step.floor import find_floors, product_operations
from ftui.estimate.step.step_profile import StepProfile
from ftui.estimate.trained import find_trained
from ftui.hardware.detect import find_machine
from ftui.profile.schema import Profile
from ftui.profile.serialize import to_toml
from tests.support.tiny import chats, judged_answers, make_profile, preference_pairs, write_rows

LORA = {"method": "lora", "r": 4}


@pytest.fixture(autouse=True)
def hurried(monkeypatch: pytest.MonkeyPatch) -> None:
    """The speed of this machine is not what is tested."""
    monkeypatch.setattr(machine_speed, "SECONDS", 0.0)
    monkeypatch.setattr(machine_speed, "SIDES", {"cpu": (32,)})
    monkeypatch.setattr(machine_speed, "COPIED", 1 << 16)


@pytest.fixture
def rows(tmp_path: Path) -> Path:
    return write_rows(tmp_path / "rows.jsonl", chats(24))


def measured(profile: Profile, num_steps: int = 2, trace: Path | None = None) -> StepProfile:
    return profile_step(lambda detail: None, to_toml(profile), num_steps, None if trace is None else str(trace))


@pytest.mark.parametrize(
    "sections",
    [
        {"adapter": LORA},
        pytest.param({"adapter": {"method": "qlora", "r": 4}}, marks=pytest.mark.slow),
        pytest.param({"train": {"precision": "bf16"}}, marks=pytest.mark.slow),
        pytest.param({"train": {"activation_checkpointing": True, "optim": "lion_8bit"}}, marks=pytest.mark.slow),
        pytest.param({"data": {"packing": True, "max_length": 128}}, marks=pytest.mark.slow),
        pytest.param({"run": {"stage": "dpo"}}, marks=pytest.mark.slow),
        pytest.param({"run": {"stage": "kto"}}, marks=pytest.mark.slow),
    ],
)
def test_all_time_of_a_step_is_accounted_for(sections: dict[str, Any], model_folder: Path, rows: Path) -> None:
    stage = sections.get("run", {}).get("stage")
    if stage is not None:
        write_rows(rows, preference_pairs(24) if stage == "dpo" else judged_answers(24))
    train = {"per_device_train_batch_size": 4, "gradient_accumulation_steps": 2} | sections.get("train", {})
    profile = make_profile(model_folder, rows, **sections | {"train": train})
    step = measured(profile)
    assert step.seconds() == pytest.approx(step.profiled_seconds, rel=1e-9), "shares add up to the whole"
    assert sum(op.seconds for op in step.operations) == pytest.approx(step.profiled_seconds, rel=1e-9)
    assert [op.name for op in step.operations if op.kind == "other"] == []
    for kind, phase in (("products", "forward"), ("products", "backward"), ("optimizer", "update"), ("data", "rest")):
        assert step.seconds(kind, phase) > 0, (kind, phase)  # type: ignore[arg-type]
    assert (step.num_steps, step.num_micro_batches) == (2, 2)
    assert step.num_positions >= step.num_computed > step.num_targets > 0
    assert (step.num_computed < 0.9 * step.num_tokens) == (profile.run.stage == "dpo"), (
        "prompts of pairs are there once"
    )


SAMPLED = {
    "grpo": {"num_generations": 4, "max_completion_length": 6, "steps_per_generation": 2},
    "ppo": {"max_completion_length": 6, "num_ppo_epochs": 3},
}


@pytest.mark.parametrize("stage", ["grpo", pytest.param("ppo", marks=pytest.mark.slow)])
def test_a_rollout_is_measured_by_its_phases(
    stage: str, model_folder: Path, rows: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of two processes the part of one: 8 answers of a step, with whole groups, which half of its 12 would not be."""
    write_rows(rows, [{"prompt": f"count {n} of the " * (1 + n % 3), "answer": str(n)} for n in range(40)])
    profile = make_profile(
        model_folder, rows, run={"stage": stage}, adapter=LORA, data={"max_length": 96},
        train={"per_device_train_batch_size": 2, "gradient_accumulation_steps": 3 if stage == "grpo" else 4},
        rewards={"reward_funcs": ["number_answer"]}, hardware={"num_processes": 2}, **{stage: SAMPLED[stage]},
    )  # fmt: skip
    step = measured(profile, num_steps=1)
    told = step.rollout
    assert told is not None and set(told.seconds) == {"generating", "scoring", "log_probs"}
    assert (told.num_answers, told.num_steps) == ((16, 2) if stage == "grpo" else (8, 3))
    assert 0 < told.num_tokens <= 6 * told.num_answers and min(told.seconds.values()) > 0
    assert step.num_rows == 8 == len(step.lengths) and 0 < step.num_targets <= 8 * 6 and step.num_micro_batches == 4
    assert step.seconds() == pytest.approx(step.profiled_seconds, rel=1e-9)
    answer, asked = MeasuredRollout.answer, list[tuple[int, int | None]]()

    def note(self: Any, examples: Any, stop_ids: Any = None, at_once: int | None = None) -> Rollout:
        asked.append((len(examples), at_once))
        return answer(self, examples, stop_ids, at_once)

    monkeypatch.setattr(MeasuredRollout, "answer", note)
    longest = probe(lambda detail: None, to_toml(profile))
    assert asked == [(3, 12) if stage == "grpo" else (8, 8)], "half of a rollout"
    assert longest["micro_batch"] == 2
    assert max(step.lengths) <= longest["num_tokens"] / 4 <= longest["longest"], "the longest prompts, no answer ends"
    assert set(longest["rollout"]) == {"generating", "scoring", "log_probs", "updating"}
    peaks = [longest["rollout"][name]["process"] for name in ("generating", "updating")]
    assert all(peak is None or 0 < peak <= longest["process"] for peak in peaks), "None: the kernel does not tell"


@pytest.mark.slow
def test_what_is_measured_is_the_plan_and_nothing_is_kept(
    model_folder: Path, rows: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("FTUI_RUNS", str(tmp_path / "runs"))
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path / "temporary"))
    (tmp_path / "temporary").mkdir()
    trace = tmp_path / "trace.json.gz"
    profile = make_profile(model_folder, rows, train={"per_device_train_batch_size": 8, "max_steps": 3})
    step = measured(profile, num_steps=50, trace=trace)
    assert (step.num_steps, step.num_rows, len(step.lengths)) == (3, 8, 24), "no more steps than the run has"
    names = {event.get("name") for event in json.loads(gzip.decompress(trace.read_bytes()))["traceEvents"]}
    assert {"aten::mm", "ftui::forward", "ftui::backward", "ftui::update"} <= names
    assert list((tmp_path / "temporary").iterdir()) == [] and not (tmp_path / "runs").exists()


def test_a_process_takes_its_part_of_a_step(model_folder: Path, rows: Path) -> None:
    """Of three micro-batches the first of two processes has two; a divided model cannot be measured by one."""
    train = {"per_device_train_batch_size": 2, "effective_batch": 5, "max_steps": 2}
    profile = make_profile(model_folder, rows, train=train, hardware={"num_processes": 2})
    step = measured(profile, num_steps=1)
    assert (step.num_rows, len(step.lengths), step.num_micro_batches) == (3, 3, 2)
    text = to_toml(profile.model_copy(update={"hardware": profile.hardware.model_copy(update={"shard": "all"})}))
    for measure in (probe, lambda on_detail, text: profile_step(on_detail, text, 1, None)):
        with pytest.raises(ProfileError, match="one process alone") as error:
            measure(lambda detail: None, text)
        assert 'hardware.shard = "none"' in str(error.value.hint), "with which it was measured"


def test_wrong_rows_are_refused_as_a_run_refuses_them(model_folder: Path, tmp_path: Path) -> None:
    wrong = write_rows(tmp_path / "wrong.jsonl", [{"text": 5}])
    with pytest.raises(DataError, match=r"wrong\.jsonl:1"):
        measured(make_profile(model_folder, wrong))


def setup_of(profile: Profile) -> TrainingSetup:
    setup = setup_for(profile, find_machine().cpu.card)
    assert isinstance(setup, TrainingSetup)
    return setup


@pytest.mark.parametrize(
    "adapter",
    [
        LORA | {"use_fused_lora": False},
        {"method": "full"},
        {"method": "freeze", "trainable_layers": 1},
    ],
    ids=["lora", "full", "freeze"],
)
def test_the_floor_counts_the_operations_that_torch_counts(
    adapter: dict[str, Any], model_folder: Path, rows: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Without padding, which is computed but not needed. The counter knows no `addmm_`, so nothing is fused; and what
    flows through the lowest adapters to the embeddings is counted, though nobody needs it."""
    counted: list[int] = []
    taken = forward_backward.backpropagate

    def counting(*arguments: Any) -> Any:
        with FlopCounterMode(display=False) as counter:
            result = taken(*arguments)
        counted.append(counter.get_total_flops())
        return result

    monkeypatch.setattr(forward_backward, "backpropagate", counting)
    profile = make_profile(model_folder, rows, adapter=adapter, train={"per_device_train_batch_size": 1})
    step, setup = measured(profile, num_steps=2), setup_of(profile)
    assert step.num_positions == step.num_computed
    expected = product_operations(setup, find_trained(setup), step.num_computed, step.num_targets)
    assert sum(counted[-2:]) / 2 == pytest.approx(expected, rel=0.01 if "r" in adapter else 1e-6)
    floors = find_floors(setup, step)
    assert floors["products"] == expected / step.product_rate
    assert all(floors[kind] > 0 for kind in ("attention", "norms", "elementwise", "optimizer"))
