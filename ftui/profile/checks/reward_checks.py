"""What `[rewards]` asks of its keys and of other sections."""

import ast
import difflib
from collections.abc import Iterator
from pathlib import Path

from ftui.profile.checks.known_values import KnownValues, contradiction
from ftui.profile.origins import ProfileFault
from ftui.profile.sections.rewards import CODE_MARK, NEEDED_OPTIONS, READY_OPTIONS, RewardsSection
from ftui.system.input_files import read_input

REWARDED_STAGES = ("grpo", "ppo")


def _for_the_stage(values: KnownValues) -> Iterator[ProfileFault]:
    stage, names = values("run.stage"), values("rewards.reward_funcs")
    if stage in REWARDED_STAGES and not names:
        why = f"stage {stage} learns from rewards, and there are none"
        yield contradiction("rewards.reward_funcs run.stage", why, 'Set reward_funcs = "number_answer", for example.')
    elif stage not in REWARDED_STAGES and values.is_wished("rewards.reward_funcs") and names:
        why = f"rewards are for stage {', '.join(REWARDED_STAGES)}, and this is stage {stage}"
        yield contradiction("rewards.reward_funcs run.stage", why, "Leave reward_funcs out.")


def _reference(values: KnownValues) -> Iterator[ProfileFault]:
    stage = values("run.stage")
    if values("rewards.reference_column") is not None and stage not in REWARDED_STAGES:
        why = f"answers of rows are rewarded in stage {', '.join(REWARDED_STAGES)}, and this is stage {stage}"
        yield contradiction("rewards.reference_column run.stage", why, "Leave reference_column out.")


def _known(values: KnownValues) -> Iterator[ProfileFault]:
    names = values("rewards.reward_funcs")
    for name in names:
        if name not in READY_OPTIONS and CODE_MARK not in name:
            close = difflib.get_close_matches(name, READY_OPTIONS, n=1, cutoff=0.6)
            fix = f"Did you mean {close[0]!r}?" if close else f"There are {', '.join(READY_OPTIONS)}, and FILE.py:NAME."
            yield contradiction("rewards.reward_funcs", f"there is no reward {name!r}", fix)
    short = [name.rpartition(CODE_MARK)[2] for name in names]
    if twice := sorted({name for name in short if short.count(name) > 1}):
        why = f"reward_funcs has two rewards called {twice[0]!r}"
        yield contradiction("rewards.reward_funcs", why, "Give one of the functions another name.")


def _one_weight_each(values: KnownValues) -> Iterator[ProfileFault]:
    weights, names = values("rewards.reward_weights"), values("rewards.reward_funcs")
    if weights is not None and len(weights) != len(names):
        why = f"reward_weights has {len(weights)} numbers, and reward_funcs {len(names)} rewards"
        yield contradiction("rewards.reward_weights rewards.reward_funcs", why, "Give each reward one weight.")


def _options(values: KnownValues) -> Iterator[ProfileFault]:
    names = values("rewards.reward_funcs")
    for name in names:
        for key in NEEDED_OPTIONS.get(name, ()):
            if values(f"rewards.{key}") is None:
                why = f"the reward {name!r} takes {key}, which is not set"
                yield contradiction(f"rewards.reward_funcs rewards.{key}", why, f"Set rewards.{key}.")
    for key in {key for keys in READY_OPTIONS.values() for key in keys}:
        takers = [name for name, keys in READY_OPTIONS.items() if key in keys]
        if values.is_wished(f"rewards.{key}") and not set(takers).intersection(names) and _is_set(values, key):
            why = f"rewards.{key} is for {', '.join(takers)}, and reward_funcs has none of them"
            yield contradiction(f"rewards.{key} rewards.reward_funcs", why, f"Leave {key} out.")


def _is_set(values: KnownValues, key: str) -> bool:
    return bool(values(f"rewards.{key}") != RewardsSection.model_fields[key].default)


def _bounds(values: KnownValues) -> Iterator[ProfileFault]:
    names, longest = values("rewards.reward_funcs"), values("rewards.max_length")
    if longest is None:
        return
    if "length" in names and values("rewards.min_length") > longest:
        why = f"no answer has at least {values('rewards.min_length')} and at most {longest} tokens"
        yield contradiction("rewards.min_length rewards.max_length", why, "Set a smaller min_length.")
    if "overlong" in names and (values("rewards.soft_punish_cache") or 0) > longest:
        why = f"soft_punish_cache is more than max_length = {longest}"
        yield contradiction("rewards.soft_punish_cache rewards.max_length", why, "Set a smaller soft_punish_cache.")


def _functions_are_there(values: KnownValues) -> Iterator[ProfileFault]:
    """Without running anything: the file is Python, and has a function of that name at its top."""
    for name in values("rewards.reward_funcs"):
        path, mark, function = name.rpartition(CODE_MARK)
        if not mark:
            continue
        try:
            tree = ast.parse(read_input(Path(path + ".py")))
        except OSError as error:
            why, fix = f"{path}.py cannot be read: {error.strerror}", "A path is relative to the profile's folder."
        except (SyntaxError, ValueError) as error:
            why, fix = f"{path}.py is not Python: {error}", "Mend it."
        else:
            if function in _top_names(tree):
                continue
            why, fix = f"{path}.py has no function {function!r}", f"It has {', '.join(_top_names(tree)) or 'none'}."
        yield contradiction("rewards.reward_funcs", why, fix)


def _top_names(tree: ast.Module) -> list[str]:
    """Names that the file may have a function under: of functions, and of what is assigned or imported."""
    names = []
    for node in tree.body:
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            names.append(node.name)
        elif isinstance(node, ast.Assign):
            names += [target.id for target in node.targets if isinstance(target, ast.Name)]
        elif isinstance(node, ast.Import | ast.ImportFrom):
            names += [alias.asname or alias.name for alias in node.names]
    return names


CHECKS = (_for_the_stage, _reference, _known, _one_weight_each, _options, _bounds, _functions_are_there)
