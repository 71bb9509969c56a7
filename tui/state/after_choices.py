"""What can be made of what a run has trained, and what is asked before."""

from collections.abc import Callable
from dataclasses import dataclass

from ftui.launch.long_job import LongJob
from ftui.runs.run_folder import Run


@dataclass(frozen=True)
class Weights:
    """Of a run: `checkpoint` names them, `None` for final/, else the newest."""

    run: Run
    checkpoint: str | None = None

    @property
    def title(self) -> str:
        return self.run.name if self.checkpoint is None else f"{self.run.name}@{self.checkpoint}"


@dataclass(frozen=True)
class AfterChoice:
    """A line of the menu.

    Attributes:
        what: merge, push ...
        name: with its options.
        question: about the line of text that `plan` needs; none where it is empty.
        suggest: what stands there at first. Raises FtuiError.
        check: what `plan` gets for it. Raises FtuiError.
        plan: checks it and gives the work; looks at files, so it is called in a thread. Raises FtuiError.
    """

    what: str
    name: str
    words: str
    plan: Callable[[Weights, str], LongJob]
    question: str = ""
    suggest: Callable[[Weights], str] = lambda weights: ""
    check: Callable[[str], str] = str.strip


def _push(weights: Weights, text: str) -> LongJob:
    from ftui.launch.push_job import push_job

    return push_job(weights.title, text)


def _target_of(weights: Weights) -> str:
    """Where the profile of the run pushes to."""
    from ftui.launch.open_run import stored_profile

    return stored_profile(weights.run).push.to or "hub:"


def _target(text: str) -> str:
    from ftui.launch.push_job import check_target

    return check_target(text)


CHOICES = [
    AfterChoice(
        "push", "push", "to the hub, a folder, or through a command; verified there", _push,
        "Where to: hub:OWNER/NAME, a folder, or command:rclone copy {folder} remote:x", _target_of, _target,
    ),
]  # fmt: skip
"""In the order of the menu."""
