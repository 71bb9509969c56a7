"""The rooms of the estimate put together: recipes on every tier, and what an answer takes into account."""

import json
from dataclasses import replace
from itertools import product
from pathlib import Path
from typing import Any

import msgspec
import pytest

from ftui import units
from ftui.dataset.row_counts import RowCounts
from ftui.estimate import closed_form
from ftui.estimate.api import Known, budget_forecast, estimate, setup_for, suggestions
from ftui.estimate.estimate_text import estimate_lines
from ftui.estimate.result import Estimate, Memory
from ftui.estimate.setup import AnsweredRows, TrainingSetup
from ftui.estimate.simulation import carry_over
from ftui.hardware.devices import CARDS, find_card
from ftui.models.known import known_models
from ftui.profile.layers import examine, file_layer, override_layer, resolve
from ftui.profile.presets import shipped_presets
from ftui.profile.schema import Profile
from ftui.profile.tiers import tier_layer, tier_names
from ftui.text import toml_value

TEXT = '[run]\nstage="sft"\n[model]\nname_or_path="{name}"\n[data]\ntrain="r.jsonl"\nmax_length=2048\n'


def profile(tmp_path: Path, *overrides: str, name: str = "Qwen/Qwen3-8B") -> Profile:
    path = tmp_path / "p.toml"
    path.write_text(TEXT.format(name=name))
    return resolve(path, overrides=overrides).profile


@pytest.fixture(autouse=True)
def nothing_at_home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HF_HOME", str(tmp_path / "hf"))
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    monkeypatch.delenv("HF_HUB_CACHE", raising=False)
    monkeypatch.setenv("COLUMNS", "80")


@pytest.mark.parametrize("tier", tier_names())
def test_every_recipe_is_estimated_on_every_tier(tier: str) -> None:
    card = find_card(tier)
    for recipe in shipped_presets():
        found = estimate(resolve(recipe.path, below=[tier_layer(tier)]).profile, card)
        assert found.memory is not None and found.verdict != "unknown", recipe.name
        assert sum(found.memory.breakdown.values()) == found.memory.process
        assert found.memory.low <= found.memory.process <= found.memory.high
        assert found.disk and found.ram and found.num_trainable
        assert found.duration.tokens_per_second is None or card.tflops is not None
        assert all(len(line) <= 80 for line in estimate_lines(found, card, 0.5))


def test_a_model_that_is_not_known_is_never_guessed(tmp_path: Path) -> None:
    for name in ("nobody/nothing", str(tmp_path / "strange")):
        (tmp_path / "strange").mkdir(exist_ok=True)
        (tmp_path / "strange" / "config.json").write_text(json.dumps({"model_type": "mamba", "hidden_size": 64}))
        found = estimate(profile(tmp_path, name=name), find_card("h200"))
        assert (found.verdict, found.memory, found.duration.total_seconds) == ("unknown", None, None)
        assert found.notes
        assert "unknown" in estimate_lines(found, find_card("h200"), None)[0]


UNKNOWN = {
    "Llama-3-8B": "and was not fetched from the hub. Did you mean meta-llama/Meta-Llama-3-8B?",
    "google/gemma-3-12b-it": "reads more than text",
    "openai/gpt-oss-20b": "is stored quantised",
    "unsloth/llama-3-8b-bnb-4bit": "cannot be trained. Did you mean meta-llama/Meta-Llama-3-8B?",
}


@pytest.mark.parametrize("name", UNKNOWN)
def test_a_model_that_is_not_estimated_says_why(tmp_path: Path, name: str) -> None:
    found = estimate(profile(tmp_path, name=name), find_card("h200"))
    assert found.verdict == "unknown" and UNKNOWN[name] in found.notes[0] and name in found.notes[0]


def test_a_folder_whose_model_a_run_refuses_says_why(tmp_path: Path) -> None:
    (tmp_path / "many").mkdir()
    (tmp_path / "many" / "config.json").write_text(json.dumps({"model_type": "gemma3", "vision_config": {}}))
    found = estimate(profile(tmp_path, name=str(tmp_path / "many")), find_card("h200"))
    assert "reads more than text" in found.notes[0]


def test_what_is_on_this_machine_goes_before_the_table(tmp_path: Path) -> None:
    snapshots = tmp_path / "hf" / "hub" / "models--Qwen--Qwen3-8B" / "snapshots"
    small = dict(known_models()["Qwen/Qwen3-0.6B"].config)
    for commit, layers in (("a" * 40, 2), ("b" * 40, 4)):
        (snapshots / commit).mkdir(parents=True)
        (snapshots / commit / "config.json").write_text(json.dumps(small | {"num_hidden_layers": layers}))
    sizes = [
        estimate(profile(tmp_path, f"model.revision={commit * 40}"), find_card("t4")).num_parameters for commit in "ab"
    ]
    assert sizes[0] is not None and sizes[1] is not None and sizes[0] < sizes[1] < 10**9


def test_rows_that_were_counted(tmp_path: Path) -> None:
    """Shorter rows than max_length take less; fewer rows than a micro-batch make a smaller one."""
    card, given = find_card("rtx4090"), profile(tmp_path, "eval.per_device_eval_batch_size=8")
    whole = setup_for(given, card)
    counts = RowCounts(
        num_train_rows=3, num_eval_rows=1, num_train_tokens=600, num_sequences=3, steps_per_epoch=1, max_steps=2,
        longest=300,
    )  # fmt: skip
    counted = setup_for(given, card, Known(counts=counts))
    assert isinstance(whole, TrainingSetup) and isinstance(counted, TrainingSetup)
    assert (whole.length, whole.micro_batch, whole.eval_batch) == (2048, 4, 8)
    assert (counted.length, counted.micro_batch, counted.eval_batch) == (300, 3, 1)
    assert estimate(given, card, Known(counts=counts)).duration.num_steps == 2


@pytest.mark.parametrize(("name", "number"), [("Qwen/Qwen3-8B", 1), ("Qwen/Qwen3-8B", 5), ("nobody/nothing", 9)])
def test_what_a_dry_run_warns_of_is_told(tmp_path: Path, name: str, number: int) -> None:
    """The first five in full, the others as a number; also where the model is not known."""
    texts = [f"{n} of 47 rows say exactly what an earlier row says, first rows.jsonl:{40 + n}" for n in range(number)]
    card = find_card("rtx4090")
    found = estimate(profile(tmp_path, name=name), card, Known(counts=RowCounts(warnings=texts)))
    assert found.warnings == tuple(texts)
    lines = " ".join(" ".join(estimate_lines(found, card, None)).split())
    assert [text in lines for text in texts] == [n < 5 for n in range(number)]
    assert ("warning 4 more; `ftui run PROFILE --dry-run` shows all" in lines) == (number == 9)


def test_processes_on_a_cpu_share_its_memory(tmp_path: Path) -> None:
    cpu = replace(find_card("cpu"), memory=40 << 30)
    name = "HuggingFaceTB/SmolLM2-360M-Instruct"
    one = estimate(profile(tmp_path, "hardware.device=cpu", name=name), cpu)
    four = estimate(profile(tmp_path, "hardware.device=cpu", "hardware.num_processes=4", name=name), cpu)
    assert (one.verdict, four.verdict) == ("fits", "no")
    assert four.ram and one.ram and four.ram > 3 * one.ram


NEEDS_A_DEVICE: dict[str, list[Any]] = {
    "adapter.method": ["lora", "qlora", "full"],
    "adapter.load_in_8bit": [False, True],
    "train.optim": ["adamw_torch", "adafactor", "adamw_8bit", "paged_adamw_32bit", "lion_8bit", "rmsprop_bnb"],
    "model.attn_implementation": ["auto", "sdpa", "flash_attention_2"],
    "train.precision": ["auto", "fp32"],
}


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["mps", "cpu", "cuda"])
def test_what_a_card_cannot_do_is_no_whatever_its_memory(kind: str, tmp_path: Path) -> None:
    """Exactly what a profile that names such a device is refused for; and what is proposed there can be done."""
    card = replace(find_card({"cuda": "h200"}.get(kind, kind)), memory=4000 << 30)
    path = tmp_path / "p.toml"
    path.write_text(TEXT.format(name="Qwen/Qwen3-8B"))
    for values in product(*NEEDS_A_DEVICE.values()):
        wishes = [f"{key}={toml_value(value)}" for key, value in zip(NEEDS_A_DEVICE, values, strict=True)]
        examined = examine([file_layer(path), override_layer(wishes)], path)
        if examined.profile is None:  # does not go together on any device
            continue
        refused = examine([file_layer(path), override_layer([*wishes, f"hardware.device={kind}"])], path).problems
        told = estimate(examined.profile, card)
        assert (told.verdict == "no") == bool(told.impossible) == bool(refused), wishes
        if not refused:
            continue
        assert told.impossible in " ".join(" ".join(estimate_lines(told, card, None)).split())
        setup = setup_for(examined.profile, card)
        assert isinstance(setup, TrainingSetup)
        changes = suggestions(setup)
        assert changes and all(change.verdict in ("fits", "likely") for change in changes)
        for change in changes:
            mended = [f"{'.'.join(key)}={toml_value(value)}" for key, value in change.values.items()]
            after = resolve(path, overrides=[*wishes, *mended, f"hardware.device={kind}"]).profile
            assert estimate(after, card).verdict == "fits"


def test_a_card_that_hides_its_memory(tmp_path: Path) -> None:
    hidden = replace(find_card("l4"), memory=0)
    assert estimate(profile(tmp_path, "adapter.method=qlora"), hidden).verdict == "unknown"


def test_money(tmp_path: Path) -> None:
    own = tmp_path / "config" / "ftui" / "prices.toml"
    counts = Known(counts=RowCounts(max_steps=1000, num_train_tokens=10**6, steps_per_epoch=100))
    card = find_card("a40")
    assert card.price_per_hour is None and estimate(profile(tmp_path), card, counts).duration.dollars is None
    own.parent.mkdir(parents=True)
    own.write_text("a40 = 0.5\n")
    told = estimate(profile(tmp_path), card, counts).duration
    assert told.dollars == pytest.approx(0.5 * (told.total_seconds or 0) / 3600)
    dearer = estimate(profile(tmp_path, "hardware.price_per_hour=2.0"), card, counts).duration
    assert dearer.dollars == pytest.approx(4 * (told.dollars or 0))
    four = estimate(profile(tmp_path, "hardware.num_processes=4"), card, counts)
    assert " at 4 x $0.50 an hour" in " ".join(" ".join(estimate_lines(four, card, 0.5)).split())


def test_a_simulation_is_carried_to_cards_with_the_same_kernels(tmp_path: Path) -> None:
    setup = setup_for(profile(tmp_path), find_card("rtx4090"))
    assert isinstance(setup, TrainingSetup)
    simulated = replace(closed_form.memory(setup), basis="simulated")
    carried = {card.name: carry_over(simulated, find_card("rtx4090"), card) for card in CARDS}
    assert {name for name, memory in carried.items() if memory is None} == {"mps", "cpu", "t4", "h100", "h200"}
    near = carried["rtx3090"]
    assert isinstance(near, Memory) and near.process - near.reserved == find_card("rtx3090").context
    assert sum(near.breakdown.values()) == near.process


def test_suggestions_are_other_than_what_is(tmp_path: Path) -> None:
    for overrides in ((), ("adapter.method=full",), ("train.per_device_train_batch_size=1",)):
        setup = setup_for(profile(tmp_path, *overrides), find_card("a40"))
        assert isinstance(setup, TrainingSetup)
        now = closed_form.memory(setup)
        assert all(change.memory != now for change in suggestions(setup))


def test_the_base_model_reads_all_rows_once_where_they_are_sorted_by_its_loss(tmp_path: Path) -> None:
    """An epoch of 100 steps, forward only: half of what it takes to learn an adapter on them."""
    path, card = tmp_path / "p.toml", find_card("a100-80")
    counts = RowCounts(max_steps=100, num_train_tokens=10**6, steps_per_epoch=100, num_train_rows=1000)
    seconds = {}
    for key in ("length", "loss"):
        path.write_text(TEXT.format(name="Qwen/Qwen3-8B") + f'[[curriculum]]\nsort_by = "{key}"\nfraction = 0.5\n')
        found = estimate(resolve(path).profile, card, Known(counts=counts)).duration
        assert found.total_seconds and found.step_seconds
        seconds[key] = (found.total_seconds, found.step_seconds)
    more = seconds["loss"][0] - seconds["length"][0]
    assert more == pytest.approx(100 * seconds["length"][1] / 2)


def test_what_is_measured_before_the_first_step_has_a_time_a_price_and_a_size(tmp_path: Path) -> None:
    """Forward only, of an adapter's training: half the time. KTO has as many mismatched answers, and a pass of them
    before each step."""
    path, card = tmp_path / "p.toml", find_card("a100-80")
    text = TEXT.format(name="Qwen/Qwen3-8B").replace('stage="sft"', 'stage="{stage}"')
    counts = RowCounts(
        max_steps=200, num_train_tokens=10**6, num_target_tokens=4 * 10**5, steps_per_epoch=100, num_train_rows=1000,
        num_eval_rows=100, num_sequences=2000,
    )  # fmt: skip
    # stage, keys, steps: tokens that are measured, bytes of the file
    cases: list[tuple[str, str, int, int, int]] = [
        ("sft", "", 200, 0, 0),
        ("orpo", "", 200, 0, 0),
        ("dpo", "", 200, 1_100_000, 4 * 440_000),
        ("dpo", "", 50, 600_000, 4 * 240_000),
        ("kto", "", 200, 2_200_000, 4 * 880_000),
        ("kto", '[preference]\nloss_type = "apo_zero_unpaired"\n', 200, 1_100_000, 4 * 440_000),
        ("sft", '[[curriculum]]\nsort_by = "loss"\nfraction = 0.5\n', 200, 1_000_000, 4 * 2000),
    ]
    for stage, keys, max_steps, num_tokens, num_bytes in cases:
        path.write_text(text.replace("{stage}", stage) + keys)
        for number in (1, 4):
            profile = resolve(path, overrides=[f"hardware.num_processes={number}"]).profile
            known = Known(counts=msgspec.structs.replace(counts, max_steps=max_steps))
            told = estimate(profile, card, known)
            if not num_tokens:
                assert told.measuring is None
                continue
            speed = told.duration.tokens_per_second
            assert told.measuring is not None and told.measuring.seconds is not None and speed is not None
            assert told.measuring.seconds == pytest.approx(num_tokens / speed / 2)
            assert told.measuring.num_bytes == num_bytes
            dollars, price = told.measuring.dollars, card.price_per_hour
            assert dollars is not None and price is not None
            assert dollars == pytest.approx(told.measuring.seconds * price * number / 3600)
            label = "losses" if stage == "sft" else "reference"
            (line,) = [line for line in estimate_lines(told, card, price) if line.startswith(f"  {label}")]
            assert f"{units.duration(told.measuring.seconds)} of it before the first step, $" in line


def test_answers_at_evaluations_take_memory_and_time(tmp_path: Path) -> None:
    """Keys and values of a token of Qwen3-8B: 36 layers, 8 heads of 128, two of them, 2 bytes each."""
    card = find_card("a100-80")
    counts = RowCounts(
        max_steps=100, num_train_tokens=10**6, steps_per_epoch=100, num_train_rows=1000, num_eval_rows=100, longest=512
    )

    def told(*keys: str) -> Estimate:
        common = ("data.eval_num_rows=100", "eval.per_device_eval_batch_size=32", *keys)
        return estimate(profile(tmp_path, *common), card, Known(counts=counts))

    def answering(limit: int, *keys: str) -> Estimate:
        return told("eval.generate=true", f"eval.generate_max_new_tokens={limit}", *keys)

    plain, shorter, longer = told(), answering(4096), answering(8192)
    assert plain.memory and shorter.memory and longer.memory
    assert longer.memory.phase == "evaluation"
    more = longer.memory.allocated - shorter.memory.allocated
    tokens, layer = 32 * 4096, 1 / 36 / 2
    assert more == pytest.approx(tokens * 2 * 36 * 8 * 128 * 2 * (1 + layer), rel=0.01)
    assert not any("answers" in note for note in plain.notes)
    assert any("Each evaluation answers 64 rows with up to 4096 tokens, in up to" in note for note in shorter.notes)
    seconds = [one.duration.total_seconds or 0 for one in (plain, shorter, longer)]
    assert seconds[2] - seconds[0] == pytest.approx(2 * (seconds[1] - seconds[0]), rel=0.02)
    half = answering(4096, "eval.generate_samples=32").duration.total_seconds or 0
    assert half - seconds[0] == pytest.approx((seconds[1] - seconds[0]) / 2)


def test_the_rows_that_a_dry_run_has_chosen_say_how_long_answers_are(tmp_path: Path) -> None:
    given = profile(tmp_path, "data.eval_num_rows=100", "eval.generate=true")
    counts = RowCounts(num_eval_rows=100, longest=512, num_answered=60, longest_prompt=200, longest_answer=90)
    known = setup_for(given, find_card("rtx4090"), Known(counts=counts))
    unknown = setup_for(given, find_card("rtx4090"))
    assert isinstance(known, TrainingSetup) and isinstance(unknown, TrainingSetup)
    assert known.answered == AnsweredRows(60, 200, 90)
    assert unknown.answered == AnsweredRows(64, 2048, 2048), "as long as rows may be"


def test_an_estimate_beyond_the_budget_says_when_the_run_would_be_parked(tmp_path: Path) -> None:
    card = find_card("rtx4090")
    counts = RowCounts(num_train_tokens=10_000_000, steps_per_epoch=1000, max_steps=1000)
    known = Known(counts=counts)
    time = estimate(profile(tmp_path), card, known).duration
    assert time.dollars and time.total_seconds
    half = f"budget.max_money={time.dollars / 2:.4f}"
    (note,) = budget_forecast(profile(tmp_path, half), card, known)
    assert "exceeds budget.max_money" in note and "after about 50% of it" in note
    assert note in estimate(profile(tmp_path, half), card, known).notes
    (note,) = budget_forecast(profile(tmp_path, f"budget.max_hours={time.total_seconds / 14400:.5f}"), card, known)
    assert "exceeds budget.max_hours" in note and "after about 25% of it" in note
    assert budget_forecast(profile(tmp_path, f"budget.max_money={time.dollars * 2:.4f}"), card, known) == []
    (note,) = budget_forecast(profile(tmp_path, half), find_card("cpu"), known)
    assert "hardware.price_per_hour" in note
