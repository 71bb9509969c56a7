"""Reward functions that misbehave: the run goes on, or is told in words why it cannot."""

import os
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import psutil
import pytest

from ftui.engine.rewards.reward_specs import RewardSpec
from ftui.engine.rewards.reward_table import RewardTable
from ftui.engine.rewards.score_answers import MAX_FAILED_CALLS, Rewards, check_rewarded, open_rewards
from ftui.errors import RewardError

GOOD = "def good(completions, **columns):\n    return [float(len(one)) for one in completions]\n"


def code(text: str, name: str = "bad") -> RewardSpec:
    return RewardSpec(name, f"rewards.py:{name}", code=text)


@contextmanager
def rewards(tmp_path: Path, *specs: RewardSpec, **options: Any) -> Iterator[tuple[Rewards, list[str]]]:
    warnings: list[str] = []
    with open_rewards(specs, log=tmp_path / "rewards.log", warn=warnings.append, **options) as opened:
        yield opened, warnings


def score(opened: Rewards, completions: list[str], **columns: list[Any]) -> RewardTable:
    number = len(completions)
    return opened.score(["p"] * number, completions, [[1, 2]] * number, columns)


def test_several_functions_with_weights(tmp_path: Path) -> None:
    text = GOOD + (
        "def half(prompts, completions, completion_ids, answer, **rest):\n"
        "    assert prompts == ['p', 'p'] and completion_ids == [[1, 2], [1, 2]] and rest == {'other': [1, 2]}\n"
        "    return [None if one == 'x' else one == right for one, right in zip(completions, answer)]\n"
    )
    half = RewardSpec("half", "rewards.py:half", 0.5, code=text)
    with rewards(tmp_path, code(text, "good"), half) as (opened, warnings):
        table = score(opened, ["x", "yy"], answer=["x", "yy"], other=[1, 2], prompts=["no", "no"])
    assert table.names == ["good", "half"]
    assert np.array_equal(table.values, np.array([[1, np.nan], [2, 1]]), equal_nan=True)
    assert table.totals.tolist() == [1.0, 2.5] and not warnings


@pytest.mark.parametrize(
    "body",
    [
        "async def bad(completions):\n    return [1] * len(completions)\n",
        "import numpy\ndef bad(completions):\n    return numpy.ones(len(completions), 'float32')\n",
        "from dataclasses import dataclass\n@dataclass\nclass A:\n    x: int\ndef bad(completions, **_):\n"
        "    return (A(1).x, True)\n",
    ],
)
def test_what_else_is_a_list_of_rewards(tmp_path: Path, body: str) -> None:
    with rewards(tmp_path, code(body)) as (opened, _):
        assert score(opened, ["a", "b"]).totals.tolist() == [1.0, 1.0]


FAILING = {
    "raises": ("raise KeyError('no')", "bad fails (rewards.py, line 2): KeyError: 'no'"),
    "exits": ("raise SystemExit(3)", "SystemExit: 3"),
    "dies": ("import os; os._exit(7)", "bad ended with exit code 7"),
    "is killed": ("import os; os.kill(os.getpid(), 9)", "bad was killed by SIGKILL"),
    "sleeps": ("import time; time.sleep(600)", "bad gave no answer in 1 s"),
    "never lets go": ("import re; re.match('(a+)+$', 'a' * 99 + 'b')", "bad gave no answer in 1 s"),
    "takes all memory": ("x = bytearray(64 << 30)", "MemoryError"),
    "closes everything": ("import os; os.closerange(0, 1 << 16)", "bad"),
    "writes to the socket": ("import sys, os; os.write(int(sys.argv[1]), b'x' * 99)", "bad"),
}


WAITS = ("sleeps", "never lets go")


@pytest.mark.parametrize("what", [pytest.param(one, marks=[pytest.mark.slow] * (one in WAITS)) for one in FAILING])
def test_a_function_that_fails_counts_as_none(tmp_path: Path, what: str) -> None:
    """And works again in the next call."""
    body, message = FAILING[what]
    text = f"def bad(completions, fail):\n    if fail[0]: {body}\n    return [1.0] * len(completions)\n" + GOOD
    seconds = 1.0 if "gave no answer" in message else 60.0
    with rewards(tmp_path, code(text), code(text, "good"), seconds=seconds) as (opened, warnings):
        table = score(opened, ["abc", "d"], fail=[True, True])
        assert np.array_equal(table.values, [[np.nan, 3], [np.nan, 1]], equal_nan=True)
        assert len(warnings) == 1 and message in warnings[0], warnings
        assert list(table.errors) == ["bad"] and message in table.errors["bad"]
        table = score(opened, ["abc", "d"], fail=[False, False])
        assert table.totals.tolist() == [4.0, 2.0] and not table.errors


WRONG = {
    "[1.0]": "gives 1 rewards for 2 answers",
    "None": "gives None, and not a list of 2 rewards",
    "3.5": "gives 3.5, and not a list",
    "['good', 'bad']": "gives 'good' as a reward",
    "[{}, []]": "gives {} as a reward",
    "{1: 2}": "not a list",
    "'x' * 10_000_000": "and not a list",
}


@pytest.mark.parametrize("given", WRONG)
def test_what_is_no_list_of_rewards_is_said_at_once(tmp_path: Path, given: str) -> None:
    with (
        rewards(tmp_path, code(f"def bad(**_): return {given}\n" + GOOD), code(GOOD, "good")) as (opened, _),
        pytest.raises(RewardError) as error,
    ):
        score(opened, ["a", "b"])
    assert WRONG[given] in error.value.message and len(error.value.message) < 300
    assert "ftui resume" in error.value.hint


def test_nan_and_infinity_are_no_rewards(tmp_path: Path) -> None:
    text = "def bad(**_): return [float('nan'), 10 ** 400, 2]\n"
    with rewards(tmp_path, code(text)) as (opened, warnings):
        assert np.array_equal(score(opened, ["a"] * 3).totals, [np.nan, np.nan, 2], equal_nan=True)
    assert warnings == ["reward bad gave NaN or infinity for 2 of 3 answers: not counted"]


def test_no_reward_at_all_is_an_error_of_a_rollout(tmp_path: Path) -> None:
    with rewards(tmp_path, code("def bad(completions): return [None] * len(completions)\n")) as (opened, _):
        with pytest.raises(RewardError, match="every function gave None"):
            check_rewarded(score(opened, ["a"]))
        check_rewarded(score(opened, []))


def test_a_function_that_goes_on_failing_is_an_error(tmp_path: Path) -> None:
    text = "def bad(**_): raise ValueError('always')\n" + GOOD
    with rewards(tmp_path, code(text), code(text, "good")) as (opened, warnings):
        for _ in range(MAX_FAILED_CALLS - 1):
            score(opened, ["a"])
        with pytest.raises(RewardError, match="always, 3 times in a row"):
            score(opened, ["a"])
    assert len(warnings) == MAX_FAILED_CALLS - 1


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("def bad(:\n", "rewards.py, line 1"),
        ("x = 1\nimport no_such_module\n", "rewards.py, line 2): ModuleNotFoundError"),
        ("def other(): pass\n", "rewards.py has no function 'bad'"),
        ("raise SystemExit", "SystemExit"),
    ],
)
def test_a_file_that_cannot_be_loaded_is_known_before_anything_is_generated(
    tmp_path: Path, text: str, message: str
) -> None:
    with pytest.raises(RewardError) as error, rewards(tmp_path, code(text)):
        pass
    assert message in error.value.message


def test_a_function_that_forks_is_answered_once(tmp_path: Path) -> None:
    """The child returns from the function, too; one that stays is killed with the worker."""
    text = (
        "import os, time\n"
        "def bad(completions, stay):\n"
        "    pid = os.fork()\n"
        "    if stay[0] and not pid: time.sleep(600)\n"
        "    return [float(pid if stay[0] else 1)] * len(completions)\n"
    )
    with rewards(tmp_path, code(text)) as (opened, warnings):
        for _ in range(3):
            assert score(opened, ["a"], stay=[False]).totals.tolist() == [1.0]
        child = int(score(opened, ["a"], stay=[True]).totals[0])
        assert psutil.pid_exists(child)
    wait_for(lambda: not psutil.pid_exists(child) or psutil.Process(child).status() == psutil.STATUS_ZOMBIE)
    assert not warnings


def wait_for(is_so: Any) -> None:
    end = time.monotonic() + 20
    while not is_so():
        assert time.monotonic() < end
        time.sleep(0.01)


def test_of_ten_megabytes_of_output_a_little_is_kept(tmp_path: Path) -> None:
    text = "def bad(completions):\n    print('y' * 10_000_000)\n    return [1.0] * len(completions)\n"
    log = tmp_path / "rewards.log"
    with rewards(tmp_path, code(text)) as (opened, _):
        assert score(opened, ["a"]).totals.tolist() == [1.0]
        wait_for(lambda: log.exists() and "prints more than is kept" in log.read_text())
    assert log.stat().st_size < 1 << 20 and log.stat().st_mode & 0o777 == 0o600


def test_a_worker_has_no_gpu_and_ends_with_the_run(tmp_path: Path) -> None:
    text = "import os\ndef bad(**_):\n    assert os.environ['CUDA_VISIBLE_DEVICES'] == ''\n    return [os.getpid()]\n"
    with rewards(tmp_path, code(text)) as (opened, _):
        worker = int(score(opened, ["a"]).totals[0])
        assert worker != os.getpid() and psutil.pid_exists(worker)
    assert not psutil.pid_exists(worker)
