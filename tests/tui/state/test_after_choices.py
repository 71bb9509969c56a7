"""The menu works on the run that it was opened for."""

import shutil
from pathlib import Path
from typing import Any

import pytest

from ftui.helper.client import Helper
from ftui.runs.checkpoint_folders import Manifest, publish
from ftui.runs.run_folder import Run, find_run
from ftui.system.user_folders import note_root
from ftui.tui.state.after_choices import Weights, choices_for
from tests.support.replayed import replay


class Heard(Exception):
    """What was asked of a process."""


class Listener(Helper):
    def ask(self, method: str, **params: Any) -> Any:
        raise Heard(method, params)


def trained(root: Path) -> Run:
    run = replay("full-parked", root)
    shutil.rmtree(run.checkpoints)
    run.profile.write_text(run.profile.read_text().replace('method = "full"', 'method = "lora"'))
    manifest = Manifest(
        run_id=run.read_facts().run_id, attempt=1, token="", step=150, versions={}, fingerprints={}, dtypes={},
        finite=True, created=0.0,
    )  # fmt: skip
    for folder in (run.checkpoints / "checkpoint-150", run.exports / "final-bf16"):
        publish(folder, manifest, lambda folder: {"weights": lambda: (b"x",)})
    return run


def test_a_run_of_the_same_name_elsewhere_is_not_touched(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FTUI_RUNS", str(tmp_path / "first"))
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    first, second = (trained(tmp_path / root) for root in ("first", "second"))
    note_root(tmp_path / "second")
    assert find_run(second.name) == first
    data = tmp_path / "rows.jsonl"
    data.write_text("{}\n")
    texts, methods = {"evaluate": str(data), "push": "hub:me/mine"}, set()
    for choice in choices_for(Weights(second, "checkpoint-150")):
        if choice.name in ("merge into original", "evaluate against base"):
            continue  # of a quantised run; of one with a base
        job = choice.plan(Weights(second, "checkpoint-150"), texts.get(choice.what, ""))
        with pytest.raises(Heard) as heard:
            job.run(Listener(), lambda detail: None)
        method, params = heard.value.args
        assert str(second.folder) in repr(params) and str(first.folder) not in repr(params), choice.name
        methods.add(method)
    assert methods == {"evaluate_model", "merge", "export_gguf", "push"}
