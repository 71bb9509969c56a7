"""A `.gguf` file as a folder in transformers format, unpacked once into the cache: all else sees a plain model."""

import json
import re
import secrets
import shutil
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import torch
from gguf import GGMLQuantizationType, GGUFReader
from safetensors import SafetensorError
from tokenizers import pre_tokenizers
from transformers import AutoConfig, AutoModelForCausalLM, AutoTokenizer, GgufConfig, PreTrainedTokenizerBase

from ftui.errors import DiskError, ModelError
from ftui.system.files import make_private_folder, replace_file, sync_path

from ..transformers_internals import knows_gguf_split
from .fingerprints import SOURCE, Source, file_hashes, source_of

FORM = 1  # raise it whenever the same file would be unpacked to another folder
SPLIT = re.compile(r"-\d{5}-of-\d{5}\.gguf$")
GPT2_SPLITS = {None, "default", "gpt-2", "gpt2"}  # the tokenizers that transformers takes all unknown ones for
STORED: dict[str, torch.dtype] = {"F64": torch.float32, "F32": torch.float32, "BF16": torch.bfloat16}
# Llama 3's stretched positions, which a file gives as one divisor for each frequency: what its makers published.
LLAMA3_ROPES = [
    {"rope_type": "llama3", "factor": factor, "low_freq_factor": 1.0, "high_freq_factor": 4.0,
     "original_max_position_embeddings": 8192}
    for factor in (8.0, 32.0)
]  # fmt: skip


def unpacked(file: Path, cache: Path, report: Callable[[str], None]) -> Path:
    """The folder made from `file`: safetensors, config and tokenizer. Only the first time it takes minutes.

    Raises:
        ModelError: not a GGUF file, only a part of a model, or made in a way that transformers cannot read in full.
        DiskError: the disk is full.
    """
    if SPLIT.search(file.name):
        raise ModelError(
            f"{file.name} is one part of a model.", hint="Join the parts first: llama-gguf-split --merge PART WHOLE"
        )
    digest = file_hashes([file], cache, lambda: report(f"reading {file.name}"))[file]
    place = cache / "models" / f"{digest}-{FORM}"
    if source_of(place) is None:
        report(f"unpacking {file.name}")
        _publish(file, digest, place)
    return place


def _publish(file: Path, digest: str, place: Path) -> None:
    staged = make_private_folder(place.parent / f".partial-{secrets.token_hex(8)}")
    try:
        notes = _unpack(file, staged)
        for path in staged.iterdir():
            sync_path(path)  # after a power cut a file may be full-length and zero
        replace_file(staged / SOURCE, msgspec.json.encode(Source(digest, notes)), durable=True)
        try:
            staged.rename(place)
        except OSError:  # another run was faster
            if source_of(place) is None:
                raise
    except (OSError, SafetensorError) as error:
        hint = "Free space, or let FTUI_CACHE name another volume."
        raise DiskError(f"{file.name} could not be unpacked: {error}.", hint=hint) from error
    finally:
        shutil.rmtree(staged, ignore_errors=True)  # gone already when it was published


def _unpack(file: Path, folder: Path) -> list[str]:
    """Write model and tokenizer; returns what a person should know about them."""
    reader = _open_reader(file)
    try:
        tokenizer, model, loaded = _load_model(file, reader)
    except (ValueError, KeyError, NotImplementedError, RuntimeError, TypeError, ImportError) as error:
        raise ModelError(f"{file} cannot be read as a model: {error}", hint=_ELSEWHERE) from error
    if missing := sorted(loaded["missing_keys"]):  # transformers warns, and draws them by chance
        raise ModelError(f"{file} lacks weights of its model: {', '.join(missing[:3])}.", hint=_ELSEWHERE)
    _restore_positions(model, reader, file)
    notes = _restore_split(tokenizer, reader)
    stops = _stops(model.config.eos_token_id, tokenizer, reader)
    for config in (model.config, model.generation_config):
        config.eos_token_id = stops[0] if len(stops) == 1 else stops
        config.bos_token_id, config.pad_token_id = tokenizer.bos_token_id, tokenizer.pad_token_id
    if not all(bool(torch.isfinite(weight).all()) for weight in model.parameters()):
        raise ModelError(f"{file} has weights that are not finite numbers.", hint=_ELSEWHERE)
    model.save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    _forget_invented(folder / "tokenizer.json", len(reader.fields["tokenizer.ggml.tokens"].data))
    return notes


def _load_model(file: Path, reader: GGUFReader) -> tuple[PreTrainedTokenizerBase, Any, dict[str, Any]]:
    """Tokenizer, model and the weights that the file has. The file is shown alone: transformers reads neighbours."""
    with tempfile.TemporaryDirectory() as name:
        (Path(name) / "model.gguf").symlink_to(file)
        options: dict[str, Any] = {"gguf_file": "model.gguf", "local_files_only": True}
        tokenizer = AutoTokenizer.from_pretrained(name, **options)
        config = AutoConfig.from_pretrained(name, **options)
        width = reader.fields.get(f"{_text(reader, 'general.architecture')}.attention.key_length")
        if width is not None and hasattr(config, "head_dim"):  # transformers takes the default of the type
            config.head_dim = int(width.contents())
        load: Any = AutoModelForCausalLM.from_pretrained
        model, loaded = load(
            name, config=config, dtype=_dtype(reader), output_loading_info=True,
            quantization_config=GgufConfig(gguf_file="model.gguf", dequantize=True), **options,
        )  # fmt: skip
    return tokenizer, model, loaded


_ELSEWHERE = "Use the model's own folder or hub id (safetensors) instead."


def _open_reader(file: Path) -> GGUFReader:
    try:
        reader = GGUFReader(file)
    except (ValueError, OSError, IndexError, KeyError) as error:
        raise ModelError(f"{file} is not a whole GGUF file: {error}") from error
    if _text(reader, "tokenizer.ggml.model") is None:
        raise ModelError(f"{file} has no tokenizer in it.", hint=_ELSEWHERE)
    return reader


def _dtype(reader: GGUFReader) -> torch.dtype:
    """The type of most matrices. For quantised ones float16: their error is far above what its 11 bits round away."""
    kinds = [GGMLQuantizationType(t.tensor_type).name for t in reader.tensors if len(t.shape) > 1]
    return STORED.get(max(sorted(set(kinds)), key=kinds.count), torch.float16)


def _restore_positions(model: Any, reader: GGUFReader, file: Path) -> None:
    """transformers 5.24 reads no stretched rotary positions (but gpt-oss's) from a file, and says nothing."""
    scaling = _text(reader, f"{_text(reader, 'general.architecture')}.rope.scaling.type")
    stretched = {tensor.name: tensor for tensor in reader.tensors if tensor.name.startswith("rope_f")}
    if model.config.model_type == "gpt_oss" or not (stretched or scaling not in (None, "none")):
        return
    if list(stretched) == ["rope_freqs.weight"] and model.config.model_type == "llama":
        divisors = torch.tensor(stretched["rope_freqs.weight"].data, dtype=torch.float32)
        theta = model.config.rope_parameters["rope_theta"]
        for rope in LLAMA3_ROPES:
            model.config.rope_parameters = {**rope, "rope_theta": theta}
            rotary = type(model.model.rotary_emb)(model.config)
            plain = theta ** (-torch.arange(len(divisors)) / len(divisors))
            if torch.allclose(plain / rotary.inv_freq, divisors, rtol=1e-3):
                return
    raise ModelError(
        f"{file} stretches its positions ({scaling or ', '.join(stretched)}) in a way that cannot be read here.",
        hint=_ELSEWHERE,
    )


def _restore_split(tokenizer: PreTrainedTokenizerBase, reader: GGUFReader) -> list[str]:
    """Restore how a byte-level tokenizer splits text, which a file only names; transformers knows some names."""
    name = _text(reader, "tokenizer.ggml.pre")
    if _text(reader, "tokenizer.ggml.model") != "gpt2" or name in GPT2_SPLITS or knows_gguf_split(name):
        return []
    backend: Any = tokenizer.backend_tokenizer
    if name == "smollm":
        backend.pre_tokenizer = pre_tokenizers.Sequence(
            [pre_tokenizers.Digits(individual_digits=True), pre_tokenizers.ByteLevel(add_prefix_space=False)]
        )
        return []
    return [
        f"the GGUF file's tokenizer splits text as {name!r} does, which transformers does not know: tokens may differ"
    ]


def _forget_invented(path: Path, num_tokens: int) -> None:
    """Byte-level tokenizers without `<|endoftext|>` get one from transformers, for which the model has no embedding."""
    definition = json.loads(path.read_bytes())
    definition["added_tokens"] = [token for token in definition["added_tokens"] if token["id"] < num_tokens]
    path.write_text(json.dumps(definition, ensure_ascii=False))


def _stops(declared: Any, tokenizer: PreTrainedTokenizerBase, reader: GGUFReader) -> list[int]:
    """Tokens that end a turn: the end of text, those transformers knows of the type, the file's end of turn."""
    end_of_turn = reader.fields.get("tokenizer.ggml.eot_token_id")
    stops = [tokenizer.eos_token_id, *(declared if isinstance(declared, list) else [])]
    stops += [] if end_of_turn is None else [int(end_of_turn.contents())]
    return [int(token) for token in dict.fromkeys(stops) if isinstance(token, int)]


def _text(reader: GGUFReader, key: str) -> str | None:
    field = reader.fields.get(key)
    return None if field is None else str(field.contents())
