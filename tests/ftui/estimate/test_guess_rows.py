"""Rows and steps from the size of files, before anybody has read them: the first answer has time and money too."""

import json
import os
from pathlib import Path
from typing import Any

import pytest

from ftui.estimate.api import estimate
from ftui.estimate.guess_rows import SAMPLE, guess_rows
from ftui.hardware.devices import find_card
from ftui.profile.layers import resolve
from ftui.profile.schema import Profile

ROW = json.dumps({"instruction": "q" * 60, "output": "a" * 40}) + "\n"
SIZE = len(ROW)


@pytest.fixture(autouse=True)
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Paths of `--set` begin there."""
    monkeypatch.chdir(tmp_path)


def profile(folder: Path, *overrides: str, stage: str = "sft") -> Profile:
    path = folder / "p.toml"
    path.write_text(f'[run]\nstage="{stage}"\n[model]\nname_or_path="Qwen/Qwen3-8B"\n[data]\ntrain="r.jsonl"\n')
    base = ("train.per_device_train_batch_size=2", "train.gradient_accumulation_steps=4")
    return resolve(path, overrides=(*base, *overrides)).profile


def write(path: Path, text: str) -> None:
    path.write_text(text)


EPOCHS = "train.num_train_epochs=3"
PLANS: dict[str, tuple[tuple[str, ...], str, int, int]] = {  # overrides, stage; rows and steps of 400 rows
    "epochs": ((EPOCHS,), "sft", 400, 150),
    "half an epoch": (("train.num_train_epochs=0.5",), "sft", 400, 25),
    "steps": (("train.max_steps=7",), "sft", 400, 7),
    "one epoch": ((), "sft", 400, 50),
    "held-out rows": ((EPOCHS, "data.eval_num_rows=40"), "sft", 360, 135),
    "a held-out share": ((EPOCHS, "data.eval_fraction=0.2"), "sft", 320, 120),
    "two cards": ((EPOCHS, "hardware.num_processes=2"), "sft", 400, 75),
    "packed": ((EPOCHS, "data.packing=true", f"data.max_length={10 * SIZE}"), "sft", 400, 6),
    "long documents": ((EPOCHS, "data.max_length=8"), "pretrain", 400, 3 * -(-400 * SIZE * 10 // (42 * 8 * 8))),
}


@pytest.mark.parametrize("case", PLANS)
def test_steps_follow_the_files(case: str, tmp_path: Path) -> None:
    overrides, stage, num_rows, num_steps = PLANS[case]
    write(tmp_path / "r.jsonl", ROW * 400)
    found = guess_rows(profile(tmp_path, *overrides, stage=stage), 151936)
    assert found is not None and found.num_train_rows == num_rows
    assert found.max_steps == pytest.approx(num_steps, abs=3 if stage == "pretrain" else 0)
    assert found.longest is None and found.bytes_per_token is not None
    if "max_length" not in str(overrides):
        assert found.num_train_tokens == pytest.approx(num_rows * SIZE / 4.2, abs=1)


def test_of_a_large_file_the_beginning_tells(tmp_path: Path) -> None:
    number = 3 * SAMPLE // SIZE
    write(tmp_path / "r.jsonl", ROW * number)
    found = guess_rows(profile(tmp_path), 151936)
    assert found is not None and found.num_train_rows == pytest.approx(number, rel=0.01)


def test_a_table_has_a_header_and_a_list_of_files_is_added_up(tmp_path: Path) -> None:
    write(tmp_path / "r.jsonl", ROW * 10 + "\n")
    write(tmp_path / "t.csv", "instruction,output\n" + "q,a\n" * 20)
    os.symlink(tmp_path / "t.csv", tmp_path / "link.csv")
    found = guess_rows(profile(tmp_path, 'data.train=["r.jsonl", "t.csv", "link.csv"]'), 151936)
    assert found is not None and found.num_train_rows == 50


UNKNOWN: dict[str, str] = {
    "missing": 'data.train="nowhere.jsonl"', "a folder": 'data.train="."', "the hub": 'data.train="owner/name"',
    "one document": 'data.train="book.txt"', "packed files": 'data.train="r.jsonl.gz"',
    "FIFO": 'data.train="fifo.jsonl"',
    "empty": 'data.train="empty.jsonl"', "weights": 'data.train=[{path="r.jsonl", weight=2.0}]',
    "one of two": 'data.train=["r.jsonl", "nowhere.jsonl"]', "a weight": 'data.train=[{path="r.jsonl", num_samples=5}]',
}  # fmt: skip


@pytest.mark.parametrize("case", UNKNOWN)
def test_what_a_look_does_not_tell_is_not_guessed(case: str, tmp_path: Path) -> None:
    for name in ("r.jsonl", "book.txt", "r.jsonl.gz"):
        write(tmp_path / name, ROW)
    write(tmp_path / "empty.jsonl", "")
    os.mkfifo(tmp_path / "fifo.jsonl")
    assert guess_rows(profile(tmp_path), 151936) is not None
    assert guess_rows(profile(tmp_path, UNKNOWN[case]), 151936) is None


@pytest.mark.parametrize("card", ["rtx4090", "a100-80", "t4"])
def test_the_first_answer_has_time_and_money_for_epochs(card: str, tmp_path: Path) -> None:
    write(tmp_path / "r.jsonl", ROW * 400)
    chosen: dict[str, Any] = {}
    for overrides in ((EPOCHS,), ("train.max_steps=150",)):
        found = estimate(profile(tmp_path, *overrides, "hardware.price_per_hour=1.0"), find_card(card))
        assert "rows not read" in found.rows and found.duration.num_steps == 150
        assert found.duration.total_seconds and found.duration.dollars and found.duration.spread > 0.3
        chosen[overrides[0]] = found.duration
    assert len(set(map(str, chosen.values()))) == 1, "epochs and steps are the same run"
