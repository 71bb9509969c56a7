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
        answer = helper.ask("probe", on_detail=on_detail, profile=profile)
    counts = RowCounts(
        longest=answer["longest"], num_sequences=answer["micro_batch"], num_eval_rows=answer["eval_batch"]
    )
    setup = setup_for(profile, card, Known(counts=counts))
    if isinstance(setup, str):
        raise FtuiError(f"It was measured, but cannot be kept for later estimates: {setup}")
    if answer["process"] is None:
        raise HardwareError("The driver hides how much memory is used here: nothing could be measured.")
    setup = dataclasses.replace(setup, num_processes=1)
    record = ProbeRecord(
        what=describe_subject(setup), setting=describe_setting(setup), estimated=closed_form.memory(setup).process,
        allocated=answer["allocated"], reserved=answer["reserved"], process=answer["process"],
        step_seconds=answer["step_seconds"], num_tokens=answer["num_tokens"], versions=answer["versions"],
        time=time.time(),
        estimated_seconds=timing.step_seconds(dataclasses.replace(setup, accumulation=1), answer["num_tokens"]),
    )  # fmt: skip
    try:
        save_probe(record)
    except OSError as error:
        raise DiskError(f"What was measured could not be kept: {error}.") from error
    return record
