"""Axolotl's lists of data sets and its chat templates."""

import contextlib
import re
from typing import Any

from ftui.importers.config_file import Leaf
from ftui.importers.draft import ProfileDraft, as_text, list_sources, other_split
from ftui.importers.rules import (
    NO_SYSTEM,
    OFF,
    QWENS_SYSTEM,
    Rule,
    drops,
    each,
    only,
    split_of,
    template_file,
    to,
)
from ftui.importers.tools.axolotl_preference import MADE_THERE, columns_of_type, stage_of, template_of_types
from ftui.importers.tools.preference_keys import compares
from ftui.importers.values import Unfit, is_on, one_of, text, texts

# The types of rows that have a form here.
TYPES = {
    "alpaca": "alpaca", "chat_template": "messages", "sharegpt": "sharegpt", "completion": "text",
    "pretrain": "text", "alpaca_chat.load_qa": "question_answer",
}  # fmt: skip
TEMPLATES = {
    "alpaca": "alpaca", "chatml": "chatml", "gemma": "gemma", "llama3": "llama3", "mistral_v1": "mistral",
    "mistral": "mistral", "inst": "mistral", "phi_3": "phi", "phi_35": "phi", "qwen_25": "qwen", "qwen_2_5": "qwen",
    "vicuna": "vicuna", "zephyr": "zephyr", "llama2": "llama2",
}  # fmt: skip
# FastChat's, which rows of type sharegpt were written in until version 0.5.
CONVERSATIONS = {"chatml": "chatml", "vicuna_v1.1": "vicuna", "llama-3": "llama3", "llama3": "llama3"}
LISTS = {"datasets": "data.train", "test_datasets": "data.eval", "pretraining_dataset": "data.train"}
OWN = "tokenizer_default"
OWN_WORDS = "rows of type alpaca are written in Alpaca's own words there, whatever the template"
READ_BY_KIND = ("json", "csv", "parquet", "text", "arrow")  # names of loaders, not of data sets


def _of(draft: ProfileDraft, leaf: Leaf, name: str) -> Any:
    """A key of the same entry of a list."""
    return draft.raw(f"{leaf.path[0]}[{leaf.path[1]}].{name}")


def _form(draft: ProfileDraft, leaf: Leaf) -> str:
    """The form of the rows of an entry, "" where its type is not said. Raises `Unfit`: it has none here."""
    kind = _of(draft, leaf, "type")
    if leaf.path[0] == "pretraining_dataset":
        return "text"
    stage = stage_of(draft)
    if stage == "grpo" and kind is not None:
        raise Unfit(MADE_THERE)
    if compares(stage):
        return _form_of_stage(draft, leaf, stage)
    if _is_own_type(draft, leaf):
        return "alpaca"
    if kind is None:
        return ""
    if not isinstance(kind, str) or kind not in TYPES:
        raise Unfit("there is no such form of rows; docs/profile.md names those there are")
    column, content = _of(draft, leaf, "field_messages"), _of(draft, leaf, "message_property_mappings.content")
    if kind == "chat_template" and column == "conversations" and content in (None, "value"):
        return "sharegpt"
    return TYPES[kind]


def _form_of_stage(draft: ProfileDraft, leaf: Leaf, stage: str) -> str:
    """The same in a stage that compares answers."""
    kind = _of(draft, leaf, "type")
    if kind is not None:
        columns_of_type(stage, text(kind))
    return "kto" if stage == "kto" else "preference"


def _is_own_type(draft: ProfileDraft, leaf: Leaf) -> bool:
    """Whether `type` is a table that says what the columns of a question and its answer are called."""
    entry = (*leaf.path[:2], "type")
    return any(other.path[:3] == entry and len(other.path) > 3 for other in draft.document.leaves)


COMPARED = ("preference", "kto")
# Keys of an entry that name a column, the forms that have it, and what it is called here.
NAMES = {
    "type.field_instruction": (("alpaca",), "instruction"),
    "type.field_input": (("alpaca",), "input"),
    "type.field_output": (("alpaca",), "output"),
    "type.field_system": (("alpaca", *COMPARED), "system"),
    "type.field_prompt": (COMPARED, "prompt"),
    "type.field_chosen": (("preference",), "chosen"),
    "type.field_rejected": (("preference",), "rejected"),
    "type.field_completion": (("kto",), "completion"),
    "type.field_label": (("kto",), "label"),
    "field_messages": (("messages", "preference"), "messages"),
    "field_chosen": (("preference",), "chosen"),
    "field_rejected": (("preference",), "rejected"),
    "field_system": (("messages", "sharegpt"), "system"),
    "field_tools": (("messages", "sharegpt"), "tools"),
    "field": (("text",), "text"),
    "text_column": (("text",), "text"),
    "message_property_mappings.role": (("messages", "sharegpt", "preference"), "role"),
    "message_property_mappings.content": (("messages", "sharegpt", "preference"), "content"),
    "message_field_role": (("messages", "sharegpt"), "role"),
    "message_field_content": (("messages", "sharegpt"), "content"),
}
ROLES = ("user", "assistant", "system", "tool")
USUAL = {"sharegpt": {"role": "from", "content": "value"}}
SPEAKERS = {"human": "user", "gpt": "assistant", "chatgpt": "assistant", "observation": "tool"}
"""Speakers that are known by these names anyway, in rows of the form sharegpt; those of messages are called as here."""


def _columns(draft: ProfileDraft, leaf: Leaf, form: str) -> dict[str, str]:
    """What the columns of an entry are called where not as its form calls them."""
    usual, columns, kind = USUAL.get(form, {}), {}, _of(draft, leaf, "type")
    if form in COMPARED and isinstance(kind, str):
        columns = columns_of_type(stage_of(draft), kind)
    for key, (forms, ours) in NAMES.items():
        theirs = _of(draft, leaf, key)
        if form in forms and isinstance(theirs, str) and theirs not in ("", usual.get(ours, ours)):
            columns[ours] = theirs
    return columns


def _speakers(draft: ProfileDraft, leaf: Leaf, form: str) -> dict[str, str]:
    """What the speakers of an entry are called where not by a name that is known."""
    known = SPEAKERS if form == "sharegpt" else {}
    names = {role: _of(draft, leaf, f"roles.{role}") for role in ROLES}
    roles = {str(theirs): role for role, value in names.items() if value for theirs in texts(value)}
    return {theirs: role for theirs, role in roles.items() if role not in (theirs, known.get(theirs))}


def _entry(draft: ProfileDraft, leaf: Leaf) -> list[Any]:
    """An entry as sources of the profile: one, or one for each of its files."""
    path, files = _of(draft, leaf, "path"), draft.raw(f"{leaf.path[0]}[{leaf.path[1]}].data_files")
    if files and (path in READ_BY_KIND or path is None or draft.find(str(path)) is None):
        if path not in (*READ_BY_KIND, None):
            raise Unfit("single files of a data set on the hub cannot be chosen")
        paths = [draft.rows(file) for file in texts(files)]
    elif files:
        paths = [draft.rows(f"{path}/{file}") for file in texts(files)]
    else:
        paths = [draft.rows(path)]
    keys: dict[str, Any] = {}
    with contextlib.suppress(Unfit):  # reported where it stands
        keys["format"] = form = _form(draft, leaf)
        keys |= {"columns": _columns(draft, leaf, form), "roles": _speakers(draft, leaf, form)}
    keys |= {"subset": as_text(_of(draft, leaf, "name")), "split": other_split(_of(draft, leaf, "split"))}
    return list_sources(paths, **keys, revision=as_text(_of(draft, leaf, "revision")))


def _entries(draft: ProfileDraft, name: str) -> list[Any]:
    """All entries of a list that can be read."""
    numbers = {leaf.path[1]: leaf for leaf in draft.document.leaves if leaf.path[0] == name and len(leaf.path) > 2}
    sources = []
    for leaf in numbers.values():
        with contextlib.suppress(Unfit):  # reported where its path stands
            sources += _entry(draft, leaf)
    return sources


def _paths(draft: ProfileDraft, leaf: Leaf) -> list[str]:
    with contextlib.suppress(Unfit):  # reported where its path stands
        return [source["path"] if isinstance(source, dict) else source for source in _entry(draft, leaf)]
    return []


def _source(draft: ProfileDraft, leaf: Leaf) -> None:
    """What is a part of a source."""
    _entry(draft, leaf)
    draft.carry(leaf, LISTS[str(leaf.path[0])], _entries(draft, str(leaf.path[0])))
    if leaf.path[0] == "pretraining_dataset":
        draft.suppose("run.stage", "pretrain", "pretraining_dataset")


def _type(draft: ProfileDraft, leaf: Leaf) -> None:
    _form(draft, leaf)
    _source(draft, leaf)


def _column(draft: ProfileDraft, leaf: Leaf) -> None:
    """What a column is called, or a key of a turn."""
    form, key = _form(draft, leaf), leaf.name.partition("].")[2]
    if text(leaf.value) in _columns(draft, leaf, form).values():
        _source(draft, leaf)
    elif form in NAMES[key][0] or not form or (form, key) == ("sharegpt", "field_messages"):
        draft.drop(leaf, "as it is read here")
    else:
        raise Unfit(f"rows of the form {form} have no such column")


def _speaker(draft: ProfileDraft, leaf: Leaf) -> None:
    form = _form(draft, leaf)
    if any(name in _speakers(draft, leaf, form) for name in texts(leaf.value)):
        _source(draft, leaf)
    else:
        draft.drop(leaf, "known by these names here")


def _roles(draft: ProfileDraft, leaf: Leaf) -> None:
    if not {"assistant", "gpt"} >= set(texts(leaf.value)) != set():
        raise Unfit("the loss is on what the assistant says, or on everything (data.loss_on)")
    draft.drop(leaf, "the assistant's turns are trained on, as here")


def _plain_rows(draft: ProfileDraft, leaf: Leaf) -> None:
    """pretraining_dataset as one name."""
    draft.carry(leaf, "data.train", draft.rows(leaf.value))
    draft.suppose("run.stage", "pretrain", "pretraining_dataset")


def _in_own_words(draft: ProfileDraft, leaf: Leaf) -> bool:
    """Whether all rows that a template is named for are of type alpaca, which Axolotl writes in Alpaca's own words."""
    if len(leaf.path) > 1:
        return bool(_of(draft, leaf, "type") == "alpaca")
    types = ("datasets[].type", "test_datasets[].type")
    kinds = [other.value for other in draft.document.leaves if other.pattern in types]
    return bool(kinds) and all(kind == "alpaca" for kind in kinds)


def _template(draft: ProfileDraft, leaf: Leaf) -> None:
    name = text(leaf.value)
    if _in_own_words(draft, leaf):
        raise Unfit(OWN_WORDS)
    written = template_of_types(draft)
    if written and TEMPLATES.get(name) != written:
        raise Unfit(f"rows of such types are written as {written} there, whatever the template")
    if name == OWN:
        draft.carry(leaf, "data.chat_template", "none", "the tokenizer's own")
    elif name == "jinja":
        draft.drop(leaf, "chat_template_jinja says which")
    elif name in TEMPLATES:
        draft.carry(leaf, "data.chat_template", TEMPLATES[name])
    elif name.startswith(OWN):
        raise Unfit("the tokenizer's own is used; name a template if it has none")
    else:
        raise Unfit("there is no such template; the tokenizer's own is used")


def template_named(draft: ProfileDraft) -> str:
    """The name that the template of the file has here; empty where it is the tokenizer's own, or none of ours."""
    patterns = ("chat_template", "datasets[].chat_template", "datasets[].conversation")
    leaves = [leaf for leaf in draft.document.leaves if leaf.pattern in patterns and not _in_own_words(draft, leaf)]
    return next((name for leaf in leaves if (name := (TEMPLATES | CONVERSATIONS).get(str(leaf.value)))), "")


def _jinja(draft: ProfileDraft, leaf: Leaf) -> None:
    if _in_own_words(draft, leaf):
        raise Unfit(OWN_WORDS)
    otherwise = "a template stands in a .jinja file here: save it as one, and name it in data.chat_template"
    template_file(draft, leaf, otherwise)


def _format(draft: ProfileDraft, leaf: Leaf) -> None:
    """What stands around a column's text, in types of rows that the file defines itself."""
    if not is_on(leaf.value):
        draft.drop(leaf, OFF)
    elif compares(stage_of(draft)) and re.fullmatch(r"\{\w+\}", text(leaf.value)):
        draft.drop(leaf, "the text as it stands, as here")
    else:
        raise Unfit("data.chat_template writes the words around a row")


_ENDS = only("turn", "the end of each trained turn is trained on too, and no other",
             "the end of a trained turn is trained on, as here")  # fmt: skip


def _entry_rules(name: str) -> dict[str, Rule]:
    """The rules for the entries of one list."""
    rules = {
        **each(_source, "path name revision data_files"),
        **each(_column, " ".join(NAMES)),
        **each(_speaker, " ".join(f"roles.{role}" for role in ROLES)),
        **each(_ENDS, "train_on_eos train_on_eot"),
        "type": _type,
        "split": split_of(_source),
        "chat_template": _template,
        "chat_template_jinja": _jinja,
        "conversation": to("data.chat_template", one_of(CONVERSATIONS, "template; the tokenizer's own is used")),
        "roles_to_train": _roles,
        **each(_format, "type.*"),
        **drops("the file's name says it", "ds_type"),
        **drops("rows are read in one process", "preprocess_shards"),
        **drops("code of data sets is never run", "trust_remote_code"),
        **drops(
            "a weight below 1 in a [[data.train]] table takes a share of its rows per epoch",
            "shards shards_idx",
            matters=True,
        ),
        **drops("[data] has no such setting yet", "*", matters=True),
    }
    return {f"{name}[].{key}": rule for key, rule in rules.items()}


RULES: dict[str, Rule] = {
    **{key: rule for name in LISTS for key, rule in _entry_rules(name).items()},
    "pretraining_dataset": _plain_rows,
    "chat_template": _template,
    "chat_template_jinja": _jinja,
}


def suppose(draft: ProfileDraft) -> None:
    """Alpaca rows are written in Alpaca's own words; beside rows of other types there is one template for all."""
    if draft.given("data.chat_template") == "qwen":
        draft.drop_part("chat_template: its words", QWENS_SYSTEM, NO_SYSTEM)
    elif draft.given("data.chat_template") == "alpaca":
        why = "there without Alpaca's introduction, with which rows without a system turn begin here"
        draft.drop_part("chat_template: its words", "alpaca", why)
    sources = draft.values.get(("data", "train"))
    sources = sources if isinstance(sources, list) else []
    own = [path for leaf in draft.document.leaves if _is_own_type(draft, leaf) for path in _paths(draft, leaf)]
    tables = [source for source in sources if isinstance(source, dict) and source.get("format") == "alpaca"]
    alpaca = [source["path"] for source in tables if source["path"] not in own]
    if alpaca and len(alpaca) == len(sources):
        draft.suppose("data.chat_template", "alpaca", "type: alpaca there writes rows in these words")
    elif alpaca:
        draft.drop_part(f"datasets: {alpaca[0]}", "alpaca", f"{OWN_WORDS}; here one template writes all rows")
