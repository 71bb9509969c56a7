"""The door: reads the command line and imports only the room that the command needs."""

import argparse
import os
import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING

from ftui import __version__
from ftui.errors import FtuiError, UsageError
from ftui.shown import complaint

if TYPE_CHECKING:
    from ftui import headless

PRIVATE_UMASK = 0o077
INTERRUPTED = 130
BROKEN_PIPE = 141

ORDERS = {
    "hold": "stand still within a moment and keep the GPU",
    "pause": "the same as hold",
    "continue": "end a hold",
    "park": "save, free the GPU and leave; `ftui resume` goes on",
    "checkpoint": "save now, and keep that checkpoint for good",
    "stop": "save, write final/ and end the run",
    "abort": "end the run at once, save nothing",
    "evaluate": "evaluate now, beside the plan",
    "sample": "answer prompts with the model as it is now",
}
ON_CHECKPOINTS = {
    "pin": "keep a checkpoint for good",
    "unpin": "let a checkpoint go when its time comes",
    "delete": "delete a checkpoint that the run does not need",
}

START_PAGE = """\
ftui fine-tunes language models. A run goes on when the terminal is gone.

  ftui                              every run on one screen: watch them, steer them, start new ones
  ftui attach [RUN]                 watch and steer one (--plain: as lines)
  ftui --run quickstart             train a small model (a few minutes on a CPU)
  ftui --run PROFILE                train with a profile (TOML) of your own
  ftui --run PROFILE --dry-run      show what it would do, start nothing
  ftui runs                         list the runs
  ftui hold | park | stop RUN       steer a run that lives (ftui --help lists all)
  ftui profiles                     list the profiles that come with ftui
"""


def parser() -> argparse.ArgumentParser:
    top = argparse.ArgumentParser(prog="ftui", description="Fine-tune language models; runs survive the terminal.")
    top.add_argument("--version", action="version", version=f"ftui {__version__}")
    top.add_argument("--run", metavar="P", help="start, attach to or resume the run of a profile (a file or a name)")
    top.add_argument("--again", action="store_true", help="if the run is over, start NAME-2, NAME-3 ...")
    top.add_argument("--dry-run", action="store_true", help="show every value and count the rows; start nothing")
    _opening_options(top)
    verbs = top.add_subparsers(dest="verb", metavar="COMMAND")
    verbs.add_parser("runs", help="list the runs")
    attach = verbs.add_parser("attach", help="watch and steer a run", description="Watch and steer a run.")
    attach.add_argument("name", metavar="RUN", nargs="?", help="otherwise the newest that lives")
    attach.add_argument("--plain", action="store_true", help="the same facts as lines, for logs and screen readers")
    _on_run(verbs, "status", "tell all about one run").add_argument("--json", action="store_true", help="as JSON")
    browse = _on_run(verbs, "checkpoints", "list the checkpoints of a run, or read them back")
    browse.add_argument("--json", action="store_true", help="as JSON")
    browse.add_argument(
        "--verify", metavar="CHECKPOINT", nargs="?", const="", help="hash every byte, of all of them or of this one"
    )
    log = _on_run(verbs, "log", "print what a run's engine printed")
    log.add_argument("-f", "--follow", action="store_true", help="go on while the run lives")
    resume = _on_run(verbs, "resume", "go on with a run that was parked, stopped, interrupted or held")
    resume.add_argument("--from", metavar="CHECKPOINT", dest="checkpoint", help="from this one, in a run of its own")
    _opening_options(resume)
    for verb, help_text in ORDERS.items():
        _on_run(verbs, verb, help_text)
    verbs.choices["sample"].add_argument("prompts", metavar="PROMPT", nargs="*", help="otherwise the profile's")
    change = _on_run(verbs, "set", "change a living run from its next step on")
    change.add_argument(
        "assignments", metavar="KEY=VALUE", nargs="+", help="learning_rate_factor, max_steps, save_steps ..."
    )
    for verb, help_text in ON_CHECKPOINTS.items():
        _on_run(verbs, verb, help_text).add_argument("checkpoint", metavar="CHECKPOINT", help="checkpoint-120, or 120")
    verbs.add_parser("profiles", help="list the profiles that come with ftui")
    return top


def _on_run(
    verbs: "argparse._SubParsersAction[argparse.ArgumentParser]", verb: str, text: str
) -> argparse.ArgumentParser:
    added = verbs.add_parser(verb, help=text, description=text[0].upper() + text[1:] + ".")
    added.add_argument("name", metavar="RUN")
    return added


def _opening_options(to: argparse.ArgumentParser) -> None:
    to.add_argument("--name", metavar="N", dest="run_name", help="name of the run (otherwise the profile's)")
    to.add_argument(
        "--set",
        metavar="section.key=value",
        action="append",
        default=[],
        dest="overrides",
        help="change one value of the profile; may be given several times",
    )
    to.add_argument("--fork", action="store_true", help="go on from the run's newest checkpoint in a run of its own")
    to.add_argument("--detach", action="store_true", help="start the run and leave it alone")
    to.add_argument(
        "--allow",
        metavar="WHAT",
        action="append",
        default=[],
        choices=["remote-code"],
        help="remote-code: run the Python code that comes with the model (model.trust_remote_code)",
    )


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
        return _front()
    if options.verb is None:
        return _run_profile(options)
    if options.run is not None:
        raise UsageError(f"--run and {options.verb} are two commands.", hint="Give one of them.")
    if options.verb == "resume":
        return _resume(options)
    _reject_stray(options)
    if options.verb in ORDERS or options.verb in ON_CHECKPOINTS or options.verb == "set":
        return _send(options)
    if options.verb == "attach":
        return _attach(options)
    if options.verb == "checkpoints":
        return _checkpoints(options)
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
    given |= {"--detach": options.detach, "--name": options.run_name, "--fork": options.fork}
    given |= {"--allow": options.allow}
    if stray := [option for option, value in given.items() if value]:
        raise UsageError(f"{' and '.join(stray)} only go with --run.", hint="ftui --run quickstart")


def _run_profile(options: argparse.Namespace) -> int:
    from ftui import headless  # 0.1 s: pydantic

    if not options.dry_run:
        return headless.run_headless(options.run, _wishes(options))
    from ftui import opening, preview

    _, resolved = headless.chosen(options.run, options.run_name, options.overrides)
    opening.check_code(resolved.profile, options.allow)  # the count of tokens would run it too
    return preview.preview(resolved)


def _resume(options: argparse.Namespace) -> int:
    if options.again or options.dry_run:
        raise UsageError("--again and --dry-run only go with --run.", hint="ftui --run quickstart")
    from ftui import headless

    return headless.resume_headless(options.name, options.checkpoint, _wishes(options))


def _wishes(options: argparse.Namespace) -> "headless.Wishes":
    from ftui import headless

    return headless.Wishes(
        name=options.run_name,
        overrides=options.overrides,
        again=options.again,
        detach=options.detach,
        fork=options.fork,
        allow=tuple(options.allow),
    )


def _send(options: argparse.Namespace) -> int:
    from ftui import letters

    if options.verb == "set":
        return letters.change(options.name, options.assignments)
    if options.verb in ON_CHECKPOINTS:
        return letters.on_checkpoint(options.verb, options.name, options.checkpoint)
    return letters.order(options.verb, options.name, getattr(options, "prompts", ()))


def _checkpoints(options: argparse.Namespace) -> int:
    from ftui import inspecting

    if options.verify is None:
        return inspecting.print_checkpoints(options.name, as_json=options.json)
    return inspecting.verify(options.name, options.verify, as_json=options.json)


def _has_screen() -> bool:
    """Whether there is a terminal that screens can be drawn on."""
    return sys.stdin.isatty() and sys.stdout.isatty() and os.environ.get("TERM", "dumb") != "dumb"


def _front() -> int:
    """`ftui` alone: the list of runs on a screen, or as lines where there is none."""
    if not _has_screen():
        return _start_page()
    from ftui.tui.door import open_screens

    return open_screens()


def _attach(options: argparse.Namespace) -> int:
    from ftui.attaching import attach_plain, run_to_attach

    run = run_to_attach(options.name)
    if options.plain or not _has_screen():
        return attach_plain(run)
    from ftui.tui.door import open_screens

    return open_screens(run)


def _start_page() -> int:
    from ftui import listing
    from ftui.run import all_runs

    print(START_PAGE)
    return listing.print_runs() if all_runs() else 0
