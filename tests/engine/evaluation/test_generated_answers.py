"""Answers at evaluations (`eval.generate`) are those of transformers, and are measured as others measure them."""

import errno
import json
import re
from contextlib import nullcontext
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from rouge_score.rouge_scorer import RougeScorer
from safetensors.torch import load_file
from transformers import AutoModelForCausalLM, AutoTokenizer

from ftui.engine.check_profile import check_profile
from ftui.engine.data.load_rows import DataSplit
from ftui.engine.data.tokens.encode import Encoder, Sequence
from ftui.engine.evaluation import generated_answers
from ftui.engine.evaluation.generated_answers import AnsweredRow, AnswerFile, AnswerMeasures
from ftui.engine.evaluation.rows_to_answer import RowsToAnswer, RowToAnswer, describe_rows, split_answer
from ftui.engine.generation import answer_prompts
from ftui.engine.generation.answer_prompts import FinishedAnswer
from ftui.engine.generation.decode import decode
from ftui.engine.runtime.event_writer import EventWriter
from ftui.engine.system.device import find_hardware
from ftui.errors import DataError, HardwareError, ProfileError
from ftui.profile.layers import resolve
from ftui.runs.events import EvaluationDone, RunFinished, Warned
from ftui.runs.journal import Tail
from ftui.runs.run_folder import Run
from tests.support.tiny import chats, column, make_profile, make_tokenizer, seen, train_run, write_rows

HELD_OUT = [{"messages": row["messages"][:2]} for row in chats(40)[24:]]
STOPS = [2, 3]
TURNS: tuple[Any, ...] = (  # ids, which are trained on, and the prompt and the answer that come of it
    ([9, 8, 7, 6, 2], [0, 0, 1, 1, 1], ([9, 8], [7, 6])),
    ([9, 8, 7, 6, 3, 4], [0, 0, 1, 1, 1, 0], ([9, 8], [7, 6])),
    ([9, 7, 2, 8, 6, 5, 2], [0, 1, 1, 0, 1, 1, 1], ([9, 7, 2, 8], [6, 5])),
    ([9, 7, 2, 4], [0, 1, 1, 1], ([9], [7])),
    ([9, 2], [0, 1], ([9], [])),
    ([9, 8, 7, 6], [0, 0, 1, 1], None),
    ([9, 7, 2, 8, 6], [0, 1, 1, 0, 1], None),
    ([7, 6, 2], [1, 1, 1], None),
    ([9, 8], [0, 0], None),
)


@pytest.mark.parametrize(("ids", "targets", "expected"), TURNS)
def test_a_row_is_parted_before_its_last_answer(ids: list[int], targets: list[int], expected: Any) -> None:
    """One whose answer does not end, or begins the row, is none."""
    sequence = Sequence(np.array(ids, np.int32), np.array(targets, bool))
    assert split_answer(sequence, STOPS) == expected


def make_run(folder: Path, base: Path, **evaluation: Any) -> tuple[Run, list[float]]:
    profile = make_profile(
        base, write_rows(folder.parent / "rows.jsonl", chats(24)),
        data={"eval": str(write_rows(folder.parent / "eval.jsonl", HELD_OUT))},
        adapter={"method": "lora", "r": 4, "lora_dropout": 0.3}, train={"max_steps": 6, "learning_rate": 2e-2},
        eval={"eval_strategy": "steps", "eval_steps": 2, "per_device_eval_batch_size": 3} | evaluation,
    )  # fmt: skip
    steps = train_run(folder, profile)
    return Run(folder), list(column(steps, "loss"))


def records(run: Run, kind: type[Any]) -> list[Any]:
    return [record for record in Tail(run.journal).read() if isinstance(record, kind)]


def lines(run: Run, step: int) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (run.evaluations / f"step-{step}.jsonl").read_text().splitlines()]


@pytest.fixture(scope="module")
def generating(tmp_path_factory: pytest.TempPathFactory, model_folder: Path) -> tuple[Run, list[float]]:
    folder = tmp_path_factory.mktemp("generating") / "run"
    return make_run(folder, model_folder, generate=True, load_best_model_at_end=False)


@pytest.mark.slow
def test_answers_are_those_of_transformers_and_so_are_their_measures(
    generating: tuple[Run, list[float]], model_folder: Path
) -> None:
    run, _ = generating
    tokenizer: Any = AutoTokenizer.from_pretrained(run.final)
    model: Any = AutoModelForCausalLM.from_pretrained(model_folder, dtype=torch.float32)
    model.load_adapter(str(run.final))
    model.eval()
    texts = [(question["content"], answer["content"]) for question, answer in (row["messages"] for row in HELD_OUT)]
    limit = max(len(tokenizer(answer)["input_ids"]) for _, answer in texts) + 1
    answers, rouge, num_tokens, stopped = [], [], [], []
    scorer = RougeScorer(["rougeL"])
    for question, reference in texts:
        turns = [{"role": "user", "content": question}]
        ids = tokenizer.apply_chat_template(turns, add_generation_prompt=True, return_tensors="pt", return_dict=True)
        found = model.generate(**ids, do_sample=False, max_new_tokens=limit)[0, ids["input_ids"].shape[1] :].tolist()
        answers.append(tokenizer.decode(found, skip_special_tokens=True).strip())
        rouge.append(scorer.score(reference, answers[-1])["rougeL"].fmeasure)
        num_tokens.append(len(found))
        stopped.append(found[-1] == tokenizer.eos_token_id)
    written = sorted(lines(run, 6), key=lambda line: line["row"])
    assert [line["answer"] for line in written] == answers
    assert [line["reference"] for line in written] == [reference for _, reference in texts]
    assert [line["row"] for line in written] == list(range(1, len(texts) + 1))
    assert 0 < sum(rouge) < len(rouge), "not all alike"
    extras = records(run, EvaluationDone)[-1].extras
    assert extras["rouge_l"] == pytest.approx(np.mean(rouge))
    assert extras["num_tokens"] == pytest.approx(np.mean(num_tokens))
    assert extras["stopped"] == pytest.approx(np.mean(stopped))
    assert extras["exact_match"] == pytest.approx(np.mean([a == r for a, (_, r) in zip(answers, texts, strict=True)]))
    assert "json_valid" not in extras, "no row has JSON to compare with"


@pytest.mark.slow
def test_a_run_that_answers_is_bit_identical_to_one_that_does_not(
    generating: tuple[Run, list[float]], tmp_path: Path, model_folder: Path
) -> None:
    run, losses = generating
    without, expected = make_run(tmp_path / "without", model_folder, load_best_model_at_end=False)
    assert losses == expected
    weights, others = (load_file(one.final / "adapter_model.safetensors") for one in (run, without))
    assert all(torch.equal(weights[name], others[name]) for name in others)
    assert not without.evaluations.exists()
    assert sorted(path.name for path in run.evaluations.iterdir()) == [f"step-{n}.jsonl" for n in (0, 2, 4, 6)]


@pytest.mark.slow
def test_answers_choose_the_best_checkpoint_and_stop_early(tmp_path: Path, model_folder: Path) -> None:
    run, _ = make_run(
        tmp_path / "run", model_folder, generate=True, generate_samples=5, generate_max_new_tokens=6, eval_steps=1,
        metric_for_best_model="rouge_l", early_stopping_patience=2,
    )  # fmt: skip
    evaluations = records(run, EvaluationDone)
    best, last_better = -1.0, 0
    for one in evaluations[1:]:
        assert one.best == (one.extras["rouge_l"] > best)
        last_better, best = (one.step, one.extras["rouge_l"]) if one.best else (last_better, best)
    end = records(run, RunFinished)[-1]
    assert end.step_final == last_better
    assert evaluations[-1].step == min(6, last_better + 2)
    assert len(lines(run, 1)) == 5
    assert len({line["row"] for line in lines(run, 1)} & {1, 16}) == 2, "from the first row to the last"


@pytest.mark.slow
def test_what_cannot_be_measured_is_no_zero(
    tmp_path: Path, model_folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A row that does not fit alone leaves all measures of answers out: the others would be of other rows."""

    def run_out(model: Any, prompts: Any, *arguments: Any, **options: Any) -> Any:
        if len(prompts) > 1 or len(prompts[0].ids) > 25:
            raise torch.OutOfMemoryError("out of memory (a test)")
        yield from decode(model, prompts, *arguments, **options)

    monkeypatch.setattr(answer_prompts, "decode", run_out)
    run, _ = make_run(
        tmp_path / "run", model_folder, generate=True, metric_for_best_model="rouge_l", early_stopping_patience=1
    )
    for one in records(run, EvaluationDone):
        assert one.loss is not None and "rouge_l" not in one.extras and not one.best
    unfit = [line for line in lines(run, 6) if line["ending"] == "memory"]
    assert unfit and all(line["scores"] == {} for line in unfit)
    warnings = [one.message for one in records(run, Warned)]
    reason = "the answer does not fit into memory"
    assert f"{len(unfit)} of 16 rows are not answered at step 6: {reason}" in warnings
    assert records(run, RunFinished)[-1].step == 6, "it costs no patience"


def test_a_row_without_finite_answer_leaves_all_measures_out(tmp_path: Path) -> None:
    run = Run(tmp_path)
    events = EventWriter(run, attempt=1, token="test")
    tokenizer = make_tokenizer()
    endings: list[Any] = ["stop", "not finite"]
    answers = [FinishedAnswer(number, (), ending) for number, ending in enumerate(endings)]
    generator: Any = SimpleNamespace(
        answer_ids=lambda *_: nullcontext(iter(answers)),
        read=tokenizer.decode,
        data=SimpleNamespace(tokenizer=tokenizer),
    )  # fmt: skip
    rows = RowsToAnswer([RowToAnswer(1, [9], [8]), RowToAnswer(2, [9], [8])], 0, 4)
    assert AnswerMeasures(run, rows, generator, events).measure(7) == {}
    assert [one.message for one in records(run, Warned)] == [
        "1 of 2 rows are not answered at step 7: the model's output is NaN or infinite"
    ]
    assert [bool(line["scores"]) for line in lines(run, 7)] == [True, False]


@pytest.mark.parametrize("blocked", [True, False], ids=["no folder", "full after a line"])
def test_answers_that_the_disk_does_not_take_cost_a_warning(
    blocked: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Their measures stay: an evaluation does not end for want of a file."""
    run, line = Run(tmp_path), AnsweredRow(1, "p", "r", "a", "stop", {})
    if blocked:
        run.evaluations.write_text("")
    events = EventWriter(run, attempt=1, token="test")
    file = AnswerFile(run, 7, events)
    file.write(line)

    def refuse(descriptor: int, data: bytes) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(generated_answers, "write_all", refuse)
    file.write(line)
    file.write(line)
    file.close()
    (warning,) = [one.message for one in records(run, Warned)]
    assert "the answers of step 7 are not kept" in warning
    assert blocked or len(lines(run, 7)) == 1


def test_rows_whose_answer_is_cut_are_not_asked(tmp_path: Path) -> None:
    tokenizer: Any = make_tokenizer()
    rows = write_rows(tmp_path / "rows.jsonl", HELD_OUT)
    whole = [len(tokenizer.apply_chat_template(row["messages"])["input_ids"]) for row in HELD_OUT]
    encoder = Encoder(tokenizer, "sft", frozenset(["<|im_end|>"]))

    def described(max_length: int, **evaluation: Any) -> str:
        sequences = seen([rows], encoder, tmp_path / "cache", max_length=max_length)
        split = DataSplit(sequences, np.arange(len(sequences)))
        profile = make_profile(tmp_path, rows, data={"eval": str(rows)}, eval={"generate": True, **evaluation})
        return "; ".join(describe_rows(profile, split, encoder.stop_ids))

    assert described(256) == ""
    lengths = [len(tokenizer(row["messages"][1]["content"])["input_ids"]) + 1 for row in HELD_OUT]
    number, longest = sum(length > 12 for length in lengths), max(lengths)
    expected = f"{number} of 16 evaluation rows have longer answers, up to {longest} tokens"
    assert expected in described(256, generate_max_new_tokens=12)
    assert "evaluation rows are not answered: data.max_length cuts their answers" in described(min(whole))
    with pytest.raises(DataError, match=r"none of \d+ evaluation rows has a prompt and a whole answer"):
        described(min(whole) - 3)


@pytest.mark.parametrize(
    ("keys", "complaint"),
    [
        ([], "generate = true needs evaluations: give data.eval"),
        (["run.stage=dpo", "data.eval_num_rows=2"], "stage dpo does not train on these"),
        (["data.eval_num_rows=2", "data.loss_on=everything"], "loss_on = 'everything' marks no answers"),
        (["data.eval_num_rows=2", "eval.generate=false", "eval.metric_for_best_model=bleu"], "Set generate = true"),
    ],
)
def test_a_profile_that_cannot_be_answered_is_refused(keys: list[str], complaint: str, tmp_path: Path) -> None:
    profile = tmp_path / "p.toml"
    profile.write_text('[run]\nstage = "sft"\n[model]\nname_or_path = "a/b"\n[data]\ntrain = "rows.jsonl"\n')
    with pytest.raises(ProfileError, match=re.escape(complaint)):
        resolve(profile, overrides=["eval.generate=true", *keys])
    resolve(profile, overrides=["eval.generate=true", "data.eval_num_rows=2", "eval.metric_for_best_model=eval_bleu"])


def test_a_measure_whose_library_is_missing_chooses_no_checkpoint(
    tmp_path: Path, model_folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("ftui.engine.check_profile.why_missing", lambda: "sacrebleu is missing")
    for metric in ("bleu", "rouge_l"):
        profile = make_profile(
            model_folder, tmp_path / "rows.jsonl", data={"eval": str(tmp_path / "rows.jsonl")},
            eval={"generate": True, "metric_for_best_model": metric},
        )  # fmt: skip
        if metric == "rouge_l":
            check_profile(profile, model_folder, find_hardware(profile))
            continue
        with pytest.raises(HardwareError, match="'bleu' needs the package sacrebleu"):
            check_profile(profile, model_folder, find_hardware(profile))
