"""Which keys of a profile a search may change: those that change the weights, and not what they are measured by."""

from collections.abc import Mapping
from typing import Any

from ftui.profile.schema import Profile
from ftui.profile.serialize import flat_values
from ftui.sweep.sweep_plan import SweepPlan
from ftui.text import did_you_mean

METRIC = "changes what the trials are measured by, and their values could not be compared"
HORIZON = "decides how long a trial trains, and trials of different lengths could not be compared"
NO_PART = "has no part in what a run learns"
SEED = "is luck, not a setting: the best of many seeds is no better on new data"
TABLES: Mapping[str, tuple[str, str]] = {
    "data": (METRIC, "Compare data by sweeps of their own, on the same data.eval, with `ftui evaluate`."),
    "eval": (METRIC, "Set it in the profile."),
    "model": (METRIC, "Compare models by sweeps of their own, with `ftui evaluate`."),
    "run": (NO_PART, "Set it in the profile."),
    "checkpoint": (NO_PART, "Set it in the profile."),
    "log": (NO_PART, "Set it in the profile."),
    "hardware": (NO_PART, "Set it in the profile."),
    "health": (NO_PART, "Set it in the profile."),
    "push": (NO_PART, "Push the winner: `ftui push`."),
    "curriculum": (METRIC, "Compare curricula by sweeps of their own."),
}
KEYS: Mapping[str, tuple[str, str]] = {
    "train.max_steps": (HORIZON, "The last of method.rungs, or the profile, says it."),
    "train.num_train_epochs": (HORIZON, "The profile says it."),
    "train.seed": (SEED, "Set it in the profile."),
    "train.data_seed": (SEED, "Set it in the profile."),
}
ALLOWED = frozenset({"data.packing", "data.mixing_temperature", "model.dtype", "model.attn_implementation"})
OF_LOSS = "is a part of the loss itself, by which trials are compared"


def refusal_of(key: str, profile: Profile) -> tuple[str, str] | None:
    """Why a key cannot be searched in this profile, and the fix; `None` where it can."""
    known = {".".join(one) for one in flat_values(profile)}
    table = key.partition(".")[0]
    if not any(key == one or one.startswith(f"{key}.") or key.startswith(f"{one}.") for one in known):
        guess = did_you_mean(key, known).strip()
        return "there is no such key in a profile", guess or "docs/profile.md has all of them."
    if key in KEYS:
        return KEYS[key]
    if table in TABLES and key not in ALLOWED:
        return TABLES[table]
    if table == "preference" and profile.eval.metric_for_best_model in ("loss", "perplexity"):
        return OF_LOSS, 'Set eval.metric_for_best_model = "rewards/accuracies" in the profile.'
    return None


def number_values(profile: Profile, point: Mapping[str, Any]) -> dict[str, Any]:
    """What an expression may name: the profile's values, with those of a point in their place."""
    return {".".join(key): value for key, value in flat_values(profile).items()} | dict(point)


def whole_point(plan: SweepPlan, profile: Profile, point: Mapping[str, Any]) -> dict[str, Any]:
    """A point with the values that follow from it, each rule seeing those before it.

    Raises:
        ValueError: a rule has no result there.
    """
    from ftui.sweep.derived_values import evaluate

    values = number_values(profile, point)
    whole = dict(point)
    for key, rule in plan.derived.items():
        values[key] = whole[key] = evaluate(rule, values)
    return whole
