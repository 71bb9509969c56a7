"""One zygote for all of torture, and the account of a campaign of trials."""

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.zygote import Zygote

COUNTS = pytest.StashKey[list[str]]()


@pytest.fixture(scope="session")
def zygote(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Zygote]:
    """Starts engines in no time."""
    inherited = {name: os.environ[name] for name in ("PATH", "PYTHONPATH") if name in os.environ}
    home: Path = tmp_path_factory.mktemp("zygote")
    own = {"HOME": str(home), "HF_HUB_OFFLINE": "1", "OMP_NUM_THREADS": "1"}
    with Zygote(inherited | own) as found:
        yield found


@pytest.fixture
def account(request: pytest.FixtureRequest) -> Iterator[list[str]]:
    """What a trial has to tell in the summary, a word or a figure each."""
    words: list[str] = []
    yield words
    if words:
        request.config.stash.setdefault(COUNTS, []).append(" ".join(words))


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter, config: pytest.Config) -> None:
    for line in config.stash.get(COUNTS, []):
        terminalreporter.write_line(line)
