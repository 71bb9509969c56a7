"""Tokens made piece by piece, against the tokenizers library that makes them of whole texts."""

import random
from typing import Any

import pytest
from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers, processors, trainers
from transformers import PreTrainedTokenizerFast

from ftui.engine.data.tokens import pieces
from ftui.engine.data.tokens.pieces import WORD_PATTERNS, find_piece_tokenizer

MARK, END = "<|start|>", "<|end|>"
WORDS = [
    "the", "dog's", "I'LL", "1,234.5", "(17)", "caf\u00e9", "\u3042\u3044\u3046", "\u00df\u0130", "e\u0301",
    "snake_case()",
    "http://a.b/c?d=1", "\U0001f600\u200d\U0001f680", "don't.", "A1b2",
    "...", "--", "$5", "x=1;", "\u0660\u0661", "\u2019s",
    "\x1c", "\0", "HTTPServer's", "a/\n", MARK, END, "user", "<|", "|>", "end",
]  # fmt: skip
SPACES = [
    "", " ", " ", " ", "  ", "   ", "\n", "\n\n", " \n", "\n ", "\t", " \t ", "\u00a0", "\u2003", "\r\n", "\u3000 ",
    "\x85",
]  # fmt: skip
BYTES = pre_tokenizers.ByteLevel(add_prefix_space=False)
BYTES_ALONE = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)


def parted_by(pattern: str, behaviour: str) -> pre_tokenizers.PreTokenizer:
    split = pre_tokenizers.Split(Regex(pattern), behaviour, invert=behaviour == "removed")
    return pre_tokenizers.Sequence([split, BYTES_ALONE])


SPLITS = {
    f"split {number} {behaviour}": parted_by(pattern, behaviour)
    for number, pattern in enumerate(sorted(WORD_PATTERNS))
    for behaviour in ("isolated", "removed")
}
STEPS = {
    "bytes": BYTES,
    "digits": pre_tokenizers.Sequence([pre_tokenizers.Digits(True), BYTES]),
    "numbers": pre_tokenizers.Sequence([pre_tokenizers.Digits(False), BYTES]),
} | SPLITS


def texts(number: int, seed: int = 3) -> list[str]:
    chance = random.Random(seed)
    return [
        "".join(chance.choice(WORDS) + chance.choice(SPACES) for _ in range(chance.randrange(30)))
        for _ in range(number)
    ]


def tokenizer_with(step: pre_tokenizers.PreTokenizer, **changes: Any) -> PreTrainedTokenizerFast:
    backend = Tokenizer(models.BPE())
    backend.pre_tokenizer, backend.decoder = step, decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=420,
        special_tokens=[MARK, END],
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    backend.train_from_iterator(texts(200, seed=1), trainer)
    for name, value in changes.items():
        setattr(backend, name, value)
    return PreTrainedTokenizerFast(tokenizer_object=backend, eos_token=END)


@pytest.mark.parametrize("name", STEPS)
@pytest.mark.parametrize("trims", [False, True])
def test_pieces_have_the_tokens_of_whole_texts(name: str, trims: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pieces, "MOST_PIECES", 60)  # forgets on the way
    post = processors.ByteLevel(add_prefix_space=False, trim_offsets=trims)
    tokenizer = tokenizer_with(STEPS[name], post_processor=post)
    parted = find_piece_tokenizer(tokenizer)
    assert parted is not None
    for text in texts(150):
        whole, ours = tokenizer.backend_tokenizer.encode(text, add_special_tokens=False), parted.encode(text)
        assert ours.ids == whole.ids, repr(text)
        assert [ours.token_to_chars(n) for n in range(len(ours))] == whole.offsets, repr(text)
        places = range(len(text) + 1)
        assert [ours.char_to_token(at) for at in places] == [whole.char_to_token(at) for at in places], repr(text)
        if ours.are_spelt:
            assert tokenizer.backend_tokenizer.decode(ours.ids, skip_special_tokens=False) == text


REFUSED: dict[str, tuple[pre_tokenizers.PreTokenizer, dict[str, Any]]] = {
    "a space before the first word": (pre_tokenizers.ByteLevel(add_prefix_space=True), {}),
    "no words": (pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False), {}),
    "an unknown pattern": (
        parted_by(r"\w+ \w+", "isolated"),
        {},
    ),
    "a normaliser": (BYTES, {"normalizer": normalizers.NFC()}),
    "another decoder": (BYTES, {"decoder": decoders.Metaspace()}),
    "places that depend on the beginning": (
        BYTES,
        {"post_processor": processors.ByteLevel(add_prefix_space=True, trim_offsets=True)},
    ),
}


@pytest.mark.parametrize("name", REFUSED)
def test_other_tokenizers_are_left_to_themselves(name: str) -> None:
    step, changes = REFUSED[name]
    assert find_piece_tokenizer(tokenizer_with(step, **changes)) is None


@pytest.mark.parametrize(
    "mark",
    [
        AddedToken("<a>", lstrip=True),
        AddedToken("<a>", rstrip=True),
        AddedToken("yes", single_word=True),
        AddedToken("<a b>"),
    ],
)
def test_marks_that_take_what_is_beside_them_are_left_to_the_tokenizer(mark: AddedToken) -> None:
    tokenizer = tokenizer_with(BYTES)
    tokenizer.add_tokens([mark])
    assert find_piece_tokenizer(tokenizer) is None


def test_dropout_is_left_to_the_tokenizer() -> None:
    tokenizer = tokenizer_with(BYTES)
    tokenizer.backend_tokenizer.model.dropout = 0.5
    assert find_piece_tokenizer(tokenizer) is None
