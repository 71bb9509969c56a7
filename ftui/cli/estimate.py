"""`ftui estimate PROFILE`: memory, time, disk and money of a run before it is paid for; `--probe` measures them.

`ftui profile PROFILE`: where the time of a training step goes on this machine, and what could be gained.
"""

import dataclasses
import json
import sys
from collections.abc import Collection, Sequence
from contextlib import closing
from pathlib import Path
from typing import Any, get_args

import msgspec

from ftui import units
from ftui.cli.terminal import LiveOutput
from ftui.errors import UsageError
from ftui.estimate.api import Known, estimate, setup_for
from ftui.estimate.estimate_text import change_lines, estimate_lines, first_line, width, wrapped
from ftui.estimate.fit import Change
from ftui.estimate.measurements import ProbeRecord, read_probes
from ftui.estimate.result import Estimate, Verdict
from ftui.estimate.setup import Parallel
from ftui.estimate.simulation import carry_over, find_changes, with_libraries
from ftui.estimate.simulation import probe as measure
from ftui.estimate.step.floor import find_floors, model_operations
from ftui.estimate.step.step_profile import Kind, StepProfile
from ftui.estimate.step.step_profile_text import profile_lines
from ftui.hardware.detect import find_machine
from ftui.hardware.devices import CARDS, Card, find_card, price_of
from ftui.helper.client import Helper
from ftui.launch.open_run import check_files, locate_run
from ftui.profile.consent import check_reward_code
from ftui.profile.layers import ResolvedProfile
from ftui.profile.schema import Profile
from ftui.profile.tiers import AUTO, choose_tier
from ftui.text import complaint, shown


def print_estimate(
    profile: str, overrides: Sequence[str], tier: str | None, card: str | None, allow: Collection[str],
    quick: bool, probe: bool, fit: bool, parallel: Parallel, as_json: bool,
) -> int:  # fmt: skip
    """`ftui estimate PROFILE`; returns the exit code: 0, whatever the verdict is.

    Args:
        card: the name of one; otherwise the tier's, or what is in this machine.

    Raises:
        FtuiError: the profile, its rows or its model are wrong, or a probe failed.
    """
    _, resolved = locate_run(profile, None, overrides, tier)
    check_files(resolved)
    values = resolved.profile
    asked_card = find_chosen_card(values, card=card, tier=tier, probe=probe)
    if probe:
        _probe(values, asked_card, allow)
    known = Known(probes=read_probes(), parallel=parallel, machine=find_machine().room_for(asked_card))
    with closing(Helper(allow)) as helper, LiveOutput(sys.stderr) as output:  # it starts with the first question
        if not quick:
            at_once = first_line(estimate(values, asked_card, known), asked_card)
            output.draw(at_once) if output.live or as_json else output.print(at_once)
            known = _look_closer(helper, values, asked_card, known, output)
        result = estimate(values, asked_card, known)
        shows_changes = result.memory is not None and (fit or result.verdict in ("tight", "no"))
        changes = find_changes(None if quick else helper, values, asked_card, known) if shows_changes else []
    others = _others(values, asked_card, known)
    if as_json:
        print(json.dumps(_as_json(resolved, result, changes, others), indent=2))
        return 0
    price = price_of(asked_card, values.hardware.price_per_hour)
    lines = [resolved.path.stem, *estimate_lines(result, asked_card, price)]
    if shows_changes:
        lines += ["", *_changes(result, changes)]
    # a card's own tier might say other values
    with_tier = "" if tier is None else f" (with the values of the tier {choose_tier(tier)})"
    lines += ["", *wrapped(f"On other cards{with_tier}: {_in_words(others)}", width())]
    print("\n".join(shown(line) for line in lines))
    return 0


def _look_closer(helper: Helper, profile: Profile, card: Card, known: Known, output: LiveOutput) -> Known:
    """What the training libraries add; why the model cannot be simulated is printed.

    Raises:
        FtuiError: a run would be refused.
    """
    known = with_libraries(helper, profile, card, known)
    if known.refusal is not None:
        raise known.refusal
    if (problem := known.simulation_problem) is not None:
        output.print(complaint(f"Not simulated: {problem.message}", problem.hint))
    return known


def _changes(result: Estimate, changes: Sequence[Change]) -> list[str]:
    does_not = result.verdict in ("tight", "no")
    if not changes:
        as_it_is = "It fits as it is, and nothing larger is known to help."
        return ["Nothing was found that would make it fit." if does_not else as_it_is]
    return ["What would make it fit:" if does_not else "What more would fit:", *change_lines(changes)]


def find_chosen_card(profile: Profile, *, card: str | None = None, tier: str | None = None, probe: bool) -> Card:
    """The card that is asked about: the named one, the tier's, else what the profile would run on here.

    Raises:
        UsageError: there is none of that name; or it is not in this machine, and is to be probed.
    """
    machine = find_machine()
    own = machine.cpu.card if profile.hardware.device == "cpu" else machine.card
    if probe:
        if card not in (None, own.name):
            what = f"--probe measures what is in this machine, {own.title}: it can say nothing of {card}."
            raise UsageError(what, hint="Leave --card out.")
        return own
    name = card or tier
    if name is None or name == AUTO:
        return own
    here = {machine.cpu.card.name: machine.cpu.card, **{found.card.name: found.card for found in machine.cards}}
    known = find_card(name)
    return here.get(known.name, known)  # what is in this machine has its real memory


def _probe(profile: Profile, card: Card, allow: Collection[str]) -> ProbeRecord:
    with LiveOutput(sys.stderr) as lines:
        return measure(profile, card, lambda text: lines.draw(f"probe: {text} ..."), allow)


def probe_lines(profile: Profile, allow: Collection[str]) -> list[str]:
    """Measure a profile on this machine's device; what came of it in words.

    Raises:
        FtuiError: it does not run here, or does not fit.
    """
    record = _probe(profile, find_chosen_card(profile, probe=True), allow)
    speed = record.num_tokens / record.step_seconds
    lines = [f"measured: {units.size(record.process)} at the peak, {speed:,.0f} tokens/s with the longest rows"]
    phases = [
        f"{name} {units.duration(phase.seconds)}" + (f", {units.size(phase.process)}" if phase.process else "")
        for name, phase in record.rollout.items()
        if name != "log_probs"
    ]
    return [*lines, *([f"of the longest answers: {'; '.join(phases)}"] if phases else [])]


def _others(profile: Profile, card: Card, known: Known) -> dict[str, Estimate]:
    """The same profile on every other kind of card with the same counts: simulated where one path is the other's."""
    estimates = {}
    for other in CARDS:
        if other.name != card.name:
            simulated = None if known.simulated is None else carry_over(known.simulated, card, other)
            estimates[other.name] = estimate(
                profile, other, dataclasses.replace(known, simulated=simulated, machine=None)
            )
    return estimates


def _in_words(others: dict[str, Estimate]) -> str:
    names: dict[str, list[str]] = {}
    for name, result in others.items():
        names.setdefault(result.verdict, []).append(name)
    return "; ".join(f"{verdict}: {', '.join(names[verdict])}" for verdict in get_args(Verdict) if verdict in names)


def _as_json(
    resolved: ResolvedProfile, result: Estimate, changes: Sequence[Change], others: dict[str, Estimate]
) -> dict[str, Any]:
    return {
        "profile": str(resolved.path),
        **dataclasses.asdict(result),
        "changes": [
            dataclasses.asdict(change) | {"values": {".".join(key): value for key, value in change.values.items()}}
            for change in changes
        ],
        "other_cards": {name: one.verdict for name, one in others.items()},
    }


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
    check_reward_code(values, allow, is_new=False)
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
