"""Measures a profile on this machine's device: a few steps on the longest rows and one evaluation batch; keeps nothing.

In a stage that samples answers the steps are on the longest answers, which are generated and scored before.

It runs the engine's own modules, from preparation to update, so that it measures what a run will take.
"""

import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

from ftui.errors import ProfileError
from ftui.profile.schema import Profile
from ftui.runs.run_folder import Run
from ftui.system.user_folders import cache_folder

from ..build import assemble, build_model
from ..check_profile import check_profile, find_config
from ..distributed.process_group import ProcessGroup
from ..models.model_parts import ModelParts
from ..models.quantization import num_parameters
from ..optim.optimizer import allocate_state
from ..profile_step.longest_answers import run_longest_answers
from ..profile_step.phase_clock import PhaseClock
from ..runtime.control_flags import Control
from ..runtime.event_writer import EventWriter
from ..system.device import find_hardware, settle_torch
from ..system.environment import versions
from ..system.rng import seed_everything
from ..training.peak_memory import card_memory_in_use, evaluate_longest, run_longest
from ..training.prepare import TrainingData, prepare
from .profile_text import given_profile

STEPS = 3  # the first one pays for what is done once


def probe(on_detail: Callable[[str], None], profile: str) -> dict[str, Any]:
    """Measure memory (bytes) and step time of a profile (TOML, every path absolute) in one process here.

    Raises:
        FtuiError: it cannot run here, or does not fit in micro-batches of that size.
    """
    with tempfile.TemporaryDirectory() as folder:
        run = Run(Path(folder) / "probe")
        run.folder.mkdir()
        events = EventWriter(run, attempt=1, token="", is_silent=True)
        return _measure(profile_of_process(profile), run, events, on_detail)


def profile_of_process(text: str) -> Profile:
    """The profile in a TOML text with whole paths, to be measured by one process: its part is that of a process of the
    run, of which there are as many as the profile says.

    Raises:
        ProfileError: something is wrong with it, or each process holds a part of the model only.
    """
    profile = given_profile(text)
    if profile.hardware.shard != "none":
        raise ProfileError(
            f"hardware.shard = {profile.hardware.shard!r}: one process alone cannot measure a model that several hold.",
            hint='Measure it whole, with hardware.shard = "none".',
        )
    return profile


def build_training(profile: Profile, run: Run, on_detail: Callable[[str], None]) -> tuple[TrainingData, ModelParts]:
    """The rows and the model of a profile, ready to take steps, as the engine makes them for one process alone.

    Raises:
        FtuiError: a run of the profile would be refused.
    """
    alone = profile.model_copy(update={"hardware": profile.hardware.model_copy(update={"num_processes": 1})})
    hardware = find_hardware(alone)
    settle_torch(alone, hardware)
    cache = cache_folder(run.folder / "cache")
    check_profile(alone, find_config(alone, cache, on_detail), hardware)
    on_detail("reading the rows")
    data = prepare(profile, cache, on_detail)
    on_detail("loading the model")
    seed_everything(profile.train.seed)
    parts = assemble(alone, data, build_model(alone, data, hardware), hardware, ProcessGroup())
    allocate_state(parts.optimizer)
    return data, parts


def _measure(profile: Profile, run: Run, events: EventWriter, on_detail: Callable[[str], None]) -> dict[str, Any]:
    before = card_memory_in_use(find_hardware(profile).device)
    data, parts = build_training(profile, run, on_detail)
    hardware = parts.hardware
    clock = PhaseClock(hardware.device, before)
    if profile.samples_answers:
        on_detail("generating the longest answers, and taking steps on them")
        measurements = run_longest_answers(run, profile, data, parts, events, clock, STEPS)
    else:
        on_detail("taking steps with the longest rows")
        measurements = run_longest(profile, data, parts, Control(), events, STEPS)
    on_detail("evaluating the longest rows")
    eval_batch = evaluate_longest(profile, data, parts)
    return {
        "card": hardware.name,
        **clock.most(),
        **measurements,
        "eval_batch": eval_batch,
        "num_parameters": num_parameters(parts.model),
        "versions": versions(),
    }
