"""The whole profile: its tables, the small ones among them, and what they must agree on.

The docstring under a key is its help text everywhere.
"""

from typing import Any, Literal, Self

from pydantic import ValidationInfo, field_validator, model_validator

from ftui.errors import UsageError
from ftui.profile.checks import contradictions
from ftui.profile.checks.known_values import KnownValues
from ftui.profile.sections.adapter import AdapterSection
from ftui.profile.sections.curriculum import CurriculumStage
from ftui.profile.sections.data import DataSection
from ftui.profile.sections.evaluation import CheckpointSection, EvalSection
from ftui.profile.sections.fields import Section, conduct, weights
from ftui.profile.sections.model import ModelSection
from ftui.profile.sections.train import TrainSection
from ftui.runs.run_folder import check_name

EXAMINING = "examining"  # context of a validation that looks at the keys one by one


class RunSection(Section):
    """`[run]`: what kind of training this is."""

    stage: Literal["pretrain", "sft"] = weights()
    """`sft` trains on the answers of a conversation or a completion; `pretrain` trains on every token of plain text."""

    name: str | None = conduct(None)
    """Name of the run's folder. Without it, the profile's file name."""

    format: Literal[1] = conduct(1)
    """Version of the profile's form."""

    @field_validator("name")
    @classmethod
    def _is_a_folder(cls, name: str | None) -> str | None:
        try:
            return None if name is None else check_name(name)
        except UsageError as error:
            raise ValueError(f"{error.message}\n{error.hint}") from error


Tracker = Literal["tensorboard", "wandb", "trackio"]


class LogSection(Section):
    """`[log]`: what is printed, and who else is told."""

    logging_steps: int = conduct(10, ge=1)
    """Steps between printed lines. Every step is recorded whatever this says."""

    report_to: tuple[Tracker, ...] = conduct(())
    """Trackers that are told of every step: `tensorboard`, `wandb`, `trackio`, or a list of them. What they write
    stands in the run's folder `trackers`; one that fails, hangs or is not installed is a warning."""

    @field_validator("report_to", mode="before")
    @classmethod
    def _one_or_none(cls, given: Any) -> Any:
        if isinstance(given, str | None):
            return () if given is None else (given,)
        return tuple(given) if isinstance(given, list) else given  # what a validator returns is taken for Python


class HardwareSection(Section):
    """`[hardware]`: where it runs."""

    device: Literal["auto", "cpu", "cuda", "mps"] = weights("auto")
    """`auto` takes the GPU where there is one; `cpu` insists."""

    num_threads: int | None = weights(None, ge=1)
    """CPU threads of torch, in each process. Without it, every core this run may use."""

    num_processes: int = weights(1, ge=1, le=64)
    """Processes that share each step, one per GPU (data parallel); the effective batch is as many times larger."""

    price_per_hour: float | None = conduct(None, ge=0)
    """Dollars that an hour of one card costs you, for estimates. Without it, your table of prices, or ftui's."""


class HealthSection(Section):
    """`[health]`: when a sick run is ended."""

    max_bad_steps: int = conduct(3, ge=1)
    """End the run after this many steps in a row whose loss or gradient is NaN or infinite (none is applied)."""

    stall_minutes: float | None = conduct(5.0, gt=0)
    """An engine that stands still for this long (and 20 times its usual pace) is started again. "none" = never."""


class Profile(Section):
    """A whole profile."""

    run: RunSection
    model: ModelSection
    adapter: AdapterSection = AdapterSection()
    data: DataSection
    train: TrainSection = TrainSection()
    curriculum: tuple[CurriculumStage, ...] = weights(())
    eval: EvalSection = EvalSection()
    checkpoint: CheckpointSection = CheckpointSection()
    log: LogSection = LogSection()
    hardware: HardwareSection = HardwareSection()
    health: HealthSection = HealthSection()

    @field_validator("curriculum", mode="before")
    @classmethod
    def _list_of_tables(cls, given: Any) -> Any:
        if isinstance(given, dict):
            raise ValueError("is a list of tables: write [[curriculum]] above each stage")
        if given is None:
            return ()
        return tuple(given) if isinstance(given, list) else given  # what a validator returns is taken for Python

    @model_validator(mode="after")
    def _sections_agree(self, info: ValidationInfo) -> Self:
        """The first contradiction, however a profile is made; `examine` looks for all of them by itself."""
        if info.context != EXAMINING:
            for found in contradictions(KnownValues(dict(self))):
                raise ValueError(f"{'.'.join(found.key)}: {found.message}")
        return self
