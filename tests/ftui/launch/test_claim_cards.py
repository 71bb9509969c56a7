"""A run that is started by hand takes the cards that a queue would give it, or says who has them."""

import os
import re
from pathlib import Path
from typing import Any

import pytest

from ftui.errors import UsageError
from ftui.hardware.card_locks import RunCards, is_taken, take_cards
from ftui.launch import claim_cards
from ftui.launch.claim_cards import claimed_cards
from ftui.profile.layers import resolve
from tests.support.stand_in_queue import driver


@pytest.fixture(autouse=True)
def two_cards(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(__import__("sys").modules, "pynvml", driver())
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)


@pytest.fixture
def profile(tmp_path: Path) -> Any:
    path = tmp_path / "p.toml"
    path.write_text('[run]\nstage = "sft"\n[model]\nname_or_path = "hub/model"\n[data]\ntrain = "rows.jsonl"\n')
    return lambda *overrides: resolve(path, overrides=overrides).profile


@pytest.mark.parametrize(
    ("overrides", "visible", "taken", "claimed"),
    [
        ([], None, [], ["GPU-a"]),
        ([], None, ["GPU-a"], ["GPU-b"]),  # the first that is free
        ([], "1", [], ["GPU-b"]),
        (["hardware.num_processes=2"], None, [], ["GPU-a", "GPU-b"]),
        (["hardware.num_processes=2"], "1,0", [], ["GPU-b", "GPU-a"]),
        (["hardware.num_processes=3"], None, [], []),  # the engine says what is missing
        (["hardware.device=cuda"], "", [], []),
    ],
)
def test_the_first_free_cards_that_the_process_sees(
    profile: Any, monkeypatch: pytest.MonkeyPatch, overrides: list[str], visible: str | None, taken: list[str],
    claimed: list[str],
) -> None:  # fmt: skip
    if visible is not None:
        monkeypatch.setenv("CUDA_VISIBLE_DEVICES", visible)
    assert take_cards(taken) is not None
    with claimed_cards(profile(*overrides)) as locks:
        assert [lock.path.stem for lock in locks] == claimed and all(map(is_taken, claimed))
    assert not any(map(is_taken, claimed)), "no supervisor took them over"


def test_who_has_the_cards_is_said_and_nothing_kept(profile: Any, tmp_path: Path) -> None:
    locks = take_cards(["GPU-b"])
    assert locks is not None
    RunCards(tmp_path / "other", [os.dup(locks[0].descriptor)])
    words = "other has GPU 1: there are not 2 GPUs left for this run."
    with pytest.raises(UsageError, match=re.escape(words)), claimed_cards(profile("hardware.num_processes=2")):
        pass
    assert not is_taken("GPU-a")
    with claimed_cards(profile("hardware.num_processes=1")) as mine:
        assert len(mine) == 1


def test_a_cpu_serves_many_runs_that_are_started_by_hand(profile: Any) -> None:
    with claimed_cards(profile("hardware.device=cpu")) as first, claimed_cards(profile("hardware.device=cpu")) as other:
        assert (len(first), len(other)) == (1, 0)


def test_without_a_home_to_write_to_there_are_no_locks(profile: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(ids: Any) -> None:
        raise PermissionError(13, "read-only")

    monkeypatch.setattr(claim_cards, "take_cards", refuse)
    with claimed_cards(profile()) as locks:
        assert locks == []
