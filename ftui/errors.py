"""What can go wrong, in words a person can act on, each with the exit code the table promises.

FtuiError                    70  a bug in ftui unless a subclass says otherwise
├── UsageError                2  the command line
├── ProfileError             30  the profile: file, line, key
├── DataError                31  the rows: file, line, reason
├── ModelError               32  missing, damaged, refused
│   ├── UnavailableError     32  its files cannot be fetched for now: offline, or no access yet
│   └── NotSimulatedError    32  an estimate cannot be made of it, but it can be trained
├── HardwareError            33  no usable GPU, driver
├── DiskError                40  the volume fails or cannot do what is needed
│   └── DiskFullError        40  no room, or a quota or a limit on files is reached
├── GpuMemoryError           41
├── HostMemoryError          42
├── NonFiniteError           43  loss or gradients stayed NaN or infinite
├── StalledError             44
├── LostRunError             50  another process writes this run
├── PushError                51  a result did not get where it should; another push goes on
└── RewardError              52  a reward function: what it gave, or that it cannot be asked
"""

from typing import ClassVar

FINISHED = 0
STOPPED = 10
PARKED = 11
PREEMPTED_SAVED = 20
PREEMPTED_NOT_SAVED = 21
BUG = 70
INTERRUPTED = 130  # Ctrl+C, as a shell has it


class FtuiError(Exception):
    """An expected failure.

    `message` says what happened, `hint` what to do about it. Shown once, as two lines, never as a traceback.
    """

    exit_code: ClassVar[int] = BUG

    def __init__(self, message: str, *, hint: str = "") -> None:
        super().__init__(message)
        self.message = message
        self.hint = hint


class UsageError(FtuiError):
    """The command line is wrong, or names a run, checkpoint or file that is not there."""

    exit_code = 2


class ProfileError(FtuiError):
    """A value of the profile is wrong or missing, or contradicts another; the message has file, line and key."""

    exit_code = 30


class DataError(FtuiError):
    """A row or a file of rows cannot be used; the message has file, line and reason."""

    exit_code = 31


class ModelError(FtuiError):
    """A model, adapter or tokenizer is missing, gated, damaged, or of a kind that ftui does not train."""

    exit_code = 32


class UnavailableError(ModelError):
    """The model may be right: its files are on the hub, and cannot be fetched for now."""


class NotSimulatedError(ModelError):
    """Nothing is wrong with the model: an estimate does without the simulation."""


class HardwareError(FtuiError):
    """A device, driver or package that the profile asks for is not here, or torch cannot use it."""

    exit_code = 33


class DiskError(FtuiError):
    """The volume refuses to write, read or lock, or what was written reads back wrong."""

    exit_code = 40


class DiskFullError(DiskError):
    """The disk is full, or a quota or a limit on files is reached: a run pauses and tries again."""


class GpuMemoryError(FtuiError):
    """The GPU's memory ran out where nothing smaller can be tried."""

    exit_code = 41


class HostMemoryError(FtuiError):
    """The machine's memory ran out, in the engine or by the kernel's OOM killer."""

    exit_code = 42


class NonFiniteError(FtuiError):
    """The loss or the gradients were NaN or infinite for `health.max_bad_steps` steps in a row, or the evaluation was
    that the result would rest on, or the output of a model that answers."""

    exit_code = 43


class StalledError(FtuiError):
    """The engine finished no unit of work for too long, and its supervisor killed it."""

    exit_code = 44


class LostRunError(FtuiError):
    """Another process works on this run, or has its lock; there must not be two writers."""

    exit_code = 50


class PushError(FtuiError):
    """A result did not get, or not whole, to where it was pushed. What has arrived stays; another push goes on."""

    exit_code = 51


class RewardError(FtuiError):
    """A reward function cannot be asked, or gives no rewards: the run waits until a person has looked at it."""

    exit_code = 52


def error_with(exit_code: int, message: str, hint: str, name: str = "") -> FtuiError:
    """The error of that exit code, as another process reported it: of the class of that name, if it has one."""
    kinds: list[type[FtuiError]] = [FtuiError]
    for kind in kinds:
        kinds += kind.__subclasses__()
    fitting = [kind for kind in kinds if kind.exit_code == exit_code] or [FtuiError]
    return next((kind for kind in fitting if kind.__name__ == name), fitting[0])(message, hint=hint)


EXIT_WORDS = {
    FINISHED: "finished",
    2: "usage",
    STOPPED: "stopped or aborted",
    PARKED: "parked",
    PREEMPTED_SAVED: "pre-empted, saved",
    PREEMPTED_NOT_SAVED: "pre-empted, not saved",
    30: "profile",
    31: "data",
    32: "model",
    33: "hardware",
    40: "disk",
    41: "GPU memory",
    42: "host memory",
    43: "non-finite",
    44: "stalled",
    50: "lost the run to another writer",
    51: "push",
    52: "rewards",
    BUG: "bug",
}
