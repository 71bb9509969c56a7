"""What a profile may say and hardly anybody means is a warning, not a fault."""

import pytest

from ftui.profile.checks.warnings import find_warnings
from ftui.profile.schema import Profile


def profile(**tables: object) -> Profile:
    whole = {"run": {"stage": "sft"}, "model": {"name_or_path": "a/b"}, "data": {"train": "r"}} | tables
    return Profile.model_validate(whole)


@pytest.mark.parametrize(
    ("warmup", "steps", "is_told"),
    [(50, 5, True), (5, 5, True), (4, 5, False), (0.03, 5, False), (0, 5, False), (1, 1, True)],
)
def test_a_warm_up_that_is_no_shorter_than_the_run(warmup: float, steps: int, is_told: bool) -> None:
    """As many steps as the run has, whichever key says how many that are."""
    found = find_warnings(profile(train={"warmup_steps": warmup}), steps)
    assert bool(found) == is_told
    assert all(f"train.warmup_steps = {warmup}" in line and "0.1 is" in line for line in found)


@pytest.mark.parametrize(
    ("precision", "device", "is_told"), [("fp16", "cpu", True), ("fp16", "cuda", False), ("auto", "cpu", False)]
)
def test_half_precision_on_a_cpu(precision: str, device: str, is_told: bool) -> None:
    found = find_warnings(profile(train={"precision": precision}, hardware={"device": device}), 100)
    assert bool(found) == is_told and all('"fp32" or "auto"' in line for line in found)


@pytest.mark.parametrize(
    ("train", "curriculum", "key"),
    [
        ({"num_train_epochs": 1e8}, [], "train.num_train_epochs = 1e+08 is"), ({}, [], "train.num_train_epochs = 1 is"),
        ({"max_steps": 10**9}, [], "train.max_steps = 1000000000 is"), ({}, [{"fraction": 0.5}], "the curriculum is"),
    ],
)  # fmt: skip
def test_more_steps_than_anybody_waits_for(train: dict[str, object], curriculum: list[object], key: str) -> None:
    whole = profile(train=train, curriculum=tuple(curriculum))
    (line,) = find_warnings(whole, 10**9)
    assert line.startswith(key) and "1,000,000,000 steps: 115d" in line
    assert find_warnings(whole, 10_000_000) == []
