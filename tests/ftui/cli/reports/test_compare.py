"""`ftui compare` as it is typed."""

import json
from typing import Any

import pytest

from ftui.cli.main import main
from ftui.runs.run_folder import runs_root
from ftui.text import cells
from tests.support.replayed import replay


def test_text_and_json_say_the_same(capsys: pytest.CaptureFixture[str]) -> None:
    for name in ("wiki-style-finished", "stopped-early"):
        replay(name, runs_root())
    assert main(["compare", "wiki-style-finished", "stopped-early"]) == 0
    text = capsys.readouterr().out
    assert main(["compare", "wiki-style-finished", "stopped-early", "--json"]) == 0
    comparison: dict[str, Any] = json.loads(capsys.readouterr().out)
    assert comparison["runs"] == ["wiki-style-finished", "stopped-early"]
    for line in [*comparison["results"], *comparison["differences"]["profile"]]:
        assert line["name"] in text and all(value in text for value in line["values"])
    assert "train.per_device_train_batch_size" in text and "train.learning_rate" not in text


def test_many_runs_fit_into_80_columns(capsys: pytest.CaptureFixture[str]) -> None:
    names = ["wiki-style-finished", "stopped-early", "exploded", "killed-by-host", "full-parked", "wiki-style-lora"]
    for name in names:
        replay(name, runs_root())
    assert main(["compare", *names]) == 0
    output = capsys.readouterr().out
    assert max(map(cells, output.splitlines())) <= 80
    assert all(f"    {name}" in output for name in names)


@pytest.mark.parametrize("names", [["mine"], ["mine", "mine"], ["mine", "nobody"], [f"r{n}" for n in range(7)]])
def test_what_cannot_be_compared_is_refused(
    names: list[str], make_run: Any, capsys: pytest.CaptureFixture[str]
) -> None:
    make_run("mine")
    assert main(["compare", *names]) == 2
    assert "hint: " in capsys.readouterr().err
