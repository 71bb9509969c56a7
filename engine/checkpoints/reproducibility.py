"""How surely a resumed run is the run it would have been: from what was checked, never from hope.

EXACT: the state came back bit for bit, and what computes from here on is the same and deterministic.
SAME STATE: the state came back bit for bit; last digits may differ from here on.
NOT EXACT: something the weights are made from was changed on purpose (a fork).
"""

import json
from collections.abc import Sequence
from dataclasses import dataclass

from ftui.hardware.cpu import cpu_features
from ftui.profile.schema import Profile
from ftui.runs.checkpoint_folders import Checkpoint, read_manifest
from ftui.runs.records.record import Reproducibility

from ..system.device import Hardware
from ..system.environment import versions
from ..system.train_state import TrainState

WHY = {"processes": " (a step's sums are taken in another order, and dropout drops others)"}
UNKNOWN = "the checkpoint does not say on what it was made"


@dataclass(frozen=True)
class Provenance:
    """Hashes of the inputs that a run's weights are made from, and the machine; both go into every manifest."""

    fingerprints: dict[str, str]
    environment: dict[str, str]


def environment(profile: Profile, hardware: Hardware, attention: str, num_processes: int) -> dict[str, str]:
    """All that can change the last bits of a step beside the profile, as text; in every manifest."""
    lora = {"LoRA layers": "fused" if profile.adapter.use_fused_lora else "PEFT"} if profile.adapter.is_lora else {}
    group = profile.hardware.dp_shard_size
    groups = "" if group in (None, num_processes) else f" in groups of {group}"
    shard = {} if profile.hardware.shard == "none" else {"shard": f"{profile.hardware.shard}{groups}"}
    return (
        lora
        | shard
        | {
            "device": f"{hardware.device.type}: {hardware.name}",
            "driver": hardware.driver or "none",
            "CPU features": cpu_features(),
            "threads": str(hardware.num_threads),
            "processes": str(num_processes),
            "precision": hardware.precision,
            "attention": attention,
            "evaluation batch": str(profile.eval.per_device_eval_batch_size),
        }
    )


def encode_machine(profile: Profile, hardware: Hardware, attention: str, num_processes: int) -> bytes:
    """What a rank tells rank 0 of its machine: the environment, and the versions of its libraries."""
    return json.dumps([environment(profile, hardware, attention, num_processes), versions()]).encode()


def join_machines(machines: Sequence[bytes]) -> dict[str, str]:
    """The environment of rank 0, and where other ranks have something else, what they have."""
    (own, own_versions), *others = map(json.loads, machines)
    expected, joined = own | own_versions, dict(own)
    for rank, (other, other_versions) in enumerate(others, start=1):
        for name, value in (other | other_versions).items():
            if value != expected.get(name):
                joined[f"{name} of rank {rank}"] = value
    return joined


def machine_differences(checkpoint: Checkpoint, current: dict[str, str]) -> list[str]:
    """The parts of machine and libraries that differ from those the checkpoint was made on, a sentence each."""
    manifest = read_manifest(checkpoint.path)
    if not manifest.environment:
        return [UNKNOWN]
    saved, current = manifest.environment | manifest.versions, current | versions()
    return [
        f"{name}: {saved.get(name, 'none')} -> {current.get(name, 'none')}{WHY.get(name, '')}"
        for name in saved | current
        if saved.get(name) != current.get(name)
    ]


def reproducibility(state: TrainState, profile: Profile, hardware: Hardware) -> tuple[Reproducibility, list[str]]:
    """How exactly a resumed run repeats the run it continues, and the reasons why it is not more exact."""
    reasons = [*state.other_content, *state.other_machine]
    if hardware.device.type == "mps":
        reasons.append("kernels on MPS are not deterministic")
    elif hardware.device.type == "cuda" and not profile.train.full_determinism:
        reasons.append("kernels on a GPU are not deterministic (train.full_determinism = true makes them so)")
    if hardware.device.type == "cuda" and profile.adapter.is_quantised:
        reasons.append("whether bitsandbytes' kernels on a GPU are deterministic has not been checked")
    if profile.train.torch_compile:
        reasons.append("compiled kernels depend on the lengths they met first (train.torch_compile)")
    if state.other_content:
        return "NOT EXACT", reasons
    return ("SAME STATE", reasons) if reasons else ("EXACT", [])


def note_differences(state: TrainState, machine: list[str], content: list[str]) -> None:
    """Remember what has changed, for good: a run resumed twice is as exact as the worse of the two resumes."""
    state.other_machine = list(dict.fromkeys([*state.other_machine, *machine]))
    state.other_content = list(dict.fromkeys([*state.other_content, *content]))
