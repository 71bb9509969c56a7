"""The program as people use it, with the real engine on a tiny model."""

import json
import os
import signal
import stat
import subprocess
import sys
from pathlib import Path

import pytest
import torch

from ftui.engine.models.weights import read_weights
from ftui.runs.events import AnyRecord, CheckpointSaved, RunFinished, RunStopped, Sampled, Step
from ftui.runs.journal import Tail
from ftui.runs.run_folder import Run
from ftui.runs.status import read_status
from tests.support.bench import Workbench, bench_at, newest, records, resumed_from
from tests.support.driving import wait_until
from tests.support.sameness import tensors
from tests.support.save_trials import assemble_run

# Never imports ftui: loads each folder with plain PEFT or transformers and prints its logits for one prompt.
PLAIN = """
import json, sys
import torch
from transformers import AutoTokenizer
torch.set_num_threads(1)
if sys.argv[1] == "lora":
    from peft import AutoPeftModelForCausalLM as Loader
else:
    from transformers import AutoModelForCausalLM as Loader
found = {}
for folder in sys.argv[2:]:
    model = Loader.from_pretrained(folder).eval()
    ids = AutoTokenizer.from_pretrained(folder)("What is row 7?", return_tensors="pt")["input_ids"]
    with torch.no_grad():
        found[folder] = model(input_ids=ids).logits[0, -1].tolist()
assert "ftui" not in sys.modules
print(json.dumps(found))
"""


def ask(bench: Workbench, program: str, *arguments: str) -> dict[str, list[float]]:
    root = str(Path(__file__).parents[2])
    env = bench.env | {"PYTHONPATH": root}
    command = [sys.executable, "-c", program, *arguments]
    result = subprocess.run(command, env=env, capture_output=True, text=True, timeout=300)
    assert result.returncode == 0, result.stderr
    answer: dict[str, list[float]] = json.loads(result.stdout.splitlines()[-1])
    return answer


def by_the_engine(run: Run, folders: list[str]) -> dict[str, list[float]]:
    """The same from the engine's own reading of each folder."""
    torch.set_num_threads(1)
    trial, found = assemble_run(run), {}
    ids = trial.tokenizer("What is row 7?", return_tensors="pt")["input_ids"]
    for folder in folders:
        read_weights(trial.parts.model, Path(folder))
        with torch.no_grad():
            found[folder] = trial.parts.model.eval()(input_ids=ids).logits[0, -1].tolist()
    return found


@pytest.fixture(scope="module", params=["lora", "full"])
def finished(
    request: pytest.FixtureRequest, bench_source: Path, tmp_path_factory: pytest.TempPathFactory
) -> tuple[Workbench, Run, str, str]:
    """A bench, its finished run, the method, and what the program printed."""
    bench = bench_at(bench_source, tmp_path_factory.mktemp(request.param) / "bench")
    result = bench.ftui("--run", str(bench.profile("mine", method=request.param)))
    assert result.returncode == 0, result.stdout + result.stderr
    return bench, bench.run("mine"), request.param, result.stdout


def test_it_learns_and_says_so(finished: tuple[Workbench, Run, str, str]) -> None:
    _, run, _, printed = finished
    end = next(r for r in records(run) if isinstance(r, RunFinished))
    assert end.loss_before is not None and end.loss_final is not None
    assert end.loss_final < end.loss_before - 0.2
    assert f"{end.loss_before:.4f}" in printed
    assert f"{end.loss_final:.4f}" in printed
    assert "step 30/30" in printed
    assert "\x1b" not in printed and "\r" not in printed
    assert len([r for r in records(run) if isinstance(r, Sampled)]) == 2


def test_every_line_the_engine_wrote_is_read(finished: tuple[Workbench, Run, str, str]) -> None:
    _, run, _, _ = finished
    for path in (run.journal, run.metrics, run.supervisor_log, run.telemetry):
        tail = Tail(path)
        found: list[AnyRecord] = tail.read()
        lines = path.read_bytes().count(b"\n")
        assert len(found) == lines > 0
        assert (tail.num_unknown, tail.num_damaged) == (0, 0)
        assert {r.attempt for r in found} == {1}
        assert all(r.token for r in found)
    steps = [r for r in Tail(run.metrics).read() if isinstance(r, Step)]
    assert [r.step for r in steps] == list(range(1, 31))
    assert all(r.num_target_tokens < r.num_tokens for r in steps)


def test_everything_is_private(finished: tuple[Workbench, Run, str, str]) -> None:
    _, run, _, _ = finished
    for path in [run.folder, *run.folder.rglob("*")]:
        mode = stat.S_IMODE(path.stat().st_mode)
        assert mode == (0o700 if path.is_dir() else 0o600), f"{path.relative_to(run.folder)}: {mode:o}"


def test_plain_libraries_load_every_folder_to_the_same_logits(finished: tuple[Workbench, Run, str, str]) -> None:
    bench, run, method, _ = finished
    folders = [str(run.final), *(str(p) for p in sorted(run.checkpoints.glob("checkpoint-*")))]
    assert len(folders) >= 4
    plain = ask(bench, PLAIN, method, *folders)
    assert plain == by_the_engine(run, folders)
    assert plain[folders[-1]] != plain[folders[1]], "the checkpoints differ, or this test could not fail"
    assert not (run.final / "resume").exists()


def test_a_finished_run_is_not_run_again_unless_asked(finished: tuple[Workbench, Run, str, str]) -> None:
    bench, run, method, _ = finished
    if method == "full":
        return  # nothing of it hangs on the method
    before = run.journal.read_bytes()
    result = bench.ftui("--run", str(bench.folder / "mine.toml"))
    assert result.returncode == 0
    assert "has ended" in result.stdout
    assert run.journal.read_bytes() == before
    again = bench.ftui("--run", str(bench.folder / "mine.toml"), "--again", "--set", "train.max_steps=2")
    assert again.returncode == 0, again.stderr
    assert [r.step for r in Tail(bench.run("mine-2").metrics).read() if isinstance(r, Step)] == [1, 2]


def test_lists_and_status_agree_with_the_journal(finished: tuple[Workbench, Run, str, str]) -> None:
    bench, run, _, _ = finished
    listing = bench.ftui("runs").stdout
    assert "mine" in listing and "finished" in listing and "30/30" in listing
    assert max(map(len, listing.splitlines())) <= 80
    status = json.loads(bench.ftui("status", "mine", "--json").stdout)
    assert status["state"]["phase"] == "finished"
    assert status["state"]["exit_code"] == 0
    saved = [r.step for r in records(run) if isinstance(r, CheckpointSaved)]
    assert status["state"]["checkpoints"][-1]["step"] == saved[-1] == 30
    assert bench.ftui("log", "mine").returncode == 0


LONG = ("--set", "train.num_train_epochs=400")


def test_sigterm_saves_the_last_boundary_and_the_run_goes_on(workbench: Workbench) -> None:
    """With the same rows and the same rate only."""
    profile, run = str(workbench.profile("told")), workbench.run("told")
    assert workbench.ftui("--run", profile, *LONG, "--detach").returncode == 0
    wait_until(lambda: num_steps(run) >= 6)
    terminate(workbench, run)
    stopped = next(r for r in records(run) if isinstance(r, RunStopped))
    assert stopped.exit_code == 20
    assert newest(run) == stopped.checkpoint == f"checkpoints/checkpoint-{stopped.step}"

    changed = workbench.ftui("--run", profile, *LONG, "--set", "train.learning_rate=0.1")
    assert changed.returncode == 30
    assert "train.learning_rate: 0.02 -> 0.1" in changed.stderr

    assert workbench.ftui("--run", profile, *LONG, "--set", "log.logging_steps=3", "--detach").returncode == 0
    wait_until(lambda: num_steps(run) > stopped.step + 2)
    assert resumed_from(run) == stopped.checkpoint
    terminate(workbench, run)

    rows = workbench.folder / "rows.jsonl"
    rows.write_text(rows.read_text().replace("quick", "slow"))
    result = workbench.ftui("--run", profile, *LONG)
    assert result.returncode == 31
    assert "the training rows changed" in result.stderr


@pytest.mark.parametrize(
    ("damage", "code", "words"),
    [
        ("row", 31, "rows.jsonl:4: 'output' is missing"),
        ("model", 30, "model.name_or_path: there is no folder nowhere in"),
        ("length", 31, "the model sees at most 128 tokens"),
    ],
)
def test_what_is_wrong_is_named_with_its_code(workbench: Workbench, damage: str, code: int, words: str) -> None:
    options = {
        "row": [],
        "model": ["--set", "model.name_or_path=./nowhere"],
        "length": ["--set", "data.max_length=4000"],
    }[damage]
    if damage == "row":
        rows = workbench.folder / "rows.jsonl"
        lines = rows.read_text().splitlines()
        lines[3] = json.dumps({"instruction": "What is missing?"})
        rows.write_text("\n".join(lines))
    result = workbench.ftui("--run", str(workbench.profile("wrong")), *options)
    assert result.returncode == code, result.stdout + result.stderr
    assert words in result.stderr
    assert "Traceback" not in result.stdout + result.stderr


def test_early_stopping_ends_with_the_best_weights(workbench: Workbench) -> None:
    """The rate is too small to change the loss by a bit, on any processor: the first evaluation stays the best."""
    options = [
        "train.learning_rate=1e-30",
        "eval.eval_steps=2",
        "eval.early_stopping_patience=2",
        "train.warmup_steps=0",
    ]
    sets = [word for option in options for word in ("--set", option)]
    result = workbench.ftui("--run", str(workbench.profile("wild")), *sets)
    assert result.returncode == 0, result.stderr
    run = workbench.run("wild")
    end = next(r for r in records(run) if isinstance(r, RunFinished))
    assert "early stopping" in end.reason
    assert (end.step, end.step_final) == (6, 2)
    folders = (run.final, run.checkpoints / "checkpoint-2", run.checkpoints / "checkpoint-6")
    final, best, last = (tensors(folder / "adapter_model.safetensors") for folder in folders)
    assert final == best != last


def test_pretraining_from_scratch_with_a_tokenizer_of_its_own(workbench: Workbench) -> None:
    (workbench.folder / "book.txt").write_text("".join(f"Line {n} of a short book.\n" for n in range(400)))
    profile = workbench.folder / "book.toml"
    profile.write_text(
        """
        run.stage = "pretrain"
        adapter.method = "full"
        [model.from_scratch]
        hidden_size = 32
        num_attention_heads = 4
        num_hidden_layers = 2
        intermediate_size = 64
        vocab_size = 320
        max_position_embeddings = 64
        [data]
        train = "book.txt"
        eval_fraction = 0.1
        max_length = 64
        packing = true
        [train]
        max_steps = 20
        learning_rate = 1e-2
        """
    )
    preview = workbench.ftui("--run", str(profile), "--dry-run")
    assert preview.returncode == 0, preview.stderr
    assert not workbench.run("book").folder.exists()
    result = workbench.ftui("--run", str(profile))
    assert result.returncode == 0, result.stderr
    end = next(r for r in records(workbench.run("book")) if isinstance(r, RunFinished))
    assert end.loss_before is not None and end.loss_final is not None and end.loss_final < end.loss_before - 1
    assert ask(workbench, PLAIN, "full", str(workbench.run("book").final))


def num_steps(run: Run) -> int:
    """The highest step in metrics.jsonl."""
    return max((r.step for r in Tail(run.metrics).read() if isinstance(r, Step)), default=0)


def terminate(bench: Workbench, run: Run) -> None:
    """SIGTERM to the engine, as a pod that is taken away sends it; returns when the end is recorded."""
    os.kill(json.loads(bench.ftui("status", run.name, "--json").stdout)["engine"]["pid"], signal.SIGTERM)
    wait_until(lambda: read_status(run).state.phase == "stopped")
