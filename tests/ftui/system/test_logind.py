from pathlib import Path

import pytest

from ftui.system.logind import kills_on_logout

SESSION = "0::/user.slice/user-1000.slice/session-3.scope\n"
OLD_SESSION = "12:pids:/user.slice\n1:name=systemd:/user.slice/user-1000.slice/session-c2.scope\n"
MANAGER = "0::/user.slice/user-1000.slice/user@1000.service/app.slice/run-r1.scope\n"
SERVICE = "0::/system.slice/ssh.service\n"
KILLS = "[Login]\nKillUserProcesses=yes\n"


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """A machine with systemd and nothing set."""
    (tmp_path / "run/systemd/system").mkdir(parents=True)
    return tmp_path


def put(root: Path, name: str, text: str) -> None:
    path = root / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)


def warns(root: Path, cgroup: str = SESSION, user: str = "ann") -> bool:
    return kills_on_logout(root, user, cgroup) is not None


def test_the_sentence_says_what_to_do(root: Path) -> None:
    put(root, "etc/systemd/logind.conf", KILLS)
    sentence = kills_on_logout(root, "ann", SESSION)
    assert sentence is not None
    assert "`loginctl enable-linger ann`, then `systemd-run --user --scope ftui ...`" in sentence
    assert warns(root, OLD_SESSION)


@pytest.mark.parametrize("cgroup", [SERVICE, "", "0::/user.slice/user-1000.slice/session-3.scoped\n"])
def test_only_a_session_is_ended(cgroup: str, root: Path) -> None:
    put(root, "etc/systemd/logind.conf", KILLS)
    assert not warns(root, cgroup)


def test_without_systemd_there_is_nothing_to_fear(tmp_path: Path) -> None:
    put(tmp_path, "etc/systemd/logind.conf", KILLS)
    assert not warns(tmp_path)


def test_lingering_saves_what_runs_under_the_manager_and_not_the_session(root: Path) -> None:
    put(root, "etc/systemd/logind.conf", KILLS)
    assert warns(root, MANAGER)
    put(root, "var/lib/systemd/linger/ann", "")
    assert not warns(root, MANAGER)
    sentence = kills_on_logout(root, "ann", SESSION)
    assert sentence is not None
    assert "enable-linger" not in sentence
    assert "systemd-run --user --scope" in sentence


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("", False),
        ("[Login]\n#KillUserProcesses=yes\n", False),
        ("[Login]\n;KillUserProcesses=yes\n", False),
        ("[Sleep]\nKillUserProcesses=yes\n", False),
        ("[Login]\n KillUserProcesses = On \n", True),
        ("[Login]\nKillUserProcesses=yes\nKillUserProcesses=0\n", False),
        ("[Login]\nKillUserProcesses=yes\nKillUserProcesses=maybe\n", True),
        (KILLS + "KillExcludeUsers=ann bob\n", False),
        (KILLS + "KillExcludeUsers=ann\nKillExcludeUsers=\n", True),
        (KILLS + "KillOnlyUsers=bob\n", False),
        (KILLS + "KillOnlyUsers=bob ann\n", True),
        (KILLS + "KillOnlyUsers=ann\nKillExcludeUsers=ann\n", False),
    ],
)
def test_settings_are_read_as_systemd_reads_them(text: str, expected: bool, root: Path) -> None:
    put(root, "etc/systemd/logind.conf", text)
    assert warns(root) is expected


def test_root_is_spared_unless_somebody_says_otherwise(root: Path) -> None:
    put(root, "etc/systemd/logind.conf", KILLS)
    assert not warns(root, user="root")
    put(root, "etc/systemd/logind.conf.d/all.conf", "[Login]\nKillExcludeUsers=\n")
    assert warns(root, user="root")


def test_drop_ins_count_over_the_main_file_and_by_name(root: Path) -> None:
    put(root, "etc/systemd/logind.conf", "[Login]\nKillUserProcesses=no\n")
    put(root, "usr/lib/systemd/logind.conf", KILLS)
    assert not warns(root), "only one main file counts"
    put(root, "usr/lib/systemd/logind.conf.d/50-site.conf", KILLS)
    assert warns(root)
    put(root, "run/systemd/logind.conf.d/60-later.conf", "[Login]\nKillUserProcesses=no\n")
    assert not warns(root), "the last name counts, wherever it lies"
    put(root, "etc/systemd/logind.conf.d/10-early.conf", KILLS)
    assert not warns(root)
    put(root, "etc/systemd/logind.conf.d/60-later.conf", "")
    assert warns(root), "an empty file in etc masks the one of that name"


def test_the_process_itself_is_asked(root: Path) -> None:
    put(root, "etc/systemd/logind.conf", KILLS + "KillExcludeUsers=\n")
    assert kills_on_logout(root) is None
    put(root, "proc/self/cgroup", SESSION)
    assert kills_on_logout(root) is not None
