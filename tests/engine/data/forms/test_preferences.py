"""Pairs and verdicts in the spellings of public data sets: what is read of each, and what is said of those that cannot
be.
"""

import json
from pathlib import Path
from typing import Any

import pytest

from ftui.engine.data.files.raw_rows import Row
from ftui.engine.data.forms.column_names import ColumnNames, missing_columns, rename_columns
from ftui.engine.data.forms.detect_form import form_of_row
from ftui.engine.data.forms.examples import Chat, Completion, JudgedAnswer, Pair
from ftui.engine.data.forms.formats import to_example
from ftui.engine.data.forms.unused_columns import unused_columns
from ftui.errors import DataError

SCORES = ColumnNames({"margin": "score_chosen - score_rejected"})
PAIR = {"prompt": "why?", "chosen": "so", "rejected": "no"}


def row(**value: Any) -> Row:
    return Row(Path("rows.jsonl"), 7, value)


@pytest.mark.parametrize(
    ("columns", "shape", "margin"),
    [
        ({}, ColumnNames(), 0.0),
        ({"margin": 1.5}, ColumnNames(), 1.5),
        ({"margin": -2}, ColumnNames(), -2.0),
        ({"margin": "0.25"}, ColumnNames(), 0.25),
        ({"margin": None}, ColumnNames(), 0.0),
        ({"margin": "large"}, ColumnNames({"margin": ""}), 0.0),
        ({"by": 3}, ColumnNames({"margin": "by"}), 3.0),
        ({"score_chosen": 8.5, "score_rejected": 7.0}, ColumnNames(), 0.0),
        ({"score_chosen": 8.5, "score_rejected": 7.0}, SCORES, 1.5),
        ({"score_chosen": "5", "score_rejected": "7"}, SCORES, -2.0),
        ({"a - b": 4.0, "a": 1.0}, ColumnNames({"margin": "a - b"}), 4.0),
    ],
)
def test_a_margin_is_a_column_or_a_difference(columns: dict[str, Any], shape: ColumnNames, margin: float) -> None:
    pair = to_example(row(**PAIR, **columns), "preference", shape)
    assert isinstance(pair, Pair)
    assert pair.margin == margin


@pytest.mark.parametrize(
    ("columns", "shape", "error"),
    [
        ({"margin": "large"}, ColumnNames(), "'margin' is no number ('large')"),
        ({"margin": True}, ColumnNames(), "'margin' is no number (True)"),
        ({"margin": [1]}, ColumnNames(), "'margin' is no number ([1])"),
        ({"margin": float("nan")}, ColumnNames(), "'margin' is no number (nan)"),
        ({"margin": 10**400}, ColumnNames(), "'margin' is no number (1000"),
        ({"score_chosen": 1, "score_rejected": None}, SCORES, "'score_rejected' is missing"),
    ],
)
def test_a_margin_that_is_no_number_is_an_error(columns: dict[str, Any], shape: ColumnNames, error: str) -> None:
    with pytest.raises(DataError) as caught:
        to_example(row(**PAIR, **columns), "preference", shape)
    assert error in caught.value.message
    assert caught.value.hint == 'data.columns = {margin = ""} reads no margin.'


USER, SO, NO = (
    {"role": role, "content": text} for role, text in (("user", "why?"), ("assistant", "so"), ("assistant", "no"))
)
SYSTEM, WHO, ME = ({"role": r, "content": c} for r, c in (("system", "be"), ("user", "who?"), ("assistant", "me")))
HUMAN, GPT, BAD_GPT = ({"from": f, "value": v} for f, v in (("human", "why?"), ("gpt", "so"), ("gpt", "no")))
CALL = {"type": "function", "function": {"name": "f", "arguments": {"a": 1}}}
CALLS = {"role": "assistant", "content": None, "tool_calls": [CALL]}
TOOL, RESULT = {"type": "function", "function": {"name": "f"}}, {"role": "tool", "content": "3"}
TEXTS = Pair(Completion("why?", "so"), Completion("why?", "no"))
TURNS = Pair(Chat([USER, SO]), Chat([USER, NO]))
WITH_SYSTEM = Pair(Chat([SYSTEM, USER, SO]), Chat([SYSTEM, USER, NO]))
LATER = Pair(*(Chat([WHO, ME, USER, answer], untrained=frozenset({1})) for answer in (SO, NO)))
TALK = "\n\nHuman: who?\n\nAssistant: me\n\nHuman: why?\n\nAssistant:"
ULTRA = [
    {"model": "a", "response": "no", "overall_score": 3.0, "custom_system_prompt": "be"},
    {"model": "b", "response": "so", "overall_score": 8.5},
    {"model": "c", "response": "hm", "overall_score": 5},
    {"model": "d", "response": "??", "overall_score": None},
]


def titled(answer: dict[str, Any], asked: str) -> Chat:
    return Chat([{"role": "user", "content": asked}, answer])


PAIRS: dict[str, tuple[dict[str, Any], Pair]] = {
    # TRL: standard and conversational, the prompt in a column of its own and not
    "texts": (PAIR, TEXTS),
    "turns": ({"prompt": [USER], "chosen": [SO], "rejected": [NO]}, TURNS),
    "whole": ({"chosen": [USER, SO], "rejected": [USER, NO]}, TURNS),
    "whole, earlier turns": ({"chosen": [WHO, ME, USER, SO], "rejected": [WHO, ME, USER, NO]}, LATER),
    "earlier turns": ({"prompt": [WHO, ME, USER], "chosen": [SO], "rejected": [NO]}, LATER),
    "turns, then texts": ({"prompt": [USER], "chosen": "so", "rejected": "no"}, TURNS),
    "text, then turns": ({"prompt": "why?", "chosen": [SO], "rejected": [NO]}, TURNS),
    "single messages": ({"prompt": [USER], "chosen": SO, "rejected": NO}, TURNS),
    "system in the prompt": ({"prompt": [SYSTEM, USER], "chosen": [SO], "rejected": [NO]}, WITH_SYSTEM),
    "system beside": ({"system": "be", "prompt": [USER], "chosen": [SO], "rejected": [NO]}, WITH_SYSTEM),
    "system beside whole": ({"system": "be", "chosen": [USER, SO], "rejected": [USER, NO]}, WITH_SYSTEM),
    # a prompt that both repeat but for its system turn; one answer whole, the other one alone
    "system left out": ({"prompt": [SYSTEM, USER], "chosen": [USER, SO], "rejected": [USER, NO]}, WITH_SYSTEM),
    "one of them whole": ({"prompt": [USER], "chosen": [USER, SO], "rejected": [NO]}, TURNS),
    "the other one whole": ({"messages": [USER], "chosen": [SO], "rejected": [USER, NO]}, TURNS),
    # UltraFeedback, binarized (`messages` is the chosen conversation again) and raw
    "ultrafeedback_binarized": (
        {"prompt": "why?", "prompt_id": "7", "chosen": [USER, SO], "rejected": [USER, NO], "messages": [USER, SO]}
        | {"score_chosen": 8.0, "score_rejected": 2.0},
        TURNS,
    ),
    "ultrafeedback": ({"instruction": "why?", "completions": ULTRA, "models": ["a"], "source": "x"}, TURNS),
    "ultrafeedback in a table": ({"instruction": "why?", "completions": json.dumps(ULTRA)}, TURNS),
    # hh-rlhf; with the prompt apart; texts that only begin alike
    "hh-rlhf": ({"chosen": f"{TALK} so", "rejected": f"{TALK} no"}, LATER),
    "hh-rlhf, prompt apart": ({"prompt": TALK, "chosen": " so", "rejected": " no"}, LATER),
    "begin alike": (
        {"chosen": "why? so", "rejected": "why? no"},
        Pair(Completion("why? ", "so"), Completion("why? ", "no")),
    ),
    # Orca's pairs, of Intel and of Argilla (its prompt is `input`); py-dpo; truthy-dpo
    "orca": ({"system": "be", "question": "why?", "chosen": "so", "rejected": "no"}, WITH_SYSTEM),
    "orca, no system": ({"system": "", "question": "why?", "chosen": "so", "rejected": "no"}, TURNS),
    "distilabel orca": (
        {"system": "be", "input": "why?", "chosen": "so", "rejected": "no", "status": "unchanged"}
        | {"generations": ["so", "no"], "rating": [9.0, 7.0], "chosen_score": 9.0},
        WITH_SYSTEM,
    ),
    "py-dpo": ({"id": "7", **PAIR}, TEXTS),
    "truthy-dpo": ({"system": "be", **PAIR}, WITH_SYSTEM),
    "truthy-dpo, no system": ({"system": "", **PAIR}, TURNS),
    # Argilla's and distilabel's spellings, OpenAI's, those of stack-exchange-paired
    "argilla": ({"instruction": "why?", "chosen_response": "so", "rejected_response": "no"}, TURNS),
    "capitals": ({"Question": "why?", "Chosen": "so", "Rejected": "no"}, TURNS),
    "distilabel": ({"instruction": "why?", "generations": ["no", "so"], "ratings": [1, 5]}, TURNS),
    "openai": ({"input": {"messages": [USER]}, "preferred_output": [SO], "non_preferred_output": [NO]}, TURNS),
    "stack-exchange": ({"question": "why?", "response_j": "so", "response_k": "no", "qid": 3}, TURNS),
    # LLaMA-Factory's `ranking: true`
    "ranking, sharegpt": ({"conversations": [HUMAN], "chosen": GPT, "rejected": BAD_GPT}, TURNS),
    "ranking, alpaca": ({"instruction": "why?", "input": "", "chosen": "so", "rejected": "no"}, TURNS),
    "ranking, alpaca with input": (
        {"instruction": "why?", "input": "x", "chosen": "so", "rejected": "no"},
        Pair(titled(SO, "why?\n\nx"), titled(NO, "why?\n\nx")),
    ),
    # SHP, PKU-SafeRLHF, Nectar
    "shp": ({"history": "why?", "human_ref_A": "no", "human_ref_B": "so", "labels": 0}, TURNS),
    "shp, brackets": (
        {"history": "[x]", "human_ref_A": "so", "human_ref_B": "no", "labels": 1},
        Pair(titled(SO, "[x]"), titled(NO, "[x]")),
    ),
    "pku": ({"prompt": "why?", "response_0": "no", "response_1": "so", "better_response_id": 1}, TEXTS),
    "nectar": (
        {"prompt": TALK, "answers": [{"answer": a, "rank": n} for a, n in (("hm", 2.0), ("no", 7.0), ("so", 1.0))]},
        LATER,
    ),
    # calls of tools, in the answers and before the last of them
    "a call": (
        {"messages": [USER], "chosen": [CALLS], "rejected": [NO], "tools": [TOOL]},
        Pair(Chat([USER, CALLS], [TOOL]), Chat([USER, NO], [TOOL])),
    ),
    "a call and what follows": (
        {"prompt": [USER], "chosen": [CALLS, RESULT, SO], "rejected": [CALLS, RESULT, NO], "tools": [TOOL]},
        Pair(Chat([USER, CALLS, RESULT, SO], [TOOL]), Chat([USER, CALLS, RESULT, NO], [TOOL])),
    ),
    "ranking, a call": (
        {"conversations": [HUMAN], "rejected": BAD_GPT, "tools": json.dumps([TOOL])}
        | {"chosen": {"from": "function_call", "value": '{"name": "f", "arguments": {"a": 1}}'}},
        Pair(Chat([USER, CALLS], [TOOL]), Chat([USER, NO], [TOOL])),
    ),
    "texts with tools": (PAIR | {"tools": [TOOL]}, Pair(Chat([USER, SO], [TOOL]), Chat([USER, NO], [TOOL]))),
}


@pytest.mark.parametrize(("value", "pair"), PAIRS.values(), ids=PAIRS)
def test_a_pair_is_read_in_every_spelling(value: dict[str, Any], pair: Pair) -> None:
    read = rename_columns(row(**value), ColumnNames())
    assert to_example(read, "preference") == pair


@pytest.mark.parametrize(
    ("value", "error", "hint"),
    [
        ({"prompt": "why?", "chosen": "so"}, "'rejected' is missing; there are 'prompt', 'chosen'", "rejected = "),
        ({"prompt": "why?", "chosen": "so", "rejcted": "no"}, "'rejected' is missing", "Is 'rejcted' meant?"),
        ({"prompt": "why?", "chosen": None, "rejected": "no"}, "'chosen' is missing", "chosen = "),
        ({"prompt": "why?", "completion": "so", "label": True}, "'chosen' is missing", 'stage = "kto"'),
        ({"prompt": "why?", "chosen": 3, "rejected": "no"}, "'chosen' is not a string (number)", "as text"),
        ({"prompt": "why?", "chosen": [], "rejected": [NO]}, "'chosen' has no turn", "last turn"),
        ({"chosen": "so", "rejected": "no"}, "'chosen' and 'rejected' do not begin alike", "prompt = "),
        ({"chosen": [SO], "rejected": [NO]}, "no column holds their prompt", "prompt = "),
        ({"chosen": [USER, SO], "rejected": [USER]}, "does not have the last word in 'rejected'", "last"),
        ({"prompt": [USER], "chosen": [CALLS, RESULT], "rejected": [NO]}, "the last word in 'chosen'", "last turn"),
        ({"chosen": f"{TALK} so", "rejected": f"{TALK} no\n\nHuman: oh"}, "does not have the last word", "last turn"),
        (PAIR | {"images": ["a.png"]}, "it has images: only text can be trained on", 'images = ""'),
        (
            {"prompt": [USER], "chosen": [{"role": "assistant", "content": [{"type": "image"}]}], "rejected": [NO]},
            "message 1 of 'chosen' has a part that is no text (image)", "",
        ),
        ({"prompt": [USER], "chosen": [NO | {"role": "x"}], "rejected": [NO]}, "the role 'x'", "data.roles"),
        ({"instruction": "why?", "completions": ULTRA[:1]}, "none of its answers (completions) is better", "skip"),
        ({"instruction": "why?", "completions": [ULTRA[0]] * 2}, "none of its answers (completions) is better", "skip"),
        ({"instruction": "why?", "completions": [{"model": "a"}]}, "answer 1 of 'completions' has no text", "response"),
        ({"instruction": "why?", "generations": ["so"], "ratings": [1, 2]}, "'ratings' has 2", "skip"),
        ({"history": "why?", "human_ref_A": "a", "human_ref_B": "b", "labels": 2}, "'labels' is 2, which says", "skip"),
    ],
)  # fmt: skip
def test_a_pair_that_cannot_be_read_is_an_error_with_its_column(value: dict[str, Any], error: str, hint: str) -> None:
    with pytest.raises(DataError) as caught:
        to_example(row(**value), "preference")
    assert caught.value.message.startswith("rows.jsonl:7: ")
    assert error in caught.value.message
    assert hint in caught.value.hint


def test_the_scores_of_ranked_answers_make_a_margin() -> None:
    pair = to_example(row(instruction="why?", completions=ULTRA), "preference", SCORES)
    assert isinstance(pair, Pair) and pair.margin == 5.5
    assert not missing_columns(["instruction", "completions"], SCORES)
    assert missing_columns(["instruction", "chosen", "rejected"], SCORES)


@pytest.mark.parametrize(
    ("verdict", "good"),
    [
        *((one, True) for one in (True, 1, 1.0, "1", "true", "good", "desirable")),
        *((one, False) for one in (False, 0, 0.0, "0", "False", "Bad", "undesirable")),
    ],
)
@pytest.mark.parametrize(
    ("answered", "answer"),
    [
        ({"prompt": "why?", "completion": "so"}, Completion("why?", "so")),
        ({"prompt": [USER], "completion": [SO]}, Chat([USER, SO])),
        ({"messages": [USER, SO]}, Chat([USER, SO])),
        ({"conversations": [HUMAN, GPT]}, Chat([USER, SO])),
        ({"instruction": "why?", "output": "so"}, Chat([USER, SO])),
        ({"instruction": "why?", "response": "so"}, Chat([USER, SO])),
        ({"instruction": "why?", "context": "", "response": "so"}, Chat([USER, SO])),
        ({"question": "why?", "answer": "so"}, Chat([USER, SO])),
    ],
)
def test_a_verdict_is_read_beside_every_form_of_an_answer(
    verdict: Any, good: bool, answered: dict[str, Any], answer: Chat | Completion
) -> None:
    for column in ("label", "kto_tag"):
        assert to_example(row(**answered, **{column: verdict}), "kto") == JudgedAnswer(answer, good)


@pytest.mark.parametrize(
    ("verdict", "error", "hint"),
    [
        ({"label": "meh"}, "'label' is 'meh', which is no verdict", "true or false, 1 or 0, good or bad"),
        ({"kto_tag": 2}, "'kto_tag' is 2, which is no verdict", "true or false"),
        ({"label": -1}, "'label' is -1, which is no verdict", "true or false"),
        ({"label": None}, "no verdict: neither 'label' nor 'kto_tag' says anything", "label = "),
        ({"verdict": True}, "there are 'prompt', 'completion', 'verdict'", "label = "),
    ],
)
def test_what_is_no_verdict_is_an_error(verdict: dict[str, Any], error: str, hint: str) -> None:
    with pytest.raises(DataError) as caught:
        to_example(row(prompt="why?", completion="so", **verdict), "kto")
    assert caught.value.message.startswith("rows.jsonl:7: ")
    assert error in caught.value.message
    assert hint in caught.value.hint


@pytest.mark.parametrize(
    ("label", "form"), [(True, "kto"), ("false", "kto"), (1, "prompt_completion"), ("good", "prompt_completion")]
)
def test_a_number_or_a_word_is_a_verdict_only_where_kto_is_asked_for(label: Any, form: str) -> None:
    assert form_of_row(row(prompt="why?", completion="so", label=label)) == form


def test_columns_that_make_the_pair_are_not_told_as_unused() -> None:
    for name, (value, _) in PAIRS.items():
        read = rename_columns(row(**value), ColumnNames())
        unused = set(unused_columns([read], "preference"))
        assert unused <= {"models", "source", "status"}, name
    assert unused_columns([row(**PAIR, notes="why this one")], "preference") == ("notes",)
