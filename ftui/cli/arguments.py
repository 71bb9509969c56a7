"""What can be typed: every command and option of `ftui`, with its help and the function that handles it.

A handler is `module:function` of ftui.cli. The options of a command are the parameters of its function, which is
imported only when it is called: `ftui --version` must not pay for pydantic (0.1 s).
"""

import argparse
from collections.abc import Callable
from pathlib import Path

from ftui import __version__
from ftui.cli.cluster.cluster_options import add_cluster
from ftui.cli.hooks.hook_options import add_keep, add_notify
from ftui.cli.many.queue_options import add_queue
from ftui.cli.many.sweep_options import add_sweep
from ftui.cli.options.command_parser import (
    Parser,
    Verbs,
    add_allow_option,
    add_command,
    add_json_option,
    add_on_profile,
    add_value_options,
)
from ftui.cli.options.trained_options import add_answering, add_evaluate, add_export, add_merge, add_push
from ftui.cli.reports.report_options import add_blame, add_compare, add_report, add_serve, add_track
from ftui.cli.rollouts.rollout_options import add_rollouts, add_task
from ftui.runs.verbs import CHECKPOINT_VERBS, RUN_VERBS


def parser(verb: str | None = None) -> Parser:
    """The parser of the command line; the options it returns hold the `handler` of the command.

    Where `verb` is what was typed first, only that command and those beside it are in it: all 30 take 8 ms to set up.

    Raises (while parsing):
        UsageError: something is missing, unknown or of a wrong kind.
    """
    top = Parser(
        prog="ftui",
        description="Fine-tune language models; runs survive the terminal.",
        epilog="`ftui --run P` is the same as `ftui run P`.",
    )
    top.add_argument("--version", action="version", version=f"ftui {__version__}")
    top.set_defaults(handler="attach:open_front")
    verbs: Verbs = top.add_subparsers(dest="verb", metavar="COMMAND", parser_class=Parser)
    for add in [add for add, its_verbs in GROUPS.items() if verb in its_verbs] or GROUPS:
        add(verbs)
    top.commands = verbs.choices
    return top


def _add_run(verbs: Verbs) -> None:
    run = add_command(
        verbs, "run", "start, attach to or resume the run of a profile (a file or a name)", "run:run_profile"
    )
    run.add_argument("profile", metavar="P", help="a file, the name of a profile that comes with ftui, or of a run")
    run.add_argument("--again", action="store_true", help="if the run has ended, start NAME-2, NAME-3 ...")
    run.add_argument("--dry-run", action="store_true", help="show every value and count the rows; start nothing")
    run.add_argument("--probe", action="store_true", help="take steps with the longest rows first: does it fit?")
    _add_opening_options(run)
    resume = add_command(
        verbs, "resume", "continue a run that was parked, stopped, interrupted or paused", "run:resume_run", on_run=True
    )
    resume.add_argument("--from", metavar="CHECKPOINT", dest="checkpoint", help="from this one, in a run of its own")
    _add_opening_options(resume, tier=False)


def _add_looking(verbs: Verbs) -> None:
    """Commands that only look at runs."""
    runs = add_command(verbs, "runs", "list the runs", "runs:print_runs")
    runs.add_argument("--archived", action="store_true", help="list those that were archived instead")
    add_json_option(runs)
    attach = add_command(verbs, "attach", "watch and control a run", "attach:attach")
    attach.add_argument("name", metavar="RUN", nargs="?", help="otherwise the newest that is running")
    attach.add_argument("--plain", action="store_true", help="the same facts as lines, for logs and screen readers")
    status = add_command(verbs, "status", "show all about one run", "runs:print_status", on_run=True)
    add_json_option(status)
    status.add_argument("--short", action="store_true", help="one line, for the status line of tmux")
    text = "print the course of a run: steps, evaluations, checkpoints, requests, ends"
    log = add_command(verbs, "log", text, "log:print_log", on_run=True)
    log.add_argument("-f", "--follow", action="store_true", help="follow it while the run is running")
    log.add_argument(
        "-n", metavar="N", dest="num_lines", type=_number_of_lines, default=100, help="the last N lines (100), or all"
    )
    log.add_argument("--output", action="store_true", help="print what the engine printed (engine.log) instead")


def _add_control(verbs: Verbs) -> None:
    """Commands that ask something of a run, or change its checkpoints."""
    for verb, help_text in RUN_VERBS.items():
        if verb == "evaluate":
            add_evaluate(verbs, help_text)
        else:
            add_command(verbs, verb, help_text, "control:order", on_run=True)
    verbs.choices["sample"].add_argument("prompts", metavar="PROMPT", nargs="*", help="otherwise the profile's")
    change = add_command(verbs, "set", "change a running run from its next step on", "control:change", on_run=True)
    change.add_argument(
        "assignments",
        metavar="KEY=VALUE",
        nargs="+",
        help="learning_rate_factor, max_steps, decay=linear ...",
    )
    checkpoints = add_command(
        verbs, "checkpoints", "list the checkpoints of a run, or read them back", "checkpoints:checkpoints", on_run=True
    )
    add_json_option(checkpoints)
    checkpoints.add_argument(
        "--verify", metavar="CHECKPOINT", nargs="?", const="", help="hash every byte, of all of them or of this one"
    )
    for verb, help_text in CHECKPOINT_VERBS.items():
        added = add_command(verbs, verb, help_text, "control:on_checkpoint", on_run=True)
        added.add_argument("checkpoint", metavar="CHECKPOINT", help="checkpoint-120, or 120")


def _add_managing(verbs: Verbs) -> None:
    """Commands that change which runs there are."""
    remove = add_command(
        verbs, "remove", "delete runs for good; says what is freed, and asks first", "control:remove_runs"
    )
    remove.add_argument("--yes", action="store_true", help="do not ask (for scripts)")
    texts = {
        "archive": "leave runs out of the lists; their files stay as they are",
        "unarchive": "put archived runs back into the lists",
    }
    for verb, help_text in texts.items():
        add_command(verbs, verb, help_text, f"control:{verb}_runs")
    for verb in ("remove", *texts):
        verbs.choices[verb].add_argument("names", metavar="RUN", nargs="+")
    rename = add_command(verbs, "rename", "give a run another name", "control:rename_run", on_run=True)
    rename.add_argument("new_name", metavar="NEW_NAME")


def _add_profiles(verbs: Verbs) -> None:
    shipped = add_command(
        verbs, "profiles", "list the profiles that come with ftui, or print one", "runs:print_profiles"
    )
    shipped.add_argument("name", metavar="NAME", nargs="?", help="print this one, ready to be saved as a file")
    text = "what a profile will take: memory, time, disk and money, before you pay for it"
    estimate = add_on_profile(verbs, "estimate", text, "estimate:print_estimate")
    estimate.add_argument("--card", metavar="C", help="on that card; otherwise the tier's, or what is in this machine")
    estimate.add_argument("--quick", action="store_true", help="in closed form: reads no rows, simulates nothing")
    estimate.add_argument("--fit", action="store_true", help="show what would fit, also where the profile does")
    estimate.add_argument(
        "--probe", action="store_true", help="take two real steps with the longest rows, and remember"
    )
    ways = ["ddp", "zero1", "zero2", "zero3", "fsdp"]
    how = "what if other trainers shared the model among the processes so? (ftui's own ways: hardware.shard)"
    estimate.add_argument("--parallel", choices=ways, default="ddp", help=how)
    add_json_option(estimate)


def _add_step_profile(verbs: Verbs) -> None:
    text = "where the time of a training step goes here, by kind of work, and what could be gained"
    step = add_on_profile(verbs, "profile", text, "estimate:print_step_profile")
    step.add_argument("--steps", metavar="N", dest="num_steps", type=int, default=3, help="a mean of so many steps (3)")
    step.add_argument("--trace", metavar="FILE", type=Path, help="write a chrome trace too (.json or .json.gz)")
    add_json_option(step)


def _add_preview(verbs: Verbs) -> None:
    text = "the rows of a profile as the model will see them, and what is wrong with them"
    preview = add_on_profile(verbs, "preview", text, "preview:print_preview")
    preview.add_argument("--rows", metavar="N", dest="num_rows", type=int, default=3, help="show so many rows (3)")
    jump = "longest, shortest, most_truncated, least_trained, random, a row's number (from 1), row/part or FILE:LINE"
    preview.add_argument("--jump", metavar="WHICH", help=f"show not the first rows, but the {jump}")
    preview.add_argument("--report", action="store_true", dest="only_report", help="show no rows")
    add_json_option(preview)


def _add_split(verbs: Verbs) -> None:
    text = "split a file into rows to train on and rows to evaluate on; similar rows stay on one side"
    split = add_command(verbs, "split", text, "split:print_split")
    split.add_argument("file", metavar="FILE", type=Path, help="rows of any kind that ftui reads")
    split.add_argument("--eval", metavar="SHARE", required=True, dest="how_many", help="10%%, or a number of rows")
    split.add_argument("--seed", metavar="N", type=int, default=0, help="another choice of rows (0)")
    split.add_argument("--out", metavar="DIR", type=Path, help="where to write; otherwise beside FILE")
    split.add_argument("--encoding", metavar="E", help="of a text file that is not UTF-8, as in data.encoding")
    split.add_argument("--force", action="store_true", help="overwrite files of an earlier split")
    add_json_option(split)


def _add_import(verbs: Verbs) -> None:
    text = "make a profile of a file of LLaMA-Factory, Axolotl, TRL, torchtune, LitGPT, DeepSpeed or a guide"
    importing = add_command(verbs, "import", text, "import_profile:import_profile")
    importing.add_argument("file", metavar="FILE", type=Path, help="YAML, JSON, or a shell script with its command")
    importing.add_argument("-o", "--out", metavar="OUT", type=Path, help="where to write it; otherwise it is printed")
    add_json_option(importing, "report what was carried and what was not as JSON")


def _add_cache(verbs: Verbs) -> None:
    cache = add_command(verbs, "cache", "list the tokenised rows on this disk, or delete some", "cache:cache")
    cache.add_argument("--prune", action="store_true", help="delete what was not used for 30 days and is not in use")
    cache.add_argument("--older-than", metavar="TIME", help="with --prune: not used for 12h, 7d or 8w")
    cache.add_argument("--all", action="store_true", dest="everything", help="with --prune: all that is not in use")


def _add_opening_options(to: Parser, *, tier: bool = True) -> None:
    to.add_argument("--name", metavar="N", dest="run_name", help="name of the run (otherwise the profile's)")
    add_value_options(to, tier=tier)
    to.add_argument("--fork", action="store_true", help="continue from the run's newest checkpoint in a run of its own")
    to.add_argument("--detach", action="store_true", help="start the run and leave it alone")
    add_allow_option(to)


def _number_of_lines(text: str) -> int | None:
    if text == "all":
        return None
    if not text.isascii() or not text.isdigit() or int(text) == 0:
        raise argparse.ArgumentTypeError(f"a number from 1, or all, not {text!r}")
    return int(text)


GROUPS: dict[Callable[[Verbs], None], tuple[str, ...]] = {
    _add_run: ("run", "resume"),
    _add_looking: ("runs", "attach", "status", "log"),
    add_compare: ("compare",),
    add_report: ("report",),
    add_serve: ("serve",),
    add_blame: ("blame",),
    add_rollouts: ("rollouts",),
    add_task: ("make-task",),
    add_track: ("track",),
    add_queue: ("queue",),
    add_sweep: ("sweep",),
    add_cluster: ("cluster",),
    _add_control: (*RUN_VERBS, "set", "checkpoints", *CHECKPOINT_VERBS),
    _add_managing: ("remove", "archive", "unarchive", "rename"),
    _add_profiles: ("profiles", "estimate"),
    _add_step_profile: ("profile",),
    _add_preview: ("preview",),
    _add_split: ("split",),
    _add_import: ("import",),
    add_answering: ("chat", "ask"),
    add_merge: ("merge",),
    add_push: ("push",),
    add_export: ("export",),
    add_keep: ("keep", "then-stop"),
    add_notify: ("notify",),
    _add_cache: ("cache",),
}
"""What adds which commands, in the order of `ftui --help`."""
