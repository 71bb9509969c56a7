"""Damaged files of a model, a tokenizer or an adapter: refused before a weight is read, by name, with the way back."""

import json
import os
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from transformers import LlamaForCausalLM

from ftui.engine.build import build_model
from ftui.engine.check_profile import check_profile, find_config
from ftui.engine.system.device import find_hardware
from ftui.engine.training.prepare import prepare
from ftui.errors import ModelError
from ftui.runs.run_folder import Run
from tests.support.attempts import attempt
from tests.support.tiny import chats, make_profile, write_rows

WEIGHTS, INDEX = "model.safetensors", "model.safetensors.index.json"
CONFIG, ADAPTER_CONFIG = "config.json", "adapter_config.json"
SHARD = "model-00002-of-00003.safetensors"
POINTER = b"version https://git-lfs.github.com/spec/v1\noid sha256:" + b"a" * 64 + b"\nsize 99\n"
Damage = Callable[[Path], object]


def cut(file: Path) -> None:
    os.truncate(file, file.stat().st_size // 2)


def zero(file: Path) -> None:
    file.write_bytes(bytes(file.stat().st_size))


def zero_from_half(file: Path) -> None:
    """As a download leaves it that made room first."""
    data = file.read_bytes()
    file.write_bytes(data[: len(data) // 2] + bytes(len(data) - len(data) // 2))


def zero_in_the_middle(file: Path) -> None:
    """As a download leaves it that fetched several pieces at once."""
    data = file.read_bytes()
    part = len(data) // 3
    file.write_bytes(data[:part] + bytes(part) + data[2 * part :])


def lengthen(file: Path) -> None:
    file.write_bytes(file.read_bytes() + b"\0")


def lie(by: int) -> Damage:
    def damage(file: Path) -> None:
        data = file.read_bytes()
        file.write_bytes((int.from_bytes(data[:8], "little") + by).to_bytes(8, "little") + data[8:])

    return damage


def holding(data: bytes) -> Damage:
    return lambda file: file.write_bytes(data)


def with_values(**values: Any) -> Damage:
    return lambda file: file.write_text(json.dumps(json.loads(file.read_bytes()) | values))


def marked(file: Path) -> None:
    file.write_bytes(b"\xef\xbb\xbf" + file.read_bytes())


def unlinked(file: Path) -> None:
    file.unlink()
    file.symlink_to(file.with_name("blob"))


def piped(file: Path) -> None:
    file.unlink()
    os.mkfifo(file)


def endless(file: Path) -> None:
    file.unlink()
    file.symlink_to("/dev/zero")


def renamed_tensor(file: Path) -> None:
    """The header names another tensor of the same size."""
    data = file.read_bytes()
    file.write_bytes(data.replace(b"layers.", b"lairs_.", 1))


DEEP = b'{"a":' * 200_000
DAMAGES: dict[str, tuple[str, Damage]] = {
    "weights halved": (WEIGHTS, cut), "weights empty": (WEIGHTS, holding(b"")), "weights zeroed": (WEIGHTS, zero),
    "weights zero from the middle on": (WEIGHTS, zero_from_half),
    "weights zero in the middle": (WEIGHTS, zero_in_the_middle),
    "weights with a byte more": (WEIGHTS, lengthen), "weights of seven bytes": (WEIGHTS, holding(b"\7" * 7)),
    "a header too long": (WEIGHTS, lie(10**15)), "a header a little longer": (WEIGHTS, lie(8)),
    "a header a little shorter": (WEIGHTS, lie(-8)), "a pointer for weights": (WEIGHTS, holding(POINTER)),
    "a web page for weights": (WEIGHTS, holding(b"<!doctype html><html>Sign in</html>")),
    "weights as a link to nothing": (WEIGHTS, unlinked), "weights as a FIFO": (WEIGHTS, piped),
    "weights as a device": (WEIGHTS, endless),
    "config cut": (CONFIG, cut), "config empty": (CONFIG, holding(b"")),
    "config deep": (CONFIG, holding(DEEP)), "config no table": (CONFIG, holding(b"[1]")),
    "config in another encoding": (CONFIG, holding('{"a": "é"}'.encode("latin-1"))),
    "config with a byte order mark": (CONFIG, marked),
    "a pointer for the config": (CONFIG, holding(POINTER)),
    "hidden size a text": (CONFIG, with_values(hidden_size="64")),
    "hidden size another": (CONFIG, with_values(hidden_size=48)),
    "hidden size nothing": (CONFIG, with_values(hidden_size=None)),
    "hidden size immense": (CONFIG, with_values(hidden_size=10**18)),
    "layers without end": (CONFIG, with_values(num_hidden_layers=10**12)),
    "layers below zero": (CONFIG, with_values(num_hidden_layers=-1)),
    "no heads": (CONFIG, with_values(num_attention_heads=0)),
    "positions a list": (CONFIG, with_values(max_position_embeddings=[1])),
    "architectures a number": (CONFIG, with_values(architectures=5)),
    "quantised by a text": (CONFIG, with_values(quantization_config="x")),
    "model type a list": (CONFIG, with_values(model_type=["llama"])),
    "rope a text": (CONFIG, with_values(rope_parameters="x")),
    "another vocabulary": (CONFIG, with_values(vocab_size=999)),
    "tokenizer cut": ("tokenizer.json", cut), "tokenizer empty": ("tokenizer.json", holding(b"")),
    "tokenizer without a model": ("tokenizer.json", holding(b'{"version": "1.0"}')),
    "tokenizer config cut": ("tokenizer_config.json", cut),
    "tokenizer config of wrong types": ("tokenizer_config.json", with_values(added_tokens_decoder=[3])),
    "tokenizer of a length in words": ("tokenizer_config.json", with_values(model_max_length="2k")),
    "inputs of a tokenizer a number": ("tokenizer_config.json", with_values(model_input_names=5)),
    "a pointer for the tokenizer": ("tokenizer.json", holding(POINTER)),
    "generation config cut": ("generation_config.json", cut),
    "end of a turn a text": ("generation_config.json", with_values(eos_token_id="</s>")),
    "end of a turn a list in a list": ("generation_config.json", with_values(eos_token_id=[[2]])),
}  # fmt: skip
OF_SHARDS: dict[str, tuple[str, Damage]] = {
    "a shard missing": (SHARD, os.unlink), "a shard halved": (SHARD, cut),
    "a pointer for a shard": (SHARD, holding(POINTER)),
    "a shard zero from the middle on": (SHARD, zero_from_half),
    "a shard with another tensor": (SHARD, renamed_tensor),
    "index missing": (INDEX, os.unlink), "index cut": (INDEX, cut),
    "index without a map": (INDEX, holding(b'{"a": 1}')),
    "index to elsewhere": (INDEX, with_values(weight_map={"a": "../a.safetensors"})),
    "index with numbers": (INDEX, with_values(weight_map={"a": 3})),
}  # fmt: skip
OF_ADAPTERS: dict[str, tuple[str, Damage]] = {
    "adapter halved": ("adapter_model.safetensors", cut), "adapter empty": ("adapter_model.safetensors", holding(b"")),
    "a pointer for the adapter": ("adapter_model.safetensors", holding(POINTER)),
    "adapter's config cut": (ADAPTER_CONFIG, cut), "adapter's config deep": (ADAPTER_CONFIG, holding(DEEP)),
    "rank a text": (ADAPTER_CONFIG, with_values(r="8")), "rank none": (ADAPTER_CONFIG, with_values(r=0)),
    "targets a number": (ADAPTER_CONFIG, with_values(target_modules=7)),
    "pattern of ranks a list": (ADAPTER_CONFIG, with_values(rank_pattern=[1])),
    "pattern of ranks that is none": (ADAPTER_CONFIG, with_values(rank_pattern={"((": 4})),
    "targets that are no pattern": (ADAPTER_CONFIG, with_values(target_modules="((")),
    "modules to save a number": (ADAPTER_CONFIG, with_values(modules_to_save=4)),
    "adapter's tokenizer cut": ("tokenizer.json", cut),
    "rows to train of a wrong type": (ADAPTER_CONFIG, with_values(trainable_token_indices="x")),
}  # fmt: skip


def refusal(profile: Any, cache: Path) -> ModelError:
    """What every command is told by the check before a start, and what reading the rows for a run is told."""
    with pytest.raises(ModelError) as caught:
        check_profile(profile, find_config(profile, cache, lambda detail: None), find_hardware(profile))
        prepare(profile, cache, lambda detail: None)
    return caught.value


def assert_told(error: ModelError, file: Path) -> None:
    assert error.exit_code == 32
    assert file.name in error.message + error.hint and str(file.parent) in error.message, error.message
    assert "hf download OWNER/NAME" in error.hint or "check model.name_or_path" in error.hint, error.hint


@pytest.mark.parametrize("what", DAMAGES)
def test_a_damaged_model(what: str, model_folder: Path, tmp_path: Path) -> None:
    name, damage = DAMAGES[what]
    folder = shutil.copytree(model_folder, tmp_path / "model")
    damage(folder / name)
    rows = write_rows(tmp_path / "rows.jsonl", chats(8))
    assert_told(refusal(make_profile(folder, rows, train={"max_steps": 1}), tmp_path / "cache"), folder / name)


@pytest.fixture(scope="module")
def sharded(model_folder: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = shutil.copytree(model_folder, tmp_path_factory.mktemp("sharded") / "model")
    (folder / WEIGHTS).unlink()
    LlamaForCausalLM.from_pretrained(model_folder).save_pretrained(folder, max_shard_size="60KB")
    assert len(list(folder.glob("*.safetensors"))) == 3
    return folder


@pytest.mark.parametrize("what", OF_SHARDS)
def test_a_model_with_damaged_shards(what: str, sharded: Path, tmp_path: Path) -> None:
    name, damage = OF_SHARDS[what]
    folder = shutil.copytree(sharded, tmp_path / "model")
    damage(folder / name)
    rows = write_rows(tmp_path / "rows.jsonl", chats(8))
    assert_told(refusal(make_profile(folder, rows, train={"max_steps": 1}), tmp_path / "cache"), folder / name)


@pytest.fixture(scope="module")
def adapter(model_folder: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("trained")
    rows = write_rows(folder / "rows.jsonl", chats(8))
    profile = make_profile(model_folder, rows, adapter={"method": "lora"}, train={"max_steps": 1})
    assert attempt(Run(folder / "run"), profile) == 0
    return folder / "run" / "final"


@pytest.mark.parametrize("what", OF_ADAPTERS)
def test_a_damaged_adapter(what: str, adapter: Path, model_folder: Path, tmp_path: Path) -> None:
    name, damage = OF_ADAPTERS[what]
    folder = shutil.copytree(adapter, tmp_path / "adapter")
    damage(folder / name)
    rows = write_rows(tmp_path / "rows.jsonl", chats(8))
    section = {"method": "lora", "name_or_path": str(folder)}
    error = refusal(make_profile(model_folder, rows, adapter=section, train={"max_steps": 1}), tmp_path / "cache")
    assert error.exit_code == 32 and str(folder) in error.message, error.message


def test_the_hubs_cache_is_mended_by_the_hubs_command(model_folder: Path, tmp_path: Path) -> None:
    commit = "c" * 40
    folder = shutil.copytree(model_folder, tmp_path / "hub" / "models--org--small" / "snapshots" / commit)
    cut(folder / WEIGHTS)
    rows = write_rows(tmp_path / "rows.jsonl", chats(8))
    error = refusal(make_profile(folder, rows, train={"max_steps": 1}), tmp_path / "cache")
    assert error.hint == f"Fetch it again: hf download org/small {WEIGHTS} --revision {commit} --force-download"


def test_weights_that_go_bad_after_the_check(model_folder: Path, tmp_path: Path) -> None:
    """Only reading them shows it. Its exit code is none of a crash, so that no restart follows."""
    folder = shutil.copytree(model_folder, tmp_path / "model")
    rows = write_rows(tmp_path / "rows.jsonl", chats(8))
    profile = make_profile(folder, rows, train={"max_steps": 1})
    data = prepare(profile, tmp_path / "cache", lambda detail: None)
    cut(folder / WEIGHTS)
    with pytest.raises(ModelError, match="cannot be loaded") as caught:
        build_model(profile, data, find_hardware(profile))
    assert caught.value.exit_code == 32 and "Copy it again" in caught.value.hint


def test_an_honest_model_passes(model_folder: Path, sharded: Path, tmp_path: Path) -> None:
    """In one file and in shards; with what is not read beside it: a foreign table, weights in another layout."""
    folder = shutil.copytree(model_folder, tmp_path / "model")
    (folder / "consolidated.safetensors").write_bytes(b"")
    (folder / "trainer_state.json").write_bytes(b"{")
    (folder / "config.json").write_text((folder / "config.json").read_text().replace("{", '{"odd": Infinity, ', 1))
    rows = write_rows(tmp_path / "rows.jsonl", chats(8))
    for place in (folder, sharded):
        profile = make_profile(place, rows, train={"max_steps": 1})
        assert check_profile(profile, find_config(profile, tmp_path, lambda detail: None), find_hardware(profile))
        prepare(profile, tmp_path / "cache", lambda detail: None)
    assert torch.get_num_threads() == 1
