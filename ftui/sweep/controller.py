"""Decides what a sweep tries next (`python -P -m ftui.sweep FOLDER [LOCK_FD]`), and ends when nothing is left to do.

It may be killed at any moment: what it has decided stands in the journal before it is done, what is done stands in the
runs' own files, and any command of ftui starts the next one.
"""

import signal
import time
from collections.abc import Sequence
from pathlib import Path

from ftui.errors import DiskError, FtuiError, HardwareError, ProfileError, UsageError
from ftui.hardware.detect import find_machine
from ftui.hardware.devices import price_of
from ftui.launch.claim_cards import device_kind
from ftui.profile.layers import resolve
from ftui.queue.queue_files import QueueFiles
from ftui.queue.wake import wake as wake_queue
from ftui.runs.status import read_status
from ftui.supervisor.engine_process import say
from ftui.sweep.promotion import Ladder, next_leader, next_promotion
from ftui.sweep.repeats import next_repeat
from ftui.sweep.samplers import AskedTrial, SearchQuestion, ask
from ftui.sweep.searchable import whole_point
from ftui.sweep.sweep_files import (
    AnySweepRecord,
    SweepEnded,
    SweepFiles,
    SweepState,
    Trial,
    TrialAsked,
    TrialPromoted,
    TrialReached,
)
from ftui.sweep.sweep_plan import SweepPlan
from ftui.sweep.trial_runs import find_outcome, find_trial_run, is_on_its_way, place
from ftui.system.files import Lock, UnsafePathError, lock_from, try_lock

TICK_SECONDS = 1.0
TROUBLE_SECONDS = 10.0  # until it tries again where the volume does not answer
MOST_FAILURES = 3  # trials that fail before any has a value: the fault is not in their values


def ladder_of(plan: SweepPlan, *, greater_is_better: bool) -> Ladder:
    """The rungs of a plan; without any there is one, wherever the profile ends."""
    rungs = plan.rungs or (0,)
    return Ladder(rungs, plan.eta, len(rungs) if plan.scheduler == "hyperband" else 1, greater_is_better)


class Controller:
    """One look after the other at the trials of a sweep. The caller holds the sweep's lock."""

    def __init__(self, files: SweepFiles) -> None:
        self._files = files
        self.plan = files.read_plan()
        self.profile = resolve(files.profile).profile
        self.ladder = ladder_of(self.plan, greater_is_better=self.profile.eval.greater_counts)
        machine = find_machine()
        device = device_kind(self.profile, machine)
        card = machine.cpu.card if device == "cpu" else machine.card
        processes = self.profile.hardware.num_processes
        self._parallel = self.plan.parallel or (max(1, len(machine.cards) // processes) if device == "cuda" else 1)
        price = price_of(card, self.profile.hardware.price_per_hour)
        self._dollars_per_second = None if price is None else price * processes / 3600

    def tick(self) -> bool:
        """Note what trials came to, send others on their way; whether there is anything left to wait for."""
        state = self._files.read()
        for trial in state.on_their_way:
            self._look_at(trial, state)
        while (record := self.decide(state := self._files.read())) is not None:
            if not self._write(record):
                continue
            if isinstance(record, SweepEnded):
                say(f"{self._files.name}: {record.reason}.")
                break
            if isinstance(record, TrialAsked | TrialPromoted):
                after = self._files.read()
                self._place(after.trials[record.trial], after)
        if QueueFiles(self._files.root).journal.exists():
            wake_queue(QueueFiles(self._files.root))
        return self._files.read().is_at_work

    def leave(self, lock: Lock) -> bool:
        """Let go of the lock, unless somebody has given the sweep more to do: nobody does in this moment."""
        with self._files.changing() as pen:
            if pen.state.is_at_work:
                return False
            lock.close()
            return True

    def decide(self, state: SweepState) -> AnySweepRecord | None:
        """What is done next: a promotion before a new trial, the leaders last; `None` where there is only waiting."""
        if state.is_paused or state.ended:
            return None
        if reason := self._why_over(state):
            return None if state.on_their_way else SweepEnded(reason=reason)
        if len(state.on_their_way) >= self._parallel:
            return None
        stands = [trial.stand for trial in state.searched]
        is_asking = len(state.searched) < self.plan.trials and not self._is_kept_for_leader(state)
        promotion = next_promotion(self.ladder, stands, is_asking=is_asking)
        if promotion is None and is_asking:
            return self._ask(state)
        if promotion is None and not state.on_their_way:
            promotion = next_leader(self.ladder, stands, wanted=max(self.plan.finish, self.plan.repeat_top))
        if promotion is not None:
            run = self._files.run_of(promotion[0].number)
            return TrialPromoted(trial=promotion[0].number, rung=promotion[1], attempts=read_status(run).state.attempt)
        if any(trial.repeat_of is None for trial in state.on_their_way):
            return None
        repeat = next_repeat(self.plan, self.ladder, state, self.profile.train.seed)
        return repeat or (None if state.on_their_way else SweepEnded(reason=self._conclusion(state)))

    def _ask(self, state: SweepState) -> AnySweepRecord | None:
        asked = [AskedTrial(trial.point, trial.stand) for trial in state.searched]
        question = SearchQuestion(self.plan.space, self.plan.seed, self.ladder, asked)
        point = ask(self.plan.sampler, question)
        if point is None:
            return None
        whole = whole_point(self.plan, self.profile, point)
        derived = {key: value for key, value in whole.items() if key not in point}
        bracket = self.ladder.bracket_of(question.number)
        return TrialAsked(trial=len(state.trials), point=point, derived=derived, bracket=bracket)

    def _look_at(self, trial: Trial, state: SweepState) -> None:
        run = find_trial_run(self._files, trial)
        if run is None:
            if trial.attempts == 0 and not trial.results:
                self._place(trial, state)
            else:
                self._end(trial, "its run was removed")
            return
        if is_on_its_way(self._files, run):
            return
        outcome = find_outcome(self.plan, self.profile, trial, run)
        if outcome is None:
            self._place(trial, state)
            return
        assert trial.target is not None
        record = TrialReached(
            trial=trial.number, rung=trial.target, step=outcome.step, value=outcome.value, seconds=outcome.seconds,
            ended=outcome.ended,
        )  # fmt: skip
        self._write(record)
        say(f"{run.name}: step {outcome.step}, {outcome.ended or outcome.value}.")

    def _place(self, trial: Trial, state: SweepState) -> None:
        """Put it into the queue; values that contradict each other end the trial, and not the sweep."""
        try:
            place(self._files, self.plan, trial, state.visible)
        except (HardwareError, ProfileError, UsageError) as error:
            self._end(trial, f"refused: {error.message}")

    def _end(self, trial: Trial, why: str) -> None:
        assert trial.target is not None
        step = max(trial.steps.values(), default=0)
        record = TrialReached(
            trial=trial.number, rung=trial.target, step=step, value=None, seconds=trial.seconds, ended=why
        )
        self._write(record)
        say(f"trial {trial.number}: {why}.")

    def _write(self, record: AnySweepRecord) -> bool:
        """Append a decision, unless somebody has paused or ended the sweep since it was made."""
        with self._files.changing() as pen:
            if (pen.state.is_paused or pen.state.ended) and not isinstance(record, TrialReached):
                return False
            pen.write(record)
            return True

    def _why_over(self, state: SweepState) -> str:
        """Why no trial is sent on its way any more, whatever there is to do."""
        if spent := self._over_budget(state.seconds):
            return f"its budget of {spent} is spent"
        failed = [trial for trial in state.trials if trial.ended and not trial.ended.endswith("by hand")]
        if len(failed) >= MOST_FAILURES and not any(v is not None for t in state.trials for v in t.results.values()):
            return f"its first {len(failed)} trials failed: {failed[-1].ended}"
        return ""

    def _is_kept_for_leader(self, state: SweepState) -> bool:
        """Whether what is left of the budget is needed to finish the best trial, so that no new one begins."""
        steps = sum(max(trial.steps.values(), default=0) for trial in state.trials)
        if not self.plan.rungs or not steps or not state.seconds:
            return False
        farthest = max((max(trial.steps.values(), default=0) for trial in state.trials if not trial.ended), default=0)
        needed = (self.plan.rungs[-1] - farthest) * state.seconds / steps
        return bool(self._over_budget(state.seconds + needed))

    def _over_budget(self, seconds: float) -> str:
        """Which part of the budget so many seconds of trials would spend, in words."""
        plan = self.plan
        if plan.hours is not None and seconds >= plan.hours * 3600:
            return f"{plan.hours:g} hours"
        cost = None if self._dollars_per_second is None else seconds * self._dollars_per_second
        return f"${plan.money:g}" if plan.money is not None and cost is not None and cost >= plan.money else ""

    def _conclusion(self, state: SweepState) -> str:
        number = len(state.searched)
        if number < self.plan.trials:
            return f"its budget is spent after {number} of {self.plan.trials} trials"
        return f"all {number} trials are done"


def main(arguments: Sequence[str]) -> int:
    """0 when there is nothing left to do, or another process already does it."""
    if len(arguments) not in (1, 2) or not all(text.isdecimal() for text in arguments[1:]):
        say("usage: python -P -m ftui.sweep FOLDER [LOCK_FD]")
        return 2
    signal.signal(signal.SIGHUP, signal.SIG_IGN)
    files = SweepFiles(Path(arguments[0]).absolute())
    try:
        lock = lock_from(int(arguments[1])) if len(arguments) == 2 else try_lock(files.lock)
        return 0 if lock is None else control(files, lock)
    except (ProfileError, UsageError) as error:
        with files.changing() as pen:  # it would fail again with every command
            pen.write(SweepEnded(reason=f"{error.message} {error.hint}".rstrip()))
        problem: FtuiError = error
    except FtuiError as error:
        problem = error
    say(f"{problem.message} {problem.hint}".rstrip())
    return problem.exit_code


def control(files: SweepFiles, lock: Lock) -> int:
    """Decide until there is nothing left to do. A full disk, or a volume that is away for a while, ends nothing.

    Raises:
        UnsafePathError: the journal is something else than a plain file.
        ProfileError, UsageError: somebody has edited the sweep's copies, or a library is missing.
    """
    controller, trouble = Controller(files), ""
    while files.plan_file.exists():
        try:
            if not controller.tick() and controller.leave(lock):
                break
            time.sleep(TICK_SECONDS)
        except UnsafePathError:
            raise
        except (OSError, DiskError) as error:
            if str(error) != trouble:
                trouble = str(error)
                say(f"{trouble}: tried again every {TROUBLE_SECONDS:.0f} s.")
            time.sleep(TROUBLE_SECONDS)
    return 0
