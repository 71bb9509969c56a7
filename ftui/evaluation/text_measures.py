"""How close a generated answer is to that of the data: `ftui.measures.TEXT_MEASURES`, each by a published algorithm."""

import re
import string
import unicodedata
from collections import Counter
from collections.abc import Mapping, Sequence
from functools import cache
from importlib.metadata import PackageNotFoundError, version
from typing import Any

import msgspec

from ftui.measures import TEXT_MEASURES

ALGORITHMS = {
    "exact_match": "equal after SQuAD's normalisation (lower case, without punctuation, articles and extra spaces)",
    "token_f1": "SQuAD v2: F1 over the words that both have, after its normalisation",
    "rouge_l": "ROUGE-L, F-measure: longest common subsequence of words, without stemming; rouge_score's on ASCII text",
    "chrf": "chrF of a sentence by sacrebleu (character 6-grams, beta 2), mean over the rows",
    "bleu": "BLEU of a sentence by sacrebleu (13a tokens, exponential smoothing, effective order), mean over the rows",
    "json_valid": "share of answers that are JSON as a whole, of the rows whose own answer is a JSON object or array",
    "stopped": "share of answers that the model ended itself, not the limit of tokens",
    "num_tokens": "mean number of tokens",
}
"""What each of TEXT_MEASURES is, in words for readers."""

OF_SACREBLEU = ("chrf", "bleu")
ARTICLES = re.compile(r"\b(a|an|the)\b")
PUNCTUATION = str.maketrans("", "", string.punctuation)
WITHOUT_SPACES = re.compile(r"([\u3040-\u30ff\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff])")
"""Characters of scripts that put no spaces between words (Chinese, Japanese): each counts as a word."""


def score_answer(answer: str, reference: str, *, num_tokens: int, is_complete: bool) -> dict[str, float]:
    """All of TEXT_MEASURES that can be said of one answer.

    Left out, never 0: what needs sacrebleu where that is missing, whether it is JSON where the reference is none, and
    likeness to a reference without words.
    """
    scores = {"stopped": float(is_complete), "num_tokens": float(num_tokens)}
    scores["exact_match"] = float(exact_match(answer, reference))
    scores["token_f1"] = token_f1(answer, reference)
    if rouge_words(reference):
        scores["rouge_l"] = rouge_l(answer, reference)
    if reference.strip() and not why_missing():
        scores["chrf"], scores["bleu"] = chrf(answer, reference), bleu(answer, reference)
    if is_json_structure(reference):
        scores["json_valid"] = float(is_json(answer))
    return {name: scores[name] for name in TEXT_MEASURES if name in scores}


def mean_scores(scores: Sequence[Mapping[str, float]]) -> dict[str, float]:
    """The mean of each measure over the answers that have it; one that none has is left out."""
    means = {}
    for name in dict.fromkeys(name for row in scores for name in row):
        values = [row[name] for row in scores if name in row]
        means[name] = sum(values) / len(values)
    return means


@cache
def why_missing() -> str:
    """Why OF_SACREBLEU is not measured, and what helps; "" where it is."""
    try:
        version("sacrebleu")
    except PackageNotFoundError:
        return 'chrF and BLEU are not measured: sacrebleu is missing (pip install "finetune-tui[evaluate]").'
    return ""


def normalise(text: str) -> str:
    """SQuAD's normalisation: lower case, without ASCII punctuation and English articles, single spaces."""
    return " ".join(ARTICLES.sub(" ", text.lower().translate(PUNCTUATION)).split())


def exact_match(answer: str, reference: str) -> bool:
    """Whether both are the same after `normalise`."""
    return normalise(answer) == normalise(reference)


def token_f1(answer: str, reference: str) -> float:
    """F1 of the words of both as multisets, as SQuAD v2 has it; where one has none, whether neither has.

    Words are split at spaces, and each Chinese or Japanese character is one (as in XQuAD).
    """
    ours, theirs = (WITHOUT_SPACES.sub(r" \1 ", normalise(text)).split() for text in (answer, reference))
    if not ours or not theirs:
        return float(ours == theirs)
    common = (Counter(ours) & Counter(theirs)).total()
    return _f1(common, len(ours), len(theirs))


def rouge_l(answer: str, reference: str) -> float:
    """The F-measure of ROUGE-L (Lin 2004) over `rouge_words`, the whole answer as one sequence."""
    ours, theirs = rouge_words(answer), rouge_words(reference)
    return _f1(_lcs_length(ours, theirs), len(ours), len(theirs))


def rouge_words(text: str) -> list[str]:
    """Runs of letters, digits and marks in lower case: on ASCII text the words of rouge_score without a stemmer.

    That one drops all letters beyond ASCII: an answer in Greek would silently score 0.
    """
    kept = "".join(c if unicodedata.category(c)[0] in "LNM" else " " for c in text.lower())
    return WITHOUT_SPACES.sub(r" \1 ", kept).split()


def _lcs_length(first: Sequence[str], second: Sequence[str]) -> int:
    """Length of the longest common subsequence, a row of the table a whole number (Hyyrö 2004)."""
    places: dict[str, int] = {}
    for place, word in enumerate(first):
        places[word] = places.get(word, 0) | 1 << place
    every = row = (1 << len(first)) - 1
    for word in second:
        matches = row & places.get(word, 0)
        row = ((row + matches) | (row - matches)) & every
    return len(first) - row.bit_count()


def _f1(common: int, num_ours: int, num_theirs: int) -> float:
    return 2 * common / (num_ours + num_theirs) if common else 0.0


def chrf(answer: str, reference: str) -> float:
    """chrF of one answer by sacrebleu, 0 to 100."""
    return float(_sacrebleu().sentence_chrf(answer, [reference]).score)


def bleu(answer: str, reference: str) -> float:
    """BLEU of one answer by sacrebleu, 0 to 100."""
    return float(_sacrebleu().sentence_bleu(answer, [reference]).score)


def _sacrebleu() -> Any:
    import sacrebleu  # 0.1 s

    return sacrebleu


def is_json(text: str) -> bool:
    """Whether all of it is one JSON value (RFC 8259), spaces around it aside; one nested beyond reading is not."""
    try:
        msgspec.json.decode(text)
    except (msgspec.DecodeError, UnicodeError, RecursionError):
        return False
    return True


def is_json_structure(text: str) -> bool:
    """Whether it is a JSON object or array."""
    return text.lstrip()[:1] in ("{", "[") and is_json(text)
