"""Opening the X-ray on a profile: on one that is looked at, on a file, or on what is being edited."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

from textual.screen import Screen

from ftui.dataset.report import Report
from ftui.errors import FtuiError
from ftui.profile.consent import check_remote_code
from ftui.profile.layers import resolve
from ftui.profile.schema import Profile

from ...stage import RowReport, stage
from .rows_screen import RowsScreen


def open_rows(screen: Screen[Any], profile: Profile, name: str, then: Callable[[], object] = lambda: None) -> None:
    """Over `screen`; `then` is called once there is a report. A tokenizer's code is run where the profile allows it."""

    def tell(report: Report) -> None:
        stage(screen).row_report = RowReport(profile, report)
        then()

    try:
        check_remote_code(profile, ())
    except FtuiError as error:
        stage(screen).complain(error)
        return
    screen.app.push_screen(RowsScreen(name, profile, tell))


def open_rows_of(screen: Screen[Any], path: Path, name: str) -> None:
    """Of the profile in a file."""
    try:
        profile = resolve(path).profile
    except FtuiError as error:
        stage(screen).complain(error)
        return
    open_rows(screen, profile, name)
