"""What can be made of what a run has trained, and what is asked before."""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from ftui.launch.long_job import LongJob
from ftui.launch.prompt_file import check_file
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


def _evaluate(against: str | None) -> Callable[[Weights, str], LongJob]:
    def plan(weights: Weights, text: str) -> LongJob:
        from ftui.launch.evaluation_job import EvaluationOptions, plan_evaluation  # with pydantic

        return plan_evaluation(weights.title, EvaluationOptions(data=Path(text), against=against)).job()

    return plan


def _own_rows(weights: Weights) -> str:
    """The file that the run evaluates on, if it has one."""
    from ftui.launch.open_run import stored_profile
    from ftui.profile.sections.data import sources

    section = stored_profile(weights.run).data
    return "" if section.eval is None else sources(section.eval)[0].path


def _file(text: str) -> str:
    return str(check_file(text))


ROWS = "Rows to evaluate on (a file)"
CHOICES = [
    AfterChoice("evaluate", "evaluate", "losses and answers on rows", _evaluate(None), ROWS, _own_rows, _file),
    AfterChoice(
        "evaluate", "evaluate against base", "of both, compared row by row", _evaluate("base"), ROWS, _own_rows, _file
    ),
]
"""In the order of the menu."""
