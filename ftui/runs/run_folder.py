"""A run's folder: its name, its files, who opens it. Paths only; what the files mean is in the other modules here."""

import os
import re
from pathlib import Path

import msgspec

from ftui.errors import UsageError
from ftui.system.files import DAMAGED, check_plain, open_folder, read_json
from ftui.system.user_folders import known_roots
from ftui.text import did_you_mean

FOLDERS = frozenset({
    "checkpoints", "superseded", "quarantine", "final", "inbox", "ledger", "trackers", "chats", "exports",
    "evaluations", "rollouts", "hooks", "notices", "segments",
})  # fmt: skip
LONGEST_NAME = 64
NAME = re.compile(rf"[a-z0-9][a-z0-9._-]{{0,{LONGEST_NAME - 1}}}")


class RunFacts(msgspec.Struct, frozen=True):
    """The constant facts about a run (run.json), written once by whoever opened it.

    A child run began from a checkpoint of its parent (`parent_run` is its id); a `fork` may differ from it in what the
    weights are made from. One that was made to wait in a queue is `queued` until its first attempt, however long. The
    trial of a sweep has the sweep's name and its own number.
    """

    run_id: str
    name: str
    created: float
    profile_name: str
    format: int = 1
    parent_run: str | None = None
    parent_name: str | None = None
    parent_checkpoint: str | None = None
    fork: bool = False
    queued: bool = False
    sweep: str | None = None
    trial: int | None = None

    @property
    def family(self) -> tuple[str, ...]:
        """Ids of the runs whose checkpoints this one may continue from: its own and, for a child, its parent's."""
        return (self.run_id,) if self.parent_run is None else (self.run_id, self.parent_run)


class Run(msgspec.Struct, frozen=True):
    """The folder RUNS/<name>/ and the files in it."""

    folder: Path

    @property
    def name(self) -> str:
        """The run's name, which is that of its folder."""
        return self.folder.name

    @property
    def profile(self) -> Path:
        """The resolved profile, every key with its value."""
        return self.folder / "profile.toml"

    @property
    def facts(self) -> Path:
        """The `RunFacts`. They are written last: a folder is a run once it has this file."""
        return self.folder / "run.json"

    @property
    def journal(self) -> Path:
        """Rare events, one `JournalRecord` a line, appended by the engine."""
        return self.folder / "journal.jsonl"

    @property
    def metrics(self) -> Path:
        """One `Step` a line, appended by the engine."""
        return self.folder / "metrics.jsonl"

    @property
    def segments(self) -> Path:
        """What stood in metrics, journal and telemetry before they were begun anew (ftui/system/segments.py)."""
        return self.folder / "segments"

    @property
    def archived(self) -> Path:
        """An empty file: this run is left out of lists."""
        return self.folder / "archived"

    @property
    def losses(self) -> Path:
        """The base model's loss on each row, where a curriculum sorts by it."""
        return self.folder / "losses.safetensors"

    @property
    def ledger(self) -> Path:
        """The loss of each row in each step (engine/ledger/ledger_file.py)."""
        return self.folder / "ledger"

    @property
    def reference(self) -> Path:
        """Log-probabilities of the answers under the reference model, in a stage that compares with one."""
        return self.folder / "reference.safetensors"

    @property
    def rollouts(self) -> Path:
        """The answers that the run has generated to learn from, two files a rollout (stage grpo)."""
        return self.folder / "rollouts"

    @property
    def rewards_log(self) -> Path:
        """The output of reward functions, at most 4 MiB; older output is in rewards.log.1."""
        return self.folder / "rewards.log"

    @property
    def beat(self) -> Path:
        """The engine's newest sign of life (`Beat`), replaced about once a second."""
        return self.folder / "beat.json"

    @property
    def checkpoints(self) -> Path:
        """A folder checkpoint-STEP for each checkpoint (ftui/runs/checkpoint_folders.py)."""
        return self.folder / "checkpoints"

    @property
    def final(self) -> Path:
        """The result, in the layout that transformers or PEFT load."""
        return self.folder / "final"

    @property
    def superseded(self) -> Path:
        """Checkpoints of a line that was abandoned."""
        return self.checkpoints / "superseded"

    @property
    def quarantine(self) -> Path:
        """Damaged checkpoints, kept for a look."""
        return self.checkpoints / "quarantine"

    @property
    def chats(self) -> Path:
        """What was said to its checkpoints and answered, a file a conversation (ftui/launch/transcript.py)."""
        return self.folder / "chats"

    @property
    def exports(self) -> Path:
        """A folder for each model made of its result, merged or in another format; deleted with the run."""
        return self.folder / "exports"

    @property
    def pushes(self) -> Path:
        """What was pushed where, one `PushRecord` a line, appended by the holder of `push_lock`."""
        return self.folder / "pushes.jsonl"

    @property
    def push_lock(self) -> Path:
        """The lock whose holder alone pushes something of this run."""
        return self.folder / "push.lock"

    @property
    def push_log(self) -> Path:
        """The output of commands that push (`command:...`)."""
        return self.folder / "push.log"

    @property
    def hooks(self) -> Path:
        """A folder for what `[hooks]` ran: journal, output, lock (ftui/hooks/hook_files.py)."""
        return self.folder / "hooks"

    @property
    def notices(self) -> Path:
        """A folder for how far the sender of `[notify]` is (ftui/notices/follow_run.py)."""
        return self.folder / "notices"

    @property
    def evaluations(self) -> Path:
        """What was answered at evaluations, and a folder for each `ftui evaluate` (ftui/launch/evaluation_job.py)."""
        return self.folder / "evaluations"

    @property
    def answer(self) -> Path:
        """What the engine answers while it trains, as it grows (`RunAnswer`); gone when the attempt ends."""
        return self.folder / "answer.json"

    @property
    def inbox(self) -> Path:
        """Control requests to the engine, a file each (ftui/runs/requests.py)."""
        return self.folder / "inbox"

    @property
    def pins(self) -> Path:
        """The steps whose checkpoints rotation never deletes (ftui/runs/pins.py)."""
        return self.folder / "pins.json"

    @property
    def curves(self) -> Path:
        """Every measured quantity in at most 512 buckets an attempt (ftui/runs/curves.py)."""
        return self.folder / "curves.json"

    @property
    def reserve(self) -> Path:
        """Space that is given back when the disk is full, so that the journal can say so."""
        return self.folder / ".reserve"

    @property
    def supervisor_log(self) -> Path:
        """Starts, ends and stalls of the engine, one `SupervisorRecord` a line, appended by the supervisor."""
        return self.folder / "supervisor.jsonl"

    @property
    def supervisor_output(self) -> Path:
        """What the supervisor's process prints: its own troubles."""
        return self.folder / "supervisor.log"

    @property
    def status(self) -> Path:
        """The run's state so far (`Status`), replaced by the supervisor once a second."""
        return self.folder / "status.json"

    @property
    def telemetry(self) -> Path:
        """The state of the hardware, one `Telemetry` a second, appended by the supervisor."""
        return self.folder / "telemetry.jsonl"

    @property
    def trackers(self) -> Path:
        """A folder for the trackers' files and how far each is (ftui/supervisor/trackers.py)."""
        return self.folder / "trackers"

    @property
    def engine_log(self) -> Path:
        """The output of the engine, at most 8 MiB; older output is in `engine_log_before`."""
        return self.folder / "engine.log"

    def node_log(self, node: int) -> Path:
        """The output of the ranks of another node than node 0."""
        return self.folder / f"node-{node}.log"

    @property
    def nodes(self) -> Path:
        """Where node 0 of several listens, and the secret of the nodes (ftui/supervisor/nodes/announcement.py)."""
        return self.folder / "nodes.json"

    @property
    def engine_log_before(self) -> Path:
        """The older output of the engine, from before engine.log grew too long."""
        return self.folder / "engine.log.1"

    @property
    def engine_lock(self) -> Path:
        """The lock whose holder alone writes the engine's files and pins.json."""
        return self.folder / "engine.lock"

    @property
    def supervisor_lock(self) -> Path:
        """The lock whose holder is the run's only supervisor."""
        return self.folder / "supervisor.lock"

    def check(self) -> None:
        """See that whatever stands under the name of a file or folder of this run is one, before anybody writes to it.

        Raises:
            UnsafePathError: something is a link, a device ... (planted there, or the folder was put together by hand).
        """
        owner = os.stat(self.folder).st_uid
        for name, member in vars(Run).items():
            path = getattr(self, name) if isinstance(member, property) else None
            if not isinstance(path, Path) or not os.path.lexists(path):
                continue
            if name in FOLDERS:
                os.close(open_folder(path, self.folder))
            else:
                check_plain(path, os.lstat(path), owner)
        for part in self.folder.glob("*.*.safetensors"):  # engine/training/measured_values.py
            check_plain(part, os.lstat(part), owner)

    def read_facts(self) -> RunFacts:
        """Raises `UsageError` when the folder is not a run."""
        try:
            return read_json(self.facts, RunFacts)
        except (OSError, *DAMAGED) as error:
            raise UsageError(f"{self.folder} is not a readable run: {error}") from error


def check_name(name: str) -> str:
    """The name, if it is safe as a folder's name.

    Raises:
        UsageError: anything but a lower-case letter or digit followed by at most 63 of `a-z 0-9 . _ -`, or a secret.
    """
    from ftui.system.redact import redact  # 3 ms, which who only reads does without

    if redact(name) != name:
        raise UsageError(
            f"{redact(name)!r} cannot name a run: it holds a password or a token, and names stand in lists and logs.",
            hint="Use another name.",
        )
    if not NAME.fullmatch(name):
        raise UsageError(
            f"{name!r} cannot name a run.",
            hint="Use lower-case letters, digits, '.', '_' and '-', at most 64, starting with a letter or digit.",
        )
    return name


def name_from(stem: str) -> str:
    """A run's name made from a file's stem (`My Profile` -> `my-profile`), without the secrets in it."""
    from ftui.system.redact import redact

    return check_name(re.sub(r"[^a-z0-9._-]+", "-", redact(stem).lower()).strip("-._")[:LONGEST_NAME] or "run")


def runs_root() -> Path:
    """$FTUI_RUNS, else ./runs."""
    return Path(os.environ.get("FTUI_RUNS") or "runs").absolute()


def find_run(name: str) -> Run:
    """The run of that name in this root or any known one; with a `/` in it, the run in that folder.

    Raises:
        UsageError: there is none.
    """
    if "/" in name:
        run = Run(Path(os.path.expanduser(name)).absolute())  # which leaves the home of nobody as it is
        run.read_facts()
        return run
    for root in dict.fromkeys([runs_root(), *known_roots()]):
        if NAME.fullmatch(name) and (root / name / "run.json").is_file():
            return Run(root / name)
    there = {run.name: run for run in [*all_runs(), *all_runs(archived=True)]}
    if name in there:  # whose run.json is no file: reading it says so
        return there[name]
    raise UsageError(f"There is no run named {name!r}.", hint=f"{did_you_mean(name, there)}`ftui runs` lists them.")


def all_runs(*, archived: bool = False) -> list[Run]:
    """The runs in this root and the known ones that are archived, or those that are not.

    In the order of their roots, then by name.
    """
    roots = dict.fromkeys([runs_root(), *known_roots()])
    folders = [path.parent for root in roots if root.is_dir() for path in sorted(root.glob("*/run.json"))]
    runs = [Run(folder) for folder in folders if NAME.fullmatch(folder.name)]  # `.NAME.new` is one in the making
    return [run for run in runs if os.path.lexists(run.archived) == archived]


def find_parent(run: Run) -> Run | None:
    """The run that a child run was made from, by its id: it may have another name by now. `None` where it is gone."""
    try:
        facts = run.read_facts()
    except UsageError:
        return None
    if facts.parent_run is None:
        return None
    beside = sorted(path.parent for path in run.folder.parent.glob("*/run.json") if NAME.fullmatch(path.parent.name))
    for folder in sorted(beside, key=lambda folder: folder.name != facts.parent_name):
        try:
            if Run(folder).read_facts().run_id == facts.parent_run:
                return Run(folder)
        except UsageError:
            continue
    return None


def new_run_id() -> str:
    """A random id of 16 hex digits, which stays with a run however its folder is renamed."""
    return os.urandom(8).hex()
