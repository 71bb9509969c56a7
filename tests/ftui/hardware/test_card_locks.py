"""A lock a card: one run has it, by its supervisor or by its engine, and everybody can see who."""

import subprocess
import sys
from pathlib import Path

import pytest

from ftui.hardware.card_locks import RunCards, card_id, find_holder, is_taken, take_cards


@pytest.fixture(autouse=True)
def state(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))


def test_all_cards_or_none() -> None:
    first = take_cards(["GPU-a"])
    assert first is not None and is_taken("GPU-a") and not is_taken("GPU-b")
    assert take_cards(["GPU-b", "GPU-a"]) is None
    assert not is_taken("GPU-b"), "what was taken of them is given back"
    first[0].close()
    both = take_cards(["GPU-b", "GPU-a"])
    assert both is not None and len(both) == 2


def test_the_engine_has_the_card_after_its_supervisor(tmp_path: Path) -> None:
    locks = take_cards(["GPU-b", "GPU-a"])
    assert locks is not None
    cards = RunCards(tmp_path / "mine", [lock.descriptor for lock in locks])
    assert cards.environment == {"CUDA_VISIBLE_DEVICES": "GPU-b,GPU-a"}
    assert find_holder("GPU-a") == tmp_path / "mine" and find_holder("GPU-c") is None
    program = [sys.executable, "-S", "-c", "input()"]
    with subprocess.Popen(program, stdin=subprocess.PIPE, pass_fds=cards.descriptors) as engine:
        cards.release()
        assert is_taken("GPU-a") and is_taken("GPU-b"), "its supervisor was killed"
        later, other = RunCards(tmp_path / "mine"), RunCards(tmp_path / "other")
        for one in (later, other):
            one.adopt()
        assert later.environment == {"CUDA_VISIBLE_DEVICES": "GPU-b,GPU-a"} and other.environment == {}
        assert not later.take(), "the engine still runs"
        engine.communicate(b"\n")
    assert not is_taken("GPU-a") and later.take() and is_taken("GPU-a") and other.take()
    assert len(later.descriptors) == 2 and other.descriptors == ()
    later.release()


@pytest.mark.parametrize(
    ("kind", "uuid", "index", "gpus"),
    [("cuda", "GPU-1", 0, "GPU-1"), ("cuda", "", 3, "3"), ("cpu", "", 0, None), ("mps", "", 0, None)],
)
def test_only_gpus_are_shown_to_the_engine(tmp_path: Path, kind: str, uuid: str, index: int, gpus: str | None) -> None:
    locks = take_cards([card_id(kind, uuid, index)])
    assert locks is not None
    cards = RunCards(tmp_path, [locks[0].descriptor])
    assert cards.environment.get("CUDA_VISIBLE_DEVICES") == gpus
    cards.release()


def test_cards_of_another_machine_are_not_adopted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The home of all nodes may be on one network volume: node 0 sees the notes and the locks of the others."""
    locks = take_cards(["GPU-there"])
    assert locks is not None
    with monkeypatch.context() as patch:
        patch.setattr("platform.node", lambda: "another machine")
        RunCards(tmp_path / "mine", [locks[0].descriptor])
    later = RunCards(tmp_path / "mine")
    later.adopt()
    assert is_taken("GPU-there") and later.environment == {}
    locks[0].close()
