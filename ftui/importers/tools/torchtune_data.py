"""torchtune's builders of data sets: which rows they read, and what is learned of them (0.2 to 0.6)."""

from typing import Any

from ftui.importers.config_file import Leaf
from ftui.importers.draft import Draft, Rule, drops
from ftui.importers.values import Unfit, flag, text, texts

DATASETS = {
    "alpaca_dataset": "tatsu-lab/alpaca",
    "alpaca_cleaned_dataset": "yahma/alpaca-cleaned",
    "slimorca_dataset": "Open-Orca/SlimOrca-Dedup",
}
ALPACA = ("alpaca_dataset", "alpaca_cleaned_dataset")
STYLES = {"sharegpt": ("sharegpt", "conversations"), "openai": ("messages", "messages")}
# What the builder calls a column -> what the form here calls it.
COLUMNS = {"alpaca": {"instruction": "instruction", "input": "input", "output": "output"},
           "question_answer": {"input": "question", "output": "answer"}}  # fmt: skip
LOADERS = ("json", "csv", "parquet", "text")


def builder(draft: Draft) -> str:
    return str(draft.raw("dataset._component_") or "").rpartition(".")[2]


def _form(draft: Draft) -> str:
    """The form of the rows; empty where it has to be looked at."""
    name, style = builder(draft), draft.raw("dataset.conversation_style")
    if name in ALPACA:
        return "alpaca"
    if isinstance(style, str) and style in STYLES:
        return STYLES[style][0]
    return {"instruct_dataset": "question_answer", "text_completion_dataset": "text"}.get(name, "")


def _columns(draft: Draft, form: str) -> dict[str, str]:
    found: dict[str, Any] = {}
    if form in COLUMNS:
        given = {theirs: draft.raw(f"dataset.column_map.{theirs}") for theirs in COLUMNS[form]}
        usual = {theirs: theirs for theirs in COLUMNS[form]} if form == "question_answer" else {}
        found = {COLUMNS[form][theirs]: given[theirs] or usual.get(theirs) for theirs in COLUMNS[form]}
    elif form == "text":
        found = {"text": draft.raw("dataset.column")}
    elif form in ("sharegpt", "messages"):
        found = {dict(STYLES.values())[form]: draft.raw("dataset.conversation_column")}
    return {ours: theirs for ours, theirs in found.items() if isinstance(theirs, str) and theirs not in ("", ours)}


def _sources(draft: Draft) -> Any:
    """What is trained on, as the profile says it.

    Raises:
        Unfit: nobody knows where it is.
    """
    name, source, files = builder(draft), draft.raw("dataset.source"), draft.raw("dataset.data_files")
    if files and source in (*LOADERS, None):
        each = [draft.rows(one) for one in texts(files)]
    elif source and source not in LOADERS:
        each = [draft.rows(source)]
    elif name in DATASETS:
        each = [DATASETS[name]]
    else:
        raise Unfit("ftui does not know where these rows are")
    form, split, subset = _form(draft), draft.raw("dataset.split"), draft.raw("dataset.name")
    columns = _columns(draft, form)
    more: dict[str, Any] = {"format": form} if form and (columns or name not in DATASETS) else {}
    more |= {"columns": columns} if columns else {}
    more |= {"subset": subset} if isinstance(subset, str) and subset else {}
    more |= {"split": split} if isinstance(split, str) and split not in ("", "train") and "[" not in split else {}
    found = [{"path": one} | more if more else one for one in each]
    return found[0] if len(found) == 1 and not more and not files else found


def _source(draft: Draft, leaf: Leaf) -> None:
    draft.carry(leaf, "data.train", _sources(draft))


def _style(draft: Draft, leaf: Leaf) -> None:
    if text(leaf.value) not in STYLES:
        raise Unfit("there is no such form of rows; docs/profile.md names those there are")
    _source(draft, leaf)


def _column(draft: Draft, leaf: Leaf) -> None:
    name = text(leaf.value)
    columns = _columns(draft, _form(draft))
    if name in columns.values():
        _source(draft, leaf)
    elif leaf.path[-1] in COLUMNS.get(_form(draft), ()) or _form(draft) in ("text", "sharegpt", "messages"):
        draft.drop(leaf, "as it is read here")
    else:
        raise Unfit("which form the rows have is not said: set data.format and data.columns")


def _split(draft: Draft, leaf: Leaf) -> None:
    if "[" in text(leaf.value):
        raise Unfit("a part of a split cannot be named; all of it is read")
    if leaf.value == "train":
        draft.drop(leaf, "train: as here where nothing is said")
    else:
        _source(draft, leaf)


def _loss(draft: Draft, leaf: Leaf) -> None:
    draft.carry(leaf, "data.loss_on", "everything" if flag(leaf.value) else "assistant")


RULES: dict[str, Rule] = {
    "dataset._component_": _source,
    "dataset.source": _source,
    "dataset.data_files": _source,
    "dataset.name": _source,
    "dataset.split": _split,
    "dataset.conversation_style": _style,
    "dataset.conversation_column": _column,
    "dataset.column": _column,
    "dataset.column_map.*": _column,
    "dataset.train_on_input": _loss,
    **drops("the system prompt of each row stays as it is: write it into the rows", "dataset.new_system_prompt",
            matters=True),
}  # fmt: skip


def suppose(draft: Draft) -> None:
    """What a builder does where nothing is said, and what of it has no place here."""
    if builder(draft) in ALPACA:
        draft.suppose("data.loss_on", "everything", "torchtune's default of its Alpaca builders: train_on_input")
        reason = (
            "torchtune puts Alpaca's words around a row, within the model's own marks; here instruction and input "
            'alone stand within the marks. data.chat_template = "alpaca" writes these words, and no marks'
        )
        draft.tell("dataset: prompt template", "Alpaca", reason)
