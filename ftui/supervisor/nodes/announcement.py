"""Where node 0 of a run listens, and the run's secret: nodes.json in the run's folder, for those who share it.

That two nodes share the folder is proved by the `nonce` in it, which is another one each time node 0 begins to listen.
"""

import contextlib
import os
import secrets
import stat
from importlib.metadata import PackageNotFoundError, version

import msgspec

from ftui import __version__
from ftui.errors import UsageError
from ftui.runs.run_folder import Run
from ftui.supervisor.engine_process import SECRET_VARIABLE
from ftui.system.files import DAMAGED, read_json, replace_file

FEWEST_CHARACTERS = 16


class Announcement(msgspec.Struct, frozen=True):
    """The contents of nodes.json. `address` and `port` are those of node 0."""

    address: str
    port: int
    num_nodes: int
    nonce: str
    secret: str


def announce(run: Run, address: str, port: int, num_nodes: int, secret: str) -> Announcement:
    """Write nodes.json (0600, by rename: no reader sees half of it)."""
    announcement = Announcement(address, port, num_nodes, secrets.token_hex(16), secret)
    replace_file(run.nodes, msgspec.json.encode(announcement), durable=True)
    return announcement


def read_announcement(run: Run) -> Announcement | None:
    """What is announced in the run's folder; `None` where there is none.

    Raises:
        UsageError: others may read the secret in it.
    """
    try:
        mode = os.stat(run.nodes, follow_symlinks=False).st_mode
        if stat.S_IMODE(mode) & 0o077:
            raise UsageError(
                f"{run.nodes} holds the secret of this run's nodes, and others may read it.",
                hint=f"chmod 600 {run.nodes}",
            )
        return read_json(run.nodes, Announcement)
    except (OSError, *DAMAGED):
        return None


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
