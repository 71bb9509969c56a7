"""Rules: what becomes of each key of another tool's file. A tool is a table of them, which one walk applies."""

import difflib
import json
import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any

from ftui.errors import ModelError
from ftui.importers.command import LAUNCHER
from ftui.importers.config_file import Document, Leaf, is_unresolved
from ftui.importers.draft import ProfileDraft
from ftui.importers.values import CONVERTERS, Convert, Unfit, convert_for, flag, is_on, text
from ftui.models.known import known_config
from ftui.models.local import find_config
from ftui.system.redact import HIDDEN

Rule = Callable[[ProfileDraft, Leaf], None]
Rules = Mapping[str, Rule]
"""How each foreign key is read. A name ending in `.*` stands for all below it."""

NULL = "=null"  # ends the name of a rule for a key that says something by being null
MANY = 100  # keys that are dropped: what is meant by further ones is not worth its 2 ms each
OFF = "off, as it is here"
LAUNCH = "ftui starts its processes itself (hardware.num_processes)"
EACH_MACHINE = "give the same command on each: `ftui cluster` and docs/scale.md say how"
TRAIN_SPLIT = "train: as here where nothing is said"
OTHER_TRACKER = "ftui reports to tensorboard, wandb, trackio, mlflow and aim only"
OWN_TRACKER = "the tracker's own settings are its environment variables (WANDB_PROJECT, MLFLOW_TRACKING_URI ...)"
OWN_FOLDER = "a run has a folder of its own under runs/, named for the profile"
# Why what a template of the other tool writes beside the rows is told: no template of ours does.
NO_SYSTEM = "rows without a system turn get this one there: write it into the rows, or leave it out on purpose"
QWENS_SYSTEM = "You are Qwen, created by Alibaba Cloud. You are a helpful assistant."
SOME_ROWS = "num_samples of a [[data.train]] table takes so many rows of it per epoch, others in the next"
NOT_SHORTENED = "nothing is cut there: as long as the model can see"

# Keys that hold a secret, by the end of their name. A token of a vocabulary is none.
_SECRET = re.compile(
    r"(?:(?:^|_)(?:hf|hub|auth|access|api|bearer|login|session|ms|om|wandb|huggingface|ngrok)_?(?:token|key)"
    r"|^token|^key|api_?key|password|passwd|secret|secret_?key|credentials?|webhook_?url)$",
    re.IGNORECASE,
)


@dataclass(frozen=True)
class SourceTool:
    """A tool whose files are imported: one module of `ftui/importers/tools`, named in its `__init__`.

    Attributes:
        name: as its users know it.
        rules: what becomes of each of its keys.
        recognizes: whether a file is this tool's, by its keys.
        suppose: sets what the tool does where its file says nothing.
        key_name: what a leaf is called in `rules`.
        most_strange: the share of keys without a rule from which on a file is none of this tool's.
    """

    name: str
    rules: Rules
    recognizes: Callable[[Document], bool]
    suppose: Callable[[ProfileDraft], None]
    key_name: Callable[[Leaf], str] = lambda leaf: leaf.pattern
    most_strange: float = 0.34

    def is_strange(self, leaf: Leaf) -> bool:
        """Whether the tool has no such key."""
        name = self.key_name(leaf)
        is_plain = leaf.value not in (None, "") and leaf.path[0] != LAUNCHER and not name.startswith("$")
        return is_plain and not _SECRET.search(leaf.last) and name not in self.rules and not find_wide(self.rules, name)


@dataclass(frozen=True)
class Gate:
    """When a key says something: `is_open`; `otherwise` is why it is dropped where it says nothing."""

    is_open: Callable[[ProfileDraft], bool]
    otherwise: Callable[[ProfileDraft], str]


def to(ours: str, convert: Convert, note: str = "") -> Rule:
    """Carry to this key of the profile."""

    def rule(draft: ProfileDraft, leaf: Leaf) -> None:
        draft.carry(leaf, ours, convert_for(ours, convert, leaf.value), note)

    return rule


def says(ours: str, value: Callable[[ProfileDraft, Leaf], Any], note: str = "") -> Rule:
    """Carry to this key of the profile what the whole file says of it."""

    def rule(draft: ProfileDraft, leaf: Leaf) -> None:
        draft.carry(leaf, ours, value(draft, leaf), note)

    return rule


def carries(section: str, gate: Gate | None = None, /, **names: str) -> dict[str, Rule]:
    """Rules for keys that mean what a key of the profile means: its name, then the foreign names of it.

    Args:
        section: of the profile.
        gate: when they say something; always without one.
    """
    rules: dict[str, Rule] = {}
    for name, foreign in names.items():
        rule = to(f"{section}.{name}", CONVERTERS[f"{section}.{name}"])
        rules |= each(rule, foreign) if gate is None else when(gate, rule, foreign)
    return rules


def same(section: str, names: str) -> dict[str, Rule]:
    """Rules for keys that are called there as in this section of the profile."""
    return carries(section, **{name: name for name in names.split()})


def each(rule: Rule, names: str) -> dict[str, Rule]:
    """One rule for several keys."""
    return dict.fromkeys(names.split(), rule)


def when(gate: Gate, rule: Rule, names: str) -> dict[str, Rule]:
    """One rule for several keys that say something only where the gate is open."""

    def apply(draft: ProfileDraft, leaf: Leaf) -> None:
        rule(draft, leaf) if gate.is_open(draft) else draft.drop(leaf, gate.otherwise(draft))

    return each(apply, names)


def path_to(ours: str) -> Rule:
    """Carry the folder of a model, or its name on the hub."""

    def rule(draft: ProfileDraft, leaf: Leaf) -> None:
        draft.carry(leaf, ours, draft.folder_or_id(leaf.value))

    return rule


def if_on(ours: str, value: Any, off: str = OFF) -> Rule:
    """A flag that says a key of the profile where it is on; `off` is why nothing is lost where it is not."""

    def rule(draft: ProfileDraft, leaf: Leaf) -> None:
        draft.carry(leaf, ours, value) if flag(leaf.value) else draft.drop(leaf, off)

    return rule


def only(usual: Any, otherwise: str, reason: str = "as it is read here") -> Rule:
    """A key whose value `usual` (or each of several, in a tuple) says what is so here; another one is unfit."""

    def rule(draft: ProfileDraft, leaf: Leaf) -> None:
        if leaf.value not in (usual if isinstance(usual, tuple) else (usual,)):
            raise Unfit(otherwise)
        draft.drop(leaf, reason)

    return rule


def split_of(source: Rule) -> Rule:
    """The name of a split, which `source` carries with what else says the rows."""

    def rule(draft: ProfileDraft, leaf: Leaf) -> None:
        if "[" in text(leaf.value):
            raise Unfit(f"a part of a split cannot be named; {SOME_ROWS}")
        draft.drop(leaf, TRAIN_SPLIT) if leaf.value == "train" else source(draft, leaf)

    return rule


def trackers(**flags: str) -> dict[str, Rule]:
    """Rules for flags that turn trackers on, each by the names of its flags; those that are on make one list."""

    def rule_of(name: str) -> Rule:
        def rule(draft: ProfileDraft, leaf: Leaf) -> None:
            if not flag(leaf.value):
                draft.drop(leaf, OFF)
                return
            others = [tracker for tracker in draft.given("log.report_to") or [] if tracker != name]
            draft.values[("log", "report_to")] = [*others, name]
            draft.carry(leaf, "log.report_to", [*others, name])

        return rule

    return {key: rule for name, names in flags.items() for key, rule in each(rule_of(name), names).items()}


def drops(reason: str, names: str, *, matters: bool = False) -> dict[str, Rule]:
    """Rules for keys that have no place in a profile. What is off already is no loss."""

    def rule(draft: ProfileDraft, leaf: Leaf) -> None:
        is_off = leaf.value in (False, 0, [], {}, "none", "no")
        draft.drop(leaf, OFF if is_off and matters else reason, matters=matters and not is_off)

    return each(rule, names)


def refuse(draft: ProfileDraft, leaf: Leaf, what: str) -> None:
    """Training of a kind that ftui does not do: nothing of the file can be run."""
    draft.refused = f"{what} is not yet built"
    draft.drop(leaf, "not yet built", matters=True)


def template_file(draft: ProfileDraft, leaf: Leaf, otherwise: str) -> None:
    """Carry the path of a .jinja file; another value is unfit, for the reason `otherwise`."""
    given = text(leaf.value)
    if not given.endswith(".jinja"):
        raise Unfit(otherwise)
    path = draft.find(given)
    draft.carry(leaf, "data.chat_template", draft.seen_from(path) if path else given)


def branch(draft: ProfileDraft, leaf: Leaf) -> None:
    """The revision of a model. Its usual one is left out, since a profile names a revision only to fix it."""
    if leaf.value == "main":
        draft.drop(leaf, "main: as here where nothing is said")
    else:
        draft.carry(leaf, "model.revision", text(leaf.value))


def not_shortened(model: str, packing: str) -> Rule:
    """The rule of a key that says that rows are never cut; `model` and `packing` are the file's names of those."""

    def rule(draft: ProfileDraft, leaf: Leaf) -> None:
        ours = "data.max_length"
        if is_on(draft.raw(packing)):
            raise Unfit("packed rows need a length: set data.max_length", ours)
        longest = longest_input(draft, draft.raw(model))
        if longest is None:
            why = "nothing is cut there: set data.max_length to the longest row, or to what the model can see"
            raise Unfit(why, ours)
        draft.carry(leaf, ours, longest, NOT_SHORTENED)

    return rule


def longest_input(draft: ProfileDraft, name: Any) -> int | None:
    """Tokens that the model of that name can see, as far as it is on this machine or known to ftui."""
    if not isinstance(name, str) or not name:
        return None
    try:
        folder = draft.find(name)
        path = find_config(name if folder is None else str(folder.absolute()))
        config = known_config(name) if path is None else json.loads(path.read_bytes())
    except (OSError, ValueError, RecursionError, ModelError):
        return None
    longest = config.get("max_position_embeddings") if isinstance(config, dict) else None
    return longest if isinstance(longest, int) and not isinstance(longest, bool) and longest >= 8 else None


def apply_rules(draft: ProfileDraft, tool: SourceTool) -> None:
    """Every value of the file through its rule; each ends as carried or as dropped, once."""
    for leaf in draft.document.leaves:
        carried, dropped = len(draft.carried), len(draft.dropped)
        try:
            _settle(draft, leaf, tool.rules, tool.key_name(leaf))
        except Unfit as unfit:
            draft.drop(leaf, str(unfit), matters=True)
            if unfit.ours:
                draft.unread[tuple(unfit.ours.split("."))] = leaf
        settled = [item.foreign for item in draft.carried[carried:]]
        settled += [item.foreign for item in draft.dropped[dropped:]]
        assert settled.count(leaf.name) == 1, f"{leaf.name} is not settled once"


def _settle(draft: ProfileDraft, leaf: Leaf, rules: Rules, name: str) -> None:
    if _SECRET.search(leaf.last):
        draft.drop(replace(leaf, value=HIDDEN), "a secret has no place in a profile; set it in the environment")
    elif leaf.value is None and (rule := rules.get(f"{name}{NULL}")):
        rule(draft, leaf)
    elif leaf.value is None or leaf.value == "":
        draft.drop(leaf, "empty")
    elif is_unresolved(leaf.value):
        draft.drop(leaf, "it refers to what the file does not say; write the value itself", matters=True)
    elif rule := None if name.endswith(NULL) else rules.get(name) or find_wide(rules, name):
        rule(draft, leaf)
    elif leaf.name in draft.document.references:
        draft.drop(leaf, "its value stands where it is referred to")
    else:
        meant = "" if len(draft.dropped) > MANY else _meant(name, rules)
        draft.drop(leaf, f"ftui knows no such key of {draft.tool}{meant}", matters=True)


def _meant(name: str, rules: Iterable[str]) -> str:
    plain = [key for key in rules if "*" not in key and NULL not in key and key[0] != "."]
    near = difflib.get_close_matches(name, plain, n=1, cutoff=0.85)
    return f"; did you mean {near[0]}?" if near else ""


def find_wide(rules: Rules, name: str) -> Rule | None:
    """The rule of the longest `prefix.*` that the name begins with."""
    fitting = [key for key in rules if key.endswith("*") and name.startswith(key[:-1])]
    return rules[max(fitting, key=len)] if fitting else None
