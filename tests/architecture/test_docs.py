"""What the pages claim is what the code does."""

import re
import shlex
import tomllib
from pathlib import Path
from typing import get_args

import pytest
import tomlkit

from ftui.cli.arguments import parser
from ftui.cli.main import as_command
from ftui.engine.inspection.report.findings import KINDS
from ftui.engine.inspection.report.findings_page import make_page
from ftui.errors import EXIT_WORDS
from ftui.profile.layers import resolve
from ftui.profile.presets import shipped_presets
from ftui.profile.sections.data import FindingName
from ftui.sweep.start_sweep import read_sweep

ROOT = Path(__file__).parents[2]
README = (ROOT / "README.md").read_text(encoding="utf-8")
PAGES = {
    path.relative_to(ROOT).as_posix(): path.read_text(encoding="utf-8")
    for path in [*sorted(ROOT.glob("*.md")), *sorted((ROOT / "docs").rglob("*.md"))]
}
PICTURE = re.compile(r"!\[[^\]]+\]\(([^)]+)\)")
MOST_BYTES = 1 << 20  # of the moving picture, which everyone loads who looks at the README


def commands_in(page: str) -> list[str]:
    """The lines of its shell blocks, without their comments."""
    blocks = re.findall(r"```sh\n(.*?)```", page, re.DOTALL)
    return [line.split("#")[0].strip() for block in blocks for line in block.splitlines()]


def test_readme_commands_are_the_ones_ci_runs() -> None:
    commands = commands_in(README)
    assert "pip install -c constraints.txt . && ftui --run quickstart" in commands
    assert "pip install -c constraints.txt -e '.[test]' && pytest -n 2 --dist worksteal" in commands
    ci = (ROOT / ".ci" / "run").read_text()
    assert 'eval "$quickstart"' in ci
    assert 'eval "$tests"' in ci


def test_make_check_runs_what_ci_runs() -> None:
    """Line by line, after the installation."""
    make = (ROOT / "Makefile").read_text()
    recipes = dict(re.findall(r"^(\w+):[^\n]*\n((?:\t[^\n]*\n)+)", make, re.MULTILINE))
    lint = (ROOT / ".ci" / "run").read_text().partition('step "lint"\n')[2]
    assert [line.strip() for line in recipes["lint"].splitlines()] == lint.splitlines()
    assert recipes["test"].strip() == "pytest -n 2 --dist worksteal"
    assert re.search(r"^check: test lint\b", make, re.MULTILINE)


def test_every_picture_is_there_and_every_picture_is_shown() -> None:
    shown = {
        (ROOT / page).parent.joinpath(picture).resolve()
        for page, text in PAGES.items()
        for picture in PICTURE.findall(text)
    }
    there = {path for path in (ROOT / "screenshots").resolve().iterdir() if path.suffix in (".png", ".svg", ".gif")}
    assert shown == there
    assert len(shown) == 7
    assert (ROOT / "screenshots" / "live.gif").stat().st_size < MOST_BYTES
    assert "(screenshots/live.gif)" in README


@pytest.mark.parametrize("page", PAGES)
def test_links_lead_somewhere(page: str) -> None:
    links = [link.partition("#")[0] for link in re.findall(r"(?<!!)\[[^\]]+\]\(([^)]+)\)", PAGES[page])]
    assert [link for link in links if "://" not in link and not ((ROOT / page).parent / link).exists()] == []


@pytest.mark.parametrize("page", PAGES)
def test_commands_are_ones_that_ftui_knows(page: str) -> None:
    for command in commands_in(PAGES[page]):
        for part in command.split("&&"):
            words = shlex.split(part.partition(" > ")[0])
            if words[:1] == ["ftui"]:
                parser().parse_args(as_command(words[1:]))  # raises where something is unknown


@pytest.mark.parametrize("page", PAGES)
def test_files_that_a_page_names_are_there(page: str) -> None:
    """Whole paths in backquotes, and tests as FILE::TEST."""
    names = set(re.findall(r"`((?:ftui|engine|tui|tests|profiles|screenshots|docs)/[\w/.-]*)`", PAGES[page]))
    assert [name for name in sorted(names) if not (ROOT / name).exists()] == []
    for file, test in re.findall(r"`(?:\w+/)*(test_\w+\.py)::(test_\w+)`", PAGES[page]):
        assert any(f"def {test}(" in path.read_text() for path in (ROOT / "tests").rglob(file)), f"{file}::{test}"


def test_the_architecture_names_every_package() -> None:
    page = PAGES["docs/architecture.md"]
    packages = {path.parent for folder in ("ftui", "engine", "tui") for path in (ROOT / folder).glob("*/__init__.py")}
    packages = {path for path in packages if not path.is_symlink()}
    assert len(packages) > 25
    assert [path for path in sorted(packages) if f"`{path.relative_to(ROOT)}/`" not in page] == []


def test_the_architecture_draws_the_contract() -> None:
    contracts = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["importlinter"]["contracts"]
    layers = next(contract["layers"] for contract in contracts if contract["type"] == "layers")
    picture = re.search(r"```\n(cli .*?)```", PAGES["docs/architecture.md"], re.DOTALL)
    assert picture
    assert [re.split(r"  +", line)[0] for line in picture[1].splitlines()] == layers


def test_every_exit_code_is_listed() -> None:
    page = PAGES["docs/exit-codes.md"]
    for code, words in EXIT_WORDS.items():
        assert f"| {code} | {words.split(' or ')[0]}" in page, f"{code} {words}"


def test_readme_profile_is_valid(tmp_path: Path) -> None:
    toml = re.search(r"```toml\n(.*?)```", README, re.DOTALL)
    assert toml
    (tmp_path / "mine.toml").write_text(toml[1])
    assert resolve(tmp_path / "mine.toml").profile.model.name_or_path == "Qwen/Qwen3-0.6B"


def test_the_parts_of_profiles_in_the_pages_are_valid(tmp_path: Path) -> None:
    """Each page's tables together make one profile, with the required keys where it has none."""
    required = {"run": {"stage": "sft"}, "model": {"name_or_path": "base"}, "data": {"train": "rows.jsonl"}}
    for page, text in PAGES.items():
        if page == "docs/sweep.md":  # whose table is a sweep's
            continue
        tables = tomllib.loads("\n".join(re.findall(r"```toml\n(.*?)```", text, re.DOTALL)))
        whole = {name: values | tables.get(name, {}) for name, values in required.items()}
        path = tmp_path / f"{Path(page).stem}.toml"
        path.write_text(tomlkit.dumps(tables | whole))
        if code := re.search(r"```python\n(.*?)```", text, re.DOTALL):
            (tmp_path / "rewards.py").write_text(code[1])
        resolve(path)


def test_the_sweep_in_the_pages_is_valid(tmp_path: Path) -> None:
    toml = "\n".join(re.findall(r"```toml\n(.*?)```", PAGES["docs/sweep.md"], re.DOTALL))
    (tmp_path / "lr.toml").write_text(toml.replace('"mine.toml"', '"quickstart"'))
    plan, _, _ = read_sweep(tmp_path / "lr.toml")
    assert plan.rungs == (30, 90, 270) and len(plan.space) == 3


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
    patterns = (
        "*.md",
        "docs/**/*.md",
        "profiles/**/*.toml",
        "*.toml",
        "tests/fixtures/**/*.json*",
        "tests/fixtures/**/*.toml",
    )
    for path in (path for one in patterns for path in ROOT.glob(one)):
        assert not pattern.search(path.read_text()), path


def test_the_page_on_data_is_current() -> None:
    page = (ROOT / "docs" / "data.md").read_text(encoding="utf-8")
    assert page == make_page(), (
        "docs/data.md is stale: python -m ftui.engine.inspection.report.findings_page > docs/data.md"
    )
    assert set(KINDS) == set(get_args(FindingName)), "data.allow names what the table has"
    numbers = [int(n) for text in PAGES.values() for n in re.findall(r"\b(\d+) (?:such \[)?findings\b", text)]
    assert numbers == [len(KINDS)] * 3
