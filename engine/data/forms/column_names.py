"""What columns, keys and speakers are called in the rows of one source, where not as the forms call them."""

import json
import re
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from difflib import get_close_matches
from typing import Any

from ftui.profile.sections.row_forms import COLUMNS, OUR_COLUMNS, RANKED, SIGNS, fold_name, respelled_columns
from ftui.text import cut, shown, toml_value

from ..files.raw_rows import Row

OF_TURNS = ("role", "content")
MINUS = " - "  # stands between two columns whose difference is a margin
SCORES = ("score_chosen", "score_rejected")  # which rows with several answers get (ranked_answers.py)
MAY_BE_EMPTY = ("messages", "conversations", "chosen", "rejected", "input_ids")


@dataclass(frozen=True)
class ColumnNames:
    """`columns`: the form's name of a column -> the one it has here; `role` and `content` are those of a turn's keys.

    A column called "" here is not read.
    `roles`: what a speaker is called here -> system, user, assistant, tool or function_call.
    """

    columns: Mapping[str, str] = field(default_factory=dict)
    roles: Mapping[str, str] = field(default_factory=dict)

    def __hash__(self) -> int:
        return hash((tuple(sorted(self.columns.items())), tuple(sorted(self.roles.items()))))


STANDARD_NAMES = ColumnNames()
"""Everything is called as the forms call it."""


def nearest_name_hint(name: str | None, there: Iterable[str]) -> str:
    """A hint: what may have been meant by a name that is not there."""
    close = get_close_matches(name or "", list(there), n=1, cutoff=0.6)
    return f"Is {close[0]!r} meant?" if close else ""


def rename_columns(row: Row, shape: ColumnNames) -> Row:
    """The row with its columns called as the forms call them. Those that lend their place to another are gone."""
    columns = _of_rows(shape)
    value = row.value
    if columns:
        rest = {name: cell for name, cell in value.items() if name not in columns and name not in columns.values()}
        value = rest | {ours: value[theirs] for ours, theirs in columns.items() if theirs and theirs in value}
    respelled = {theirs: ours for theirs, ours in respelled_columns(tuple(value)).items() if ours not in columns}
    if respelled:
        value = {respelled.get(name, name): cell for name, cell in value.items()}
    return row if value is row.value else row.with_value(value)


def match_form(row: Row, signs: Mapping[str, Collection[str]]) -> str | None:
    """The first of these forms whose columns the row has; `None` for none.

    Tables that were put together have a column for turns or tokens in all their rows: where its cell is empty, the row
    has another form, if there is one.
    """
    full = {name for name, value in row.value.items() if value or name not in MAY_BE_EMPTY}
    for there in (full, row.value.keys()):
        if (match := next((form for form, needed in signs.items() if there >= set(needed)), None)) is not None:
            return match
    return None


def missing_columns(there: Collection[str], shape: ColumnNames) -> list[str]:
    """In words, each column of the mapping that is not `there`."""
    names = ", ".join(map(repr, there)) or "(none)"
    named = [(ours, one) for ours, theirs in _of_rows(shape).items() for one in _split_difference(ours, theirs, there)]
    made = SCORES if RANKED & set(there) else ()
    absent = [(ours, theirs) for ours, theirs in named if theirs and theirs not in (*there, *made)]
    return [
        " ".join(
            filter(
                None,
                (
                    f"data.columns.{ours} is {theirs!r}{f'; there are {names}' if not number else ''}.",
                    nearest_name_hint(theirs, there),
                ),
            )
        )
        for number, (ours, theirs) in enumerate(absent)
    ]


def _split_difference(ours: str, theirs: str, there: Collection[str]) -> list[str]:
    """The columns that a name of the mapping stands for: two where a margin is the difference of them."""
    return theirs.split(MINUS) if ours == "margin" and theirs not in there else [theirs]


def _of_rows(shape: ColumnNames) -> dict[str, str]:
    return {ours: theirs for ours, theirs in shape.columns.items() if ours not in OF_TURNS}


FORMS = "docs/data.md names the columns of every form."
SECOND = "the form's name stands first, then what the column is called here"
QUESTIONS = {
    *("question", "prompt", "instruction", "query", "input", "inputs", "problem", "user", "human", "request"),
    *("frage", "pregunta", "domanda", "pergunta", "pytanie", "\u0432\u043e\u043f\u0440\u043e\u0441", "\u95ee\u9898"),
    *("anweisung", "consigne", "instrucci\u00f3n", "instruccion", "istruzione", "instru\u00e7\u00e3o", "\u6307\u4ee4"),
}
ANSWERS = {
    *("answer", "response", "output", "completion", "solution", "reply", "assistant", "target", "targets"),
    *("gpt", "bot", "ai", "\u8f93\u51fa"),
    *("antwort", "respuesta", "r\u00e9ponse", "reponse", "risposta", "resposta", "odpowied\u017a", "odpowiedz"),
    *("\u043e\u0442\u0432\u0435\u0442", "\u56de\u7b54", "\u7b54\u6848"),
}
"""What columns are called that ask or answer beyond doubt: other pairs are asked about, not guessed."""
MEDIA = ("images", "videos", "audios", "image", "video", "audio")
SPEAKER_KEYS = {"role", "from", "speaker", "author", "sender", "who", "name"}
TEXT_KEYS = {"content", "value", "text", "message", "utterance", "said", "body"}
# Columns about a row, not of it: told by their names.
ABOUT = re.compile(
    r"""(?:.*_)?(?:id|ids|idx|index|uuid|guid|hash|md5|sha\d*|url|urls|uri|link|links|source|sources|src|origin|dataset
    |data_?source|subset|config|split|category|categories|tag|tags|topic|topics|type|kind|task|task_name|domain
    |lang|language|languages|locale|license|licence|author|authors|username|date|time|datetime|timestamp|created
    |updated|year|created_at|updated_at|model|model_name|generator|version|score|scores|rating|ratings
    |difficulty|level|quality|num_\w+|count|length|tokens|n_tokens|meta|metadata|meta_data|extra_info|info|file
    |filename|file_name|path|__index_level_\d+__)""",
    re.VERBOSE | re.IGNORECASE,
)
EXCERPT = 40  # columns of a text that is told
LONGEST_NAME = 60  # columns of a name that is told
_INDEX = "__index_level_"  # a column that pandas adds to a parquet file


def column_list(row: Row) -> str:
    """The columns of the row as an error names them."""
    return (
        ", ".join(repr(cut(shown(name), LONGEST_NAME)) for name in row.value if not name.startswith(_INDEX)) or "(none)"
    )


def naming_hint(rows: Sequence[Row], shape: ColumnNames) -> str:
    """A hint: the mapping that was meant, or one that the rows give evidence of; else a question."""
    names = list(dict.fromkeys(name for row in rows for name in row.value))
    turned = {theirs: ours for ours, theirs in shape.columns.items() if ours in names and theirs in OUR_COLUMNS}
    if turned:
        return f"It is the other way round: {_as_toml(turned)}; {SECOND}."
    if absent := missing_columns(names, shape):
        return " ".join(absent)
    cells = {name: [row.value[name] for row in rows if row.value.get(name)] for name in names}
    for name, values in cells.items():
        if (columns := _turn_columns(name, values)) is not None:
            return f"{name!r} holds turns: {_as_toml(columns)}. {FORMS}"
    media = [name for name, values in cells.items() if any(is_media(name, cell) for cell in values)]
    if media:
        texts = [row.with_value({name: cell for name, cell in row.value.items() if name not in media}) for row in rows]
        first = f"{', '.join(map(repr, media))} holds pictures or sound, and only text can be trained on."
        return f"{first} {naming_hint(texts, shape)}"
    words = [name for name, values in cells.items() if values and all(isinstance(cell, str) for cell in values)]
    words = [name for name in words if not ABOUT.fullmatch(name)]
    if misspelt := _find_misspelt(names, words):
        return f"Is {next(iter(misspelt.values()))!r} meant? {_as_toml(misspelt)}. {FORMS}"
    asks, answers = ([name for name in words if _words_of(name) <= side] for side in (QUESTIONS, ANSWERS))
    asks = asks if len(asks) < 2 else [name for name in asks if fold_name(name) != "input"]  # which is more of a prompt
    if len(asks) == len(answers) == 1:
        pair = {"question": asks[0], "answer": answers[0]}
        lost = [name for name in words if name not in (*pair.values(), *COLUMNS["question_answer"])]
        beside = f" {', '.join(map(repr, lost))} would not be trained on." if lost else ""
        return f"Say what they are: {_as_toml({o: t for o, t in pair.items() if o != t})}: {SECOND}.{beside} {FORMS}"
    others = [name for name in names if name not in words and not ABOUT.fullmatch(name)]
    if len(words) == 1 and not others and any(len(cell.split()) > 1 for cell in cells[words[0]]):
        return f"To train on {words[0]!r} as plain text: {_as_toml({'text': words[0]})}. {FORMS}"
    return _ask_for_names({name: cells[name][0] for name in words}, [name for name in others if cells[name]])


def _find_misspelt(names: list[str], words: list[str]) -> dict[str, str]:
    """The mapping for a column of text whose name is nearly the one that a form still lacks."""
    folded = set(map(fold_name, names))
    for signs in SIGNS.values():
        missing = signs - folded
        if len(missing) == 1 < len(signs):
            (ours,) = missing
            if close := get_close_matches(ours, words, n=1, cutoff=0.8):
                return {ours: close[0]}
    return {}


def _ask_for_names(words: dict[str, str], others: list[str]) -> str:
    """A hint for columns of which nobody can tell what they are, each with the first text in it.

    Of two columns, where the answer is in one of them, both readings are shown, each with what it would train on.
    """
    listed = ", ".join(map(repr, others))
    nested = f" Text inside of {listed} is not found: write it into a column of its own." if others else ""
    if not words:
        return f"No column holds text: is it the right file?{nested} {FORMS}"
    pair = 'Say so: data.columns = {question = "NAME", answer = "NAME"}'
    if len(words) == 2 and not others:
        one, other = words
        readings = [
            f'{_as_toml({"question": asks, "answer": answers})} trains on "{cut(shown(words[answers]), EXCERPT)}"'
            for asks, answers in ((one, other), (other, one))
        ]
        pair = ", ".join(readings)
    return f'Which column asks and which one answers? {pair}, or {{text = "NAME"}} for plain text.{nested} {FORMS}'


def _words_of(name: str) -> set[str]:
    """`Bot Response` is of an answer as both its words are."""
    return set(re.sub(r"_(text|message|content)$", "", fold_name(name)).split("_"))


def is_media(name: str, cell: Any) -> bool:
    """Whether a cell is a picture or sound: a struct of `bytes` and `path` is how `datasets` writes them."""
    return (isinstance(cell, dict) and {"bytes", "path"} <= cell.keys()) or name.lower() in MEDIA


def _turn_columns(name: str, cells: Sequence[Any]) -> dict[str, str] | None:
    """The mapping for a column of turns; `None` where it holds something else."""
    lists = [_as_list(cell) for cell in cells]
    turns = [turn for each in lists for turn in each or ()]
    if not turns or None in lists or not all(isinstance(turn, dict) for turn in turns):
        return None
    keys = set.intersection(*(set(turn) for turn in turns))
    speaker = next((key for key in keys if fold_name(key) in SPEAKER_KEYS), None)
    text = next((key for key in keys if fold_name(key) in TEXT_KEYS), None)
    if speaker is None or text is None:
        return None
    named = {"role": speaker} if speaker not in ("role", "from") else {}
    return {"messages": name} | named | ({"content": text} if text not in ("content", "value") else {})


def _as_list(cell: Any) -> list[Any] | None:
    if isinstance(cell, str) and cell.lstrip().startswith("["):
        try:
            cell = json.loads(cell)
        except (ValueError, RecursionError):
            return None
    return cell if isinstance(cell, list) else None


def _as_toml(columns: dict[str, str]) -> str:
    return f"data.columns = {toml_value(columns)}"
