"""Measures of answers equal what others compute: SQuAD's script, rouge_score, sacrebleu."""

import random
from importlib.metadata import PackageNotFoundError
from typing import Any

import pytest

from ftui.evaluation import text_measures
from ftui.evaluation.text_measures import (
    ALGORITHMS,
    exact_match,
    is_json,
    mean_scores,
    rouge_l,
    rouge_words,
    score_answer,
    token_f1,
)
from ftui.measures import TEXT_MEASURES

SQUAD = (  # answer, reference, and what SQuAD's script says (transformers 4: squad_metrics.py)
    ("The cat sat.", "a cat sat", 1, 1.0),
    ("cat dog", "dog cat bird", 0, 0.8),
    ("", "the", 1, 1),
    ("", "word", 0, 0),
    ("yes yes yes", "yes no", 0, 0.4),
    ("U.S.A.", "USA", 1, 1.0),
    ("an hour-long trip", "hour long trip", 0, 0.4),
    ("Paris, France", "paris", 0, 0.666666666667),
    ("Über Äpfel", "über äpfel", 1, 1.0),
    ("theatre", "the atre", 0, 0),
    ("  two\n lines ", "two lines", 1, 1.0),
    ("nothing", "everything", 0, 0),
)


@pytest.mark.parametrize(("answer", "reference", "exact", "f1"), SQUAD)
def test_exact_match_and_f1_are_those_of_squad(answer: str, reference: str, exact: int, f1: float) -> None:
    assert exact_match(answer, reference) == exact
    assert token_f1(answer, reference) == pytest.approx(f1, abs=1e-11)


def texts(number: int) -> list[tuple[str, str]]:
    """Pairs of made sentences that share some words, with punctuation, digits and capitals."""
    draw = random.Random(7)
    words = [
        "the",
        "a",
        "Model",
        "answers,",
        "answer.",
        "it's",
        "12",
        "3.5",
        "snake_case",
        "END!",
        "(see)",
        "x-ray",
        "...",
    ]
    return [
        (" ".join(draw.choices(words, k=draw.randint(0, 30))), " ".join(draw.choices(words, k=draw.randint(1, 30))))
        for _ in range(number)
    ]


@pytest.mark.slow  # imports nltk
def test_rouge_l_is_that_of_rouge_score() -> None:
    from rouge_score.rouge_scorer import RougeScorer

    class Words:
        def tokenize(self, text: str) -> list[str]:
            return rouge_words(text)

    theirs, with_our_words = RougeScorer(["rougeL"]), RougeScorer(["rougeL"], tokenizer=Words())
    for answer, reference in texts(200):
        assert rouge_l(answer, reference) == pytest.approx(theirs.score(reference, answer)["rougeL"].fmeasure)
    for answer, reference in (
        ("Γάτα κάθεται", "η γάτα κοιμάται"),
        ("हिन्दी में उत्तर", "हिन्दी उत्तर"),
        ("猫が座る", "猫は座る"),
    ):
        expected = with_our_words.score(reference, answer)["rougeL"].fmeasure
        assert rouge_l(answer, reference) == pytest.approx(expected) and 0 < expected < 1


def test_chrf_and_bleu_are_those_of_sacrebleu() -> None:
    from sacrebleu.metrics.bleu import BLEU
    from sacrebleu.metrics.chrf import CHRF

    pairs = texts(20)
    for answer, reference in pairs:
        scores = score_answer(answer, reference, num_tokens=1, is_complete=True)
        assert scores["chrf"] == CHRF().sentence_score(answer, [reference]).score
        assert scores["bleu"] == BLEU(effective_order=True).sentence_score(answer, [reference]).score


JSON = (
    ('{"a": [1, null]}', True), (" [1]\n", True), ('"text"', True), ("", False), ("{'a': 1}", False), ("[1,]", False),
    ("[NaN]", False), ('```json\n{"a": 1}\n```', False), ("[" * 100_000 + "]" * 100_000, False), ('{"a": 1} so', False),
)  # fmt: skip


@pytest.mark.parametrize(("text", "valid"), JSON, ids=[text[:12] for text, _ in JSON])
def test_what_is_json(text: str, valid: bool) -> None:
    assert is_json(text) == valid


def test_what_cannot_be_said_of_an_answer_is_left_out(monkeypatch: pytest.MonkeyPatch) -> None:
    def names(reference: str) -> set[str]:
        return set(score_answer("an answer", reference, num_tokens=3, is_complete=False))

    assert names('{"a": 1}') == set(TEXT_MEASURES)
    assert names("some text") == set(TEXT_MEASURES) - {"json_valid"}
    assert "rouge_l" not in names("?!") and "chrf" not in names(" ")

    def missing(name: str) -> Any:
        raise PackageNotFoundError(name)

    monkeypatch.setattr(text_measures, "version", missing)
    text_measures.why_missing.cache_clear()
    try:
        assert "finetune-tui[evaluate]" in text_measures.why_missing()
        assert names('{"a": 1}') == set(TEXT_MEASURES) - {"chrf", "bleu"}
    finally:
        text_measures.why_missing.cache_clear()


def test_means_are_over_the_answers_that_have_the_measure() -> None:
    assert mean_scores([{"a": 1.0}, {"a": 0.0, "b": 3.0}]) == {"a": 0.5, "b": 3.0}


def test_each_measure_says_how_it_is_computed() -> None:
    assert list(ALGORITHMS) == list(TEXT_MEASURES)
