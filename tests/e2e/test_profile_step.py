"""`ftui profile` as people run it, with the real helper."""

import json

import pytest

from ftui.errors import DataError
from tests.support.bench import Workbench


def test_a_step_as_a_table_and_as_json(workbench: Workbench) -> None:
    profile = str(workbench.profile("mine"))
    table = workbench.ftui("profile", profile, "--steps", "2", "--trace", "trace.json")
    assert table.returncode == 0, table.stderr
    lines = table.stdout.splitlines()
    assert lines[0].startswith("mine: a mean step of 2 on ") and max(map(len, lines)) <= 80
    for title in ("matrix products", "optimizer", "waiting for rows", "Python between", "all"):
        assert any(line.startswith(f"{title} ") for line in lines), title
    assert json.loads((workbench.folder / "trace.json").read_bytes())["traceEvents"]

    told = workbench.ftui("profile", profile, "--steps", "1", "--json", "--set", "adapter.r=2")
    assert told.returncode == 0, told.stderr
    answer = json.loads(told.stdout)
    step = answer["step"]
    assert sum(share["seconds"] for share in step["shares"]) == pytest.approx(step["profiled_seconds"])
    assert 0 < answer["floors"]["products"] < step["profiled_seconds"] and answer["model_operations"] > 0
    assert not workbench.run("mine").folder.exists(), "nothing was opened"


def test_what_is_refused(workbench: Workbench) -> None:
    profile = str(workbench.profile("mine"))
    (workbench.folder / "there.json").touch()
    for more, words in (
        (("--steps", "0"), "--steps 3"),
        (("--trace", "there.json"), "There is a file there.json already"),
        (("--trace", "nowhere/trace.json"), "There is no folder"),
    ):
        refused = workbench.ftui("profile", profile, *more)
        assert refused.returncode == 2 and words in refused.stderr, more
    trusting = workbench.ftui("profile", profile, "--set", "model.trust_remote_code=true")
    assert trusting.returncode == 30 and "--allow remote-code" in trusting.stderr
    (workbench.folder / "rows.jsonl").write_text('{"text": 5}\n')
    wrong = workbench.ftui("profile", profile)
    assert wrong.returncode == DataError.exit_code and "rows.jsonl:1" in wrong.stderr
