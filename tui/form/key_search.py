"""Search for a key by words: in its name also with letters left out, in its help as it stands."""

from collections.abc import Iterable

from ftui.profile.aliases import OLD_SPELLINGS

from .form_fields import Field

NAME, WORD, INSIDE, LETTERS, HELP = 100, 80, 60, 30, 20  # the scores of one word's match, best first


def search(text: str, fields: Iterable[Field]) -> list[Field]:
    """The fields that have every word, the best first; all of them for no word."""
    words = text.casefold().replace(".", " ").replace("_", " ").split()
    if not words:
        return list(fields)
    scores = [(score, field) for field in fields if (score := _score(words, field)) > 0]
    return [field for _, field in sorted(scores, key=lambda pair: -pair[0])]


def _score(words: list[str], field: Field) -> float:
    name, meaning = field.name.casefold(), f"{field.meaning} {' '.join(field.choices)}".casefold()
    scores = [_score_word(word, name, meaning) for word in words]
    key = "_".join(words)
    whole = NAME if key == field.key[-1] or OLD_SPELLINGS.get(key, "").partition(" ")[0] == field.name else 0
    if not all(scores) and not whole:
        return 0
    return sum(scores) / len(scores) + whole - len(name) / 100 - 3 * (len(field.key) - 2)


def _score_word(word: str, name: str, meaning: str) -> float:
    parts = name.replace(".", "_").split("_")
    if word in parts or (len(word) > 1 and word == "".join(part[:1] for part in name.rpartition(".")[2].split("_"))):
        return NAME
    if any(part.startswith(word) for part in parts):
        return WORD
    if word in name.replace("_", ""):
        return INSIDE
    if f" {word}" in f" {meaning}":
        return HELP
    if len(word) > 1 and (spread := _spread(word, name)):
        return LETTERS / spread
    return HELP / 2 if len(word) > 2 and word in meaning else 0


def _spread(word: str, name: str) -> float:
    """How far apart the word's letters are in the name, in order from the start of one of its parts.

    1: side by side; 0: they are not all there.
    """
    spreads = []
    for start in [i for i in range(len(name)) if name[i] == word[0] and (i == 0 or name[i - 1] in "._")]:
        at = start
        for letter in word[1:]:
            at = name.find(letter, at + 1)
            if at < 0:
                break
        else:
            spreads.append((at - start + 1) / len(word))
    return min(spreads, default=0.0)
