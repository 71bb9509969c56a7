"""What the forms of rows are known by: the keys of a row. The engine reads them, a list of files shows them."""

from collections.abc import Collection

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
"""Rows of `kto` are those of some of these with a verdict beside the answer."""
VERDICTS = {
    "kto_tag": frozenset({"messages", "sharegpt", "alpaca", "prompt_completion"}),
    "label": frozenset({"messages", "sharegpt", "prompt_completion"}),
}
"""Where a verdict stands, and beside answers of which forms it is one (a `label` is often something else)."""


OF_TURNS = frozenset({"role", "content"})
"""What every turn of a conversation has: not a column, but named as one is."""
OF_CHATS = frozenset({"system", "system_prompt", "tools"})
"""What stands beside a conversation: text that no template makes has no place for it."""
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
    frozenset({"chosen", "rejected", "prompt", "question"})
    | COLUMNS["messages"] | COLUMNS["sharegpt"] | (COLUMNS["alpaca"] - {"output"})
)  # fmt: skip
"""All columns that a form reads, those it can do without among them, as a profile names them."""


def form_of(keys: Collection[str]) -> str | None:
    """The form that rows with these keys have; `None` for none that is known."""
    form = next((name for name, signs in SIGNS.items() if signs <= set(keys)), None)
    return "kto" if any(key in keys and form in forms for key, forms in VERDICTS.items()) else form
