"""A vocabulary in a GGUF file gives the tokens of its tokenizer on 1,000 texts; what it could not give is refused."""

import json
from pathlib import Path
from typing import Any

import pytest
from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers, processors, trainers
from transformers import PreTrainedTokenizerFast

from ftui.engine.gguf_files.gguf_certificate import ask_llama, compose
from ftui.engine.gguf_files.llama_process import Questions
from ftui.engine.gguf_files.pre_tokenizers import LLAMA3, QWEN2
from ftui.engine.gguf_files.sample_texts import CODE, NUMBERS, WORDS, comparison_texts
from ftui.engine.gguf_files.vocabulary import read_vocabulary
from ftui.errors import ModelError
from tests.engine.gguf_files.conftest import MakeModel, needs_llama
from tests.engine.gguf_files.test_write_model import written

LEARNT = [*WORDS, *CODE, *NUMBERS, *(f"{word} {word}s 12 345  \n\n" for word in ["the", "said", "don't", "there"])] * 4
SPECIAL = ["<|im_end|>", "<s>"]


def byte_level(*cuts: Any, whole_words: bool = False, composed: bool = False) -> Tokenizer:
    """A BPE on bytes that cuts texts so."""
    backend = Tokenizer(models.BPE(ignore_merges=whole_words))
    backend.normalizer = normalizers.NFC() if composed else None
    ends = pre_tokenizers.ByteLevel(
        add_prefix_space=False, use_regex=not any(isinstance(c, pre_tokenizers.Split) for c in cuts)
    )
    backend.pre_tokenizer = pre_tokenizers.Sequence([*cuts, ends]) if cuts else ends
    backend.decoder = decoders.ByteLevel()
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    trainer = trainers.BpeTrainer(
        vocab_size=700, special_tokens=SPECIAL, show_progress=False, initial_alphabet=alphabet
    )
    backend.train_from_iterator(LEARNT, trainer)
    return backend


def pieces(*, prefix: bool, bos: bool = False) -> Tokenizer:
    """A SentencePiece as transformers has it: BPE with byte fallback."""
    backend = Tokenizer(models.BPE(unk_token="<unk>", byte_fallback=True, fuse_unk=True))
    steps: list[Any] = [normalizers.Prepend("▁")] if prefix else []
    steps.append(normalizers.Replace(" ", "▁"))
    backend.normalizer = normalizers.Sequence(steps) if prefix else steps[0]
    backend.decoder = decoders.Sequence([decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse()])
    names = ["<unk>", *SPECIAL, *(f"<0x{byte:02X}>" for byte in range(256))]
    trainer = trainers.BpeTrainer(vocab_size=900, special_tokens=names, show_progress=False, limit_alphabet=200)
    backend.train_from_iterator([word for line in LEARNT for word in line.split(" ")], trainer)
    definition = json.loads(backend.to_str())
    definition["added_tokens"] = definition["added_tokens"][:3]
    backend = Tokenizer.from_str(json.dumps(definition))
    if bos:
        backend.post_processor = processors.TemplateProcessing(single="<s> $A", special_tokens=[("<s>", 2)])
    return backend


def split(expression: str) -> Any:
    return pre_tokenizers.Split(Regex(expression), behavior="isolated")


KINDS: dict[str, Any] = {
    "gpt-2": lambda: byte_level(),
    "smollm": lambda: byte_level(pre_tokenizers.Digits(individual_digits=True)),
    "qwen2": lambda: byte_level(split(QWEN2), composed=True),
    "llama-bpe": lambda: byte_level(split(LLAMA3), whole_words=True),
    "smaug-bpe": lambda: byte_level(split(LLAMA3)),
    "pieces": lambda: pieces(prefix=True, bos=True),
    "pieces without prefix": lambda: pieces(prefix=False),
}


def with_tokenizer(make_model: MakeModel, backend: Tokenizer, **more: Any) -> tuple[Path, PreTrainedTokenizerFast]:
    """A model with this tokenizer."""
    tokenizer = PreTrainedTokenizerFast(
        tokenizer_object=backend, eos_token="<|im_end|>", bos_token="<s>", clean_up_tokenization_spaces=False
    )
    for added in more.pop("added", ()):
        tokenizer.add_tokens([added])
    folder, _ = make_model("llama", vocab_size=len(tokenizer) + 3, **more)
    tokenizer.save_pretrained(folder)
    return folder, tokenizer


@needs_llama
@pytest.mark.slow
@pytest.mark.parametrize("kind", KINDS)
def test_tokens_are_those_of_the_tokenizer(kind: str, make_model: MakeModel) -> None:
    added = AddedToken("<tool>", normalized=False, special=False)
    folder, tokenizer = with_tokenizer(make_model, KINDS[kind](), added=[added])
    vocabulary = read_vocabulary(folder, tokenizer_config(len(tokenizer) + 3))
    assert vocabulary.pre == kind or vocabulary.model == "llama"
    texts = [compose(text, vocabulary) for text in comparison_texts([], [*SPECIAL, "<tool>"])]
    answers = ask_llama(Questions(str(written(folder)), texts, [], 1), folder)
    expected = [tokenizer(text).input_ids for text in texts]
    different = [
        (text, tokenizer.convert_ids_to_tokens(a), tokenizer.convert_ids_to_tokens(b))
        for text, a, b in zip(texts, expected, answers.tokens, strict=True)
        if a != b
    ]
    assert len(texts) == 1000 and not different, (len(different), different[:2])


def tokenizer_config(size: int) -> Any:
    class Sizes:
        vocab_size = size

    return Sizes()


def changed(backend: Tokenizer, **parts: Any) -> Tokenizer:
    definition = json.loads(backend.to_str()) | parts
    return Tokenizer.from_str(json.dumps(definition))


@pytest.mark.parametrize(
    ("make", "added", "words"),
    [
        (lambda: byte_level(split(r"\p{L}+|\s+")), (), r"no name for how this tokenizer splits text"),
        (lambda: byte_level(split(QWEN2), whole_words=True), (), "no name"),
        (lambda: changed(byte_level(), normalizer={"type": "NFKC"}), (), "NFKC"),
        (lambda: changed(pieces(prefix=False), normalizer={"type": "NFKC"}), (), "in a way that llama.cpp has not"),
        (lambda: Tokenizer(models.WordLevel({"<unk>": 0, "<s>": 1}, unk_token="<unk>")), (), "WordLevel"),
        (byte_level, (AddedToken("<tool>", lstrip=True),), "'<tool>' takes spaces"),
    ],
    ids=["unknown split", "words taken whole", "normalizer", "normalizer of pieces", "kind", "token with spaces"],
)
def test_what_llama_would_read_otherwise_is_refused(
    make: Any, added: tuple[Any, ...], words: str, tmp_path: Path
) -> None:
    tokenizer = PreTrainedTokenizerFast(tokenizer_object=make(), eos_token="<|im_end|>", bos_token="<s>")
    tokenizer.add_tokens(list(added))
    tokenizer.save_pretrained(tmp_path)
    with pytest.raises(ModelError, match=words):
        read_vocabulary(tmp_path, tokenizer_config(len(tokenizer)))


@pytest.mark.parametrize(
    ("declared", "eos", "stops"),
    [([1, 2], "<|im_end|>", [0, 1, 2]), (1, "<|im_end|>", [0, 1]), ([1], None, [1]), (None, None, None)],
)
def test_all_tokens_that_end_an_answer_are_named(
    declared: Any, eos: str | None, stops: list[int] | None, tmp_path: Path
) -> None:
    PreTrainedTokenizerFast(tokenizer_object=byte_level(), eos_token=eos).save_pretrained(tmp_path)
    (tmp_path / "generation_config.json").write_text(json.dumps({"eos_token_id": declared}))
    if stops is None:
        with pytest.raises(ModelError, match="no token that ends an answer"):
            read_vocabulary(tmp_path, tokenizer_config(700))
    else:
        assert read_vocabulary(tmp_path, tokenizer_config(700)).stops == stops


def test_rows_without_an_entry_and_entries_without_a_row(tmp_path: Path) -> None:
    PreTrainedTokenizerFast(tokenizer_object=byte_level(), eos_token="<|im_end|>").save_pretrained(tmp_path)
    found = read_vocabulary(tmp_path, tokenizer_config(703))
    assert len(found.tokens) == 703 == len(set(found.tokens)), "no entry twice: llama.cpp aborts"
    with pytest.raises(ModelError, match="embeddings of 600 only"):
        read_vocabulary(tmp_path, tokenizer_config(600))
