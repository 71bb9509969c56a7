"""reward_funcs and their kin: what other tools import by a dotted name is here a function in a file."""

from ftui.importers.config_file import Leaf
from ftui.importers.draft import ProfileDraft
from ftui.importers.values import Unfit, reals, texts
from ftui.profile.sections.rewards import REWARD_MODEL

ALLOWED = "it runs with --allow reward-code only"
THINK = r"\A<think>(?!.*<think>).*?</think>"
Ready = tuple[str, dict[str, str | int]]
MATHS: Ready = ("maths", {"column": "solution"})
READY: dict[str, Ready] = {
    "accuracy_reward": MATHS, "accuracy": MATHS, "think_format_reward": ("format", {"pattern": THINK}),
    "get_soft_overlong_punishment": ("overlong", {"max_length": 1280, "soft_punish_cache": 256}),
}  # fmt: skip
"""Functions of `trl grpo` (and of open-r1) that are ready here, and the options that they have there."""

NOTES = {"maths": r"maths takes what stands in \boxed or <answer>; TRL any LaTeX, the first"}


def reward_funcs(draft: ProfileDraft, leaf: Leaf) -> None:
    """Carry the names of functions, with a reward model's before them, as there.

    Raises:
        Unfit: one of them is in no file that is here. The reason says what to write.
    """
    first = [REWARD_MODEL] if draft.raw("reward_model_name_or_path") else []
    given = texts(leaf.value)
    named = [_name_here(draft, name) for name in given]
    ours = [*first, *(name for name, _ in named)]
    if unknown := [name for name, (_, is_known) in zip(given, named, strict=True) if not is_known]:
        listed = ", ".join(f'"{name}"' for name in ours)
        why = f"the function {unknown[0]} is in no file that is found: write rewards.reward_funcs = [{listed}], where"
        raise Unfit(f"{why} FILE.py:NAME is a function in a file of yours; {ALLOWED}", "rewards.reward_funcs")
    notes = [NOTES[name] for name in ours if name in NOTES] + [ALLOWED] * any(".py:" in name for name in ours)
    draft.carry(leaf, "rewards.reward_funcs", ours, "; ".join(notes))
    for name in given:
        draft.suppose_all("rewards", f"as {name} has it", **READY.get(name, ("", {}))[1])
        if _is_model(name):
            draft.suppose("rewards.reward_model_name_or_path", draft.folder_or_id(name), leaf.last)


def reward_model(draft: ProfileDraft, leaf: Leaf) -> None:
    """Carry the model that gives a reward beside functions, or alone."""
    draft.carry(leaf, "rewards.reward_model_name_or_path", draft.folder_or_id(leaf.value))
    if not draft.raw("reward_funcs"):
        draft.suppose("rewards.reward_funcs", [REWARD_MODEL], leaf.last)


def reward_weights(draft: ProfileDraft, leaf: Leaf) -> None:
    """Carry what each reward counts."""
    draft.carry(leaf, "rewards.reward_weights", reals(leaf.value))


def _is_model(name: str) -> bool:
    return "/" in name and ".py:" not in name


def _name_here(draft: ProfileDraft, name: str) -> tuple[str, bool]:
    """What a function is called here, and whether that is known: a dotted name is a file's where there is one."""
    if name in READY:
        return READY[name][0], True
    if _is_model(name):
        return REWARD_MODEL, True
    module, _, function = name.rpartition(".")
    if not module:
        return f"FILE.py:{name}", False
    file = module.replace(".", "/") + ".py"
    path = draft.find(file) or draft.find(file.rpartition("/")[2])
    return (f"{draft.seen_from(path)}:{function}", True) if path else (f"{file}:{function}", False)
