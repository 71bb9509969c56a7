"""Rows of a profile as the model sees them, and the report on them (engine/inspection/browser.py)."""

from collections.abc import Callable
from typing import Any

from ftui.dataset.report import Report

from ..inspection import browser
from ..inspection.first_rows import view_first_rows


def first_rows(on_detail: Callable[[str], None], profile: str, number: int) -> Any:
    """Some of the first rows, before all are read: see `view_first_rows`."""
    return view_first_rows(profile, number, on_detail)


def sample(on_detail: Callable[[str], None], profile: str, jump: str, **where: Any) -> Any:
    """A row, or a part of one: see `browser.view_row`."""
    return browser.view_row(profile, jump, on_detail, **where)


def search(on_detail: Callable[[str], None], profile: str, text: str, after: int, part: int = 0) -> Any:
    """The next row, or part of one, with this text in it; `None`: no row has it."""
    return browser.search_rows(profile, text, after, on_detail, part)


def report(on_detail: Callable[[str], None], profile: str) -> Report:
    """All there is to know about the rows."""
    return browser.browse_report(profile, on_detail)
