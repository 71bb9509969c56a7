"""`ftui estimate PROFILE`: memory, time, disk and money of a run before it is paid for; `--probe` measures them."""

import dataclasses
import json
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass
from typing import Any, get_args

import msgspec

from ftui import units
from ftui.cli.dry_run import DryRun, Problem
from ftui.errors import DiskError, FtuiError, HardwareError, UsageError, error_with
from ftui.estimate import closed_form, timing
from ftui.estimate.api import Known, estimate, setup_for, suggestions
from ftui.estimate.estimate_text import change_lines, estimate_lines, width, wrapped
from ftui.estimate.fit import Change
from ftui.estimate.measurements import ProbeRecord, describe_setting, describe_subject, read_probes, save_probe
from ftui.estimate.result import Estimate, Memory, Verdict
from ftui.estimate.setup import Parallel, TrainingSetup
from ftui.hardware.detect import find_machine
from ftui.hardware.devices import CARDS, Card, card_named, price_of
from ftui.helper.client import Helper
from ftui.profile.layers import ResolvedProfile
from ftui.profile.schema import Profile
from ftui.profile.serialize import to_toml
from ftui.profile.tiers import AUTO, choose_tier
from ftui.supervisor.process_tree import clean_environment
from ftui.text import complaint, shown


@dataclass(frozen=True)
class Question:
    """What the command line asks. `card` is the name of one, else the tier's, else what is in this machine."""

    tier: str | None = None
    card: str | None = None
    quick: bool = False
    probe: bool = False
    fit: bool = False
    parallel: Parallel = "ddp"
    as_json: bool = False


def print_estimate(resolved: ResolvedProfile, question: Question) -> int:
    """Answer it; returns the exit code: 0, whatever the verdict is.

    Raises:
        FtuiError: the profile, its rows or its model are wrong, or a probe failed.
    """
    profile, card = resolved.profile, chosen_card(question, resolved.profile)
    if question.probe:
        probed(profile, card)
    known = Known(probes=read_probes(), parallel=question.parallel)
    if not question.quick:
        known = learned(profile, card, known)
    told = estimate(profile, card, known)
    setup = setup_for(profile, card, known)
    wanted = isinstance(setup, TrainingSetup) and (question.fit or told.verdict in ("tight", "no"))
    changes = suggestions(setup, known) if wanted and isinstance(setup, TrainingSetup) else []
    others = _others(profile, card, known)
    if question.as_json:
        print(json.dumps(_as_json(resolved, told, changes, others), indent=2))
        return 0
    lines = [resolved.path.stem, *estimate_lines(told, card, price_of(card, profile.hardware.price_per_hour))]
    if wanted:
        lines += ["", *(_changes(told, changes))]
    lines += ["", *wrapped(f"On other cards{_with_tier(question)}: {_in_words(others)}", width())]
    print("\n".join(shown(line) for line in lines))
    return 0


def _with_tier(question: Question) -> str:
    """What lies below the profile there too: a card's own tier might say other values."""
    return "" if question.tier is None else f" (with the values of the tier {choose_tier(question.tier)})"


def _changes(told: Estimate, changes: Sequence[Change]) -> list[str]:
    does_not = told.verdict in ("tight", "no")
    if not changes:
        return ["Nothing was found that would make it fit." if does_not else "Nothing larger would fit."]
    return ["What would make it fit:" if does_not else "What more would fit:", *change_lines(changes)]


def chosen_card(question: Question, profile: Profile) -> Card:
    """The card that is asked about: the named one, the tier's, else what the profile would run on here.

    Raises:
        UsageError: there is none of that name; or it is not in this machine, and is to be probed.
    """
    machine = find_machine()
    own = machine.cpu.card if profile.hardware.device == "cpu" else machine.card
    if question.probe:
        if question.card not in (None, own.name):
            raise UsageError(
                f"--probe measures what is in this machine, {own.title}: it can say nothing of {question.card}.",
                hint="Leave --card out.",
            )
        return own
    name = question.card or question.tier
    if name is None or name == AUTO:
        return own
    here = {machine.cpu.card.name: machine.cpu.card, **{found.card.name: found.card for found in machine.cards}}
    known = card_named(name)
    return here.get(known.name, known)  # what is in this machine has its real memory


def learned(profile: Profile, card: Card, known: Known) -> Known:
    """What the training libraries say: the rows' counts, and the memory of the real model on the meta device.

    What they cannot say (a model that is not here yet, rows that are wrong) is left out, and told in the estimate.
    """
    with closing(Helper()) as helper:
        counts = counted(helper, profile)
        longest = counts.longest if counts.error is None else None
        try:
            simulated = simulated_by(helper, profile, card, longest) if known.parallel == "ddp" else None
        except FtuiError as error:
            print(complaint(f"Not simulated: {error.message}", error.hint), file=sys.stderr)
            simulated = None
    return dataclasses.replace(known, counts=counts, simulated=simulated)


def counted(helper: Helper, profile: Profile) -> DryRun:
    """The dry run's counts, or the problem in place of them."""
    try:
        return msgspec.convert(helper.ask("count", profile=to_toml(profile)), DryRun)
    except FtuiError as error:
        return DryRun(error=Problem(error.message, error.hint, error.exit_code))


def simulated_by(helper: Helper, profile: Profile, card: Card, longest: int | None, *, full: bool = True) -> Memory:
    """The simulation's answer.

    Raises:
        FtuiError: the model's files are missing, or the helper died.
    """
    told = helper.ask(
        "simulate", profile=to_toml(profile), card=dataclasses.asdict(card), longest=longest, full_depth=full
    )
    return msgspec.convert(told, Memory)


def probed(profile: Profile, card: Card) -> ProbeRecord:
    """Take steps and an evaluation with the longest rows on `card`, which is this machine's; what came is remembered.

    Raises:
        FtuiError: it does not run here, or does not fit.
    """
    with _waiting() as say:
        told = _measured(profile, say)
    counts = DryRun(longest=told["longest"], num_sequences=told["micro_batch"], num_eval_rows=told["eval_batch"])
    setup = setup_for(profile, card, Known(counts=counts))
    if isinstance(setup, str):
        raise FtuiError(f"It was measured, but cannot be kept for later estimates: {setup}")
    if told["process"] is None:
        raise HardwareError("The driver hides how much memory is used here: nothing could be measured.")
    setup = dataclasses.replace(setup, num_processes=1)
    found = ProbeRecord(
        what=describe_subject(setup), setting=describe_setting(setup), estimated=closed_form.memory(setup).process,
        allocated=told["allocated"], reserved=told["reserved"], process=told["process"],
        step_seconds=told["step_seconds"], num_tokens=told["num_tokens"], versions=told["versions"], time=time.time(),
        estimated_seconds=timing.step_seconds(dataclasses.replace(setup, accumulation=1), told["num_tokens"]),
    )  # fmt: skip
    try:
        save_probe(found)
    except OSError as error:
        raise DiskError(f"What was measured could not be kept: {error}.") from error
    return found


def probe_lines(profile: Profile) -> list[str]:
    """Measure a profile on this machine's device; what came of it in words.

    Raises:
        FtuiError: it does not run here, or does not fit.
    """
    found = probed(profile, chosen_card(Question(probe=True), profile))
    speed = found.num_tokens / found.step_seconds
    return [f"measured: {units.size(found.process)} at the peak, {speed:,.0f} tokens/s with the longest rows"]


def _measured(profile: Profile, say: Any) -> dict[str, Any]:
    """The probe's answer. It ends when its input does: with this process, however that ends."""
    with tempfile.TemporaryFile() as errors:
        process = subprocess.Popen(
            [sys.executable, "-P", "-m", "ftui.engine.services.probe"],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=errors, env=clean_environment(),
        )  # fmt: skip
        assert process.stdin is not None and process.stdout is not None, "both are pipes"
        try:
            process.stdin.write(json.dumps(to_toml(profile)).encode() + b"\n")
            process.stdin.flush()
            for line in process.stdout:
                told = json.loads(line)
                if "detail" in told:
                    say(told["detail"])
                if (problem := told.get("problem")) is not None:
                    raise error_with(problem["exit_code"], problem["message"], problem["hint"])
                if (measured := told.get("measured")) is not None:
                    return dict(measured)
        finally:
            process.kill()
            process.wait()
            process.stdin.close()
            process.stdout.close()
        errors.seek(0)
        tail = errors.read().decode(errors="backslashreplace").rstrip().split("\n")[-5:]
        raise FtuiError(f"The probe ended with {process.returncode}:\n" + "\n".join(tail))


@contextmanager
def _waiting() -> Iterator[Any]:
    """A line on the terminal that says what is being done, and is gone at the end."""
    live = sys.stderr.isatty()

    def say(text: str) -> None:
        if live:
            print(f"\r\x1b[Kprobe: {shown(text)} ...", end="", file=sys.stderr, flush=True)

    try:
        yield say
    finally:
        if live:
            print("\r\x1b[K", end="", file=sys.stderr, flush=True)


def _others(profile: Profile, card: Card, known: Known) -> dict[str, Estimate]:
    """The same profile on every other kind of card with the same counts: simulated where one path is the other's."""
    found = {}
    for one in CARDS:
        if one.name != card.name:
            simulated = None if known.simulated is None else carried_over(known.simulated, card, one)
            found[one.name] = estimate(profile, one, dataclasses.replace(known, simulated=simulated))
    return found


def carried_over(simulated: Memory, card: Card, other: Card) -> Memory | None:
    """A simulation for one NVIDIA card as one for another whose kernels are the same; `None` where they are not."""
    if (card.kind, other.kind) != ("cuda", "cuda") or _kernels(card) != _kernels(other):
        return None
    more = other.context - card.context
    return dataclasses.replace(
        simulated,
        process=simulated.process + more, low=simulated.low + more, high=simulated.high + more,
        breakdown={**simulated.breakdown, "context": simulated.breakdown["context"] + more},
    )  # fmt: skip


def _kernels(card: Card) -> tuple[bool, bool]:
    return card.has_bf16, card.capability in (90, 100, 103)  # cuDNN's attention comes first there


def _in_words(others: dict[str, Estimate]) -> str:
    names: dict[str, list[str]] = {}
    for name, told in others.items():
        names.setdefault(told.verdict, []).append(name)
    return "; ".join(f"{verdict}: {', '.join(names[verdict])}" for verdict in get_args(Verdict) if verdict in names)


def _as_json(
    resolved: ResolvedProfile, told: Estimate, changes: Sequence[Change], others: dict[str, Estimate]
) -> dict[str, Any]:
    return {
        "profile": str(resolved.path),
        **dataclasses.asdict(told),
        "changes": [
            dataclasses.asdict(change) | {"values": {".".join(key): value for key, value in change.values.items()}}
            for change in changes
        ],
        "other_cards": {name: one.verdict for name, one in others.items()},
    }
