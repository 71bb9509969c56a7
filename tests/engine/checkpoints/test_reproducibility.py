"""A resumed run is as exact as the worst of its resumes, and says why."""

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

from ftui.engine.checkpoints.reproducibility import (
    UNKNOWN,
    encode_machine,
    environment,
    join_machines,
    machine_differences,
    note_differences,
    reproducibility,
)
from ftui.engine.system.device import Hardware
from ftui.engine.system.environment import versions
from ftui.engine.system.train_state import TrainState
from ftui.profile.schema import Profile
from ftui.profile.sections.adapter import AdapterSection
from ftui.runs.checkpoint_folders import Checkpoint, Manifest, publish
from tests.support.tiny import make_profile

CPU = Hardware(torch.device("cpu"), "fp32", 1, "a processor", None)
GPU = Hardware(torch.device("cuda"), "bf16", 1, "NVIDIA A40", "570.1")


@pytest.fixture
def profile(tmp_path: Path) -> Profile:
    return make_profile(tmp_path, tmp_path / "rows.jsonl")


def checkpoint(folder: Path, **changes: Any) -> Checkpoint:
    fields: dict[str, Any] = {
        "run_id": "r", "attempt": 1, "token": "t", "step": 4, "versions": versions(), "fingerprints": {},
        "dtypes": {}, "finite": True, "created": 0.0,
    }  # fmt: skip
    path = folder / "checkpoint-4"
    publish(path, Manifest(**fields | changes), lambda staged: None)
    return Checkpoint(path, 4)


def test_the_same_machine_is_exact_on_a_cpu(tmp_path: Path, profile: Profile) -> None:
    now = environment(profile, CPU, "sdpa", 1)
    assert machine_differences(checkpoint(tmp_path, environment=now), now) == []
    assert reproducibility(TrainState(), profile, CPU) == ("EXACT", [])


@pytest.mark.parametrize(
    ("hardware", "attention", "named"),
    [
        (Hardware(torch.device("cpu"), "fp32", 2, "a processor", None), "sdpa", "threads: 1 -> 2"),
        (Hardware(torch.device("cpu"), "bf16", 1, "a processor", None), "sdpa", "precision: fp32 -> bf16"),
        (Hardware(torch.device("cpu"), "fp32", 1, "another", None), "sdpa", "device: cpu: a processor -> cpu: another"),
        (CPU, "eager", "attention: sdpa -> eager"),
    ],
)
def test_another_machine_is_the_same_state(
    tmp_path: Path, profile: Profile, hardware: Hardware, attention: str, named: str
) -> None:
    before = checkpoint(tmp_path, environment=environment(profile, CPU, "sdpa", 1))
    differences = machine_differences(before, environment(profile, hardware, attention, 1))
    assert differences == [named]
    state = TrainState()
    note_differences(state, differences, [])
    note_differences(state, [], [])  # a later cut on the same machine makes it no better
    assert reproducibility(state, profile, hardware) == ("SAME STATE", [named])


def test_another_version_is_named(tmp_path: Path, profile: Profile) -> None:
    now = environment(profile, CPU, "sdpa", 1)
    before = checkpoint(tmp_path, environment=now, versions=versions() | {"torch": "2.6.0"})
    assert machine_differences(before, now) == [f"torch: 2.6.0 -> {versions()['torch']}"]


def test_a_checkpoint_that_does_not_say_is_not_called_exact(tmp_path: Path, profile: Profile) -> None:
    assert machine_differences(checkpoint(tmp_path), environment(profile, CPU, "sdpa", 1)) == [UNKNOWN]


def test_a_gpu_is_exact_only_with_deterministic_kernels(profile: Profile) -> None:
    kind, reasons = reproducibility(TrainState(), profile, GPU)
    assert kind == "SAME STATE" and "full_determinism" in reasons[0]
    train = profile.train.model_copy(update={"full_determinism": True})
    assert reproducibility(TrainState(), profile.model_copy(update={"train": train}), GPU) == ("EXACT", [])


def test_a_quantised_base_on_a_gpu_is_not_called_exact(profile: Profile) -> None:
    train = profile.train.model_copy(update={"full_determinism": True})
    adapter = AdapterSection(method="qlora")
    quantised = profile.model_copy(update={"train": train, "adapter": adapter})
    assert reproducibility(TrainState(), quantised, CPU) == ("EXACT", [])
    kind, reasons = reproducibility(TrainState(), quantised, GPU)
    assert kind == "SAME STATE" and "bitsandbytes" in reasons[0]


def test_compiled_kernels_are_not_called_exact(profile: Profile) -> None:
    train = profile.train.model_copy(update={"torch_compile": True})
    kind, reasons = reproducibility(TrainState(), profile.model_copy(update={"train": train}), CPU)
    assert kind == "SAME STATE" and "train.torch_compile" in reasons[0]


def test_other_content_is_not_exact_whatever_else(profile: Profile) -> None:
    state = TrainState()
    note_differences(state, ["threads: 1 -> 2"], ["forked with other content at step 4: profile"])
    assert reproducibility(state, profile, CPU) == (
        "NOT EXACT",
        ["forked with other content at step 4: profile", "threads: 1 -> 2"],
    )


def test_the_machines_of_all_ranks_count(tmp_path: Path, profile: Profile) -> None:
    """Equal machines leave no trace: a run on two nodes is EXACT on one such machine, and the other way round."""
    own, shape = encode_machine(profile, CPU, "sdpa", 2), environment(profile, CPU, "sdpa", 2)
    assert join_machines([own, own]) == shape
    other = encode_machine(profile, replace(CPU, name="another processor"), "sdpa", 2)
    mixed = join_machines([own, other])
    assert mixed == shape | {"device of rank 1": "cpu: another processor"}
    assert machine_differences(checkpoint(tmp_path, environment=mixed), shape) == [
        "device of rank 1: cpu: another processor -> none"
    ]
    library = json.loads(own)
    library[1]["transformers"] = "0.1"
    assert join_machines([own, json.dumps(library).encode()]) == shape | {"transformers of rank 1": "0.1"}
