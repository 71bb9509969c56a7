"""What of a merge is checked before a process with the libraries is asked."""

import shutil
from pathlib import Path

import pytest

from ftui.errors import UsageError
from ftui.helper.merge_facts import Agreement
from ftui.launch.plan_merge import agreement_rows, plan_merge
from ftui.runs.checkpoint_folders import Manifest, publish
from ftui.runs.run_folder import Run
from tests.support.replayed import replay


@pytest.fixture
def run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Run:
    monkeypatch.setenv("FTUI_RUNS", str(tmp_path / "runs"))
    run = replay("full-parked", tmp_path / "runs")
    shutil.rmtree(run.checkpoints)
    manifest = Manifest(
        run_id=run.read_facts().run_id, attempt=1, token="", step=150, versions={}, fingerprints={}, dtypes={},
        finite=True, created=0.0,
    )  # fmt: skip
    publish(run.checkpoints / "checkpoint-150", manifest, lambda folder: {"weights": lambda: (b"x",)})
    return run


def test_a_run_of_whole_weights_has_nothing_to_merge(run: Run) -> None:
    with pytest.raises(UsageError, match=r"\(full\): there is nothing to merge") as caught:
        plan_merge(run, None)
    assert "is a whole model already" in caught.value.hint
    with pytest.raises(UsageError, match="The base has no adapter"):
        plan_merge(run, "base")


def as_lora(run: Run) -> Run:
    run.profile.write_text(run.profile.read_text().replace('method = "full"', 'method = "lora"'))
    return run


def test_the_plan_says_what_is_written_and_where(run: Run, tmp_path: Path) -> None:
    job = plan_merge(as_lora(run), None, "bf16")
    plan = dict((row[0], row[1]) for row in job.plan)
    title = job.title.partition("@")[2]
    assert job.title == f"merge {run.name}@{title}" and title.startswith("checkpoint-")
    assert plan["folder"] == str(run.exports / f"{title}-bf16") and "needed" in plan["disk"]
    assert not run.exports.exists(), "a plan writes nothing"
    out = tmp_path / "out"
    assert dict((row[0], row[1]) for row in plan_merge(run, title, "fp32", out=out).plan)["folder"] == str(out)
    out.mkdir()
    with pytest.raises(UsageError, match=f"There is something at {out}"):
        plan_merge(run, None, out=out)
    with pytest.raises(UsageError, match="not quantised"):
        plan_merge(run, None, into="original")


GOOD = Agreement(4, 100, 100, 5e-4, 2.0, 2.0005, 1e-5, 0.995)
NOT_A_NUMBER = float("nan")


@pytest.mark.parametrize(
    ("agreement", "dtype", "misses"),
    [
        (GOOD, "fp32", []), (GOOD, "bf16", []),
        (Agreement(4, 100, 100, 2e-3, 2.0, 2.0, 1e-9, 1.0), "fp32", ["difference of logits 0.002"]),
        (Agreement(4, 100, 100, 0.3, 2.0, 2.0, 1e-5, 1.0), "fp16", []),
        (Agreement(4, 100, 100, 0.3, 2.0, 2.0, 2e-4, 0.98), "fp16", ["mean KL 0.0002", "likeliest token 98.0%"]),
        (Agreement(4, 100, 100, 0.3, 2.0, 1.9, 1e-5, 1.0), "bf16", ["loss 1.9000 for 2.0000"]),
        (Agreement(4, 100, 100, NOT_A_NUMBER, 2.0, NOT_A_NUMBER, NOT_A_NUMBER, 1.0), "bf16", ["mean KL", "loss nan"]),
        (Agreement(4, 8, 4, 0.1, 0.5, 0.5), "bf16", ["difference of scores 0.1"]),
    ],
)  # fmt: skip
def test_what_is_beyond_its_limit(agreement: Agreement, dtype: str, misses: list[str]) -> None:
    found = agreement.misses(dtype)  # type: ignore[arg-type]
    assert len(found) == len(misses) and all(words in text for words, text in zip(misses, found, strict=True))
    assert agreement_rows(agreement)[0][0] == "loss"
