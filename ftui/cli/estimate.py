"""`ftui estimate PROFILE`: memory, time, disk and money of a run before it is paid for; `--probe` measures them."""

import dataclasses
import json
import sys
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass
from typing import Any, get_args

from ftui import units
from ftui.errors import UsageError
from ftui.estimate.api import Known, estimate, setup_for, suggestions
from ftui.estimate.estimate_text import change_lines, estimate_lines, width, wrapped
from ftui.estimate.fit import Change
from ftui.estimate.measurements import ProbeRecord, read_probes
from ftui.estimate.result import Estimate, Verdict
from ftui.estimate.run_probe import probe
from ftui.estimate.setup import Parallel, TrainingSetup
from ftui.estimate.simulation import carried_over, with_libraries
from ftui.hardware.detect import find_machine
from ftui.hardware.devices import CARDS, Card, find_card, price_of
from ftui.helper.client import Helper
from ftui.profile.layers import ResolvedProfile
from ftui.profile.schema import Profile
from ftui.profile.tiers import AUTO, choose_tier
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
    allow: Collection[str] = ()


def print_estimate(resolved: ResolvedProfile, question: Question) -> int:
    """Answer it; returns the exit code: 0, whatever the verdict is.

    Raises:
        FtuiError: the profile, its rows or its model are wrong, or a probe failed.
    """
    profile, card = resolved.profile, chosen_card(question, resolved.profile)
    if question.probe:
        _probe(profile, card, question.allow)
    known = Known(probes=read_probes(), parallel=question.parallel)
    if not question.quick:
        with closing(Helper(question.allow)) as helper:
            known = with_libraries(helper, profile, card, known)
        if (problem := known.simulation_problem) is not None:
            print(complaint(f"Not simulated: {problem.message}", problem.hint), file=sys.stderr)
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
    known = find_card(name)
    return here.get(known.name, known)  # what is in this machine has its real memory


def _probe(profile: Profile, card: Card, allow: Collection[str]) -> ProbeRecord:
    with _waiting() as say:
        return probe(profile, card, say, allow)


def probe_lines(profile: Profile, allow: Collection[str]) -> list[str]:
    """Measure a profile on this machine's device; what came of it in words.

    Raises:
        FtuiError: it does not run here, or does not fit.
    """
    found = _probe(profile, chosen_card(Question(probe=True), profile), allow)
    speed = found.num_tokens / found.step_seconds
    return [f"measured: {units.size(found.process)} at the peak, {speed:,.0f} tokens/s with the longest rows"]


@contextmanager
def _waiting() -> Iterator[Callable[[str], None]]:
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
