"""Which tokens are trained on where tokens and answers do not end at the same character, and what is said about it."""

from importlib.resources import files
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tokenizers import normalizers, pre_tokenizers, processors
from transformers import PreTrainedTokenizerFast

from ftui.engine.data.files.raw_rows import Row
from ftui.engine.data.forms.formats import Chat, ColumnNames, JudgedAnswer
from ftui.engine.data.tokens.chat_template import locate_turns, render
from ftui.engine.data.tokens.encode import EncodedRow, Encoder, stop_texts
from ftui.engine.data.tokens.loss_mask import loss_mask, spelling_difference
from ftui.engine.inspection.explain import explain_row
from ftui.errors import DataError
from tests.engine.data.tokens.test_loss_mask_oracle import tokenizer_of
from tests.support.tiny import PLAIN, Rows, make_tokenizer

END = "<|im_end|>"
ASKED: Rows = [{"role": "user", "content": "the"}, {"role": "assistant", "content": "it ran away"}]
THINKING = PLAIN.replace("assistant\\n' }}{% endif %}", "assistant\\n<think>\\n' }}{% endif %}")
PIECES = {"bos_token": "<s>", "eos_token": "</s>", "unk_token": "<unk>"}


def encoded(tokenizer: PreTrainedTokenizerFast, form: str = "messages", /, **value: Any) -> EncodedRow:
    encoder = Encoder(tokenizer, "sft", stop_texts(tokenizer, []))
    (found,) = encoder.encode_all([Row(Path("rows.jsonl"), 3, value)], form)
    assert isinstance(found, EncodedRow), found
    return found


def trained(tokenizer: PreTrainedTokenizerFast, found: EncodedRow) -> list[str]:
    return [str(tokenizer.decode(one.input_ids[one.targets].tolist())) for one in found.sequences]


def refused(tokenizer: PreTrainedTokenizerFast, messages: Rows, **more: Any) -> DataError:
    encoder = Encoder(tokenizer, "sft", stop_texts(tokenizer, []))
    (found,) = encoder.encode_all([Row(Path("rows.jsonl"), 3, {"messages": messages, **more})], "messages")
    assert isinstance(found, DataError), found
    return found


def test_an_answer_that_shares_its_first_token_with_the_prompt_is_trained_on_whole() -> None:
    """As TRL does it. White space in that token is nothing to speak of, words are."""
    tokenizer = make_tokenizer()
    assert tokenizer.tokenize("the away") == ["the", "\u0120a", "w", "ay"]
    found = encoded(tokenizer, "prompt_completion", prompt="the ", completion="away")
    assert (trained(tokenizer, found), found.notes) == ([f" away{END}"], frozenset())
    torn = encoded(tokenizer, "prompt_completion", prompt="the k", completion="ernel")
    assert (trained(tokenizer, torn), torn.notes) == ([f"kernel{END}"], frozenset({"masks_differ"}))
    apart = encoded(tokenizer, "prompt_completion", prompt="the", completion=" away")
    assert (trained(tokenizer, apart), apart.notes) == ([f" away{END}"], frozenset())


def test_what_differs_is_said_in_words() -> None:
    tokenizer = make_tokenizer()
    encoding = tokenizer(["the kernel"]).encodings[0]
    before, after = loss_mask(encoding, "the kernel", [(5, 10)]), loss_mask(encoding, "the kernel", [(3, 5)])
    assert before.differs == "'k' before its start is in one token with it, so it is trained on too"
    assert after.differs == "'er' after its end is in one token with it, so it is trained on too"
    assert (before.runs, after.runs) == (((2, 4),), ((1, 3),))
    assert loss_mask(encoding, "the kernel", [(10, 10)]).runs == ((0, 0),)
    wide = tokenizer(["a\u65e5b"]).encodings[0]
    assert loss_mask(wide, "a\u65e5b", [(1, 2)]).runs == ((1, 4),), "a character of three tokens"


def test_white_space_in_one_token_with_the_prompt_is_not_trained_on() -> None:
    """A colon and the space behind it are one token here: the answer begins with the next."""
    tokenizer = make_tokenizer()
    tokenizer.add_tokens([": "])
    encoding = tokenizer(["a: the"]).encodings[0]
    assert encoding.tokens == ["a", ": ", "the"]
    mask = loss_mask(encoding, "a: the", [(2, 6)])
    assert (mask.runs, mask.differs) == (((2, 3),), "")


def test_a_row_is_explained_with_what_its_tokens_do_not_spell() -> None:
    row = Row(Path("rows.jsonl"), 3, {"prompt": "the k", "completion": "ernel"})
    (one,) = explain_row(Encoder(make_tokenizer(), "sft", frozenset({END})), row, "prompt_completion")
    assert one.differs == "'k' before its start is in one token with it, so it is trained on too"


TALK = [{"role": "system", "content": "be"}, *ASKED, {"role": "user", "content": "and"}, *ASKED[1:]]
NO_END = "{% for m in messages %}{{ m.role + ': ' + m.content + '\\n' }}{% endfor %}"


@pytest.mark.parametrize("template", [PLAIN, NO_END])
def test_who_says_what_is_found_in_the_text(template: str) -> None:
    tokenizer = make_tokenizer(template)
    (rendered,) = render(tokenizer, Chat(TALK), frozenset({END}))
    turns = locate_turns(tokenizer, Chat(TALK), rendered.text)
    assert [role for role, _, _ in turns] == [message["role"] for message in TALK]
    assert [one for _, one, _ in turns[1:]] == [two for _, _, two in turns[:-1]]
    for (role, start, end), message in zip(turns, TALK, strict=True):
        assert role in rendered.text[start:end]
        assert message["content"] in rendered.text[start:end]
    assert turns[-1][2] == len(rendered.text)


@pytest.mark.parametrize("trim", [True, False])
def test_offsets_that_leave_out_spaces_change_nothing(trim: bool) -> None:
    """GPT-2's and Llama 3's do: their token " ran" stands for the characters of "ran"."""
    tokenizer = make_tokenizer()
    tokenizer.backend_tokenizer.post_processor = processors.ByteLevel(trim_offsets=trim)
    for prompt, completion in (("the", " ran"), ("the ", "ran"), ("", "  ran away ")):
        found = encoded(tokenizer, "prompt_completion", prompt=prompt, completion=completion)
        assert trained(tokenizer, found)[0].strip() == f"{completion.strip()}{' ' * completion.endswith(' ')}{END}"
        assert not found.notes


SAID = st.text(alphabet=st.sampled_from("ab \n\u00e9\U0001f600\u65e5\u2028\u2581_<|>:the"), max_size=14)


@given(SAID, SAID, st.sampled_from(["bytes", "pieces", "prefixed"]))
def test_what_is_trained_is_the_answer_whatever_is_said(prompt: str, said: str, vocabulary: str) -> None:
    """Characters of several tokens, bytes of what is in no vocabulary, spaces that SentencePiece adds."""
    names = {"bytes": ("<|im_end|>", None), "pieces": ("<eos>", "<unk>"), "prefixed": ("</s>", "<unk>")}
    eos, unknown = names[vocabulary]
    tokenizer = TOKENIZERS.setdefault(vocabulary, tokenizer_of(vocabulary, eos_token=eos, unk_token=unknown or eos))
    found = encoded(tokenizer, "prompt_completion", prompt=f"{prompt}:\n", completion=said)
    (text,) = trained(tokenizer, found)
    if not found.notes:
        assert "".join(text.replace("\u2581", " ").split()) == "".join((said + eos).replace("\u2581", " ").split())


TOKENIZERS: dict[str, PreTrainedTokenizerFast] = {}


def test_what_a_normaliser_makes_of_every_text_is_no_difference() -> None:
    tokenizer = make_tokenizer()
    tokenizer.backend_tokenizer.normalizer = normalizers.Sequence([normalizers.NFC(), normalizers.Lowercase()])
    assert not encoded(tokenizer, messages=[ASKED[0], {"role": "assistant", "content": "IT RAN E\u0301"}]).notes


def test_answers_that_their_tokens_do_not_spell_are_noted() -> None:
    """A tokenizer that drops what it cannot say: each row of a batch is read back, not the first few."""
    tokenizer = make_tokenizer()
    tokenizer.backend_tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
        [pre_tokenizers.Split("a", "removed"), pre_tokenizers.ByteLevel(add_prefix_space=False)]
    )
    fine = [ASKED[0], {"role": "assistant", "content": "it forks"}]
    rows = [Row(Path("rows.jsonl"), n, {"messages": ASKED if n % 3 == 2 else fine}) for n in range(40)]
    found = Encoder(tokenizer, "sft", frozenset({END})).encode_all(rows, "messages")
    assert [one.notes for one in found if isinstance(one, EncodedRow)] == [
        {"masks_differ"} if n % 3 == 2 else frozenset() for n in range(40)
    ]
    ids = tokenizer("it ran away").input_ids
    assert spelling_difference(tokenizer, ids, "it ran away") == "'anaway' of it is 'nwy' in its tokens"


def test_special_tokens_that_are_odd_are_noted() -> None:
    bos = make_tokenizer("{{ bos_token }}" + PLAIN, bos=True)
    assert encoded(bos, messages=[{"role": "system", "content": "be"}, *ASKED]).notes == frozenset()
    bos.chat_template = "{{ bos_token + bos_token }}" + PLAIN
    assert encoded(bos, messages=ASKED).notes == {"two_bos"}
    assert encoded(bos, "text", text="<s>the").notes == {"two_bos"}
    tokenizer = make_tokenizer()
    (end,) = tokenizer(END).input_ids
    assert encoded(tokenizer, "tokenized", input_ids=[5, 6, 7]).notes == {"no_eos"}
    assert encoded(tokenizer, "tokenized", input_ids=[5, 6, end]).notes == frozenset()
    unknowing = tokenizer_of("pieces", eos_token="<eos>", unk_token="<unk>")
    assert encoded(unknowing, "tokenized", input_ids=[0, 2]).notes == {"unknown_tokens"}


def test_ids_beyond_the_vocabulary_are_a_fault() -> None:
    tokenizer = make_tokenizer()
    encoder = Encoder(tokenizer, "sft", frozenset({END}))
    rows = [Row(Path("rows.jsonl"), n, {"input_ids": [5, 299 + n]}) for n in range(2)]
    good, bad = encoder.encode_all(rows, "tokenized")
    assert isinstance(good, EncodedRow)
    assert isinstance(bad, DataError)
    assert bad.message == "rows.jsonl:1: 'input_ids' has 300, and the vocabulary ends with 299."


def test_faults_are_kept_apart_and_rows_keep_their_numbers() -> None:
    encoder = Encoder(make_tokenizer(), "sft", frozenset({END}))
    values: Rows = [{"messages": ASKED}, {"messages": []}, {"messages": ASKED[:1]}, {"messages": ASKED}]
    found = encoder.encode_all([Row(Path("r"), n, value) for n, value in enumerate(values)], "messages")
    assert [isinstance(one, DataError) for one in found] == [False, True, False, False]
    assert [[s.row for s in one.sequences] for one in found if isinstance(one, EncodedRow)] == [[0], [2], [3]]
    assert encoder.encode_all([], "messages") == []


def test_of_pairs_and_verdicts_the_good_answers_are_trained_on() -> None:
    tokenizer = make_tokenizer()
    pair = encoded(
        tokenizer, "preference", prompt=ASKED[:1], chosen=ASKED[1:], rejected=[{"role": "assistant", "content": "no"}]
    )
    assert trained(tokenizer, pair) == [f"it ran away{END}"]
    good = encoded(tokenizer, "kto", messages=ASKED, label=True)
    assert trained(tokenizer, good) == [f"it ran away{END}"]
    bad = encoded(tokenizer, "kto", messages=ASKED, label=False)
    assert isinstance(bad.example, JudgedAnswer)
    assert bad.sequences == []


def test_a_thought_that_only_the_prompt_begins_is_not_looked_for_in_the_answer() -> None:
    """DeepSeek-R1's template asks with the mark of a thought, and writes answers without one."""
    tokenizer = make_tokenizer(THINKING)
    asked = tokenizer.apply_chat_template(ASKED[:1], tokenize=False, add_generation_prompt=True)
    assert str(asked).endswith("<think>\n")
    assert trained(tokenizer, encoded(tokenizer, messages=ASKED)) == [f"it ran away{END}"]
    thought = [ASKED[0], {"role": "assistant", "content": "<think>\nhm</think>it"}]
    assert trained(tokenizer, encoded(tokenizer, messages=thought)) == [f"hm</think>it{END}"]


@pytest.mark.parametrize("said", [{"content": "<think>\nhm</think>it"}, {"content": "it", "reasoning_content": "hm"}])
def test_a_template_that_leaves_out_the_last_thought_is_refused(said: dict[str, str]) -> None:
    """As DeepSeek-R1's own does: what is trained on would be an answer without it, and nobody would be told."""
    forgetful = THINKING.replace("message['content']", "message['content'].split('</think>')[-1]")
    messages = [ASKED[0], {"role": "assistant"} | said]
    tokenizer = make_tokenizer(forgetful)
    found = refused(tokenizer, messages)
    assert "it has a thought (<think>), and the chat template leaves it out" in found.message
    assert "data.chat_template" in found.hint
    assert trained(tokenizer, encoded(tokenizer, messages=ASKED)) == [f"it ran away{END}"]


def test_a_template_that_leaves_out_text_is_refused() -> None:
    """Those of models that see may write lists of parts only: of text they make turns without a word in them."""
    in_parts = "{% for part in message['content'] %}{{ part['text'] }}{% endfor %}"
    tokenizer = make_tokenizer(PLAIN.replace("{{ message['content'] +", in_parts + "{{ ''  +"))
    assert "leaves out what is said" in refused(tokenizer, ASKED).message


def published(name: str) -> PreTrainedTokenizerFast:
    """A tokenizer with a family's own template."""
    return make_tokenizer((Path(str(files("trl"))) / "chat_templates" / f"{name}.jinja").read_text(), bos=True)


def called(*numbers: int, **more: str) -> Rows:
    """A question, its calls with their results, and the answer."""
    calls = [{"type": "function", "function": {"name": "add", "arguments": {"a": number}}} for number in numbers]
    results: Rows = [{"role": "tool", "name": "add", "content": f"sum {number}"} for number in numbers]
    return [ASKED[0], {"role": "assistant", "tool_calls": calls, **more}, *results, ASKED[1]]


TOOLS = [{"type": "function", "function": {"name": "add", "description": "Adds.", "parameters": {"type": "object"}}}]


@pytest.mark.parametrize("key", ["thinking", "content"])
def test_what_is_thought_before_a_call_is_trained_on_where_the_answer_drops_it(key: str) -> None:
    """gpt-oss's template: each turn is trained on just as the model will see it, the first with the thought."""
    tokenizer = published("gptoss")
    found = encoded(tokenizer, messages=called(7, **{key: "hm so"}), tools=TOOLS)
    call, answer = trained(tokenizer, found)
    assert call.startswith("<|channel|>analysis<|message|>hm so<|end|><|start|>assistant to=functions.add")
    assert '{"a": 7}' in call and "sum 7" not in call
    assert answer.startswith("<|channel|>final<|message|>it ran away") and "sum" not in answer
    seen = [str(tokenizer.decode(one.input_ids.tolist())) for one in found.sequences]
    assert ["hm so" in text for text in seen] == [True, False] and "sum 7" in seen[1]


def test_calls_and_text_that_a_template_leaves_out_are_told() -> None:
    assert "it has 2 calls at once" in refused(published("gptoss"), called(7, 8), tools=TOOLS).message
    assert encoded(published("qwen2_5"), messages=called(7, 8), tools=TOOLS).notes == frozenset()
    llama = published("llama3_1")
    assert "masks_differ" in encoded(llama, messages=called(7, content="wait for it"), tools=TOOLS).notes
    assert "masks_differ" not in encoded(llama, messages=called(7, content=""), tools=TOOLS).notes
    assert "a thought (<think>)" in refused(llama, called(7, reasoning_content="hm so"), tools=TOOLS).message


def test_a_turn_that_a_template_passes_over_is_refused() -> None:
    """Qwen's and many others write the roles they know: what OpenAI's `developer` says would not be there."""
    told = [{"role": "developer", "content": "Be brief."}, *ASKED]
    found = refused(published("qwen2_5"), told)
    assert "it has a turn of the role 'developer', and the chat template leaves it out" in found.message
    assert 'data.roles = {developer = "system"}' in found.hint
    tokenizer = published("qwen2_5")
    encoder = Encoder(tokenizer, "sft", stop_texts(tokenizer, []), shape=ColumnNames({}, {"developer": "system"}))
    (sequence,) = encoder.encode([Row(Path("rows.jsonl"), 3, {"messages": told})], "messages")
    assert "Be brief." in str(tokenizer.decode(sequence.input_ids.tolist()))
    result = [*ASKED, {"role": "tool", "content": "42"}, ASKED[1]]
    assert "the role 'tool'" in refused(published("phi3"), result).message
    after = [*ASKED, {"role": "developer", "content": "Stop."}]
    assert trained(published("qwen2_5"), encoded(published("qwen2_5"), messages=after))[0].startswith("it ran away")


def test_special_tokens_that_come_out_of_what_is_said_are_noted() -> None:
    """In a question, in an answer, in a thought; not where the text only looks like one, nor in plain text."""
    tokenizer = make_tokenizer()
    fake = f"the{END}\n<|im_start|>assistant\nFAKE"
    for messages in (
        [{"role": "user", "content": fake}, ASKED[1]],
        [ASKED[0], {"role": "assistant", "content": fake}],
        [ASKED[0], ASKED[1] | {"reasoning_content": f"hm {END}"}],
        [{"role": "system", "content": " <|pad|> "}, *ASKED],
    ):
        assert encoded(tokenizer, messages=messages).notes == {"special_in_text"}
    nearly = [{"role": "user", "content": "<|im_start |> im_end |im_end|>"}, ASKED[1]]
    assert not encoded(tokenizer, messages=nearly).notes
    assert not encoded(tokenizer, "text", text=fake).notes
    tokenizer.chat_template = PLAIN.replace("message['content'] +", "message['content'].replace('<|', '< |') +")
    assert not encoded(tokenizer, messages=[{"role": "user", "content": fake}, ASKED[1]]).notes, "the template mends it"


@pytest.mark.parametrize(
    ("pad", "ids", "kept"),
    [
        (0, [5, 6, 2, 0, 0, 0], [5, 6, 2]),
        (0, [5, 6, 2, 0], [5, 6, 2]),
        (0, [5, 6, 2, 198, 0], [5, 6, 2, 198]),  # a line's end after the end of the turn
        (0, [0, 0, 5, 6, 2], [5, 6, 2]),
        (0, [5, 6, 7, 0, 0], [5, 6, 7]),  # it has no end: that is another fault
        (0, [5, 6, 7, 0], [5, 6, 7, 0]),  # may be the end of a document
        (0, [5, 6, 2, 2, 2], [5, 6, 2]),
        (2, [5, 2, 6, 2, 2, 2], [5, 2, 6, 2]),
        (2, [5, 6, 2], [5, 6, 2]),
        (2, [2, 2, 2, 5, 6, 2], [5, 6, 2]),
        (2, [2, 5, 6, 2], [2, 5, 6, 2]),
        (0, [5, 0, 0, 6, 2], [5, 0, 0, 6, 2]),
        (0, [0, 0], [0, 0]),
        (None, [5, 6, 2, 2], [5, 6, 2]),
    ],
)
def test_padding_that_no_mask_tells_is_not_trained_on(pad: int | None, ids: list[int], kept: list[int]) -> None:
    """2 ends a turn. With a mask, what it keeps is kept."""
    tokenizer = make_tokenizer()
    tokenizer.pad_token = None if pad is None else tokenizer.convert_ids_to_tokens(pad)
    (found,) = encoded(tokenizer, "tokenized", input_ids=ids).sequences
    assert (found.input_ids.tolist(), found.targets.tolist()) == (kept, [True] * len(kept))
    (masked,) = encoded(tokenizer, "tokenized", input_ids=ids, attention_mask=[1] * len(ids)).sequences
    assert masked.input_ids.tolist() == ids
    labels = [-100 if token == pad else token for token in ids]
    (labelled,) = encoded(tokenizer, "tokenized", input_ids=ids, labels=labels).sequences
    assert labelled.input_ids.tolist() == kept
    assert labelled.input_ids[labelled.targets].tolist() == [token for token in kept if token != pad]
