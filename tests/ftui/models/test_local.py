"""Models on this disk: folders, the hub's cache, what their files say of them."""

import json
import os
import struct
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from ftui.errors import ModelError
from ftui.models import local
from ftui.models.config_reader import read_shape
from ftui.system.user_folders import hub_cache
from tests.support.published_models import MODELS

CARD = "---\nlanguage: en\nlicense: other\nlicense_name: 'llama3.2'\n---\n# A model\nlicense: not here\n"


@pytest.fixture(autouse=True)
def hub(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    for name in ("HF_HUB_CACHE", "HUGGINGFACE_HUB_CACHE", "HF_HOME"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    return tmp_path / "cache" / "huggingface" / "hub"


def make_model(folder: Path, config: dict[str, Any], *, card: str | None = None, dtype: str = "BF16") -> Path:
    folder.mkdir(parents=True)
    (folder / "config.json").write_text(json.dumps(config))
    header = json.dumps({
        "__metadata__": {"format": "pt"},
        "small": {"dtype": "F32", "shape": [10], "data_offsets": [0, 40]},
        "large": {"dtype": dtype, "shape": [100, 20], "data_offsets": [40, 4040]},
    }).encode()  # fmt: skip
    (folder / "model.safetensors").write_bytes(struct.pack("<Q", len(header)) + header + bytes(4040))
    if card is not None:
        (folder / "README.md").write_text(card)
    return folder


def make_snapshot(hub: Path, name: str, commit: str, config: dict[str, Any], *, branch: str | None = None) -> Path:
    repository = hub / f"models--{name.replace('/', '--')}"
    if branch is not None:
        (repository / "refs").mkdir(parents=True, exist_ok=True)
        (repository / "refs" / branch).write_text(commit)
    return make_model(repository / "snapshots" / commit, config)


def test_a_folder_tells_what_is_in_it(tmp_path: Path) -> None:
    folder = make_model(tmp_path / "llama", MODELS["Llama-3.2-1B"] | {"max_position_embeddings": 131072}, card=CARD)
    told = local.read_facts(folder)
    assert told == local.ModelFacts(
        str(folder), folder, "llama", 1_235_814_400, 16, 131072, "bfloat16",
        (folder / "model.safetensors").stat().st_size, "llama3.2",
    )  # fmt: skip


def test_an_unknown_architecture_is_counted_from_its_files(tmp_path: Path) -> None:
    told = local.read_facts(make_model(tmp_path / "new", {"model_type": "new", "num_hidden_layers": 7}))
    assert (told.parameters, told.layers, told.context, told.licence) == (2010, 7, None, None)


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("config.json", b"{"), ("config.json", b"[]"), ("model.safetensors", b"\xff" * 9),
        ("model.safetensors", b"\x02\0\0\0\0\0\0\0[]"), ("model.safetensors", b"\x09\0\0\0\0\0\0\0{"),
    ],
)  # fmt: skip
def test_what_cannot_be_read_is_named(name: str, content: bytes, tmp_path: Path) -> None:
    folder = make_model(tmp_path / "bad", MODELS["Llama-3.2-1B"])
    (folder / name).write_bytes(content)
    told = local.read_facts(folder)
    assert told.problem is not None and name in told.problem
    assert told.parameters is None
    if name == "config.json":
        with pytest.raises(ModelError, match=name):
            local.read_config(folder / name)


def test_models_in_the_cache_are_found_by_their_branch(hub: Path) -> None:
    config = MODELS["Qwen3-0.6B"]
    old = make_snapshot(hub, "Qwen/Qwen3-0.6B", "a" * 40, config, branch="old")
    new = make_snapshot(hub, "Qwen/Qwen3-0.6B", "b" * 40, config, branch="main")
    make_snapshot(hub, "gpt2", "c" * 40, MODELS["GPT-2"])
    (hub / "models--nobody--nothing").mkdir()
    assert local.find_config("Qwen/Qwen3-0.6B") == new / "config.json"
    assert local.find_config("Qwen/Qwen3-0.6B", "old") == old / "config.json"
    assert local.find_config("Qwen/Qwen3-0.6B", "a" * 40) == old / "config.json"
    assert local.find_config("Qwen/Qwen3-0.6B", "no-such") is None
    assert local.find_config("gpt2") is not None
    assert local.find_config("nobody/nothing") is None
    told = {one.name: one for one in local.cached_models()}
    assert list(told) == ["Qwen/Qwen3-0.6B", "gpt2"]
    assert told["gpt2"].parameters == 124_439_808


def test_a_folder_of_models_and_files_is_listed(tmp_path: Path) -> None:
    make_model(tmp_path / "models" / "b", MODELS["GPT-2"])
    make_model(tmp_path / "models" / "a", MODELS["Qwen3-0.6B"])
    (tmp_path / "models" / "c.gguf").write_bytes(b"GGUF")
    (tmp_path / "models" / "notes").mkdir()
    told = local.models_in(tmp_path / "models")
    assert [(one.path.name, one.model_type) for one in told] == [("a", "qwen3"), ("b", "gpt2"), ("c.gguf", "gguf")]
    assert [one.name for one in local.models_in(tmp_path / "models" / "b")] == [str(tmp_path / "models" / "b")]
    with pytest.raises(ModelError, match="no-such"):
        local.models_in(tmp_path / "no-such")


@pytest.mark.parametrize("variables", [
    {}, {"HF_HOME": "/somewhere"}, {"HF_HUB_CACHE": "/else/where"}, {"HF_HOME": "~/here", "XDG_CACHE_HOME": "/not"},
])  # fmt: skip
def test_the_cache_is_where_the_hubs_library_has_it(variables: dict[str, str], monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    command = "from huggingface_hub.constants import HF_HUB_CACHE; print(HF_HUB_CACHE)"
    real = subprocess.run([sys.executable, "-c", command], capture_output=True, text=True, check=True, env=os.environ)
    assert str(hub_cache()) == real.stdout.strip()


NESTED = b"[" * 100_000


@pytest.mark.parametrize("name", [
    "~nosuch/x", "~nosuch", "n" * 300, "o/" + "n" * 300, "/" + "n" * 300, "a\0b", "o/a\0b", "\udcff", "o/\ud800", "",
    "o/..", "../../etc", "o/p/q", ".", "~",
])  # fmt: skip
@pytest.mark.parametrize("revision", [None, "main", "r" * 300, "\0", "\ud800", "../../..", ""])
def test_a_name_that_is_none_finds_nothing(name: str, revision: str | None, hub: Path, tmp_path: Path,
                                           monkeypatch: pytest.MonkeyPatch) -> None:  # fmt: skip
    monkeypatch.chdir(tmp_path)
    make_snapshot(hub, "o/p", "a" * 40, MODELS["GPT-2"], branch="main")
    assert local.find_config(name, revision) is None


@pytest.mark.parametrize("revision", ["r" * 300, "\0", "\ud800", "../../..", "no-such"])
def test_a_revision_that_is_none_finds_nothing(revision: str, hub: Path) -> None:
    make_snapshot(hub, "o/p", "a" * 40, MODELS["GPT-2"], branch="main")
    assert local.find_config("o/p", revision) is None


@pytest.mark.parametrize("config", [
    b'{"model_type": "llama", "hidden_size": Infinity}', b'{"model_type": "llama", "num_hidden_layers": NaN}',
    b'{"model_type": "llama", "hidden_size": 1e999}', b'{"model_type": "gpt2", "n_layer": -Infinity}',
    b'{"model_type": ["llama"]}', b'{"model_type": null, "dtype": 3, "num_hidden_layers": "many"}',
])  # fmt: skip
def test_an_odd_config_leaves_what_it_does_not_tell_unknown(config: bytes, tmp_path: Path) -> None:
    folder = make_model(tmp_path / "odd", {})
    (folder / "config.json").write_bytes(config)
    told = local.read_facts(folder)
    assert (told.problem, told.parameters) == (None, 2010)  # counted from its files


@pytest.mark.parametrize("size", [0, -1, 10**9, 10**400, float("inf"), float("nan"), [], {}, "wide", None])
@pytest.mark.parametrize("name", ["Llama-3.2-1B", "Gemma-3-1b", "GPT-2", "Phi-3-mini", "Pythia-1.4B", "OLMoE-1B-7B"])
def test_no_size_makes_a_shape_that_cannot_be(name: str, size: Any, tmp_path: Path) -> None:
    """Nor an exception, nor a list of a thousand million layers."""
    for key in MODELS[name]:
        shape = read_shape(MODELS[name] | {key: size})
        if shape is not None:
            assert shape.linears and shape.num_parameters > 0


@pytest.mark.parametrize("header", [
    b'{"a": 1}', b'{"a": {}}', b'{"a": {"dtype": "F32"}}', b'{"a": {"dtype": "F32", "shape": null}}',
    b'{"a": {"dtype": 1, "shape": [2]}}', b'{"a": {"dtype": "F32", "shape": [-1]}}', b'{"a": {"shape": ["x"]}}',
    b'{"a": {"dtype": "F32", "shape": [1.5]}}', b"3", b"null", b"\xff\xfe", NESTED,
])  # fmt: skip
def test_odd_headers_are_told(header: bytes, tmp_path: Path) -> None:
    folder = make_model(tmp_path / "bad", MODELS["Llama-3.2-1B"])
    (folder / "model.safetensors").write_bytes(struct.pack("<Q", len(header)) + header)
    told = local.read_facts(folder)
    assert told.problem is not None and "model.safetensors" in told.problem


def test_one_damaged_entry_does_not_hide_the_others(hub: Path, tmp_path: Path) -> None:
    for name in ("a/deep", "a/binary", "a/gone", "a/pipe", "z/good"):
        make_snapshot(hub, name, "b" * 40, MODELS["GPT-2"], branch="main")
    deep = hub / "models--a--deep" / "snapshots" / ("b" * 40)
    (deep / "config.json").write_bytes(NESTED)
    (hub / "models--a--binary" / "refs" / "main").write_bytes(b"\xff\0\xfe" * 500)
    gone = hub / "models--a--gone" / "snapshots" / ("b" * 40) / "config.json"
    gone.unlink()
    gone.symlink_to(gone)
    pipe = hub / "models--a--pipe" / "snapshots" / ("b" * 40)
    os.mkfifo(pipe / "README.md")  # to open it would never end
    os.mkfifo(pipe / "more.safetensors")
    (hub / "models--file").write_bytes(b"")
    told = {one.name: one for one in local.cached_models()}
    assert set(told) == {"a/deep", "a/binary", "a/pipe", "z/good"}
    assert told["a/deep"].problem is not None and told["a/deep"].parameters is None
    assert all(told[name].parameters == 124_439_808 for name in ("a/binary", "a/pipe", "z/good"))
    folder = tmp_path / "folder"
    folder.mkdir()
    (folder / "a").symlink_to(deep)
    (folder / "b").symlink_to(folder / "b")
    (folder / "c").symlink_to(pipe)
    assert [one.problem is None for one in local.models_in(folder)] == [False, True]
    with pytest.raises(ModelError):
        local.models_in(Path("a\0b"))
