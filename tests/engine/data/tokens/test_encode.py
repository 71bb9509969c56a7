"""Rows as tokens: what exactly is trained on, where sequences begin and end, what is cut or left out."""

from datetime import datetime, tzinfo
from importlib.resources import files
from itertools import groupby
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from transformers import PreTrainedTokenizerFast
from transformers.utils import chat_template_utils

from ftui.engine.data.files.raw_rows import Row
from ftui.engine.data.stores.sequences import SequenceCounts
from ftui.engine.data.tokens.encode import Encoder, Sequence, stop_texts
from ftui.errors import DataError
from tests.support.tiny import MARKED, PLAIN, Rows, make_tokenizer, seen, write_rows

END = "<|im_end|>"
# Templates in the manner of real ones. They differ in how a turn ends, and in what they make of earlier turns.
NO_END = (
    "{% for message in messages %}{{ message['role'] + ':\\n' + message['content'] + '\\n' }}{% endfor %}"
    "{% if add_generation_prompt %}{{ 'assistant:\\n' }}{% endif %}"
)
END_OUTSIDE = MARKED.replace("+ '<|im_end|>' }}{% endgeneration %}", "}}{% endgeneration %}{{ '<|im_end|>' }}")
BRACKETS = (
    "{{ bos_token }}{% for message in messages %}{% if message['role'] == 'user' %}[{{ message['content'] }}]"
    "{% else %}{{ message['content'] + eos_token }}{% endif %}{% endfor %}"
)
FORGETFUL = PLAIN.replace(
    "{{ message['content'] + '<|im_end|>' }}",
    "{{ (message['content'] if loop.last else message['content'].split('</think>')[-1]) + '<|im_end|>' }}",
)
# Ways to ask for the day: Llama's, gpt-oss's, and one that would change with every second.
DATED = [
    "{% if strftime_now is defined %}{% set day = strftime_now('%d %b %Y') %}{% endif %}{{ day + '\\n' }}",
    "{{ strftime_now('%Y-%m-%d') + '\\n' }}",
    "{% macro now() %}{{ strftime_now('%A %x %H:%M:%S') }}{% endmacro %}{{ now() + '\\n' }}",
]
REFUSING = "{{ raise_exception('roles must alternate') }}"
TWO_TURNS: Rows = [
    {"role": "system", "content": "be brief"},
    {"role": "user", "content": "the cache"},
    {"role": "assistant", "content": "ran away"},
    {"role": "user", "content": "and then?"},
    {"role": "assistant", "content": "it forks\nquietly"},
]
PLAIN_TOKENIZER, MARKED_TOKENIZER = make_tokenizer(PLAIN), make_tokenizer(MARKED)


def encode(
    tokenizer: PreTrainedTokenizerFast,
    value: dict[str, Any],
    form: str = "messages",
    *,
    stage: str = "sft",
) -> list[Sequence]:
    encoder = Encoder(tokenizer, stage, stop_texts(tokenizer, []))
    return list(encoder.encode([Row(Path("rows.jsonl"), 3, value)], form))


def text_of(tokenizer: PreTrainedTokenizerFast, sequence: Sequence) -> str:
    return str(tokenizer.decode(sequence.input_ids.tolist()))


def trained(tokenizer: PreTrainedTokenizerFast, sequence: Sequence) -> list[str]:
    """The texts of the runs of target tokens."""
    pairs = zip(sequence.input_ids.tolist(), sequence.targets.tolist(), strict=True)
    runs = [(wanted, [i for i, _ in run]) for wanted, run in groupby(pairs, key=lambda pair: pair[1])]
    return [str(tokenizer.decode(ids)) for wanted, ids in runs if wanted]


@pytest.mark.parametrize("template", [PLAIN, MARKED, END_OUTSIDE], ids=["plain", "marked", "end outside"])
def test_only_what_the_assistant_says_is_trained_on(template: str) -> None:
    tokenizer = make_tokenizer(template)
    (sequence,) = encode(tokenizer, {"messages": TWO_TURNS})
    assert trained(tokenizer, sequence) == [f"ran away{END}", f"it forks\nquietly{END}"]
    turns = "".join(f"<|im_start|>{m['role']}\n{m['content']}{END}\n" for m in TWO_TURNS)
    assert text_of(tokenizer, sequence) == turns


WORDS = st.text(alphabet=st.sampled_from("ab \né😀\u2028<|>:user"), max_size=12)
TURNS = st.lists(st.tuples(WORDS, WORDS), min_size=1, max_size=4)


@given(TURNS, st.booleans())
def test_templates_that_mark_and_templates_that_do_not_agree(turns: list[tuple[str, str]], with_system: bool) -> None:
    messages: Rows = [{"role": "system", "content": "be brief"}] if with_system else []
    for question, answer in turns:
        messages += [{"role": "user", "content": question}, {"role": "assistant", "content": answer}]
    (marked,) = encode(MARKED_TOKENIZER, {"messages": messages})
    (found,) = encode(PLAIN_TOKENIZER, {"messages": messages})
    assert marked.input_ids.tolist() == found.input_ids.tolist()
    assert marked.targets.tolist() == found.targets.tolist()
    assert int(marked.targets.sum()) == sum(
        len(PLAIN_TOKENIZER(answer + END, add_special_tokens=False)["input_ids"]) for _, answer in turns
    )


def test_a_template_that_rewrites_earlier_turns_gives_a_sequence_per_turn() -> None:
    """Each just as the model will see it when it has to write that turn."""
    tokenizer = make_tokenizer(FORGETFUL)
    messages = [
        {"role": "user", "content": "the"},
        {"role": "assistant", "content": "hm</think>ran"},
        {"role": "user", "content": "and"},
        {"role": "assistant", "content": "oh</think>it"},
    ]
    first, second = encode(tokenizer, {"messages": messages})
    assert trained(tokenizer, first) == [f"hm</think>ran{END}"]
    assert trained(tokenizer, second) == [f"oh</think>it{END}"]
    assert "hm" not in text_of(tokenizer, second)
    (whole,) = encode(tokenizer, {"messages": messages[:2]})
    assert whole.input_ids.tolist() == first.input_ids.tolist()


def test_a_conversation_that_ends_with_the_user_is_trained_on_up_to_there() -> None:
    (sequence,) = encode(PLAIN_TOKENIZER, {"messages": TWO_TURNS[:-1]})
    assert trained(PLAIN_TOKENIZER, sequence) == [f"ran away{END}"]
    assert text_of(PLAIN_TOKENIZER, sequence).endswith(f"and then?{END}\n")


@pytest.mark.parametrize("template", [PLAIN, MARKED, NO_END, END_OUTSIDE, BRACKETS, FORGETFUL])
def test_the_end_is_always_trained_on_in_conversations(template: str) -> None:
    tokenizer = make_tokenizer(template)
    for sequence in encode(tokenizer, {"messages": TWO_TURNS[1:]}):
        *_, last = np.flatnonzero(sequence.targets)
        assert sequence.input_ids[last] == tokenizer.eos_token_id


@pytest.mark.parametrize(
    ("form", "value", "expected"),
    [
        ("prompt_completion", {"prompt": "Q: the cache\nA:", "completion": " ran"}, f" ran{END}"),
        ("prompt_completion", {"prompt": "", "completion": "ran"}, f"ran{END}"),
        ("prompt_completion", {"prompt": "Q:", "completion": f" ran{END}"}, f" ran{END}"),
        ("text", {"text": "the cache ran"}, f"the cache ran{END}"),
        ("text", {"text": f"the cache ran{END}"}, f"the cache ran{END}"),
    ],
)
@pytest.mark.parametrize("bos", [False, True])
def test_plain_text_ends_once_and_its_prompt_is_not_trained_on(
    form: str, value: dict[str, str], expected: str, bos: bool
) -> None:
    tokenizer = make_tokenizer(None, bos=bos)
    (sequence,) = encode(tokenizer, value, form)
    assert trained(tokenizer, sequence) == [expected]
    assert text_of(tokenizer, sequence) == ("<s>" if bos else "") + value.get("prompt", "") + expected


@pytest.mark.parametrize("stage", ["sft", "pretrain"])
def test_pretraining_learns_every_token_of_a_text(stage: str) -> None:
    tokenizer = make_tokenizer(None, bos=True)
    (sequence,) = encode(tokenizer, {"text": "the cache ran"}, "text", stage=stage)
    assert sequence.targets.tolist() == [False] + [True] * (len(sequence.input_ids) - 1)


@pytest.mark.parametrize("template", ["{{ bos_token }}" + PLAIN, "{{ bos_token }}" + MARKED, BRACKETS])
def test_exactly_one_bos(template: str) -> None:
    """The tokenizer adds one, and so does the template: their tokens are two, ours is one."""
    tokenizer = make_tokenizer(template, bos=True)
    rendered = tokenizer.apply_chat_template(TWO_TURNS[1:], tokenize=False)
    assert tokenizer(rendered)["input_ids"][:2] == [tokenizer.bos_token_id] * 2
    (sequence,) = encode(tokenizer, {"messages": TWO_TURNS[1:]})
    assert sequence.input_ids.tolist().count(tokenizer.bos_token_id) == 1
    assert sequence.input_ids[0] == tokenizer.bos_token_id
    assert not sequence.targets[0]


def test_stop_tokens_are_the_tokenizers_and_the_generation_configs() -> None:
    tokenizer = make_tokenizer()
    (start,) = tokenizer("<|im_start|>")["input_ids"]
    assert stop_texts(tokenizer, [start, 99_999]) == {END, "<|im_start|>"}
    tokenizer.eos_token = None
    with pytest.raises(DataError, match="no end-of-text token"):
        stop_texts(tokenizer, [])


def counts_of(tmp_path: Path, rows: Rows, *, max_length: int = 512) -> SequenceCounts:
    encoder = Encoder(PLAIN_TOKENIZER, "sft", stop_texts(PLAIN_TOKENIZER, []))
    path = write_rows(tmp_path / "rows.jsonl", rows)
    return seen([path], encoder, tmp_path / "cache", max_length=max_length).counts


def test_rows_without_a_target_are_left_out_and_counted(tmp_path: Path) -> None:
    """Nobody answers; and an answer that begins beyond max_length."""
    rows: Rows = [
        {"messages": TWO_TURNS[:3]},
        {"messages": TWO_TURNS[:2]},
        {"messages": [{"role": "user", "content": "the " * 60}, {"role": "assistant", "content": "ran"}]},
        {"messages": TWO_TURNS},
    ]
    counts = counts_of(tmp_path, rows, max_length=45)
    assert (counts.num_rows, counts.num_sequences, counts.num_without_target, counts.num_cut) == (4, 2, 2, 2)


@pytest.mark.parametrize(
    ("template", "value", "reason"),
    [
        (REFUSING, {"messages": TWO_TURNS}, "the chat template refuses it: roles must alternate"),
        (None, {"messages": TWO_TURNS}, "a conversation, but the model's tokenizer has no chat template"),
        (
            PLAIN,
            {"messages": [{"role": "assistant", "content": None, "tool_calls": [{"type": "function"}]}]},
            "it has tool_calls, and the chat template has no place for them",
        ),
        (
            PLAIN,
            {"messages": TWO_TURNS, "tools": ["search"]},
            "it has tools, and the chat template has no place for them",
        ),
        ("{{ tools }}", {"messages": TWO_TURNS, "tools": ["search"]}, "the chat template refuses it: Tools should"),
        ("{{ messages[0]['content'] + 1 }}", {"messages": TWO_TURNS}, "the chat template refuses it: "),
    ],
)
def test_a_row_that_cannot_be_rendered_is_named(template: str | None, value: dict[str, Any], reason: str) -> None:
    with pytest.raises(DataError) as caught:
        encode(make_tokenizer(template), value)
    assert caught.value.message.startswith(f"rows.jsonl:3: {reason}")


def test_pretraining_takes_no_conversations() -> None:
    with pytest.raises(DataError, match=r"rows\.jsonl:3: stage pretrain trains on plain text"):
        encode(PLAIN_TOKENIZER, {"messages": TWO_TURNS}, stage="pretrain")


def set_day(monkeypatch: pytest.MonkeyPatch, day: int) -> None:
    """Chat templates are told this day of July 2026 when they ask, and none was compiled on another day."""

    class Day(datetime):
        @classmethod
        def now(cls, tz: tzinfo | None = None) -> "Day":
            return cls(2026, 7, day, day, day, day, tzinfo=tz)

    monkeypatch.setattr(chat_template_utils, "datetime", Day)
    chat_template_utils._compile_jinja_template.cache_clear()


FROM_TRL = [
    file.read_text()
    for file in (Path(str(files("trl"))) / "chat_templates").glob("*.jinja")
    if "strftime_now" in file.read_text()
]


@pytest.mark.parametrize("loss_on", ["assistant", "everything"])
@pytest.mark.parametrize("template", [*(asked + rest for asked in DATED for rest in (PLAIN, MARKED)), *FROM_TRL])
def test_tokens_are_the_same_on_every_day(template: str, loss_on: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Both ways to find what is trained on; the originals of Llama 3.2 and gpt-oss are among TRL's."""
    tokenizer, days = make_tokenizer(template), []
    asked = [m for m in TWO_TURNS if m["role"] != "system"][:2]
    for day in (1, 22):
        set_day(monkeypatch, day)
        assert str(day) in tokenizer.apply_chat_template(asked, tokenize=False), (
            "the clock of the test is the template's"
        )
        set_day(monkeypatch, day)
        encoder = Encoder(tokenizer, "sft", stop_texts(tokenizer, []), loss_on)
        (sequence,) = encoder.encode([Row(Path("rows.jsonl"), 3, {"messages": asked})], "messages")
        days.append((sequence.input_ids.tolist(), sequence.targets.tolist(), text_of(tokenizer, sequence)))
    assert days[0] == days[1]
    assert "2026" not in days[0][2].replace("2026-01-04", "")  # the day to which one of them knows the world
    assert "2024" in days[0][2] or "07/26/24" in days[0][2]
