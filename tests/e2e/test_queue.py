"""A run waits, is started by a process that nobody sees, and trains: the real program from `add` to the result."""

from ftui.runs.status import read_status
from tests.support.bench import Workbench
from tests.support.driving import wait_until


def test_a_run_that_was_added_trains_by_itself(watched_bench: Workbench) -> None:
    watched_bench.profile("mine")
    steps = ("--set", "train.max_steps=2", "--set", "train.num_train_epochs=none")
    refused = watched_bench.ftui("queue", "add", "mine.toml", *steps, "--set", "data.train=no.jsonl")
    assert refused.returncode == 30 and not watched_bench.run("mine").folder.exists()
    added = watched_bench.ftui("queue", "add", "mine.toml", *steps)
    assert added.returncode == 0, added.stderr
    assert "rows to train on" in added.stdout and "warning: 40 rows are few" in added.stdout
    assert "fits" in added.stdout and "mine is next in the queue." in added.stdout
    run = watched_bench.run("mine")
    wait_until(lambda: read_status(run).state.phase == "finished")
    assert (run.final / "adapter_model.safetensors").is_file()
    wait_until(lambda: '"ended"' in (run.folder.parent / "queue.jsonl").read_text())
    assert watched_bench.ftui("queue").stdout == "No run waits. `ftui queue add PROFILE` adds one.\n"
