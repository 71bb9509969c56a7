"""What can be typed: every command and option of `ftui`, with its help."""

import argparse
from pathlib import Path

from ftui import __version__
from ftui.launch import REMOTE_CODE

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


def parser() -> argparse.ArgumentParser:
    top = argparse.ArgumentParser(prog="ftui", description="Fine-tune language models; runs survive the terminal.")
    top.add_argument("--version", action="version", version=f"ftui {__version__}")
    top.add_argument("--run", metavar="P", help="start, attach to or resume the run of a profile (a file or a name)")
    top.add_argument("--again", action="store_true", help="if the run is over, start NAME-2, NAME-3 ...")
    top.add_argument("--dry-run", action="store_true", help="show every value and count the rows; start nothing")
    top.add_argument("--probe", action="store_true", help="take steps with the longest rows first: does it fit?")
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
    _profile_verbs(verbs)
    _cache_verb(verbs)
    return top


def _cache_verb(verbs: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    text = "list the tokenised rows that are kept on this disk, or delete some"
    cache = verbs.add_parser("cache", help=text, description=text[0].upper() + text[1:] + ".")
    cache.add_argument("--prune", action="store_true", help="delete what was not used for 30 days and is not in use")
    cache.add_argument("--older-than", metavar="TIME", help="with --prune: not used for 12h, 7d or 8w")
    cache.add_argument("--all", action="store_true", dest="everything", help="with --prune: all that is not in use")


def _profile_verbs(verbs: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    """Commands about profiles, which need no run."""
    shipped = verbs.add_parser("profiles", help="list the profiles that come with ftui, or print one")
    shipped.add_argument("name", metavar="NAME", nargs="?", help="print this one, ready to be saved as a file")
    text = "what a profile will take: memory, time, disk and money, before it is paid for"
    estimate = verbs.add_parser("estimate", help=text, description=text[0].upper() + text[1:] + ".")
    estimate.add_argument("profile", metavar="PROFILE", help="a file, or the name of a shipped one")
    _value_options(estimate)
    _allow_option(estimate)
    estimate.add_argument("--card", metavar="C", help="on that card; otherwise the tier's, or what is in this machine")
    estimate.add_argument("--quick", action="store_true", help="in closed form: reads no rows, simulates nothing")
    estimate.add_argument("--fit", action="store_true", help="say what would fit, also where the profile does")
    estimate.add_argument(
        "--probe", action="store_true", help="take two real steps with the longest rows, and remember"
    )
    ways = ["ddp", "zero1", "zero2", "zero3", "fsdp"]
    how = "if several processes shared the model so (ftui itself does ddp; set hardware.num_processes)"
    estimate.add_argument("--parallel", choices=ways, default="ddp", help=how)
    estimate.add_argument("--json", action="store_true", help="as JSON")
    _preview_verb(verbs)
    _split_verb(verbs)
    text = "make a profile of a file of LLaMA-Factory, Axolotl, TRL, DeepSpeed, torchtune or a guide"
    brought = verbs.add_parser("import", help=text, description=text[0].upper() + text[1:] + ".")
    brought.add_argument("file", metavar="FILE", type=Path, help="YAML, JSON, or a shell script with its command")
    brought.add_argument("-o", "--out", metavar="OUT", type=Path, help="where to write it; otherwise it is printed")
    brought.add_argument("--json", action="store_true", help="tell what was carried and what was not as JSON")


def _preview_verb(verbs: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    text = "the rows of a profile as the model will see them, and what is wrong with them"
    preview = verbs.add_parser("preview", help=text, description=text[0].upper() + text[1:] + ".")
    preview.add_argument("profile", metavar="PROFILE", help="a file, or the name of a shipped one")
    _value_options(preview)
    _allow_option(preview)
    preview.add_argument("--rows", metavar="N", type=int, default=3, help="show so many rows (3)")
    jump = "longest, shortest, most_truncated, least_trained, random, a row's number (from 1), row/part or FILE:LINE"
    preview.add_argument("--jump", metavar="WHICH", help=f"show not the first rows, but the {jump}")
    preview.add_argument("--report", action="store_true", help="show no rows")
    preview.add_argument("--json", action="store_true", help="as JSON")


def _split_verb(verbs: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    text = "make two files of one, to learn and to evaluate on; what is alike stays on one side"
    split = verbs.add_parser("split", help=text, description=text[0].upper() + text[1:] + ".")
    split.add_argument("file", metavar="FILE", type=Path, help="rows of any kind that ftui reads")
    split.add_argument("--eval", metavar="SHARE", required=True, dest="how_many", help="10%%, or a number of rows")
    split.add_argument("--seed", metavar="N", type=int, default=0, help="another choice of rows (0)")
    split.add_argument("--out", metavar="DIR", type=Path, help="where to write; otherwise beside FILE")
    split.add_argument("--encoding", metavar="E", help="of a text file that is not UTF-8, as in data.encoding")
    split.add_argument("--force", action="store_true", help="overwrite files of an earlier split")
    split.add_argument("--json", action="store_true", help="tell what was done as JSON")


def _on_run(
    verbs: "argparse._SubParsersAction[argparse.ArgumentParser]", verb: str, text: str
) -> argparse.ArgumentParser:
    added = verbs.add_parser(verb, help=text, description=text[0].upper() + text[1:] + ".")
    added.add_argument("name", metavar="RUN")
    return added


def _opening_options(to: argparse.ArgumentParser) -> None:
    to.add_argument("--name", metavar="N", dest="run_name", help="name of the run (otherwise the profile's)")
    _value_options(to)
    to.add_argument("--fork", action="store_true", help="go on from the run's newest checkpoint in a run of its own")
    to.add_argument("--detach", action="store_true", help="start the run and leave it alone")
    _allow_option(to)


def _allowed(text: str) -> str:
    """What may be allowed on the command line; what the rows may have is said by the profile."""
    if text != REMOTE_CODE:
        raise argparse.ArgumentTypeError(
            f"it is {REMOTE_CODE}, not {text!r}. What `ftui preview` finds is allowed in the profile, or by: "
            f"--set 'data.allow=[\"NAME\"]'"
        )
    return text


def _allow_option(to: argparse.ArgumentParser) -> None:
    to.add_argument(
        "--allow",
        metavar="WHAT",
        action="append",
        default=[],
        type=_allowed,
        help=f"{REMOTE_CODE}: run the Python code that comes with the model (model.trust_remote_code)",
    )


def _value_options(to: argparse.ArgumentParser) -> None:
    """What is put below and above the values of a profile."""
    to.add_argument(
        "--tier", metavar="T", help="what is not in the profile is as that card wants it: rtx4090 ..., auto = this one"
    )
    to.add_argument(
        "--set",
        metavar="section.key=value",
        action="append",
        default=[],
        dest="overrides",
        help="change one value of the profile; may be given several times",
    )
