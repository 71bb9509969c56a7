"""`[adapter]`: keys that contradict the method or each other are refused in words; what is written reads back."""

from pathlib import Path

import pytest

from ftui.errors import ProfileError
from ftui.profile.layers import resolve
from ftui.profile.schema import Profile
from ftui.profile.serialize import fingerprint, to_toml

BASE = 'run.stage = "sft"\nmodel.name_or_path = "hub/model"\ndata.train = "rows.jsonl"\n[adapter]\n'


def read(folder: Path, text: str, *overrides: str) -> Profile:
    path = folder / "p.toml"
    path.write_text(BASE + text)
    return resolve(path, overrides=overrides).profile


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("method = 'full'\nuse_dora = true", '"full" does not use use_dora'),
        ("method = 'lora'\ntrainable_layers = 2", '"lora" does not use trainable_layers'),
        ("bnb_4bit_quant_type = 'fp4'", '"lora" does not use bnb_4bit_quant_type'),
        ("method = 'freeze'", "trainable_layers or trainable_modules"),
        ("method = 'freeze'\ntrainable_modules = []", "trainable_layers or trainable_modules"),
        ("method = 'qlora'\nload_in_8bit = true", "qlora stores the base in 4 bits"),
        ("method = 'full'\nload_in_8bit = true", "load_in_8bit needs method"),
        ("method = 'qlora'\nbias = 'all'", "an unquantised base only"),
        ("load_in_8bit = true\nbias = 'lora_only'", "an unquantised base only"),
        ("layers_pattern = 'layers'", "give both"),
        ("layers_to_transform = [1]\ntarget_modules = '.*q_proj'", "a regular expression selects layers by itself"),
        ("init_lora_weights = 'pissa_niter_8'", "pissa_niter_8 rewrites the base weights"),
        ("init_lora_weights = 'eva'", "needs a pass over the rows"),
        ("init_lora_weights = 'kaiming'", "true, false, gaussian or orthogonal, not 'kaiming'"),
        ("init_lora_weights = 'orthogonal'\nr = 5", "need an even r"),
        ("target_modules = '(q_proj'", "'(q_proj' is no regular expression"),
        ("layers_to_transform = [1]\nlayers_pattern = '(h*|l*'", "'(h*|l*' is no regular expression"),
        ("method = 'freeze'\ntrainable_modules = ['ok', '*']", "'*' is no regular expression"),
        ("[adapter.rank_pattern]\nq_proj = 'eight'", "adapter.rank_pattern.q_proj"),
        ("name_or_path = 'https://hub/x'", "not an address"),
    ],
)
def test_what_contradicts_is_named(tmp_path: Path, text: str, message: str) -> None:
    with pytest.raises(ProfileError) as caught:
        read(tmp_path, text)
    assert "adapter" in caught.value.message and message in caught.value.message


def test_a_model_from_scratch_has_nothing_to_freeze(tmp_path: Path) -> None:
    for method, more in (("lora", ""), ("qlora", ""), ("freeze", "trainable_layers = 1")):
        (tmp_path / "p.toml").write_text(
            'run.stage = "pretrain"\nmodel.from_scratch.hidden_size = 192\ndata.train = "rows.jsonl"\n'
            f'[adapter]\nmethod = "{method}"\n{more}\n'
        )
        with pytest.raises(ProfileError, match="trained in full"):
            resolve(tmp_path / "p.toml")


@pytest.mark.parametrize(
    "text",
    [
        "bias = 'none'\nexclude_modules = 'none'\nrank_pattern = 'none'",
        "layers_to_transform = [0, 3]\nlayers_pattern = 'h'\ntarget_modules = ['c_attn']\nexclude_modules = ['c_proj']",
        "rank_pattern = {q_proj = 4, 'layers\\.0\\..*' = 2}\nuse_rslora = true\nbias = 'lora_only'",
        "method = 'qlora'\nbnb_4bit_quant_type = 'fp4'\nbnb_4bit_compute_dtype = 'float16'\nuse_dora = true",
        "method = 'freeze'\ntrainable_layers = 2\ntrainable_modules = ['norm', '^lm_head']",
        "exclude_modules = '[[ab]_proj'",  # of which re warns that it may once mean something else
        "init_lora_weights = false\nmodules_to_save = ['lm_head']\ntarget_modules = '.*(q|v)_proj'",
    ],
)
def test_what_is_written_reads_back(tmp_path: Path, text: str) -> None:
    profile = read(tmp_path, text)
    copy = tmp_path / "copy.toml"
    copy.write_text(to_toml(profile), encoding="utf-8")
    assert resolve(copy).profile.adapter == profile.adapter
    assert fingerprint(resolve(copy).profile) == fingerprint(profile)


def test_one_rank_can_be_set_from_the_command_line(tmp_path: Path) -> None:
    adapter = read(tmp_path, "rank_pattern.q_proj = 4", "adapter.rank_pattern.k_proj=2").adapter
    assert adapter.rank_pattern == {"q_proj": 4, "k_proj": 2}


def test_an_adapter_beside_the_profile_is_found_and_its_place_is_no_difference(tmp_path: Path) -> None:
    (tmp_path / "mine").mkdir()
    profile = read(tmp_path, "name_or_path = 'mine'")
    assert profile.adapter.name_or_path == str(tmp_path / "mine")
    assert read(tmp_path, "name_or_path = 'someone/adapter'").adapter.name_or_path == "someone/adapter"
    assert fingerprint(profile) == fingerprint(read(tmp_path, "name_or_path = 'someone/adapter'"))
