"""The shipped recipes: each resolves and makes a plan as it is, and those of every kind take real steps.

Their models cannot be fetched here: a tiny one stands in for them, with everything else as it ships.
"""

import json
from pathlib import Path

import pytest

from ftui.engine.services.count_rows import count_profile
from ftui.profile.layers import resolve
from ftui.profile.presets import SHIPPED, Preset, shipped_presets
from ftui.profile.schema import Profile
from ftui.profile.serialize import to_toml
from ftui.runs.events import EvaluationDone
from ftui.runs.run_folder import Run
from tests.support.attempts import attempt, records
from tests.support.tiny import column, train_run

RECIPES = shipped_presets()
NARROW = 80


def recipe(path: Path, model: Path, rows: Path, *overrides: str) -> Profile:
    """The recipe with a tiny model in the place of one from the hub; plain text is less of the same."""
    profile = resolve(path).profile
    fitting = [f"model.name_or_path={json.dumps(str(model))}", "data.max_length=128"]
    fitting.append('data.allow=["answers_cut_off"]')  # its tokenizer makes a token of nearly every letter
    if profile.model.from_scratch is not None:
        fitting = ["model.from_scratch.vocab_size=600"]
    if profile.run.stage == "grpo":
        fitting.append(f"grpo.max_completion_length={min(32, profile.grpo.max_completion_length)}")
    if profile.run.stage == "pretrain":
        fitting += [f"data.train={json.dumps(str(rows))}", "data.eval_num_rows=2"]
    return resolve(path, overrides=[*fitting, *overrides]).profile


@pytest.fixture(scope="module")
def rows(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A hundredth of the corpus that ships: a tokenizer is trained on it in no time."""
    path = tmp_path_factory.mktemp("corpus") / "corpus.jsonl"
    with (SHIPPED.parent / "quickstart" / "corpus.jsonl").open() as corpus:
        path.write_text("".join(line for line, _ in zip(corpus, range(15), strict=False)))
    return path


@pytest.mark.parametrize("preset", RECIPES, ids=lambda preset: preset.name)
def test_a_recipe_is_described_and_its_files_ship(preset: Preset) -> None:
    widest = max(len(recipe.name) for recipe in RECIPES)
    assert preset.description.endswith(".") and widest + 2 + len(preset.description) <= NARROW
    assert all(len(line) <= 120 for line in preset.path.read_text().splitlines())
    data = resolve(preset.path).profile.data
    assert isinstance(data.train, str) and Path(data.train).is_file()
    assert data.eval is None or (isinstance(data.eval, str) and Path(data.eval).is_file())


def test_the_recipes_people_ask_for_are_there() -> None:
    profiles = {preset.name: resolve(preset.path).profile for preset in RECIPES}
    asked = {(p.run.stage, p.adapter.method, p.model.name_or_path) for p in profiles.values()}
    tiny = {p.run.stage for name, p in profiles.items() if name == f"{p.run.stage}-tiny"}
    assert tiny >= {"pretrain", "dpo", "kto", "orpo", "simpo", "cpo"}
    for stage in ("dpo", "kto", "orpo", "simpo"):
        assert any(one[0] == stage and str(one[2]).startswith("Qwen/Qwen3-1.7B") for one in asked)
    assert ("dpo", "qlora", "Qwen/Qwen3-8B") in asked
    for method in ("lora", "qlora"):
        for model in ("HuggingFaceTB/SmolLM2-135M-Instruct", "Qwen/Qwen3-1.7B", "Qwen/Qwen3-8B"):
            assert ("sft", method, model) in asked
    assert ("sft", "full", "HuggingFaceTB/SmolLM2-135M-Instruct") in asked
    assert ("pretrain", "lora", "Qwen/Qwen3-1.7B-Base") in asked
    sizes = {name: p.model.from_scratch.size for name, p in profiles.items() if p.model.from_scratch is not None}
    assert sizes.items() >= {"pretrain-small": "small", "pretrain-medium": "medium"}.items()


@pytest.mark.parametrize("preset", RECIPES, ids=lambda preset: preset.name)
def test_a_recipe_makes_a_plan(preset: Preset, model_folder: Path, rows: Path, tmp_path: Path) -> None:
    """What `--dry-run` counts."""
    profile = recipe(preset.path, model_folder, rows)
    path = tmp_path / "recipe.toml"
    path.write_text(to_toml(profile))
    counts = count_profile(resolve(path).profile)
    assert counts.max_steps and counts.max_steps >= 2 and counts.num_target_tokens
    assert counts.num_eval_rows or profile.samples_answers, "it says whether it learns"


TWO_STEPS = (
    "train.max_steps=2", "train.per_device_train_batch_size=2", "train.gradient_accumulation_steps=2",
    "eval.eval_strategy=no", "eval.eval_on_start=false", "eval.sample_prompts=[]", "eval.load_best_model_at_end=false",
    "data.eval_num_rows=2", "hardware.device=cpu", "hardware.num_threads=1",
)  # fmt: skip
SMALLER = (
    "model.from_scratch.hidden_size=48", "model.from_scratch.intermediate_size=64",
    "model.from_scratch.num_hidden_layers=2", "data.max_length=64",
)  # fmt: skip


STEPPED = [
    "qlora-qwen3-8b", "pretrain-medium", "kto-qwen3-1.7b",
    *(
        pytest.param(name, marks=pytest.mark.slow)
        for name in (
            "full-smollm2-135m", "pretrain-continued", "dpo-qlora-qwen3-8b", "orpo-qwen3-1.7b", "simpo-qwen3-1.7b",
        )
    ),
]  # fmt: skip


@pytest.mark.parametrize("name", STEPPED)
def test_a_recipe_takes_steps(name: str, model_folder: Path, rows: Path, tmp_path: Path) -> None:
    smaller = SMALLER if name == "pretrain-medium" else ()
    profile = recipe(SHIPPED / f"{name}.toml", model_folder, rows, *TWO_STEPS, *smaller)
    steps = train_run(tmp_path / name, profile)
    assert [step.step for step in steps] == [1, 2]
    assert all(step.applied for step in steps) and (column(steps, "loss") > 0).all()
    assert list((tmp_path / name / "final").glob("*.safetensors"))


@pytest.mark.slow
@pytest.mark.parametrize("stage", ["dpo", "kto", "orpo", "simpo", "cpo"])
def test_a_tiny_recipe_learns_to_prefer_as_it_ships(stage: str, tmp_path: Path) -> None:
    """Offline, in seconds: held-out quiet answers are preferred to shouted ones, more so than before."""
    profile = resolve(SHIPPED / f"{stage}-tiny.toml", overrides=["hardware.num_threads=1"]).profile
    run = Run(tmp_path / stage)
    assert attempt(run, profile) == 0
    first, *_, last = records(run, EvaluationDone)
    assert last.loss < first.loss
    assert last.extras["rewards/margins"] > first.extras["rewards/margins"]
    if stage != "kto":
        assert last.extras["rewards/accuracies"] >= 0.9
