"""Measuring a profile on this machine: a few real steps, which correct later estimates (`--probe`)."""

import dataclasses
import time
from collections.abc import Callable, Collection
from contextlib import closing

from ftui.dataset.row_counts import RowCounts
from ftui.errors import DiskError, FtuiError, HardwareError
from ftui.estimate import closed_form, timing
from ftui.estimate.api import Known, setup_for
from ftui.estimate.measurements import ProbeRecord, describe_setting, describe_subject, save_probe
from ftui.hardware.devices import Card
from ftui.helper.client import Helper
from ftui.profile.schema import Profile


def probe(profile: Profile, card: Card, on_detail: Callable[[str], object], allow: Collection[str] = ()) -> ProbeRecord:
    """Take steps and an evaluation with the longest rows on `card`, this machine's, and keep what was measured.

    Raises:
        FtuiError: it does not run here, or does not fit.
    """
    with closing(Helper(allow)) as helper:  # a process of its own: it takes the device
        told = helper.ask("probe", on_detail=on_detail, profile=profile)
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
