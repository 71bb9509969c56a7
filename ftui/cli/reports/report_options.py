"""What can be typed after the commands that compare runs and tell of them."""

import argparse

from ftui.cli.options.command_parser import Verbs, add_allow_option, add_command, add_json_option
from ftui.profile.tracker_names import TRACKERS

AXES = ("step", "epoch", "tokens", "time", "money")
"""As in ftui/reports/run_curves.py, which --help does without."""


def add_compare(verbs: Verbs) -> None:
    """`ftui compare`."""
    text = "two to six runs beside each other: results, evaluations, and what differs between them"
    compare = add_command(verbs, "compare", text, "reports.compare:compare_runs")
    compare.add_argument("names", metavar="RUN", nargs="+")
    add_json_option(compare)


def add_report(verbs: Verbs) -> None:
    """`ftui report`."""
    text = "a run, or up to six beside each other, as a file to keep or to show: HTML, CSV, SVG or PNG"
    report = add_command(verbs, "report", text, "reports.report:write_report")
    report.add_argument("names", metavar="RUN", nargs="+")
    kinds = report.add_mutually_exclusive_group()
    texts = {
        "html": "a page that needs nothing else: facts, curves, checkpoints, samples, versions (the default)",
        "csv": "every step with its evaluation, a line each",
        "svg": "the curve alone, as a picture",
        "png": "the same as pixels, by matplotlib",
    }
    for kind, help_text in texts.items():
        kinds.add_argument(f"--{kind}", action="store_const", const=kind, dest="kind", default="html", help=help_text)
    report.add_argument("--out", metavar="FILE", help="otherwise RUN.html ... in this folder; - prints it")
    report.add_argument("--force", action="store_true", help="overwrite the file that is there")
    report.add_argument("--over", choices=AXES, default="step", help="what the curves are drawn over (step)")
    report.add_argument("--measure", metavar="NAME", default="loss", help="of --svg and --png: loss, grad_norm ...")
    report.add_argument("--rows", action="store_true", help="with what is found in all rows of its profile (HTML)")
    add_allow_option(report)


def add_serve(verbs: Verbs) -> None:
    """`ftui serve`."""
    text = "reports of all runs in a browser: on this machine only, to be looked at only"
    serve = add_command(verbs, "serve", text, "reports.serve:serve")
    serve.add_argument("--port", metavar="N", type=_port, default=8765, help="0 takes a free one (8765)")


def _port(text: str) -> int:
    if not text.isascii() or not text.isdigit() or int(text) > 65535:
        raise argparse.ArgumentTypeError(f"a number from 0 to 65535, not {text!r}")
    return int(text)


def add_blame(verbs: Verbs) -> None:
    """`ftui blame`."""
    text = "the rows behind the loss of a step, the most to blame first; or how rows were learned"
    blame = add_command(verbs, "blame", text, "reports.blame:blame", on_run=True)
    blame.add_argument("step", metavar="STEP", nargs="?", type=int, help="otherwise the one that stands out most")
    courses = {
        "never-learned": "rows whose loss has hardly fallen since they were first seen",
        "forgotten": "rows whose loss had fallen and has risen again",
        "learned-at-once": "rows that taught nothing from their second sight on, or the first",
    }
    which = blame.add_mutually_exclusive_group()
    for course, help_text in courses.items():
        which.add_argument(
            f"--{course}", action="store_const", const=course.replace("-", "_"), dest="course", help=help_text
        )
    blame.add_argument("--rows", metavar="N", dest="num_rows", type=int, help="show so many rows (10)")
    form = blame.add_mutually_exclusive_group()
    form.add_argument("--csv", action="store_true", dest="as_csv_rows", help="all rows, as CSV")
    form.add_argument("--json", action="store_true", dest="as_json", help="all rows, as JSON")
    add_allow_option(blame)


def add_track(verbs: Verbs) -> None:
    """`ftui track`."""
    text = "hand a run on to a tracker afterwards, as log.report_to does while it trains"
    track = add_command(verbs, "track", text, "reports.track:track", on_run=True)
    names = f"{', '.join(TRACKERS)}, or one that an installed package brings"
    track.add_argument("--to", metavar="TRACKER", required=True, help=names)
