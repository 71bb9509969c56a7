"""Pages of one file each: inline SVG, no script, nothing from outside, every foreign text escaped.

Jinja escapes what it is given; before that, `shown` makes control characters visible, so that no text can turn around
what stands beside it. What the page may do is written in its own policy: it may load nothing at all.
"""

import base64
import hashlib
import time
from collections.abc import Sequence
from functools import cache
from importlib.resources import files
from typing import Any

from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup

from ftui import __version__
from ftui.reports.charts import Chart
from ftui.reports.svg_chart import draw_svg
from ftui.system.redact import redact
from ftui.text import shown

Link = tuple[str, str]
"""Where it leads, and its words."""


def make_page(
    template: str, title: str, charts: Sequence[Chart], *, links: Sequence[Link] = (), refresh_seconds: int = 0,
    has_forms: bool = False, **values: Any,
) -> str:  # fmt: skip
    """A whole page, without the secrets that are in it.

    Args:
        links: the first lines of a page that has others beside it.
        refresh_seconds: how often a browser asks for it again; 0 for never, as in a file.
        has_forms: whether its forms may be sent to where it comes from.
    """
    css = _css()
    return redact(
        _environment()
        .get_template(template)
        .render(
            title=title,
            css=Markup(css),  # ours
            policy=policy(has_forms=has_forms),
            charts=[Markup(draw_svg(chart)) for chart in charts],  # escaped there
            links=[{"address": address, "words": words} for address, words in links],
            refresh_seconds=refresh_seconds,
            version=__version__,
            made=time.strftime("%Y-%m-%d %H:%M"),
            **values,
        )
    )


def policy(*, has_forms: bool = False) -> str:
    """The content security policy: one style, known by its hash, and nothing else."""
    digest = base64.b64encode(hashlib.sha256(_css().encode()).digest()).decode()
    forms = "'self'" if has_forms else "'none'"
    return f"default-src 'none'; style-src 'sha256-{digest}'; base-uri 'none'; form-action {forms}"


@cache
def _css() -> str:
    return files("ftui.reports").joinpath("templates", "page.css").read_text(encoding="utf-8")


@cache
def _environment() -> Environment:
    return Environment(
        loader=PackageLoader("ftui.reports", "templates"), autoescape=True, undefined=StrictUndefined,
        trim_blocks=True, lstrip_blocks=True, finalize=_visible,
    )  # fmt: skip


def _visible(value: Any) -> Any:
    return shown(value, newlines=True) if isinstance(value, str) and not isinstance(value, Markup) else value
