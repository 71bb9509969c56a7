"""The whole program on a machine whose memory is nearly full: its supervisor says so wherever a run is looked at."""

import json
import os
from pathlib import Path

import pytest

from ftui.runs.journal import Tail
from ftui.runs.records.health_records import HealthAlarm
from tests.support.bench import Workbench
from tests.support.driving import wait_for_end
from tests.support.zygote import ROOT, tail_of

FULL = """
import sys
if "ftui.supervisor" in sys.orig_argv:
    import psutil
    real = psutil.virtual_memory
    psutil.virtual_memory = lambda: real()._replace(used=real().total * 99 // 100, available=real().total // 100)
    from ftui.supervisor import telemetry
    telemetry.read_number = lambda folder, name: None  # the host's own memory is what counts here
"""


def test_host_memory_that_is_nearly_full_is_told_everywhere(workbench: Workbench, tmp_path: Path) -> None:
    accumulator = pytest.importorskip("tensorboard.backend.event_processing.event_accumulator")
    (tmp_path / "sitecustomize.py").write_text(FULL)
    places = os.pathsep.join([str(tmp_path), str(ROOT), workbench.env.get("PYTHONPATH", "")])
    run, profile = workbench.run("tight"), workbench.profile("tight")
    told = ("--set", 'log.report_to=["tensorboard"]', "--set", "health.on_red=park")
    assert workbench.ftui("--run", str(profile), *told, "--detach", PYTHONPATH=places).returncode == 0
    ended = wait_for_end(workbench, run)
    assert ended["state"]["phase"] == "finished", tail_of(run)  # amber: it never acts
    alarms = [record for record in Tail(run.supervisor_log).read() if isinstance(record, HealthAlarm)]
    assert [(one.rule, one.level) for one in alarms] == [("host_memory", "amber")], "once, as it lasts"
    assert "almost nothing" in alarms[0].evidence and "`ftui park tight`" in alarms[0].suggestion
    for command in (["status", "tight"], ["log", "tight"]):
        assert "of host memory are free" in " ".join(workbench.ftui(*command).stdout.split()), command
    state = json.loads(workbench.ftui("status", "tight", "--json").stdout)["state"]
    assert "host_memory" in json.dumps(state)
    found = accumulator.EventAccumulator(str(run.trackers / "tensorboard")).Reload()
    assert [event.value for event in found.Scalars("alarms/amber")] == [1.0]
