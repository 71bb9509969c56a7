"""`ftui merge RUN`: what a run has trained as a model of its own, with a certificate."""

from collections.abc import Collection
from pathlib import Path

from ftui.cli.trained.named_weights import find_weights
from ftui.cli.trained.run_job import run_job
from ftui.helper.merge_facts import DType, Into
from ftui.launch.merge_job import merge_job


def merge(
    name: str, dtype: DType | None, into: Into | None, out: Path | None, device: str | None, allow: Collection[str]
) -> int:
    """Merge, certify, publish; print what was measured.

    Raises:
        FtuiError: there is nothing to merge, no room, or the result is not what was trained: nothing is published.
    """
    return run_job(merge_job(*find_weights(name), dtype, into, out, device), allow)
