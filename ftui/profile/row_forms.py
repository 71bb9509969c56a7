"""What the forms of rows are known by: the keys of a row. The engine reads them, a list of files shows them."""

from collections.abc import Collection

SIGNS: dict[str, frozenset[str]] = {
    "messages": frozenset({"messages"}),
    "sharegpt": frozenset({"conversations"}),
    "alpaca": frozenset({"instruction", "output"}),
    "dolly": frozenset({"instruction", "context", "response"}),
    "instruction_response": frozenset({"instruction", "response"}),
    "question_answer": frozenset({"question", "answer"}),
    "prompt_completion": frozenset({"prompt", "completion"}),
    "text": frozenset({"text"}),
}
PAIR = frozenset({"chosen", "rejected"})
"""Of a preference pair, which no form here can learn from."""


def form_of(keys: Collection[str]) -> str | None:
    """The form that rows with these keys have; `None` for none that is known."""
    if set(keys) >= PAIR:
        return None
    return next((name for name, signs in SIGNS.items() if signs <= set(keys)), None)
