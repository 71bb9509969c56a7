"""A file that a user names and that is a FIFO, a device or a socket is refused by every command, and never read."""

import os
import re
import signal
import socket
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from ftui.cli.main import main
from ftui.errors import FtuiError
from ftui.evaluation.lm_eval_results import read_lm_eval
from ftui.evaluation.own_measures import load_measures
from ftui.launch.evaluation_job import hash_file
from ftui.launch.prompt_file import read_prompts

PROFILE = '[run]\nstage = "sft"\n[model]\nname_or_path = "o/m"\n[data]\ntrain = "rows.jsonl"\n'
COMMANDS = {
    "import": ["import", "{named}"],
    "import, of a script": ["import", "train.sh"],
    "import, table of data sets": ["import", "factory.yaml"],
    "profile": ["run", "./{named}"],
    "preview": ["preview", "./{named}"],
    "split": ["split", "{named}", "--eval", "10%"],
    "rows": ["run", "p.toml", "--dry-run", "--set", "data.train={named}"],
    "rows, estimated": ["estimate", "p.toml", "--set", "data.train={named}"],
    "one of several": ["preview", "p.toml", "--set", 'data.train=["rows.jsonl", "{named}"]'],
    "a table's path": ["preview", "p.toml", "--set", 'data.train=[{{path="{named}"}}]'],
    "rows to evaluate on": ["preview", "p.toml", "--set", "data.eval={named}"],
    "chat template": ["run", "p.toml", "--set", "data.chat_template={named}.jinja"],
    "model": ["preview", "p.toml", "--set", "model.name_or_path={named}"],
    "adapter": ["run", "p.toml", "--set", "adapter.name_or_path={named}"],
}
KINDS = {"fifo": "a FIFO", "link": "a FIFO", "device": "a device", "empty device": "a device", "socket": "a socket"}


@pytest.fixture
def named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest) -> Iterator[Path]:
    monkeypatch.chdir(tmp_path)
    path, kind = tmp_path / "named", request.param
    os.mkfifo(tmp_path / "fifo")
    with socket.socket(socket.AF_UNIX) as listening:
        if kind == "socket":
            listening.bind("named")
        else:
            targets = {"fifo": "fifo", "link": "fifo", "device": "/dev/zero", "empty device": "/dev/null"}
            path.symlink_to(targets[kind])
        (tmp_path / "named.jinja").symlink_to(path)
        (tmp_path / "dataset_info.json").symlink_to(path)
        (tmp_path / "train.sh").write_text("#!/bin/sh\naxolotl train config.yml\n")
        (tmp_path / "config.yml").symlink_to(path)
        (tmp_path / "factory.yaml").write_text("model_name_or_path: o/m\nfinetuning_type: lora\ndataset: mine\n")
        (tmp_path / "p.toml").write_text(PROFILE)
        (tmp_path / "rows.jsonl").write_text('{"text": "a"}\n')
        signal.alarm(20)  # a FIFO that is opened waits for ever
        yield path
        signal.alarm(0)


@pytest.mark.parametrize("named", KINDS, indirect=True)
@pytest.mark.parametrize("command", COMMANDS.values(), ids=COMMANDS)
def test_what_is_no_regular_file_is_refused(
    command: list[str], named: Path, request: pytest.FixtureRequest, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main([word.format(named=named.name) for word in command]) in (2, 30)
    words = f"{KINDS[request.node.callspec.params['named']]}, not a regular file"
    assert words in " ".join(capsys.readouterr().err.split())


@pytest.mark.parametrize("named", KINDS, indirect=True)
@pytest.mark.parametrize("read", [read_prompts, load_measures, read_lm_eval, hash_file])
def test_so_are_those_that_are_named_after_training(
    read: Callable[[Path], object], named: Path, request: pytest.FixtureRequest
) -> None:
    with pytest.raises(FtuiError) as refused:
        read(named)
    assert f"{KINDS[request.node.callspec.params['named']]}, not a regular file" in refused.value.message


COUNTS_ROWS = (["run", "--dry-run"], ["preview"], ["estimate"], ["estimate", "--quick"], ["estimate", "--probe"])


@pytest.mark.parametrize("command", COUNTS_ROWS, ids=" ".join)
@pytest.mark.parametrize(
    ("override", "missing"),
    [
        ("data.train=none_here.jsonl", "none_here.jsonl"),
        ('data.train=["rows.jsonl", "./no_folder"]', "no_folder"),
        ("data.eval=gone/eval.csv", "eval.csv"),
        ("model.name_or_path=./base", "base"),
    ],
)
def test_every_command_refuses_what_is_missing_in_the_same_words(
    command: list[str], override: str, missing: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "p.toml").write_text(PROFILE)
    (tmp_path / "rows.jsonl").write_text('{"text": "a"}\n')
    assert main([command[0], str(tmp_path / "p.toml"), *command[1:], "--set", override]) == 30
    error = capsys.readouterr().err
    assert f": {override.partition('=')[0]}" in error and re.search(f"there is no (file or )?folder {missing}", error)
