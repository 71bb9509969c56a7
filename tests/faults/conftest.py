"""One zygote for all tests of this folder, and the account of what was measured and of a campaign of trials."""

import os
from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from tests.support.zygote import Zygote


@dataclass
class Account:
    """What one test has to tell in the summary. `figures` of all tests are added up, `words` are not.

    `row`: its place in the table of a campaign (`make torture`), of all tests with the same.
    """

    name: str
    figures: Counter[str] = field(default_factory=Counter)
    words: list[str] = field(default_factory=list)
    row: str = ""

    def __str__(self) -> str:
        return f"{self.name}: " + ", ".join([*(f"{n} {what}" for what, n in self.figures.items()), *self.words])


ACCOUNT = "account"  # a report carries it, also from a worker of pytest-xdist to the summary


@pytest.fixture(scope="session")
def zygote(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Zygote]:
    """Starts engines in no time."""
    inherited = {name: os.environ[name] for name in ("PATH", "PYTHONPATH") if name in os.environ}
    home: Path = tmp_path_factory.mktemp("zygote")
    own = {"HOME": str(home), "HF_HUB_OFFLINE": "1", "OMP_NUM_THREADS": "1"}
    with Zygote(inherited | own) as found:
        yield found


@pytest.fixture
def account(request: pytest.FixtureRequest) -> Iterator[Account]:
    """For a test that has more to tell than that it passed."""
    found = Account(request.node.name.removeprefix("test_").replace("_", " "))
    yield found
    request.node.user_properties.append((ACCOUNT, [found.name, dict(found.figures), found.words, found.row]))


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    ended = [report for reports in terminalreporter.stats.values() for report in reports]
    told = [value for report in ended for name, value in getattr(report, "user_properties", []) if name == ACCOUNT]
    found = [Account(name, Counter(figures), list(words), row) for name, figures, words, row in told]
    accounts = sorted((account for account in found if account.figures or account.words), key=lambda a: a.name)
    for account in accounts:
        terminalreporter.write_line(str(account))
    if len(accounts) > 1:
        total = Account("all", sum((account.figures for account in accounts), Counter()))
        total.words = [f"not passed: {account.name}" for account in accounts if account.figures["failed"]]
        terminalreporter.write_line(str(total))
    if terminalreporter.config.getoption("trials"):
        for line in campaign_table([report for report in ended if isinstance(report, pytest.TestReport)]):
            terminalreporter.write_line(line)


def campaign_table(reports: Sequence[pytest.TestReport]) -> list[str]:
    """What was tried, how often, and what failed, a line for each kind of it."""
    told: dict[str, tuple[Counter[str], str]] = {}
    failed = {report.nodeid for report in reports if report.failed}
    for report in reports:
        place = Path(report.nodeid.partition("::")[0])
        row = f"{place.parent.name}: {place.stem.removeprefix('test_').replace('_', ' ')}"
        told.setdefault(report.nodeid, (Counter(trials=1), row))
        for name, value in report.user_properties:
            if name == ACCOUNT and isinstance(value, list):
                told[report.nodeid] = Counter({"trials": 1} | value[1]), value[3] or row
    rows: defaultdict[str, Counter[str]] = defaultdict(Counter)
    for node, (figures, row) in told.items():
        figures["failed"] = int(node in failed)
        rows[row].update(figures)
    lines = [f"| {'tried':42} | {'trials':>7} | {'failed':>6} | came to |", "|---|---|---|---|"]
    for row, figures in sorted(rows.items()):
        trials, failures = figures.pop("trials"), figures.pop("failed")
        rest = ", ".join(f"{number} {what}" for what, number in figures.items())
        lines.append(f"| {row:42} | {trials:7} | {failures:6} | {rest} |")
    return lines
