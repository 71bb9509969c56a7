"""Each stage has a page, and the profile on it is one that trains: rows that ship take the place of the reader's."""

import json
import re
import shutil
from pathlib import Path
from typing import get_args

import pytest

from ftui.engine.services.count_rows import count_profile
from ftui.measures import SAMPLED
from ftui.profile.checks.warnings import find_warnings
from ftui.profile.layers import resolve
from ftui.profile.presets import SHIPPED
from ftui.profile.schema import RunSection

ROOT = Path(__file__).parents[3]
STAGES = get_args(RunSection.model_fields["stage"].annotation)
QUICKSTART = SHIPPED.parent / "quickstart"


@pytest.mark.parametrize("stage", STAGES)
def test_a_page_has_a_profile_of_its_stage(stage: str, tmp_path: Path) -> None:
    page = (ROOT / "docs" / "stages" / f"{stage}.md").read_text(encoding="utf-8")
    assert page.startswith(f"# Stage `{stage}`\n")
    assert f"](stages/{stage}.md)" in (ROOT / "docs" / "preference.md").read_text(encoding="utf-8")
    for heading in ("## The loss", "## Watch", "## What goes wrong", "## A profile"):
        assert heading in page, heading
    (toml,) = re.findall(r"```toml\n(.*?)```", page, re.DOTALL)
    (tmp_path / "mine.toml").write_text(toml)
    profile = resolve(tmp_path / "mine.toml").profile
    assert profile.run.stage == stage
    assert find_warnings(profile) == []


@pytest.mark.slow
@pytest.mark.parametrize("stage", STAGES)
def test_the_profile_of_a_page_makes_a_plan(stage: str, model_folder: Path, tmp_path: Path) -> None:
    """What `--dry-run` counts, with a tiny model and a few rows that ship under the names of the page."""
    page = (ROOT / "docs" / "stages" / f"{stage}.md").read_text(encoding="utf-8")
    (toml,) = re.findall(r"```toml\n(.*?)```", page, re.DOTALL)
    (tmp_path / "mine.toml").write_text(toml)
    name = re.search(r'^train = "([\w.]+)"', toml, re.MULTILINE)
    assert name
    with (QUICKSTART / name[1]).open(encoding="utf-8") as rows:
        few = [line for line, _ in zip(rows, range(60), strict=False)]
    (tmp_path / name[1]).write_text("".join(few), encoding="utf-8")
    shutil.copytree(model_folder, tmp_path / "model")
    model = json.dumps(str(tmp_path / "model"))
    fitting = [f"model.name_or_path={model}", "data.max_length=128", 'data.allow=["answers_cut_off"]']
    if stage in SAMPLED:
        fitting[1:] = ["data.max_length=768"]
    counts = count_profile(resolve(tmp_path / "mine.toml", overrides=fitting).profile)
    assert counts.max_steps and counts.num_target_tokens and (counts.num_eval_rows or stage in SAMPLED)
