"""Trials on this machine: they wait in the queue beside other runs, and its dispatcher starts them."""

from collections.abc import Collection, Sequence

from ftui.estimate.api import Known, estimate
from ftui.estimate.measurements import read_probes
from ftui.hardware.detect import find_machine
from ftui.launch.claim_cards import device_kind
from ftui.launch.open_run import stored_profile
from ftui.profile.schema import Profile
from ftui.queue.queue_files import QueueFiles
from ftui.queue.waiting_runs import Added
from ftui.runs.status import read_status
from ftui.sweep.sweep_files import SweepFiles


class LocalQueue:
    """The queue of the folder of runs. `visible`: CUDA_VISIBLE_DEVICES where the sweep was started."""

    is_local = True

    def __init__(self, files: SweepFiles, visible: str | None) -> None:
        self._files, self._visible = files, visible
        self._queue = QueueFiles(files.root)
        self._parallel = 0

    def check(self, profile: Profile) -> None:
        """This machine is there."""

    def num_parallel(self, profile: Profile) -> int:
        """One a card."""
        if not self._parallel:
            machine = find_machine()
            number = len(machine.cards) if device_kind(profile, machine) == "cuda" else 0
            self._parallel = max(1, number // profile.hardware.num_processes)
        return self._parallel

    def send(self, trials: Sequence[int]) -> str:
        """Put them behind those that wait. One that is there already stays where it is."""
        machine = find_machine()
        for number in trials:
            run = self._files.run_of(number)
            profile = stored_profile(run)
            device = device_kind(profile, machine)
            card = machine.cpu.card if device == "cpu" else machine.card
            memory = estimate(profile, card, Known(probes=read_probes())).memory
            added = Added(
                run_id=run.read_facts().run_id, name=run.name, device=device, visible=self._visible,
                attempts=read_status(run).state.attempt,
                num_cards=profile.hardware.num_processes if device == "cuda" else 1,
                memory=None if memory is None else memory.high,
            )  # fmt: skip
            with self._queue.changing() as pen:
                pen.write(added)
        return ""

    def find_sent(self) -> Collection[int]:
        """Those in the queue."""
        queue = self._queue.read()
        there = {entry.run_id for entry in (*queue.running, *queue.waiting)}
        trials = [trial.number for trial in self._files.read().on_their_way]
        return {number for number in trials if self._id_of(number) in there}

    def _id_of(self, trial: int) -> str:
        run = self._files.run_of(trial)
        return run.read_facts().run_id if run.facts.exists() else ""

    def withdraw(self) -> None:
        """`stop_sweep` takes them out of the queue, and says which."""

    def explain(self, trial: int, job: str) -> str:
        """The queue's own journal and the run's say it."""
        return ""
