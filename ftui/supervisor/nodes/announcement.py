"""Where node 0 of a run listens, and the run's secret: nodes.json in the run's folder, for those who share it.

That two nodes share the folder is proved by the `nonce` in it, which is another one each time node 0 begins to listen.
"""

import contextlib
import os
import secrets
import stat
import tempfile
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

import msgspec

from ftui import __version__
from ftui.errors import UsageError
from ftui.runs.run_folder import Run
from ftui.supervisor.engine_process import SECRET_VARIABLE
from ftui.system.files import DAMAGED, read_json, replace_file

FEWEST_CHARACTERS = 16


class Announcement(msgspec.Struct, frozen=True):
    """The contents of nodes.json. `address` and `port` are those of node 0; no `secret` where others could read it."""

    address: str
    port: int
    num_nodes: int
    nonce: str
    secret: str


def refusal_file(run: Run) -> Path:
    """Where node 0 announces itself while it tells the others that it refuses the run, whose folder need not exist."""
    return run.folder.with_name(f".{run.name}-{run.nodes.name}")


def announce(file: Path, address: str, port: int, num_nodes: int, secret: str) -> Announcement:
    """Write an announcement (0600, by rename: no reader sees half of it); returns it with the secret.

    On a volume that keeps no modes the secret is not in it, since everybody could read it there.

    Raises:
        UsageError: it is such a volume, and the environment has no secret.
    """
    announcement = Announcement(address, port, num_nodes, secrets.token_hex(16), secret)
    written = announcement
    with tempfile.NamedTemporaryFile(dir=file.parent, prefix=".mode-") as probe:
        if is_open_to_others(Path(probe.name)):
            written = msgspec.structs.replace(announcement, secret="")
    if not written.secret and not secret_in_environment():
        raise UsageError(
            f"{file.parent} is on a volume that keeps no file modes: others could read the secret of the nodes there.",
            hint=f"export {SECRET_VARIABLE}=$(openssl rand -hex 32), the same on every node.",
        )
    replace_file(file, msgspec.json.encode(written), durable=True)
    return announcement


def read_announcement(file: Path) -> Announcement | None:
    """What is announced in a file; `None` where there is none.

    Raises:
        UsageError: others may read the secret in it.
    """
    try:
        announcement = read_json(file, Announcement)
        if announcement.secret and is_open_to_others(file):
            raise UsageError(
                f"{file} holds the secret of this run's nodes, and others may read it.", hint=f"chmod 600 {file}"
            )
        return announcement
    except (OSError, *DAMAGED):
        return None


def is_open_to_others(file: Path) -> bool:
    """Whether more than its owner may read it, by its mode."""
    return bool(stat.S_IMODE(file.lstat().st_mode) & 0o077)


def secret_in_environment() -> str:
    """The secret that somebody has put into the environment of every node; "" where nobody has.

    Raises:
        UsageError: it is too short to be one.
    """
    secret = os.environ.get(SECRET_VARIABLE, "")
    if secret and len(secret) < FEWEST_CHARACTERS:
        raise UsageError(
            f"{SECRET_VARIABLE} has {len(secret)} characters, and needs {FEWEST_CHARACTERS}.",
            hint=f"export {SECRET_VARIABLE}=$(openssl rand -hex 32), the same on every node.",
        )
    return secret


def new_secret() -> str:
    """The secret for the next announcement: that of the environment, else another one each time."""
    return secret_in_environment() or secrets.token_hex(32)


def forget_announcement(run: Run) -> None:
    """Node 0 listens no more."""
    with contextlib.suppress(OSError):  # a volume that takes no changes: whoever reads it finds nobody there
        run.nodes.unlink(missing_ok=True)


def node_versions() -> dict[str, str]:
    """What must be the same on all nodes; torch is not loaded for it."""
    try:
        torch = version("torch")
    except PackageNotFoundError:
        torch = "none"
    return {"ftui": __version__, "torch": torch}
