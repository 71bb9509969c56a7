"""Rewards by name. Each has TRL's call, and works on texts as on conversations; the options are keys of `[[rewards]]`.

They run in a worker as a person's functions do: an expression that somebody wrote may take for ever, too.
"""

import json
import re
from collections.abc import Callable, Mapping
from decimal import Decimal, InvalidOperation
from typing import Any

from ftui.rollouts import reasoning_gym_rows as gym

Function = Callable[..., list[float | None]]

ANSWER_COLUMNS = ("answer", "solution", "target", "ground_truth", "reference", "completion")
"""Columns where the right answer is looked for, in this order, unless the option `column` names one."""

_ANSWER = re.compile(r"<answer>(.*?)</answer>", re.DOTALL)
_NUMBER = re.compile(r"(?<![\w.])[-+]?(?:\d{1,3}(?:,\d{3})+|\d+)(?:\.\d+)?(?:[eE][-+]?\d+)?|(?<![\w.])[-+]?\.\d+")


def ready_reward(name: str, options: Mapping[str, Any]) -> Function:
    """The function of a name.

    Raises:
        ValueError: there is none, or an option is not one of it or is missing.
    """
    if name not in READY:
        raise ValueError(f"there is no reward {name!r}: {', '.join(READY)}, or FILE.py:NAME")
    try:
        return READY[name](**options)
    except TypeError as error:
        raise ValueError(str(error).replace(f"{READY[name].__name__}()", name)) from error


def text_of(completion: Any) -> str:
    """A completion as text: of messages, what the last one says."""
    if isinstance(completion, str):
        return completion
    content = completion[-1]["content"] if completion else ""
    return content if isinstance(content, str) else ""


def final_answer(text: str) -> str:
    """What a text gives as its answer: in the last <answer> or \\boxed, after the last ####, else all of it."""
    if tagged := _ANSWER.findall(text):
        return str(tagged[-1]).strip()
    if (boxed := _last_boxed(text)) is not None:
        return boxed.strip()
    return text.rpartition("####")[2].strip()


def _last_boxed(text: str) -> str | None:
    """What stands between the braces of the last \\boxed, braces within them included."""
    start = text.rfind("\\boxed{")
    depth = 0
    for place in range(start + len("\\boxed"), len(text)) if start >= 0 else ():
        depth += (text[place] == "{") - (text[place] == "}")
        if depth == 0:
            return text[start + len("\\boxed{") : place]
    return None


def last_number(text: str) -> Decimal | None:
    """The last number of a text's answer: 1,234 and 1234.0 are the same."""
    found = _NUMBER.findall(final_answer(text))
    try:
        return Decimal(found[-1].replace(",", "")) if found else None
    except InvalidOperation:
        return None


def _right_answers(columns: Mapping[str, list[Any]], column: str | None) -> list[Any]:
    names = ANSWER_COLUMNS if column is None else (column,)
    for name in names:
        if name in columns:
            return columns[name]
    raise ValueError(f"the rows have no column {' or '.join(names)} with the right answer")


def _exact_answer(column: str | None = None) -> Function:
    def exact_answer(completions: list[Any], **columns: Any) -> list[float | None]:
        right = _right_answers(columns, column)
        return [_compare(final_answer, given, one) for given, one in zip(completions, right, strict=True)]

    return exact_answer


def _number_answer(column: str | None = None) -> Function:
    def number_answer(completions: list[Any], **columns: Any) -> list[float | None]:
        right = _right_answers(columns, column)
        return [_compare(last_number, given, one) for given, one in zip(completions, right, strict=True)]

    return number_answer


def _compare(read: Callable[[str], Any], given: Any, right: Any) -> float | None:
    """1 or 0; `None` where the row has no answer to compare with."""
    if right is None or (expected := read(text_of(right) if isinstance(right, list) else str(right))) is None:
        return None
    return float(read(text_of(given)) == expected)


def _maths(column: str | None = None) -> Function:
    """By math-verify: 1/2, 0.5 and \\frac{1}{2} are the same."""
    try:
        from math_verify import parse, verify
    except ModuleNotFoundError as error:
        raise ValueError("it needs math-verify: pip install 'finetune-tui[rewards]'") from error

    def maths(completions: list[Any], **columns: Any) -> list[float | None]:
        values: list[float | None] = []
        for given, right in zip(completions, _right_answers(columns, column), strict=True):
            expected = None if right is None else parse(_as_maths(str(right)))
            values.append(float(verify(expected, parse(_as_maths(text_of(given))))) if expected else None)
        return values

    return maths


def _reasoning_gym() -> Function:
    """By the scorer of the task; `None` for a row that `ftui make-task reasoning-gym:NAME` has not made."""

    def reasoning_gym(prompts: list[Any], completions: list[Any], **columns: Any) -> list[float | None]:
        made = _right_answers(columns, gym.COLUMN)
        return [
            None if one is None else gym.gym_score(str(one), text_of(prompt), final_answer(text_of(given)))
            for prompt, given, one in zip(prompts, completions, made, strict=True)
        ]

    return reasoning_gym


def _as_maths(text: str) -> str:
    """The answer between dollars, where math-verify looks for LaTeX."""
    return f"${final_answer(text).strip('$')}$"


def _format(pattern: str) -> Function:
    compiled = re.compile(pattern, re.DOTALL)

    def matches_format(completions: list[Any], **_: Any) -> list[float | None]:
        return [float(compiled.search(text_of(one)) is not None) for one in completions]

    return matches_format


def _json_schema(schema: str | None = None) -> Function:
    """`schema`: the text of a JSON schema; without one any JSON will do."""
    is_valid = (lambda _: True) if schema is None else _validator(schema)

    def matches_schema(completions: list[Any], **_: Any) -> list[float | None]:
        return [float(_is_json(final_answer(text_of(one)), is_valid)) for one in completions]

    return matches_schema


def _validator(schema: str) -> Callable[[Any], bool]:
    try:
        from jsonschema import SchemaError, validators
    except ModuleNotFoundError as error:
        raise ValueError("a schema needs jsonschema: pip install 'finetune-tui[rewards]'") from error
    content = json.loads(schema)
    kind = validators.validator_for(content)
    try:
        kind.check_schema(content)
    except SchemaError as error:
        raise ValueError(f"the schema is none: {error.message}") from error
    return lambda value: bool(kind(content).is_valid(value))


def _is_json(text: str, is_valid: Callable[[Any], bool]) -> bool:
    fenced = re.fullmatch(r"```(?:json)?\s*\n(.*?)\n?```", text, re.DOTALL)
    try:
        return is_valid(json.loads(fenced[1] if fenced else text))
    except (ValueError, RecursionError):
        return False


def _length(max_length: int, min_length: int = 0) -> Function:
    def has_length(completion_ids: list[list[int]], **_: Any) -> list[float | None]:
        return [float(min_length <= len(ids) <= max_length) for ids in completion_ids]

    return has_length


def _repetition(ngram_size: int = 3, penalty: float = 1.0) -> Function:
    """-penalty x (1 - different n-grams of words / all of them), as Open-R1 has it (its max_penalty is -penalty)."""

    def repetition(completions: list[Any], **_: Any) -> list[float | None]:
        return [-penalty * _repeated(text_of(one).lower().split(), ngram_size) for one in completions]

    return repetition


def _repeated(words: list[str], size: int) -> float:
    ngrams = [tuple(words[start : start + size]) for start in range(len(words) - size + 1)]
    return 1 - len(set(ngrams)) / len(ngrams) if ngrams else 0.0


def _overlong(max_length: int, cache: int) -> Function:
    """DAPO's soft overlong punishment (arXiv 2503.14476, equation 13): from 0 to -1 over the last `cache` tokens."""
    if not 0 < cache <= max_length:
        raise ValueError(f"cache must be from 1 to max_length = {max_length}")

    def overlong(completion_ids: list[list[int]], **_: Any) -> list[float | None]:
        return [-min(1.0, max(0, len(ids) - (max_length - cache)) / cache) for ids in completion_ids]

    return overlong


READY: dict[str, Callable[..., Function]] = {
    "exact_answer": _exact_answer,
    "number_answer": _number_answer,
    "maths": _maths,
    gym.COLUMN: _reasoning_gym,
    "format": _format,
    "json_schema": _json_schema,
    "length": _length,
    "repetition": _repetition,
    "overlong": _overlong,
}
"""By name, what makes the function from its options."""
