"""The fold: what each record does, that a resume drops what no longer counts, and that chance does not matter."""

from functools import reduce
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ftui.runs.events import (
    Answered,
    AnyRecord,
    CheckpointRejected,
    CheckpointRemoved,
    CheckpointTagged,
    CheckpointVerified,
    ControlApplied,
    ControlRefused,
    MicroBatchChanged,
    PhaseChanged,
    RankSeconds,
    RunFailed,
    RunFinished,
    RunOpened,
    RunStopped,
    Sampled,
    StageBegan,
    Warned,
)
from ftui.runs.records.record import Phase
from ftui.runs.records.rollout_records import RolloutMade
from ftui.runs.records.signs_of_life import Telemetry
from ftui.runs.records.supervisor_records import Adopted, EngineEnded, EngineStarted, Stalled
from ftui.runs.reduce import EVALUATIONS_KEPT, fold
from ftui.runs.restart_policy import may_follow
from ftui.runs.state import (
    Evaluation,
    Restart,
    RunState,
    SavedCheckpoint,
    disk_trouble,
    eta_seconds,
    has_ended,
    rank_words,
)
from tests.support.events import (
    ENGINE,
    make_checkpoint_saved,
    make_engine_ended,
    make_evaluation,
    make_restarting,
    make_run_failed,
    make_run_started,
    make_run_stopped,
    make_step,
)


def folded(*records: AnyRecord, state: RunState | None = None) -> RunState:
    return reduce(fold, records, state or RunState())


FIRST: list[AnyRecord] = [
    EngineStarted(identity=ENGINE, attempt=1),
    PhaseChanged(phase="loading", detail="the model", attempt=1),
]


def test_a_run_that_was_only_opened_is_queued() -> None:
    assert RunState().phase == "queued"
    assert RunState().exit_code is None


def test_the_start_of_an_attempt() -> None:
    assert folded(FIRST[0]).phase == "starting"
    assert folded(FIRST[0]).engine == ENGINE
    state = folded(*FIRST)
    assert (state.phase, state.detail, state.attempt) == ("loading", "the model", 1)


def test_a_step_gives_every_number() -> None:
    state = folded(*FIRST, make_run_started(time=100.0), make_step(1, time=103.0, tokens_per_second=3401.0, memory=512))
    assert (state.phase, state.step, state.max_steps, state.loss) == ("training", 1, 20, 2.5)
    assert (state.model, state.method, state.precision) == ("tiny", "lora", "fp32")
    assert (state.learning_rate, state.grad_norm, state.tokens_per_second) == (1e-4, 0.5, 3401.0)
    assert (state.memory, state.epoch, state.started, state.step_time) == (512, 0.1, 100.0, 103.0)


@pytest.mark.parametrize(
    ("passes", "data", "communication", "words"),
    [
        ([1.0, 1.5], [0.0, 0.0], [0.5, 0.0], "rank 1 slowest (+50%), 17% in communication"),
        ([1.0, 1.0, 1.0], [0.0, 1.0, 0.0], [1.0, 0.0, 1.0], "rank 1 slowest (+100%), 33% in communication"),
        ([1.0, 1.0], [0.0, 0.0], [0.0, 0.0], "rank 0 slowest (+0%), 0% in communication"),
        ([0.0, 0.0], [0.0, 0.0], [0.0, 0.0], "rank 0 slowest (+0%), 0% in communication"),
    ],
)  # fmt: skip
def test_the_slowest_rank_is_that_of_the_newest_step(
    passes: list[float], data: list[float], communication: list[float], words: str
) -> None:
    ranks = RankSeconds(passes, data, communication)
    assert rank_words(ranks) == words
    assert folded(*FIRST, make_step(1, ranks=ranks, attempt=1)).ranks == ranks


def test_the_times_of_ranks_are_means_over_the_last_steps() -> None:
    """A new attempt, or another number of ranks, begins anew."""
    slow, even = RankSeconds([1.0, 3.0], [0.0, 0.0], [2.0, 0.0]), RankSeconds([1.0, 1.0], [0.0, 0.0], [0.0, 0.0])
    steps = [make_step(n, ranks=slow if n == 2 else even, attempt=1) for n in range(1, 3)]
    ranks = folded(*FIRST, *steps).ranks
    assert ranks == RankSeconds([1.0, 1.2], [0.0, 0.0], [0.2, 0.0])
    three = RankSeconds([1.0] * 3, [0.0] * 3, [0.0] * 3)
    assert folded(*FIRST, *steps, make_step(3, ranks=three, attempt=1)).ranks == three
    later = folded(*FIRST, *steps, EngineStarted(identity=ENGINE, attempt=2), make_step(3, ranks=slow, attempt=2))
    assert later.ranks == slow


def test_time_left_is_by_the_tokens_since_the_first_step() -> None:
    state = folded(*FIRST, make_run_started(10, time=100.0, num_tokens_ahead=1000))
    assert eta_seconds(state) is None
    state = folded(make_step(11, time=110.0), state=state)
    assert eta_seconds(state) is None, "one step is no pace: it pays for kernels and the first evaluation"
    state = folded(make_evaluation(11, 1.0), make_step(12, time=140.0, num_tokens=60), state=state)
    assert eta_seconds(state) == pytest.approx((140 - 110) / 60 * (1000 - 100 - 60))
    assert eta_seconds(folded(RunStopped(step=12, reason="", exit_code=11, attempt=1), state=state)) is None


def test_time_left_of_a_run_that_does_not_tell_its_tokens_is_by_steps() -> None:
    state = folded(
        *FIRST,
        make_run_started(10, time=100.0),
        *(make_step(n, time=100.0 + 10 * n, num_tokens=n) for n in (11, 12, 13)),
    )
    assert eta_seconds(state) == 10 * 7


@pytest.mark.parametrize(("max_steps", "tokens"), [(20, 800), (30, 800 + 10 * 50), (15, 800 / 15 * 10), (5, 0)])
def test_time_left_goes_to_the_end_that_a_letter_has_set(max_steps: int, tokens: float) -> None:
    request = ControlApplied(request="x", verb="set", step=4, settings={"max_steps": max_steps}, attempt=1)
    steps = [make_step(number, time=100.0 + number, num_tokens=40) for number in range(1, 6)]
    state = folded(*FIRST, make_run_started(time=100.0, num_tokens_ahead=1000), *steps, request)
    assert eta_seconds(state) == pytest.approx(tokens / 40)


def test_time_left_ends_at_nothing() -> None:
    steps = [make_step(number, time=100.0 + number, num_tokens=number) for number in range(1, 21)]
    assert eta_seconds(folded(*FIRST, make_run_started(time=100.0, num_tokens_ahead=210), *steps)) == 0


def test_time_left_does_not_count_holds() -> None:
    def held(begin: float, end: float) -> list[AnyRecord]:
        phases: list[tuple[Phase, float]] = [("held", begin), ("training", end)]
        return [PhaseChanged(phase=phase, attempt=1, time=time) for phase, time in phases]

    begun = [*FIRST, make_run_started(time=100.0, num_tokens_ahead=2000)]
    plain = folded(*begun, make_step(1, time=110.0), make_step(2, time=120.0))
    before = folded(*begun, *held(101.0, 104.0), make_step(1, time=110.0), make_step(2, time=120.0))
    between = folded(*begun, make_step(1, time=110.0), *held(111.0, 511.0), make_step(2, time=520.0))
    assert eta_seconds(plain) == eta_seconds(before) == eta_seconds(between) == 10 / 100 * 1800
    asked = [Answered(request="", step=1, seconds=4.0, num_tokens=9, attempt=1, time=115.0 + 4 * n) for n in range(100)]
    often = folded(*begun, make_step(1, time=110.0), *asked, make_step(2, time=520.0))
    assert eta_seconds(often) == 10 / 100 * 1800, "however many answers training stood still for"


def test_time_left_is_unknown_when_the_clock_was_set_back() -> None:
    assert eta_seconds(folded(make_run_started(time=100.0), make_step(1, time=50.0))) is None


def test_evaluations_first_last_best() -> None:
    state = folded(
        *FIRST,
        make_run_started(),
        make_evaluation(0, 3.0),
        make_evaluation(5, 2.0, best=True),
        make_evaluation(10, 2.2),
    )
    assert state.first_evaluation == Evaluation(0, 3.0)
    assert state.best_evaluation == Evaluation(5, 2.0)
    assert state.last_evaluation == Evaluation(10, 2.2)


def test_evaluations_stay_few() -> None:
    state = folded(*(make_evaluation(number, 1.0, best=True) for number in range(1000)))
    assert len(state.evaluations) == len(state.bests) == EVALUATIONS_KEPT
    assert state.first_evaluation == Evaluation(0, 1.0)


def test_checkpoints_come_and_go() -> None:
    state = folded(make_checkpoint_saved(5), make_checkpoint_saved(10), make_checkpoint_saved(15))
    assert state.newest_checkpoint is not None and state.newest_checkpoint.step == 15
    rejected = CheckpointRejected(
        path="checkpoints/checkpoint-15", moved_to="checkpoints/quarantine/x", reason="damaged", attempt=1
    )
    state = folded(CheckpointRemoved(step=5, path="checkpoints/checkpoint-5", attempt=1), rejected, state=state)
    assert [checkpoint.step for checkpoint in state.checkpoints] == [10]
    assert len(folded(make_checkpoint_saved(10), state=state).checkpoints) == 1


def test_the_last_answers_before_and_after() -> None:
    state = folded(
        Sampled(step=0, prompt="a", completion="?"),
        Sampled(step=0, prompt="b", completion="??"),
        Sampled(step=10, prompt="a", completion="!"),
        Sampled(step=20, prompt="a", completion="!!"),
    )
    assert [(s.prompt, s.completion) for s in state.samples_before] == [("a", "?"), ("b", "??")]
    assert [(s.prompt, s.completion) for s in state.samples_after] == [("a", "!!")]


def test_a_resume_drops_what_came_after_its_first_step() -> None:
    lost: list[AnyRecord] = [
        make_evaluation(0, 3.0),
        make_step(5),
        make_evaluation(5, 2.0, best=True),
        make_checkpoint_saved(5),
        make_step(10),
        make_evaluation(10, 1.0, best=True),
        make_checkpoint_saved(10),
        Sampled(step=10, prompt="a", completion="!", attempt=1),
        Warned(message="hot", attempt=1),
    ]
    state = folded(*FIRST, make_run_started(), *lost, make_engine_ended(signal="SIGKILL"))
    assert (state.step, state.phase) == (10, "failed")
    state = folded(EngineStarted(identity=ENGINE, attempt=2), state=state)
    assert (state.step, state.phase, state.loss, state.exit_code, state.warning) == (10, "starting", None, None, "")
    state = folded(make_run_started(5, attempt=2, time=200.0), state=state)
    assert (state.step, state.loss, state.phase) == (5, None, "training")
    assert state.resumed_from == "checkpoints/checkpoint-5"
    assert state.best_evaluation == state.last_evaluation == Evaluation(5, 2.0)
    assert state.first_evaluation == Evaluation(0, 3.0)
    assert [checkpoint.step for checkpoint in state.checkpoints] == [5]
    assert state.samples_after == []
    again = [make_step(6, attempt=2, time=202.0), make_step(7, attempt=2, time=204.0, loss=1.5)]
    state = folded(*again, state=state)
    assert (state.step, state.loss, eta_seconds(state)) == (7, 1.5, 26.0)


def test_a_run_that_starts_over_has_no_evaluation_left() -> None:
    state = folded(make_run_started(), make_evaluation(5, 2.0, best=True), make_run_started(0, attempt=2))
    assert state.first_evaluation is state.best_evaluation is state.last_evaluation is None


def test_late_records_of_an_earlier_attempt_change_nothing() -> None:
    state = folded(make_run_started(attempt=1), make_run_started(5, attempt=2), make_step(6, attempt=2))
    late: list[AnyRecord] = [
        make_step(9),
        PhaseChanged(phase="saving", attempt=1),
        Warned(message="x", attempt=1),
        make_engine_ended(signal="SIGKILL"),
        RunFailed(message="x", hint="", exit_code=70, error="", attempt=1),
        EngineStarted(identity=ENGINE, attempt=1),
    ]
    assert folded(*late, state=state) == state


def test_the_end_the_engine_wrote() -> None:
    begun = folded(*FIRST, make_run_started(), make_step(20))
    final = RunFinished(
        step=20, reason="all steps done", final="final", loss_before=3.0, loss_final=1.0, step_final=15, attempt=1
    )
    state = folded(final, make_engine_ended(code=0), state=begun)
    assert (state.phase, state.exit_code, state.reason, state.final) == ("finished", 0, "all steps done", "final")
    assert (state.loss_before, state.loss_final, state.step_final, state.last_lines) == (3.0, 1.0, 15, [])
    assert has_ended(state)
    failed = RunFailed(message="no memory", hint="halve it", exit_code=41, error="x", attempt=1)
    state = folded(failed, make_engine_ended(code=41), state=begun)
    assert (state.phase, state.exit_code, state.message, state.hint) == ("failed", 41, "no memory", "halve it")


@pytest.mark.parametrize(
    ("code", "phase", "over"),
    [
        (10, "stopped", True),
        (11, "parked", False),
        (40, "parked", False),
        (20, "stopped", False),
        (21, "stopped", False),
    ],
)
def test_the_ways_to_stop(code: int, phase: str, over: bool) -> None:
    state = folded(*FIRST, RunStopped(step=3, reason="asked to", exit_code=code, attempt=1))
    assert (state.phase, state.exit_code, has_ended(state)) == (phase, code, over)


@pytest.mark.parametrize(
    ("ending", "trouble", "words"),
    [
        (
            make_run_stopped(40, reason="the disk stayed full for 15 min"),
            "disk full",
            "the disk stayed full for 15 min",
        ),
        (make_run_failed(40, message="no room", error="DiskFullError: no room"), "disk full", "no room"),
        (make_run_failed(40, message="bad sector", error="DiskError: bad sector"), "disk error", "bad sector"),
        (make_engine_ended(code=40), "disk error", "The disk did not take the engine's last record"),
    ],
)
def test_a_disk_parks_a_run_and_never_fails_it(ending: AnyRecord, trouble: str, words: str) -> None:
    """Whoever tells its end, and whatever the engine was able to write: no checkpoint has come to harm."""
    state = folded(*FIRST, make_checkpoint_saved(3), ending)
    assert (state.phase, state.exit_code, disk_trouble(state)) == ("parked", 40, trouble)
    assert words in state.message + state.reason
    assert not has_ended(state), "the same command continues it"
    assert not may_follow(state), "and no supervisor does before a person has made room"


@pytest.mark.parametrize(
    ("ending", "words", "code"),
    [
        (make_engine_ended(signal="SIGKILL"), "killed (SIGKILL)", 21),
        (make_engine_ended(signal="SIGTERM"), "killed (SIGTERM)", 21),
        (make_engine_ended(signal="SIGKILL", oom_kills=None), "killed (SIGKILL)", 21),
        (make_engine_ended(signal="SIGKILL", oom_kills=1), "host ran out of memory", 42),
        (make_engine_ended(code=1, oom_kills=1), "host ran out of memory", 42),
        (make_engine_ended(signal="SIGSEGV"), "crashed (SIGSEGV)", 70),
        (make_engine_ended(code=1), "exit code 1", 70),
        (make_engine_ended(code=0), "exit code 0", 70),
        (make_engine_ended(code=50), "exit code 50", 50),
        (make_engine_ended(), "its exit code is unknown", 70),
        (
            msgspec.structs.replace(
                make_engine_ended(signal="SIGKILL", oom_kills=1), engine_memory=int(11.2 * 2**30), memory_total=12 << 30
            ),
            "host ran out of memory; the engine had 11.2 GiB of 12.0 GiB",
            42,
        ),
        (msgspec.structs.replace(make_engine_ended(signal="SIGKILL"), stalled=True), "stood still", 44),
    ],
)
def test_an_engine_that_left_no_ending_failed(ending: EngineEnded, words: str, code: int) -> None:
    state = folded(*FIRST, make_run_started(), make_step(3), ending)
    assert (state.phase, state.exit_code, state.last_lines) == ("failed", code, ["the last line"])
    assert words in state.message
    assert not has_ended(state)
    assert folded(PhaseChanged(phase="saving", attempt=1), state=state).phase == "failed"


def test_the_engine_has_the_last_word_even_when_it_is_read_late() -> None:
    finished = RunFinished(step=3, reason="", final="final", attempt=1)
    assert folded(*FIRST, make_engine_ended(code=0), finished) == folded(*FIRST, finished, make_engine_ended(code=0))


def test_records_that_say_nothing_about_the_state() -> None:
    state = folded(*FIRST)
    assert folded(Telemetry(attempt=1), state=state) == state


def test_not_finite_is_not_the_same_as_not_measured() -> None:
    bad = msgspec.structs.replace(make_step(1, loss=None), non_finite=["loss"])
    assert folded(bad).non_finite == ["loss"]
    assert folded(bad, make_step(2)).non_finite == []


def test_a_restart_means_that_the_run_has_not_ended() -> None:
    failed = RunFailed(message="m", hint="h", exit_code=70, error="e", attempt=1)
    crashes: list[list[AnyRecord]] = [
        [make_engine_ended(signal="SIGSEGV"), make_restarting()],
        [failed, make_engine_ended(code=70), make_restarting()],
    ]
    for endings in crashes:
        state = folded(*FIRST, make_run_started(), make_step(3), *endings)
        assert (state.phase, state.exit_code, state.message, state.restarting) == ("starting", None, "", True)
        assert state.detail == "again in 4.0 s after a crash at step 3 (restart 1)"
        assert state.restarts == [Restart(1, 3, "SIGSEGV", 1)]
    assert folded(failed, PhaseChanged(phase="saving", attempt=1), state=state) == state
    state = folded(EngineStarted(identity=ENGINE, attempt=2), state=state)
    assert (state.restarting, state.detail, state.restarts) == (False, "", [Restart(1, 3, "SIGSEGV", 1)])


def test_an_adopted_engine_is_the_attempts_own() -> None:
    state = folded(*FIRST, Adopted(identity=ENGINE, attempt=1))
    assert (state.engine, state.phase, state.attempt) == (ENGINE, "loading", 1)


def test_a_stall_is_told_with_what_stood_still() -> None:
    stalled = Stalled(phase="training", seconds=310.0, limit_seconds=300.0, attempt=1)
    state = folded(*FIRST, stalled, msgspec.structs.replace(make_engine_ended(signal="SIGKILL"), stalled=True))
    assert state.message == "The engine was killed: training stood still for 5m 10s (limit 5m 00s)."
    assert (state.phase, state.exit_code, state.error) == ("failed", 44, "stalled")


def test_another_writer_of_the_same_attempt_is_not_believed() -> None:
    first = EngineStarted(identity=ENGINE, attempt=1, token="a")
    state = folded(first, make_run_started())
    foreign = msgspec.structs.replace(make_step(9), token="b")
    assert folded(foreign, state=state) == state
    assert folded(make_step(9), msgspec.structs.replace(make_step(10), token="a"), state=state).step == 10
    state = folded(EngineStarted(identity=ENGINE, attempt=1, token="b"), state=state)
    assert (state.token, state.phase, state.start_step) == ("b", "starting", None)
    assert folded(foreign, state=state).step == 9
    assert folded(msgspec.structs.replace(make_step(11), token="a"), state=state) == state


def test_what_letters_change() -> None:
    more = ControlApplied(request="x", verb="set", step=3, settings={"max_steps": 30.0}, attempt=1)
    state = folded(
        *FIRST, make_run_started(), more, ControlRefused(request="y", verb="pin", step=3, reason="no", attempt=1)
    )
    assert (state.max_steps, state.leaving) == (30, "")
    state = folded(ControlApplied(request="z", verb="stop", step=4, attempt=1), state=state)
    assert state.leaving == "stop"
    assert folded(EngineStarted(identity=ENGINE, attempt=2), state=state).leaving == ""


def test_how_long_a_run_is_held() -> None:
    held = [PhaseChanged(phase="held", attempt=1, time=9.0), PhaseChanged(phase="held", detail="x", attempt=1, time=11)]
    state = folded(*FIRST, make_run_started(), *held)
    assert (state.phase, state.paused_since) == ("held", 9.0)
    assert folded(PhaseChanged(phase="training", attempt=1), state=state).paused_since is None
    assert folded(make_engine_ended(signal="SIGKILL"), state=state).paused_since is None


def test_the_badge_is_that_of_the_newest_attempt() -> None:
    resumed = msgspec.structs.replace(
        make_run_started(5, attempt=2), reproducibility="NOT EXACT", reproducibility_reasons=["another GPU"]
    )
    state = folded(*FIRST, make_run_started(), resumed)
    assert (state.reproducibility, state.reproducibility_reasons) == ("NOT EXACT", ["another GPU"])
    assert folded(EngineStarted(identity=ENGINE, attempt=3), state=state).reproducibility is None


def test_a_smaller_micro_batch_holds_on() -> None:
    smaller = MicroBatchChanged(step=4, old=8, new=4, place="backward", attempt=1)
    state = folded(*FIRST, make_run_started(), smaller, EngineStarted(identity=ENGINE, attempt=2))
    assert (state.micro_batch, state.micro_batch_step) == (4, 4)


def test_tags_and_verification_of_checkpoints() -> None:
    news: list[AnyRecord] = [CheckpointTagged(step=5, tag="best", attempt=1), CheckpointVerified(step=5, attempt=1)]
    state = folded(make_checkpoint_saved(5), make_checkpoint_saved(10), *news, news[0])
    assert state.checkpoints[0] == SavedCheckpoint(5, "checkpoints/checkpoint-5", ["periodic", "best"], True)
    assert not state.checkpoints[1].verified and state.has_verified
    assert not folded(EngineStarted(identity=ENGINE, attempt=2), state=state).has_verified


PLANNED, EXTRA = make_evaluation(5, 2.0, best=True), make_evaluation(5, 2.0, requested=True)


@pytest.mark.parametrize(
    ("records", "last", "is_extra"),
    [
        ([make_evaluation(3, 2.5), EXTRA], 5, True),
        ([EXTRA], 5, True),
        ([PLANNED, EXTRA], 5, False),
        ([EXTRA, PLANNED], 5, False),
        ([PLANNED, make_evaluation(7, 0.1, requested=True), make_evaluation(9, 3.0)], 9, False),
        ([PLANNED, make_evaluation(7, 0.1, requested=True), make_run_started(6, attempt=2)], 5, False),
        ([PLANNED, make_evaluation(7, float("nan"), requested=True, non_finite=["loss"])], 7, True),
    ],
)  # fmt: skip
def test_an_extra_evaluation_counts_as_the_last_only(records: list[AnyRecord], last: int, is_extra: bool) -> None:
    state = folded(*FIRST, *records)
    assert state.last_evaluation is not None and state.best_evaluation in (None, Evaluation(5, 2.0))
    assert (state.last_evaluation.step, state.last_evaluation.requested) == (last, is_extra)
    assert state.first_evaluation is None or not state.first_evaluation.requested
    assert len({evaluation.step for evaluation in state.evaluations}) == len(state.evaluations)


def test_an_evaluation_without_a_number_is_none() -> None:
    too_large = make_evaluation(9, None, requested=True)
    assert folded(*FIRST, PLANNED, too_large) == folded(*FIRST, PLANNED)


def test_extra_samples_stand_beside_the_plan() -> None:
    begun = folded(*FIRST)
    answer = Sampled(step=5, prompt="a", completion="!", requested=True, attempt=1)
    assert folded(answer, state=begun) == begun


@st.composite
def histories(draw: Any) -> tuple[list[AnyRecord], list[AnyRecord], list[AnyRecord]]:
    """What journal, metrics and supervisor file hold after a few attempts that were killed, stopped or finished."""
    journal: list[AnyRecord] = []
    metrics: list[AnyRecord] = []
    supervisor: list[AnyRecord] = []
    checkpoints = [0]
    for attempt in range(1, draw(st.integers(1, 4)) + 1):
        clock = 1000.0 * attempt
        supervisor.append(EngineStarted(identity=ENGINE, attempt=attempt, time=clock))
        if draw(st.booleans()):
            opened = RunOpened(
                host="pod", device="cpu", driver=None, versions={}, num_threads=1, world_size=1, identity=ENGINE
            )
            journal.append(msgspec.structs.replace(opened, attempt=attempt))
            journal.append(PhaseChanged(phase="loading", attempt=attempt))
        if draw(st.booleans()):
            start = draw(st.sampled_from(checkpoints))
            checkpoints = [c for c in checkpoints if c <= start]
            journal.append(make_run_started(start, attempt=attempt, time=clock))
            for number in range(start + 1, start + draw(st.integers(0, 5)) + 1):
                metrics.append(make_step(number, attempt=attempt, time=clock + number, loss=draw(st.floats(0, 9))))
                if draw(st.booleans()):
                    journal.append(
                        make_evaluation(number, draw(st.floats(0, 9)), best=draw(st.booleans()), attempt=attempt)
                    )
                if draw(st.booleans()):
                    journal.append(make_checkpoint_saved(number, attempt=attempt))
                    checkpoints.append(number)
                    journal.append(CheckpointTagged(step=number, tag="best", attempt=attempt))
                    journal.append(CheckpointVerified(step=number, attempt=attempt))
                if draw(st.booleans()):
                    journal += controlled(number, attempt, draw(st.sampled_from(["hold", "set", "stop"])))
        if draw(st.booleans()):
            supervisor.append(Adopted(identity=ENGINE, attempt=attempt))
        match draw(st.sampled_from(["killed", "parked", "failed", "running", "crashed", "stalled"])):
            case "killed":
                supervisor.append(make_engine_ended(attempt=attempt, signal="SIGKILL"))
            case "parked":
                journal.append(RunStopped(step=1, reason="asked to", exit_code=11, attempt=attempt))
                supervisor.append(make_engine_ended(attempt=attempt, code=11))
            case "failed":
                journal.append(RunFailed(message="m", hint="h", exit_code=31, error="e", attempt=attempt))
            case "crashed":
                journal.append(RunFailed(message="m", hint="h", exit_code=70, error="e", attempt=attempt))
                supervisor += [
                    make_engine_ended(attempt=attempt, code=70),
                    make_restarting(attempt=attempt, number=attempt),
                ]
            case "stalled":
                supervisor.append(Stalled(phase="training", seconds=9.0, limit_seconds=8.0, attempt=attempt))
                last = msgspec.structs.replace(make_engine_ended(attempt=attempt, signal="SIGKILL"), stalled=True)
                supervisor += [last, make_restarting(attempt=attempt)] if draw(st.booleans()) else [last]
    stamped = [[_signed(record) for record in stream] for stream in (journal, metrics, supervisor)]
    return stamped[0], stamped[1], stamped[2]


def _signed(record: AnyRecord) -> AnyRecord:
    return msgspec.structs.replace(record, token=f"token of {record.attempt}")


def controlled(number: int, attempt: int, verb: str) -> list[AnyRecord]:
    """What a request or running out of memory leaves in the journal."""
    settings = {"max_steps": 20.0 + number} if verb == "set" else {}
    return [
        ControlApplied(request="x", verb=verb, step=number, settings=settings, attempt=attempt),
        PhaseChanged(phase="held" if verb == "hold" else "training", attempt=attempt, time=float(number)),
        MicroBatchChanged(step=number, old=8, new=4, place="backward", attempt=attempt),
    ]


@given(histories(), st.randoms())
def test_folding_does_not_depend_on_how_the_streams_are_batched(
    streams: tuple[list[AnyRecord], list[AnyRecord], list[AnyRecord]], chance: Any
) -> None:
    journal, metrics, supervisor = streams
    expected = folded(*supervisor, *journal, *metrics)
    assert folded(*metrics, *journal, *supervisor) == expected
    left = [list(stream) for stream in streams]
    mixed: list[AnyRecord] = []
    while remaining := [stream for stream in left if stream]:
        stream = chance.choice(remaining)
        for _ in range(chance.randint(1, len(stream))):
            mixed.append(stream.pop(0))
    assert folded(*mixed) == expected


def test_an_attempt_is_told_its_stage_again() -> None:
    state = folded(make_run_started(), StageBegan(step=5, number=2, of=3, words="all rows", attempt=1))
    assert state.stage == "2/3"
    assert folded(PhaseChanged(phase="starting", attempt=2), state=state).stage == ""


def test_the_time_left_of_a_run_that_samples_its_answers_is_that_of_whole_rollouts() -> None:
    """Three steps share a rollout, which takes 40 s and each step 5 s: 55 s for three steps, 2 s paused beside it."""

    def rollout(number: int, time: float) -> RolloutMade:
        return RolloutMade(
            number=number, step=3 * number, hash="", weights="", rewards="", num_answers=8, num_tokens=80, reward=0.5,
            generation_seconds=38.0, scoring_seconds=2.0, attempt=1, time=time,
        )  # fmt: skip

    begun = folded(*FIRST, make_run_started(time=100.0, max_steps=30), rollout(0, 140.0))
    steps = [make_step(n, time=140.0 + 5 * n) for n in (1, 2, 3)]
    state = folded(*steps, state=begun)
    assert eta_seconds(state) is None, "steps alone do not tell what the next rollout takes"
    pause = PhaseChanged(phase="held", attempt=1, time=160.0), PhaseChanged(phase="generating", attempt=1, time=162.0)
    state = folded(*pause, rollout(1, 197.0), state=state)
    assert eta_seconds(state) == pytest.approx(8 * 40 + 27 * 5), "eight more rollouts, and the steps on nine"
    state = folded(make_step(4, time=202.0), state=state)
    assert eta_seconds(state) == pytest.approx(8 * 40 + 26 * 5)
    ninth = 142 + 9 * 55.0
    last = folded(rollout(9, ninth), *(make_step(27 + n, time=ninth + 5 * n) for n in (1, 2)), state=state)
    assert eta_seconds(last) == pytest.approx(5), "no rollout is made after the last step"
