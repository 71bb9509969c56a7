"""What is refused when a run is added, before the training libraries are asked anything."""

import sys
from pathlib import Path

import pytest

from ftui.errors import FtuiError
from ftui.helper.client import Helper
from ftui.profile.layers import resolve
from ftui.queue.add_run import find_candidate
from ftui.runs.run_folder import runs_root
from tests.support.stand_in_queue import driver


@pytest.mark.parametrize(
    ("overrides", "words"),
    [
        (["hardware.num_processes=3"], "hardware.num_processes = 3: this machine has 2 GPUs"),
        (["hardware.num_processes=2", "hardware.nodes=2"], "hardware.nodes = 2: a queue has the cards of one machine"),
        (["data.train=gone.jsonl"], "gone.jsonl"),
        (["push.to='command:true {folder}'"], "push.to would run a command"),
    ],
)
def test_what_could_never_start_is_refused_and_leaves_nothing(
    overrides: list[str], words: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "pynvml", driver())
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    path = tmp_path / "p.toml"
    path.write_text('[run]\nstage = "sft"\n[model]\nname_or_path = "hub/model"\n[data]\ntrain = "rows.jsonl"\n')
    path.with_name("rows.jsonl").touch()
    with pytest.raises(FtuiError) as caught:
        find_candidate(Helper(), runs_root() / "mine", resolve(path, overrides=overrides))
    assert words in caught.value.message and not (runs_root() / "mine").exists()
