"""Will systemd-logind kill a detached run when its user logs out? Told from files alone, before the run is started."""

import os
import pwd
import re
from pathlib import Path

# Of two drop-ins with one name, the one in the first of these folders counts.
_PLACES = ("etc/systemd", "run/systemd", "usr/local/lib/systemd", "usr/lib/systemd")
_YES = frozenset({"1", "yes", "y", "true", "t", "on"})
_NO = frozenset({"0", "no", "n", "false", "f", "off"})
_SESSION = re.compile(r"/session-[^/\s]+\.scope(?:/|$)", re.MULTILINE)
_MANAGER = re.compile(r"/user@\d+\.service(?:/|$)", re.MULTILINE)


def kills_on_logout(root: Path = Path("/"), user: str | None = None, cgroup: str | None = None) -> str | None:
    """A sentence for the user when a logout would end the processes started here; `None` when it would not.

    Lingering alone saves nothing that runs inside the session's own scope: systemd kills that scope all the same. It
    saves what runs under the user's manager, where `systemd-run --user --scope` puts it.
    `user` is whoever runs this and `cgroup` the text of /proc/self/cgroup unless given.
    """
    user = _own_name() if user is None else user
    cgroup = _text(root / "proc/self/cgroup") if cgroup is None else cgroup
    if not (root / "run/systemd/system").is_dir():
        return None
    lingers = (root / "var/lib/systemd/linger" / user).exists()
    linger = "" if lingers else f"`loginctl enable-linger {user}`, then "
    if _SESSION.search(cgroup) and _kills(root, user):
        return (
            "systemd ends everything you started when you log out of this machine (KillUserProcesses=yes), runs too. "
            f"To keep them: {linger}`systemd-run --user --scope ftui ...`."
        )
    if _MANAGER.search(cgroup) and not lingers:
        return (
            "systemd ends everything that runs under your user manager, as this does, after your last logout. "
            f"To keep runs: `loginctl enable-linger {user}`."
        )
    return None


def _own_name() -> str:
    try:
        return pwd.getpwuid(os.getuid()).pw_name
    except KeyError:  # usual in containers
        return str(os.getuid())


def _kills(root: Path, user: str) -> bool:
    """Whether the settings in force, read in systemd's order, say that this user's processes die with the session."""
    kill, only, spared = False, list[str](), ["root"]
    for path in _in_order(root):
        for key, value in _settings(_text(path)):
            if key == "KillUserProcesses" and value.lower() in _YES | _NO:
                kill = value.lower() in _YES
            elif key == "KillOnlyUsers":
                only = only + value.split() if value else []
            elif key == "KillExcludeUsers":
                spared = spared + value.split() if value else []
    return kill and user not in spared and (not only or user in only)


def _in_order(root: Path) -> list[Path]:
    """The main file, then the drop-ins by name wherever they lie; what comes later counts."""
    mains = [path for place in _PLACES if (path := root / place / "logind.conf").exists()]
    drop_ins = {
        path.name: path for place in reversed(_PLACES) for path in (root / place / "logind.conf.d").glob("*.conf")
    }
    return mains[:1] + [drop_ins[name] for name in sorted(drop_ins)]


def _settings(text: str) -> list[tuple[str, str]]:
    """The assignments under [Login]."""
    assignments, section = list[tuple[str, str]](), ""
    for line in map(str.strip, text.splitlines()):
        if line.startswith("["):
            section = line
        elif section == "[Login]" and "=" in line and line[0] not in "#;":
            key, _, value = line.partition("=")
            assignments.append((key.strip(), value.strip()))
    return assignments


def _text(path: Path) -> str:
    try:
        return path.read_text(errors="replace")
    except OSError:
        return ""
