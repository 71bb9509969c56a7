"""What can be made of what a run has trained, and what is asked before."""

import tomllib
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from ftui.launch.long_job import LongJob
from ftui.launch.prompt_file import check_file
from ftui.runs.manifest import MANIFEST
from ftui.runs.run_folder import Run

if TYPE_CHECKING:
    from ftui.helper.gguf_facts import Kind
    from ftui.helper.merge_facts import DType, Into


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
        fits: whether it means something for a run whose profile has that section `adapter`.
    """

    what: str
    name: str
    words: str
    plan: Callable[[Weights, str], LongJob]
    question: str = ""
    suggest: Callable[[Weights], str] = lambda weights: ""
    check: Callable[[str], str] = str.strip
    fits: Callable[[Mapping[str, object]], bool] = lambda adapter: True


# What follows is imported where it is called: a menu does without pydantic.


def _evaluate(weights: Weights, text: str, *, against: str | None = None) -> LongJob:
    from ftui.launch.evaluation_job import EvaluationOptions, plan_evaluation

    return plan_evaluation(weights.run, weights.checkpoint, EvaluationOptions(data=Path(text), against=against)).job()


def _own_rows(weights: Weights) -> str:
    """The file that the run evaluates on, if it has one."""
    from ftui.launch.open_run import stored_profile
    from ftui.profile.sections.data import sources

    section = stored_profile(weights.run).data
    return "" if section.eval is None else sources(section.eval)[0].path


def _file(text: str) -> str:
    return str(check_file(text))


def _merge(weights: Weights, text: str, *, dtype: "DType | None" = None, into: "Into | None" = None) -> LongJob:
    from ftui.launch.merge_job import merge_job

    return merge_job(weights.run, weights.checkpoint, dtype, into)


def _export(weights: Weights, text: str, *, kind: "Kind" = "f16", alone: bool = False) -> LongJob:
    from ftui.launch.export_job import export_job

    return export_job(weights.run, weights.checkpoint, kind, alone=alone)


def _push(weights: Weights, text: str, *, export: str = "") -> LongJob:
    from ftui.launch.push_job import push_job

    return push_job(weights.run, export or weights.checkpoint, text)


def _target_of(weights: Weights) -> str:
    """Where the profile of the run pushes to."""
    from ftui.launch.open_run import stored_profile

    return stored_profile(weights.run).push.to or "hub:"


def _target(text: str) -> str:
    from ftui.launch.push_job import check_target

    return check_target(text)


def _has_adapter(adapter: Mapping[str, object]) -> bool:
    return adapter.get("method") not in ("full", "freeze")


def _is_quantised(adapter: Mapping[str, object]) -> bool:
    return adapter.get("method", "qlora") == "qlora" or adapter.get("load_in_8bit") is True


def _adapter_of(run: Run) -> Mapping[str, object]:
    """As it stands in the profile; nothing where that cannot be read, which is said once something is chosen."""
    try:
        section: Mapping[str, object] = tomllib.loads(run.profile.read_text()).get("adapter", {})
    except (OSError, ValueError):
        return {}
    return section


ROWS = "Rows to evaluate on (a file)"
WHERE = "Where to: hub:OWNER/NAME, a folder, or command:rclone copy {folder} remote:x"
GGUF_KINDS: "dict[Kind, str]" = {
    "f16": "a file for llama.cpp, Ollama, LM Studio",
    "bf16": "the same, stored in bfloat16",
    "q8_0": "in 8 bits: about half of f16",
    "q6_k": "in about 6.5 bits; needs finetune-tui[gguf]",
    "q5_k_m": "in about 5.5 bits; the same",
    "q4_k_m": "in about 5 bits, a third of f16; the same",
}
CHOICES = [
    AfterChoice("evaluate", "evaluate", "losses and answers on rows of a file", _evaluate, ROWS, _own_rows, _file),
    AfterChoice(
        "evaluate", "evaluate against base", "the same of both, row by row", partial(_evaluate, against="base"), ROWS,
        _own_rows, _file,
    ),
    AfterChoice("merge", "merge", "the adapter into its base, stored as the base is", _merge, fits=_has_adapter),
    AfterChoice(
        "merge", "merge bf16", "the same, stored in bfloat16", partial(_merge, dtype="bf16"), fits=_has_adapter
    ),
    AfterChoice("merge", "merge fp16", "stored in float16", partial(_merge, dtype="fp16"), fits=_has_adapter),
    AfterChoice(
        "merge", "merge fp32", "stored in float32, the most exact", partial(_merge, dtype="fp32"), fits=_has_adapter
    ),
    AfterChoice(
        "merge", "merge into original", "into the files of the base, which are not quantised",
        partial(_merge, into="original"), fits=_is_quantised,
    ),
    *(AfterChoice("export", f"GGUF {kind}", words, partial(_export, kind=kind)) for kind, words in GGUF_KINDS.items()),
    AfterChoice(
        "export", "GGUF of the adapter", "for the GGUF file of its base", partial(_export, alone=True),
        fits=_has_adapter,
    ),
    AfterChoice(
        "push", "push", "to the hub, a folder or by a command; verified", _push, WHERE, _target_of, _target
    ),
]  # fmt: skip
"""In the order of the menu."""


def choices_for(weights: Weights) -> list[AfterChoice]:
    """Those that fit the run, and what was made of the run before, to be pushed."""
    try:
        exports = sorted(path.name for path in weights.run.exports.iterdir() if (path / MANIFEST).is_file())
    except OSError:  # nothing was made yet
        exports = []
    words, adapter = "was made of this run before", _adapter_of(weights.run)
    return [
        *(choice for choice in CHOICES if choice.fits(adapter)),
        *(
            AfterChoice("push", f"push {name}", words, partial(_push, export=name), WHERE, _target_of, _target)
            for name in exports
        ),
    ]
