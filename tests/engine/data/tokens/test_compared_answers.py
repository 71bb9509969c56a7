"""Pairs and judged answers as tokens: public faults of other tools, each named, and what must be there instead."""

from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from transformers import PreTrainedTokenizerFast

from ftui.engine.data.files.raw_rows import Row
from ftui.engine.data.forms.detect_form import detect_form
from ftui.engine.data.tokens.encode import EncodedRow, Encoder, Sequence, stop_texts
from ftui.engine.inspection.explain import explain_row
from ftui.engine.training.collate import collate
from ftui.errors import DataError
from tests.support.tiny import PLAIN, make_tokenizer, seen, write_rows

BRACKETS = (
    "{{ bos_token }}{% for message in messages %}{% if message['role'] == 'user' %}[{{ message['content'] }}] "
    "{% else %}{{ message['content'] + eos_token }}{% endif %}{% endfor %}"
)
_SPEAK = "{{ '<|im_start|>assistant\\n' }}"
THINKS = PLAIN.replace(_SPEAK, _SPEAK + "{{ '<think>\\n\\n</think>\\n\\n' }}")
"""Asked to speak it has thought nothing; a turn that is written out says nothing of that (transformers#37949)."""
THINKS_ALOUD = THINKS.replace(
    "{{ message['content'] +",
    "{{ ('<think>\\n\\n</think>\\n\\n' if message['role'] == 'assistant' and loop.last else '') + message['content'] +",
)
OTHER_STOP = PLAIN.replace("<|im_end|>", "<|pad|>")


def encode(
    tokenizer: PreTrainedTokenizerFast, row: dict[str, Any], stage: str = "dpo", stop_ids: tuple[int, ...] = ()
) -> EncodedRow:
    encoder = Encoder(tokenizer, stage, stop_texts(tokenizer, list(stop_ids)))
    raw = Row(Path("rows.jsonl"), 1, row)
    (encoded,) = encoder.encode_all([raw], "kto" if stage == "kto" else "preference")
    assert not isinstance(encoded, DataError), encoded
    return encoded


def parts(tokenizer: PreTrainedTokenizerFast, sequence: Sequence) -> tuple[str, str]:
    """What is before the first target, and what is compared."""
    first, *others = np.flatnonzero(sequence.targets).tolist()
    last = others[-1] if others else first
    assert sequence.targets[first : last + 1].all(), "one run of tokens is compared"
    ids = sequence.input_ids.tolist()
    return str(tokenizer.decode(ids[:first])), str(tokenizer.decode(ids[first : last + 1]))


def turn(role: str, content: str) -> dict[str, str]:
    return {"role": role, "content": content}


ASKED = [turn("user", "why?")]


@pytest.mark.parametrize(
    ("row", "stage"),
    [
        ({"prompt": "the cache ", "chosen": "ran", "rejected": "forks"}, "dpo"),
        ({"chosen": "the cache ran", "rejected": "the cache forks"}, "dpo"),
        ({"prompt": ASKED, "chosen": [turn("assistant", "ran")], "rejected": [turn("assistant", "forks")]}, "dpo"),
        ({"prompt": "the cache ", "completion": "ran", "label": True}, "kto"),
        ({"prompt": ASKED, "completion": [turn("assistant", "ran")], "label": False}, "kto"),
    ],
)
def test_one_start_of_text_and_none_before_an_answer(row: dict[str, Any], stage: str) -> None:
    """axolotl#1616, trl#1591, trl#1885: two BOS at the beginning, or one before each answer."""
    tokenizer = make_tokenizer(BRACKETS, bos=True)
    for sequence in encode(tokenizer, row, stage).sequences:
        assert np.flatnonzero(sequence.input_ids == tokenizer.bos_token_id).tolist() == [0]
        assert not sequence.targets[0] and sequence.input_ids[-1] == tokenizer.eos_token_id


@pytest.mark.parametrize(
    ("prompt", "chosen", "rejected", "compared"),
    [
        # " a" and " p" are tokens, " 1" is not: the space is compared in both, or in none
        ("answer: ", "a page", "1 page", (" a page", " 1 page")),
        ("answer: ", "1 page", "page", (" 1 page", " page")),
        ("answer: ", "a page", "page", (" a page", " page")),
        ("answer: ", "1 page", "2 page", ("1 page", "2 page")),
        ("answer:", " a page", " 1 page", (" a page", " 1 page")),
        # "ke" of the prompt and "rnel" are one token
        ("ke", "rnel", "y", ("kernel", "key")),
        ("it is ke", "rnel a", "rnel", ("kernel a", "kernel")),
        ("", "rnel", "y", ("rnel", "y")),
    ],
)
def test_both_answers_begin_at_the_same_character(
    prompt: str, chosen: str, rejected: str, compared: tuple[str, str]
) -> None:
    """trl#1679, trl#2054: the end of the prompt may be one token with the beginning of one answer."""
    tokenizer = make_tokenizer()
    encoded = encode(tokenizer, {"prompt": prompt, "chosen": chosen, "rejected": rejected})
    texts = [parts(tokenizer, sequence) for sequence in encoded.sequences]
    assert [said for _, said in texts] == [f"{one}<|im_end|>" for one in compared]
    assert len({before for before, _ in texts}) == 1
    assert ("masks_differ" in encoded.notes) == (prompt.endswith("ke") and chosen != ""), "it is told, but for a space"


def test_answers_to_different_prompts_keep_their_own_ends() -> None:
    """What was asked is no answer, where the two sides were not asked the same."""
    talks = ["\n\nHuman: the cache?\n\nAssistant: ran", "\n\nHuman: a page?\n\nAssistant: ran"]
    tokenizer = make_tokenizer()
    encoded = encode(tokenizer, {"chosen": talks[0], "rejected": talks[1]})
    assert [parts(tokenizer, sequence)[1] for sequence in encoded.sequences] == ["ran<|im_end|>"] * 2


@pytest.mark.parametrize(
    ("chosen", "rejected"),
    [
        ("why? <|im_start|>a", "why? <|im_end|>b"),  # they part within "<|im_"
        ("why?<|im_start|>a", "why?<|im_start|>b"),
        ("a <|im_end|>", "a <|im_start|>"),
    ],
)
def test_no_special_token_is_cut(chosen: str, rejected: str) -> None:
    """unsloth-zoo#1110: the shared beginning of two texts, character by character, may end within a special token."""
    tokenizer = make_tokenizer()
    for text, sequence in zip((chosen, rejected), encode_split(tokenizer, chosen, rejected), strict=True):
        expected = tokenizer(text, add_special_tokens=False)["input_ids"]
        assert sequence.input_ids.tolist()[: len(expected)] == expected


def encode_split(tokenizer: PreTrainedTokenizerFast, chosen: str, rejected: str) -> list[Sequence]:
    if " " not in chosen:  # there is no prompt to be seen
        row = Row(Path("rows.jsonl"), 1, {"chosen": chosen, "rejected": rejected})
        (refused,) = Encoder(tokenizer, "dpo", stop_texts(tokenizer, [])).encode_all([row], "preference")
        assert isinstance(refused, DataError) and "begin alike" in refused.message
        return encode(tokenizer, {"prompt": "", "chosen": chosen, "rejected": rejected}).sequences
    return encode(tokenizer, {"chosen": chosen, "rejected": rejected}).sequences


@pytest.mark.parametrize(
    ("chosen", "rejected", "prompt"),
    [
        ("天空は青い", "天空は赤い", "天空は"),
        ("Q: sky?\tblue", "Q: sky?\tgreen", "Q: sky?\t"),
        ("Q: 😀yes", "Q: 😀no", "Q: 😀"),
        ("Q: yes", "Q: yes, no", "Q: "),  # one is the beginning of the other
    ],
)
def test_texts_that_begin_alike_have_a_prompt_in_any_script(chosen: str, rejected: str, prompt: str) -> None:
    tokenizer = make_tokenizer()
    for sequence, text in zip(
        encode(tokenizer, {"chosen": chosen, "rejected": rejected}).sequences, (chosen, rejected), strict=True
    ):
        assert parts(tokenizer, sequence) == (prompt, f"{text.removeprefix(prompt)}<|im_end|>")


@pytest.mark.parametrize(
    ("template", "thought"),
    [(THINKS, ""), (THINKS_ALOUD, "<think>\n\n</think>\n\n")],
    ids=["dropped when written out", "written out"],
)
def test_a_thought_that_the_template_begins_is_no_part_of_the_answer(template: str, thought: str) -> None:
    """transformers#37949: the prompt ends as the model is asked to speak, where the written turn has that too."""
    tokenizer = make_tokenizer(template)
    row = {"prompt": ASKED, "chosen": [turn("assistant", "ran")], "rejected": [turn("assistant", "forks")]}
    for sequence, said in zip(encode(tokenizer, row).sequences, ("ran", "forks"), strict=True):
        before, after = parts(tokenizer, sequence)
        assert after.startswith(f"{said}<|im_end|>") and before.endswith(f"<|im_start|>assistant\n{thought}")


def test_the_end_is_compared_where_it_is_what_rows_are_padded_with() -> None:
    """trl#6357: where pad == eos, a mask made of ids leaves the end of an answer out."""
    tokenizer = make_tokenizer()
    tokenizer.pad_token = tokenizer.eos_token
    assert tokenizer.pad_token_id == tokenizer.eos_token_id
    row = {"prompt": "the ", "chosen": "a page of cache", "rejected": "1"}
    sequences = encode(tokenizer, row).sequences
    batch = collate([[one] for one in sequences], int(tokenizer.pad_token_id), 2)
    assert batch.lengths is not None and batch.lengths[1] < batch.lengths[0], "one of them is padded"
    assert batch.sequence_of is not None
    for number, sequence in enumerate(sequences):
        own = batch.target_ids[batch.sequence_of == number].tolist()
        assert own == sequence.input_ids[sequence.targets].tolist() and own.count(tokenizer.eos_token_id) == 1


@pytest.mark.parametrize("stage", ["dpo", "kto"])
def test_each_token_that_ends_a_turn_is_an_end(stage: str) -> None:
    """trl#7039: a model's generation config may name several, and its template another one than the tokenizer."""
    tokenizer = make_tokenizer(OTHER_STOP)
    stop = tokenizer.get_vocab()["<|pad|>"]
    answer = {"chosen": [turn("assistant", "ran")], "rejected": [turn("assistant", "forks")]}
    row = {"prompt": ASKED, **(answer if stage == "dpo" else {"completion": answer["chosen"], "label": True})}
    for sequence in encode(tokenizer, row, stage, (stop, int(tokenizer.eos_token_id or 0))).sequences:
        assert sequence.input_ids[sequence.targets][-1] == stop
        assert tokenizer.eos_token_id not in sequence.input_ids


def test_both_answers_are_cut_at_the_same_length(tmp_path: Path) -> None:
    """LLaMA-Factory#4402, #4617 cut the chosen side only; trl#3339, #1473: an answer of no token is NaN in SimPO, ORPO.

    A pair that keeps no token of one answer is left out with both, so that chosen and rejected answers take turns.
    """
    long, short = "the kernel prints a page of the cache " * 3, "a"
    answers = [(long, short), (short, long), (long, long + "!"), (short, "")]
    prompts = ["why? ", "the daemon forks and then it reads " * 2, "the daemon forks and then it reads " * 6]
    rows = [{"prompt": prompt, "chosen": one, "rejected": other} for prompt in prompts for one, other in answers]
    rows.append({"prompt": "", "chosen": long, "rejected": ""})  # its end is predicted from nothing
    tokenizer = make_tokenizer()
    encoder = Encoder(tokenizer, "dpo", stop_texts(tokenizer, []))
    path = write_rows(tmp_path / "rows.jsonl", rows)
    all_of = partial(seen, [path], encoder, tmp_path / "cache", form="preference")
    uncut = all_of(max_length=10_000)
    assert len(uncut) == 2 * len(rows) - 2
    whole = [uncut[number] for number in range(len(uncut))]
    for length in (12, 30, 60, 100):
        cut = all_of(max_length=length)
        fit = [n for n in range(len(rows) - 1) if all(one.targets[1:length].any() for one in whole[2 * n : 2 * n + 2])]
        assert len(cut) == 2 * len(fit) and cut.counts.num_without_target == 2 * (len(rows) - len(fit))
        for place, number in enumerate(place for n in fit for place in (2 * n, 2 * n + 1)):
            assert cut[place].label == (1, -1)[place % 2]
            assert cut[place].input_ids.tolist() == whole[number].input_ids[:length].tolist()
            assert cut[place].num_targets == int(whole[number].targets[1:length].sum()) > 0
    assert 0 < len(all_of(max_length=30)) < 2 * len(rows)


def test_the_row_view_shows_the_same_targets() -> None:
    tokenizer = make_tokenizer()
    encoder = Encoder(tokenizer, "dpo", stop_texts(tokenizer, []))
    row = Row(Path("rows.jsonl"), 1, {"prompt": "it is ke", "chosen": "rnel", "rejected": "y"})
    shown = explain_row(encoder, row, "preference")
    for one, sequence in zip(shown, encode(tokenizer, row.value).sequences, strict=True):
        assert list(one.targets) == sequence.targets.tolist()


TALK = {"messages": [turn("user", "why?"), turn("assistant", "so")]}
JUDGED = {"prompt": "a ", "completion": "b", "label": True}
COMPARED = {"prompt": "a ", "chosen": "b", "rejected": "c"}


@pytest.mark.parametrize(
    ("form", "row", "reason", "hint"),
    [
        ("preference", TALK, "'chosen' is missing", "Rows of the form messages are for stage sft."),
        ("preference", {"text": "a"}, "'chosen' is missing", "Rows of the form text are for stage pretrain."),
        ("preference", JUDGED, "'chosen' is missing", "Rows of the form kto are for stage kto."),
        ("preference", COMPARED | {"chosen": None}, "'chosen' is missing", ""),
        ("preference", COMPARED | {"chosen": 1}, "'chosen' is not a string (number)", "as text"),
        ("preference", COMPARED | {"rejected": ["c"]}, "message 1 of 'rejected' is no object", ""),
        ("kto", COMPARED, "neither 'label' nor 'kto_tag'", "preference are for stage dpo, orpo, simpo, cpo or rm."),
        ("kto", TALK, "neither 'label' nor 'kto_tag'", "Rows of the form messages are for stage sft."),
        ("kto", JUDGED | {"label": 2}, "'label' is 2, which is no verdict", "true or false, 1 or 0"),
        ("kto", JUDGED | {"label": None}, "neither 'label' nor 'kto_tag'", ""),
    ],
)
def test_rows_that_compare_nothing_say_which_stage_takes_them(
    form: str, row: dict[str, Any], reason: str, hint: str
) -> None:
    detected = detect_form([Row(Path("rows.jsonl"), 1, row)], form=form)
    assert reason in detected.problem and hint in detected.hint


@pytest.mark.parametrize(
    ("stage", "row"),
    [
        (
            "dpo",
            {side: [turn("user", "a"), turn("assistant", side), turn("user", "c")] for side in ("chosen", "rejected")},
        ),
        ("kto", {"messages": [turn("user", "a"), turn("assistant", "b"), turn("user", "c")], "label": True}),
    ],
)
def test_an_answer_has_the_last_word(stage: str, row: dict[str, Any]) -> None:
    tokenizer = make_tokenizer()
    form = "kto" if stage == "kto" else "preference"
    (refused,) = Encoder(tokenizer, stage, stop_texts(tokenizer, [])).encode_all([Row(Path("r.jsonl"), 1, row)], form)
    assert isinstance(refused, DataError) and "does not have the last word" in refused.message
