"""No tokenizer, and epochs in place of steps: time and money all the same, marked in the lines that show them."""

from pathlib import Path
from typing import Any, cast

import pytest

from ftui.errors import DataError, DiskError, DiskFullError, FtuiError, UnavailableError
from ftui.estimate.api import NOTHING, estimate
from ftui.estimate.estimate_text import estimate_lines
from ftui.estimate.simulation import with_libraries
from ftui.hardware.devices import find_card
from ftui.helper.client import Helper
from ftui.models.bytes_per_token import LARGE, SMALL, bytes_per_token
from ftui.profile.layers import resolve
from ftui.profile.schema import Profile


class Offline:
    """A helper that can read rows, but has no tokenizer; what it was asked."""

    def __init__(self, problem: FtuiError | None = None) -> None:
        self.sizes: tuple[float, ...] = ()
        self._problem = problem

    def ask(self, method: str, *, profile: Profile, bytes_per_token: tuple[float, ...] = (), **_: Any) -> Any:
        if method != "count_bytes":
            raise UnavailableError("The hub cannot be reached.")
        if self._problem is not None:
            raise self._problem
        self.sizes = bytes_per_token
        return {
            "num_train_rows": 400, "num_train_tokens": 120_000, "num_sequences": 400, "steps_per_epoch": 50,
            "max_steps": 150, "longest": 700, "num_cut": 0, "bytes_per_token": list(bytes_per_token),
        }  # fmt: skip


def profile(folder: Path, model: str, *overrides: str) -> Profile:
    path = folder / "p.toml"
    path.write_text(f'[run]\nstage="sft"\n[model]\nname_or_path="{model}"\n[data]\ntrain="r.jsonl"\n')
    return resolve(path, overrides=("train.num_train_epochs=3", "data.max_length=2048", *overrides)).profile


@pytest.mark.parametrize(("model", "card", "sizes"), [
    ("meta-llama/Llama-3.1-8B-Instruct", "a100-80", LARGE), ("Qwen/Qwen3-8B", "rtx4090", LARGE),
    ("mistralai/Mistral-7B-Instruct-v0.3", "a40", SMALL), ("HuggingFaceTB/SmolLM2-135M-Instruct", "t4", SMALL),
    ("google/gemma-3-1b-it", "h100", LARGE),
])  # fmt: skip
def test_epochs_have_time_and_money_without_a_tokenizer(
    model: str, card: str, sizes: tuple[float, ...], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "120")
    chosen, on, helper = profile(tmp_path, model, "hardware.price_per_hour=2.0"), find_card(card), Offline()
    known = with_libraries(cast(Helper, helper), chosen, on, NOTHING)
    assert known.refusal is None and helper.sizes == sizes
    found = estimate(chosen, on, known)
    time, counted = found.duration, 150 * 120_000 / 50
    assert time.num_steps == 150 and time.tokens_per_second is not None and time.total_seconds is not None
    assert time.total_seconds >= counted / time.tokens_per_second and time.dollars is not None
    assert time.spread > 0.3, "that of the tokens comes to that of the speed"
    text = " ".join(" ".join(estimate_lines(found, on, 2.0)).split())
    mark = f"rows counted without the tokenizer, {sizes[1]:g} bytes a token ({sizes[0]:g} to {sizes[2]:g})"
    memory, _, rest = text.partition(" allocated ")
    assert mark in memory and mark in rest.partition(" time ")[2].partition(" note ")[0]
    assert "$" in rest and "The hub cannot be reached." in rest


def test_rows_that_are_wrong_are_a_refusal_without_a_tokenizer_too(tmp_path: Path) -> None:
    helper = Offline(DataError("r.jsonl:3: not JSON."))
    chosen = profile(tmp_path, "Qwen/Qwen3-8B")
    known = with_libraries(cast(Helper, helper), chosen, find_card("rtx4090"), NOTHING)
    assert isinstance(known.refusal, DataError) and known.counts is None


@pytest.mark.parametrize("problem", [DiskFullError("/tmp has no room."), DiskError("/tmp cannot be written to.")])
def test_rows_that_have_no_room_to_be_counted_are_guessed_from_the_size_of_their_file(
    problem: DiskError, tmp_path: Path
) -> None:
    (tmp_path / "r.jsonl").write_text('{"prompt": "a question", "completion": "an answer"}\n' * 80)
    chosen, on = profile(tmp_path, "Qwen/Qwen3-8B"), find_card("rtx4090")
    known = with_libraries(cast(Helper, Offline(problem)), chosen, on, NOTHING)
    assert known.refusal is None and known.counts is None, "a run needs no such room"
    found = estimate(chosen, on, known)
    assert found.duration.num_steps and found.duration.total_seconds is not None
    assert found.rows.startswith("rows not read")
    assert any(f"The hub cannot be reached. {problem.message}" in note for note in found.notes)


def test_rows_that_nobody_read_are_said_to_be_taken_as_long_as_they_may_be(tmp_path: Path) -> None:
    chosen, on = profile(tmp_path, "Qwen/Qwen3-8B"), find_card("rtx4090")
    lines = estimate_lines(estimate(chosen, on), on, 0.5)
    (memory,) = [number for number, line in enumerate(lines) if line.startswith("  memory")]
    assert "all rows taken to be 2048 tokens long" in " ".join(" ".join(lines[memory : memory + 2]).split())


@pytest.mark.parametrize(("vocab_size", "sizes"), [
    (128256, LARGE), (151936, LARGE), (262144, LARGE), (131072, LARGE), (32000, SMALL), (32768, SMALL), (50257, SMALL),
    (49152, SMALL), (None, LARGE),
])  # fmt: skip
def test_families_are_told_by_their_vocabulary(vocab_size: int | None, sizes: tuple[float, ...]) -> None:
    assert bytes_per_token(vocab_size) == sizes
