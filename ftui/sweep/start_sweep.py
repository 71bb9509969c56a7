"""What is looked at before a sweep begins, and its folder: all that can be wrong is said while somebody is there."""

import os
from collections.abc import Collection, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from ftui.errors import HardwareError, ProfileError, UsageError
from ftui.estimate.api import Known, estimate
from ftui.estimate.measurements import read_probes
from ftui.estimate.result import Estimate
from ftui.estimate.simulation import with_libraries
from ftui.hardware.detect import find_machine
from ftui.hardware.devices import Card, price_of
from ftui.helper.checks import find_refusal
from ftui.helper.client import Helper
from ftui.launch.check_start import check_may_start
from ftui.launch.open_run import check_files
from ftui.profile.checks.messages import profile_error
from ftui.profile.layers import ResolvedProfile, examine, file_layer, override_layer, resolve
from ftui.profile.origins import Key, ProfileFault
from ftui.profile.presets import find_profile
from ftui.profile.schema import Profile
from ftui.profile.sections.around.hooks import HooksSection
from ftui.profile.sections.around.notify import NotifySection
from ftui.profile.serialize import to_toml
from ftui.profile.toml_reader import BOM, read_text
from ftui.runs.run_folder import runs_root
from ftui.sweep.executors.executor import make_executor
from ftui.sweep.executors.run_settings import RunSettings, card_of, settings_of
from ftui.sweep.forecast import Forecast, forecast
from ftui.sweep.searchable import refusal_of, whole_point
from ftui.sweep.space import corners, extremes
from ftui.sweep.sweep_files import SWEEPS, SweepBegan, SweepContinued, SweepFiles, Trial
from ftui.sweep.sweep_plan import PlanReader, SweepPlan, plan_of
from ftui.sweep.trial_runs import overrides_of
from ftui.system.files import make_private_folder, replace_file
from ftui.system.user_folders import note_root
from ftui.text import shown, toml_value

MOST_ESTIMATED = 64  # ends of the space whose memory is looked at, 10 ms each


@dataclass(frozen=True)
class SweepCandidate:
    """A sweep that may begin. `largest`: the values of the trial that needs the most memory, and what it needs."""

    plan: SweepPlan
    text: str
    profile: Profile
    card: Card
    largest: dict[str, object]
    estimate: Estimate
    forecast: Forecast
    warnings: Sequence[str] = ()
    settings: RunSettings = field(default_factory=RunSettings)


def read_sweep(path: Path) -> tuple[SweepPlan, str, ResolvedProfile]:
    """The plan of a file, its text, and the profile that it names, checked together at every end of the space.

    Raises:
        ProfileError: either is wrong, or they do not go together: file, line, key and fix.
    """
    text = read_text(path).removeprefix(BOM)
    plan, reader = plan_of(text, path), PlanReader(text, path)
    resolved = _resolve_profile(plan, path, reader)
    _check_keys(plan, resolved.profile, reader)
    _check_profile(plan, resolved.profile, reader)
    if not reader.faults:
        _check_corners(plan, resolved, reader)
    if reader.faults:
        raise profile_error(reader.faults, path)
    return plan, text, resolved


def _resolve_profile(plan: SweepPlan, path: Path, reader: PlanReader) -> ResolvedProfile:
    beside = path.absolute().parent / plan.profile
    try:
        return resolve(beside if beside.is_file() else find_profile(plan.profile))
    except ProfileError as error:
        if os.path.exists(beside):
            raise
        raise ProfileError(f"{reader.origin(('profile',))}: profile: {error.message}", hint=error.hint) from error


def _place_of(plan: SweepPlan, key: str) -> Key:
    """Where a dotted key stands in the file, whichever way it is written."""
    return ("search", "derived", key) if key in plan.derived else ("search", key)


def _check_keys(plan: SweepPlan, profile: Profile, reader: PlanReader) -> None:
    searched = [dimension.key for dimension in plan.space]
    for key in (*searched, *plan.derived):
        if (why := refusal_of(key, profile)) is not None:
            reader.fault(_place_of(plan, key), *why)
        if key in plan.derived and key in searched:
            reader.fault(_place_of(plan, key), "is searched and follows from others", "Leave one of both out.")


def _check_profile(plan: SweepPlan, profile: Profile, reader: PlanReader) -> None:
    """What of a profile cannot be searched in, as faults of the key that names it."""
    place: Key = ("profile",)
    data, section = profile.data, profile.eval
    if data.eval is None and data.eval_fraction is None and data.eval_num_rows is None:
        fix = "Set data.eval_fraction = 0.05, or data.eval, in the profile."
        reader.fault(place, "it has no rows to evaluate on, and nothing to compare trials by", fix)
    if plan.rungs and section.early_stopping_patience is not None:
        fix = 'Set eval.early_stopping_patience = "none": the scheduler ends trials.'
        reader.fault(place, "early stopping would end trials before their rung", fix)
    if (profile.hardware.nodes or 1) > 1:
        reader.fault(place, "hardware.nodes > 1: each trial has the cards of one machine", "Set hardware.nodes = 1.")


def _check_corners(plan: SweepPlan, resolved: ResolvedProfile, reader: PlanReader) -> None:
    """Resolve the profile with each value of a list and both ends of each range."""
    seen = set()
    for point in corners(plan.space):
        try:
            values = whole_point(plan, resolved.profile, point)
        except ValueError as error:
            key = next(iter(plan.derived))
            reader.fault(_place_of(plan, key), str(error), _usual())
            return
        overrides = override_layer(f"{key}={toml_value(value)}" for key, value in values.items())
        for problem in examine([file_layer(resolved.path), overrides], resolved.path).problems:
            fault = _fault_of(plan, values, problem, reader)
            if (fault.key, fault.message) not in seen:
                seen.add((fault.key, fault.message))
                reader.faults.append(fault)


def _fault_of(plan: SweepPlan, values: dict[str, object], problem: ProfileFault, reader: PlanReader) -> ProfileFault:
    dotted = [".".join(key) for key in (problem.key, *problem.others)]
    key = next((one for one in dotted if one in values), next(iter(values)))
    given = ", ".join(f"{one} = {toml_value(values[one])}" for one in dotted if one in values)
    about = "" if dotted[0] == key else f"{dotted[0]}: "
    place = _place_of(plan, key)
    return ProfileFault(place, reader.origin(place), f"with {given}, {about}{problem.message}", problem.fix)


def _usual() -> str:
    from ftui.sweep.derived_values import USUAL

    return USUAL


def find_sweep_candidate(
    helper: Helper, path: Path, allow: Collection[str] = (), executor: str | None = None
) -> SweepCandidate:
    """Look at all that a sweep, or one of its trials, would be refused for later. `executor`: another than in
    the file.

    Raises:
        FtuiError: it would be, or its largest trial needs more than this machine, or a node, has, or its budget is
            below one trial.
    """
    plan, text, resolved = read_sweep(path)
    check_files(resolved)
    check_may_start(_of_trials(resolved.profile), allow)
    profile = resolved.profile
    settings = settings_of(plan.run, executor)
    _, card = card_of(settings, profile, find_machine())
    largest, values = _largest_trial(plan, resolved, card)
    if (refusal := find_refusal(helper, largest)) is not None:
        raise refusal
    known = with_libraries(helper, largest, card, Known(probes=read_probes()))
    if known.refusal is not None:
        raise known.refusal
    result = estimate(largest, card, known)
    if result.verdict == "no":
        words = ", ".join(f"{key} = {toml_value(value)}" for key, value in values.items())
        raise HardwareError(
            f"The trial with {words} does not fit {card.title}: {result.impossible or 'it needs more memory'}.",
            hint="Leave the largest values out, or see `ftui estimate --fit` with the profile.",
        )
    price = price_of(card, profile.hardware.price_per_hour)
    cost = forecast(plan, result, price, settings.num_paid(profile))
    check_budget(plan, cost, PlanReader(text, path), price)
    return SweepCandidate(plan, text, profile, card, values, result, cost, result.warnings, settings)


def _largest_trial(plan: SweepPlan, resolved: ResolvedProfile, card: Card) -> tuple[Profile, dict[str, object]]:
    """The profile of the end of the space that needs the most memory in closed form, and its values."""
    found = []
    for point in extremes(plan.space, MOST_ESTIMATED):
        try:
            values = whole_point(plan, resolved.profile, point)
            trial = Trial(0, values, {}, 0, None)
            profile = resolve(resolved.path, overrides=overrides_of(plan, trial, len(plan.rungs) - 1)).profile
        except (ProfileError, ValueError):  # two ends that do not go together: such a trial ends at once
            continue
        memory = estimate(profile, card, Known(probes=read_probes())).memory
        found.append((0 if memory is None else memory.high, profile, values))
    _, profile, values = max(found, key=lambda one: one[0])
    return profile, values


def check_budget(plan: SweepPlan, cost: Forecast, reader: PlanReader, price: float | None) -> None:
    """Raises ProfileError where not even the low end of the forecast lets one trial finish within the budget.

    So does an amount of money where nobody knows what the card costs: it would never be spent.
    """
    if plan.money is not None and price is None:
        key = ("budget", "money")
        fault = ProfileFault(
            key, reader.origin(key), "nobody has said what an hour of this card costs",
            "Set hardware.price_per_hour in the profile, or write hours.",
        )  # fmt: skip
        raise profile_error([fault], Path(reader.origin(key).layer))
    for name, budget, one in (("hours", plan.hours, cost.trial_hours), ("money", plan.money, cost.trial_dollars)):
        if budget is not None and one is not None and one[0] > budget:
            key = ("budget", name)
            what = f"is {budget:g}, and one trial takes {one[0]:.2g} to {one[1]:.2g} here"
            fault = ProfileFault(key, reader.origin(key), what, f"Write {one[1]:.2g} or more, or a lower last rung.")
            raise profile_error([fault], Path(reader.origin(key).layer))


def create_sweep(candidate: SweepCandidate) -> tuple[SweepFiles, bool]:
    """Make the sweep's folder, or find it there; whether it is new. With another [budget] or [repeat] an old one goes
    on.

    Raises:
        UsageError: a sweep of that name searches something else, or a run has the name of a trial.
    """
    plan = candidate.plan
    files = SweepFiles(runs_root() / SWEEPS / plan.name)
    profile = _of_trials(candidate.profile)
    if files.plan_file.exists():
        _continue_sweep(files, candidate, profile)
        return files, False
    first = files.run_of(0)
    if first.facts.exists():
        raise UsageError(
            f"There is a run named {shown(first.name)} already.", hint='Give the sweep another name = "..."'
        )
    make_executor(files, candidate.settings, None).check(profile)
    make_private_folder(files.folder)
    replace_file(files.profile, to_toml(profile).encode(), durable=True)
    replace_file(files.plan_file, candidate.text.encode(), durable=True)
    with files.changing() as pen:
        pen.write(_began(candidate))
    note_root(files.root)
    return files, True


def _began(candidate: SweepCandidate) -> SweepBegan:
    executor = candidate.settings.executor
    return SweepBegan(
        visible=os.environ.get("CUDA_VISIBLE_DEVICES"),
        executor="" if executor == candidate.plan.run.executor else executor,
    )


def _continue_sweep(files: SweepFiles, candidate: SweepCandidate, profile: Profile) -> None:
    before, now = files.read_plan(), candidate.plan

    def without_budget(plan: SweepPlan) -> SweepPlan:
        plan = replace(plan, trials=0, hours=None, money=None, repeat_top=1, seeds=1, profile="", parallel=None)
        return replace(plan, run=RunSettings())

    if without_budget(before) != without_budget(now) or to_toml(profile) != files.profile.read_text():
        what = "another profile" if without_budget(before) == without_budget(now) else "another search"
        hint = f'Give this one another name = "...". `ftui sweep results {files.name}` shows what is there.'
        raise UsageError(f"There is a sweep named {files.name} of {what} already.", hint=hint)
    began, state = _began(candidate), files.read()
    if settings_of(before.run, state.executor).executor != candidate.settings.executor:
        make_executor(files, candidate.settings, None).check(profile)
    replace_file(files.plan_file, candidate.text.encode(), durable=True)
    with files.changing() as pen:
        if pen.state.executor != began.executor:
            pen.write(began)
        if before != now and pen.state.ended:
            pen.write(SweepContinued())


def _of_trials(profile: Profile) -> Profile:
    """Trials are not pushed (the winner is, by hand), run no hooks and tell nobody."""
    changes = {
        "push": profile.push.model_copy(update={"to": None}), "run": profile.run.model_copy(update={"name": None}),
        "hooks": HooksSection(), "notify": NotifySection(),
    }  # fmt: skip
    return profile.model_copy(update=changes)
