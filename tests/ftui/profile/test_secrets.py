"""A profile is copied into its run: a secret in it is refused, by key and line, and shown nowhere."""

import json
from pathlib import Path

import pytest

from ftui.cli import main
from ftui.profile.layers import examine, file_layer, override_layer, text_layer
from ftui.runs.run_folder import runs_root

HUB = "hf_" + "aB3" * 11
HEX = "0123456789abcdef0123456789abcdef01234567"
START = '[run]\nstage = "sft"\n[model]\nname_or_path = "gpt2"\n[data]\n'
VALUES: dict[str, tuple[str, str, str]] = {
    "an address with a password": ("data.train", f'"https://ann:{HUB}@host/x.jsonl"', HUB),
    "an address with a name only": ("data.train", '"https://secretname@host/x.jsonl"', "secretname"),
    "an address with a token": ("data.train", '"https://host/x.jsonl?token=abc123"', "abc123"),
    "in a list": ("data.train", f'["a.jsonl", "https://host/x?access_token={HEX}"]', HEX),
    "in a table in a list": ("data.train", f'[{{ path = "s3://me:{HEX}@bucket/x" }}]', HEX),
    "as a path": ("data.train", f'"/data/{HUB}/x.jsonl"', HUB),
    "as a hub id": ("model.name_or_path", f'"org/{HUB}"', HUB),
    "as a revision": ("model.revision", f'"{HUB}"', HUB),
    "as a name": ("run.name", '"sk-proj-0123456789abcdefghij"', "0123456789abcdefghij"),
    "of another type": ("train.learning_rate", '"sk-0123456789abcdefghijklmn"', "0123456789abcdefghijklmn"),
    "in names of columns": ("data.columns", f'{{ prompt = "{HUB}" }}', HUB),
    "as the name of a column": ("data.columns", f'{{ {HUB} = "prompt" }}', HUB),
    "of a key that there is not": ("train.hub_token", f'"{HUB}"', HUB),
    "in the environment": ("run.name", f'"{HEX}"', HEX),
    "a prompt": ("eval.sample_prompts", f'["Use ghp_{HEX}"]', HEX),
}


@pytest.fixture(autouse=True)
def variable(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("WANDB_API_KEY", HEX)


def text_of(key: str, value: str) -> str:
    """A profile with the value at that key, in a table of its own where it stands in none."""
    section, name = key.split(".")
    lines = START.replace(f'{name} = "gpt2"\n', "").replace(f"[{section}]\n", f"[{section}]\n{name} = {value}\n")
    lines += "" if key == "data.train" else 'train = "org/rows"\n'
    return lines if f"{name} = {value}" in lines else f"{lines}[{section}]\n{name} = {value}\n"


@pytest.mark.parametrize("what", VALUES)
@pytest.mark.parametrize("by_option", [False, True])
def test_it_is_refused_and_shown_nowhere(what: str, by_option: bool, tmp_path: Path) -> None:
    key, value, secret = VALUES[what]
    path = tmp_path / "p.toml"
    path.write_text(text_of("data.train", '"org/rows"') if by_option else text_of(key, value))
    found = examine([file_layer(path), override_layer([f"{key}={value}"] if by_option else [])], path)
    assert found.profile is None
    (problem,) = (one for one in found.problems if "copied into its run" in one.message)
    assert ".".join(problem.key).startswith(key) or what == "as the name of a column"
    assert "HF_TOKEN" in problem.fix and "WANDB_API_KEY" in problem.fix
    assert secret not in repr(found)


@pytest.mark.parametrize("what", VALUES)
def test_no_command_prints_it_or_begins_a_run(what: str, tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    key, value, secret = VALUES[what]
    path = tmp_path / "p.toml"
    path.write_text(text_of(key, value))
    for arguments in (["run", str(path)], ["run", str(path), "--dry-run"], ["estimate", str(path)]):
        assert main.main(arguments) == 30
        said = "".join(capfd.readouterr())
        assert "copied into its run" in said and secret not in said
    assert not runs_root().exists() or not list(runs_root().iterdir())


@pytest.mark.parametrize("line", [f'train = "{HUB}', f"train = {HUB}", f'"{HUB}" = ', f"[data]\n[{HUB}"])
def test_a_text_that_is_no_toml_is_quoted_without_it(
    line: str, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "p.toml").write_text(f"{START}{line}\n")
    assert main.main(["run", str(tmp_path / "p.toml")]) == 30
    assert HUB not in "".join(capfd.readouterr())


def test_honest_values_are_none(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TOKENIZERS_PARALLELISM", "/data/rows")
    rows = json.dumps(["/data/rows", "org/hf_transfer", "task-2-long-name-of-rows.jsonl", "s3-export@2026-01-01.jsonl"])
    text = START + f'train = {rows}\n[eval]\nsample_prompts = ["What is http://host/?page=2#a@b for?"]\n'
    found = examine([text_layer(text, tmp_path / "p.toml")], tmp_path / "p.toml")
    assert found.problems == ()
