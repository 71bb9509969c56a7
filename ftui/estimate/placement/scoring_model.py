"""The memory of a reward model that a run asks for rewards: it lies beside the model that is trained, and stays."""

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

from ftui.estimate.result import Memory
from ftui.estimate.states import FP32
from ftui.models.config_reader import ModelShape
from ftui.profile.sections.rewards import REWARD_MODEL, RewardsSection

PART = "reward model"
REFERENCE = "reference"


def scoring_bytes(
    section: RewardsSection, compute: int, read_shape: Callable[[str, str | None], ModelShape | str]
) -> int | None:
    """Bytes of a profile's reward model, its weights in the type of the arithmetic (`compute` bytes each) and its head
    in float32; 0 where it asks none, `None` where its architecture is not known.
    """
    name = section.reward_model_name_or_path
    if REWARD_MODEL not in section.reward_funcs or name is None:
        return 0
    adapter = Path(name) / "adapter_config.json"
    if not adapter.is_file():
        return _bytes_of(read_shape(name, section.reward_model_revision), compute)
    try:
        config = json.loads(adapter.read_bytes())
        beside = (Path(name) / "adapter_model.safetensors").stat().st_size
    except (OSError, ValueError):  # the checks of a run say what is wrong with it
        return None
    base = _bytes_of(read_shape(str(config.get("base_model_name_or_path")), config.get("revision")), compute)
    return None if base is None else base + beside


def _bytes_of(shape: Any, compute: int) -> int | None:
    if isinstance(shape, str):
        return None
    scoring = shape.as_reward_model()
    return int(compute * (scoring.num_parameters - scoring.hidden_size) + FP32 * scoring.hidden_size)


def add_scoring_model(memory: Memory, num_bytes: int, part: str = PART) -> Memory:
    """The peak with a reward model, or another part that stays, beside all else."""
    if not num_bytes:
        return memory
    return replace(
        memory,
        **{name: getattr(memory, name) + num_bytes for name in ("allocated", "reserved", "process", "low", "high")},
        breakdown={**memory.breakdown, part: num_bytes},
    )
