"""sweep.toml as one value, read strictly: all that is wrong is named at once, with line, key and fix."""

import itertools
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from ftui.errors import UsageError
from ftui.profile.checks.messages import profile_error
from ftui.profile.origins import Key, ProfileFault, ValueOrigin
from ftui.profile.toml_edit.statements import line_numbers, nearest_line
from ftui.profile.toml_reader import BOM, read_text, read_toml
from ftui.runs.run_folder import check_name, name_from
from ftui.sweep.executors.run_settings import RUN_KEYS, RunSettings, read_run_settings
from ftui.sweep.samplers import SAMPLERS, check_sampler, grid_size
from ftui.sweep.space import Dimension, ValueList, ValueRange
from ftui.text import did_you_mean, shown

SCHEDULERS = ("none", "asha", "hyperband")
MOST_TRIALS = 10_000
KEYS: Mapping[str, tuple[str, ...]] = {
    "": ("profile", "name", "search", "method", "budget", "repeat", "run"),
    "method": ("sampler", "scheduler", "rungs", "eta", "finish", "seed", "parallel"),
    "budget": ("trials", "hours", "money"),
    "repeat": ("top", "seeds"),
    "run": RUN_KEYS,
}
RANGE_KEYS = ("low", "high", "log", "step")


@dataclass(frozen=True)
class SweepPlan:
    """What a sweep is to do.

    Attributes:
        space, derived: keys that are drawn, and rules for keys that follow from them (ftui/sweep/derived_values.py).
        rungs: steps at which trials are compared, the last of them the horizon; empty: one rung, at the profile's end.
        trials: how many; hours, money: of all trials together, `None`: as much as they take.
        finish: so many of the best are trained to the last rung, also where the rule alone would not send them there.
        parallel: trials at a time, `None`: one a card.
        repeat_top, seeds: so many of the best are trained with so many seeds each, their own among them.
        run: where trials run, and what each asks for.
    """

    name: str
    profile: str
    space: tuple[Dimension, ...]
    derived: Mapping[str, str] = field(default_factory=dict)
    sampler: str = "tpe"
    scheduler: str = "asha"
    rungs: tuple[int, ...] = ()
    eta: int = 3
    finish: int = 2
    seed: int = 0
    parallel: int | None = None
    trials: int = 1
    hours: float | None = None
    money: float | None = None
    repeat_top: int = 1
    seeds: int = 1
    run: RunSettings = field(default_factory=RunSettings)


class PlanReader:
    """Reads one file; collects what is wrong with it."""

    def __init__(self, text: str, path: Path) -> None:
        self.table = read_toml(text, path)
        self.faults: list[ProfileFault] = []
        self._path, self._lines = path, line_numbers(text)

    def origin(self, key: Key) -> ValueOrigin:
        """Where a key stands."""
        return ValueOrigin(str(self._path), nearest_line(self._lines, key))

    def fault(self, key: Key, message: str, fix: str = "") -> None:
        """Note what is wrong with a key."""
        self.faults.append(ProfileFault(key, self.origin(key), message, fix))

    def section(self, name: str) -> dict[str, Any]:
        """A table of known keys; empty where it is missing."""
        table = self.table.get(name, {})
        if not isinstance(table, dict):
            self.fault((name,), f"is a table, not {table!r}", f"Write [{name}].")
            return {}
        self.check_keys(table, KEYS[name], (name,))
        return table

    def check_keys(self, table: Mapping[str, Any], known: tuple[str, ...], above: Key = ()) -> None:
        """Name keys that there are not."""
        for key in table:
            if key not in known:
                fix = did_you_mean(key, known).strip() or f"The keys are {', '.join(known)}."
                self.fault((*above, key), "there is no such key", fix)

    def number(self, key: Key, given: Any, *, low: float, whole: bool = True, above: bool = False) -> Any:
        """A number from `low` on (`above`: greater than it), or `None`, which is noted where something else stands."""
        if given is None:
            return None
        kinds = int if whole else int | float
        is_right = isinstance(given, kinds) and not isinstance(given, bool)
        if is_right and (given > low if above else given >= low) and given < float("inf"):
            return given
        what = "a whole number" if whole else "a number"
        self.fault(key, f"is {what} {'above' if above else 'from'} {low:g}{'' if above else ' on'}, not {given!r}")
        return None

    def choice(self, key: Key, given: Any, known: tuple[str, ...]) -> str:
        """One of these texts; the first where something else stands, which is noted."""
        if given in known:
            return str(given)
        guess = did_you_mean(given, known) if isinstance(given, str) else ""
        self.fault(key, f"there is no {key[-1]} {given!r}", f"{guess}There are {', '.join(known)}.")
        return known[0]


def read_plan(path: Path) -> SweepPlan:
    """Read the file at `path`.

    Raises:
        ProfileError: it cannot be read, or anything in it is wrong.
    """
    text = read_text(path).removeprefix(BOM)
    return plan_of(text, path)


def plan_of(text: str, path: Path) -> SweepPlan:
    """The plan that a file at `path` with this text is; raises as `read_plan`."""
    reader = PlanReader(text, path)
    reader.check_keys(reader.table, KEYS[""])
    space, derived = _read_space(reader)
    method, budget, repeat = (reader.section(name) for name in ("method", "budget", "repeat"))
    sampler = reader.choice(("method", "sampler"), method.get("sampler", "tpe"), SAMPLERS)
    scheduler = reader.choice(("method", "scheduler"), method.get("scheduler", "none"), SCHEDULERS)
    if why := check_sampler(sampler, space):
        message, _, fix = why.partition("\n")
        reader.fault(("method", "sampler"), message, fix)
    plan = SweepPlan(
        name=_read_name(reader, path), profile=_read_profile(reader), space=space, derived=derived,
        sampler=sampler, scheduler=scheduler, rungs=_read_rungs(reader, method, scheduler),
        eta=reader.number(("method", "eta"), method.get("eta", 3), low=2) or 3,
        finish=reader.number(("method", "finish"), method.get("finish", 2), low=1) or 2,
        seed=reader.number(("method", "seed"), method.get("seed", 0), low=0) or 0,
        parallel=reader.number(("method", "parallel"), method.get("parallel"), low=1),
        trials=_read_trials(reader, budget, sampler, space),
        hours=reader.number(("budget", "hours"), budget.get("hours"), low=0, whole=False, above=True),
        money=reader.number(("budget", "money"), budget.get("money"), low=0, whole=False, above=True),
        repeat_top=reader.number(("repeat", "top"), repeat.get("top", 1), low=1) or 1,
        seeds=reader.number(("repeat", "seeds"), repeat.get("seeds", 3 if repeat else 1), low=2 if repeat else 1) or 1,
        run=read_run_settings(reader),
    )  # fmt: skip
    if reader.faults:
        raise profile_error(reader.faults, path)
    return plan


def _read_name(reader: PlanReader, path: Path) -> str:
    given = reader.table.get("name")
    if given is None:
        return name_from(path.stem)
    try:
        return check_name(given if isinstance(given, str) else repr(given))
    except UsageError as error:
        reader.fault(("name",), error.message, error.hint)
        return "sweep"


def _read_profile(reader: PlanReader) -> str:
    given = reader.table.get("profile")
    if isinstance(given, str) and given:
        return given
    what = "is missing" if given is None else f"is a text, not {given!r}"
    reader.fault(("profile",), what, 'Write profile = "mine.toml": what every trial has beside the values of [search].')
    return ""


def _read_space(reader: PlanReader) -> tuple[tuple[Dimension, ...], dict[str, str]]:
    table = reader.table.get("search")
    if not isinstance(table, dict) or not table:
        fix = 'Write [search], and below it "train.learning_rate" = { low = 1e-5, high = 1e-3, log = true }.'
        reader.fault(("search",), "is missing" if table is None else "has no keys", fix)
        return (), {}
    derived = table.get("derived", {})
    dimensions = [
        one for key, given in _dotted({k: v for k, v in table.items() if k != "derived"})
        if (one := _read_dimension(reader, key, given)) is not None
    ]  # fmt: skip
    rules: dict[str, str] = {}
    for key, rule in _dotted(derived) if isinstance(derived, dict) else [((), derived)]:
        place = ("search", "derived", *key)
        if not isinstance(rule, str):
            reader.fault(place, f"is a rule in quotes, not {rule!r}", 'Write "adapter.lora_alpha" = "2 * adapter.r".')
        else:
            rules[".".join(key)] = rule
    return tuple(dimensions), rules


def _dotted(table: Mapping[str, Any], above: Key = ()) -> list[tuple[Key, Any]]:
    """Keys as they are written, `"train.learning_rate"` in quotes or [search.train]: the same key either way."""
    found: list[tuple[Key, Any]] = []
    for key, value in table.items():
        if isinstance(value, dict) and not (set(value) & set(RANGE_KEYS)) and value:
            found += _dotted(value, (*above, key))
        else:
            found.append(((*above, key), value))
    return found


def _read_dimension(reader: PlanReader, key: Key, given: Any) -> Dimension | None:
    place, dotted = ("search", *key), ".".join(key)
    if isinstance(given, list):
        return _read_choice(reader, place, dotted, given)
    if isinstance(given, dict):
        return _read_range(reader, place, dotted, given)
    fix = f'Write "{dotted}" = [{given!r}, ...] or {{ low = ..., high = ... }}; a fixed value belongs into the profile.'
    reader.fault(place, f"is a list of values or a range, not {given!r}", fix)
    return None


def _read_choice(reader: PlanReader, place: Key, dotted: str, given: list[Any]) -> ValueList | None:
    if len(given) < 2:
        what = "has no values" if not given else "has one value, and there is nothing to search"
        reader.fault(place, what, "Write two or more, or put the value into the profile.")
        return None
    if double := next((one for n, one in enumerate(given) if one in given[:n]), None):
        reader.fault(place, f"has {double!r} twice", "Leave one of them out.")
        return None
    return ValueList(dotted, tuple(given))


def _read_range(reader: PlanReader, place: Key, dotted: str, given: dict[str, Any]) -> ValueRange | None:
    reader.check_keys(given, RANGE_KEYS, place)
    low, high, log, step = (given.get(name) for name in RANGE_KEYS)
    numbers = [one for one in (low, high) if isinstance(one, int | float) and not isinstance(one, bool)]
    if len(numbers) < 2:
        reader.fault(place, "has no low and high that are numbers", "Write { low = 1e-5, high = 1e-3, log = true }.")
        return None
    low, high = numbers
    if isinstance(low, float) or isinstance(high, float):
        low, high = float(low), float(high)
    if not abs(low) < float("inf") or not abs(high) < float("inf") or low >= high:
        fix = f"Write {{ low = {high}, high = {low} }}." if low > high else "Put a fixed value into the profile."
        reader.fault(place, f"has no values: low = {low} is not below high = {high}", fix)
        return None
    if log not in (None, True, False):
        reader.fault((*place, "log"), f"is true or false, not {log!r}")
        return None
    if log and low <= 0:
        reader.fault(place, f"log needs a low above 0, not {low}", "Write a small number, or leave log out.")
        return None
    if step is not None and (reader.number((*place, "step"), step, low=0, whole=False, above=True) is None or log):
        if log:
            reader.fault((*place, "step"), "log and step do not go together", "Leave one of them out.")
        return None
    if step is not None and step > high - low:
        reader.fault((*place, "step"), f"is more than the whole range, {high - low:g}", "Write a smaller one.")
        return None
    return ValueRange(dotted, low, high, bool(log), step)


def _read_rungs(reader: PlanReader, method: Mapping[str, Any], scheduler: str) -> tuple[int, ...]:
    rungs, place = method.get("rungs"), ("method", "rungs")
    if rungs is None and scheduler != "none":
        fix = 'Write rungs = [30, 90, 270]: steps, the last of them where a trial is finished; or scheduler = "none".'
        reader.fault(("method",), f"{scheduler} needs rungs", fix)
    if rungs is None or scheduler == "none":
        if rungs is not None:
            reader.fault(place, 'go with a scheduler, and scheduler = "none"', 'Write scheduler = "asha".')
        return ()
    is_list = isinstance(rungs, list) and all(isinstance(r, int) and not isinstance(r, bool) for r in rungs)
    if not is_list or len(rungs) < 2 or rungs[0] < 1 or any(b <= a for a, b in itertools.pairwise(rungs)):
        fix = "Write rungs = [30, 90, 270]."
        reader.fault(place, f"are two or more numbers of steps, each above the one before, not {rungs!r}", fix)
        return ()
    return tuple(rungs)


def _read_trials(reader: PlanReader, budget: Mapping[str, Any], sampler: str, space: tuple[Dimension, ...]) -> int:
    given, place = budget.get("trials"), ("budget", "trials")
    points = grid_size(space) if sampler == "grid" and not check_sampler(sampler, space) and space else None
    if given is None and points:
        given = points
    if given is None:
        reader.fault(("budget",), "has no number of trials", "Write [budget] and trials = 20 below it.")
        return 1
    number = reader.number(place, given, low=1)
    if number is not None and number > MOST_TRIALS:
        reader.fault(place, f"is {number}, and at most {MOST_TRIALS} are taken", "Write fewer, or a coarser grid.")
    if number is not None and points is not None and number > points:
        reader.fault(
            place, f"is {number}, and the grid has {points} points", f"Write trials = {points}, or leave it out."
        )
    return number or 1


def not_found(name: str, known: list[str]) -> UsageError:
    """What is said of a sweep that there is not."""
    hint = f"{did_you_mean(name, known)}`ftui sweep list` shows them; `ftui sweep FILE` starts one."
    return UsageError(f"There is no sweep named {shown(name)!r}.", hint=hint)
