"""`[hooks]`: commands of the user's that run beside a run, and the one that stops its machine at the end."""

from typing import Any, Literal

from pydantic import field_validator

from ftui.profile.sections.fields import Section, conduct, one_or_list
from ftui.runs.records.hook_records import HOOK_EVENTS
from ftui.system.redact import is_secret_name
from ftui.system.variables import variables_of

COMMANDS = (*HOOK_EVENTS, "then_stop")
Ending = Literal["finished", "stopped", "parked", "failed"]
Requirement = Literal["pushed", "verified", "hooks"]


class HooksSection(Section):
    """`[hooks]`: commands that run beside a run, each as a list of words, without a shell (needs `--allow hooks`).
    A word `$NAME` is that environment variable. None of them can disturb the run: docs/hooks.md."""

    started: tuple[str, ...] = conduct(())
    """Runs when training begins or goes on, as `["python", "tell.py"]`. Where it is stands in FTUI_RUN, FTUI_STEP and
    other environment variables."""

    checkpoint: tuple[str, ...] = conduct(())
    """Runs after a checkpoint, whose folder is FTUI_CHECKPOINT."""

    evaluated: tuple[str, ...] = conduct(())
    """Runs after an evaluation, whose loss is FTUI_EVAL_LOSS (reward: FTUI_EVAL_REWARD)."""

    ended: tuple[str, ...] = conduct(())
    """Runs when the run has finished, was stopped or parked (FTUI_PHASE); after the push, where there is one."""

    failed: tuple[str, ...] = conduct(())
    """Runs when the run has failed and is not started again."""

    timeout_minutes: float = conduct(10.0, gt=0)
    """A command that takes longer is ended."""

    then_stop: tuple[str, ...] = conduct(())
    """Stops this machine, as `["runpodctl", "stop", "pod", "$RUNPOD_POD_ID"]`: after a countdown that any key cancels,
    and never while another run is running or waits in the queue."""

    then_stop_after: tuple[Ending, ...] = conduct(("finished",))
    """How the run must have ended for that: `finished`, `stopped`, `parked`, `failed`, or a list of them."""

    then_stop_requires: tuple[Requirement, ...] | None = conduct(None)
    """What must be on record before: `pushed`, `verified` (every hash was asked for there), `hooks` (hooks.ended ran
    without an error). Default: pushed and verified after a run that finished, where push.to is set; else nothing."""

    then_stop_seconds: int = conduct(60, ge=10)
    """The countdown. `ftui keep RUN`, or any key in the live view of the run, cancels it."""

    @field_validator("then_stop_after", "then_stop_requires", mode="before")
    @classmethod
    def _one_or_none(cls, given: Any) -> Any:
        return None if given is None else one_or_list(given)

    @field_validator(*COMMANDS, mode="before")
    @classmethod
    def _is_a_command(cls, given: Any) -> Any:
        if isinstance(given, str) and len(given.split()) > 1:
            listed = ", ".join(f'"{word}"' for word in given.split())
            raise ValueError(f"a command is a list of its words: [{listed}]")
        return one_or_list(given)

    @field_validator(*COMMANDS)
    @classmethod
    def _has_sound_words(cls, words: tuple[str, ...]) -> tuple[str, ...]:
        if any(not word or "\0" in word for word in words):
            raise ValueError("a word of a command is not empty, and has no NUL")
        for name in variables_of(words):
            if is_secret_name(name):
                raise ValueError(f"everybody on a machine sees the words of its processes: let the command read {name}")
        return words

    @property
    def commands(self) -> dict[str, tuple[str, ...]]:
        """Those that are set, by their keys."""
        return {name: words for name in COMMANDS if (words := getattr(self, name))}
