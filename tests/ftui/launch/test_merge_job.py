"""What of a merge is checked before a process with the libraries is asked."""

import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from ftui.errors import UsageError
from ftui.hardware.detect import Device
from ftui.hardware.devices import find_card
from ftui.helper.merge_facts import Agreement, agreement_rows
from ftui.launch import answering_sides
from ftui.launch.evaluation_job import EvaluationOptions, plan_evaluation
from ftui.launch.evaluation_target import find_target
from ftui.launch.export_job import export_job
from ftui.launch.long_job import LongJob
from ftui.launch.merge_job import merge_job
from ftui.profile.schema import Profile
from ftui.runs.run_folder import Run
from ftui.runs.state import RunState
from tests.support.published_models import MODELS
from tests.support.replayed import run_with_checkpoint


@pytest.fixture
def run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Run:
    return run_with_checkpoint(tmp_path, monkeypatch)


def test_a_run_of_whole_weights_has_nothing_to_merge(run: Run) -> None:
    with pytest.raises(UsageError, match=r"\(full\): there is nothing to merge") as caught:
        merge_job(run, None)
    assert "is a whole model already" in caught.value.hint
    with pytest.raises(UsageError, match="The base has no adapter"):
        merge_job(run, "base")


def as_lora(run: Run) -> Run:
    run.profile.write_text(run.profile.read_text().replace('method = "full"', 'method = "lora"'))
    return run


def test_the_plan_says_what_is_written_and_where(run: Run, tmp_path: Path) -> None:
    job = merge_job(as_lora(run), None, "bf16")
    plan = dict((row[0], row[1]) for row in job.plan)
    title = job.title.partition("@")[2]
    assert job.title == f"merge {run.name}@{title}" and title.startswith("checkpoint-")
    assert plan["folder"] == str(run.exports / f"{title}-bf16") and "needed" in plan["disk"]
    assert not run.exports.exists(), "a plan writes nothing"
    out = tmp_path / "out"
    assert dict((row[0], row[1]) for row in merge_job(run, title, "fp32", out=out).plan)["folder"] == str(out)
    out.mkdir()
    with pytest.raises(UsageError, match=f"{out} is there already, and is not replaced: it is no export"):
        merge_job(run, None, out=out)
    own = run.exports / f"{title}-bf16"
    own.mkdir(parents=True)
    (own / "mine.gguf").write_text("mine")
    with pytest.raises(UsageError, match=r"holds mine.gguf"):
        merge_job(run, None, "bf16")
    with pytest.raises(UsageError, match="not quantised"):
        merge_job(run, None, into="original")


class Asked(Exception):
    pass


class Recorder:
    """A helper that keeps the profile it is asked with."""

    def ask(self, method: str, *, profile: Profile, **rest: Any) -> None:
        raise Asked(profile)


def device_of(job: LongJob) -> str:
    with pytest.raises(Asked) as asked:
        job.run(Recorder(), print)  # type: ignore[arg-type]
    profile: Profile = asked.value.args[0]
    return profile.hardware.device


@pytest.mark.parametrize(
    ("trains_on", "free", "wanted", "device", "note"),
    [
        ("", 79, None, "auto", None),
        ("", 23, None, "cpu", "on the GPU, where 23.0 GiB are free: the CPU computes."),
        ("", 36, None, "cpu", "36.0 GiB are free"),  # the weights alone have room, and nothing is left
        ("", None, None, "auto", None),
        ("", 23, "cuda", "cuda", None),
        ("cuda", 79, None, "cpu", "full-parked is training and is not disturbed"),
        ("cuda", 79, "cuda", "cuda", "is training there, too: it may run out of memory."),
        ("cuda", 79, "cpu", "cpu", None),
        ("cpu", 79, None, "auto", "is training there, too: both are slower meanwhile."),
    ],
)
def test_the_gpu_is_taken_where_it_has_room_and_no_run_in_progress_needs_it(
    trains_on: str, free: int | None, wanted: str | None, device: str, note: str | None, run: Run, tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    (tmp_path / "config.json").write_text(json.dumps(MODELS["Llama-3-8B"]))
    text = run.profile.read_text().replace("/workspace/ftui/profiles/quickstart/base", str(tmp_path))
    text = text.replace('precision = "fp32"', 'precision = "bf16"')
    run.profile.write_text(text.replace('method = "full"', 'method = "qlora"'))
    card = Device(find_card("a100-80"), "A100", free=None if free is None else free << 30)
    status = SimpleNamespace(state=RunState(device=f"{trains_on}: one"))
    monkeypatch.setattr(answering_sides, "find_machine", lambda: SimpleNamespace(cards=(card,)))
    monkeypatch.setattr(answering_sides, "read_status", lambda run: status)
    monkeypatch.setattr(answering_sides, "is_running", lambda status: bool(trains_on))
    for job in (merge_job(run, None, device=wanted), export_job(run, None, "f16", device=wanted)):
        notes = [row[1] for row in job.plan if row[0] == "note"]
        assert len(notes) == (note is not None) and all(str(note) in text for text in notes)
        assert device_of(job) == device
    rows = tmp_path / "rows.jsonl"
    rows.write_text("{}\n")
    target = find_target(run, None, None, rows, wanted, ())
    assert (target.device or "auto") == (device if trains_on or wanted else "auto"), "in 4 bits it has room"


def lines(job: LongJob) -> dict[str, str]:
    return {row[0]: row[1] for row in job.plan}


def test_what_is_made_of_a_checkpoint_set_aside_lies_where_it_is_looked_for(run: Run, tmp_path: Path) -> None:
    title, name = "superseded/checkpoint-150-01ab", "superseded-checkpoint-150-01ab"
    data = tmp_path / "rows.jsonl"
    run.superseded.mkdir()
    (run.checkpoints / "checkpoint-150").rename(run.checkpoints / title)
    data.write_text("{}\n")
    as_lora(run)
    assert lines(merge_job(run, title, "bf16"))["folder"] == str(run.exports / f"{name}-bf16")
    file = Path(lines(export_job(run, title, "f16"))["writes"])
    assert file.parent == run.exports / f"{name}-f16-gguf"
    folder = plan_evaluation(run, title, EvaluationOptions(data=data)).folder
    assert folder.parent == run.evaluations and folder.name.startswith(f"{name}-")


@pytest.mark.parametrize(
    ("dtype", "more", "words"),
    [
        ("bf16", {}, "ftui merge full-parked@checkpoint-150 --dtype fp16"),
        ("fp16", {"out": Path("/my models/x"), "device": "cpu"},
         "ftui merge full-parked@checkpoint-150 --dtype fp32 --out '/my models/x' --device cpu"),
        ("fp32", {}, ""),
    ],
)  # fmt: skip
def test_what_to_type_where_the_digits_are_too_few(dtype: Any, more: dict[str, Any], words: str, run: Run) -> None:
    asked = list[dict[str, Any]]()

    class Noted:
        def ask(self, method: str, *, chosen: dict[str, Any], **rest: Any) -> Any:
            asked.append(chosen)
            raise UsageError("enough")

    with pytest.raises(UsageError, match="enough"):
        merge_job(as_lora(run), None, dtype, **more).run(Noted(), print)  # type: ignore[arg-type]
    assert asked[0]["wider"] == words


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
