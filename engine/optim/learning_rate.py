"""The learning rate of a step: the profile's curve, and what requests and plateaus have made of it since."""

from collections.abc import Callable

from ftui.profile.sections.train import TrainSection
from ftui.units import rate as in_words

from ..planning.curriculum_plan import RunPlan
from ..system.train_state import DECAY_END, Setting, TrainState
from .plateau import remaining_share
from .schedule import learning_rate_curve, warmup_steps

NOTABLE = 0.05  # of the peak: a rate at the end that differs by less from the planned one is not worth advice


class LearningRate:
    """The learning rate of each step of a run: a pure function of profile, plan and state."""

    def __init__(self, train: TrainSection, plan: RunPlan) -> None:
        self._train = train
        self._end = plan.max_steps
        self._warmup = warmup_steps(train, plan.max_steps)
        self._curve = learning_rate_curve(train, plan.max_steps, plan.peak_rate)

    def at(self, step: int, state: TrainState) -> float:
        """The rate of step `step` (1-based)."""
        curve = self._curve
        for decay in state.settings_until(DECAY_END, step):
            curve = falling(curve, max(decay.from_step, self._warmup + 1), int(decay.value))
        factor = state.value_at("learning_rate_factor", step)
        return curve(step) * remaining_share(state, self._train) * (1.0 if factor is None else factor)

    def describe_end(self, settings: dict[str, float], state: TrainState, run_name: str) -> list[str]:
        """At which rate the run would end if these settings held from its next step on, and where that is not as
        planned, what to do: moving the end moves no curve. Short lines."""
        after, first = TrainState(plateau=state.plateau, settings=state.settings), state.step + 1
        for name, value in settings.items():
            after.change(Setting(first, name, value))
        override = after.value_at("max_steps", first)
        end = self._end if override is None else int(override)
        peak, last = self._train.learning_rate, self.at(end, after)
        if not peak:
            return []
        decays = state.settings_until(DECAY_END, first)
        planned_end = int(decays[-1].value) if decays else self._end
        planned = self.at(planned_end, state)
        words = f"the learning rate ends at {in_words(last)}, {100 * last / peak:.0f} % of its peak"
        is_too_low = end > planned_end and last < NOTABLE * peak
        if DECAY_END in settings or not (is_too_low or last - planned > NOTABLE * peak):
            return [words]
        why = f"as from step {planned_end} on" if is_too_low else f"not {100 * planned / peak:.0f} % as planned"
        return [
            f"{words}, {why}",
            f"`ftui set {run_name} decay=linear` lowers it to 0 by step {end}",
            f"`ftui resume {run_name} --fork --set train.max_steps={end}`: a new schedule",
        ]


def falling(curve: Callable[[int], float], first: int, end: int) -> Callable[[int], float]:
    """`curve` before step `first`; from its height there a straight line that would be 0 at the step after `end`.

    As transformers' `linear`; past `end` it stays at the last height.
    """

    def rate(step: int) -> float:
        if step < first or end < first:
            return curve(step)
        return curve(first) * (end + 1 - min(step, end)) / (end + 1 - first)

    return rate
