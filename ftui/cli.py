"""The door: reads the command line and imports only the room that the command needs."""

import argparse
import os
import sys
from collections.abc import Sequence

from ftui import __version__
from ftui.errors import FtuiError, UsageError
from ftui.shown import complaint

PRIVATE_UMASK = 0o077
INTERRUPTED = 130
BROKEN_PIPE = 141

START_PAGE = """\
ftui fine-tunes language models. A run goes on when the terminal is gone.

  ftui --run quickstart             train a small model (a few minutes on a CPU)
  ftui --run PROFILE                train with a profile (TOML) of your own
  ftui --run PROFILE --dry-run      show what it would do, start nothing
  ftui runs                         list the runs
  ftui profiles                     list the profiles that come with ftui
"""


def parser() -> argparse.ArgumentParser:
    top = argparse.ArgumentParser(prog="ftui", description="Fine-tune language models; runs survive the terminal.")
    top.add_argument("--version", action="version", version=f"ftui {__version__}")
    top.add_argument("--run", metavar="P", help="start, attach to or resume the run of a profile (a file or a name)")
    top.add_argument("--name", metavar="N", dest="run_name", help="name of the run (otherwise the profile's)")
    top.add_argument(
        "--set",
        metavar="section.key=value",
        action="append",
        default=[],
        dest="overrides",
        help="change one value of the profile; may be given several times",
    )
    top.add_argument("--again", action="store_true", help="if the run is over, start NAME-2, NAME-3 ...")
    top.add_argument("--dry-run", action="store_true", help="show every value and count the rows; start nothing")
    top.add_argument("--detach", action="store_true", help="start the run and leave it alone")
    verbs = top.add_subparsers(dest="verb", metavar="COMMAND")
    verbs.add_parser("runs", help="list the runs")
    status = verbs.add_parser("status", help="tell all about one run")
    status.add_argument("name", metavar="RUN")
    status.add_argument("--json", action="store_true", help="as one JSON object")
    log = verbs.add_parser("log", help="print what a run's engine printed")
    log.add_argument("name", metavar="RUN")
    log.add_argument("-f", "--follow", action="store_true", help="go on while the run lives")
    verbs.add_parser("profiles", help="list the profiles that come with ftui")
    return top


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command; returns its exit code. argparse itself leaves with 2 on a wrong command line."""
    options = parser().parse_args(arguments)
    os.umask(PRIVATE_UMASK)
    for stream in (sys.stdout, sys.stderr):
        if hasattr(stream, "reconfigure"):
            stream.reconfigure(errors="backslashreplace")  # a terminal that is not UTF-8 gets escapes, no crash
    try:
        return _run(options)
    except FtuiError as error:
        print(complaint(error.message, error.hint), file=sys.stderr)
        return error.exit_code
    except KeyboardInterrupt:
        return INTERRUPTED
    except BrokenPipeError:  # `ftui runs | head`: the reader has left; keep Python from flushing at its end
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return BROKEN_PIPE


def _run(options: argparse.Namespace) -> int:
    if options.verb is None and options.run is None:
        _reject_stray(options)
        return _start_page()
    if options.verb is None:
        return _run_profile(options)
    if options.run is not None:
        raise UsageError(f"--run and {options.verb} are two commands.", hint="Give one of them.")
    _reject_stray(options)
    from ftui import listing

    match options.verb:
        case "runs":
            return listing.print_runs()
        case "status":
            return listing.print_status(options.name, as_json=options.json)
        case "log":
            return listing.print_log(options.name, follow=options.follow)
        case _:
            return listing.print_profiles()


def _reject_stray(options: argparse.Namespace) -> None:
    """Options of --run mean nothing without it."""
    given = {"--set": options.overrides, "--again": options.again, "--dry-run": options.dry_run}
    given |= {"--detach": options.detach, "--name": options.run_name}
    if stray := [option for option, value in given.items() if value]:
        raise UsageError(f"{' and '.join(stray)} only go with --run.", hint="ftui --run quickstart")


def _run_profile(options: argparse.Namespace) -> int:
    from ftui import headless  # 0.1 s: pydantic

    if not options.dry_run:
        return headless.run_headless(
            options.run, name=options.run_name, overrides=options.overrides, again=options.again, detach=options.detach
        )
    from ftui import preview

    _, resolved = headless.chosen(options.run, options.run_name, options.overrides)
    return preview.preview(resolved)


def _start_page() -> int:
    from ftui import listing
    from ftui.run import all_runs

    print(START_PAGE)
    return listing.print_runs() if all_runs() else 0
