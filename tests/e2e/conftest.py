"""What the tests of the whole share: a real model."""

import contextlib
import os
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

from ftui.runs.run_folder import Run
from ftui.runs.status import read_status
from ftui.system.process_id import is_alive
from tests.support import real
from tests.support.bench import Workbench


@pytest.fixture(scope="session")
def smollm2() -> Path:
    """Folder of SmolLM2-135M-Instruct."""
    try:
        return real.smollm2()
    except ConnectionError as error:
        pytest.skip(f"SmolLM2 cannot be downloaded: {error}")


@pytest.fixture
def watched_bench(workbench: Workbench) -> Iterator[Workbench]:
    """A workbench on which nothing goes on after the test, even one that failed."""
    yield workbench
    for facts in Path(workbench.env["FTUI_RUNS"]).glob("*/run.json"):
        status = read_status(Run(facts.parent))
        for process in (status.supervisor, status.engine):  # the supervisor first: it would start another engine
            if process is not None and is_alive(process):
                with contextlib.suppress(ProcessLookupError):
                    os.kill(process.pid, signal.SIGKILL)
