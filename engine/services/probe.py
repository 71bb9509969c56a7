"""`python -P -m ftui.engine.services.probe`: a few steps on the longest rows and one evaluation batch; keeps nothing.

The profile (TOML, whole paths) is a JSON text on the first line of its input. It ends with its input, so that it does
not outlive whoever asked. It prints lines of JSON: what it is doing, and last what it measured or a problem. It runs
the engine's own rooms, from preparation to update, so that what it measures is what a run will take.
"""

import json
import os
import shutil
import sys
import tempfile
import threading
from pathlib import Path
from typing import Any

from ..system.environment import settle_environment

settle_environment()

import msgspec  # noqa: E402

from ftui.errors import FtuiError  # noqa: E402

STEPS = 3  # the first one pays for what is done once


def main() -> int:
    output = os.dup(1)
    os.dup2(2, 1)  # what libraries print is no answer
    text = json.loads(sys.stdin.buffer.readline())
    folder = Path(tempfile.mkdtemp(prefix="ftui-probe-"))
    threading.Thread(target=_end_with_input, args=(folder,), daemon=True).start()

    def say(**told: Any) -> None:
        os.write(output, msgspec.json.encode(told) + b"\n")

    try:
        say(measured=measure(text, folder, lambda detail: say(detail=detail)))
    except (FtuiError, RuntimeError, MemoryError, OSError) as error:  # memory that runs out is an answer too
        from ..__main__ import as_ftui_error

        known = as_ftui_error(error)
        if known is None:
            raise
        say(problem={"message": known.message, "hint": known.hint, "exit_code": known.exit_code})
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    return 0


def _end_with_input(folder: Path) -> None:
    sys.stdin.buffer.read()
    shutil.rmtree(folder, ignore_errors=True)
    os._exit(1)


def measure(text: str, folder: Path, report: Any) -> dict[str, Any]:
    """What a run of the profile takes on this device, in one process of it.

    Raises:
        FtuiError: it cannot run here, or does not fit in micro-batches of that size.
    """
    from ftui.runs.run_folder import Run

    from ..runtime.control_flags import Control
    from ..runtime.event_writer import EventWriter
    from .profile_text import given_profile

    profile = given_profile(text, ["hardware.num_processes=1"])
    run = Run(folder / "probe")
    run.folder.mkdir()
    return _measured(profile, run, EventWriter(run, attempt=1, token="", is_silent=True), Control(), report)


def _measured(profile: Any, run: Any, events: Any, control: Any, report: Any) -> dict[str, Any]:
    report("loading the libraries")
    from ftui.system.user_folders import cache_folder

    from ..build import assemble, build_model
    from ..distributed.process_group import ProcessGroup
    from ..models.performance import settle_speed
    from ..models.quantization import num_parameters
    from ..optim.optimizer import allocate_state
    from ..system.device import find_hardware
    from ..system.environment import versions
    from ..system.rng import seed_everything
    from ..training.peak_memory import evaluate_longest, peaks, run_longest, used_on_card
    from ..training.prepare import prepare

    hardware = find_hardware(profile)
    settle_speed(profile.train, hardware)
    before = used_on_card(hardware.device)
    cache = cache_folder(run.folder / "cache")
    report("reading the rows")
    data = prepare(profile, cache, report)
    report("loading the model")
    seed_everything(profile.train.seed)
    parts = assemble(profile, data, build_model(profile, data, hardware), hardware, ProcessGroup())
    allocate_state(parts.optimizer)
    report("taking steps with the longest rows")
    measurements = run_longest(profile, data, parts, control, events, STEPS)
    report("evaluating the longest rows")
    eval_batch = evaluate_longest(profile, data, parts)
    return {
        "card": hardware.name,
        **peaks(hardware.device, before),
        **measurements,
        "eval_batch": eval_batch,
        "num_parameters": num_parameters(parts.model),
        "versions": versions(),
    }


if __name__ == "__main__":
    raise SystemExit(main())
