"""Trials on a Ray cluster: each is an actor with its GPUs on any node, its folder on a volume that all nodes share.

Ray is asked for places, and for nothing else: no dashboard, no object, no result goes through it. Actors have names, of
which there is one of each, and outlive the process that made them.
"""

import json
import logging
import os
import socket
import zlib
from collections.abc import Collection, Sequence
from pathlib import Path
from typing import Any

from ftui.profile.schema import Profile
from ftui.runs.status import read_status
from ftui.supervisor.spawn import FOLDERS
from ftui.sweep.executors import executor
from ftui.sweep.executors.executor import ExecutorError, last_line, read_profile
from ftui.sweep.executors.on_node import UNTIL_EOF
from ftui.sweep.executors.run_actor import RunActor
from ftui.sweep.executors.run_settings import RunSettings, host_and_port
from ftui.sweep.sweep_files import SweepFiles
from ftui.text import shown

NAMESPACE = "ftui"
GIB = 1 << 30
ANSWER_SECONDS = 5.0


class RayCluster:
    """The cluster that this machine belongs to, or that of the address in `[run]`."""

    is_local = False

    def __init__(self, files: SweepFiles, settings: RunSettings) -> None:
        self._files, self._settings = files, settings
        self._ray: Any = None
        self._actors: dict[int, Any] = {}

    def _connect(self) -> Any:
        """Ray, joined to the cluster.

        Raises:
            ExecutorError: it is not installed, or no cluster answers.
        """
        if self._ray is not None:
            return self._ray
        _reach(self._settings.address)
        try:
            import ray
        except ImportError:
            hint = "pip install 'finetune-tui[cluster]', here and on every node."
            raise ExecutorError("Ray is not installed.", hint=hint) from None
        try:
            ray.init(
                address=self._settings.address or "auto", namespace=NAMESPACE, log_to_driver=False,
                configure_logging=False, logging_level=logging.ERROR,
            )  # fmt: skip
        except (ConnectionError, ValueError, RuntimeError) as error:
            hint = "Give this on a node of the cluster (`ray start --head`, `ray start --address=HEAD:6379`)."
            raise ExecutorError(f"No Ray cluster answers: {shown(str(error)).strip()}", hint=hint) from error
        self._ray = ray
        return ray

    def check(self, profile: Profile) -> None:
        """Join the cluster, and see that one of its nodes has what a trial asks for. Raises ExecutorError."""
        asked = self._settings.gpus_of(profile)
        nodes = [node["Resources"] for node in self._connect().nodes() if node["Alive"]]
        most = max((int(node.get("GPU", 0)) for node in nodes), default=0)
        if most < asked:
            raise ExecutorError(
                f"A trial asks for {asked} GPUs, and no node of the Ray cluster has more than {most}.",
                hint="hardware.num_processes in the profile, or gpus in [run], says how many.",
            )

    def num_parallel(self, profile: Profile) -> int:
        """As many as the cluster has room for now: by GPUs, or by CPUs where trials have no GPU. Raises
        ExecutorError."""
        there = _asked(self._connect().cluster_resources)
        gpus = self._settings.gpus_of(profile)
        room = there.get("GPU", 0) // gpus if gpus else there.get("CPU", 0) // (self._settings.cpus or 1)
        return max(1, int(room))

    def send(self, trials: Sequence[int]) -> str:
        """An actor for each. Ray starts it as soon as a node has room. Raises ExecutorError."""
        ray = self._connect()
        profile = read_profile(self._files)
        folders = {name: os.path.abspath(os.environ[name]) for name in FOLDERS if os.environ.get(name)}
        memory = self._settings.memory_gb
        for number in trials:
            actor = ray.remote(RunActor).options(
                name=self._name(number), namespace=NAMESPACE, lifetime="detached", max_restarts=0, get_if_exists=True,
                num_gpus=self._settings.gpus_of(profile), num_cpus=self._settings.cpus or 1,
                memory=None if memory is None else int(memory * GIB),
            )  # fmt: skip
            command = [*executor.NODE_PROGRAM, str(self._files.folder), str(number), UNTIL_EOF]
            output = str(self._output(number))
            self._actors[number] = _asked(actor.remote, json.dumps(command), output, json.dumps(folders))
        return "ray"

    def find_sent(self) -> Collection[int]:
        """Those whose actors are there, waiting or at work. Raises ExecutorError."""
        names = {*_asked(self._connect().util.list_named_actors)}
        return {trial.number for trial in self._files.read().trials if self._name(trial.number) in names}

    def withdraw(self) -> None:
        """End the actors of trials that have not begun. Raises ExecutorError."""
        ray, trials = self._connect(), self._files.read().trials
        for number in self.find_sent():
            if read_status(self._files.run_of(number)).state.attempt <= trials[number].attempts:
                try:
                    ray.kill(ray.get_actor(self._name(number), namespace=NAMESPACE))
                except ValueError:  # it has just ended
                    continue

    def explain(self, trial: int, job: str) -> str:
        """The last line of what it printed on its node; of an actor that could not even be made, Ray's words."""
        if line := last_line(self._output(trial)):
            return line
        if (actor := self._actors.get(trial)) is None:
            return ""
        try:
            self._connect().get(actor.__ray_ready__.remote(), timeout=ANSWER_SECONDS)
        except self._connect().exceptions.RayError as error:
            return shown(str(error).strip().rpartition("\n")[2])
        return ""

    def _output(self, trial: int) -> Path:
        return self._files.folder / f"ray_{trial}.out"

    def _name(self, trial: int) -> str:
        return f"{self._files.name}-{zlib.crc32(os.fsencode(self._files.folder)):08x}-{trial}"


def _reach(address: str) -> None:
    """See that somebody listens there: Ray itself would try for minutes. Without an address in `[run]` Ray takes the
    one in RAY_ADDRESS.

    Raises:
        ExecutorError: nobody does.
    """
    key, place = "address in [run]", host_and_port(address)
    if not address:
        key, address = "RAY_ADDRESS", os.environ.get("RAY_ADDRESS", "")
        place = host_and_port(address)
    if place is None:  # nothing is said, or what only Ray understands
        return
    try:
        socket.create_connection(place, ANSWER_SECONDS).close()
    except (OSError, UnicodeError) as error:  # the latter: no name that a host can have
        raise ExecutorError(
            f"{key} is {shown(address)}, and nothing answers there: {error}.",
            hint="It is HOST:PORT of the cluster's head, as `ray start --head` prints it (port 6379, mostly).",
        ) from error


def _asked(question: Any, *arguments: object) -> Any:
    """What Ray answers.

    Raises:
        ExecutorError: it does not.
    """
    from ray.exceptions import RayError

    try:
        return question(*arguments)
    except (RayError, ConnectionError, TimeoutError, RuntimeError) as error:
        raise ExecutorError(f"The Ray cluster does not answer: {shown(str(error)).strip()}") from error
