"""The tokenizer: the model's own, or a byte-level BPE trained here on the rows of the profile."""

import hashlib
import json
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING

from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers
from transformers import PreTrainedTokenizerBase, PreTrainedTokenizerFast

from ftui.errors import ModelError

from .files.blame import blame
from .files.remote_code import HOW, brings_code, check_code

if TYPE_CHECKING:  # pydantic: processes that only tokenise do without
    from ftui.profile.sections.from_scratch import FromScratch

# Marks the assistant's turns itself, so that training on answers only needs no guess about where they stand.
CHAT_TEMPLATE = (
    "{%% for message in messages %%}"
    "{{ '%(start)s' + message['role'] + '\\n' }}"
    "{%% if message['role'] == 'assistant' %%}"
    "{%% generation %%}{{ message['content'] + '%(end)s' }}{%% endgeneration %%}{{ '\\n' }}"
    "{%% else %%}{{ message['content'] + '%(end)s\\n' }}{%% endif %%}"
    "{%% endfor %%}"
    "{%% if add_generation_prompt %%}{{ '%(start)sassistant\\n' }}{%% endif %%}"
)


def load_tokenizer(folder: Path, *, trusted: bool = False) -> PreTrainedTokenizerBase:
    """The tokenizer in a model's folder; `trusted` runs the Python code beside it where it is one of its own.

    Raises:
        ModelError: there is none, it cannot be read, or it is not a fast one (targets need character offsets).
    """
    from transformers import AutoTokenizer  # it brings torch, which processes that only tokenise do without

    if trusted:
        check_code(folder)
    definition, config = folder / "tokenizer.json", folder / "tokenizer_config.json"
    try:
        with blame(config if config.is_file() else folder, "used to load the tokenizer"):
            tokenizer = AutoTokenizer.from_pretrained(folder, local_files_only=True, trust_remote_code=trusted)
            tokenizer("a")  # wrong values in its config may show only then
    except ModelError as error:
        if not trusted and brings_code(folder):
            raise ModelError(f"The model in {folder} brings its own Python code: it is not run.", hint=HOW) from error
        if definition.is_file():
            with blame(definition, "used"):
                Tokenizer.from_file(str(definition))
        raise
    if not tokenizer.is_fast:
        raise ModelError(f"The tokenizer in {folder} has no fast version (tokenizer.json), which ftui needs.")
    assert isinstance(tokenizer, PreTrainedTokenizerBase)
    return tokenizer


def bare_tokenizer(folder: Path) -> PreTrainedTokenizerBase:
    """The tokenizer that `save_pretrained` left in a folder, of no model's own class and without torch."""
    tokenizer = PreTrainedTokenizerFast.from_pretrained(folder, local_files_only=True)
    assert isinstance(tokenizer, PreTrainedTokenizerBase)
    return tokenizer


def end_padding(tokenizer: PreTrainedTokenizerBase) -> str:
    """A token to pad with that ends no text: where a text ends, transformers tells by what is no padding.

    The tokenizer's own, unless it ends texts too; else another special token that is not said at an end.

    Raises:
        ModelError: there is none.
    """
    ids = {str(token): number for token, number in tokenizer.get_vocab().items()}
    begin, end = tokenizer.bos_token, tokenizer.eos_token
    others = sorted(
        map(str, tokenizer.all_special_tokens), key=lambda token: ("pad" not in token, token != begin, ids[token])
    )
    for token in (tokenizer.pad_token, *others):
        if token is not None and token != end:
            return str(token)
    raise ModelError(
        "This tokenizer has no token to pad with but the one that ends a text, and the score of a text is read at its "
        "end.",
        hint='Add one: model.extra_special_tokens = ["<|pad|>"].',
    )


def is_bare(tokenizer: PreTrainedTokenizerBase) -> bool:
    """Whether `bare_tokenizer` gives the same tokens: its class has no code of its own for tokens or templates."""
    own = type(tokenizer)
    return all(
        getattr(own, name) is getattr(PreTrainedTokenizerFast, name)
        for name in ("__call__", "_encode_plus", "get_chat_template")
    )


def train_tokenizer(scratch: "FromScratch", texts: Iterable[str]) -> PreTrainedTokenizerBase:
    """A byte-level BPE with a chat template; every byte has a token, so nothing is ever unknown."""
    pad, start, *_, end = scratch.special_tokens
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
        [pre_tokenizers.Digits(individual_digits=True), pre_tokenizers.ByteLevel(add_prefix_space=False)]
    )
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=scratch.vocab_size,
        special_tokens=list(scratch.special_tokens),
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    tokenizer.train_from_iterator(texts, trainer)
    wrapped = PreTrainedTokenizerFast(
        tokenizer_object=tokenizer, pad_token=pad, eos_token=end, clean_up_tokenization_spaces=False,
        model_max_length=scratch.max_position_embeddings, extra_special_tokens=list(scratch.special_tokens[1:-1]),
    )  # fmt: skip
    wrapped.chat_template = CHAT_TEMPLATE % {"start": start, "end": end}
    return wrapped


def tokenizer_fingerprint(tokenizer: PreTrainedTokenizerBase) -> str:
    """SHA-256 of a fast tokenizer's whole definition and its chat template."""
    backend = tokenizer.backend_tokenizer.to_str()
    template = tokenizer.chat_template or ""
    special = json.dumps(tokenizer.special_tokens_map, sort_keys=True, default=str)
    return hashlib.sha256("\0".join([backend, str(template), special]).encode()).hexdigest()
