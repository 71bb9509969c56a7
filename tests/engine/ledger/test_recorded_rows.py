"""What real runs record: the sums are those of the metrics in every stage, a planted row is named, and the help is
obeyed."""

import random
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from transformers import AutoModelForCausalLM

from ftui.engine.data.load_rows import load_data
from ftui.engine.ledger.blame_run import blame_step, list_courses
from ftui.engine.ledger.ledger_file import read_ledger
from ftui.engine.ledger.spikes import explain_spike, largest_spike, step_losses
from ftui.errors import UsageError
from ftui.profile.serialize import to_toml
from tests.support.tiny import (
    chats,
    column,
    completions,
    judged_answers,
    make_profile,
    preference_pairs,
    train_run,
    write_rows,
)

TRAIN: dict[str, Any] = {
    "per_device_train_batch_size": 4, "gradient_accumulation_steps": 2, "max_steps": 4, "learning_rate": 1e-3,
}  # fmt: skip
STAGES: dict[str, tuple[str, dict[str, dict[str, Any]]]] = {
    "packed": ("sft", {"data": {"packing": True}}),
    "pretrain": ("pretrain", {"data": {"max_length": 40}}),
    "dpo": ("dpo", {}),
    "dpo with sft": ("dpo", {"preference": {"loss_type": ["sigmoid", "sft"], "loss_weights": [1.0, 0.3]}}),
    "orpo": ("orpo", {}),
    "simpo": ("simpo", {}),
    "kto": ("kto", {}),
    "rm": ("rm", {}),
}


@pytest.mark.parametrize("case", STAGES)
def test_rows_add_up_to_the_loss_of_their_step(model_folder: Path, tmp_path: Path, case: str) -> None:
    stage, sections = STAGES[case]
    rows = {"sft": chats, "pretrain": lambda n: [{"text": str(row)} for row in chats(n)], "kto": judged_answers}
    path = write_rows(tmp_path / "rows.jsonl", rows.get(stage, preference_pairs)(24))
    profile = make_profile(model_folder, path, run={"stage": stage}, train=TRAIN, **sections)
    losses = column(train_run(tmp_path / "run", profile), "loss")
    ledger = read_ledger(tmp_path / "run" / "ledger")
    assert step_losses(ledger).losses == pytest.approx(losses, rel=1e-5)
    found = blame_step(lambda words: None, to_toml(profile), str(tmp_path / "run"), 2, 100)
    assert sum(row.share or 0 for row in found.rows) == pytest.approx(1, abs=1e-5)
    assert {row.where.file for row in found.rows if row.where} == {str(path)} and found.notes == []
    assert found.counts_tokens == (stage in ("sft", "pretrain"))


def test_the_loss_of_a_row_is_that_of_transformers(model_folder: Path, tmp_path: Path) -> None:
    path = write_rows(tmp_path / "rows.jsonl", chats(16))
    profile = make_profile(model_folder, path, train=TRAIN | {"max_steps": 1})
    train_run(tmp_path / "run", profile)
    ledger = read_ledger(tmp_path / "run" / "ledger")
    split = load_data(profile, tmp_path / "cache", lambda words: None).train
    model = AutoModelForCausalLM.from_pretrained(model_folder, dtype=torch.float32)
    for number, count, loss in ledger.rows.tolist():
        sequence = split.sequences[number]
        labels = np.where(sequence.targets, sequence.input_ids, -100)
        with torch.no_grad():
            one = model(torch.tensor(sequence.input_ids[None]), labels=torch.tensor(labels[None].astype(np.int64)))
        assert (count, loss / count) == (sequence.num_targets, pytest.approx(one.loss.item(), rel=1e-5))


def noise(chance: random.Random, text: str) -> str:
    return "".join(chr(chance.choice(range(33, 126))) for _ in text)


def strange(chance: random.Random, text: str) -> str:
    return " ".join(chance.choice(["ally", "zebra", "quux", "xylophone", "Zurich", "JSON"]) for _ in text.split())


def scrambled(chance: random.Random, text: str) -> str:
    return "".join(chance.sample(text, len(text)))


@pytest.mark.slow
def test_a_corrupt_row_is_named_first(
    model_folder: Path, tmp_path: Path, pytestconfig: pytest.Config, record_property: Any
) -> None:
    """In every step that it is in from the first epoch's end on; and by the step that stands out most."""
    num_runs, named, found = pytestconfig.getoption("trials") or 3, [], []
    for seed in range(num_runs):
        chance = random.Random(seed)
        rows, bad = completions(120), chance.randrange(120)
        corrupt = [noise, strange, scrambled][seed % 3]
        rows[bad]["completion"] = " " + corrupt(chance, rows[bad]["completion"])
        folder = tmp_path / str(seed)
        train = {"num_train_epochs": 3, "per_device_train_batch_size": 8, "learning_rate": 5e-3, "warmup_steps": 0}
        path = write_rows(folder / "rows.jsonl", rows)
        profile = make_profile(model_folder, path, train=train | {"seed": seed})
        train_run(folder / "run", profile)
        ledger = read_ledger(folder / "run" / "ledger")
        steps = step_losses(ledger)
        for step in ledger.steps[ledger.rows["number"] == bad][1:].tolist():
            spike = explain_spike(ledger, steps, step)
            named.append(int(ledger.at(step)["number"][spike.order[0]]) == bad)
        worst = largest_spike(steps)
        assert worst is not None
        found.append(bad in ledger.at(worst)["number"][explain_spike(ledger, steps, worst).order[:1]])
    record_property("named first in its step", f"{sum(named)} of {len(named)}")
    record_property("named by the step that stands out", f"{sum(found)} of {len(found)}")
    assert np.mean(named) >= 0.9 and (np.mean(found) >= 0.9 or num_runs < 10)


def test_rows_that_are_gone_keep_their_numbers_and_a_run_without_a_ledger_says_so(
    model_folder: Path, tmp_path: Path
) -> None:
    path = write_rows(tmp_path / "rows.jsonl", chats(16))
    profile = make_profile(model_folder, path, train=TRAIN)
    train_run(tmp_path / "run", profile)
    path.unlink()
    found = blame_step(lambda words: None, to_toml(profile), str(tmp_path / "run"), 2, 3)
    assert [row.where for row in found.rows] == [None] * 3 and "rows.jsonl" in found.notes[0]
    write_rows(path, chats(17)[1:])
    assert "no longer" in blame_step(lambda words: None, to_toml(profile), str(tmp_path / "run"), 2, 3).notes[0]
    with pytest.raises(UsageError, match="no rows of step 9"):
        blame_step(lambda words: None, to_toml(profile), str(tmp_path / "run"), 9, 3)
    with pytest.raises(UsageError, match="at most 2 time"):
        list_courses(lambda words: None, to_toml(profile), str(tmp_path / "run"), "forgotten", 3)
    off = make_profile(model_folder, path, train=TRAIN, log={"row_losses": False})
    train_run(tmp_path / "off", off)
    with pytest.raises(UsageError, match="no row ledger"):
        blame_step(lambda words: None, to_toml(off), str(tmp_path / "off"), None, 3)
