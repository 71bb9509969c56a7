"""The table of a step's profile: 80 columns, all kinds that took time, sums that agree, gains that are possible."""

import re

import msgspec
import pytest

from ftui.estimate.step.step_profile import KINDS, PHASES, Kind, OpTime, RolloutTime, StepProfile, TimeShare
from ftui.estimate.step.step_profile_text import profile_lines

FLOORS: dict[Kind, float] = {"products": 1.5, "attention": 0.05, "elementwise": 0.1, "copies": 0.0, "optimizer": 0.5}


def profiled(unit: float = 1.0, **values: object) -> StepProfile:
    shares = [
        TimeShare("products", "forward", unit), TimeShare("products", "backward", 2 * unit),
        TimeShare("elementwise", "forward", 0.25 * unit), TimeShare("copies", "backward", 0.25 * unit),
        TimeShare("optimizer", "update", 0.25 * unit), TimeShare("between", "rest", 0.125 * unit),
        TimeShare("other", "rest", 0.125 * unit),
    ]  # fmt: skip
    step = StepProfile(
        device="Xeon", is_gpu=False, precision="fp32", num_threads=1, num_steps=2, num_micro_batches=1,
        step_seconds=3.5 * unit, profiled_seconds=4 * unit, cpu_share=0.99, num_rows=8, num_positions=1000,
        num_targets=500, lengths=[100] * 18, shares=shares,
        operations=[
            OpTime("aten::" + "very_long_name_" * 9, "elementwise", 0.25 * unit, 30),
            OpTime("aten::mm", "products", 3 * unit, 210), OpTime("", "between", 0.125 * unit, 0),
        ],
        product_rate=1e11, bandwidth=1e10, versions={},
    )  # fmt: skip
    return msgspec.structs.replace(step, **values)


def cells(lines: list[str], title: str) -> list[str]:
    (line,) = (line for line in lines if line.startswith(f"{title} "))
    return re.sub(r"^.{20}", "", line).split()


@pytest.mark.parametrize("unit", [0.00001, 0.01, 1.0, 100.0])
def test_every_line_has_room_on_a_terminal_of_80_columns(unit: float) -> None:
    shares = [TimeShare(kind, phase, unit) for kind in KINDS for phase in PHASES]
    whole = profiled(
        unit, shares=shares, profiled_seconds=unit * len(shares), device="Intel(R) Xeon(R) Platinum 8480+ Processor"
    )
    lines = profile_lines("a-name-of-usual-length", whole, dict.fromkeys(KINDS, unit), 1e12)
    assert max(map(len, lines)) <= 80, max(lines, key=len)


def test_a_line_says_what_it_took_what_it_could_take_and_what_could_be_gained() -> None:
    lines = profile_lines("mine", profiled(), FLOORS, 2e11)
    assert cells(lines, "matrix products") == ["1000", "2000", "-", "3000", "75.0%", "1500", "2.0", "37.5%"]
    assert cells(lines, "element-wise") == ["250", "-", "-", "250", "6.2%", "100", "2.5", "3.8%"]
    assert cells(lines, "copies, casts") == ["-", "250", "-", "250", "6.2%", "-", "6.2%"], "all of it could go"
    assert cells(lines, "optimizer") == ["-", "-", "250", "250", "6.2%", "500", "0.5", "0.0%"], "no negative gain"
    assert cells(lines, "other") == ["-", "-", "-", "125", "3.1%"], "shown, and no floor is made up"
    assert cells(lines, "all")[3:5] == ["4000", "100.0%"]
    assert not any(line.startswith(("attention", "collectives")) for line in lines), "only what took time"
    assert "forward 31%, backward 56%, update 6%, rest 6%" in "\n".join(lines)
    head = "\n".join(lines[:6])
    assert "900 tokens (500 trained, 900 computed), 10% padding" in head and "257 tokens/s" in head and "57%" in head
    assert "nothing of torch" in lines[-1] and "aten::mm" not in lines[-1]


def test_on_a_known_card_there_is_its_mfu_and_idle_time_has_its_name() -> None:
    lines = profile_lines("mine", profiled(is_gpu=True, cpu_share=None, peak_rate=2e11), FLOORS, 2e11)
    assert "MFU 29%" in "\n".join(lines) and cells(lines, "GPU idle")
    assert not any("Python" in line or "thread" in line for line in lines)


def test_a_machine_that_others_use_is_named() -> None:
    quiet, busy = (profile_lines("mine", profiled(cpu_share=share), {}, None) for share in (0.97, 0.5))
    assert not any("NOT QUIET" in line for line in quiet) and any("NOT QUIET" in line for line in busy)


def test_a_rollout_is_told_before_the_steps_on_it() -> None:
    seconds = {"generating": 8.0, "scoring": 1.0, "log_probs": 2.0}
    rollout = RolloutTime(num_answers=64, num_tokens=2000, num_steps=2, seconds=seconds)
    lines = profile_lines("mine", profiled(rollout=rollout), FLOORS, None)
    start = next(number for number, line in enumerate(lines) if line.startswith("With its part of a rollout"))
    assert "64 answers of 2,000 tokens, 2 steps on it" in lines[start] and max(map(len, lines)) <= 80
    assert [line.split() for line in lines[start + 1 : start + 6]] == [
        ["generating", "4", "s", "44.4%", "250", "tokens/s"], ["scoring", "0.5", "s", "5.6%"],
        ["log-probabilities,", "values", "1", "s", "11.1%"], ["update", "3.5", "s", "38.9%"], ["all", "9", "s"],
    ]  # fmt: skip


def test_a_model_that_no_estimate_knows_has_no_floors() -> None:
    lines = profile_lines("mine", profiled(), {}, None)
    assert cells(lines, "matrix products") == ["1000", "2000", "-", "3000", "75.0%"]
