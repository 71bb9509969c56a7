"""The profile as one value: every table, and that its keys agree. The docstring under a key is its help text."""

from typing import Any, Literal, Self

from pydantic import ValidationInfo, field_validator, model_validator

from ftui.errors import UsageError
from ftui.profile.checks import contradictions
from ftui.profile.checks.known_values import KnownValues
from ftui.profile.sections.adapter import AdapterSection
from ftui.profile.sections.around.hooks import HooksSection
from ftui.profile.sections.around.notify import NotifySection
from ftui.profile.sections.around.push_target import PushSection
from ftui.profile.sections.curriculum import CurriculumStage
from ftui.profile.sections.data import DataSection
from ftui.profile.sections.evaluation import CheckpointSection, EvalSection
from ftui.profile.sections.fields import Section, conduct, one_or_list, tuple_of_list, weights
from ftui.profile.sections.health import HealthSection
from ftui.profile.sections.model import ModelSection
from ftui.profile.sections.preference import PAIR_STAGES, PreferenceSection
from ftui.profile.sections.rewards import RewardsSection
from ftui.profile.sections.sampled_stages import POLICY_STAGES, GrpoSection, PpoSection
from ftui.profile.sections.train import TrainSection
from ftui.profile.tracker_names import Tracker, check_tracker
from ftui.runs.run_folder import check_name

EXAMINING = "examining"  # context of a validation that looks at the keys one by one


class RunSection(Section):
    """`[run]`: what kind of training this is."""

    stage: Literal["pretrain", "sft", "dpo", "kto", "orpo", "simpo", "cpo", "rm", "grpo", "ppo"] = weights()
    """What it trains on: answers (`sft`), text (`pretrain`), pairs (`dpo`, `orpo`, `simpo`, `cpo`; `rm`: a model that
    scores them), judged answers (`kto`), rewards of its own answers (`grpo`, `ppo`)."""

    name: str | None = conduct(None)
    """Name of the run's folder. Default: the profile's file name."""

    format: Literal[1] = conduct(1)
    """Version of the profile format."""

    @field_validator("name")
    @classmethod
    def _is_a_folder(cls, name: str | None) -> str | None:
        try:
            return None if name is None else check_name(name)
        except UsageError as error:
            raise ValueError(f"{error.message}\n{error.hint}") from error


class LogSection(Section):
    """`[log]`: what is printed, and which trackers record the run."""

    logging_steps: int = conduct(10, ge=1)
    """Steps between printed lines. Every step is recorded in any case."""

    row_losses: bool = conduct(True)
    """Record the loss of every row in every step, for `ftui blame`: which rows are behind a spike, which are never
    learned. It takes 12 bytes a row and less than 1 % of a step; in the folder `ledger` of the run, 256 MiB at most.
    Stages grpo and ppo keep none: their answers are new each time (`ftui rollouts`)."""

    rollout_total_limit: int = conduct(1000, ge=1)
    """Number of rollouts to keep in the folder `rollouts` (stage grpo): about 12 bytes for each token of an answer, and
    its text. One that a checkpoint needs is kept in any case."""

    report_to: tuple[Tracker | str, ...] = conduct(())
    """Trackers that record every step: one or a list of them. An installed package may bring others (docs/trackers.md).
    They write to the folder `trackers` of the run. One that fails, hangs or is not installed causes a warning only."""

    @field_validator("report_to", mode="before")
    @classmethod
    def _one_or_none(cls, given: Any) -> Any:
        return one_or_list(given)

    @field_validator("report_to")
    @classmethod
    def _are_trackers(cls, names: tuple[str, ...]) -> tuple[str, ...]:
        return tuple(check_tracker(name) for name in names)


Offloaded = Literal["base", "state"]


class HardwareSection(Section):
    """`[hardware]`: where the run computes."""

    device: Literal["auto", "cpu", "cuda", "mps"] = weights("auto")
    """`auto` uses the GPU if there is one. `cpu` always uses the CPU."""

    num_threads: int | None = weights(None, ge=1)
    """CPU threads of torch in each process. Default: every core that the run may use."""

    num_processes: int = weights(1, ge=1, le=64)
    """Processes that share each step, one per GPU (data parallel). The effective batch grows by this factor."""

    nodes: int | None = conduct(None, ge=1, le=64)
    """Machines that share the run, each with num_processes / nodes of the processes; give the same command on each of
    them. Default: what the launcher says (torchrun, SLURM, SkyPilot, Kubeflow, or NODE_RANK and NNODES), else 1."""

    node_patience_minutes: float | None = conduct(30.0, gt=0)
    """With several nodes: park the run when one of them is away for this long. "none" = wait for it for ever."""

    shard: Literal["none", "state", "all"] = conduct("none")
    """What the processes divide among them instead of each having all of it: `none`; `state`, the optimizer's state and
    the gradients; `all`, the weights too. Beside an adapter `all` divides the frozen base; the adapter stays whole."""

    dp_shard_size: int | None = conduct(None, ge=2, le=64)
    """With shard: divide among so many processes, and have num_processes / dp_shard_size replicas of that, whose
    gradients are summed (HSDP); set it to the GPUs of a node. Default: all processes divide one model."""

    offload: tuple[Offloaded, ...] = conduct(())
    """What lies in host memory and comes to the GPU when it is needed: `base` (the frozen layers of the model, one at a
    time), `state` (the optimizer's moments), or a list of both. The losses stay the same, steps become slower."""

    price_per_hour: float | None = conduct(None, ge=0)
    """Price of one card in dollars per hour, for estimates and budget.max_money. Default: your table of prices, else
    ftui's."""

    @field_validator("shard", mode="before")
    @classmethod
    def _none_is_a_choice(cls, shard: Any) -> Any:
        return "none" if shard is None else shard  # elsewhere "none" turns a key off, and arrives as None

    @field_validator("offload", mode="before")
    @classmethod
    def _one_or_none(cls, given: Any) -> Any:
        return one_or_list(given)


class BudgetSection(Section):
    """`[budget]`: what the run may cost, over all its attempts, pauses included. It is parked in time."""

    max_money: float | None = conduct(None, gt=0)
    """Most dollars that the run may cost, at hardware.price_per_hour for each card, else at the price in your table or
    ftui's. It is warned of at 80 %, and parked while the rest still covers a save."""

    max_hours: float | None = conduct(None, gt=0)
    """Most hours that the run may take, those of all attempts together. As max_money; whichever comes first counts."""


class Profile(Section):
    """A whole profile."""

    run: RunSection
    model: ModelSection
    adapter: AdapterSection = AdapterSection()
    data: DataSection
    train: TrainSection = TrainSection()
    preference: PreferenceSection = PreferenceSection()
    grpo: GrpoSection = GrpoSection()
    ppo: PpoSection = PpoSection()
    rewards: RewardsSection = RewardsSection()
    curriculum: tuple[CurriculumStage, ...] = weights(())
    eval: EvalSection = EvalSection()
    checkpoint: CheckpointSection = CheckpointSection()
    push: PushSection = PushSection()
    hooks: HooksSection = HooksSection()
    notify: NotifySection = NotifySection()
    log: LogSection = LogSection()
    hardware: HardwareSection = HardwareSection()
    health: HealthSection = HealthSection()
    budget: BudgetSection = BudgetSection()

    @property
    def per_example(self) -> int:
        """Sequences of an example: a pair has two."""
        return 2 if self.run.stage in PAIR_STAGES else 1

    @property
    def gives_scores(self) -> bool:
        """Whether the model gives a score for a text, not the next token."""
        return self.run.stage == "rm"

    @property
    def samples_answers(self) -> bool:
        """Whether the model trains on answers of its own to the rows, which are prompts."""
        return self.run.stage in POLICY_STAGES

    @property
    def keeps_row_losses(self) -> bool:
        """Whether the loss of every row is recorded: answers that are sampled come once, and belong to no row."""
        return self.log.row_losses and not self.samples_answers

    @property
    def sampled(self) -> GrpoSection | PpoSection:
        """How the stage answers prompts, and how often it trains on the answers."""
        return self.ppo if self.run.stage == "ppo" else self.grpo

    @property
    def resolved_eval(self) -> EvalSection:
        """`[eval]` with the metric that the best model is chosen by. The loss of stages that learn from rewards says
        nothing: it stands for the reward there."""
        if self.samples_answers and self.eval.metric_for_best_model == "loss":
            return self.eval.model_copy(update={"metric_for_best_model": "reward"})
        return self.eval

    @property
    def keeps_reference(self) -> bool:
        """Whether the trained weights are kept as they were at the start, for a divergence from them: a new adapter is
        switched off instead, but trained biases of the base would stay as they are then."""
        adapter = self.adapter
        is_off = adapter.is_lora and adapter.name_or_path is None and adapter.bias == "none"
        return self.samples_answers and self.sampled.has_reference and not is_off

    @property
    def draws_prompts(self) -> bool:
        """Whether a run takes as many prompts for its steps as it needs."""
        return self.run.stage == "grpo" and self.grpo.dynamic_sample

    @property
    def longest_row(self) -> int:
        """The most tokens of a row's sequence: a prompt needs room for its answer."""
        return self.data.max_length - (self.sampled.max_completion_length if self.samples_answers else 0)

    @property
    def rows_per_step(self) -> int:
        """Examples of the data in a step: of prompts, each has several answers."""
        return self.effective_batch // (self.sampled.num_generations if self.samples_answers else 1)

    @property
    def packing_length(self) -> int | None:
        """The most tokens of a packed row: a pair stays together. `None`: rows are not packed."""
        return self.per_example * self.data.max_length if self.data.packing else None

    @property
    def num_lines(self) -> int:
        """Lines of a micro-batch for each of its examples: the answers of a pair stand in two, or packed in one."""
        return 1 if self.data.packing else self.per_example

    def longest_line(self, longest: int | None) -> int:
        """Tokens of the longest line of a micro-batch; `longest`: of the longest sequence, where that is known."""
        length = self.data.max_length
        return self.packing_length or (length if longest is None else min(longest, length))

    @property
    def effective_batch(self) -> int:
        """Examples of an optimizer step, over all its micro-batches and processes."""
        return self.train.effective_batch or (
            self.train.per_device_train_batch_size * self.train.gradient_accumulation_steps
            * self.hardware.num_processes
        )  # fmt: skip

    @property
    def micro_batch(self) -> int:
        """The most examples of a micro-batch: no process takes more than its part of a step."""
        part = -(-self.effective_batch // self.hardware.num_processes)
        return min(self.train.per_device_train_batch_size, part)

    @property
    def accumulation(self) -> int:
        """The most micro-batches that a process takes in a step."""
        return -(-self.effective_batch // (self.micro_batch * self.hardware.num_processes))

    @field_validator("curriculum", mode="before")
    @classmethod
    def _list_of_tables(cls, given: Any) -> Any:
        if isinstance(given, dict):
            raise ValueError("is a list of tables: write [[curriculum]] above each stage")
        return tuple_of_list(given)

    @model_validator(mode="after")
    def _sections_agree(self, info: ValidationInfo) -> Self:
        """The first contradiction, however a profile is made; `examine` looks for all of them by itself."""
        if info.context != EXAMINING:
            for fault in contradictions(KnownValues(dict(self))):
                raise ValueError(f"{'.'.join(fault.key)}: {fault.message}")
        return self
