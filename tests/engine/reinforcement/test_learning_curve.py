"""Stage grpo learns a task that a program judges, as fast as TRL's trainer did (tests/bench/sampling/learning.py)."""

from pathlib import Path
from statistics import mean

import pytest

from tests.bench.sampling import learning

TRL_REACHED = 0.34
"""The highest that TRL 1.16 had over steps 41 to 45, of three seeds (0.33 to 0.34; ftui 0.48 to 0.49)."""


@pytest.mark.slow
def test_the_reward_rises_as_fast_as_beside_trl(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    monkeypatch.setattr(learning, "STEPS", 45)
    model, rows = learning.make_model(tmp_path / "model"), learning.make_rows(tmp_path / "rows.jsonl")
    rewards = learning.with_ftui(tmp_path, model, rows, seed=4)
    assert mean(rewards[:5]) < 0.1, "it has something to learn"
    assert mean(rewards[-5:]) > TRL_REACHED
