"""What each command does with its options. Everything is imported late: `ftui --version` must not pay for pydantic."""

import os
import sys
from argparse import Namespace
from typing import TYPE_CHECKING

from ftui.errors import UsageError

if TYPE_CHECKING:
    from ftui.cli.run import Wishes

START_PAGE = """\
ftui fine-tunes language models. A run goes on when the terminal is gone.

  ftui                              every run on one screen: watch them, control them, start new ones
  ftui attach [RUN]                 watch and control one (--plain: as lines)
  ftui run quickstart               train a small model (a few minutes on a CPU)
  ftui run PROFILE                  train with a profile (TOML) of your own
  ftui run PROFILE --dry-run        show what it would do, start nothing
  ftui runs                         list the runs
  ftui pause | park | stop RUN      control a running run (ftui --help lists all)
  ftui profiles                     list the profiles that come with ftui
  ftui estimate PROFILE             what it will take: memory, time, disk, money
  ftui preview PROFILE              its rows as the model will see them
  ftui split FILE --eval 10%        split a file into rows to train on and rows to evaluate on
"""


def open_front(options: Namespace) -> int:
    """`ftui` alone: the list of runs on a screen, or as lines where there is no terminal to draw on."""
    if not _has_screen():
        from ftui.cli.runs import print_runs
        from ftui.runs.run_folder import all_runs

        print(START_PAGE)
        return print_runs() if all_runs() else 0
    from ftui.tui.open_screens import open_screens

    return open_screens()


def attach(options: Namespace) -> int:
    from ftui.cli.attach import attach_plain, run_to_attach

    run = run_to_attach(options.name)
    if options.plain or not _has_screen():
        return attach_plain(run)
    from ftui.tui.open_screens import open_screens

    return open_screens(run)


def _has_screen() -> bool:
    """Whether there is a terminal that screens can be drawn on."""
    return sys.stdin.isatty() and sys.stdout.isatty() and os.environ.get("TERM", "dumb") != "dumb"


def run_profile(options: Namespace) -> int:
    """`ftui run P`: start, attach to or resume a run; or, with --dry-run, show what that would be."""
    from ftui.launch.open_run import check_files, locate_run

    if not options.dry_run:
        from ftui.cli.run import run_headless

        if options.probe:
            _probe(options)
        return run_headless(options.profile, _wishes(options))
    from ftui.cli.dry_run import preview

    _, resolved = locate_run(options.profile, options.run_name, options.overrides, options.tier)
    check_files(resolved)
    return preview(resolved, options.allow)


def _probe(options: Namespace) -> None:
    """Measure what is about to be started or resumed; raises where it does not fit.

    A running run is left alone: another process beside it could take the memory that it needs.
    """
    from ftui.cli.estimate import probe_lines
    from ftui.launch.open_run import decide, locate_run

    folder, resolved = locate_run(options.profile, options.run_name, options.overrides, options.tier)
    run, decision = decide(folder, again=options.again)
    if decision in ("attach", "finished") and not options.fork:
        print(f"{run.name} {'is running' if decision == 'attach' else 'has ended'}: nothing is probed.")
        return
    for line in probe_lines(resolved.profile, options.allow):
        print(line, flush=True)


def resume(options: Namespace) -> int:
    from ftui.cli.run import resume_headless

    return resume_headless(options.name, options.checkpoint, _wishes(options))


def _wishes(options: Namespace) -> "Wishes":
    from ftui.cli.run import Wishes

    return Wishes(
        name=options.run_name,
        overrides=options.overrides,
        again=options.again,
        detach=options.detach,
        fork=options.fork,
        allow=tuple(options.allow),
        tier=options.tier,
    )


def estimate(options: Namespace) -> int:
    from ftui.cli.estimate import Question, print_estimate
    from ftui.launch.open_run import locate_run

    question = Question(
        tier=options.tier, card=options.card, quick=options.quick, probe=options.probe, fit=options.fit,
        parallel=options.parallel, as_json=options.json, allow=options.allow,
    )  # fmt: skip
    _, resolved = locate_run(options.profile, None, options.overrides, options.tier)
    return print_estimate(resolved, question)


def preview(options: Namespace) -> int:
    from ftui.cli.preview import Wanted, print_sampling
    from ftui.launch.open_run import check_files, locate_run

    if options.rows < 0:
        raise UsageError(f"--rows {options.rows}: fewer than none.", hint="--rows 3, or --report for the report alone.")
    _, resolved = locate_run(options.profile, None, options.overrides, options.tier)
    check_files(resolved)
    return print_sampling(resolved, Wanted(options.rows, options.jump, options.report, options.json, options.allow))


def split(options: Namespace) -> int:
    from ftui.cli.split import print_split

    return print_split(
        options.file, options.how_many, seed=options.seed, out=options.out, encoding=options.encoding,
        force=options.force, as_json=options.json,
    )  # fmt: skip


def import_profile(options: Namespace) -> int:
    from ftui.importers import print_import

    return print_import(options.file, options.out, as_json=options.json)


def send_request(options: Namespace) -> int:
    """`ftui pause RUN` and the other verbs that ask something of a running run."""
    from ftui.cli.control import order

    return order(options.verb, options.name, getattr(options, "prompts", ()))


def change_settings(options: Namespace) -> int:
    """`ftui set RUN key=value ...`"""
    from ftui.cli.control import change

    return change(options.name, options.assignments)


def change_checkpoint(options: Namespace) -> int:
    """`ftui pin | unpin | delete RUN CHECKPOINT`"""
    from ftui.cli.control import on_checkpoint

    return on_checkpoint(options.verb, options.name, options.checkpoint)


def list_checkpoints(options: Namespace) -> int:
    from ftui.cli.checkpoints import print_checkpoints, verify

    if options.verify is None:
        return print_checkpoints(options.name, as_json=options.json)
    return verify(options.name, options.verify, as_json=options.json)


def list_cache(options: Namespace) -> int:
    from ftui.cli.cache import print_cache, prune_cache

    if options.prune:
        return prune_cache(options.older_than, everything=options.everything)
    if options.older_than or options.everything:
        raise UsageError("--older-than and --all only go with --prune.", hint="ftui cache --prune --all")
    return print_cache()


def list_runs(options: Namespace) -> int:
    from ftui.cli.runs import print_runs

    return print_runs(as_json=options.json)


def show_status(options: Namespace) -> int:
    from ftui.cli.runs import print_status

    return print_status(options.name, as_json=options.json)


def show_log(options: Namespace) -> int:
    from ftui.cli.runs import print_log

    return print_log(options.name, follow=options.follow)


def list_profiles(options: Namespace) -> int:
    from ftui.cli.runs import print_profile, print_profiles

    return print_profiles() if options.name is None else print_profile(options.name)
