"""A tokenizer of transformers as the vocabulary of a GGUF file."""

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from gguf import GGUFWriter, TokenType
from transformers import GenerationConfig, PreTrainedTokenizerBase

from ftui.errors import ModelError

from ..models.tokenizer import load_tokenizer
from .pre_tokenizers import pre_tokenizer_name

SPACE = "▁"  # what stands for a space in a SentencePiece
UNREACHED = -1e9  # score of an entry that no merge makes


@dataclass(frozen=True)
class Vocabulary:
    """The entries of a tokenizer by id, and what it adds to texts.

    `model` is `gpt2` (byte-level BPE, with `merges` and `pre`) or `llama` (SentencePiece, with `scores`).
    """

    model: str
    pre: str
    tokens: list[str]
    types: list[TokenType]
    merges: list[str]
    scores: list[float]
    adds_space: bool
    adds_bos: bool
    adds_eos: bool
    composes: bool
    """It composes characters (NFC) before it splits text, which llama.cpp does not."""
    bos: int | None
    pad: int | None
    unknown: int | None
    stops: list[int]
    """Tokens that end an answer, that of the tokenizer first."""
    template: str | None


def read_vocabulary(folder: Path, config: Any) -> Vocabulary:
    """The vocabulary of the tokenizer in a model's folder.

    Raises:
        ModelError: it is of a kind that llama.cpp would read otherwise.
    """
    tokenizer = load_tokenizer(folder)
    definition = json.loads(tokenizer.backend_tokenizer.to_str())
    is_pieces = bool(definition["model"].get("byte_fallback"))
    _check_model(definition["model"])
    tokens, types = _entries(definition, config.vocab_size)
    merges = [pair if isinstance(pair, str) else " ".join(pair) for pair in definition["model"]["merges"]]
    adds_bos, adds_eos = _added_ends(tokenizer)
    template = tokenizer.chat_template
    return Vocabulary(
        model="llama" if is_pieces else "gpt2",
        pre="default" if is_pieces else pre_tokenizer_name(definition),
        tokens=tokens,
        types=types,
        merges=[] if is_pieces else merges,
        scores=_scores(tokens, definition["model"]["merges"]) if is_pieces else [],
        adds_space=is_pieces and _adds_space(definition),
        adds_bos=adds_bos,
        adds_eos=adds_eos,
        composes=not is_pieces and _composes(definition["normalizer"]),
        bos=tokenizer.bos_token_id,
        pad=tokenizer.pad_token_id,
        unknown=tokenizer.unk_token_id,
        stops=_stops(folder, tokenizer),
        template=template.get("default") if isinstance(template, dict) else template,
    )


def write_vocabulary(writer: GGUFWriter, vocabulary: Vocabulary) -> None:
    """Its keys."""
    writer.add_tokenizer_model(vocabulary.model)
    writer.add_tokenizer_pre(vocabulary.pre)
    writer.add_token_list(vocabulary.tokens)
    writer.add_token_types(vocabulary.types)
    if vocabulary.scores:
        writer.add_token_scores(vocabulary.scores)
    if vocabulary.merges:
        writer.add_token_merges(vocabulary.merges)
    ends = (writer.add_eos_token_id, writer.add_eot_token_id, writer.add_eom_token_id)
    for add, stop in zip(ends, vocabulary.stops, strict=False):
        add(stop)
    for put, token in (
        (writer.add_bos_token_id, vocabulary.bos),
        (writer.add_pad_token_id, vocabulary.pad),
        (writer.add_unk_token_id, vocabulary.unknown),
    ):
        if token is not None:
            put(token)
    writer.add_add_bos_token(vocabulary.adds_bos)
    writer.add_add_eos_token(vocabulary.adds_eos)
    writer.add_add_space_prefix(vocabulary.adds_space)
    if vocabulary.template:
        writer.add_chat_template(vocabulary.template)


def _check_model(model: dict[str, Any]) -> None:
    odd = [key for key in ("continuing_subword_prefix", "end_of_word_suffix", "dropout") if model.get(key)]
    if model["type"] != "BPE" or odd:
        kind = f"{model['type']} with {', '.join(odd)}" if odd else model["type"]
        raise ModelError(
            f"A tokenizer of kind {kind} cannot be written as GGUF here.",
            hint="Verified are BPE on bytes, and BPE with byte fallback (SentencePiece).",
        )


def _entries(definition: dict[str, Any], size: int) -> tuple[list[str], list[TokenType]]:
    """Texts and types of all rows of the embedding."""
    texts = {number: text for text, number in definition["model"]["vocab"].items()}
    types = dict.fromkeys(texts, TokenType.NORMAL)
    if definition["model"].get("byte_fallback"):
        types |= {number: TokenType.BYTE for number, text in texts.items() if _is_byte(text)}
    for token in definition["added_tokens"]:
        if token["lstrip"] or token["rstrip"] or token["single_word"]:
            raise ModelError(
                f"The token {token['content']!r} takes spaces beside it, or stands for whole words only.",
                hint="llama.cpp has no such tokens: texts with it would have other ones.",
            )
        texts[token["id"]] = token["content"]
        types[token["id"]] = TokenType.CONTROL if token["special"] else TokenType.USER_DEFINED
    unknown = definition["model"].get("unk_token")
    types |= {number: TokenType.UNKNOWN for number, text in texts.items() if text == unknown}
    if max(texts) >= size:
        raise ModelError(f"The tokenizer has entry {max(texts)}, but the model has embeddings of {size} only.")
    numbers = range(size)
    return [texts.get(n, f"[PAD{n}]") for n in numbers], [types.get(n, TokenType.UNUSED) for n in numbers]


def _is_byte(text: str) -> bool:
    return len(text) == 6 and text.startswith("<0x") and text.endswith(">")


def _scores(tokens: list[str], merges: list[Any]) -> list[float]:
    """llama.cpp joins what gives the entry of the highest score first: the entry whose merge comes first."""
    ranks: dict[str, int] = {}
    for rank, pair in enumerate(merges):
        first, second = pair.split(" ") if isinstance(pair, str) else pair
        ranks.setdefault(first + second, rank)
    return [-float(ranks[text]) if text in ranks else UNREACHED for text in tokens]


def _adds_space(definition: dict[str, Any]) -> bool:
    """Whether a text begins with a space that nobody wrote.

    Raises:
        ModelError: the tokenizer prepares texts in another way than SentencePiece does.
    """
    normalizer, split = definition["normalizer"], definition["pre_tokenizer"]
    steps = [] if normalizer is None else normalizer.get("normalizers", [normalizer])
    kinds = [step["type"] for step in steps]
    replaced = [step for step in steps if step["type"] == "Replace"]
    only_spaces = all(step["pattern"] == {"String": " "} and step["content"] == SPACE for step in replaced)
    if kinds == ["Prepend", "Replace"] and only_spaces and split is None:
        return True
    cuts_spaces = split is None or (split["type"] == "Split" and split["pattern"] == {"String": " "})
    if kinds == ["Replace"] and only_spaces and cuts_spaces:  # no spaces are left to cut at
        return False
    if not kinds and split is not None and split["type"] == "Metaspace" and not split.get("split", True):
        return bool(split["prepend_scheme"] != "never")
    raise ModelError(
        "The tokenizer prepares texts in a way that llama.cpp has not.",
        hint=f"Its normalizer: {json.dumps(normalizer, ensure_ascii=False)[:200]}",
    )


def _composes(normalizer: Any) -> bool:
    if normalizer is None:
        return False
    if normalizer == {"type": "NFC"}:
        return True
    raise ModelError(
        f"The tokenizer changes texts ({json.dumps(normalizer)[:200]}) in a way that llama.cpp has not.",
    )


def _added_ends(tokenizer: PreTrainedTokenizerBase) -> tuple[bool, bool]:
    """Whether it puts its first token before a text, its last one behind it.

    Raises:
        ModelError: it adds others.
    """
    plain, ids = tokenizer("a", add_special_tokens=False).input_ids, tokenizer("a").input_ids
    bos, eos = [tokenizer.bos_token_id], [tokenizer.eos_token_id]
    for before in (False, True):
        for behind in (False, True):
            if ids == (bos if before else []) + plain + (eos if behind else []):
                return before, behind
    added = tokenizer.convert_ids_to_tokens(ids)
    raise ModelError(f"The tokenizer makes {added} of 'a': llama.cpp can add one first and one last token only.")


def _stops(folder: Path, tokenizer: PreTrainedTokenizerBase) -> list[int]:
    declared: Any = None
    if (folder / "generation_config.json").is_file():
        declared = GenerationConfig.from_pretrained(folder, local_files_only=True).eos_token_id
    stops = [tokenizer.eos_token_id, *(declared if isinstance(declared, list) else [declared])]
    found = [int(stop) for stop in dict.fromkeys(stops) if stop is not None]
    if not found:
        raise ModelError(
            "The model has no token that ends an answer, and llama.cpp would take one by chance.",
            hint="Set eos_token in tokenizer_config.json, or eos_token_id in generation_config.json.",
        )
    return found
