"""Several ranks on one machine: what one process learns, resumed exactly whichever rank dies, ended with its codes."""

import os
import signal
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from safetensors.numpy import load_file

from ftui.engine.ledger.ledger_file import read_ledger
from ftui.launch.open_run import create, resume, stored_profile
from ftui.profile.layers import resolve
from ftui.runs.events import ControlApplied, MicroBatchChanged, RunFailed, RunStarted, RunStopped, Step
from ftui.runs.journal import Tail
from ftui.runs.records.supervisor_records import EngineEnded
from ftui.runs.run_folder import Run
from ftui.supervisor.engine_process import LOST_RANK, rank_environment
from tests.support.bench import STAGES, Workbench, bench_at, compare_answers, newest, records, resumed_from
from tests.support.driving import LONG, last, status, steps, wait_for_end, wait_until
from tests.support.sameness import same_runs
from tests.support.tiny import column
from tests.support.zygote import Attempt, Hooks, Zygote, free_port, tail_of

TWO = ("hardware.num_processes=2", "train.gradient_accumulation_steps=1")


def opened(bench: Workbench, name: str, *overrides: str) -> Run:
    run = bench.run(name)
    assert create(run, resolve(bench.profile(name), overrides=overrides))
    return run


def start_two(
    zygote: Zygote, bench: Workbench, run: Run, attempt: int = 1, *, hooks: Hooks | None = None, victim: int | None = 1,
    size: int = 2,
) -> list[Attempt]:  # fmt: skip
    """Both ranks, or all `size`; `hooks` are those of the victim, of each where it is `None`."""
    port, token = free_port(), f"t{attempt}"
    places = [bench.env if size == 1 else rank_environment(rank, size, port, bench.env) for rank in range(size)]
    return [
        zygote.start(run, place, attempt=attempt, token=token, hooks=hooks if victim in (rank, None) else None)
        for rank, place in enumerate(places)
    ]


GENERATE = ("eval.generate=true", "eval.generate_max_new_tokens=4")


@pytest.mark.parametrize("more", [(), STAGES], ids=["plain", "curriculum"])
def test_two_ranks_train_as_one_process_does(
    more: tuple[str, ...], bench_source: Path, memory: Path, zygote: Zygote
) -> None:
    bench = bench_at(bench_source, memory / "bench")
    still = ("adapter.lora_dropout=0.0", *GENERATE, *more)  # each rank draws its own
    alone, team = opened(bench, "alone", *still), opened(bench, "team", *still, *TWO)
    assert zygote.start(alone, bench.env).wait() == 0, tail_of(alone)
    assert [engine.wait() for engine in start_two(zygote, bench, team)] == [0, 0], tail_of(team)
    one, two = steps(alone), steps(team)
    assert [(s.step, s.num_tokens, s.num_target_tokens, s.learning_rate) for s in one] == [
        (s.step, s.num_tokens, s.num_target_tokens, s.learning_rate) for s in two
    ]
    np.testing.assert_allclose(column(two, "loss"), column(one, "loss"), rtol=1e-5)
    np.testing.assert_allclose(column(two, "grad_norm"), column(one, "grad_norm"), rtol=1e-3)
    found, expected = (np.array([[*s.extras.values()] for s in run], dtype=float) for run in (two, one))
    assert {*one[0].extras} == {"mean_token_accuracy", "perplexity"}
    np.testing.assert_allclose(found[0], expected[0], rtol=1e-5)
    np.testing.assert_allclose(found[:, 1], expected[:, 1], rtol=1e-4)  # which token is likelier may hang on a last bit
    assert [step.ranks for step in one] == [None] * len(one)
    for step in two:
        assert step.ranks is not None
        times = (step.ranks.passes, step.ranks.data, step.ranks.communication)
        assert all(len(of_ranks) == 2 and min(of_ranks) >= 0 for of_ranks in times)
        assert step.ranks.passes[0] + step.ranks.communication[0] <= step.forward_backward_seconds
    weights = [load_file(run.final / "adapter_model.safetensors") for run in (alone, team)]
    for name, tensor in weights[0].items():
        np.testing.assert_allclose(weights[1][name], tensor, atol=1e-4, err_msg=name)
    assert next(r for r in records(team) if isinstance(r, RunStarted)).effective_batch == 4
    kept = [read_ledger(run.ledger) for run in (alone, team)]
    by_row = [np.lexsort((ledger.rows["number"], ledger.steps)) for ledger in kept]  # ranks hand theirs in by rank
    for field in ("number", "count"):
        assert (kept[0].rows[field][by_row[0]] == kept[1].rows[field][by_row[1]]).all(), "the rows of both ranks"
    assert (kept[0].steps == kept[1].steps).all() and len(kept[0].rows) >= 4 * (len(one) - 1)
    np.testing.assert_allclose(kept[1].rows["loss"][by_row[1]], kept[0].rows["loss"][by_row[0]], rtol=1e-3)
    first = [(run.evaluations / "step-0.jsonl").read_bytes() for run in (alone, team)]
    assert first[0] == first[1] and first[0], "rank 0 answers, as one process does"


SEVERAL = ('preference.loss_type=["sigmoid", "bco_pair", "sft"]', "preference.loss_weights=[0.8, 0.2, 1.0]")


@pytest.mark.parametrize(
    ("stage", "losses"),
    [
        ("dpo", SEVERAL),
        ("dpo", ('preference.loss_type="ipo"',)),
        *((one, ()) for one in ("orpo", "simpo", "cpo", "kto", "rm")),
    ],
    ids=lambda value: value if isinstance(value, str) else str(len(value)),
)
def test_two_ranks_compare_answers_as_one_process_does(
    stage: str, losses: tuple[str, ...], bench_source: Path, memory: Path, zygote: Zygote
) -> None:
    """The last step of an epoch has one row, so that a rank has none: KTO's z0 is still that of all."""
    bench = bench_at(bench_source, memory / "bench")
    beta = () if stage == "rm" else ("preference.beta=0.5",)
    keys = (*compare_answers(bench, stage, 17), "data.eval=none", *beta, *losses)
    train = ("train.num_train_epochs=2", "train.learning_rate=1e-3")
    alone, team = opened(bench, "alone", *keys, *train), opened(bench, "team", *keys, *train, *TWO)
    assert zygote.start(alone, bench.env).wait() == 0, tail_of(alone)
    assert [engine.wait() for engine in start_two(zygote, apart(bench, "team"), team)] == [0, 0], tail_of(team)
    one, two = steps(alone), steps(team)
    assert len(one) == len(two) == 10 and one[4].num_target_tokens < one[0].num_target_tokens
    assert two[0].loss == pytest.approx(one[0].loss, rel=1e-6)
    assert two[0].grad_norm == pytest.approx(one[0].grad_norm, rel=1e-5)
    np.testing.assert_allclose(column(two, "loss"), column(one, "loss"), rtol=2e-5)
    np.testing.assert_allclose(column(two, "grad_norm"), column(one, "grad_norm"), rtol=1e-3)
    assert [step.extras.get("kl") is None for step in two] == [stage != "kto"] * 10
    if stage in ("dpo", "kto"):
        assert reference_of(team) == reference_of(alone)


def apart(bench: Workbench, name: str) -> Workbench:
    """The same bench with a cache of its own: nothing that another run has measured is in it."""
    return replace(bench, env=bench.env | {"FTUI_CACHE": str(bench.folder / f"cache-{name}")})


def reference_of(run: Run) -> dict[str, bytes]:
    return {name: values.tobytes() for name, values in load_file(run.reference).items()}


@pytest.mark.parametrize("stage", ["dpo", "kto"])
def test_ranks_measure_the_reference_together(stage: str, bench_source: Path, memory: Path, zygote: Zygote) -> None:
    """A rank dies of it, has too little memory for two rows, and then for one: none waits for what does not come."""
    bench = bench_at(bench_source, memory / "bench")
    keys = (*compare_answers(bench, stage, 33), *TWO, "train.max_steps=6", "train.num_train_epochs=none")
    whole, cut, short = (opened(bench, name, *keys) for name in ("whole", "cut", "short"))
    assert [engine.wait() for engine in start_two(zygote, bench, whole)] == [0, 0], tail_of(whole)
    bench = apart(bench, "cut")
    dead = [engine.wait() for engine in start_two(zygote, bench, cut, hooks={"kill": ["measuring", 4]})]
    assert dead == [LOST_RANK, -9], tail_of(cut)
    assert (cut.folder / "reference.0.safetensors").exists(), "the other one keeps what it has"
    assert [engine.wait() for engine in start_two(zygote, bench, cut, 2)] == [0, 0], tail_of(cut)
    assert reference_of(cut) == reference_of(whole)
    same_runs(cut, whole)

    bench, lines = apart(bench, "short"), 2 if stage == "dpo" else 1
    engines = start_two(zygote, bench, short, hooks={"no_room_in_measurement": [lines - 1]})
    assert [engine.wait() for engine in engines] == [42, 42], tail_of(short)
    assert "a row of" in last(short, RunFailed).message and "data.max_length" in last(short, RunFailed).hint
    engines = start_two(zygote, bench, short, 2, hooks={"no_room_in_measurement": [lines]})
    assert [engine.wait() for engine in engines] == [0, 0], tail_of(short)
    found, expected = load_file(short.reference), load_file(whole.reference)
    for name, values in expected.items():
        np.testing.assert_allclose(found[name], values, atol=2e-5)
    np.testing.assert_allclose(column(steps(short), "loss"), column(steps(whole), "loss"), rtol=1e-5)


@pytest.mark.parametrize(
    ("stage", "hooks"),
    [
        ("dpo", {"no_room_in_backward": [3, 2]}),
        ("kto", {"no_room_in_backward": [3, 1]}),
        ("kto", {"no_room_in_divergence": [3]}),
    ],
)
def test_a_halved_micro_batch_compares_the_same_answers(
    stage: str, hooks: Hooks, bench_source: Path, memory: Path, zygote: Zygote
) -> None:
    """Memory runs out on rank 1 in step 3. A pair stays whole, and z0 that of the step."""
    bench = bench_at(bench_source, memory / "bench")
    keys = (*compare_answers(bench, stage, 32), *TWO, "preference.beta=0.5")
    whole, short = opened(bench, "whole", *keys), opened(bench, "short", *keys)
    assert [engine.wait() for engine in start_two(zygote, bench, whole)] == [0, 0], tail_of(whole)
    assert [engine.wait() for engine in start_two(zygote, bench, short, hooks=hooks)] == [0, 0], tail_of(short)
    (changed,) = [r for r in records(short) if isinstance(r, MicroBatchChanged)]
    assert (changed.step, changed.old, changed.new) == (3, 2, 1)
    one, two = steps(whole), steps(short)
    np.testing.assert_allclose(column(two[:4], "loss"), column(one[:4], "loss"), rtol=1e-6)
    np.testing.assert_allclose(column(two, "loss"), column(one, "loss"), rtol=1e-4)
    assert column(two, "num_target_tokens").tolist() == column(one, "num_target_tokens").tolist()
    if stage == "kto":
        assert max(step.extras["kl"] or 0 for step in one[2:4]) > 0
        divergences = [np.array([step.extras["kl"] for step in some[:4]], dtype=float) for some in (one, two)]
        np.testing.assert_allclose(divergences[1], divergences[0], atol=1e-6)


def test_whichever_rank_dies_the_run_goes_on_exactly(bench_source: Path, memory: Path, zygote: Zygote) -> None:
    bench = bench_at(bench_source, memory / "bench")
    whole, cut = opened(bench, "whole", *TWO, *GENERATE), opened(bench, "cut", *TWO, *GENERATE)
    assert [engine.wait() for engine in start_two(zygote, bench, whole)] == [0, 0], tail_of(whole)
    for attempt, (victim, place) in enumerate([(1, ["backward", 7]), (0, ["optimizer", 9])], start=1):
        engines = start_two(zygote, bench, cut, attempt, hooks={"kill": place}, victim=victim)
        assert engines[victim].wait() == -9
        assert engines[1 - victim].wait() == LOST_RANK, tail_of(cut)
    expected = newest(cut)
    assert [engine.wait() for engine in start_two(zygote, bench, cut, 3)] == [0, 0], tail_of(cut)
    assert resumed_from(cut) == expected is not None
    assert next(r for r in reversed(records(cut)) if isinstance(r, RunStarted)).reproducibility == "EXACT"
    last = cut.checkpoints / f"checkpoint-{max(s.step for s in steps(cut))}"
    assert (last / "resume" / "rng-1.safetensors").exists()
    same_runs(cut, whole)
    answers = [{path.name: path.read_bytes() for path in run.evaluations.iterdir()} for run in (cut, whole)]
    assert answers[0] == answers[1] and len(answers[0]) > 2


@pytest.mark.slow
def test_a_run_goes_on_with_another_number_of_ranks(bench_source: Path, memory: Path, zygote: Zygote) -> None:
    """Killed at 2, goes on at 1, at 2 again, at 3: the steps are those of 2 that nothing interrupted."""
    bench = bench_at(bench_source, memory / "bench")
    keys = (*TWO, "adapter.lora_dropout=0.0", "eval.sample_prompts=[]", *STAGES)
    whole, moved = opened(bench, "whole", *keys), opened(bench, "moved", *keys)
    assert [engine.wait() for engine in start_two(zygote, bench, whole)] == [0, 0], tail_of(whole)
    lives = [(2, ["backward", 10]), (1, ["optimizer", 7]), (2, ["backward", 7]), (3, [])]
    for attempt, (size, place) in enumerate(lives, start=1):
        resume(moved, resolve(moved.profile, overrides=[f"hardware.num_processes={size}"]).profile)
        assert stored_profile(moved).effective_batch == 4
        saved = newest(moved)
        of_second = moved.folder / (saved or "") / "resume" / "rng-1.safetensors"
        assert of_second.exists() == (attempt in (2, 4)), "what a rank's generators were stays in the checkpoint"
        hooks = {"kill": place} if place else None
        engines = start_two(zygote, bench, moved, attempt, hooks=hooks, victim=0, size=size)
        ends = [engine.wait() for engine in engines]
        assert ends == ([-9] + [LOST_RANK] * (size - 1) if place else [0] * size), tail_of(moved)
        assert resumed_from(moved) == saved
    one, two = ({step.step: step for step in steps(run)} for run in (whole, moved))
    assert {step.attempt for step in two.values()} == {1, 2, 3, 4}
    joined = [min(number for number, step in two.items() if step.attempt == attempt) for attempt in (2, 3, 4)]
    for first in joined:
        assert two[first].loss == pytest.approx(one[first].loss, rel=1e-6)
    assert joined[-1] <= max(one) - 9, "ten steps of three ranks"
    for number, step in one.items():
        assert two[number].loss == pytest.approx(step.loss, rel=1e-5), number
        assert two[number].num_target_tokens == step.num_target_tokens
    started = [r for r in records(moved) if isinstance(r, RunStarted)]
    assert [start.reproducibility for start in started] == [None, *["SAME STATE"] * 3]
    for start, change in zip(started[1:], ("2 -> 1", "1 -> 2", "2 -> 3"), strict=True):
        assert any(reason.startswith(f"processes: {change} (") for reason in start.reproducibility_reasons)
    last = moved.checkpoints / f"checkpoint-{max(two)}" / "resume"
    assert sorted(path.name for path in last.glob("rng-*")) == ["rng-1.safetensors", "rng-2.safetensors"]
    files = [path for path in moved.folder.rglob("*") if path.is_file() and path.parent.name != "ledger"]
    assert not [path for path in files if path.suffix in (".pt", ".bin", ".pkl") or path.read_bytes()[:2] == b"PK"]


@pytest.mark.parametrize(("what", "codes"), [("sum", [0, 0]), ("update", [41, LOST_RANK])])
def test_memory_that_runs_out_on_one_rank_halves_the_micro_batch_of_all(
    what: str, codes: list[int], bench_source: Path, memory: Path, zygote: Zygote
) -> None:
    bench = bench_at(bench_source, memory / "bench")
    run = opened(bench, "short", *TWO, "eval.eval_on_start=false")
    engines = start_two(zygote, bench, run, hooks={"no_room_in_exchange": [what, 3]})
    assert [engine.wait() for engine in engines] == codes, tail_of(run)
    (changed,) = [r for r in records(run) if isinstance(r, MicroBatchChanged)]
    assert (changed.step, changed.old, changed.new) == (3, 2, 1)
    if what == "update":  # some weights have changed: only a checkpoint is whole
        assert last(run, RunFailed).again and last(run, RunFailed).exit_code == 41
        assert not any(s.step >= 3 for s in steps(run))


def others_of(pid: int) -> list[int]:
    """The other processes of a group."""
    found = []
    for folder in Path("/proc").iterdir():
        if folder.name.isdecimal() and int(folder.name) != pid:
            try:
                found += [int(folder.name)] if os.getpgid(int(folder.name)) == pid else []
            except ProcessLookupError:
                continue
    return found


def test_a_supervisor_restarts_ranks_and_requests_reach_them_all(workbench: Workbench) -> None:
    overrides = [argument for override in TWO for argument in ("--set", override)]
    profile = str(workbench.profile("team"))
    assert workbench.ftui("--run", profile, *LONG, *overrides, "--detach").returncode == 0
    run = workbench.run("team")
    wait_until(lambda: len(steps(run)) >= 6)
    (follower,) = others_of(status(workbench, "team")["engine"]["pid"])
    os.kill(follower, signal.SIGKILL)
    wait_until(lambda: any(s.attempt == 2 for s in steps(run)))
    ended = next(r for r in Tail(run.supervisor_log).read() if isinstance(r, EngineEnded))
    assert (ended.code, ended.signal) == (None, "SIGKILL")
    assert workbench.ftui("set", "team", "learning_rate_factor=0.5").returncode == 0
    wait_until(lambda: any(isinstance(r, ControlApplied) and r.verb == "set" for r in records(run)))
    told = next(r for r in records(run) if isinstance(r, ControlApplied) and r.verb == "set")
    wait_until(lambda: steps(run)[-1].step > told.step)
    assert workbench.ftui("park", "team").returncode == 0
    wait_for_end(workbench, run)
    assert last(run, RunStopped).exit_code == 11
    halved = [s for s in steps(run) if isinstance(s, Step) and s.attempt == 2 and s.step > told.step]
    assert halved and all(s.learning_rate < 1.1e-2 for s in halved)
    result = workbench.ftui("--run", profile, *LONG, *overrides, "--set", f"train.max_steps={halved[-1].step + 500}")
    assert result.returncode == 30, result.stdout  # another plan is another run
    assert not others_of(status(workbench, "team")["engine"]["pid"])


def test_bad_rows_end_all_ranks_with_their_code(workbench: Workbench) -> None:
    (workbench.folder / "rows.jsonl").write_text('{"instruction": 1}\n')
    result = workbench.ftui("--run", str(workbench.profile("bad")), "--set", TWO[0])
    assert result.returncode == 31 and "rows.jsonl:1" in result.stdout + result.stderr
