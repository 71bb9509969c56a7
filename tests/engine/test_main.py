"""The engine's process: what it says where a file was moved between two attempts of the same supervisor."""

from pathlib import Path

import pytest

from ftui.engine.__main__ import run_engine
from ftui.engine.runtime.control_flags import Control
from ftui.engine.runtime.event_writer import EventWriter
from ftui.errors import ProfileError
from ftui.profile.serialize import to_toml
from ftui.runs.events import RunFailed
from ftui.runs.run_folder import Run
from tests.support.attempts import records
from tests.support.tiny import make_profile


@pytest.mark.parametrize("key", ["data.train", "data.eval", "model.name_or_path"])
def test_a_file_that_was_moved_between_attempts_is_told_with_the_command(key: str, tmp_path: Path) -> None:
    run = Run(tmp_path / "mine")
    run.folder.mkdir()
    places = {"data.train": "rows.jsonl", "data.eval": "held_out.jsonl", "model.name_or_path": "base"}
    (tmp_path / "base").mkdir()
    (tmp_path / "held_out.jsonl").touch()
    (tmp_path / "rows.jsonl").touch()
    profile = make_profile(tmp_path / "base", tmp_path / "rows.jsonl", data={"eval": str(tmp_path / "held_out.jsonl")})
    run.profile.write_text(to_toml(profile))
    (tmp_path / places[key]).rename(tmp_path / "moved")
    code = run_engine(run, EventWriter(run, attempt=2, token="t"), Control())
    (failed,) = records(run, RunFailed)
    assert isinstance(failed, RunFailed) and code == failed.exit_code == ProfileError.exit_code
    assert f"ftui resume mine --set {key}=PLACE/{places[key]}" in failed.hint
