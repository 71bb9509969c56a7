"""The door: reads the command line and imports only the room that the command needs."""

import argparse
import os
import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING

from ftui.cli.arguments import ON_CHECKPOINTS, ORDERS, parser
from ftui.errors import INTERRUPTED, FtuiError, UsageError
from ftui.text import complaint

if TYPE_CHECKING:
    from ftui.cli import run as headless

PRIVATE_UMASK = 0o077
BROKEN_PIPE = 141

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
  ftui estimate PROFILE             what it will take: memory, time, disk, money
  ftui preview PROFILE              what its rows are, as the model will see them
  ftui split FILE --eval 10%        two files of one, to learn and to evaluate on
"""


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
    if options.verb == "estimate":
        return _estimate(options)
    if options.verb == "preview":
        return _preview(options)
    _reject_stray(options)
    if options.verb in ORDERS or options.verb in ON_CHECKPOINTS or options.verb == "set":
        return _send(options)
    if options.verb == "attach":
        return _attach(options)
    if options.verb == "checkpoints":
        return _checkpoints(options)
    if options.verb == "split":
        return _split(options)
    if options.verb == "cache":
        return _cache(options)
    if options.verb == "import":
        from ftui.importers import print_import

        return print_import(options.file, options.out, as_json=options.json)
    from ftui.cli import runs

    match options.verb:
        case "runs":
            return runs.print_runs()
        case "status":
            return runs.print_status(options.name, as_json=options.json)
        case "log":
            return runs.print_log(options.name, follow=options.follow)
        case _:
            return runs.print_profiles() if options.name is None else runs.print_profile(options.name)


def _reject_stray(options: argparse.Namespace) -> None:
    """Options of --run mean nothing without it."""
    given = {"--set": options.overrides, "--again": options.again, "--dry-run": options.dry_run}
    given |= {"--detach": options.detach, "--name": options.run_name, "--fork": options.fork}
    given |= {"--allow": options.allow, "--tier": options.tier, "--probe": options.probe}
    if stray := [option for option, value in given.items() if value]:
        raise UsageError(f"{' and '.join(stray)} only go with --run.", hint="ftui --run quickstart")


def _run_profile(options: argparse.Namespace) -> int:
    from ftui.cli import run as headless  # 0.1 s: pydantic

    if not options.dry_run:
        if options.probe:
            _probe(options)
        return headless.run_headless(options.run, _wishes(options))
    from ftui.cli import dry_run
    from ftui.launch import open_run

    _, resolved = open_run.locate_run(options.run, options.run_name, options.overrides, options.tier)
    open_run.check_code(resolved.profile, options.allow)  # the count of tokens would run it too
    open_run.check_files(resolved)
    return dry_run.preview(resolved)


def _probe(options: argparse.Namespace) -> None:
    """Measure what is about to be started or gone on with; what does not fit is not.

    A run that lives is left alone: another process beside it could take the memory that it needs.
    """
    from ftui.cli import estimate
    from ftui.launch import open_run

    folder, resolved = open_run.locate_run(options.run, options.run_name, options.overrides, options.tier)
    run, decision = open_run.decide(folder, again=options.again)
    if decision in ("attach", "finished") and not options.fork:
        print(f"{run.name} {'lives' if decision == 'attach' else 'is over'}: nothing is probed.")
        return
    open_run.check_code(resolved.profile, options.allow)
    for line in estimate.probe_lines(resolved.profile):
        print(line, flush=True)


def _estimate(options: argparse.Namespace) -> int:
    from ftui.cli import estimate
    from ftui.launch import open_run

    question = estimate.Question(
        tier=options.tier, card=options.card, quick=options.quick, probe=options.probe, fit=options.fit,
        parallel=options.parallel, as_json=options.json,
    )  # fmt: skip
    _, resolved = open_run.locate_run(options.profile, None, options.overrides, options.tier)
    if options.probe or not options.quick:  # both run the tokenizer's code, a probe the model's too
        open_run.check_code(resolved.profile, options.allow)
    return estimate.print_estimate(resolved, question)


def _preview(options: argparse.Namespace) -> int:
    from ftui.cli import preview as sampling
    from ftui.launch import open_run

    if options.rows < 0:
        raise UsageError(f"--rows {options.rows}: fewer than none.", hint="--rows 3, or --report for the report alone.")
    _, resolved = open_run.locate_run(options.profile, None, options.overrides, options.tier)
    open_run.check_code(resolved.profile, options.allow)  # the tokenizer's would be run
    open_run.check_files(resolved)
    wanted = sampling.Wanted(options.rows, options.jump, options.report, options.json)
    return sampling.print_sampling(resolved, wanted)


def _split(options: argparse.Namespace) -> int:
    from ftui.cli.split import print_split

    return print_split(
        options.file, options.how_many, seed=options.seed, out=options.out, encoding=options.encoding,
        force=options.force, as_json=options.json,
    )  # fmt: skip


def _resume(options: argparse.Namespace) -> int:
    if options.again or options.dry_run or options.probe or options.tier:
        raise UsageError("--again, --dry-run, --probe and --tier only go with --run.", hint="ftui --run quickstart")
    from ftui.cli import run as headless

    return headless.resume_headless(options.name, options.checkpoint, _wishes(options))


def _wishes(options: argparse.Namespace) -> "headless.Wishes":
    from ftui.cli import run as headless

    return headless.Wishes(
        name=options.run_name,
        overrides=options.overrides,
        again=options.again,
        detach=options.detach,
        fork=options.fork,
        allow=tuple(options.allow),
        tier=options.tier,
    )


def _send(options: argparse.Namespace) -> int:
    from ftui.cli import control

    if options.verb == "set":
        return control.change(options.name, options.assignments)
    if options.verb in ON_CHECKPOINTS:
        return control.on_checkpoint(options.verb, options.name, options.checkpoint)
    return control.order(options.verb, options.name, getattr(options, "prompts", ()))


def _checkpoints(options: argparse.Namespace) -> int:
    from ftui.cli import checkpoints

    if options.verify is None:
        return checkpoints.print_checkpoints(options.name, as_json=options.json)
    return checkpoints.verify(options.name, options.verify, as_json=options.json)


def _cache(options: argparse.Namespace) -> int:
    from ftui.cli import cache

    if options.prune:
        return cache.prune_cache(options.older_than, everything=options.everything)
    if options.older_than or options.everything:
        raise UsageError("--older-than and --all only go with --prune.", hint="ftui cache --prune --all")
    return cache.print_cache()


def _has_screen() -> bool:
    """Whether there is a terminal that screens can be drawn on."""
    return sys.stdin.isatty() and sys.stdout.isatty() and os.environ.get("TERM", "dumb") != "dumb"


def _front() -> int:
    """`ftui` alone: the list of runs on a screen, or as lines where there is none."""
    if not _has_screen():
        return _start_page()
    from ftui.tui.open_screens import open_screens

    return open_screens()


def _attach(options: argparse.Namespace) -> int:
    from ftui.cli.attach import attach_plain, run_to_attach

    run = run_to_attach(options.name)
    if options.plain or not _has_screen():
        return attach_plain(run)
    from ftui.tui.open_screens import open_screens

    return open_screens(run)


def _start_page() -> int:
    from ftui.cli import runs
    from ftui.runs.run_folder import all_runs

    print(START_PAGE)
    return runs.print_runs() if all_runs() else 0
