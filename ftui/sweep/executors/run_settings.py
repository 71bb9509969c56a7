"""`[run]` of a sweep.toml: where its trials run, and what each of them asks of a cluster's scheduler."""

import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from ftui.errors import UsageError
from ftui.hardware.detect import Machine
from ftui.hardware.devices import Card, find_card
from ftui.launch.claim_cards import device_kind
from ftui.profile.schema import Profile
from ftui.queue.waiting_runs import Kind

if TYPE_CHECKING:
    from ftui.sweep.sweep_plan import PlanReader

EXECUTORS = ("local", "slurm", "ray")
RUN_KEYS = (
    "executor", "card", "gpus", "cpus", "memory_gb", "time", "partition", "account", "lines", "address",
)  # fmt: skip
WORD = re.compile(r"[\w.,:@/+-]+")
TIME = re.compile(r"(\d+-)?\d{1,3}(:\d\d){0,2}")
ADDRESS = re.compile(r"(?P<host>[\w.-]+|\[[\w:.%]+\]):(?P<port>[1-9]\d{0,4})", re.ASCII)


@dataclass(frozen=True)
class RunSettings:
    """What each trial asks for. Keys of another executor than the sweep's are left out of account.

    Attributes:
        card: the kind of card that the nodes have, as `ftui estimate --card` names it; empty: as this machine's.
        gpus, cpus, memory_gb: of one trial; `None`: hardware.num_processes GPUs, what the scheduler gives otherwise.
        time, partition, account, lines: of a SLURM job; `lines` stand in its script as they are.
        address: of a Ray cluster; empty: the one this machine belongs to.
    """

    executor: str = "local"
    card: str = ""
    gpus: int | None = None
    cpus: int | None = None
    memory_gb: float | None = None
    time: str = ""
    partition: str = ""
    account: str = ""
    lines: tuple[str, ...] = ()
    address: str = ""

    @property
    def is_remote(self) -> bool:
        """Whether trials run on other machines than the sweep's process."""
        return self.executor != "local"

    def gpus_of(self, profile: Profile) -> int:
        """How many GPUs a trial of this profile asks for."""
        if self.gpus is not None:
            return self.gpus
        return 0 if profile.hardware.device == "cpu" else profile.hardware.num_processes

    def num_paid(self, profile: Profile) -> int:
        """The cards of a trial that cost money: those that a cluster sets aside for it, used or not."""
        own = profile.hardware.num_processes
        return max(own, self.gpus or 0) if self.is_remote else own


def read_run_settings(reader: "PlanReader") -> RunSettings:
    """The table `[run]`; what is wrong with it is noted in the reader."""
    table = reader.section("run")
    lines = table.get("lines", [])
    if not isinstance(lines, list) or not all(isinstance(line, str) and "\n" not in line for line in lines):
        fix = 'Write lines = ["#SBATCH --constraint=nvlink", "module load cuda"].'
        reader.fault(("run", "lines"), f"are texts of one line, not {lines!r}", fix)
        lines = []
    return RunSettings(
        executor=reader.choice(("run", "executor"), table.get("executor", "local"), EXECUTORS),
        card=_read_card(reader, table),
        gpus=reader.number(("run", "gpus"), table.get("gpus"), low=0),
        cpus=reader.number(("run", "cpus"), table.get("cpus"), low=1),
        memory_gb=reader.number(("run", "memory_gb"), table.get("memory_gb"), low=0, whole=False, above=True),
        time=_read_word(reader, table, "time", TIME, "08:00:00, or 2-00:00:00 for two days"),
        partition=_read_word(reader, table, "partition", WORD, "a name as `sinfo` has it"),
        account=_read_word(reader, table, "account", WORD, "a name as `sacctmgr show assoc` has it"),
        lines=tuple(lines),
        address=_read_address(reader, table),
    )  # fmt: skip


def _read_word(reader: "PlanReader", table: Mapping[str, Any], name: str, form: re.Pattern[str], example: str) -> str:
    given = table.get(name, "")
    if given == "" or (isinstance(given, str) and form.fullmatch(given)):
        return str(given)
    reader.fault(("run", name), f"cannot be {given!r}", f"Write {name} = {example}.")
    return ""


def _read_address(reader: "PlanReader", table: Mapping[str, Any]) -> str:
    given = table.get("address", "")
    if given == "" or (isinstance(given, str) and host_and_port(given)):
        return str(given)
    fix = 'Write address = "10.0.0.5:6379": HOST:PORT of the Ray cluster\'s head.'
    reader.fault(("run", "address"), f"cannot be {given!r}", fix)
    return ""


def host_and_port(address: str) -> tuple[str, int] | None:
    """The two parts of `HOST:PORT`, an IPv6 host without its brackets; `None` for any other text."""
    found = ADDRESS.fullmatch(address)
    if found is None or int(found["port"]) > 65535:
        return None
    return found["host"].strip("[]"), int(found["port"])


def _read_card(reader: "PlanReader", table: Mapping[str, Any]) -> str:
    given = table.get("card", "")
    try:
        return given if given == "" else find_card(given if isinstance(given, str) else repr(given)).name
    except UsageError as error:
        reader.fault(("run", "card"), error.message, error.hint)
        return ""


def settings_of(settings: RunSettings, executor: str | None) -> RunSettings:
    """What a file says, with another executor in place of its own where one is named."""
    return replace(settings, executor=executor) if executor else settings


def card_of(settings: RunSettings, profile: Profile, machine: Machine) -> tuple[Kind, Card]:
    """What a trial computes on: here, or on a node.

    Raises:
        UsageError: the nodes have GPUs, this machine has none, and it is not said which they are.
    """
    if not settings.is_remote or profile.hardware.device == "cpu":
        kind = device_kind(profile, machine)
        return kind, machine.cpu.card if kind == "cpu" else machine.card
    if settings.card:
        return "cuda", find_card(settings.card)
    if machine.cards:
        return "cuda", machine.card
    raise UsageError(
        "This machine has no GPU, and it is not said which the nodes have.",
        hint='Write [run] and card = "h100" below it, or hardware.device = "cpu" in the profile.',
    )
