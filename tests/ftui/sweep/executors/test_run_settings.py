"""Where trials run: `[run]` of a sweep, and the card that they are estimated for."""

from dataclasses import replace
from pathlib import Path

import pytest

from ftui.errors import ProfileError, UsageError
from ftui.hardware.detect import find_machine
from ftui.profile.layers import resolve
from ftui.profile.presets import find_profile
from ftui.sweep.executors.run_settings import RunSettings, card_of, settings_of
from ftui.sweep.sweep_plan import plan_of
from tests.support.played_sweep import PLAN


def test_all_that_is_wrong_is_named_at_once(tmp_path: Path) -> None:
    wrong = """[run]
executor = "kubernetes"
card = "h10"
gpus = -1
cpus = 0
memory_gb = "much"
time = "8 hours"
partition = "gpu; rm -rf ~"
lines = "module load cuda"
nodes = 2
"""
    with pytest.raises(ProfileError) as caught:
        plan_of(PLAN + wrong, tmp_path / "lr.toml")
    for words in ("no executor 'kubernetes'", "no card 'h10'", "run.gpus", "run.cpus", "run.memory_gb", "8 hours",
                  "cannot be 'gpu; rm -rf ~'", "run.lines", "no such key"):  # fmt: skip
        assert words in caught.value.message, words


def test_the_same_file_runs_anywhere(tmp_path: Path) -> None:
    plan = plan_of(PLAN + '[run]\nexecutor = "ray"\npartition = "gpu"\n', tmp_path / "lr.toml")
    assert plan.run.is_remote and plan.run.partition == "gpu"
    assert settings_of(plan.run, "local") == replace(plan.run, executor="local")
    assert settings_of(plan.run, None) is plan.run


def test_the_card_of_nodes_is_not_this_machines() -> None:
    machine = replace(find_machine(), cards=())
    profile = resolve(find_profile("quickstart")).profile
    on_cpu = resolve(find_profile("quickstart"), overrides=["hardware.device=cpu"]).profile
    assert card_of(RunSettings(), profile, machine) == ("cpu", machine.cpu.card)
    kind, card = card_of(RunSettings("slurm", card="h100"), profile, machine)
    assert (kind, card.name) == ("cuda", "h100")
    assert card_of(RunSettings("ray"), on_cpu, machine)[0] == "cpu"
    with pytest.raises(UsageError, match="not said which the nodes have"):
        card_of(RunSettings("ray"), profile, machine)


def test_a_trial_asks_for_the_gpus_of_its_profile() -> None:
    two = resolve(find_profile("quickstart"), overrides=["hardware.num_processes=2"]).profile
    on_cpu = resolve(find_profile("quickstart"), overrides=["hardware.device=cpu"]).profile
    assert RunSettings().gpus_of(two) == 2 and RunSettings().gpus_of(on_cpu) == 0
    assert RunSettings(gpus=1).gpus_of(on_cpu) == 1


def test_what_a_cluster_sets_aside_is_paid_for() -> None:
    two = resolve(find_profile("quickstart"), overrides=["hardware.num_processes=2"]).profile
    for executor in ("slurm", "ray"):
        paid = [RunSettings(executor, gpus=gpus).num_paid(two) for gpus in (None, 0, 1, 8)]
        assert paid == [2, 2, 2, 8]
    assert RunSettings(gpus=8).num_paid(two) == 2, "the queue of this machine knows only the profile"
