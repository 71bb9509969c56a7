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
TWO_ANSWERS = (
    ("human_ref_A", "human_ref_B", "labels", 1),  # SHP
    ("response_0", "response_1", "better_response_id", 0),  # PKU-SafeRLHF
)
"""Columns of two answers, the one that says which is better, and what it says where the first is."""
RANKED = frozenset({"completions", "answers", "generations", "ratings"}).union(*(names[:3] for names in TWO_ANSWERS))
"""Columns of several answers, of which the best and the worst make a pair (engine/data/forms/ranked_answers.py)."""
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
COLUMNS["prompt"] = OF_CHATS | OF_TURNS | {"prompt"}
COLUMNS["kto"] = frozenset({"label", "kto_tag"}).union(
    *(COLUMNS[form] for form in COLUMNS if form not in ("text", "tokenized", "prompt"))
)
COLUMNS["preference"] = (
    frozenset({"chosen", "rejected", "prompt", "question", "margin", *RANKED})
    | COLUMNS["messages"] | COLUMNS["sharegpt"] | (COLUMNS["alpaca"] - {"output"})
)  # fmt: skip
"""All columns that a form reads, optional ones too, by the names that a profile uses."""


PAIR_SPELLINGS = {
    "chosen_response": "chosen", "rejected_response": "rejected",  # Argilla's, distilabel's
    "preferred_output": "chosen", "non_preferred_output": "rejected",  # OpenAI's
    "response_j": "chosen", "response_k": "rejected",  # of stack-exchange-paired
}  # fmt: skip
"""What the two answers of a pair are called in public data sets."""

OUR_COLUMNS = frozenset().union(*COLUMNS.values()) - (RANKED - COLUMNS["tokenized"])
"""Those that are known in any spelling."""


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
    respelled = {n: ours for n, ours in folded.items() if ours in OUR_COLUMNS and ours != n and times[ours] == 1}
    answers = {name: PAIR_SPELLINGS[one] for name, one in folded.items() if one in PAIR_SPELLINGS and times[one] == 1}
    return respelled | (answers if sorted(answers.values()) == sorted(SIGNS["preference"]) else {})


def form_of(keys: Collection[str]) -> str | None:
    """The form of rows with these keys; `None` if it is unknown."""
    respelled = respelled_columns(tuple(keys))
    keys = [respelled.get(key, key) for key in keys]
    form = next((name for name, signs in SIGNS.items() if signs <= set(keys)), None)
    return "kto" if any(key in keys and form in forms for key, forms in VERDICTS.items()) else form
