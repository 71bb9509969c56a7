"""What node 0 and the keepers of the other nodes say to each other. The first words are read before it is known who
speaks: they hold no more than the proof that both know the secret."""

import msgspec

from ftui.runs.records.signs_of_life import Telemetry


class Message(msgspec.Struct, frozen=True, tag=True):
    """Anything that is said."""


class Hello(Message, frozen=True):
    """A keeper has connected: which node it keeps, with which versions, and what it holds of the run.

    `nonce`: what stands in the announcement it sees, the proof that both see one folder; with `own_folder` it sees
    none, and works in a folder of its own. `token`: the attempt whose ranks it still runs. `keeper` is another one each
    time a keeper is started.
    """

    node: int
    num_nodes: int
    host: str
    keeper: str
    versions: dict[str, str]
    nonce: str = ""
    token: str = ""
    own_folder: bool = False


class Welcome(Message, frozen=True):
    """Node 0 takes the keeper in."""

    run_id: str
    name: str


class Refused(Message, frozen=True):
    """Node 0 does not; or it cannot go on with it."""

    message: str
    hint: str
    exit_code: int


class StartRanks(Message, frozen=True):
    """Start ranks `first` to `first + number - 1` of `size`, which meet at `address`, `port`.

    `profile` is the content of the run's profile.toml, for a keeper with a folder of its own.
    """

    attempt: int
    token: str
    first: int
    number: int
    size: int
    address: str
    port: int
    profile: str = ""


class KillRanks(Message, frozen=True):
    """End the ranks of that attempt at once: it is over."""

    token: str


class RanksEnded(Message, frozen=True):
    """All ranks of a node have ended, with these codes (negative: a signal), and what they printed last."""

    token: str
    codes: list[int]
    last_lines: list[str]


class Terminate(Message, frozen=True):
    """A keeper was sent SIGTERM: the run is to save and end."""


class RunOver(Message, frozen=True):
    """The run has ended for good with this code: the keepers end with it."""

    exit_code: int


class NodeBeat(Message, frozen=True):
    """A sign of life; a keeper's has a sample of its machine."""

    sample: Telemetry | None = None


AnyMessage = (
    Hello | Welcome | Refused | StartRanks | KillRanks | RanksEnded | Terminate | RunOver | NodeBeat
)  # fmt: skip
