"""Measuring a profile on this machine: a few real steps, which correct later estimates (`--probe`)."""

import dataclasses
import json
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from typing import Any

from ftui.dataset.row_counts import RowCounts
from ftui.errors import DiskError, FtuiError, HardwareError, error_with
from ftui.estimate import closed_form, timing
from ftui.estimate.api import Known, setup_for
from ftui.estimate.measurements import ProbeRecord, describe_setting, describe_subject, save_probe
from ftui.hardware.devices import Card
from ftui.profile.schema import Profile
from ftui.profile.serialize import to_toml
from ftui.supervisor.process_tree import clean_environment


def probe(profile: Profile, card: Card, on_detail: Callable[[str], object]) -> ProbeRecord:
    """Take steps and an evaluation with the longest rows on `card`, this machine's, and save_probe what was measured.

    Raises:
        FtuiError: it does not run here, or does not fit.
    """
    told = _measured(profile, on_detail)
    counts = RowCounts(longest=told["longest"], num_sequences=told["micro_batch"], num_eval_rows=told["eval_batch"])
    setup = setup_for(profile, card, Known(counts=counts))
    if isinstance(setup, str):
        raise FtuiError(f"It was measured, but cannot be kept for later estimates: {setup}")
    if told["process"] is None:
        raise HardwareError("The driver hides how much memory is used here: nothing could be measured.")
    setup = dataclasses.replace(setup, num_processes=1)
    found = ProbeRecord(
        what=describe_subject(setup), setting=describe_setting(setup), estimated=closed_form.memory(setup).process,
        allocated=told["allocated"], reserved=told["reserved"], process=told["process"],
        step_seconds=told["step_seconds"], num_tokens=told["num_tokens"], versions=told["versions"], time=time.time(),
        estimated_seconds=timing.step_seconds(dataclasses.replace(setup, accumulation=1), told["num_tokens"]),
    )  # fmt: skip
    try:
        save_probe(found)
    except OSError as error:
        raise DiskError(f"What was measured could not be kept: {error}.") from error
    return found


def _measured(profile: Profile, on_detail: Callable[[str], object]) -> dict[str, Any]:
    """The probe's answer. It ends when its input does: with this process, however that ends."""
    with tempfile.TemporaryFile() as errors:
        process = subprocess.Popen(
            [sys.executable, "-P", "-m", "ftui.engine.services.probe"],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=errors, env=clean_environment(),
        )  # fmt: skip
        assert process.stdin is not None and process.stdout is not None, "both are pipes"
        try:
            process.stdin.write(json.dumps(to_toml(profile)).encode() + b"\n")
            process.stdin.flush()
            for line in process.stdout:
                told = json.loads(line)
                if "detail" in told:
                    on_detail(told["detail"])
                if (problem := told.get("problem")) is not None:
                    raise error_with(problem["exit_code"], problem["message"], problem["hint"])
                if (measured := told.get("measured")) is not None:
                    return dict(measured)
        finally:
            process.kill()
            process.wait()
            process.stdin.close()
            process.stdout.close()
        errors.seek(0)
        tail = errors.read().decode(errors="backslashreplace").rstrip().split("\n")[-5:]
        raise FtuiError(f"The probe ended with {process.returncode}:\n" + "\n".join(tail))
