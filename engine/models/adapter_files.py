"""An adapter as a folder, in PEFT's layout: where the one to continue from is, and its hash."""

import hashlib
import json
from collections.abc import Callable, Iterable
from pathlib import Path

from tokenizers import Tokenizer
from transformers import PreTrainedTokenizerBase

from ftui.errors import ModelError
from ftui.models.model_files import check_files
from ftui.profile.sections.adapter import AdapterSection
from ftui.runs.checkpoint_folders import file_hash

from .files.blame import blame
from .files.hub import model_folder

ADAPTER = "adapter_model.safetensors"
CONFIG = "adapter_config.json"


def starting_adapter(section: AdapterSection, report: Callable[[str], None]) -> Path | None:
    """The folder of the adapter to continue from, fetched if it is on the hub; `None` for a new one.

    Raises:
        ModelError: there is none, or its weights are no safetensors.
    """
    if section.name_or_path is None:
        return None
    folder = Path(section.name_or_path)
    if not folder.is_absolute():
        folder, _ = model_folder(section.name_or_path, None, report)
    if not folder.is_dir():
        raise ModelError(f"There is no adapter folder {folder}.", hint="Check adapter.name_or_path.")
    if missing := [name for name in (CONFIG, ADAPTER) if not (folder / name).is_file()]:
        raise ModelError(f"{folder} is not an adapter: it has no {missing[0]}.", hint="Check adapter.name_or_path.")
    check_files(folder, is_complete=True)
    return folder


def check_tokens(folder: Path, tokenizer: PreTrainedTokenizerBase, new_ids: Iterable[int]) -> None:
    """Rows of the embeddings that the adapter brings must be those of the same tokens, where it has a tokenizer.

    `new_ids` are entries of the tokenizer that the base was not trained on.

    Raises:
        ModelError: one of them is another token.
    """
    path = folder / "tokenizer.json"
    if not path.is_file():
        return
    with blame(path, "used"):
        adapter_tokenizer = Tokenizer.from_file(str(path))
    trained = trained_rows(folder)
    for number in sorted({*new_ids, *trained}):
        own_token, adapter_token = tokenizer.convert_ids_to_tokens(number), adapter_tokenizer.id_to_token(number)
        if own_token != adapter_token:
            tokens = json.dumps([adapter_tokenizer.id_to_token(row) for row in trained], ensure_ascii=False)
            raise ModelError(
                f"Entry {number} of the tokenizer is {_token(own_token)}, "
                f"but {_token(adapter_token)} for the adapter in {folder}.",
                hint=f"Add the tokens it was trained with, in its order: model.extra_special_tokens = {tokens}."
                if trained
                else "Use the tokens that it was trained with: model.extra_special_tokens.",
            )


def trained_rows(folder: Path) -> list[int]:
    """Entries of the vocabulary whose embeddings an adapter has one by one, sorted.

    Raises:
        ModelError: its config cannot be read.
    """
    with blame(folder / CONFIG, "used"):
        rows = json.loads((folder / CONFIG).read_bytes()).get("trainable_token_indices") or []
        return sorted({int(row) for its in (rows.values() if isinstance(rows, dict) else [rows]) for row in its})


def _token(token: object) -> str:
    return "nothing" if token is None else repr(token)


def adapter_fingerprint(folder: Path) -> str:
    """SHA-256 over the adapter's config and weights."""
    return hashlib.sha256((file_hash(folder / CONFIG) + file_hash(folder / ADAPTER)).encode()).hexdigest()
