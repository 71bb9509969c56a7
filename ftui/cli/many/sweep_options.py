"""What can be typed after `ftui sweep`."""

from pathlib import Path

from ftui.cli.options.command_parser import Parser, Verbs, add_allow_option, add_command, add_json_option

COMMANDS = ("start", "list", "show", "results", "report", "best", "import", "pause", "stop", "continue")
EXECUTORS = ("local", "slurm", "ray")


def add_sweep(verbs: Verbs) -> None:
    """`ftui sweep` and its own commands; without one it lists."""
    text = "search for the values that train best; the winner needs no retraining. `ftui sweep FILE` starts one"
    sweep = add_command(verbs, "sweep", text, "many.sweep_command:print_sweeps")
    own: Verbs = sweep.add_subparsers(metavar="COMMAND", parser_class=Parser)
    starting = _add(own, "start", "start the search that a file describes, or watch it go on", "start_sweep")
    starting.add_argument("file", metavar="FILE", help="sweep.toml: space, method, budget")
    starting.add_argument("--dry-run", action="store_true", help="check it and say what it will take; start nothing")
    starting.add_argument("--detach", action="store_true", help="start it and leave it alone")
    where = "where trials run: local, slurm or ray (otherwise as [run] of the file says)"
    starting.add_argument("--executor", metavar="E", choices=EXECUTORS, help=where)
    how = "print the script of its SLURM jobs; start nothing"
    starting.add_argument("--print", action="store_true", dest="print_only", help=how)
    add_allow_option(starting)
    listing = _add(own, "list", "list the sweeps", "print_sweeps")
    add_json_option(listing)
    showing = _add(own, "show", "watch a sweep: trials, rungs, curves, coordinates, importance", "show")
    showing.add_argument("name", metavar="SWEEP", nargs="?", help="otherwise the list of all")
    results = _add(own, "results", "show the trials of a sweep, the best first", "print_results")
    results.add_argument("name", metavar="SWEEP")
    results.add_argument("--csv", action="store_true", dest="as_csv", help="as CSV, with the metric at each rung")
    add_json_option(results)
    importing = _add(own, "import", "make a sweep.toml of a sweep of wandb or Axolotl (YAML)", "import_file")
    importing.add_argument("file", metavar="FILE", type=Path)
    importing.add_argument("-o", "--out", metavar="OUT", type=Path, help="write it there instead of printing it")
    how = "write all trials as a study into this SQLite file"
    results.add_argument("--export-optuna", metavar="FILE", type=Path, dest="optuna_file", help=how)
    page = _add(own, "report", "write a page (HTML) of a sweep: best, curves, rungs, importance, trials", "write_page")
    page.add_argument("name", metavar="SWEEP")
    page.add_argument("-o", "--out", metavar="OUT", type=Path, help="otherwise SWEEP.html in this folder")
    best = _add(own, "best", "print the profile of the best trial, with where its values come from", "print_best")
    best.add_argument("name", metavar="SWEEP")
    best.add_argument("-o", "--out", metavar="OUT", type=Path, help="write it there instead")
    stopping = _add(own, "stop", "end a search now; trials that are running are parked", "stop")
    stopping.add_argument("name", metavar="SWEEP")
    _add(own, "pause", "ask and promote no more trials; those on their way go on to their rung", "pause").add_argument(
        "name", metavar="SWEEP"
    )
    _add(own, "continue", "let a paused or stopped sweep go on", "go_on").add_argument("name", metavar="SWEEP")
    sweep.commands = own.choices


def _add(verbs: Verbs, verb: str, help_text: str, function: str) -> Parser:
    return add_command(verbs, verb, help_text, f"many.sweep_command:{function}")
