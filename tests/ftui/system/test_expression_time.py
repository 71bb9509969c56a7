"""Expressions that would take for ever are told with their key, and others tried as ever."""

import pytest

from ftui.errors import ProfileError
from ftui.system import expression_time
from ftui.system.expression_time import check_expressions_end

NAMES = [f"model.layers.{n}.self_attn.{part}_proj" for n in range(32) for part in "qkvo"]


SLOW = (r"(.*)*(.*)*(.*)*-", r"(a|\w|\.)*(.+)+#")


@pytest.mark.parametrize("pattern", [r"(\w+\.?)+!", *(pytest.param(one, marks=pytest.mark.slow) for one in SLOW)])
def test_one_that_never_ends_is_refused_by_its_key(pattern: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(expression_time, "_TRY", expression_time._TRY.replace("(5, 5)", "(1, 1)"))
    with pytest.raises(ProfileError, match=r"adapter\.target_modules: ") as caught:
        check_expressions_end(
            {r".*\.layers\.\d+\.(q|v)_proj": "adapter.exclude_modules", pattern: "adapter.target_modules"}, NAMES
        )
    assert repr(pattern) in caught.value.message and caught.value.hint


def test_others_are_left_to_whoever_uses_them() -> None:
    check_expressions_end({r".*\.layers\.(1[0-9]|2[0-3])\..*_proj": "a", "q_proj": "b", r"(\w+\.)*v_proj": "c"}, NAMES)
