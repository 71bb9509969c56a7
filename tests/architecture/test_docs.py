"""What the papers claim is what the code does."""

import re
import tomllib
from pathlib import Path
from typing import get_args

from ftui.engine.inspection.report.findings import KINDS
from ftui.engine.inspection.report.findings_page import make_page
from ftui.errors import EXIT_WORDS
from ftui.profile.layers import resolve
from ftui.profile.presets import shipped_presets
from ftui.profile.sections.data import FindingName

ROOT = Path(__file__).parents[2]
README = (ROOT / "README.md").read_text()


def test_readme_commands_are_the_ones_ci_runs() -> None:
    blocks = re.findall(r"```sh\n(.*?)```", README, re.DOTALL)
    commands = [line.split("#")[0].strip() for block in blocks for line in block.splitlines()]
    assert "pip install -c constraints.txt . && ftui --run quickstart" in commands
    assert "pip install -c constraints.txt -e '.[test]' && pytest -n 2 --dist worksteal" in commands
    ci = (ROOT / ".ci" / "run").read_text()
    assert 'eval "$quickstart"' in ci
    assert 'eval "$tests"' in ci


def test_readme_pictures_are_there() -> None:
    pictures = re.findall(r"!\[[^\]]+\]\(([^)]+)\)", README)
    assert len(pictures) == 5
    assert all((ROOT / picture).is_file() for picture in pictures)


def test_readme_lists_every_exit_code() -> None:
    for code, words in EXIT_WORDS.items():
        assert re.search(rf"\b{code} {words.split(' or ')[0]}", README.replace("\n  ", " ")), f"{code} {words}"


def test_readme_profile_is_valid(tmp_path: Path) -> None:
    toml = re.search(r"```toml\n(.*?)```", README, re.DOTALL)
    assert toml
    (tmp_path / "mine.toml").write_text(toml[1])
    assert resolve(tmp_path / "mine.toml").profile.model.name_or_path == "Qwen/Qwen3-0.6B"


def test_every_shipped_profile_loads() -> None:
    names = [profile.name for profile in shipped_presets()]
    assert sorted(names) == sorted(p.stem for p in (ROOT / "profiles" / "recipes").glob("*.toml"))
    assert len(names) >= 2
    for path in (ROOT / "profiles" / "recipes").glob("*.toml"):
        resolve(path)


def test_constraints_pin_every_distribution() -> None:
    lines = [line for line in (ROOT / "constraints.txt").read_text().splitlines() if line and line[0] != "#"]
    assert "torch==2.13.0" in lines
    assert all(re.fullmatch(r"[A-Za-z0-9._-]+==[^ ;]+( ; .+)?", line) for line in lines)
    pinned = {re.split("==", line)[0].lower().replace("_", "-") for line in lines}
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    wanted = [*project["dependencies"], *project["optional-dependencies"]["test"]]
    assert {re.split(r"[>=<\[]", w)[0].lower() for w in wanted} <= pinned


def test_no_path_of_a_machine_is_in_the_repository() -> None:
    """Paths under somebody's home, work or temporary folders say that a file was not made for everyone."""
    pattern = re.compile(r"(?<![\w/.])/(?:home|work|root|Users)/[a-z]")
    for path in [*ROOT.glob("*.md"), *ROOT.glob("docs/*.md"), *ROOT.glob("profiles/**/*.toml"), *ROOT.glob("*.toml")]:
        assert not pattern.search(path.read_text()), path


def test_the_page_on_data_is_current() -> None:
    page = (ROOT / "docs" / "data.md").read_text(encoding="utf-8")
    assert page == make_page(), (
        "docs/data.md is stale: python -m ftui.engine.inspection.report.findings_page > docs/data.md"
    )
    assert set(KINDS) == set(get_args(FindingName)), "data.allow names what the table has"
