"""nodes.json: where node 0 listens, and a secret that no other user may read."""

import stat
from pathlib import Path

import pytest

from ftui.errors import UsageError
from ftui.runs.run_folder import Run
from ftui.supervisor.nodes import announcement
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
    assert read_announcement(run.nodes) is None
    first = announce(run.nodes, "10.0.0.1", 4711, 2, new_secret())
    assert stat.S_IMODE(run.nodes.stat().st_mode) == 0o600 and len(first.secret) == 64
    assert read_announcement(run.nodes) == first
    again = announce(run.nodes, "10.0.0.1", 4712, 2, new_secret())
    assert again.secret != first.secret and again.nonce != first.nonce
    monkeypatch.setenv("FTUI_NODE_SECRET", "from every node's environment")
    assert new_secret() == "from every node's environment"
    for _ in range(2):
        forget_announcement(run)
        assert read_announcement(run.nodes) is None


def test_a_secret_that_others_may_read_is_refused(tmp_path: Path) -> None:
    run = Run(tmp_path)
    announce(run.nodes, "10.0.0.1", 4711, 2, "s" * 20)
    run.nodes.chmod(0o644)
    with pytest.raises(UsageError, match="others may read it"):
        read_announcement(run.nodes)


def test_a_damaged_announcement_is_none(tmp_path: Path) -> None:
    run = Run(tmp_path)
    run.nodes.write_text("{")
    run.nodes.chmod(0o600)
    assert read_announcement(run.nodes) is None


def test_a_short_secret_is_none(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FTUI_NODE_SECRET", "1234")
    with pytest.raises(UsageError, match="4 characters"):
        secret_in_environment()


def test_on_a_volume_without_modes_the_secret_is_in_the_environment_only(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Everything there is open to all, whatever chmod says (FAT, many shares)."""
    run = Run(tmp_path)
    monkeypatch.setattr(announcement, "is_open_to_others", lambda file: True)
    monkeypatch.delenv("FTUI_NODE_SECRET", raising=False)
    with pytest.raises(UsageError, match="keeps no file modes") as refused:
        announce(run.nodes, "10.0.0.1", 4711, 2, new_secret())
    assert "export FTUI_NODE_SECRET=" in refused.value.hint and not list(tmp_path.iterdir())
    monkeypatch.setenv("FTUI_NODE_SECRET", "s" * 20)  # the hint is obeyed
    made = announce(run.nodes, "10.0.0.1", 4711, 2, new_secret())
    seen = read_announcement(run.nodes)
    assert made.secret == "s" * 20 and seen is not None
    assert (seen.secret, seen.nonce) == ("", made.nonce) and b"sss" not in run.nodes.read_bytes()
