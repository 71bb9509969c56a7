"""Tiers: each value has its reason, the profile goes before them, and they never contradict it."""

import re
from pathlib import Path

import pytest

from ftui.cli.dry_run import value_lines
from ftui.errors import ProfileError, UsageError
from ftui.estimate.api import estimate
from ftui.estimate.result import FIT
from ftui.hardware.devices import BY_NAME
from ftui.models.config_reader import read_shape
from ftui.models.known import known_models
from ftui.models.logits import PLAIN_HEADS
from ftui.profile import tiers
from ftui.profile.checks.messages import all_keys
from ftui.profile.layers import ResolvedProfile, resolve
from ftui.profile.presets import Preset, shipped_presets
from ftui.profile.tiers import choose_tier, tier_description, tier_layer, tier_names, tier_reasons

BASE = "run.stage = 'sft'\nmodel.name_or_path = 'a/b'\ndata.train = 'r.jsonl'\n"


def over(tier: str, folder: Path, text: str = "", *overrides: str) -> ResolvedProfile:
    path = folder / "p.toml"
    path.write_text(BASE + text)
    return resolve(path, overrides=overrides, below=[tier_layer(tier)])


@pytest.mark.parametrize("name", tier_names())
def test_each_value_has_its_reason(name: str) -> None:
    values = tier_layer(name).values
    assert tier_reasons(name).keys() == values.keys() <= set(all_keys())
    assert all(len(reason) > 8 for reason in tier_reasons(name).values())
    assert tier_description(name).endswith(".")


@pytest.mark.parametrize("name", tier_names())
def test_a_tier_is_whole_by_itself_and_its_values_are_what_is_used(name: str, tmp_path: Path) -> None:
    resolved = over(name, tmp_path)
    for key, value in tier_layer(name).values.items():
        section, key_name = key
        assert getattr(getattr(resolved.profile, section), key_name) == value
        assert str(resolved.origin(key)) == f"tier {name}"
    train = resolved.profile.train
    assert train.per_device_train_batch_size * train.gradient_accumulation_steps == 16


def promised_models() -> list[str]:
    """One of each size. Without those whose heads are their own: all logits of a micro-batch are held, and they want
    one of a row or two. Without experts, which are never held in few bits."""
    names: dict[tuple[int, int], str] = {}
    for name, model in known_models().items():
        shape = read_shape(model.config)
        if shape is None or shape.model_type not in PLAIN_HEADS:
            continue
        if all(layer.experts is None for layer in shape.layers):
            names.setdefault((shape.num_parameters, shape.num_layers), name)
    return list(names.values())


@pytest.mark.slow
@pytest.mark.parametrize("name", tier_names())
def test_a_tier_fits_the_card_for_what_its_first_line_promises(name: str, tmp_path: Path) -> None:
    """Method and size of the models that the line names, at the tier's own length, micro-batch and checkpointing."""
    promise = re.search(r"(Q?LoRA)\b.* of .*models up to about ([\d.]+) B", tier_description(name))
    assert promise is not None, "the first line names a method and a size"
    largest = 0.0
    refused: dict[str, str] = {}
    for model in promised_models():
        profile = over(name, tmp_path, "", f"model.name_or_path={model}").profile
        assert profile.adapter.method == promise[1].lower()
        told = estimate(profile, BY_NAME[name])
        billions = (told.num_parameters or 0) / 1e9
        if 0 < billions <= 1.06 * float(promise[2]):  # a model of "8 B" has 8.2
            largest = max(largest, billions)
            refused |= {} if told.verdict in FIT else {model: told.verdict}
    assert not refused
    assert largest > 0.9 * float(promise[2]), "one of that size was asked for"


@pytest.mark.parametrize("name", tier_names())
@pytest.mark.parametrize("preset", shipped_presets(), ids=lambda preset: preset.name)
def test_each_tier_goes_under_each_recipe(preset: Preset, name: str) -> None:
    alone, both = resolve(preset.path), resolve(preset.path, below=[tier_layer(name)])
    for key, origin in alone.origins.items():
        assert both.origins[key] == origin, "what the recipe says stays what it says"
    adapter, batch = both.profile.adapter, both.profile.train
    assert adapter.method == alone.profile.adapter.method
    if ("train", "per_device_train_batch_size") in alone.origins:
        assert batch.gradient_accumulation_steps == alone.profile.train.gradient_accumulation_steps


def test_origins_are_shown(tmp_path: Path) -> None:
    words = {line.split()[0]: line for line in value_lines(over("rtx4090", tmp_path, "", "train.seed=7"))}
    assert words["method"].endswith("tier rtx4090") and words["seed"].endswith("--set")
    assert words["stage"].endswith("p.toml:1") and words["optim"].endswith("default")


@pytest.mark.parametrize(
    ("tier", "text", "method"),
    [
        ("rtx4090", "adapter.method = 'full'", "full"),
        ("rtx4090", "adapter.method = 'freeze'\nadapter.trainable_layers = 2", "freeze"),
        ("rtx4090", "adapter.bias = 'all'", "lora"),  # not beside a base in 4 bits: the tier's method gives way
        ("rtx4090", "adapter.load_in_8bit = true", "lora"),
        ("rtx4090", "hardware.device = 'mps'", "lora"),
        ("a40", "adapter.method = 'qlora'\nadapter.bnb_4bit_quant_type = 'fp4'", "qlora"),
        ("mps", "model.attn_implementation = 'flash_attention_2'", "lora"),  # not in fp32: the tier's precision
    ],
)
def test_a_tier_gives_way_where_it_would_contradict(tmp_path: Path, tier: str, text: str, method: str) -> None:
    assert over(tier, tmp_path, text).profile.adapter.method == method


def test_it_takes_no_half_of_what_belongs_together(tmp_path: Path) -> None:
    profile = over("a100-80", tmp_path, "adapter.r = 8\ntrain.per_device_train_batch_size = 4\n").profile
    assert (profile.adapter.r, profile.adapter.lora_alpha) == (8, 32)
    assert (profile.train.per_device_train_batch_size, profile.train.gradient_accumulation_steps) == (4, 1)
    assert profile.data.max_length == 4096
    profile = over("a100-80", tmp_path, "", "train.gradient_accumulation_steps=1").profile
    assert profile.train.per_device_train_batch_size == 4, "the default, not the tier's 8"


def test_what_the_profile_says_of_it_stays_whatever_is_set_above(tmp_path: Path) -> None:
    profile = over("a100-80", tmp_path, "adapter = {r = 8, lora_alpha = 24}\n", "adapter.r=4").profile
    assert (profile.adapter.r, profile.adapter.lora_alpha) == (4, 24)


def test_a_new_model_keeps_the_length_it_can_see() -> None:
    medium = next(preset.path for preset in shipped_presets() if preset.name == "pretrain-medium")
    profile = resolve(medium, below=[tier_layer("h200")]).profile
    assert profile.model.from_scratch is not None
    assert profile.data.max_length <= profile.model.from_scratch.max_position_embeddings


def test_what_the_profile_itself_contradicts_is_told_all_the_same(tmp_path: Path) -> None:
    with pytest.raises(ProfileError, match="does not use r"):
        over("rtx4090", tmp_path, "adapter.method = 'full'\nadapter.r = 8\n")


def test_a_tier_of_no_such_name_gets_the_nearest(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(UsageError) as caught:
        tier_layer("rtx409")
    assert "rtx4090" in caught.value.hint
    with pytest.raises(UsageError) as caught:
        tier_layer("zebra")
    assert "auto" in caught.value.hint
    monkeypatch.setattr(tiers, "find_machine", lambda: type("Machine", (), {"proposed": "l4"}))
    assert choose_tier("auto") == "l4" and tier_layer("auto").name == "tier l4"
