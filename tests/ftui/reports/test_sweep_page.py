"""The page of a sweep: all of it is there, and no foreign text is markup."""

from pathlib import Path

import pytest

from ftui.cli.main import main
from ftui.runs.run_folder import runs_root
from tests.support.played_sweep import PLAN, make_sweep, play


def test_a_sweep_as_a_page(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.chdir(tmp_path)
    files = make_sweep(runs_root(), PLAN + "[repeat]\ntop = 2\nseeds = 2\n", "lr")
    play(files, runs=True)
    assert main(["sweep", "report", "lr"]) == 0
    text = Path("lr.html").read_text()
    assert text.count("<svg") == 1 and "<script" not in text
    for words in ("all 8 trials are done", "Rungs", "last to go on", "Too few trials to tell", "over 2 seeds", "again"):
        assert words in text
    assert all(text.count(f"lr-{number:03d}") >= 1 for number in range(8))
    assert main(["sweep", "report", "lr"]) == 2, "it overwrites nothing"
    assert "lr.html exists" in capsys.readouterr().err
