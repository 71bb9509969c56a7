"""The forms of rows and their columns: how a form is recognised, and what it reads."""

import re
from collections import Counter
from collections.abc import Collection
from functools import lru_cache

SIGNS: dict[str, frozenset[str]] = {
    "preference": frozenset({"chosen", "rejected"}),
    "messages": frozenset({"messages"}),
    "sharegpt": frozenset({"conversations"}),
    "alpaca": frozenset({"instruction", "output"}),
    "dolly": frozenset({"instruction", "context", "response"}),
    "instruction_response": frozenset({"instruction", "response"}),
    "question_answer": frozenset({"question", "answer"}),
    "prompt_completion": frozenset({"prompt", "completion"}),
    "text": frozenset({"text"}),
    "tokenized": frozenset({"input_ids"}),
}
"""The columns by which each form is recognised. `kto` rows have one of these forms, and a label beside the answer."""
VERDICTS = {
    "kto_tag": frozenset({"messages", "sharegpt", "alpaca", "prompt_completion"}),
    "label": frozenset({"messages", "sharegpt", "prompt_completion"}),
}
"""Columns of a `kto` label, and the forms in which they are one (elsewhere, `label` often means something else)."""


OF_TURNS = frozenset({"role", "content"})
"""Keys of every turn of a conversation: not columns, but named in the same way."""
OF_CHATS = frozenset({"system", "system_prompt", "tools"})
"""Columns beside a conversation: only a chat template has a place for them."""
_OF_QUESTIONS = OF_CHATS | {"context", "input", "history"}
COLUMNS: dict[str, frozenset[str]] = {
    "messages": OF_CHATS | OF_TURNS | {"messages"},
    "sharegpt": OF_CHATS | OF_TURNS | {"conversations"},
    "alpaca": _OF_QUESTIONS | {"instruction", "output"},
    "dolly": _OF_QUESTIONS | {"instruction", "response"},
    "instruction_response": _OF_QUESTIONS | {"instruction", "response"},
    "question_answer": _OF_QUESTIONS | {"question", "answer"},
    "prompt_completion": OF_CHATS | OF_TURNS | {"prompt", "completion"},
    "text": frozenset({"text"}),
    "tokenized": frozenset({"input_ids", "labels", "attention_mask", "completion_mask", "assistant_masks"}),
}
COLUMNS["kto"] = frozenset({"label", "kto_tag"}).union(*(COLUMNS[form] for form in VERDICTS["kto_tag"]))
COLUMNS["preference"] = (
    frozenset({"chosen", "rejected", "prompt", "question", "margin"})
    | COLUMNS["messages"] | COLUMNS["sharegpt"] | (COLUMNS["alpaca"] - {"output"})
)  # fmt: skip
"""All columns that a form reads, optional ones too, by the names that a profile uses."""


OUR_COLUMNS = frozenset().union(*COLUMNS.values())


def fold_name(name: str) -> str:
    """A column's name as the forms spell theirs: `System Prompt ` is `system_prompt`."""
    return re.sub(r"[\s_-]+", "_", name.strip().lower())


@lru_cache(maxsize=1024)
def respelled_columns(names: tuple[str, ...]) -> dict[str, str]:
    """Columns that only differ from those of the forms in case, spaces and hyphens, with the forms' spelling.

    None where the names are those of a form already, or two of them would become one.
    """
    if any(signs <= set(names) for signs in SIGNS.values()):
        return {}
    folded = {name: fold_name(name) for name in names}
    times = Counter(folded.values())
    return {name: ours for name, ours in folded.items() if ours in OUR_COLUMNS and ours != name and times[ours] == 1}


def form_of(keys: Collection[str]) -> str | None:
    """The form of rows with these keys; `None` if it is unknown."""
    respelled = respelled_columns(tuple(keys))
    keys = [respelled.get(key, key) for key in keys]
    form = next((name for name, signs in SIGNS.items() if signs <= set(keys)), None)
    return "kto" if any(key in keys and form in forms for key, forms in VERDICTS.items()) else form
