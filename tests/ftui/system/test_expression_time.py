"""Expressions that would take for ever are told with their key, and others tried as ever."""

import subprocess
from typing import Any

import pytest

from ftui.errors import FtuiError, ProfileError
from ftui.system import expression_time
from ftui.system.expression_time import check_expressions_end

NAMES = [f"model.layers.{n}.self_attn.{part}_proj" for n in range(32) for part in "qkvo"]


SLOW = (
    r"(.*)*(.*)*(.*)*-", r"(?:\w|\w\w|\.)*Q", r"(a|[a-z]|.)*!", r"(\w{1,20}\.?){1,30}Q",
)  # fmt: skip


@pytest.mark.parametrize("pattern", [r"(\w+\.?)+!", *(pytest.param(one, marks=pytest.mark.slow) for one in SLOW)])
def test_one_that_never_ends_is_refused_by_its_key(pattern: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(expression_time, "_TRY", expression_time._TRY.replace("(5, 5)", "(1, 1)"))
    with pytest.raises(ProfileError, match=r"adapter\.target_modules: ") as caught:
        check_expressions_end(
            {r".*\.layers\.\d+\.(q|v)_proj": "adapter.exclude_modules", pattern: "adapter.target_modules"}, NAMES
        )
    assert repr(pattern) in caught.value.message and caught.value.hint


class Tried(Exception):
    """A process was to be started."""


@pytest.fixture
def no_process(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: Any, **__: Any) -> None:
        raise Tried

    monkeypatch.setattr(subprocess, "run", refuse)


@pytest.mark.parametrize("pattern", [*SLOW, r"\w?" * 30 + "Q", r"(q|\w)" * 30 + "Q"])
def test_every_one_with_several_choices_is_tried(pattern: str, no_process: None) -> None:
    with pytest.raises(Tried):
        check_expressions_end({pattern: "adapter.target_modules"}, NAMES)


def test_names_and_a_single_repeat_need_no_process(no_process: None) -> None:
    check_expressions_end({"q_proj": "a", ".*q_proj": "b", "q_proj|v_proj": "c", r"layers\.1\..*": "d"}, NAMES)


def test_others_are_left_to_whoever_uses_them() -> None:
    check_expressions_end({r".*\.layers\.(1[0-9]|2[0-3])\..*_proj": "a", "q_proj": "b", r"(\w+\.)*v_proj": "c"}, NAMES)


def test_what_is_no_expression_is_said_to_be_none() -> None:
    with pytest.raises(ProfileError, match=r"adapter\.layers_pattern: '\(h\*\|l\*' .*missing \), unterminated"):
        check_expressions_end({"(h*|l*": "adapter.layers_pattern"}, NAMES)


def test_a_process_that_cannot_start_is_told_in_words(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(expression_time, "_TRY", "raise SystemExit('no room')")
    with pytest.raises(FtuiError, match=r"could not be tried: the process for it ended with 1 .*: no room\."):
        check_expressions_end({".*a.*": "adapter.target_modules"}, NAMES)
