"""A run whose budget is spent is not started again, before anything is loaded; the hint goes on."""

import shlex
from typing import Any

import pytest

from ftui.errors import ProfileError
from ftui.hardware import detect
from ftui.launch.budget.check_budget import check_budget
from ftui.profile.layers import ResolvedProfile, resolve
from ftui.runs.events import RunStopped
from ftui.runs.records.spending import BudgetUsed
from ftui.runs.records.supervisor_records import EngineStarted
from ftui.runs.run_folder import Run
from ftui.system.process_id import Identity
from tests.support.events import make_run_opened

PRICED = ("budget.max_money=25", "hardware.price_per_hour=3600", "hardware.device=cpu")


@pytest.fixture
def parked(make_run: Any, append: Any, dead: Identity) -> Run:
    """A run that has cost $23 of $25 in 23 seconds, when its budget parked it with 2.5 s to spare."""
    run: Run = make_run("mine")
    run.profile.write_text('[run]\nstage = "sft"\n[model]\nname_or_path = "m"\n[data]\ntrain = "rows.jsonl"\n')
    append(run.supervisor_log, EngineStarted(identity=dead, time=1000.0), attempt=1)
    append(run.journal, make_run_opened(time=1001.0, dollars_per_hour=3600.0, max_money=25.0), attempt=1)
    used = BudgetUsed(
        limit="max_money", allowed=25.0, spent=22.5, message="", parks=True, reserve_seconds=2.5, time=1022.0
    )
    append(run.journal, used, attempt=1)
    append(run.journal, RunStopped(step=3, reason="budget", exit_code=11, time=1023.0), attempt=1)
    return run


def resolved(run: Run, *overrides: str) -> ResolvedProfile:
    return resolve(run.profile, overrides=overrides)


def test_what_is_spent_is_refused_and_the_hint_goes_on(parked: Run) -> None:
    with pytest.raises(ProfileError, match=r"budget\.max_money: mine has cost \$23\.00 of \$25\.00") as error:
        check_budget(resolved(parked, *PRICED).profile, parked)
    words = shlex.split(error.value.hint.split("`")[1])
    assert words[:4] == ["ftui", "resume", "mine", "--set"]
    check_budget(resolved(parked, *PRICED, words[4]).profile, parked)
    with pytest.raises(ProfileError, match="has cost"):
        check_budget(resolved(parked, *PRICED, "budget.max_money=25.4").profile, parked)
    check_budget(resolved(parked, *PRICED[1:]).profile, parked)  # no budget, nothing to refuse
    check_budget(resolved(parked, *PRICED).profile)  # another run begins anew


def test_hours_are_checked_without_a_price(parked: Run) -> None:
    hours = 23.0 / 3600
    with pytest.raises(ProfileError, match=r"budget\.max_hours: mine has cost 23 s of 23 s"):
        check_budget(resolved(parked, f"budget.max_hours={hours:.9f}").profile, parked)
    check_budget(resolved(parked, f"budget.max_hours={hours * 1.2:.9f}").profile, parked)


def test_money_needs_a_price(parked: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(detect, "list_visible", lambda devices, setting: [])
    with pytest.raises(ProfileError, match="is not known") as error:
        check_budget(resolved(parked, "budget.max_money=25", "hardware.device=cpu").profile)
    assert "hardware.price_per_hour" in error.value.hint
