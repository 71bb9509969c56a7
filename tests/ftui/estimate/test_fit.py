"""What `ftui.estimate.fit` proposes: applied to the profile as it stands there, it gives what was promised."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ftui.estimate import closed_form, fit, levers, timing
from ftui.estimate.result import FIT, SAFE, Memory, verdict
from ftui.estimate.setup import TrainingSetup, build_setup, with_length
from ftui.hardware.devices import Card, GiB
from ftui.models.config_reader import ModelShape, read_shape, shape_from_scratch
from ftui.profile.layers import examine, file_layer, override_layer, resolve
from ftui.profile.schema import Profile
from ftui.profile.tiers import tier_layer
from ftui.text import toml_value
from tests.support.examples import examples

QWEN3_8B = {
    "model_type": "qwen3", "hidden_size": 4096, "intermediate_size": 12288, "num_hidden_layers": 36,
    "num_attention_heads": 32, "num_key_value_heads": 8, "head_dim": 128, "vocab_size": 151936,
    "tie_word_embeddings": False, "max_position_embeddings": 40960,
}  # fmt: skip
TEXT = """
[run]
stage = "sft"
[model]
name_or_path = "Qwen/Qwen3-8B"
[data]
train = "rows.jsonl"
eval_fraction = 0.1
[train]
per_device_train_batch_size = 8
gradient_accumulation_steps = 2
[eval]
eval_strategy = "epoch"
"""


def shape() -> ModelShape:
    found = read_shape(QWEN3_8B)
    assert found is not None
    return found


def card(memory_gib: float) -> Card:
    return Card("one", "One", "cuda", int(memory_gib * GiB), 89, 165.0, 1008.0, 300 << 20, (0.57, 0.57), 0.4)


@pytest.fixture(scope="module")
def path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    place = tmp_path_factory.mktemp("fit") / "p.toml"
    place.write_text(TEXT)
    return place


def changed(path: Path, before: list[str], change: fit.Change) -> Profile:
    values = [f"{'.'.join(key)}={toml_value(value)}" for key, value in change.values.items()]
    return resolve(path, overrides=[*before, *values]).profile


METHODS = {
    "full": ["adapter.method=full"],
    "lora": ["adapter.r=64", "adapter.method=lora", "data.max_length=4096"],
    "qlora": ["adapter.method=qlora", "data.max_length=16384"],
    "freeze": ["adapter.method=freeze", "adapter.trainable_layers=12"],
    "checkpointed": ["train.activation_checkpointing=true", "data.max_length=8192"],
}


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("memory_gib", [10, 16, 24, 48, 80])
def test_a_change_does_what_it_says(path: Path, method: str, memory_gib: int) -> None:
    profile = resolve(path, overrides=METHODS[method]).profile
    setup = build_setup(profile, shape(), card(memory_gib), rows_are_cut=True)
    changes = told_for(setup)
    assert changes or memory_gib == 10
    for change in changes:
        after = build_setup(changed(path, METHODS[method], change), shape(), setup.card)
        assert closed_form.memory(after) == change.memory
        assert verdict(change.memory, setup.card) == change.verdict
        assert change.verdict in FIT or (
            change.verdict == "tight" and change.memory.process * SAFE <= setup.card.memory
        )
        assert rows_a_step(after) == rows_a_step(setup)


def told_for(setup: TrainingSetup, tokens: float | None = None) -> list[fit.Change]:
    more = (fit.largest_micro_batch(setup, tokens=tokens), fit.longest_rows(setup))
    return [*fit.find_cheapest(setup, tokens=tokens), *(one for one in more if one is not None)]


def rows_a_step(setup: TrainingSetup) -> int:
    return setup.micro_batch * setup.accumulation * setup.num_processes


@pytest.mark.slow
@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("memory_gib", [12, 16, 24, 48, 80])
@pytest.mark.parametrize("share", [0.02, 0.3, 1.0])
def test_the_promised_speed_is_what_the_clock_says_of_the_same_rows(
    path: Path, method: str, memory_gib: int, share: float
) -> None:
    """Rows are shorter than they may be, on average: fixed costs weigh more then. That rows are cut makes nothing
    faster; how much longer they become otherwise, nobody has counted."""
    profile = resolve(path, overrides=METHODS[method]).profile
    setup = build_setup(profile, shape(), card(memory_gib), rows_are_cut=True)
    tokens = share * rows_a_step(setup) * setup.length
    before = timing.step_seconds(setup, tokens)
    assert before is not None
    for change in told_for(setup, tokens):
        after = build_setup(changed(path, METHODS[method], change), shape(), setup.card)
        if after.length > setup.length:
            assert change.slower is None
            continue
        seconds = timing.step_seconds(with_length(after, setup.length), tokens)
        assert seconds is not None and change.slower == pytest.approx(1 - before / seconds, abs=1e-9)
        if change.values.keys() == {levers.MAX_LENGTH}:
            assert change.slower == 0.0


SHAPES: dict[str, dict[str, Any]] = {
    "tied": QWEN3_8B | {"hidden_size": 1024, "num_hidden_layers": 12, "tie_word_embeddings": True},
    "untied": QWEN3_8B | {"num_hidden_layers": 12},
    "windows": QWEN3_8B | {"model_type": "mistral", "num_hidden_layers": 12, "sliding_window": 1024},
    "experts": QWEN3_8B | {
        "model_type": "qwen3_moe", "hidden_size": 1024, "num_hidden_layers": 12, "num_experts": 32,
        "num_experts_per_tok": 4, "moe_intermediate_size": 768,
    },
}  # fmt: skip
CHOICES: dict[str, list[Any]] = {
    "adapter.method": ["lora", "qlora", "full", "freeze"],
    "model.dtype": ["auto", "float32", "bfloat16", "float16"],
    "adapter.bias": ["none", "all", "lora_only"],
    "adapter.rank_pattern": [{"q_proj": 64}],
    "adapter.alpha_pattern": [{"q_proj": 64}],
    "adapter.init_lora_weights": ["orthogonal"],
    "adapter.r": [10, 64, 256],
    "adapter.lora_alpha": [1, 128],
    "adapter.use_rslora": [True],
    "adapter.use_dora": [True],
    "adapter.load_in_8bit": [True],
    "adapter.bnb_4bit_use_double_quant": [False],
    "adapter.modules_to_save": [["lm_head"]],
    "adapter.trainable_layers": [2, 8],
    "adapter.trainable_modules": [["mlp"]],
    "train.optim": ["adamw_torch", "paged_adamw_32bit", "sgd", "adafactor", "lion_8bit"],
    "train.optim_args.momentum": [0.9],
    "train.precision": ["fp32", "fp16"],
    "train.activation_checkpointing": [True, False],
    "train.activation_checkpointing_kwargs": [{"every_n_layers": 4}, "none"],
    "train.per_device_train_batch_size": [1, 12, 32],
    "train.gradient_accumulation_steps": [1, 3],
    "data.max_length": [512, 4096, 16384],
    "data.packing": [True],
    "model.attn_implementation": ["eager", "flash_attention_2"],
    "hardware.device": ["cuda", "mps", "cpu"],
    "hardware.num_processes": [2],
    "eval.per_device_eval_batch_size": [1, 64],
}
SCRATCH = ["model.name_or_path=none", 'model.from_scratch={size = "medium", vocab_size = 32000}']


@st.composite
def wishes(draw: st.DrawFn) -> list[str]:
    """Values for some keys, the method most often among them."""
    keys = draw(st.lists(st.sampled_from(list(CHOICES)), unique=True, max_size=6))
    if draw(st.booleans()) and "adapter.method" not in keys:
        keys.append("adapter.method")
    written = [f"{key}={toml_value(draw(st.sampled_from(CHOICES[key])))}" for key in keys]
    scratch = draw(st.integers(0, 7)) == 0
    return [*written, *(SCRATCH if scratch else [])]


@given(wishes=wishes(), tier=st.sampled_from([None, "t4", "rtx4090", "h100", "cpu"]),
       kind=st.sampled_from(list(SHAPES)), memory_gib=st.sampled_from([6, 12, 24, 80]),
       capability=st.sampled_from([75, 89]))  # fmt: skip
@settings(max_examples=examples(100))
def test_every_change_is_valid_and_keeps_its_promise(
    path: Path, wishes: list[str], tier: str | None, kind: str, memory_gib: int, capability: int
) -> None:
    """Whatever stands in the profile, and with values of a tier below it: what is proposed is written as the user would
    write it, and read again."""
    check_promises(path, wishes, tier, kind, replace(card(memory_gib), capability=capability))


PITFALLS: dict[str, tuple[list[str], str | None, str, float]] = {
    "float32 stays": (["adapter.method=full", "model.dtype=float32"], None, "untied", 16),
    "float32 stays, experts": (["adapter.method=full", "model.dtype=float32"], None, "experts", 24),
    "biases": (["adapter.bias=all", "data.max_length=8192", "train.per_device_train_batch_size=2"], None, "untied", 24),
    "the tier's rank": (["adapter.method=full"], "h100", "untied", 24),
    "the tier's rank, frozen": (["adapter.method=freeze", "adapter.trainable_layers=8"], "h100", "untied", 12),
    "windows": (["data.max_length=4096", "train.per_device_train_batch_size=1"], None, "windows", 12),
}


@pytest.mark.parametrize("case", PITFALLS)
def test_what_once_broke_a_promise(case: str, path: Path) -> None:
    wishes, tier, kind, memory_gib = PITFALLS[case]
    assert check_promises(path, wishes, tier, kind, card(memory_gib)) > 0


def check_promises(path: Path, wishes: list[str], tier: str | None, kind: str, on: Card) -> int:
    """Number of the changes, each of which was written as the user would write it, read again, and compared."""
    below = [] if tier is None else [tier_layer(tier)]
    examined = examine([*below, file_layer(path), override_layer(wishes)], path)
    if examined.profile is None:  # values that do not go together
        return 0

    def setup_for(profile: Profile) -> TrainingSetup:
        scratch = profile.model.from_scratch
        own = read_shape(SHAPES[kind]) if scratch is None else shape_from_scratch(scratch)
        assert own is not None
        return build_setup(profile, own, on, rows_are_cut=True)

    setup = setup_for(examined.profile)
    changes = told_for(setup)
    for change in changes:
        values = [f"{'.'.join(key)}={toml_value(value)}" for key, value in change.values.items()]
        after = setup_for(resolve(path, overrides=[*wishes, *values], below=below).profile)
        assert closed_form.memory(after) == change.memory
        assert rows_a_step(after) == rows_a_step(setup)
        assert levers.MAX_LENGTH in change.values or after.length == setup.length
        assert not after.is_quantised or setup.is_quantised or (kind != "experts" and after.bias == "none")
        if after.is_lora and setup.is_lora and after.r != setup.r:
            assert after.lora_alpha / after.r == pytest.approx(setup.lora_alpha / setup.r, rel=0.2) or setup.use_rslora
    return len(changes)


def test_each_kind_is_told_what_costs_least_first(path: Path) -> None:
    """Speed alone, then exactness or what is trained, then the method; rows are cut where nothing else fits."""
    for overrides in (["adapter.method=full"], ["data.max_length=4096"], METHODS["freeze"], METHODS["checkpointed"]):
        for memory_gib in (24, 48, 80):
            setup = build_setup(resolve(path, overrides=overrides).profile, shape(), card(memory_gib))
            changes = fit.find_cheapest(setup)
            kinds = [kind_of(setup, change) for change in changes]
            assert kinds == sorted(kinds) and len(changes) <= 6
            assert 3 not in kinds or kinds == [3]
            for kind in set(kinds):
                of_it = [c for c, its in zip(changes, kinds, strict=True) if its == kind]
                assert its_order(of_it) == sorted(its_order(of_it))
            reasons = [set(one.reasons) for one in changes]
            assert not any(one < other for one in reasons for other in reasons)


def its_order(changes: list[fit.Change]) -> list[tuple[Any, ...]]:
    """The base in 16 bits before one in 4, a higher rank before a lower one; then the fastest."""
    lost = ({"lora": 1, "qlora": 2}.get(c.values.get(levers.METHOD, ""), 0) for c in changes)
    return [(less, -c.values.get(levers.RANK, 999), c.slower or 0.0) for less, c in zip(lost, changes, strict=True)]


def kind_of(setup: TrainingSetup, change: fit.Change) -> int:
    if levers.MAX_LENGTH in change.values:
        return 3
    if setup.method in ("full", "freeze") and levers.METHOD in change.values:
        return 2
    return 1 if {levers.METHOD, levers.RANK, levers.DTYPE} & change.values.keys() else 0


def test_a_large_model_is_trained_whole_where_16_bits_and_8_bit_moments_are_enough(path: Path) -> None:
    setup = build_setup(resolve(path, overrides=["adapter.method=full"]).profile, shape(), card(80))
    first = fit.find_cheapest(setup)[0]
    assert first.values[levers.DTYPE] == "bfloat16" and first.values[levers.OPTIM] == "adamw_8bit"
    assert levers.METHOD not in first.values
    assert first.verdict == "tight" and first.memory.process * 1.15 < 80 * GiB  # in doubt, but no more than that


def test_smaller_micro_batches_may_need_more(path: Path) -> None:
    """Gradients that are added up are held through the forward pass: without them, 80 GiB are enough."""
    whole = ["adapter.method=full", "train.per_device_train_batch_size=4", "train.gradient_accumulation_steps=1"]
    sure = fit.Judge(need=fit.sure_need)
    first = fit.find_cheapest(build_setup(resolve(path, overrides=whole).profile, shape(), card(80)), sure)[0]
    assert levers.MICRO_BATCH not in first.values and first.values[levers.DTYPE] == "bfloat16"
    assert first.verdict in FIT


def test_a_lower_rank_is_one_that_is_taken_and_scales_as_before(path: Path) -> None:
    def told(*wishes: str) -> list[tuple[int, int]]:
        setup = build_setup(resolve(path, overrides=wishes).profile, shape(), card(24))
        trained = levers.list_axes(setup)["trained"]
        return [(lever.values[levers.RANK], lever.values[levers.ALPHA]) for lever in trained]

    assert told("adapter.r=20", "adapter.lora_alpha=40") == [(10, 20), (5, 10)]
    assert told("adapter.r=20", "adapter.init_lora_weights=orthogonal") == [(10, 16)]
    assert told("adapter.r=64", "adapter.lora_alpha=64", "adapter.use_rslora=true") == [(32, 45), (16, 32)]
    assert told("adapter.r=64", "adapter.rank_pattern={q_proj=8}") == []  # its scale would change


def test_only_the_keys_that_change_are_written(path: Path) -> None:
    setup = build_setup(resolve(path, overrides=["data.max_length=4096"]).profile, shape(), card(24))
    written = [change.values for change in fit.find_cheapest(setup) if levers.CHECKPOINTING in change.values]
    assert any(levers.CHECKPOINTING_KWARGS not in values for values in written)
    assert all(values.get(levers.CHECKPOINTING_KWARGS, {}) != "none" for values in written)
    freeze = build_setup(resolve(path, overrides=METHODS["freeze"]).profile, shape(), card(24))
    assert all(levers.MODULES not in change.values for change in fit.find_cheapest(freeze))


def test_longer_rows_are_proposed_only_where_some_are_cut(path: Path) -> None:
    profile = resolve(path, overrides=["adapter.method=qlora", "data.max_length=512"]).profile
    assert fit.longest_rows(build_setup(profile, shape(), card(80))) is None
    assert fit.longest_rows(build_setup(profile, shape(), card(80), rows_are_cut=True)) is not None


def test_where_nothing_fits_nothing_is_proposed(path: Path) -> None:
    setup = build_setup(resolve(path).profile, shape(), card(2), rows_are_cut=True)
    assert told_for(setup) == []


def test_the_work_is_bounded(path: Path) -> None:
    """Each memory of the slowest shapes takes 4 ms."""
    number = 0

    def memory(setup: TrainingSetup) -> Memory:
        nonlocal number
        number += 1
        return closed_form.memory(setup)

    for overrides in (METHODS["lora"], ["adapter.modules_to_save=['lm_head']", "data.max_length=8192"]):
        for memory_gib in (8, 12, 16, 24):
            number = 0
            fit.find_cheapest(
                build_setup(resolve(path, overrides=overrides).profile, shape(), card(memory_gib)), fit.Judge(memory)
            )
            assert number <= 200


@given(memory_gib=st.floats(8, 90), length=st.integers(1, 64))
@settings(max_examples=examples(40))
def test_the_largest_is_the_largest(path: Path, memory_gib: float, length: int) -> None:
    profile = resolve(path, overrides=["adapter.method=qlora"]).profile
    setup = replace(build_setup(profile, shape(), card(memory_gib), rows_are_cut=True), length=64 * length)
    rows = rows_a_step(setup)
    sizes = [n for n in range(1, rows + 1) if rows % n == 0]

    def fits(changed: TrainingSetup) -> bool:
        return verdict(closed_form.memory(changed), setup.card) in FIT

    fitting = [n for n in sizes if fits(replace(setup, micro_batch=n, accumulation=rows // n))]
    most, largest = max(fitting, default=None), fit.largest_micro_batch(setup)
    assert (None if largest is None else largest.values[levers.MICRO_BATCH]) == (None if most == 8 else most)
    longest = fit.longest_rows(setup)
    told = setup.length if longest is None else int(longest.values[levers.MAX_LENGTH])
    assert longest is None or (told > setup.length and fits(replace(setup, length=told)))
    assert told >= (shape().context or 0) // 64 * 64 or not fits(replace(setup, length=told + 64))
