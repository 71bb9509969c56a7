"""The words a follower prints, from recorded records: pure functions, no process."""

from functools import reduce
from pathlib import Path
from typing import Any

import msgspec
import pytest

from ftui.cli.follow import news
from ftui.runs import describe
from ftui.runs.events import (
    AnyRecord,
    CheckpointRejected,
    CheckpointSaved,
    ControlApplied,
    ControlRefused,
    EvaluationDone,
    MicroBatchChanged,
    Noted,
    PhaseChanged,
    RunFailed,
    RunStopped,
    Sampled,
    StageBegan,
    Warned,
)
from ftui.runs.records import record_lines, result_lines
from ftui.runs.records.supervisor_records import Adopted, EngineEnded, Restarting, Stalled
from ftui.runs.reduce import fold
from ftui.runs.requests import ControlRequest
from ftui.runs.run_folder import Run
from ftui.runs.state import RunState
from ftui.runs.verbs import CHECKPOINT_VERBS, RUN_VERBS
from ftui.system.process_id import Identity
from tests.support.events import make_evaluation, make_run_finished, make_run_started, make_step

RUN = Run(Path("/runs/mine"))
PLAN: dict[str, Any] = {
    "max_steps": 400, "steps_per_epoch": 100, "effective_batch": 8, "num_train_rows": 800, "num_train_tokens": 123_456,
    "num_target_tokens": 65_432, "num_eval_rows": 80, "total_parameters": 135_000_000,
    "trainable_parameters": 1_200_000, "model": "tiny\x1b[31m", "precision": "bf16", "time": 100.0,
}  # fmt: skip


def state_of(*records: AnyRecord) -> RunState:
    return reduce(fold, records, RunState())


def test_before_training_the_phase_is_shown() -> None:
    assert describe.progress(RunState()) == "queued"
    state = state_of(PhaseChanged(phase="preparing", detail="1,200 of 5,000 rows\x1b", attempt=1))
    assert describe.progress(state) == "preparing · 1,200 of 5,000 rows\u241b"


def test_the_progress_line() -> None:
    state = state_of(make_run_started(**PLAN), make_step(1, time=101.0), make_step(120, loss=2.345, time=220.0))
    assert describe.progress(state) == "step 120/400 · train loss 2.3450 · 3400 tokens/s · 512.0 MiB · ETA 4m 40s"
    evaluating = fold(state, PhaseChanged(phase="evaluating", attempt=1))
    assert describe.progress(evaluating) == "step 120/400 · train loss 2.3450 · 3400 tokens/s · 512.0 MiB · evaluating"


COMPARED = {"rewards/accuracies": 0.9375, "rewards/margins": 0.0123, "rewards/chosen": -0.4, "kl": None}
TOKENS = {"mean_token_accuracy": 0.5, "perplexity": 8.25}


def test_measures_stand_beside_the_loss() -> None:
    state = state_of(make_run_started(**PLAN), step := make_step(120, extras=COMPARED))
    assert "train loss 2.5000 · accuracy 0.94 · margin 0.012 · kl n/a · 3400" in describe.progress(state)
    (line,) = record_lines.step_lines(step, state, 10)
    assert "accuracy 0.94 margin 0.012 kl n/a 3400 tok/s" in line and "lr" not in line
    (plain,) = record_lines.step_lines(make_step(120, extras=TOKENS), state, 10)
    assert "lr" in plain and "accuracy" not in plain, "the line of a step has 80 columns"
    evaluation = make_evaluation(100, 2.25, extras=TOKENS)
    assert record_lines.event_lines(evaluation) == [
        "evaluation at step 100: loss 2.2500, accuracy 0.50, perplexity 8.25"
    ]
    assert record_lines.event_lines(Noted(message="odd,\nand usual")) == ["note: odd,", "  and usual"]


def test_the_end_compares_measures_with_the_beginning() -> None:
    first, best, last = ({"rewards/accuracies": value, "rewards/margins": value} for value in (0.0, 0.75, 0.5))
    evaluations = [
        make_evaluation(0, 0.69, extras=first),
        make_evaluation(200, 0.4, best=True, extras=best),
        make_evaluation(400, 0.5, extras=last),
    ]
    state = state_of(make_run_started(**PLAN), *evaluations, make_run_finished(400, step_final=200))
    assert result_lines.measures_before_and_after(state) == ["accuracy 0.00 -> 0.75", "margin 0.00 -> 0.75"]
    alone = state_of(make_run_started(**PLAN), evaluations[-1], make_run_finished(400, step_final=200))
    assert result_lines.measures_before_and_after(alone) == []


def test_nothing_that_was_not_measured_is_shown() -> None:
    assert describe.progress(state_of(make_run_started(20, **PLAN))) == "step 20/400"
    bad = msgspec.structs.replace(make_step(1, loss=None), non_finite=["loss"], memory=None)
    progress = describe.progress(state_of(make_run_started(**PLAN), bad))
    assert progress == "step 1/400 · train loss not finite · 3400 tokens/s"


@pytest.mark.parametrize(
    ("record", "lines"),
    [
        (
            EvaluationDone(step=100, epoch=1.0, loss=2.3, num_target_tokens=1, seconds=1.0, best=True),
            ["evaluation at step 100: loss 2.3000 (best so far)"],
        ),
        (
            EvaluationDone(
                step=100, epoch=1.0, loss=None, num_target_tokens=1, seconds=1.0, best=False, non_finite=["loss"]
            ),
            ["evaluation at step 100: loss not finite"],
        ),
        (
            EvaluationDone(step=9, epoch=1.0, loss=2.3, num_target_tokens=1, seconds=1.0, best=False, requested=True),
            [],
        ),
        (
            ControlApplied(request="x", verb="evaluate", step=9, detail="loss 2.3000"),
            ["extra evaluation at step 9: loss 2.3000"],
        ),
        (
            CheckpointSaved(step=5, path="checkpoints/checkpoint-5", tags=[], num_bytes=3 << 20, seconds=0.25),
            ["checkpoint at step 5 saved (3.0 MiB in 0.2 s)"],
        ),
        (
            CheckpointRejected(path="checkpoints/checkpoint-5", moved_to="q", reason="a file is missing"),
            ["checkpoints/checkpoint-5 is damaged (a file is missing): moved to q"],
        ),
        (Warned(message="hot\x1b[0m"), ["warning: hot\u241b[0m"]),
        (Warned(message="spoilt:\n85 of 91"), ["warning: spoilt:", "  85 of 91"]),
        (Sampled(step=0, prompt="Why?\n", completion="\u202eno"), ["sample at step 0: Why?\u240a -> \\u202eno"]),
        (ControlApplied(request="x", verb="hold", step=12), ["paused at step 12"]),
        (
            ControlApplied(request="x", verb="set", step=12, settings={"learning_rate_factor": 0.5, "max_steps": 30}),
            ["set at step 12: learning_rate_factor = 0.5, max_steps = 30"],
        ),
        (ControlApplied(request="x", verb="new\x1b", step=1, detail="d\x1b"), ["new\u241b at step 1: d\u241b"]),
        (ControlRefused(request="x", verb="pin", step=3, reason="no\x1b"), ["pin refused at step 3: no\u241b"]),
        (ControlRefused(request="x", verb="hold", step=3, reason="no"), ["pause refused at step 3: no"]),
        (
            MicroBatchChanged(step=7, old=2, new=1, place="backward"),
            ["memory ran out in step 7 (backward): micro-batches from 2 to 1 row"],
        ),
        (
            Restarting(step=7, error="SIGSEGV", number=2, pause_seconds=2.0),
            ["crashed at step 7 (SIGSEGV): again in 2.0 s (restart 2)"],
        ),
        (
            Stalled(phase="loading", seconds=70.0, limit_seconds=60.0),
            ["loading stood still for 1m 10s (limit 1m 00s): the engine is killed"],
        ),
        (Adopted(identity=Identity("", "", 7, "")), ["a new supervisor watches the engine (process 7)"]),
        (StageBegan(step=11, number=2, of=3, words="all\x1b"), ["stage 2 of 3 from step 11 on: all\u241b"]),
        (PhaseChanged(phase="loading"), []),
        (make_run_finished(400, reason="all 400 steps are done"), []),
    ],
)
def test_events_in_words(record: AnyRecord, lines: list[str]) -> None:
    assert record_lines.event_lines(record) == lines


def test_the_plan_and_where_it_goes_on() -> None:
    lines = record_lines.event_lines(make_run_started(120, **PLAN))
    assert lines[0] == "tiny\u241b[31m · lora · bf16 · 1.20 M of 135.00 M parameters trained"
    assert "123.5 k tokens · 65.4 k target tokens" in lines[1]
    assert lines[2].startswith("400 steps") and lines[2].endswith("8 sequences a step")
    assert lines[3] == "resumed from checkpoints/checkpoint-120 at step 120"
    assert len(record_lines.event_lines(make_run_started(**PLAN))) == 3
    assert max(map(len, lines)) <= 80
    staged = record_lines.event_lines(msgspec.structs.replace(make_run_started(**PLAN), stages=[1, 11]))
    assert "target tokens in a mean epoch" in staged[1] and "a mean epoch" in staged[2]
    assert not any("mean" in line for line in lines)


def test_a_step_that_was_not_applied_is_told() -> None:
    bad = msgspec.structs.replace(make_step(3, loss=None, applied=False), non_finite=["loss", "grad_norm"])
    assert record_lines.event_lines(bad) == ["step 3: loss and grad_norm not finite, the step was not applied"]


def test_without_a_terminal_a_line_is_printed_every_few_steps() -> None:
    printed: list[str] = []
    state = state_of(make_run_started(**PLAN))
    steps = [make_step(number, time=100.0 + number) for number in range(381, 401)]
    records: list[AnyRecord] = [*steps, PhaseChanged(phase="saving", attempt=1)]
    for record in records:
        state = fold(state, record)
        printed += news(record, state, live=False, logging_steps=7)
    first_words = [line.split(" · ")[0] for line in printed]
    assert first_words == ["step 385/400", "step 392/400", "step 399/400", "step 400/400", "saving"]


def test_on_a_terminal_steps_and_phases_are_drawn_not_printed() -> None:
    state = state_of(make_run_started(**PLAN), step := make_step(10))
    assert news(step, state, live=True, logging_steps=1) == []
    assert news(PhaseChanged(phase="saving", attempt=1), state, live=True, logging_steps=1) == []
    assert news(Warned(message="x", attempt=1), state, live=True, logging_steps=1) == ["warning: x"]


def test_the_history_of_a_run_in_one_line() -> None:
    state = state_of(
        make_run_started(**PLAN),
        make_step(120),
        EvaluationDone(step=100, epoch=1.0, loss=2.3, num_target_tokens=1, seconds=1.0, best=True, attempt=1),
        CheckpointSaved(step=100, path="checkpoints/checkpoint-100", tags=[], num_bytes=1, seconds=1.0, attempt=1),
    )
    assert describe.history(state) == (
        "training · step 120/400 · evaluation loss 2.3000 at step 100 · checkpoint at step 100"
    )


def test_the_summary_of_a_finished_run() -> None:
    state = state_of(
        make_run_started(**PLAN),
        Sampled(step=0, prompt="Why?", completion="\x1b", attempt=1),
        make_step(400),
        Sampled(step=400, prompt="Why?", completion="Because.", attempt=1),
        make_run_finished(400, reason="all 400 steps are done", loss_before=3.21, loss_final=1.5, step_final=380),
    )
    assert result_lines.summary(RUN, state, learning_rate=1e-4) == [
        "mine finished at step 400/400: all 400 steps are done",
        "  result      /runs/mine/final",
        "  evaluation  loss 3.2100 at step 0 -> 1.5000 in final/ (step 380)",
        "  question    Why?",
        "    before    \u241b",
        "    after     Because.",
        "  use it",
        "    from peft import AutoPeftModelForCausalLM",
        "    model = AutoPeftModelForCausalLM.from_pretrained('/runs/mine/final')",
    ]


def test_a_model_trained_whole_is_loaded_with_transformers() -> None:
    state = state_of(
        msgspec.structs.replace(make_run_started(**PLAN), method="full"),
        make_run_finished(400, reason="all 400 steps are done"),
    )
    lines = result_lines.summary(RUN, state, learning_rate=1e-4)
    assert "    from transformers import AutoModelForCausalLM" in lines
    assert not any("evaluation" in line for line in lines)


@pytest.mark.parametrize(
    ("method", "library", "auto"),
    [
        ("qlora", "peft", "AutoPeftModelForSequenceClassification"),
        ("freeze", "transformers", "AutoModelForSequenceClassification"),
    ],
)
def test_a_reward_model_is_loaded_as_one(method: str, library: str, auto: str) -> None:
    started = msgspec.structs.replace(make_run_started(**PLAN), method=method)
    state = state_of(started, make_run_finished(400, reason="all 400 steps are done"))
    lines = result_lines.summary(RUN, state, learning_rate=1e-4, gives_scores=True)
    assert lines[-2] == f"    from {library} import {auto}"
    assert lines[-1] == f"    model = {auto}.from_pretrained('/runs/mine/final', num_labels=1)"


@pytest.mark.parametrize(
    ("before", "after", "rate", "words"),
    [
        (2.0, 2.0, 0.0, "loss 2.0000, unchanged: the learning rate is 0"),
        (2.0, 2.0, 1e-4, "loss 2.0000 at step 0 -> 2.0000 in final/ (step 5)"),
        (2.0, 1.0, 0.0, "loss 2.0000 at step 0 -> 1.0000 in final/ (step 5)"),
        (None, 1.0, 1e-4, "loss 1.0000 in final/"),
        (2.0, None, 1e-4, None),
    ],
)
def test_losses_before_and_after(before: float | None, after: float | None, rate: float, words: str | None) -> None:
    state = RunState(loss_before=before, loss_final=after, step_final=5)
    assert result_lines.losses(state, rate) == words


def test_a_run_that_was_preempted_says_how_to_go_on() -> None:
    state = state_of(
        make_run_started(100, **PLAN),
        CheckpointSaved(step=100, path="checkpoints/checkpoint-100", tags=[], num_bytes=1, seconds=1.0, attempt=1),
        RunStopped(step=100, reason="pre-empted (SIGTERM)", exit_code=20, attempt=1),
    )
    assert result_lines.summary(RUN, state, learning_rate=1e-4) == [
        "mine stopped at step 100/400: pre-empted (SIGTERM)",
        "  checkpoint  /runs/mine/checkpoints/checkpoint-100",
        "  continue    the same command",
    ]


def test_a_run_that_was_stopped_before_it_trained_names_no_step() -> None:
    state = state_of(RunStopped(step=0, reason="pre-empted (SIGTERM) before training", exit_code=21, attempt=1))
    assert (
        result_lines.summary(RUN, state, learning_rate=1e-4)[0] == "mine stopped: pre-empted (SIGTERM) before training"
    )


def test_failures_in_words() -> None:
    told = RunFailed(message="no such file: x\x1b", hint="write it", exit_code=31, error="", attempt=1)
    assert result_lines.failure(RUN, state_of(told)) == "error: mine: no such file: x\u241b\n  hint: write it"
    killed = EngineEnded(code=None, signal="SIGKILL", oom_kills=1, last_lines=["a\x1b", "b"], attempt=1)
    text = result_lines.failure(RUN, state_of(killed))
    assert "killed (SIGKILL): the host ran out of memory" in text
    assert text.endswith("the engine's last lines:\n  a\u241b\n  b")
    assert "without writing why" in result_lines.failure(RUN, RunState(phase="lost"))


def test_a_resumed_run_says_how_surely_it_is_the_same() -> None:
    exact = msgspec.structs.replace(make_run_started(8, **PLAN), reproducibility="EXACT", reproducibility_reasons=[])
    assert record_lines.event_lines(exact)[3:] == ["resumed from checkpoints/checkpoint-8 at step 8 · EXACT"]
    other = msgspec.structs.replace(
        make_run_started(8, **PLAN),
        reproducibility="NOT EXACT",
        reproducibility_reasons=["another GPU\x1b", "2 threads, not 4"],
    )
    assert record_lines.event_lines(other)[3:] == [
        "resumed from checkpoints/checkpoint-8 at step 8 · NOT EXACT",
        "  because another GPU\u241b; 2 threads, not 4",
    ]
    assert describe.reproducibility(state_of(other)) == "NOT EXACT (another GPU\u241b; 2 threads, not 4)"
    assert describe.reproducibility(state_of(make_run_started(**PLAN))) is None


def test_what_restarts_came_to() -> None:
    crash = EngineEnded(code=1, signal=None, oom_kills=0, last_lines=[], attempt=1)
    again = Restarting(step=7, error="exit code 1", number=1, pause_seconds=1.0, attempt=1)
    state = state_of(crash, again)
    assert describe.progress(state) == "starting · again in 1.0 s after a crash at step 7 (restart 1)"
    lost = msgspec.structs.replace(state, phase="lost")
    assert "crashed at step 7, and its supervisor was ended" in result_lines.failure(RUN, lost)
    failed = state_of(crash, again, msgspec.structs.replace(crash, attempt=2))
    assert "It had been started again once; the crash before, at step 7: exit code 1" in result_lines.failure(
        RUN, failed
    )


def test_a_run_parked_for_want_of_room_says_so() -> None:
    state = state_of(RunStopped(step=3, reason="the disk is full", exit_code=40, attempt=1))
    assert describe.phase(state) == "parked · disk full"


def test_the_micro_batch_is_named_with_the_step_it_began_at() -> None:
    assert describe.micro_batch(RunState()) is None
    state = state_of(MicroBatchChanged(step=7, old=8, new=4, place="backward", attempt=1))
    assert describe.micro_batch(state) == "4 rows from step 7 on (memory ran out)"


@pytest.mark.parametrize("kind", ControlRequest.__subclasses__())
def test_a_request_is_called_by_the_command_that_sends_it(kind: type[ControlRequest]) -> None:
    """In the event of a refusal, whatever the verb in the run's files is."""
    record = ControlRefused(request="x", verb=str(kind.__struct_config__.tag), step=3, reason="no")
    (line,) = record_lines.event_lines(record)
    assert line.split()[0] in {*RUN_VERBS, *CHECKPOINT_VERBS, "set", "ask"} - {"hold"}, line
