"""What a run measures before its first step: once, whatever kills it, and that it begins with a reward of exactly 0."""

import math
import shutil
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.numpy import load_file
from transformers import LlamaForCausalLM

from ftui.engine.distributed.process_group import ProcessGroup
from ftui.engine.planning.plan import Row
from ftui.engine.training import measure_log_probs
from ftui.engine.training.initial_model import InitialModel, Place
from ftui.engine.training.measure_log_probs import BatchLogProbs, Measurement, measure
from ftui.engine.training.prepare import prepare
from ftui.errors import FtuiError, HostMemoryError
from ftui.launch.open_run import create
from ftui.profile.layers import resolve
from ftui.profile.schema import Profile
from ftui.profile.serialize import to_toml
from ftui.runs.checkpoint_folders import Checkpoint
from ftui.runs.events import EvaluationDone, RunStarted, Step
from ftui.runs.run_folder import Run, RunFacts
from tests.support.attempts import Killed, attempt, killed_attempt, records
from tests.support.sameness import same_runs
from tests.support.tiny import judged_answers, make_profile, preference_pairs, train_run, write_rows

LORA = {"method": "lora", "r": 4, "lora_alpha": 16}
REWARDS = ("rewards/chosen", "rewards/rejected", "rewards/margins")


def comparing(model: Path, rows: Path, /, stage: str = "dpo", **sections: dict[str, Any]) -> Profile:
    base: dict[str, dict[str, Any]] = {
        "run": {"stage": stage},
        "data": {"eval_num_rows": 6},
        "train": {"max_steps": 12, "per_device_train_batch_size": 4, "learning_rate": 5e-3, "warmup_steps": 0},
    }
    merged = base | {name: base.get(name, {}) | values for name, values in sections.items()}
    return make_profile(model, rows, **merged)


@pytest.fixture
def rows(tmp_path: Path) -> Path:
    return write_rows(tmp_path / "rows.jsonl", preference_pairs(40))


@pytest.fixture
def batches(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Rows of each batch that went through the model before the first step."""
    measured: list[int] = []
    log_probs = BatchLogProbs.__call__

    def counted(self: BatchLogProbs, split: Any, rows: Any) -> Any:
        measured.append(len(rows))
        return log_probs(self, split, rows)

    monkeypatch.setattr(BatchLogProbs, "__call__", counted)
    return measured


def another_base(model_folder: Path, folder: Path) -> Path:
    """The same model, one of its weights a little larger."""
    shutil.copytree(model_folder, folder)
    model = LlamaForCausalLM.from_pretrained(folder)
    with torch.no_grad():
        model.lm_head.weight[5] += 0.01
    model.save_pretrained(folder)
    return folder


STARTS: dict[str, dict[str, Any]] = {
    "full": {},
    "freeze": {"adapter": {"method": "freeze", "trainable_layers": 1}},
    "ld_alpha": {"adapter": LORA, "preference": {"ld_alpha": 0.5}},
    "ld_alpha full": {"preference": {"ld_alpha": 0.5}},
    "trained head": {"adapter": LORA | {"modules_to_save": ["lm_head"]}},
    "trained ends, DoRA": {"adapter": LORA | {"modules_to_save": ["embed_tokens", "lm_head"], "use_dora": True}},
    "token rows": {"adapter": LORA, "model": {"extra_special_tokens": ["<|think|>"]}},
    "packed": {"adapter": LORA, "data": {"packing": True}},
    "continued": {"adapter": LORA},
    "continued, judged": {"adapter": LORA, "run": {"stage": "kto"}},
    "apo": {"adapter": LORA, "run": {"stage": "kto"}, "preference": {"loss_type": "apo_zero_unpaired"}},
}


@pytest.mark.slow
@pytest.mark.parametrize("start", STARTS)
def test_the_first_step_has_rewards_of_exactly_0(
    start: str, model_folder: Path, tmp_path: Path, batches: list[int]
) -> None:
    """And moves away from there: a reference that followed the model would stay at 0. So it is with values that another
    run has measured."""
    sections = STARTS[start]
    stage = sections.get("run", {}).get("stage", "dpo")
    rows = write_rows(tmp_path / "rows.jsonl", preference_pairs(40) if stage == "dpo" else judged_answers(46))
    if start.startswith("continued"):
        bare = Run(tmp_path / "bare")
        assert attempt(bare, comparing(model_folder, rows, **sections)) == 0
        train = {"max_steps": 6, "learning_rate": 2e-2, "warmup_steps": 0}
        chats = write_rows(tmp_path / "sft.jsonl", [{"prompt": "Q", "completion": f"A {n}"} for n in range(8)])
        train_run(tmp_path / "sft", make_profile(model_folder, chats, adapter=LORA, train=train))
        folder = str(tmp_path / "sft" / "final")
        sections = sections | {"adapter": {"method": "lora", "name_or_path": folder}}
    run, again = Run(tmp_path / "run"), Run(tmp_path / "again")
    assert attempt(run, comparing(model_folder, rows, **sections)) == 0
    batches.clear()
    assert attempt(again, comparing(model_folder, rows, **sections, train={"max_steps": 1})) == 0
    assert not batches
    expected = math.log(2) if stage == "dpo" else 0.5
    steps = records(run, Step)
    for first in (steps[0], records(run, EvaluationDone)[0], records(again, Step)[0]):
        assert first.loss == pytest.approx(expected, abs=1e-6)
        assert {first.extras.get(name) for name in (*REWARDS, "kl")} <= {0.0, None}
    assert abs(steps[-1].loss - expected) > 0.01
    has_z0 = stage == "kto" and start != "apo"  # else no pass of mismatched answers is made
    assert ("kl" in steps[-1].extras) == has_z0 == any("mismatched" in name for name in load_file(run.reference))
    if start.startswith("continued"):  # the reference is the adapter's, not the bare base's
        own, base = (load_file(one.reference)["train"] for one in (run, bare))
        assert np.abs(own - base).mean() > 0.01


@pytest.mark.slow
def test_nothing_is_measured_twice(
    model_folder: Path, rows: Path, tmp_path: Path, batches: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of two runs one after another: a first, and one that differs from it in one thing. No forward where it hits."""
    monkeypatch.setenv("FTUI_CACHE", str(tmp_path / "cache"))
    chosen = make_profile(model_folder, rows, adapter=LORA, train={"max_steps": 2}, data={"format": "preference"})
    train_run(tmp_path / "sft", chosen)
    adapter = {"method": "lora", "name_or_path": str(tmp_path / "sft" / "final")}
    other = another_base(model_folder, tmp_path / "other")
    hits: list[dict[str, Any]] = [
        {"preference": {"beta": 0.5}},
        {"preference": {"loss_type": "ipo"}},
        {"preference": {"loss_type": ["sigmoid", "sft"], "label_smoothing": 0.1, "ld_alpha": 0.5}},
        {"train": {"learning_rate": 1e-4, "optim": "adafactor"}},
        {"eval": {"eval_strategy": "steps", "eval_steps": 3}},
        {"checkpoint": {"save_steps": 2}},
    ]
    misses: list[dict[str, Any]] = [
        {"data": {"max_length": 250}},
        {"data": {"chat_template": "alpaca"}},
        {"data": {"eval_num_rows": 5}},
        {"model": {"name_or_path": str(other)}},
        {"model": {"dtype": "bfloat16"}},
        {"model": {"attn_implementation": "eager"}},
        {"model": {"extra_special_tokens": ["<|think|>"]}},
        {"train": {"precision": "bf16"}},
        {"adapter": LORA},
        {"adapter": LORA | {"r": 8}},
        {"adapter": adapter},
    ]
    profile = partial(comparing, model_folder, rows)
    train_run(tmp_path / "first", profile())
    assert batches == [4] * 8 + [2] + [6], "34 rows in micro-batches of four, the evaluation rows in one"
    for number, sections in enumerate([*hits, *misses]):
        batches.clear()
        train = {"max_steps": 12} | sections.get("train", {})
        train_run(tmp_path / str(number), profile(**sections | {"train": train}))
        assert bool(batches) == (sections in misses), sections


@pytest.mark.slow
def test_only_rows_that_are_new_to_a_longer_run_are_measured(
    model_folder: Path, rows: Path, tmp_path: Path, batches: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("FTUI_CACHE", str(tmp_path / "cache"))
    for steps, number in ((2, 2 + 1), (5, 3), (12, 4), (12, 0), (3, 0)):
        batches.clear()
        train_run(tmp_path / f"{steps} {number}", comparing(model_folder, rows, train={"max_steps": steps}))
        assert len(batches) == number, steps
    with pytest.MonkeyPatch.context() as other:
        other.setenv("FTUI_CACHE", str(tmp_path / "another"))
        train_run(tmp_path / "at once", comparing(model_folder, rows))
    found, expected = (load_file(tmp_path / name / "reference.safetensors") for name in ("12 0", "at once"))
    assert {name: value.tobytes() for name, value in found.items()} == {
        name: value.tobytes() for name, value in expected.items()
    }


@pytest.mark.slow
@pytest.mark.parametrize(("stage", "method"), [("dpo", "lora"), ("dpo", "full"), ("kto", "lora")])
def test_a_killed_run_goes_on_bit_for_bit(
    stage: str, method: str, model_folder: Path, tmp_path: Path, batches: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Killed while the reference is measured, of which each rank keeps what it has; and in a step."""
    given = preference_pairs(40) if stage == "dpo" else judged_answers(40)
    rows = write_rows(tmp_path / "rows.jsonl", given)
    profile = comparing(
        model_folder, rows, stage, adapter=LORA if method == "lora" else {"method": "full"},
        checkpoint={"save_steps": 2}, eval={"eval_strategy": "steps", "eval_steps": 2},
    )  # fmt: skip
    whole, cut = Run(tmp_path / "whole"), Run(tmp_path / "cut")
    monkeypatch.setenv("FTUI_CACHE", str(tmp_path / "one"))
    assert attempt(whole, profile) == 0
    number = len(batches)
    monkeypatch.setenv("FTUI_CACHE", str(tmp_path / "another"))
    monkeypatch.setattr(measure_log_probs, "ROUND", 2)
    log_probs = BatchLogProbs.__call__

    def deadly(self: Any, *arguments: Any) -> Any:
        if len(batches) == 7:
            raise Killed
        return log_probs(self, *arguments)

    batches.clear()
    with monkeypatch.context() as patched, pytest.raises(Killed):
        patched.setattr(BatchLogProbs, "__call__", deadly)
        patched.setattr(measure_log_probs, "KEEP_SECONDS", 0.0)
        attempt(cut, profile)
    assert [path.name for path in cut.folder.glob("reference*")] == ["reference.0.safetensors"]
    batches.clear()
    killed_attempt(cut, profile, 3, monkeypatch, 2)
    assert len(batches) == number - 6, "three rounds of two were kept"
    assert [path.name for path in cut.folder.glob("reference*")] == ["reference.safetensors"]
    assert attempt(cut, profile, 3) == 0
    assert len(batches) == number - 6
    assert records(cut, RunStarted)[-1].reproducibility == "EXACT"
    same_runs(cut, whole)


@pytest.mark.slow
def test_a_fork_measures_what_its_parent_did_not(
    model_folder: Path, rows: Path, tmp_path: Path, batches: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("FTUI_CACHE", str(tmp_path / "one"))
    saved, parent, child = {"save_steps": 2}, Run(tmp_path / "parent"), Run(tmp_path / "child")
    assert attempt(parent, comparing(model_folder, rows, train={"max_steps": 4}, checkpoint=saved)) == 0
    profile = comparing(
        model_folder, rows, train={"max_steps": 7}, preference={"beta": 0.3, "loss_type": "ipo"}, checkpoint=saved
    )
    (tmp_path / "child.toml").write_text(to_toml(profile))
    facts = RunFacts(
        run_id="", name="", created=0.0, profile_name="test", parent_run=parent.read_facts().run_id,
        parent_name="parent", parent_checkpoint="checkpoint-2", fork=True,
    )  # fmt: skip
    inherited = [Checkpoint(parent.checkpoints / "checkpoint-2", 2)]
    assert create(child, resolve(tmp_path / "child.toml"), template=facts, inherited=inherited)
    monkeypatch.setenv("FTUI_CACHE", str(tmp_path / "another"))
    batches.clear()
    assert attempt(child, profile, 2) == 0
    assert batches == [4] * 3
    assert [step.step for step in records(child, Step)] == list(range(3, 8))


class Team(ProcessGroup):
    """A rank of several whose exchanges reach nobody: it only knows which batches are its own."""

    def gather(self, data: bytes) -> list[bytes]:
        return [data] * self.size


@pytest.mark.parametrize("as_losses", [False, True])
@pytest.mark.parametrize("size", [2, 3])
def test_the_parts_of_all_ranks_are_what_one_process_measures(
    size: int, as_losses: bool, monkeypatch: pytest.MonkeyPatch, split: Any
) -> None:
    """Batches overlap, and one has an example twice. A value says in which batch it was measured."""
    monkeypatch.setattr(measure_log_probs, "ROUND", 2)
    numbers: list[list[Row]] = [[(0,), (1,)], [(1,), (2,)], [(3, 4), (5,)], [(2,), (6,)], [(7,), (7,), (0,)], [(8,)]]
    numbers.append([(9,), (10,)])
    made = [Measurement(split, lambda: iter(numbers), as_losses) for _ in range(size + 1)]
    calls: list[Any] = []

    def log_probs(given: Any, rows: Any) -> Any:
        calls.append(rows)
        return np.concatenate(
            [
                np.arange(split.num_targets[n], dtype=np.float32) + 100 * n + 1e4 * rows[0][0]
                for row in rows
                for n in row
            ]
        )

    asked: Any = log_probs
    asked.parts = SimpleNamespace(base=None)  # nobody shares the model: no passes to take part in
    for rank, one in enumerate(made):
        group = ProcessGroup() if rank == size else Team(rank, size)
        assert measure([one], asked, group, lambda words: None, lambda: None)
    assert len(calls) == 2 * len(numbers), "each batch once by one process, once by one of the ranks"
    whole = made.pop()
    assert np.sum([one.is_own for one in made], axis=0).tolist() == [1] * 11 + [0] * (len(split) - 11)
    for one in made[1:]:
        made[0].add_part(*one.own_part())
    assert made[0].values.tobytes() == whole.values.tobytes()
    assert not np.isnan(whole.values[: whole.starts[11]]).any() and np.isnan(whole.values[whole.starts[11] :]).all()
    assert not measure([made[0]], asked, ProcessGroup(), lambda words: None, lambda: None), "nothing is left"


@pytest.fixture
def split(model_folder: Path, tmp_path: Path) -> Any:
    rows = write_rows(tmp_path / "pairs.jsonl", [{"prompt": "Q", "completion": "A" * (1 + n)} for n in range(14)])
    return prepare(make_profile(model_folder, rows), tmp_path / "cache", lambda detail: None).train


@pytest.mark.parametrize("most", [1, 0])
def test_memory_that_runs_out_halves_a_batch(most: int, split: Any) -> None:
    batches: list[list[Row]] = [[(0,), (1,), (2, 3)], [(4,), (5,)]]
    one, sizes, seen = Measurement(split, lambda: iter(batches)), split.num_targets, []

    class Narrow:
        parts = type("Parts", (), {"device": torch.device("cpu"), "base": None})

        def __call__(self, given: Any, rows: Any) -> Any:
            seen.append(rows)
            ids = [number for row in rows for number in row]
            return None if len(rows) > most else np.repeat(np.array(ids, np.float32), sizes[ids])

    narrow: Any = Narrow()
    if most:
        assert measure([one], narrow, ProcessGroup(), lambda words: None, lambda: None)
        assert one.values[: one.starts[6]].tolist() == np.repeat(range(6), sizes[:6]).tolist()
        assert [(2, 3)] in seen, "a packed row stays whole"
    else:
        with pytest.raises(HostMemoryError, match="a row of"):
            measure([one], narrow, ProcessGroup(), lambda words: None, lambda: None)


def test_an_error_of_one_rank_is_raised_on_all() -> None:
    class Two(Team):
        def gather(self, data: bytes) -> list[bytes]:
            return [b"[]", b'[42, "rank 1 has no memory", "Shorten it.", "HostMemoryError"]']

    with pytest.raises(HostMemoryError, match="rank 1 has no memory") as caught:
        Two(0, 2).act_together(lambda: None)
    assert caught.value.hint == "Shorten it."

    def fail() -> None:
        raise FtuiError("here")

    with pytest.raises(FtuiError, match="here"):
        ProcessGroup().act_together(fail)


def test_ranks_that_do_not_see_the_same_file_end(split: Any, tmp_path: Path) -> None:
    """They would wait for each other's batches for ever."""

    class Apart(Team):
        def leader_first(self, act: Any) -> Any:
            return act()

        def gather(self, data: bytes) -> list[bytes]:
            return [b"what rank 0 has", data]

        def wait_for_all(self) -> None:
            pass

    nothing: Any = None
    model = InitialModel(nothing, nothing, nothing, Apart(1, 2), {}, nothing, nothing, nothing)
    with pytest.raises(FtuiError, match=r"do not agree on the values in reference\.safetensors"):
        model._share({"train": Measurement(split, lambda: iter([]))}, Place(tmp_path / "reference.safetensors", "key"))
