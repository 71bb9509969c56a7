"""Decides what a sweep tries next (`python -P -m ftui.sweep FOLDER [LOCK_FD]`), and ends when nothing is left to do.

It may be killed at any moment: what it has decided stands in the journal before it is done, what is done stands in the
runs' own files, and any command of ftui starts the next one.
"""

import signal
import time
from collections.abc import Collection, Sequence
from pathlib import Path

from ftui.errors import DiskError, FtuiError, HardwareError, ProfileError, UsageError
from ftui.hardware.detect import find_machine
from ftui.hardware.devices import Card, price_of
from ftui.profile.schema import Profile
from ftui.queue.queue_files import QueueFiles
from ftui.queue.wake import wake as wake_queue
from ftui.runs.run_folder import Run
from ftui.runs.status import is_running, read_status
from ftui.supervisor.engine_process import say
from ftui.sweep.executors.executor import ExecutorError, make_executor, read_profile
from ftui.sweep.executors.run_settings import RunSettings, card_of, settings_of
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
    TrialSent,
)
from ftui.sweep.sweep_plan import SweepPlan
from ftui.sweep.trial_runs import find_outcome, find_trial_run, prepare
from ftui.system.files import Lock, UnsafePathError, is_locked, lock_from, try_lock

TICK_SECONDS = 1.0
TROUBLE_SECONDS = 10.0  # until it tries again where the volume does not answer
MOST_SENT = 5  # times in a row that a cluster was asked for a trial which came no further
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
        self.profile = read_profile(files)
        self.ladder = ladder_of(self.plan, greater_is_better=self.profile.resolved_eval.greater_counts)
        state = files.read()
        settings = settings_of(self.plan.run, state.executor)
        self._executor = make_executor(files, settings, state.visible)
        self._card = known_card(settings, self.profile)
        hardware = self.profile.hardware
        price = hardware.price_per_hour if self._card is None else price_of(self._card, hardware.price_per_hour)
        self._dollars_per_second = None if price is None else price * settings.num_paid(self.profile) / 3600

    def tick(self) -> bool:
        """Note what trials came to, send others on their way; whether there is anything left to wait for."""
        state = self._files.read()
        if state.ended:  # stopped: what is parked by that goes on when the sweep does
            self._executor.withdraw()
            return False
        sent = self._executor.find_sent()  # before the runs are looked at: what is there then has not ended since
        due = [trial.number for trial in state.on_their_way if self._look_at(trial, sent)]
        while (record := self.decide(state := self._files.read())) is not None:
            if not self._write(record):
                continue
            if isinstance(record, SweepEnded):
                say(f"{self._files.name}: {record.reason}.")
                break
            if isinstance(record, TrialAsked | TrialPromoted):
                trial = self._files.read().trials[record.trial]
                due += [trial.number] if self._prepare(trial) else []
        self._send(due)
        if QueueFiles(self._files.root).journal.exists():
            wake_queue(QueueFiles(self._files.root))
        return self._files.read().is_at_work

    def check(self) -> None:
        """See that trials can be started from here. Raises ExecutorError."""
        self._executor.check(self.profile)

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
        if len(state.on_their_way) >= (self.plan.parallel or self._executor.num_parallel(self.profile)):
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

    def _look_at(self, trial: Trial, sent: Collection[int]) -> bool:
        """Note what a trial came to; whether it is to be sent (again)."""
        run = find_trial_run(self._files, trial)
        if run is None:
            if trial.attempts == 0 and not trial.results:
                return self._prepare(trial)
            self._end(trial, "its run was removed")
            return False
        if trial.number in sent or is_worked_on(run):
            return False
        outcome = find_outcome(self.plan, self.profile, trial, run, is_local=self._executor.is_local)
        if outcome is None:
            return not self._is_given_up(trial, run) and self._prepare(trial)
        assert trial.target is not None
        record = TrialReached(
            trial=trial.number, rung=trial.target, step=outcome.step, value=outcome.value, seconds=outcome.seconds,
            ended=outcome.ended,
        )  # fmt: skip
        self._write(record)
        say(f"{run.name}: step {outcome.step}, {outcome.ended or outcome.value}.")
        return False

    def _is_given_up(self, trial: Trial, run: Run) -> bool:
        """End a trial that a cluster was asked for again and again without its coming further; whether it is one."""
        if trial.sent is None or trial.num_sent < MOST_SENT or read_status(run).state.step > trial.sent.step:
            return False
        why = self._executor.explain(trial.number, trial.sent.job)
        self._end(trial, f"sent {trial.num_sent} times, and came no further{f': {why}' if why else ''}")
        return True

    def _prepare(self, trial: Trial) -> bool:
        """Whether its run can be sent; values that contradict each other end the trial, and not the sweep."""
        try:
            return prepare(self._files, self.plan, trial, self._card)
        except (HardwareError, ProfileError, UsageError) as error:
            self._end(trial, f"refused: {error.message}")
            return False

    def _send(self, due: Sequence[int]) -> None:
        if not due:
            return
        job = self._executor.send(due)
        for number in () if self._executor.is_local else due:
            step = read_status(self._files.run_of(number)).state.step
            self._write(TrialSent(trial=number, job=job, step=step))

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
            if (pen.state.is_paused or pen.state.ended) and not isinstance(record, TrialReached | TrialSent):
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


def known_card(settings: RunSettings, profile: Profile) -> Card | None:
    """What a trial is for; `None` where the start of the sweep knew it, and was given on another machine."""
    try:
        return card_of(settings, profile, find_machine())[1]
    except UsageError:
        return None


def is_worked_on(run: Run) -> bool:
    """Whether somebody works on a run: here, on another machine, or in this moment."""
    status = read_status(run)
    return is_running(status) or status.elsewhere or is_locked(run.supervisor_lock)


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
        ExecutorError: this machine has no part in the cluster; the next command may be given on another.
    """
    controller, trouble = Controller(files), ""
    controller.check()
    while files.plan_file.exists():
        try:
            if not controller.tick() and controller.leave(lock):
                break
            time.sleep(TICK_SECONDS)
        except UnsafePathError:
            raise
        except (OSError, DiskError, ExecutorError) as error:
            if str(error) != trouble:
                trouble = str(error)
                say(f"{trouble}: tried again every {TROUBLE_SECONDS:.0f} s.")
            time.sleep(TROUBLE_SECONDS)
    return 0
