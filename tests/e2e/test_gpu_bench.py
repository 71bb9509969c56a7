"""The script for a rented card, on a CPU with a tiny model: each kind of its lines measures something."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.real import ROOT


@pytest.mark.slow
def test_the_script_for_a_card_runs_on_a_cpu(tmp_path: Path) -> None:
    names = ["exact_qlora", "memory_lora", "speed_lora", "trainer_lora", "sharded_nf4", "peer_copies"]
    command = [sys.executable, "-m", "tests.bench.gpu", "--model", "tiny", "--json", str(tmp_path / "lines.json")]
    result = subprocess.run([*command, "--only", *names], cwd=ROOT, capture_output=True, text=True)
    assert result.returncode == 0, result.stderr[-4000:]
    lines = json.loads((tmp_path / "lines.json").read_text())
    assert lines["exact_qlora"]["outcome"] == "identical after SIGKILL", result.stderr[-4000:]
    assert lines["memory_lora"]["peak_bytes"] > 0 < lines["memory_lora"]["told_bytes"]
    assert lines["speed_lora"]["tokens_per_second"] > 0 < lines["trainer_lora"]["tokens_per_second"]
    assert lines["peer_copies"]["outcome"] == "2 pairs copy directly"
    sharded, whole = lines["sharded_nf4"]["outcome"].removeprefix("loss ").split(", unsharded ")
    assert float(sharded) == pytest.approx(float(whole), abs=1e-5)
    assert [line.split()[0] for line in result.stdout.splitlines()[1:]] == names
