"""Who answers for a run, by what it does and what is free; what that costs, in words."""

from pathlib import Path
from typing import Any

import pytest

from ftui.errors import UsageError
from ftui.launch.answering_way import Situation, choose_way, dollars_per_hour, price_words
from ftui.runs.state import RunState
from tests.support.tiny import make_profile

GiB = 1 << 30
CARD: dict[str, Any] = {"trains_on": "cuda", "on_card": 80 * GiB, "needed": (16 * GiB, 18 * GiB), "still": "60 s"}
ROOMY = Situation("r", free=(21 * GiB, 64 * GiB), **CARD)
FULL = Situation("r", free=(19 * GiB, 64 * GiB), **CARD)  # less than 5 % of the card would be left
NOWHERE = Situation("r", free=(2 * GiB, 4 * GiB), **CARD)
HIDDEN = Situation("r", free=(None, None), **CARD)
UNSAVED = Situation("r", free=(21 * GiB, 64 * GiB), has_saved=False, **CARD)
CHOICES = (
    # situation, --device, --through; whether the engine answers, on which device, what is said
    (Situation("r", ""), None, None, False, None, ""),
    (Situation("r", ""), "cuda", None, False, "cuda", ""),
    (ROOMY, None, None, False, "cuda", "about 16.0 GiB on the GPU, where 21.0 GiB are free"),
    (FULL, None, None, False, "cpu", "where 19.0 GiB are free: the CPU answers, and the run is not disturbed"),
    (FULL, "cuda", None, False, "cuda", "the run may run out of memory"),
    (FULL, None, "engine", True, None, "the weights it has now: 60 s"),
    (HIDDEN, None, None, False, "cpu", "how much memory it would take on the GPU is not known"),
    (NOWHERE, None, None, True, None, "no room for it on the GPU or in RAM"),
    (NOWHERE, None, "process", False, "cpu", "the CPU answers"),
    (UNSAVED, None, None, True, None, "nothing is saved yet"),
    (UNSAVED, None, "process", False, "cuda", "slower"),
    (UNSAVED, "cpu", None, False, "cpu", ""),
    (Situation("r", "cpu"), None, None, False, None, "on this CPU, too"),
    (Situation("r", "mps"), None, None, False, "cpu", "the CPU answers"),
    (Situation("r", "cuda", refusal="it has the weights of now"), None, None, False, "cpu", "the CPU answers"),
)


@pytest.mark.parametrize(("at", "device", "through", "is_engine", "where", "words"), CHOICES)
def test_who_answers(
    at: Situation, device: str | None, through: str | None, is_engine: bool, where: str | None, words: str
) -> None:
    way = choose_way(at, device, through)
    assert (way.is_engine, way.device) == (is_engine, where)
    assert words in way.reason and bool(words) == bool(way.reason)


@pytest.mark.parametrize(
    ("at", "device", "words"),
    [
        (Situation("r", "", refusal="it is not running"), None, "r cannot answer itself: it is not running."),
        (Situation("r", "cuda", refusal="it has the weights of now"), None, "it has the weights of now"),
        (ROOMY, "cpu", "--device"),
    ],
)
def test_what_the_engine_cannot(at: Situation, device: str | None, words: str) -> None:
    with pytest.raises(UsageError, match=words):
        choose_way(at, device, "engine")


def test_what_an_answer_costs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
    profile = make_profile(tmp_path, tmp_path)
    two = make_profile(tmp_path, tmp_path, hardware={"num_processes": 2, "price_per_hour": 1.8})
    card = RunState(device="cuda: NVIDIA GeForce RTX 4090")
    assert dollars_per_hour(RunState(device="cuda: NVIDIA Something New"), profile) is None
    assert dollars_per_hour(RunState(device="cpu: EPYC"), profile) is None
    assert dollars_per_hour(card, two) == 3.6
    prices = tmp_path / "ftui" / "prices.toml"
    prices.parent.mkdir()
    prices.write_text("rtx4090 = 0.5\n")
    assert dollars_per_hour(card, profile) == 0.5
    assert price_words(2.0, None) == "2.0 s"
    assert price_words(2.0, 3.6) == "2.0 s ($0.002)" and price_words(60, 3.0) == "1m 00s ($0.05)"
