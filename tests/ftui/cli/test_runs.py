import json
import time
from typing import Any

import pytest

from ftui.cli import runs
from ftui.cli.runs import print_runs, print_status
from ftui.cli.terminal import table
from ftui.runs.events import RankSeconds, RunFailed
from ftui.runs.records.supervisor_records import EngineStarted
from ftui.runs.run_folder import Run
from ftui.runs.state import Alarm, Evaluation, RunState
from ftui.runs.status import Status
from ftui.system.process_id import Identity
from ftui.text import cells
from tests.support.events import make_run_started, make_step


@pytest.fixture
def run(make_run: Any, append: Any, living: Identity) -> Run:
    made: Run = make_run("mine", created=time.time() - 7200)
    append(made.supervisor_log, EngineStarted(identity=living), attempt=1)
    plan = make_run_started(max_steps=400, model="tiny\x1b")
    append(made.journal, plan, attempt=1)
    append(made.metrics, make_step(120, loss=2.345))
    return made


def test_the_table_of_runs_fits_80_columns(run: Run, make_run: Any, capsys: pytest.CaptureFixture[str]) -> None:
    make_run("a" * 64, created=0.0)
    make_run("broken").facts.write_bytes(b"{")
    assert print_runs() == 0
    heading, *rows = capsys.readouterr().out.splitlines()
    assert heading.split() == ["run", "phase", "step", "train", "loss", "eval", "loss", "tokens/s", "age"]
    assert all(cells(line) <= 80 for line in [heading, *rows])
    assert rows[1].startswith("aaaa") and "…" in rows[1] and "lost" in rows[1]
    assert rows[2].split()[0] == "broken"
    assert rows[0].split() == ["mine", "training,", "unwat…", "120/400", "2.3450", "n/a", "3400", "2h", "00m"]


def test_the_order_is_that_of_the_screen(make_run: Any, append: Any, living: Identity, capsys: Any) -> None:
    from ftui.tui.state.run_list import RunList

    for name, created in (("old", 100.0), ("b-same", 200.0), ("a-same", 200.0), ("newest", 300.0)):
        make_run(name, created=created)
    make_run("broken").facts.write_bytes(b"{")
    append(make_run("running", created=50.0).supervisor_log, EngineStarted(identity=living), attempt=1)
    order = ["running", "newest", "a-same", "b-same", "old", "broken"]
    rows = RunList()
    rows.look()
    assert [row.run.name for row in rows.rows] == order
    assert print_runs() == 0
    assert [line.split()[0] for line in capsys.readouterr().out.splitlines()[1:]] == order


@pytest.mark.parametrize(("step", "max_steps", "words"), [
    (0, None, "0"), (7, None, "7"), (0, 400, "0/400"), (400, 400, "400/400"),
])  # fmt: skip
def test_a_step_is_told_without_a_plan_too(run: Run, step: int, max_steps: int | None, words: str) -> None:
    assert runs.row(run, Status(state=RunState(step=step, max_steps=max_steps)), None, now=0.0)[2] == words


def test_without_runs_the_way_to_start_one_is_told(capsys: pytest.CaptureFixture[str]) -> None:
    assert print_runs() == 0
    assert "ftui --run quickstart" in capsys.readouterr().out


def test_the_first_columns_give_way_and_no_number_does() -> None:
    rows = [("name", "phase", "1"), ("日本" * 20, "training", "123456/200000")]
    lines = table(rows, (2,), width=40)
    assert all(cells(line) <= 40 for line in lines)
    assert lines[1].endswith("123456/200000")


def test_all_facts_of_a_run(run: Run, capsys: pytest.CaptureFixture[str]) -> None:
    assert print_status("mine", as_json=False) == 0
    facts = dict(line.split("  ", 1) for line in capsys.readouterr().out.splitlines() if "  " in line)
    assert facts["phase"].strip() == "training · unwatched"
    assert facts["step"].strip() == "120/400"
    assert facts["model"].strip() == "tiny\u241b · lora · fp32"
    assert facts["epoch"].strip() == "12.00"
    assert "alive" in facts["engine"]


def test_all_facts_as_json(run: Run, capsys: pytest.CaptureFixture[str]) -> None:
    assert print_status("mine", as_json=True) == 0
    status = json.loads(capsys.readouterr().out)
    assert status["state"]["step"] == 120
    assert status["unwatched"] is True


def test_measures_of_the_stage_are_among_the_facts(run: Run) -> None:
    state = RunState(
        extras={"rewards/margins": 1.5, "rewards/chosen": None},
        evaluations=[Evaluation(20, 0.4, extras={"rewards/margins": 1.2})],
        bests=[Evaluation(10, 0.3, extras={"rewards/margins": 1.25})],
    )
    facts = dict(runs.facts(run, Status(time=165.0, state=state)))
    assert facts["reward margin"] == "1.50 train, 1.20 eval (step 20), 1.25 best (step 10)"
    assert facts["chosen reward"] == "n/a train" and "perplexity" not in facts


def test_ranks_are_among_the_facts(run: Run) -> None:
    """Each of a few; of many those that were slowest."""
    ranks = RankSeconds([1.0, 1.25], [0.0, 0.5], [0.75, 0.0])
    lines = [value for _, value in runs.facts(run, Status(time=165.0, state=RunState(ranks=ranks)))]
    first = lines.index("rank 1 slowest (+75%), 21% in communication")
    assert lines[first + 1 : first + 3] == [
        "rank 0: 1.000 s passes, 0.000 s rows, 0.750 s communication",
        "rank 1: 1.250 s passes, 0.500 s rows, 0.000 s communication",
    ]
    many = RankSeconds([float(rank) for rank in range(40)], [0.0] * 40, [0.0] * 40)
    lines = [value for _, value in runs.facts(run, Status(time=165.0, state=RunState(ranks=many)))]
    assert [line[:8] for line in lines if line.startswith("rank ")][1:] == [f"rank {n}:" for n in range(24, 40)]
    assert "and 24 ranks that were faster" in lines


def test_a_red_alarm_is_among_the_facts_however_many_follow(run: Run) -> None:
    alarms = [Alarm(float(step), "spike", "amber", step, "high", "Look.") for step in range(5)]
    alarms.insert(1, Alarm(0.5, "dead_adapter", "red", 0, "still 0", "Leave it out."))
    told = [line for line in runs.facts(run, Status(time=165.0, state=RunState(alarms=alarms))) if "health" in line[0]]
    assert [label for label, _ in told] == ["health, red", *["health, amber"] * 3]


def test_an_ending_is_among_the_facts(run: Run, append: Any, capsys: pytest.CaptureFixture[str]) -> None:
    append(run.journal, RunFailed(message="no rows", hint="add some", exit_code=31, error=""), attempt=1)
    print_status("mine", as_json=False)
    output = capsys.readouterr().out
    assert "no rows" in output and "add some" in output and "31" in output


@pytest.mark.parametrize(
    ("state", "facts", "words"),
    [
        ({"phase": "training"}, {"frozen": True, "unwatched": True}, "training, frozen"),
        ({"phase": "training"}, {"unwatched": True}, "training, unwatched"),
        ({"phase": "starting", "restarting": True}, {}, "restarting"),
        ({"phase": "parked", "exit_code": 40}, {}, "parked, disk full"),
        ({"phase": "parked", "exit_code": 40, "message": "m", "error": "DiskFullError: m"}, {}, "parked, disk full"),
        ({"phase": "parked", "exit_code": 40, "message": "m", "error": "DiskError: m"}, {}, "parked, disk error"),
        ({"phase": "parked", "exit_code": 40, "message": "m", "ended_by": "supervisor"}, {}, "parked, disk error"),
        ({"phase": "parked", "exit_code": 11}, {}, "parked"),
        ({"phase": "held"}, {}, "paused"),
    ],
)
def test_how_a_run_stands_in_few_words(state: Any, facts: Any, words: str) -> None:
    assert runs.standing(Status(state=RunState(**state), **facts)) == words


def test_what_is_odd_about_a_run_is_among_the_facts(run: Run) -> None:
    state = RunState(phase="held", paused_since=100.0, micro_batch=4, micro_batch_step=9, reproducibility="EXACT")
    facts = dict(runs.facts(run, Status(time=165.0, state=state, frozen=True, unwatched=True)))
    assert facts["phase"] == "paused · for 1m 05s · stopped by a signal (SIGSTOP) · unwatched"
    assert (facts["reproducibility"], facts["micro-batch"]) == ("EXACT", "4 rows from step 9 on (memory ran out)")


def test_shipped_profiles_are_listed(capsys: pytest.CaptureFixture[str]) -> None:
    assert runs.print_profiles() == 0
    assert capsys.readouterr().out.count("\n") >= 1


def test_an_error_of_several_lines_and_the_stage_are_among_the_facts(run: Run) -> None:
    state = RunState(phase="failed", message="The rows:\n  are bad", stage="2/3")
    told = list(runs.facts(run, Status(time=165.0, state=state)))
    place = told.index(("error", "The rows:"))
    assert told[place + 1] == ("", "  are bad") and ("stage", "2 of 3") in told
