"""A sweep of wandb, or the grid of an Axolotl or LLaMA-Factory file, as a sweep.toml."""

from collections import defaultdict
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from ftui.errors import ProfileError
from ftui.importers.config_file import Leaf, read_tables, read_text
from ftui.profile.aliases import OLD_SPELLINGS
from ftui.profile.checks.messages import all_keys
from ftui.sweep.searchable import ALLOWED, KEYS, TABLES
from ftui.text import shown, toml_value

METHODS = {"random": "random", "grid": "grid", "bayes": "gp"}
LOGS = ("log_uniform_values", "q_log_uniform_values", "inv_log_uniform_values")
EVEN = ("uniform", "int_uniform", "q_uniform", "constant", "categorical")
TRIALS = 20  # where the file has no run_cap: wandb's agents go on until they are stopped
SPELLINGS = {"lora_rank": "adapter.r"}  # of LLaMA-Factory
LISTS = ("datasets", "dataset", "test_datasets", "lora_target", "lora_target_modules", "target_modules", "plugins")
"""Keys that have a list in training files as well."""
OF_LISTS = ("adapter.target_modules",)
LOSS_NAMES = ("loss", "eval_loss", "eval/loss", "val_loss", "validation_loss")


@dataclass
class ImportedSweep:
    """The text of a sweep.toml, and what of the file is not in it, with the reason."""

    text: str = ""
    dropped: list[str] = field(default_factory=list)


def import_sweep(path: Path) -> ImportedSweep:
    """Read a YAML or JSON file of wandb (`parameters:`) or Axolotl (a list for each key).

    A training file of LLaMA-Factory or Axolotl in which some keys have a list of values is one as well; its other keys
    are `ftui import`'s.

    Raises:
        ProfileError: it cannot be read, or is neither.
    """
    leaves = read_tables(path, read_text(path))
    result, by_head = ImportedSweep(), defaultdict[str, list[Leaf]](list)
    for leaf in leaves:
        by_head[str(leaf.path[0])].append(leaf)
    if "parameters" in by_head:
        space = _wandb_space(by_head.pop("parameters"), result)
        _write(result, path, space, _wandb_method(by_head, result), _wandb_trials(by_head))
    elif any(_is_grid(leaf) for leaf in leaves):
        lists = [leaf for leaf in leaves if isinstance(leaf.value, list)]
        space = {
            key: toml_value(tuple(leaf.value)) for leaf in lists
            if (key := _key_of(leaf.name, leaf, result)) and key not in OF_LISTS
        }  # fmt: skip
        if fixed := [leaf.name for leaf in leaves if leaf not in lists and leaf.path[0] != "_"]:
            what = "has one value" if len(fixed) == 1 else "have one value each"
            result.dropped.append(f"{', '.join(fixed)}: {what}; `ftui import {path.name}` makes a profile of them")
        _write(result, path, space, 'sampler = "grid"', None)
    else:
        hint = "Read are sweeps of wandb (parameters: ...), files of Axolotl and LLaMA-Factory with lists of values."
        raise ProfileError(f"{path} is no sweep that can be imported.", hint=hint)
    if not space:
        raise ProfileError(f"{path} has no key that can be searched here:\n" + "\n".join(result.dropped))
    return result


def _is_grid(leaf: Leaf) -> bool:
    """Whether it is a list of values for a key that has one value in a training file."""
    return isinstance(leaf.value, list) and leaf.path[0] != "_" and leaf.name not in LISTS


def _key_of(name: str, leaf: Leaf, result: ImportedSweep) -> str:
    """The profile's key of a name in the file; empty where it has none that may be searched, which is noted."""
    last = name.rpartition(".")[2]
    known = [".".join(key) for key in all_keys() if key[0] != "curriculum"]
    meant = name if name in known else SPELLINGS.get(last) or OLD_SPELLINGS.get(last, "").split(" ")[0].rstrip(",")
    if meant not in known:
        meant = next((key for key in known if key.rpartition(".")[2] == last), "")
    why = KEYS.get(meant) or (TABLES.get(meant.partition(".")[0]) if meant not in ALLOWED else None)
    if not meant or why:
        reason = f"{meant} {why[0]}" if why else "no key of a profile is known that says it"
        result.dropped.append(f"line {leaf.line}: {name}: {reason}")
        return ""
    return meant


def _wandb_space(leaves: list[Leaf], result: ImportedSweep) -> dict[str, str]:
    """What each parameter may be, in TOML. Nested parameters are taken by their last name."""
    tables = defaultdict[str, dict[str, Leaf]](dict)
    for leaf in leaves:
        names = [str(step) for step in leaf.path[1:] if step != "parameters"]
        tables[".".join(names[:-1])][names[-1]] = leaf
    space = {}
    for name, table in tables.items():
        first = next(iter(table.values()))
        source = _wandb_values({key: leaf.value for key, leaf in table.items()})
        if source is None:
            result.dropped.append(f"line {first.line}: {name}: one value, or a distribution that is not known here")
        elif key := _key_of(name, first, result):
            space[key] = source
    return space


def _wandb_values(table: dict[str, Any]) -> str | None:
    kind = table.get("distribution")
    if isinstance(values := table.get("values"), list) and len(values) > 1:
        return toml_value(tuple(values))
    low, high = table.get("min"), table.get("max")
    if low is None or high is None or kind not in (None, *LOGS, *EVEN):
        return None
    step = f", step = {toml_value(table['q'])}" if kind == "q_uniform" and "q" in table else ""
    return f"{{ low = {toml_value(low)}, high = {toml_value(high)}{', log = true' if kind in LOGS else step} }}"


def _wandb_method(heads: dict[str, list[Leaf]], result: ImportedSweep) -> str:
    """The table [method] without its head. Hyperband there stops runs; here its rungs are the bands."""
    (method, *_) = [leaf.value for leaf in heads.pop("method", [])] or ["bayes"]
    lines = [f'sampler = "{METHODS.get(str(method), "tpe")}"']
    early = {str(leaf.path[-1]): leaf.value for leaf in heads.pop("early_terminate", [])}
    if early:
        count = "min_iter" if "min_iter" in early else "max_iter"
        what = f"early_terminate: {count} = {early.get(count)} counts what is logged, and rungs are steps"
        result.dropped.append(f'{what}: write scheduler = "asha" and rungs = [...]')
    for leaf in [leaf for name in ("metric",) for leaf in heads.pop(name, [])]:
        if leaf.path[-1] == "name" and leaf.value not in LOSS_NAMES:
            reason = "trials are compared by eval.metric_for_best_model of the profile"
            result.dropped.append(f"line {leaf.line}: metric {leaf.value}: {reason}")
    return "\n".join(lines)


def _wandb_trials(heads: dict[str, list[Leaf]]) -> int:
    caps = [leaf.value for leaf in heads.pop("run_cap", [])]
    return int(caps[0]) if caps and isinstance(caps[0], int) else TRIALS


def _write(result: ImportedSweep, path: Path, space: dict[str, str], method: str, trials: int | None) -> None:
    lines = [f"# From {shown(path.name)}."]
    lines += [f"# Not carried: {shown(one)}" for one in result.dropped]
    lines += ['profile = "mine.toml"    # what every trial has: name yours', "", "[search]"]
    lines += [f'"{key}" = {source}' for key, source in space.items()]
    lines += ["", "[method]", method]
    lines += [] if trials is None else ["", "[budget]", f"trials = {trials}"]
    result.text = "\n".join(lines) + "\n"
