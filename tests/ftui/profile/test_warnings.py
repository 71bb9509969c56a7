"""What a profile may say and hardly anybody means is a warning, not an error."""

import re
from pathlib import Path

import pytest

from ftui.importers import import_file
from ftui.profile.checks.plausible_ranges import RANGES
from ftui.profile.checks.warnings import RunAmounts, find_warnings, warning_lines
from ftui.profile.layers import resolve
from ftui.profile.presets import shipped_presets
from ftui.profile.reference import reference
from ftui.profile.schema import Profile
from ftui.profile.tiers import tier_layer, tier_names
from tests.support.imports import FILES

TABLES: dict[str, dict[str, object]] = {
    "full": {"adapter": {"method": "full"}}, "lora": {}, "qlora": {"adapter": {"method": "qlora"}},
    "freeze": {"adapter": {"method": "freeze", "trainable_layers": 2}},
    "new": {"adapter": {"method": "full"}, "model": {"from_scratch": {"size": "tiny"}}, "run": {"stage": "pretrain"}},
    "continued": {"adapter": {"method": "full"}, "run": {"stage": "pretrain"}},
}  # fmt: skip


def profile(**tables: object) -> Profile:
    whole = {"run": {"stage": "sft"}, "model": {"name_or_path": "a/b"}, "data": {"train": "r"}} | tables
    return Profile.model_validate(whole)


def amounts(steps: int = 300, sequences: int = 800, batch: int = 8, *, evaluates: bool = True) -> RunAmounts:
    return RunAmounts(steps, sequences, batch, evaluates)


def warned(whole: Profile, given: RunAmounts | None = None) -> list[str]:
    return [".".join(warning.key) for warning in find_warnings(whole, given)]


@pytest.mark.parametrize(
    ("kind", "optim", "inside", "outside"),
    [
        ("full", "adamw_torch_fused", (1e-7, 1e-5, 5e-5, 1e-3), (0, 9e-8, 2e-3, 0.05, 900_000)),
        ("freeze", "adamw_8bit", (1e-6, 3e-4), (5e-3, 1)),
        ("continued", "paged_adamw_32bit", (1e-6, 1e-4), (5e-3, 1e-8)),
        ("lora", "adamw_torch", (1e-6, 2e-4, 4e-3, 1e-2), (5e-7, 0.02, 1, 900_000)),
        ("qlora", "paged_adamw_8bit", (1e-5, 2e-4), (0.1, 1e-9)),
        ("new", "adamw_torch", (6e-5, 3e-3, 1e-2), (1e-6, 0.05)),
        ("full", "lion_8bit", (1e-7, 3e-6, 1e-4), (3e-4, 1e-3)),
        ("lora", "paged_lion_32bit", (3e-5, 1e-3), (2e-3, 0.01)),
        ("full", "adafactor", (1e-3, 1e-5, 1e-2), (0.1, 1e-8)),
        ("lora", "sgd", (1e-2, 1, 10), (2e-5, 50)),
        ("full", "sgd", (1e-3, 0.1), (1e-6, 5)),
        ("full", "adagrad", (1e-2,), (1,)),
        ("lora", "ademamix_8bit", (2e-4,), (0.1,)),
        ("full", "rmsprop_bnb", (1e-5,), (0.05,)),
    ],
)
def test_learning_rates_by_what_is_trained_and_the_optimizer(
    kind: str, optim: str, inside: tuple[float, ...], outside: tuple[float, ...]
) -> None:
    for rate in (*inside, *outside):
        whole = profile(**TABLES[kind], train={"optim": optim, "learning_rate": rate})
        assert warned(whole) == ["train.learning_rate"] * (rate in outside), rate


LOW_RATE: dict[str, dict[str, object]] = {"train": {"learning_rate": 5e-6}}


@pytest.mark.parametrize(
    ("key", "inside", "outside", "more"),
    [
        ("train.weight_decay", (0, 0.01, 0.1, 0.5), (0.6, 10), {}),
        ("train.weight_decay", (0, 1, 3), (10,), {"train": {"optim": "lion_32bit", "learning_rate": 1e-4}}),
        ("train.warmup_steps", (0, 0.03, 0.5), (0.6, 0.99), {}),
        ("train.num_train_epochs", (0.5, 3, 15, 100), (101, 500), {}),
        ("train.max_grad_norm", (0.3, 1, 5, None), (0.001, 1e9), {}),
        ("train.adam_beta1", (0.9, 0.95), (0.1, 0.999), {}),
        ("train.adam_beta2", (0.95, 0.98, 0.999, 0.9999), (0.5, 0.9999999), {}),
        ("train.adam_epsilon", (1e-8, 1e-6, 1e-5), (0.1, 1e-30), {}),
        ("train.label_smoothing_factor", (0, 0.1), (0.5, 0.9), {}),
        ("train.neftune_noise_alpha", (None, 5, 15), (1000, 0.001), {}),
        ("adapter.r", (16, 128, 512), (600, 1024), {"adapter": {"lora_alpha": 64}}),
        ("adapter.lora_alpha", (16, 32, 1, 512), (600, 100_000), {}),
        ("adapter.lora_alpha", (16, 64, 128), (1000,), {"adapter": {"use_rslora": True}}),
        ("adapter.lora_alpha", (64,), (1, 10), {"adapter": {"r": 256}}),
        ("adapter.lora_alpha", (1, 10), (), {"adapter": {"r": 256, "name_or_path": "an/adapter"}}),
        ("adapter.lora_dropout", (0, 0.05, 0.3), (0.5, 0.9), {}),
        ("preference.beta", (0.01, 0.1, 1), (1e-30, 100.0), {"run": {"stage": "dpo"}, **LOW_RATE}),
        ("preference.beta", (0.1, 2, 10), (1e-4, 1e3), {"run": {"stage": "simpo"}, **LOW_RATE}),
        ("preference.simpo_gamma", (0, 0.5, 3), (1e30,), {"run": {"stage": "simpo"}, **LOW_RATE}),
        ("data.eval_num_rows", (10, 50, 1000), (1, 9, 10**6), {}),
        ("data.eval_fraction", (0.01, 0.5), (0.9,), {}),
    ],
)
def test_numbers_inside_and_outside_their_range(
    key: str, inside: tuple[float | None, ...], outside: tuple[float, ...], more: dict[str, dict[str, object]]
) -> None:
    section, _, name = key.partition(".")
    for value in (*inside, *outside):
        tables: dict[str, dict[str, object]] = {"data": {"train": "r"}, **more}
        tables |= {section: {**tables.get(section, {}), name: value}}
        (lines, keys) = (warning_lines(find_warnings(profile(**tables))), warned(profile(**tables)))
        assert keys == [key] * (value in outside), value
        assert all(re.search(r"(above|below) what is plausible.*, \S+ to \S+\. .* is usual\.$", line) for line in lines)


@pytest.mark.parametrize(
    ("processes", "batch", "words"),
    [
        (2, None, ""),
        (2, 8, ""),
        (3, 12, ""),
        (3, 4, "4 sequences a step make 2 micro-batches of at most 2: 1 of 3 processes gets none"),
        (4, 6, "4 processes"),
        (2, 6, "6 sequences a step make 3 micro-batches of at most 2: 1 of 2 processes gets one less"),
        (8, 3, "3 micro-batches of at most 1: 5 of 8 processes get none"),
    ],
)
def test_a_batch_that_processes_cannot_share_evenly_is_told(processes: int, batch: int | None, words: str) -> None:
    train = {"per_device_train_batch_size": 2, "effective_batch": batch}
    lines = warning_lines(find_warnings(profile(train=train, hardware={"num_processes": processes})))
    told = [line for line in lines if line.startswith("hardware.num_processes")]
    assert bool(told) == bool(words) and all(words in line for line in told)


def test_the_numbers_of_a_curriculums_stages_are_looked_at() -> None:
    whole = profile(curriculum=({"learning_rate": 1e-4}, {"learning_rate": 3.0}, {"num_train_epochs": 300}))
    assert warned(whole) == ["curriculum.1.learning_rate", "curriculum.2.num_train_epochs"]


@pytest.mark.parametrize(("device", "is_told"), [("cpu", True), ("auto", False), ("cuda", False)])
def test_offloading_what_lies_in_host_memory_already(device: str, is_told: bool) -> None:
    train = {"activation_checkpointing": True, "activation_offload": True}
    given = profile(train=train, hardware={"device": device, "offload": ["base", "state"]})
    keys = [line.partition(":")[0] for line in warning_lines(find_warnings(given, amounts()))]
    assert keys == (["hardware.offload", "train.activation_offload"] if is_told else [])


@pytest.mark.parametrize("tier", [None, *tier_names()])
def test_nothing_that_ships_is_doubted(tier: str | None) -> None:
    for preset in shipped_presets():
        resolved = resolve(preset.path, below=[tier_layer(tier)] if tier else [])
        assert warned(resolved.profile) == [], preset.path


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.name)
def test_nothing_that_is_imported_is_doubted(path: Path, tmp_path: Path) -> None:
    imported = import_file(path, tmp_path)
    if not imported.missing:
        (tmp_path / "made.toml").write_text(imported.text)
        assert warned(resolve(tmp_path / "made.toml").profile) == []


def test_the_defaults_are_inside_every_range_and_the_table_is_documented() -> None:
    assert warned(profile(), amounts()) == []
    page = reference()
    assert all(one.words in page and one.source in page for one in RANGES)
    assert all(one.low < one.high and one.source and one.usual for one in RANGES)


@pytest.mark.parametrize(
    ("warmup", "steps", "is_told"),
    [(50, 5, True), (5, 5, True), (4, 5, False), (0.03, 5, False), (0, 5, False), (1, 1, True)],
)
def test_a_warm_up_that_is_no_shorter_than_the_run(warmup: float, steps: int, is_told: bool) -> None:
    """As many steps as the run has, whichever key says how many that are."""
    lines = warning_lines(find_warnings(profile(train={"warmup_steps": warmup}), amounts(steps)))
    told = [line for line in lines if "is not less" in line]
    assert bool(told) == is_told
    assert all(line.startswith(f"train.warmup_steps: {warmup} is") and "0.1 is" in line for line in told)


@pytest.mark.parametrize(
    ("warmup", "steps", "share"), [(0.5, 100, ""), (50, 100, ""), (70, 100, "70%"), (99, 100, "99%"), (1, 1000, "")]
)
def test_a_warm_up_of_most_of_the_run(warmup: float, steps: int, share: str) -> None:
    lines = warning_lines(find_warnings(profile(train={"warmup_steps": warmup}), amounts(steps)))
    assert [line for line in lines if "warmup" in line and share in line] == lines and bool(lines) == bool(share)


@pytest.mark.parametrize(
    ("precision", "device", "is_told"), [("fp16", "cpu", True), ("fp16", "cuda", False), ("auto", "cpu", False)]
)
def test_half_precision_on_a_cpu(precision: str, device: str, is_told: bool) -> None:
    lines = warning_lines(find_warnings(profile(train={"precision": precision}, hardware={"device": device})))
    assert bool(lines) == is_told and all('"fp32" or "auto"' in line for line in lines)


@pytest.mark.parametrize(
    ("train", "curriculum", "start"),
    [
        ({"num_train_epochs": 99}, [], "train.num_train_epochs: 99 is"), ({}, [], "train.num_train_epochs: 1 is"),
        ({"max_steps": 10**9}, [], "train.max_steps: 1000000000 is"), ({}, [{"fraction": 0.5}], "curriculum: it has"),
    ],
)  # fmt: skip
def test_more_steps_than_anybody_waits_for(train: dict[str, object], curriculum: list[object], start: str) -> None:
    whole = profile(train=train, curriculum=tuple(curriculum))
    (line,) = warning_lines(find_warnings(whole, amounts(10**9, 10**9)))
    assert line.startswith(start) and "1,000,000,000 steps: 115d" in line
    assert find_warnings(whole, amounts(10_000_000, 10**9)) == []


@pytest.mark.parametrize(
    ("tables", "given", "key"),
    [
        ({}, amounts(9, sequences=30, batch=64), "train.per_device_train_batch_size"),
        ({}, amounts(9, sequences=64, batch=64), ""),
        ({"train": {"gradient_accumulation_steps": 16}}, amounts(9, 30, 64), "train.gradient_accumulation_steps"),
        ({"train": {"max_steps": 5000}}, amounts(5000, 100, 10), "train.max_steps"),
        ({"train": {"max_steps": 1000}}, amounts(1000, 100, 10), ""),
        ({"train": {"num_train_epochs": 50}}, amounts(5000, 100, 1), ""),
        ({"eval": {"eval_strategy": "steps", "eval_steps": 301}}, amounts(), "eval.eval_steps"),
        ({"eval": {"eval_strategy": "steps", "eval_steps": 300}}, amounts(), ""),
        ({"eval": {"eval_strategy": "steps", "eval_steps": 0.2}}, amounts(3), ""),
        ({"eval": {"eval_strategy": "steps", "eval_steps": 301}}, amounts(evaluates=False), ""),
        ({"eval": {"eval_strategy": "epoch", "eval_steps": 301}}, amounts(), ""),
        ({"eval": {"eval_strategy": "steps", "eval_delay": 300}}, amounts(), "eval.eval_delay"),
        ({"checkpoint": {"save_steps": 500, "save_minutes": None}}, amounts(), "checkpoint.save_steps"),
        ({"checkpoint": {"save_steps": 500}}, amounts(), "checkpoint.save_steps"),
        ({"checkpoint": {"save_steps": 300}}, amounts(), ""),
        ({"checkpoint": {"save_steps": 500, "save_strategy": "epoch", "save_minutes": None}}, amounts(), ""),
        ({"log": {"logging_steps": 301}}, amounts(), "log.logging_steps"),
        ({"eval": {"eval_strategy": "steps"}, "checkpoint": {"save_minutes": None}}, amounts(5), ""),
    ],
)
def test_what_only_the_rows_show(tables: dict[str, object], given: RunAmounts, key: str) -> None:
    """A default that is longer than a short run is nobody's mistake."""
    assert warned(profile(**tables), given) == ([key] if key else [])
