"""nodes.json: where node 0 listens, and a secret that no other user may read."""

import stat
from pathlib import Path

import pytest

from ftui.errors import UsageError
from ftui.runs.run_folder import Run
from ftui.supervisor.nodes.announcement import (
    announce,
    forget_announcement,
    new_secret,
    read_announcement,
    secret_in_environment,
)


def test_the_secret_is_private_and_another_one_each_time(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A folder that came from somebody else has a secret that somebody else knows."""
    monkeypatch.delenv("FTUI_NODE_SECRET", raising=False)
    run = Run(tmp_path)
    assert read_announcement(run) is None
    first = announce(run, "10.0.0.1", 4711, 2, new_secret())
    assert stat.S_IMODE(run.nodes.stat().st_mode) == 0o600 and len(first.secret) == 64
    assert read_announcement(run) == first
    again = announce(run, "10.0.0.1", 4712, 2, new_secret())
    assert again.secret != first.secret and again.nonce != first.nonce
    monkeypatch.setenv("FTUI_NODE_SECRET", "from every node's environment")
    assert new_secret() == "from every node's environment"
    for _ in range(2):
        forget_announcement(run)
        assert read_announcement(run) is None


def test_a_secret_that_others_may_read_is_refused(tmp_path: Path) -> None:
    run = Run(tmp_path)
    announce(run, "10.0.0.1", 4711, 2, "s" * 20)
    run.nodes.chmod(0o644)
    with pytest.raises(UsageError, match="others may read it"):
        read_announcement(run)


def test_a_damaged_announcement_is_none(tmp_path: Path) -> None:
    run = Run(tmp_path)
    run.nodes.write_text("{")
    run.nodes.chmod(0o600)
    assert read_announcement(run) is None


def test_a_short_secret_is_none(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FTUI_NODE_SECRET", "1234")
    with pytest.raises(UsageError, match="4 characters"):
        secret_in_environment()
