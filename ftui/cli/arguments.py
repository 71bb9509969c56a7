"""What can be typed: every command and option of `ftui`, with its help and the function that handles it.

A handler is `module:function` of ftui.cli. The options of a command are the parameters of its function, which is
imported only when it is called: `ftui --version` must not pay for pydantic (0.1 s).
"""

import argparse
from collections.abc import Callable, Collection
from pathlib import Path
from typing import Any, NoReturn, TypeAlias

from ftui import __version__
from ftui.errors import UsageError
from ftui.profile.consent import CONSENTS
from ftui.runs.verbs import CHECKPOINT_VERBS, RUN_VERBS
from ftui.text import did_you_mean


class Parser(argparse.ArgumentParser):
    """Reports a wrong command line as ftui reports any error, with exit code 2."""

    commands: Collection[str] = ()
    """What the first word may be, where it is a command."""

    def parse_known_args(self, args: Any = None, namespace: Any = None) -> tuple[Any, list[str]]:
        """Parse, but for a first word that is no command."""
        first = args[0] if args and self.commands else "-"
        if first[:1] != "-" and first not in self.commands:
            is_profile = first.endswith(".toml")
            meant = f"`ftui run {first}` trains it. " if is_profile else did_you_mean(first, self.commands)
            raise UsageError(f"There is no command {first!r}.", hint=f"{meant}ftui --help lists them.")
        return super().parse_known_args(args, namespace)

    def error(self, message: str) -> NoReturn:
        """Raise what argparse would print."""
        raise UsageError(message[0].upper() + message[1:] + ".", hint=f"{self.prog} --help lists what goes with it.")


Verbs: TypeAlias = "argparse._SubParsersAction[Parser]"


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


def _add(verbs: Verbs, verb: str, help_text: str, handler: str, *, on_run: bool = False) -> Parser:
    added = verbs.add_parser(verb, help=help_text, description=help_text[0].upper() + help_text[1:] + ".")
    added.set_defaults(handler=handler)
    if on_run:
        added.add_argument("name", metavar="RUN")
    return added


def _add_on_profile(verbs: Verbs, verb: str, help_text: str, handler: str) -> Parser:
    """A command that looks at a profile."""
    added = _add(verbs, verb, help_text, handler)
    added.add_argument("profile", metavar="PROFILE", help="a file, or the name of one that comes with ftui")
    _add_value_options(added)
    _add_allow_option(added)
    return added


def _add_json_option(to: Parser, help_text: str = "as JSON") -> None:
    to.add_argument("--json", action="store_true", dest="as_json", help=help_text)


def _add_run(verbs: Verbs) -> None:
    run = _add(verbs, "run", "start, attach to or resume the run of a profile (a file or a name)", "run:run_profile")
    run.add_argument("profile", metavar="P", help="a file, the name of a profile that comes with ftui, or of a run")
    run.add_argument("--again", action="store_true", help="if the run has ended, start NAME-2, NAME-3 ...")
    run.add_argument("--dry-run", action="store_true", help="show every value and count the rows; start nothing")
    run.add_argument("--probe", action="store_true", help="take steps with the longest rows first: does it fit?")
    _add_opening_options(run)
    resume = _add(
        verbs, "resume", "continue a run that was parked, stopped, interrupted or paused", "run:resume_run", on_run=True
    )
    resume.add_argument("--from", metavar="CHECKPOINT", dest="checkpoint", help="from this one, in a run of its own")
    _add_opening_options(resume, tier=False)


def _add_looking(verbs: Verbs) -> None:
    """Commands that only look at runs."""
    runs = _add(verbs, "runs", "list the runs", "runs:print_runs")
    runs.add_argument("--archived", action="store_true", help="list those that were archived instead")
    _add_json_option(runs)
    attach = _add(verbs, "attach", "watch and control a run", "attach:attach")
    attach.add_argument("name", metavar="RUN", nargs="?", help="otherwise the newest that is running")
    attach.add_argument("--plain", action="store_true", help="the same facts as lines, for logs and screen readers")
    status = _add(verbs, "status", "show all about one run", "runs:print_status", on_run=True)
    _add_json_option(status)
    text = "print the course of a run: steps, evaluations, checkpoints, requests, ends"
    log = _add(verbs, "log", text, "log:print_log", on_run=True)
    log.add_argument("-f", "--follow", action="store_true", help="follow it while the run is running")
    log.add_argument(
        "-n", metavar="N", dest="num_lines", type=_number_of_lines, default=100, help="the last N lines (100), or all"
    )
    log.add_argument("--output", action="store_true", help="print what the engine printed (engine.log) instead")


def _add_control(verbs: Verbs) -> None:
    """Commands that ask something of a run, or change its checkpoints."""
    for verb, help_text in RUN_VERBS.items():
        if verb == "evaluate":
            _add_evaluate(verbs, help_text)
        else:
            _add(verbs, verb, help_text, "control:order", on_run=True)
    verbs.choices["sample"].add_argument("prompts", metavar="PROMPT", nargs="*", help="otherwise the profile's")
    change = _add(verbs, "set", "change a running run from its next step on", "control:change", on_run=True)
    change.add_argument(
        "assignments",
        metavar="KEY=VALUE",
        nargs="+",
        help="learning_rate_factor, max_steps, decay=linear ...",
    )
    checkpoints = _add(
        verbs, "checkpoints", "list the checkpoints of a run, or read them back", "checkpoints:checkpoints", on_run=True
    )
    _add_json_option(checkpoints)
    checkpoints.add_argument(
        "--verify", metavar="CHECKPOINT", nargs="?", const="", help="hash every byte, of all of them or of this one"
    )
    for verb, help_text in CHECKPOINT_VERBS.items():
        added = _add(verbs, verb, help_text, "control:on_checkpoint", on_run=True)
        added.add_argument("checkpoint", metavar="CHECKPOINT", help="checkpoint-120, or 120")


def _add_managing(verbs: Verbs) -> None:
    """Commands that change which runs there are."""
    remove = _add(verbs, "remove", "delete runs for good; says what is freed, and asks first", "control:remove_runs")
    remove.add_argument("--yes", action="store_true", help="do not ask (for scripts)")
    texts = {
        "archive": "leave runs out of the lists; their files stay as they are",
        "unarchive": "put archived runs back into the lists",
    }
    for verb, help_text in texts.items():
        _add(verbs, verb, help_text, f"control:{verb}_runs")
    for verb in ("remove", *texts):
        verbs.choices[verb].add_argument("names", metavar="RUN", nargs="+")
    rename = _add(verbs, "rename", "give a run another name", "control:rename_run", on_run=True)
    rename.add_argument("new_name", metavar="NEW_NAME")


def _add_profiles(verbs: Verbs) -> None:
    shipped = _add(verbs, "profiles", "list the profiles that come with ftui, or print one", "runs:print_profiles")
    shipped.add_argument("name", metavar="NAME", nargs="?", help="print this one, ready to be saved as a file")
    text = "what a profile will take: memory, time, disk and money, before you pay for it"
    estimate = _add_on_profile(verbs, "estimate", text, "estimate:print_estimate")
    estimate.add_argument("--card", metavar="C", help="on that card; otherwise the tier's, or what is in this machine")
    estimate.add_argument("--quick", action="store_true", help="in closed form: reads no rows, simulates nothing")
    estimate.add_argument("--fit", action="store_true", help="show what would fit, also where the profile does")
    estimate.add_argument(
        "--probe", action="store_true", help="take two real steps with the longest rows, and remember"
    )
    ways = ["ddp", "zero1", "zero2", "zero3", "fsdp"]
    how = "if several processes shared the model so (ftui itself does ddp; set hardware.num_processes)"
    estimate.add_argument("--parallel", choices=ways, default="ddp", help=how)
    _add_json_option(estimate)


def _add_step_profile(verbs: Verbs) -> None:
    text = "where the time of a training step goes here, by kind of work, and what could be gained"
    step = _add_on_profile(verbs, "profile", text, "estimate:print_step_profile")
    step.add_argument("--steps", metavar="N", dest="num_steps", type=int, default=3, help="a mean of so many steps (3)")
    step.add_argument("--trace", metavar="FILE", type=Path, help="write a chrome trace too (.json or .json.gz)")
    _add_json_option(step)


def _add_preview(verbs: Verbs) -> None:
    text = "the rows of a profile as the model will see them, and what is wrong with them"
    preview = _add_on_profile(verbs, "preview", text, "preview:print_preview")
    preview.add_argument("--rows", metavar="N", dest="num_rows", type=int, default=3, help="show so many rows (3)")
    jump = "longest, shortest, most_truncated, least_trained, random, a row's number (from 1), row/part or FILE:LINE"
    preview.add_argument("--jump", metavar="WHICH", help=f"show not the first rows, but the {jump}")
    preview.add_argument("--report", action="store_true", dest="only_report", help="show no rows")
    _add_json_option(preview)


def _add_split(verbs: Verbs) -> None:
    text = "split a file into rows to train on and rows to evaluate on; similar rows stay on one side"
    split = _add(verbs, "split", text, "split:print_split")
    split.add_argument("file", metavar="FILE", type=Path, help="rows of any kind that ftui reads")
    split.add_argument("--eval", metavar="SHARE", required=True, dest="how_many", help="10%%, or a number of rows")
    split.add_argument("--seed", metavar="N", type=int, default=0, help="another choice of rows (0)")
    split.add_argument("--out", metavar="DIR", type=Path, help="where to write; otherwise beside FILE")
    split.add_argument("--encoding", metavar="E", help="of a text file that is not UTF-8, as in data.encoding")
    split.add_argument("--force", action="store_true", help="overwrite files of an earlier split")
    _add_json_option(split)


def _add_import(verbs: Verbs) -> None:
    text = "make a profile of a file of LLaMA-Factory, Axolotl, TRL, torchtune, LitGPT, DeepSpeed or a guide"
    importing = _add(verbs, "import", text, "import_profile:import_profile")
    importing.add_argument("file", metavar="FILE", type=Path, help="YAML, JSON, or a shell script with its command")
    importing.add_argument("-o", "--out", metavar="OUT", type=Path, help="where to write it; otherwise it is printed")
    _add_json_option(importing, "report what was carried and what was not as JSON")


def _add_cache(verbs: Verbs) -> None:
    cache = _add(verbs, "cache", "list the tokenised rows on this disk, or delete some", "cache:cache")
    cache.add_argument("--prune", action="store_true", help="delete what was not used for 30 days and is not in use")
    cache.add_argument("--older-than", metavar="TIME", help="with --prune: not used for 12h, 7d or 8w")
    cache.add_argument("--all", action="store_true", dest="everything", help="with --prune: all that is not in use")


def _add_opening_options(to: Parser, *, tier: bool = True) -> None:
    to.add_argument("--name", metavar="N", dest="run_name", help="name of the run (otherwise the profile's)")
    _add_value_options(to, tier=tier)
    to.add_argument("--fork", action="store_true", help="continue from the run's newest checkpoint in a run of its own")
    to.add_argument("--detach", action="store_true", help="start the run and leave it alone")
    _add_allow_option(to)


def _number_of_lines(text: str) -> int | None:
    if text == "all":
        return None
    if not text.isascii() or not text.isdigit() or int(text) == 0:
        raise argparse.ArgumentTypeError(f"a number from 1, or all, not {text!r}")
    return int(text)


def _allowed(text: str) -> str:
    """What may be allowed on the command line; what the rows may have is a matter of the profile."""
    if text not in CONSENTS:
        raise argparse.ArgumentTypeError(
            f"it is {' or '.join(CONSENTS)}, not {text!r}. What `ftui preview` finds is allowed in the profile, or by: "
            f"--set 'data.allow=[\"NAME\"]'"
        )
    return text


def _add_allow_option(to: Parser) -> None:
    to.add_argument(
        "--allow",
        metavar="WHAT",
        action="append",
        default=[],
        type=_allowed,
        help="; ".join(f"{name}: {text}" for name, text in CONSENTS.items()),
    )


def _add_value_options(to: Parser, *, tier: bool = True) -> None:
    """What is put below and above the values of a profile."""
    if tier:
        help_text = "what the profile leaves open is set to suit that card: rtx4090 ..., auto = this one"
        to.add_argument("--tier", metavar="T", help=help_text)
    to.add_argument(
        "--set",
        metavar="section.key=value",
        action="append",
        default=[],
        dest="overrides",
        help="change one value of the profile; may be given several times",
    )


def _add_answering(verbs: Verbs) -> None:
    """Commands that ask what a run has trained."""
    chat = _add(verbs, "chat", "talk with what a run has trained", "trained.chat:chat")
    chat.add_argument("--system", metavar="TEXT", help="a system prompt")
    ask = _add(verbs, "ask", "answers of what a run has trained to the prompts of a file", "trained.ask:ask")
    ask.add_argument(
        "--prompts", metavar="FILE", type=Path, required=True,
        help='JSON lines {"prompt": "...", "system": "..."}, or a prompt a line',
    )  # fmt: skip
    ask.add_argument("--out", metavar="FILE", type=Path, help="add each answer to this file of JSON lines")
    ask.add_argument("--screen", action="store_true", help="show them on a screen, two sides beside each other")
    for command in (chat, ask):
        command.add_argument("name", metavar="RUN[@CHECKPOINT]", help="otherwise its final/, or its newest checkpoint")
        command.add_argument("--against", metavar="WHAT", help="ask another side too: base, final or checkpoint-N")
        command.add_argument("--device", choices=("cpu", "cuda", "mps"), help="otherwise that of the profile")
        how = "who answers while the run trains: its engine (training stands still), or another process"
        command.add_argument("--through", choices=("engine", "process"), help=how)
        command.add_argument(
            "--most-seconds", metavar="S", type=float, default=60.0,
            help="the longest that training may stand still for an answer of its engine (60)",
        )  # fmt: skip
        command.add_argument(
            "--max-new-tokens", metavar="N", type=int, default=512, help="the most tokens of an answer (512)"
        )
        for option, (kind, default, text) in SAMPLING.items():
            help_text = f"{text} ({default:g})"
            command.add_argument(option, metavar=option[2].upper(), type=kind, default=default, help=help_text)
        _add_allow_option(command)


def _add_merge(verbs: Verbs) -> None:
    merge = _add(
        verbs, "merge", "make a model of its own of a run's adapter, with a certificate", "trained.merge:merge"
    )
    merge.add_argument("name", metavar="RUN[@CHECKPOINT]", help="otherwise its final/, or its newest checkpoint")
    merge.add_argument("--dtype", choices=("bf16", "fp16", "fp32"), help="otherwise that of the base's files")
    text = "a quantised base as the run computed with it (the default), or as its files are: measured and told"
    merge.add_argument("--into", choices=("dequantised", "original"), help=text)
    merge.add_argument("--out", metavar="FOLDER", type=Path, help="otherwise a folder in exports/ of the run")
    merge.add_argument("--device", choices=("cpu", "cuda"), help=WORK_DEVICE)
    _add_allow_option(merge)


def _add_push(verbs: Verbs) -> None:
    push = _add(verbs, "push", "send a result of a run to the hub, a folder or through a command", "trained.push:push")
    push.add_argument("name", metavar="RUN[@WHAT]", help="final (otherwise), checkpoint-N, or the name of an export")
    ways = "hub:OWNER/NAME, a folder, or 'command:rclone copy {folder} remote:x'; otherwise the profile's push.to"
    push.add_argument("--to", metavar="WHERE", help=ways)
    push.add_argument("--public", action="store_true", help="a new repository on the hub is private otherwise")
    push.add_argument("--overwrite", action="store_true", help="replace files of these names that others put there")
    _add_allow_option(push)


def _add_evaluate(verbs: Verbs, of_running: str) -> None:
    text = f"{of_running}; with --data measure what a run has trained, or any model: losses and answers"
    evaluate = _add(verbs, "evaluate", text, "trained.evaluate:evaluate")
    evaluate.add_argument(
        "name", metavar="RUN[@CHECKPOINT]", help="its final/, else its newest checkpoint; or a folder with a model"
    )
    evaluate.add_argument("--data", metavar="FILE", type=Path, help="rows, which are read as the profile's own are")
    evaluate.add_argument("--against", metavar="WHAT", help="compare with base, final or checkpoint-N, row by row")
    evaluate.add_argument(
        "--forgetting", metavar="FILE", nargs="?", const="",
        help="loss and KL to the base on these rows too; without FILE on the run's own evaluation rows",
    )  # fmt: skip
    evaluate.add_argument(
        "--measures", metavar="FILE.py", type=Path,
        help="measures of your own: functions (answer, row) -> float",
    )  # fmt: skip
    evaluate.add_argument("--lm-eval", metavar="JSON", type=Path, help="show the results of lm-eval beside")
    evaluate.add_argument("--out", metavar="DIR", type=Path, help="where results go; otherwise RUN/evaluations/")
    evaluate.add_argument("--rows", metavar="N", dest="num_rows", type=int, help="only the first N")
    evaluate.add_argument(
        "--max-new-tokens", metavar="N", type=int, help="the most tokens of an answer (256); 0: no answers"
    )
    evaluate.add_argument("--device", choices=("cpu", "cuda", "mps"), help=WORK_DEVICE)
    _add_value_options(evaluate, tier=False)
    _add_allow_option(evaluate)
    _add_json_option(evaluate)


def _add_export(verbs: Verbs) -> None:
    export = _add(verbs, "export", "write what a run has trained as a GGUF file", "trained.export:export")
    export.add_argument(
        "name", metavar="RUN[@CHECKPOINT]|MODEL_FOLDER", help="a run (otherwise its final/), or a folder with a model"
    )
    export.add_argument(
        "--gguf", choices=("f16", "bf16", "q8_0"), required=True, help="how its matrices are stored; q8_0 takes half"
    )
    export.add_argument(
        "--adapter", action="store_true", help="the adapter alone, for a GGUF file of its base; else it is merged first"
    )
    export.add_argument("--out", metavar="FOLDER", type=Path, help="otherwise a folder in the exports/ of the run")
    export.add_argument("--device", choices=("cpu", "cuda"), help=f"of the merge; {WORK_DEVICE}")
    _add_allow_option(export)


WORK_DEVICE = "otherwise that of the profile, or the CPU where the GPU has no room or the run is training"

SAMPLING: dict[str, tuple[type, float, str]] = {
    "--temperature": (float, 0.0, "0 takes the likeliest token, more draws"),
    "--top-p": (float, 1.0, "draw from the likeliest tokens of that probability together"),
    "--top-k": (int, 0, "draw from so many of the likeliest tokens, 0 from all"),
    "--min-p": (float, 0.0, "draw from tokens at least that likely, as a share of the likeliest"),
    "--repetition-penalty": (float, 1.0, "above 1, tokens that were used are less likely"),
    "--seed": (int, 0, "another number makes other draws"),
}
"""How answers are drawn, in transformers' words: kind, default, help."""

GROUPS: dict[Callable[[Verbs], None], tuple[str, ...]] = {
    _add_run: ("run", "resume"),
    _add_looking: ("runs", "attach", "status", "log"),
    _add_control: (*RUN_VERBS, "set", "checkpoints", *CHECKPOINT_VERBS),
    _add_managing: ("remove", "archive", "unarchive", "rename"),
    _add_profiles: ("profiles", "estimate"),
    _add_step_profile: ("profile",),
    _add_preview: ("preview",),
    _add_split: ("split",),
    _add_import: ("import",),
    _add_answering: ("chat", "ask"),
    _add_merge: ("merge",),
    _add_push: ("push",),
    _add_export: ("export",),
    _add_cache: ("cache",),
}
"""What adds which commands, in the order of `ftui --help`."""
