"""`ftui evaluate` as people use it, on what a real run has trained and on plain models."""

import asyncio
import json
import shutil
from collections.abc import Iterator
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Any

import msgspec
import pytest
from textual.widgets import Input

from ftui.cli.trained.named_weights import find_model
from ftui.errors import DiskFullError, FtuiError, ModelError
from ftui.helper.chat_session import HelperVoice, Side
from ftui.helper.client import Helper
from ftui.launch.evaluation_job import EvaluationOptions, plan_evaluation
from ftui.runs.checkpoint_folders import read_manifest
from ftui.runs.events import EvaluationDone
from ftui.runs.run_folder import Run
from ftui.tui.state.after_choices import Weights, choices_for
from tests.support.bench import Workbench, bench_at, records
from tests.support.shown_app import ShownApp, shown_app
from tests.support.tiny import make_profile, train_run

KEYS = ("eval.sample_prompts=[]", "adapter.lora_dropout=0.0", "checkpoint.save_steps=15")
MEASURES = "def num_letters(answer, row):\n    return len(answer) / len(row['output'])\n"


@pytest.fixture(scope="module")
def trained(bench_source: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Workbench]:
    bench = bench_at(bench_source, tmp_path_factory.mktemp("evaluating") / "bench")
    options = [part for key in KEYS for part in ("--set", key)]
    done = bench.ftui("run", str(bench.profile("mine")), *options)
    assert done.returncode == 0, done.stderr
    (bench.folder / "measures.py").write_text(MEASURES)
    with pytest.MonkeyPatch.context() as patch:
        for name, value in bench.env.items():
            patch.setenv(name, value)
        patch.chdir(bench.folder)
        yield bench


@pytest.fixture(scope="module")
def helper(trained: Workbench) -> Iterator[Helper]:
    """One process for all: what it computes does not depend on what it has computed."""
    with closing(Helper()) as helper:
        yield helper


def evaluate(helper: Helper, name: str, data: str = "rows.jsonl", **options: Any) -> dict[str, Any]:
    """The result as --json prints it."""
    planned = plan_evaluation(*find_model(name), EvaluationOptions(data=Path(data), **{"max_new_tokens": 8} | options))
    result: dict[str, Any] = msgspec.to_builtins(planned.run(helper, lambda detail: None))
    return result


def figures(result: dict[str, Any], part: str = "data") -> dict[str, dict[str, Any]]:
    (table,) = [table for table in result["tables"] if table["part"] == part]
    return {line["name"]: line for line in table["lines"]}


def test_the_figures_are_those_of_the_runs_own_evaluation(trained: Workbench, helper: Helper) -> None:
    own = [record for record in records(trained.run("mine")) if isinstance(record, EvaluationDone)]
    last = own[-1]
    result = evaluate(helper, "mine@checkpoint-30", "held_out.jsonl", against="base")
    found = figures(result)
    assert found["loss"]["values"] == pytest.approx([last.loss, own[0].loss], abs=1e-5)
    for name in ("mean_token_accuracy", "perplexity"):
        assert found[name]["values"] == pytest.approx([last.extras[name], own[0].extras[name]], rel=1e-5)
    assert found["token_f1"]["num_rows"] == 6 and "json_valid" not in found
    assert result["facts"]["num_questions"] == 6 and found["loss"]["verdict"] == "too few rows to tell"


@pytest.mark.slow
@pytest.mark.parametrize(
    "adapter", [{"method": "qlora", "r": 4}, {"method": "lora", "r": 4, "use_dora": True}], ids=["qlora", "dora"]
)
def test_other_adapters_are_measured_as_their_runs_did(
    adapter: dict[str, Any], helper: Helper, trained: Workbench, tmp_path: Path
) -> None:
    """Beside the base as it was trained on: of QLoRA, in 4 bits."""
    held_out, allowed = trained.folder / "held_out.jsonl", ["answers_cut_off", "leaked_rows", "no_target_tokens"]
    profile = make_profile(
        trained.folder / "base", trained.folder / "rows.jsonl", adapter=adapter,
        data={"eval": str(held_out), "chat_template": "chatml", "max_length": 128, "allow": allowed},
        train={"max_steps": 4, "learning_rate": 2e-2}, hardware={"device": "cpu"},
    )  # fmt: skip
    train_run(tmp_path / "runs" / "tiny", profile)
    run = Run(tmp_path / "runs" / "tiny")
    first, *_, last = (record for record in records(run) if isinstance(record, EvaluationDone))
    options = EvaluationOptions(data=held_out, against="base", max_new_tokens=4)
    result = msgspec.to_builtins(plan_evaluation(run, None, options).run(helper, lambda detail: None))
    found = figures(result)
    assert found["loss"]["values"] == pytest.approx([last.loss, first.loss], abs=1e-5) and last.loss != first.loss
    assert found["token_f1"]["num_rows"] == 6


def test_the_base_is_that_of_the_run(trained: Workbench, helper: Helper) -> None:
    run = trained.run("mine")
    base = read_manifest(run.final).fingerprints["base_model"]
    planned = plan_evaluation(*find_model("mine"), EvaluationOptions(data=Path("rows.jsonl"), against="base"))
    assert planned.request.trained_on == base == json.loads(planned.request.settings)["base"]
    changed = replace(planned, request=msgspec.structs.replace(planned.request, trained_on="0" * 64))
    with pytest.raises(ModelError, match="is not the one that was trained on"):
        changed.run(helper, lambda detail: None)
    with pytest.raises(ModelError, match="is not the one that was trained on"):
        HelperVoice(helper, planned.profile, [Side("base", trained_on="0" * 64)])


def test_an_evaluation_that_was_killed_goes_on(trained: Workbench, helper: Helper) -> None:
    options: dict[str, Any] = {
        "against": "base",
        "forgetting": "",
        "measures": Path("measures.py"),
        "allow": ["measures"],
    }
    whole = evaluate(helper, "mine", **options)
    found, forgotten = figures(whole), figures(whole, "forgetting")
    assert found["loss"]["verdict"] == "better" and found["loss"]["num_rows"] == 40
    assert found["num_letters"]["values"][0] > 0 and found["num_letters"]["algorithm"].startswith("your own")
    assert forgotten["kl"]["values"][0] > 0 == forgotten["kl"]["values"][1] and forgotten["kl"]["num_rows"] == 6
    path = Path(whole["folder"]) / "rows.jsonl"
    assert path.parent.parent == trained.run("mine").evaluations
    before = path.read_bytes()
    lines = before.splitlines(keepends=True)
    path.write_bytes(b"".join(lines[:50]) + lines[50][:30])
    again = evaluate(helper, "mine", **options)
    assert path.read_bytes().startswith(b"".join(lines[:50]))
    assert len(path.read_bytes().splitlines()) == len(lines), "nothing twice, and nothing missing"
    for table, first in zip(again["tables"], whole["tables"], strict=True):
        for line, of_first in zip(table["lines"], first["lines"], strict=True):
            assert line["values"] == pytest.approx(of_first["values"], rel=1e-5), line["name"]
            assert line["verdict"] == of_first["verdict"]


def test_a_folder_with_a_model_or_an_adapter(trained: Workbench, helper: Helper) -> None:
    """The base's own files, as transformers wrote them; its adapter with what stands on it."""
    of_run = figures(evaluate(helper, "mine@base", max_new_tokens=0))
    options: dict[str, Any] = {"out": Path("results"), "max_new_tokens": 0, "overrides": ("data.max_length=96",)}
    result = evaluate(helper, "base", **options)
    assert figures(result)["loss"]["values"] == of_run["loss"]["values"]
    assert any("no run" in note and "data.max_length = 96" in note for note in result["notes"])
    assert Path("results/rows.jsonl").is_file()
    shutil.copytree(trained.run("mine").final, "adapter")
    tuned = figures(evaluate(helper, "./adapter", against="base", max_new_tokens=0))
    assert tuned["loss"]["values"][1] == pytest.approx(of_run["loss"]["values"][0])
    assert tuned["loss"]["verdict"] == "better"


def test_a_run_that_compares_answers_is_evaluated_on_rows_with_one(trained: Workbench, helper: Helper) -> None:
    own, compared = (
        evaluate(helper, "mine", "held_out.jsonl", overrides=overrides, max_new_tokens=0)
        for overrides in ((), ("run.stage=dpo",))
    )
    assert figures(own)["loss"]["values"] == figures(compared)["loss"]["values"]
    assert any("stage dpo" in note for note in compared["notes"]) and own["notes"] == []


def test_no_answer_goes_beyond_what_the_model_sees(trained: Workbench, helper: Helper) -> None:
    """128 tokens of this one, of which the prompts have different numbers."""
    result = evaluate(helper, "mine", "rows.jsonl", max_new_tokens=1000, num_rows=12)
    lines = (Path(result["folder"]) / "rows.jsonl").read_text().splitlines()
    lengths = {one["scores"]["num_tokens"] for one in map(json.loads, lines) if one["kind"] == "row_answer"}
    assert len(lengths) > 1 and max(lengths) < 128


def test_results_in_words(trained: Workbench) -> None:
    Path("lm.json").write_text(json.dumps({"results": {"arc": {"acc,none": 0.5}}, "model_name": "m"}))
    options = ("--data", "held_out.jsonl", "--rows", "3", "--lm-eval", "lm.json", "--max-new-tokens", "8")
    done = trained.ftui("evaluate", "mine", *options)
    assert done.returncode == 0, done.stderr
    for words in ("perplexity", "rouge-l", "SQuAD v2", "arc", "mine@final on held_out.jsonl", "MiB needed"):
        assert words in done.stdout
    assert "difference" not in done.stdout
    for arguments, words in (((), "is not running"), (("--against", "base"), "--data FILE")):
        refused = trained.ftui("evaluate", "mine", *arguments)
        assert refused.returncode == 2 and words in refused.stderr and "--data FILE" in refused.stderr


REFUSED: tuple[tuple[str, dict[str, Any], int, str], ...] = (
    ("mine", {"data": "none.jsonl"}, 31, "none.jsonl cannot be read"),
    ("mine", {"data": "empty.jsonl"}, 31, "no rows in"),
    ("mine", {"data": "pairs.jsonl"}, 31, "sft trains on one answer"),
    ("mine@7", {}, 2, "has no checkpoint-7"),
    ("mine", {"overrides": ("run.stage=rm",)}, 2, "mine is of stage rm"),
    ("mine", {"overrides": ("data.max_length=1000",)}, 31, "the model sees at most 128 tokens"),
    ("mine", {"against": "final"}, 2, "is what it would be compared with"),
    ("mine", {"measures": Path("measures.py")}, 2, "measures.py is Python code"),
    ("mine", {"measures": Path("bad.py"), "allow": ["measures"]}, 2, "bad.py, line 2: f fails on"),
    ("mine", {"lm_eval": Path("rows.jsonl")}, 31, "no results of lm-eval"),
    ("mine", {"data": "held_out.jsonl", "forgetting": ""}, 2, "no evaluation rows of its own but these"),
    ("base", {"against": "base"}, 2, "there is no base of it"),
    ("base", {"forgetting": "rows.jsonl"}, 2, "has no base"),
    ("scores", {}, 2, "stage rm"),
    ("nobody", {}, 2, "There is no run named 'nobody'"),
)


def test_what_cannot_be_evaluated(trained: Workbench, helper: Helper) -> None:
    Path("empty.jsonl").write_text("")
    Path("pairs.jsonl").write_text(json.dumps({"prompt": "a", "chosen": "b", "rejected": "c"}) + "\n")
    Path("bad.py").write_text("def f(answer, row):\n    return row['none']\n")
    Path("scores").mkdir()
    Path("scores/config.json").write_text('{"architectures": ["LlamaForSequenceClassification"]}')
    for name, options, code, words in REFUSED:
        with pytest.raises(FtuiError) as error:
            evaluate(helper, name, **options)
        assert (error.value.exit_code, words in error.value.message) == (code, True), (name, options, error.value)


def test_each_line_of_the_menu_says_what_room_it_takes(trained: Workbench, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each says what it takes before anything is written, and a full disk refuses all but a push: that may go on with
    one that was cut short, and asks for what is missing as it begins."""
    weights, seen = Weights(trained.run("mine"), "final"), set()
    texts = {"evaluate": "held_out.jsonl", "push": str(trained.folder / "out")}
    for choice in choices_for(weights):
        job = choice.plan(weights, texts.get(choice.what, ""))
        room = "at most" if choice.what == "push" else "needed"
        assert room in {row[0]: row[1] for row in job.plan}["disk"] and "mine" in job.title
        if choice.what != "push":
            with monkeypatch.context() as full:
                full.setattr("ftui.system.volume.free_bytes", lambda folder: 10)
                with pytest.raises(DiskFullError, match="10 B free"):
                    choice.plan(weights, texts.get(choice.what, ""))
        seen.add(choice.what)
    assert seen == {"evaluate", "merge", "export", "push"} and not (trained.folder / "out").exists()


@pytest.mark.slow
def test_the_screens_merge_and_push_what_was_merged(trained: Workbench) -> None:
    out = trained.folder / "pushed"

    async def act(shown: ShownApp) -> None:
        await shown.until(lambda: "mine" in shown.text())
        await shown.press("c")
        await shown.until(lambda: "final" in shown.text())
        await shown.press("e", *"fp32", "enter")
        await shown.until(lambda: "enter start" in shown.text())
        await shown.press("enter")
        await shown.until(lambda: "done" in shown.text(), 60)
        assert "logits" in shown.text() and "loss" in shown.text()
        await shown.press("escape", "e", *"push final-fp32", "enter")
        shown.app.screen.query_one(Input).value = str(out)
        await shown.press("enter")
        await shown.until(lambda: "enter start" in shown.text())
        await shown.press("enter")
        await shown.until(lambda: "every hash was asked for there" in shown.text(), 60)

    async def main() -> None:
        async with shown_app() as shown:
            await act(shown)

    asyncio.run(main())
    merged = trained.run("mine").exports / "final-fp32" / "model.safetensors"
    assert (out / "model.safetensors").read_bytes() == merged.read_bytes()
