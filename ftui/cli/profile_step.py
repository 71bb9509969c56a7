"""`ftui profile PROFILE`: where the time of a training step goes on this machine, and what could be gained."""

import json
import sys
from collections.abc import Collection, Sequence
from contextlib import closing
from pathlib import Path

import msgspec

from ftui.cli.estimate import find_chosen_card
from ftui.cli.terminal import LiveOutput
from ftui.errors import UsageError
from ftui.estimate.api import setup_for
from ftui.estimate.floor import find_floors, model_operations
from ftui.estimate.step_profile import Kind, StepProfile
from ftui.estimate.step_profile_text import profile_lines
from ftui.helper.client import Helper
from ftui.launch.open_run import check_files, locate_run
from ftui.text import shown


def print_step_profile(
    profile: str, overrides: Sequence[str], tier: str | None, allow: Collection[str],
    num_steps: int, trace: Path | None, as_json: bool,
) -> int:  # fmt: skip
    """`ftui profile PROFILE`: take steps in a process of their own, keep nothing but the trace.

    Raises:
        FtuiError: the profile, its rows or its model are wrong, it does not fit, or a file cannot be written.
        UsageError: there is a file at `trace`, or its folder is missing.
    """
    if num_steps < 1:
        raise UsageError(f"--steps {num_steps}: fewer than one.", hint="--steps 3")
    if trace is not None:
        _check_place(trace)
    _, resolved = locate_run(profile, None, overrides, tier)
    check_files(resolved)
    values = resolved.profile
    card = find_chosen_card(values, probe=True)
    with closing(Helper(allow)) as helper, LiveOutput(sys.stderr) as lines:  # a process of its own: it takes the device
        lines.draw("getting ready (some seconds) ...")
        answer = helper.ask(
            "profile_step", on_detail=lambda text: lines.draw(f"{text} ..."), profile=values, num_steps=num_steps,
            trace=None if trace is None else str(trace.absolute()),
        )  # fmt: skip
    step = msgspec.convert(answer, StepProfile)
    if card.tflops is not None and step.precision != "fp32":
        step = msgspec.structs.replace(step, peak_rate=card.tflops * 1e12)
    setup = setup_for(values, card)
    floors: dict[Kind, float] = {}
    operations = None
    if not isinstance(setup, str):
        floors, operations = find_floors(setup, step), model_operations(setup, step)
    if as_json:
        told = {"profile": str(resolved.path), "step": step, "floors": floors, "model_operations": operations}
        print(json.dumps(msgspec.to_builtins(told), indent=2))
        return 0
    text = profile_lines(resolved.path.stem, step, floors, operations)
    if isinstance(setup, str):
        text.append(f"No floors: {setup}")
    print("\n".join(shown(line) for line in text))
    return 0


def _check_place(path: Path) -> None:
    if path.exists():
        raise UsageError(f"There is a file {path} already.", hint="Give another name with --trace.")
    if not path.absolute().parent.is_dir():
        raise UsageError(f"There is no folder {path.absolute().parent}.")
