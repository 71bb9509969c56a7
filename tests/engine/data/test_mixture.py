"""Several sources with weights, rows set aside, and what of a conversation is trained, through the real preparation."""

import json
import math
from collections import Counter
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from transformers import AutoTokenizer, GenerationConfig

from ftui.engine.data.files.raw_rows import Row
from ftui.engine.data.forms.formats import Chat, to_example
from ftui.engine.data.tokens.encode import Encoder, stop_texts
from ftui.engine.planning.plan import Plan, SourceShare, make_plan
from ftui.engine.training.prepare import TrainingData, prepare
from ftui.errors import DataError
from ftui.runs.events import Sampled
from ftui.runs.journal import Tail
from ftui.runs.run_folder import Run
from ftui.system.user_folders import cache_folder
from tests.engine.data.tokens.test_encode import DATED, FORGETFUL, TWO_TURNS, set_day, trained
from tests.support.tiny import (
    MARKED,
    PLAIN,
    chats,
    column,
    completions,
    make_profile,
    make_tokenizer,
    train_run,
    write_rows,
)

WEIGHTED = st.lists(
    st.tuples(st.integers(1, 30), st.sampled_from([0.1, 0.5, 0.75, 1.0, 1.0, 1.5, 2.0, 3.25])), min_size=1, max_size=4
)


def plan_of(sources: list[tuple[int, float]], **more: Any) -> Plan:
    lengths = np.arange(sum(number for number, _ in sources)) % 37 + 2
    options: dict[str, Any] = {"effective_batch": 4, "max_steps": None, "num_train_epochs": 2, "strategy": "random"}
    shares = [SourceShare(number, weight) for number, weight in sources]
    return make_plan(lengths, sources=shares, seed=9, **options | more)


def epoch(plan: Plan, number: int) -> list[int]:
    first = number * plan.steps_per_epoch + 1
    steps = range(first, first + plan.steps_per_epoch)
    return [index for step in steps for row in plan.step(step) for index in row]


@given(WEIGHTED, st.sampled_from(["random", "group_by_length", "sequential"]))
def test_a_weight_is_how_often_the_rows_of_a_source_come(sources: list[tuple[int, float]], strategy: str) -> None:
    """Whole passes, and a rest of different rows; over the epochs every row comes equally often."""
    if not sum(round(number * weight) for number, weight in sources):
        return
    plan = plan_of(sources, strategy=strategy)
    totals: Counter[int] = Counter()
    for number in range(8):
        seen, first = Counter(epoch(plan, number)), 0
        totals += seen
        for size, weight in sources:
            times = [seen[i] for i in range(first, first + size)]
            assert sum(times) == round(size * weight)
            assert {math.floor(round(size * weight) / size), math.ceil(round(size * weight) / size)} >= set(times)
            first += size
        first = 0
        for size, _ in sources:
            times = [totals[i] for i in range(first, first + size)]
            assert max(times) - min(times) <= 1
            first += size


def test_half_of_a_source_is_another_half_in_the_next_epoch() -> None:
    plan = plan_of([(10, 1.0), (20, 0.5)])
    halves = [{i for i in epoch(plan, number) if i >= 10} for number in range(2)]
    assert halves[0] | halves[1] == set(range(10, 30))
    assert epoch(plan, 0) == epoch(plan_of([(10, 1.0), (20, 0.5)]), 0), "a pure function"


def test_packing_keeps_sources_of_other_weights_apart() -> None:
    """A weight counts packed rows; sources of weight 1 share rows, the others do not."""
    plan = plan_of([(40, 1.0), (30, 0.5), (50, 1.0), (20, 2.0)], packing_length=64)
    groups = [set(range(40)) | set(range(70, 120)), set(range(40, 70)), set(range(120, 140))]
    counts = [sum(set(row) <= group for row in plan.rows) for group in groups]
    assert sum(counts) == len(plan.rows) < 140
    assert any(set(row) & set(range(40)) and set(row) & set(range(70, 120)) for row in plan.rows)
    assert [share.num_rows for share in plan.shares] == counts
    assert plan.rows_per_epoch == counts[0] + round(counts[1] / 2) + 2 * counts[2]


@pytest.fixture
def files(tmp_path: Path) -> dict[str, Path]:
    return {
        "chats": write_rows(tmp_path / "chats.jsonl", chats(30)),
        "completions": write_rows(tmp_path / "completions.jsonl", completions(20)),
        "questions": write_rows(tmp_path / "questions.csv", []),
    }


def prepared(model: Path, train: Any, stage: str = "sft", **data: Any) -> TrainingData:
    profile = make_profile(model, Path("x"), run={"stage": stage}, data={"train": train} | data)
    return prepare(profile, cache_folder(Path()), lambda detail: None)


def test_sources_are_joined_in_their_order(model_folder: Path, files: dict[str, Path]) -> None:
    """A text, a table, a table with its own form; each part is what the source gives alone."""
    files["questions"].write_text("question,answer\nwhy?,so\nwho?,me\n")
    table = {"path": str(files["completions"]), "weight": 0.5, "format": "prompt_completion"}
    found = prepared(model_folder, [str(files["chats"]), table, {"path": str(files["questions"]), "weight": 3.0}])
    sequences = found.train.sequences
    assert sequences.bounds == (0, 30, 50, 52)
    assert (sequences.counts.num_rows, sequences.counts.num_sequences) == (52, 52)
    assert found.plan.rows_per_epoch == 30 + 10 + 6
    for name, (start, end) in zip(files, pairwise(sequences.bounds), strict=True):
        alone = prepared(model_folder, str(files[name])).train.sequences
        for index in range(start, end):
            assert sequences[index].input_ids.tolist() == alone[index - start].input_ids.tolist()
            assert sequences[index].targets.tolist() == alone[index - start].targets.tolist()
        assert (sequences.rows[start:end] - start).tolist() == alone.rows.tolist()
        assert sequences.counts.fingerprint != alone.counts.fingerprint


def test_rows_to_evaluate_on_may_be_tables_too(model_folder: Path, files: dict[str, Path]) -> None:
    tables = [{"path": str(files["completions"]), "format": "prompt_completion"}, str(files["chats"])]
    found = prepared(model_folder, str(files["chats"]), eval=tables, allow=["leaked_rows"])
    assert found.evaluation is not None
    assert len(found.evaluation.indices) == found.evaluation.num_rows == 50
    assert len(found.train.indices) == 30


def test_a_folder_is_one_source(model_folder: Path, files: dict[str, Path]) -> None:
    """Files of several kinds and forms; what text lies beside them is no row."""
    files["questions"].write_text("question,answer\nwhy?,so\n")
    (files["chats"].parent / "story.txt").write_text("it ran away")
    found = prepared(model_folder, str(files["chats"].parent)).train.sequences
    assert found.bounds == (0, 30 + 20 + 1)


def test_a_part_that_a_path_cannot_have_is_refused(model_folder: Path, files: dict[str, Path]) -> None:
    """Else a copy of a data set of the hub would be trained on with its test files."""
    file, folder = files["chats"], files["chats"].parent
    for path, more, words in (
        (file, {"split": "train"}, "split is of a data set on the hub"),
        (file, {"subset": "en", "revision": "main"}, "subset and revision are of a data set on the hub"),
        (folder, {"revision": "main"}, "revision is of a data set on the hub"),
        (folder, {"split": "train"}, "neither a card nor names of files tell the splits"),
        (folder, {"subset": "en"}, "has no subset 'en': it has no card that names any"),
    ):
        with pytest.raises(DataError, match=words) as caught:
            prepared(model_folder, [{"path": str(path), **more}])
        assert f"Leave {' and '.join(more)} out" in caught.value.hint


def test_a_weight_that_leaves_nothing_is_named(model_folder: Path, files: dict[str, Path]) -> None:
    with pytest.raises(DataError, match=r"completions\.jsonl: weight 0\.01 of 20 sequences leaves none in an epoch"):
        prepared(model_folder, [str(files["chats"]), {"path": str(files["completions"]), "weight": 0.01}])


def test_a_source_that_is_set_aside_whole_is_named(model_folder: Path, files: dict[str, Path], tmp_path: Path) -> None:
    """Its weight has nothing to do with it."""
    small = write_rows(tmp_path / "small" / "rows.jsonl", [{"prompt": "one", "completion": "alone"}])
    with pytest.raises(
        DataError, match=r"small/rows\.jsonl: all of its rows are set aside for evaluation\.$"
    ) as caught:
        prepared(model_folder, [str(files["chats"]), str(small)], eval_num_rows=30, allow=["few_rows", "leaked_rows"])
    assert "eval_num_rows" in caught.value.hint and "weight" not in caught.value.hint


def test_a_share_of_each_source_is_set_aside(model_folder: Path, files: dict[str, Path]) -> None:
    train = [str(files["chats"]), {"path": str(files["completions"]), "weight": 2.0}]
    found = prepared(model_folder, train, eval_fraction=0.1)
    assert found.evaluation is not None
    sides = [set(found.train.indices.tolist()), set(found.evaluation.indices.tolist())]
    assert sides[0] | sides[1] == set(range(50))
    assert not sides[0] & sides[1]
    assert sum(i < 30 for i in sides[1]) == 3
    assert sum(i >= 30 for i in sides[1]) == 2
    assert found.plan.rows_per_epoch == 27 + 2 * 18
    again = prepared(model_folder, train, eval_fraction=0.1)
    assert again.evaluation is not None
    assert again.evaluation.indices.tolist() == found.evaluation.indices.tolist()


def test_the_order_and_the_rows_set_aside_have_a_seed_of_their_own(model_folder: Path, files: dict[str, Path]) -> None:
    def chosen(**train: int) -> tuple[list[int], list[int]]:
        data = {"train": str(files["chats"]), "eval_num_rows": 5}
        found = prepare(make_profile(model_folder, Path("x"), data=data, train=train), cache_folder(Path()), print)
        assert found.evaluation is not None and isinstance(found.plan, Plan)
        return found.evaluation.indices.tolist(), found.plan.order(0).tolist()

    assert chosen(seed=1, data_seed=5) == chosen(seed=2, data_seed=5) == chosen(seed=5)
    assert all(a != b for a, b in zip(chosen(seed=1), chosen(seed=5), strict=True))


def test_a_share_of_few_rows_leaves_one_to_learn(model_folder: Path, tmp_path: Path) -> None:
    for number, fraction, apart in ((2, 0.9, 1), (2, 0.1, 1), (3, 0.99, 2), (10, 0.96, 9), (10, 0.94, 9)):
        rows = write_rows(tmp_path / f"{number}.jsonl", chats(number))
        found = prepared(model_folder, str(rows), eval_fraction=fraction)
        assert found.evaluation is not None
        assert (found.train.num_rows, found.evaluation.num_rows) == (number - apart, apart)
    with pytest.raises(DataError, match=r"1 row is to be set aside for evaluation, and there is only one\.") as caught:
        prepared(model_folder, str(write_rows(tmp_path / "1.jsonl", chats(1))), eval_fraction=0.9)
    assert caught.value.hint.startswith("Get more rows, or leave out what sets some aside: data.eval_fraction")
    text = tmp_path / "book.txt"
    text.write_text("the cache ran away\n" * 50)
    for split in ({"eval_fraction": 0.1}, {"eval_num_rows": 1}):
        with pytest.raises(DataError, match="there is only one") as caught:
            prepared(model_folder, str(text), **split)
        assert caught.value.hint.startswith('run.stage = "pretrain" is for plain text')


def test_what_was_made_of_one_row_stays_on_one_side(model_folder: Path, tmp_path: Path) -> None:
    """Long documents are split: no part of one that is measured may be trained on."""
    rows = write_rows(tmp_path / "long.jsonl", [{"text": f"{i} " + "the cache ran away " * (i % 5)} for i in range(40)])
    for split in ({"eval_num_rows": 7}, {"eval_fraction": 0.175}):
        found = prepared(model_folder, str(rows), stage="pretrain", max_length=8, **split)
        assert found.evaluation is not None
        row_of = found.train.sequences.rows
        sides = [set(row_of[part.indices].tolist()) for part in (found.train, found.evaluation)]
        assert (len(sides[0]), len(sides[1])) == (33, 7) == (found.train.num_rows, found.evaluation.num_rows)
        assert not sides[0] & sides[1]
        assert len(found.evaluation.indices) > 7
    with pytest.raises(DataError, match="40 rows are to be set aside for evaluation, and there are only 40"):
        prepared(model_folder, str(rows), stage="pretrain", eval_num_rows=40)


def test_the_named_template_is_the_tokenizers(model_folder: Path, files: dict[str, Path]) -> None:
    found = prepared(model_folder, str(files["chats"]), chat_template="zephyr")
    assert "<|assistant|>" in str(found.tokenizer.decode(found.train.sequences[0].input_ids.tolist()))
    assert "<|assistant|>" in str(found.tokenizer.chat_template)
    (told,) = [warning for warning in found.warnings if "the tokenizer's own template" in warning]
    assert "with an answer: '<|user|>\\nWho?" in told
    warned = prepared(model_folder, str(files["chats"]), chat_template="gemma").warnings
    assert any("model.extra_special_tokens" in warning for warning in warned)
    assert not any("own template" in warning for warning in prepared(model_folder, str(files["chats"])).warnings)


def test_a_run_learns_its_mixture_and_keeps_its_template(
    model_folder: Path, files: dict[str, Path], tmp_path: Path
) -> None:
    table = {"path": str(files["completions"]), "weight": 1.5}
    marks = ["<|user|>", "<|assistant|>", "<|end|>"]
    data = {"train": [str(files["chats"]), table], "chat_template": "phi", "packing": True}
    train = {"num_train_epochs": 2, "per_device_train_batch_size": 4}
    profile = make_profile(model_folder, Path("x"), data=data, train=train, model={"extra_special_tokens": marks})
    steps = train_run(tmp_path / "run", profile)
    found = prepare(profile, cache_folder(Path()), lambda detail: None)
    assert isinstance(found.plan, Plan)
    order = np.concatenate([found.plan.order(epoch) for epoch in range(2)])
    chosen = found.train.sequences.num_targets[found.plan.rows.flat(order)]
    assert column(steps, "num_target_tokens").sum() == chosen.sum()
    assert len(steps) == 2 * math.ceil(found.plan.rows_per_epoch / 4)
    kept = AutoTokenizer.from_pretrained(tmp_path / "run" / "final", local_files_only=True)
    assert kept.chat_template == found.tokenizer.chat_template
    assert "message.role + '|>" in kept.chat_template
    assert kept.eos_token == "<|end|>"
    stops = GenerationConfig.from_pretrained(tmp_path / "run" / "final").eos_token_id
    assert stops == kept.convert_tokens_to_ids(["<|end|>", "<|im_end|>"])


def test_a_run_of_another_day_is_the_same_run(
    model_folder: Path, files: dict[str, Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With a template that prints the date, on another machine; and then on this one, its tokens in the cache."""
    (tmp_path / "dated.jinja").write_text(DATED[0] + PLAIN)
    data = {"train": str(files["chats"]), "chat_template": str(tmp_path / "dated.jinja"), "eval_num_rows": 3}
    asked = {"sample_prompts": ["why?"], "eval_strategy": "epoch", "sample_max_new_tokens": 24}
    profile = make_profile(model_folder, Path("x"), data=data, eval=asked, train={"max_steps": 2})
    found = []
    for day, cache in ((1, "here"), (22, "there"), (23, "here")):
        set_day(monkeypatch, day)
        monkeypatch.setenv("FTUI_CACHE", str(tmp_path / cache))
        losses = column(train_run(tmp_path / f"run{day}", profile), "loss").tolist()
        journal = Tail(Run(tmp_path / f"run{day}").journal).read()
        found.append((losses, [record.completion for record in journal if isinstance(record, Sampled)]))
    assert found[0] == found[1] == found[2]
    assert found[0][1], "a sample was asked for"


END = "<|im_end|>"
ROWS: dict[str, dict[str, Any]] = {
    "messages": {"messages": TWO_TURNS},
    "prompt_completion": {"prompt": "Q: the\nA:", "completion": " ran"},
}
WHOLE = "".join(f"<|im_start|>{m['role']}\n{m['content']}{END}\n" for m in TWO_TURNS)


@pytest.mark.parametrize(
    ("loss_on", "chat", "completion"),
    [
        ("assistant", [f"ran away{END}", f"it forks\nquietly{END}"], f" ran{END}"),
        ("last", [f"it forks\nquietly{END}"], f" ran{END}"),
        ("everything", [WHOLE], f"Q: the\nA: ran{END}"),
    ],
)
@pytest.mark.parametrize("template", [PLAIN, MARKED], ids=["plain", "marked"])
def test_what_of_a_conversation_is_trained_on(loss_on: str, chat: list[str], completion: str, template: str) -> None:
    tokenizer = make_tokenizer(template)
    encoder = Encoder(tokenizer, "sft", stop_texts(tokenizer, []), loss_on)
    both_answers = {"prompt": TWO_TURNS[:2], "completion": TWO_TURNS[2:]}
    for form, value, expected in (
        ("messages", ROWS["messages"], chat),
        ("prompt_completion", ROWS["prompt_completion"], [completion]),
        ("prompt_completion", both_answers, chat),
    ):
        (sequence,) = encoder.encode([Row(Path("r"), 1, value)], form)
        assert trained(tokenizer, sequence) == expected


FIRST_UNLEARNED = [message | ({"weight": 0} if number == 2 else {}) for number, message in enumerate(TWO_TURNS)]
SHAREGPT = [
    {"from": {"user": "human", "assistant": "gpt"}[m["role"]], "value": m["content"]} | {"weight": m.get("weight")}
    for m in FIRST_UNLEARNED[1:]
]
UNLEARNED: list[tuple[str, dict[str, Any]]] = [
    ("messages", {"messages": FIRST_UNLEARNED}),
    ("messages", {"messages": FIRST_UNLEARNED[1:], "system": "be brief"}),
    ("sharegpt", {"conversations": SHAREGPT, "system": "be brief"}),
    ("sharegpt", {"conversations": [{"from": "system", "value": "be brief"}, *SHAREGPT]}),
    ("prompt_completion", {"prompt": TWO_TURNS[:4], "completion": TWO_TURNS[4:]}),
    ("prompt_completion", {"prompt": TWO_TURNS[:2], "completion": FIRST_UNLEARNED[2:]}),
]


@pytest.mark.parametrize("loss_on", ["assistant", "last", "everything"])
@pytest.mark.parametrize("template", [PLAIN, MARKED, FORGETFUL], ids=["plain", "marked", "forgetful"])
def test_turns_of_no_weight_and_answers_in_a_prompt_are_read_and_not_trained_on(loss_on: str, template: str) -> None:
    """The same conversation in every form that can say so."""
    tokenizer = make_tokenizer(template)
    encoder = Encoder(tokenizer, "sft", stop_texts(tokenizer, []), loss_on)
    for form, value in UNLEARNED:
        (sequence,) = encoder.encode([Row(Path("r"), 1, value)], form)
        assert trained(tokenizer, sequence) == [WHOLE if loss_on == "everything" else f"it forks\nquietly{END}"]
        assert str(tokenizer.decode(sequence.input_ids.tolist())) == WHOLE


@pytest.mark.parametrize("name", ["weight", "loss_weight"])
def test_a_turn_is_trained_on_or_not(name: str) -> None:
    encoder = Encoder(make_tokenizer(), "sft", frozenset({END}))
    said = {"from": "gpt", "value": "so"}
    for turn in (said | {name: 0}, {"from": "function_call", "value": '{"name": "f", "arguments": {}}', name: 0}):
        row = Row(Path("r"), 1, {"conversations": [{"from": "human", "value": "why?"}, turn]})
        example = to_example(row, "sharegpt")
        assert isinstance(example, Chat)
        assert example.untrained == {1}
    row = Row(Path("r"), 1, {"conversations": [said | {name: 0.5}]})
    with pytest.raises(DataError, match=r"r:1: turn 1 of 'conversations' has the weight 0\.5: a turn is trained on"):
        list(encoder.encode([row], "sharegpt"))


def test_the_last_turn_of_a_template_that_rewrites_is_one_sequence() -> None:
    turns = [("user", "the"), ("assistant", "hm</think>ran"), ("user", "and"), ("assistant", "2</think>2")]
    messages = [{"role": role, "content": content} for role, content in turns]
    tokenizer = make_tokenizer(FORGETFUL)
    encoder = Encoder(tokenizer, "sft", stop_texts(tokenizer, []), "last")
    rows = [Row(Path("r"), n, {"messages": json.dumps(messages)}) for n in range(2)]
    first, second = encoder.encode(rows, "messages")
    assert trained(tokenizer, first) == [f"2</think>2{END}"]
    assert (first.row, second.row) == (0, 1)
