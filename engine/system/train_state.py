"""Where a run stands, as every checkpoint holds it, and the settings that were changed while it trained."""

from collections.abc import Iterable

import msgspec

from ftui.runs.events import ControlApplied, MicroBatchChanged

MICRO_BATCH = "micro_batch"
DECAY_END = "decay_end"  # the step at which a learning rate that was told to fall is down


class Setting(msgspec.Struct, frozen=True):
    """A value that was set while the run trained: it holds from step `from_step` on."""

    from_step: int
    name: str
    value: float


class TrainState(msgspec.Struct):
    """Where a run stands after `step` finished steps; with weights, optimizer and generators it is all of the run.

    `epoch` counts passes over the rows (`None` in checkpoints from before it was stored), `epoch_shift` is what a fork
    adds to its plan's own count: another batch size or other rows make another epoch of the same step, and what was
    seen stays seen.
    `loss_scale` and the two after it are those of fp16 (engine/optim/loss_scaler.py), `plateau` is that of
    engine/optim/plateau.py. `evaluated_step` is the last step that was evaluated (-1: none), so that a run saved
    between a step and its evaluation evaluates when it is resumed. `loss_before` and `samples_before` are those of
    step 0. `best_loss` is the loss of the best evaluation, `best_metric` its value of eval.metric_for_best_model.
    `measured_by` stands for how these were measured, where answers are rewarded ("": not known).
    `rollout` is the number (from 0; -1: none) of the newest rollout, `rollout_hash` that of its file (stages grpo and
    ppo). `kl_coef` is that of the rollout after it, where it is steered (from `initial_kl_coef`), and `scores` are the
    number and mean of all scores so far and the sum of their squared distances from it, where they are normalised.
    `prompts_drawn` counts the prompts up to that rollout where it takes as many as it needs (grpo.dynamic_sample), else
    it is `None`.
    `has_explained_fall`: it was said why the chosen answers' reward falls.
    `other_machine` and `other_content` say what has changed at any resume so far
    (engine/checkpoints/reproducibility.py).

    `settings` are changes made while the run trained: `set` requests, and micro-batches that did not fit. The journal
    has each of them, written before it counts; a checkpoint has those up to its step. Replaying the journal makes a
    resumed run change at the same steps as an uninterrupted one.
    """

    step: int = 0
    epoch: float | None = None
    epoch_shift: float = 0.0
    num_tokens: int = 0
    num_target_tokens: int = 0
    evaluated_step: int = -1
    loss_before: float | None = None
    last_loss: float | None = None
    last_is_finite: bool = True
    best_loss: float | None = None
    best_metric: float | None = None
    best_step: int | None = None
    measured_by: str = ""
    bad_evaluations: int = 0
    bad_steps: int = 0
    loss_scale: float | None = None
    steps_since_overflow: int = 0
    num_overflows: int = 0
    plateau: dict[str, float] = {}
    samples_before: list[str] = []
    has_explained_fall: bool = False
    rollout: int = -1
    rollout_hash: str = ""
    kl_coef: float | None = None
    initial_kl_coef: float | None = None
    scores: list[float] = []
    prompts_drawn: int | None = None
    settings: list[Setting] = []
    other_machine: list[str] = []
    other_content: list[str] = []

    def measure_by(self, fingerprint: str) -> None:
        """Evaluations are measured so from now on: values of another measure cannot be compared with theirs."""
        if self.measured_by != fingerprint:
            self.forget_evaluations()
        self.measured_by = fingerprint

    def forget_evaluations(self) -> None:
        """Go on as if nothing had been evaluated."""
        self.best_loss = self.best_metric = self.best_step = self.last_loss = None
        self.last_is_finite = True
        self.bad_evaluations, self.evaluated_step = 0, -1

    def change(self, new: Setting) -> None:
        """Add a setting; what was set earlier for the same or later steps no longer counts."""
        self.settings = [s for s in self.settings if s.name != new.name or s.from_step < new.from_step] + [new]

    def replay(self, records: Iterable[object]) -> None:
        """Add the settings that records of the journal stand for. Replaying twice changes nothing."""
        for record in records:
            if isinstance(record, ControlApplied):
                for name, value in record.settings.items():
                    self.change(Setting(record.step + 1, name, value))
            elif isinstance(record, MicroBatchChanged):
                self.change(Setting(record.step, MICRO_BATCH, record.new))

    def settings_until(self, name: str, step: int) -> list[Setting]:
        """The settings of a name that were made for step `step` or before, oldest first."""
        return sorted((s for s in self.settings if s.name == name and s.from_step <= step), key=lambda s: s.from_step)

    def value_at(self, name: str, step: int) -> float | None:
        """The value of a setting in step `step`; `None` where it was never set."""
        settings = self.settings_until(name, step)
        return settings[-1].value if settings else None
