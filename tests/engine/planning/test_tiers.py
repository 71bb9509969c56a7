"""Each tier under each recipe makes a plan, as `ftui --run RECIPE --tier TIER --dry-run` counts it.

The recipes' models cannot be fetched here: a tiny one stands in for them, as in test_recipes.
"""

import json
from pathlib import Path

import pytest

from ftui.dataset.row_counts import RowCounts
from ftui.engine.services.count_rows import count_profile
from ftui.measures import SAMPLED
from ftui.profile.layers import resolve
from ftui.profile.presets import SHIPPED, Preset, shipped_presets
from ftui.profile.schema import Profile
from ftui.profile.sections.preference import PAIR_STAGES
from ftui.profile.serialize import to_toml
from ftui.profile.tiers import tier_layer, tier_names

FEW_ROWS = 40


@pytest.fixture(scope="module")
def rows(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """A little of what ships, by stage."""
    folder, found = tmp_path_factory.mktemp("rows"), {}
    names = {"sft": "instructions", "pretrain": "corpus", "kto": "verdicts"}
    names |= dict.fromkeys(PAIR_STAGES, "pairs") | dict.fromkeys(SAMPLED, "verdicts")
    for stage, name in names.items():
        found[stage] = folder / f"{name}.jsonl"
        with (SHIPPED.parent / "quickstart" / f"{name}.jsonl").open() as lines:
            found[stage].write_text("".join(line for line, _ in zip(lines, range(FEW_ROWS), strict=False)))
    return found


def under(preset: Preset, tier: str, model: Path, rows: dict[str, Path]) -> Profile:
    stage = resolve(preset.path).profile.run.stage
    is_new = resolve(preset.path).profile.model.from_scratch is not None
    stand_in = ["model.from_scratch.vocab_size=400"] if is_new else [f"model.name_or_path={json.dumps(str(model))}"]
    limit = [] if is_new else ["data.max_length=128"]
    held_out = [] if stage in SAMPLED else ["data.eval_num_rows=2"]
    fitting = [f"data.train={json.dumps(str(rows[stage]))}", *held_out, *stand_in, *limit]
    if stage == "grpo":
        fitting.append("grpo.max_completion_length=32")
    fitting.append('data.allow=["answers_cut_off"]')  # its tokenizer makes a token of nearly every letter
    return resolve(preset.path, overrides=fitting, below=[tier_layer(tier)]).profile


@pytest.mark.slow
@pytest.mark.parametrize("preset", shipped_presets(), ids=lambda preset: preset.name)
def test_a_recipe_makes_a_plan_on_every_tier(
    preset: Preset, model_folder: Path, rows: dict[str, Path], tmp_path: Path
) -> None:
    plans: dict[str, RowCounts] = {}
    for tier in tier_names():
        profile = under(preset, tier, model_folder, rows)
        text = to_toml(profile)
        if text not in plans:  # many tiers leave a recipe the same
            (tmp_path / "p.toml").write_text(text)
            plans[text] = count_profile(resolve(tmp_path / "p.toml").profile)
        train, counts = profile.train, plans[text]
        assert counts.max_steps and counts.num_eval_rows == (0 if profile.run.stage in SAMPLED else 2)
        answers = profile.sampled.num_generations if profile.run.stage in SAMPLED else 1  # to each row
        assert (
            counts.effective_batch or 0
        ) * answers == train.per_device_train_batch_size * train.gradient_accumulation_steps
        assert counts.longest and counts.longest <= profile.data.max_length
