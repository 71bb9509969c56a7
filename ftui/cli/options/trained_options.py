"""What can be typed after the commands that ask for or work on what a run has trained."""

from pathlib import Path

from ftui.cli.options.command_parser import (
    Verbs,
    add_allow_option,
    add_command,
    add_json_option,
    add_value_options,
)


def add_answering(verbs: Verbs) -> None:
    """Commands that ask what a run has trained."""
    chat = add_command(verbs, "chat", "talk with what a run has trained", "trained.chat:chat")
    chat.add_argument("--system", metavar="TEXT", help="a system prompt")
    ask = add_command(verbs, "ask", "answers of what a run has trained to the prompts of a file", "trained.ask:ask")
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
        add_allow_option(command)


def add_merge(verbs: Verbs) -> None:
    """`ftui merge`."""
    merge = add_command(
        verbs, "merge", "make a model of its own of a run's adapter, with a certificate", "trained.merge:merge"
    )
    merge.add_argument("name", metavar="RUN[@CHECKPOINT]", help="otherwise its final/, or its newest checkpoint")
    merge.add_argument("--dtype", choices=("bf16", "fp16", "fp32"), help="otherwise that of the base's files")
    text = "a quantised base as the run computed with it (the default), or as its files are: measured and told"
    merge.add_argument("--into", choices=("dequantised", "original"), help=text)
    merge.add_argument("--out", metavar="FOLDER", type=Path, help="otherwise a folder in exports/ of the run")
    merge.add_argument("--device", choices=("cpu", "cuda"), help=WORK_DEVICE)
    add_allow_option(merge)


def add_push(verbs: Verbs) -> None:
    """`ftui push`."""
    push = add_command(
        verbs, "push", "send a result of a run to the hub, a folder or through a command", "trained.push:push"
    )
    push.add_argument("name", metavar="RUN[@WHAT]", help="final (otherwise), checkpoint-N, or the name of an export")
    ways = "hub:OWNER/NAME, a folder, or 'command:rclone copy {folder} remote:x'; otherwise the profile's push.to"
    push.add_argument("--to", metavar="WHERE", help=ways)
    push.add_argument("--public", action="store_true", help="a new repository on the hub is private otherwise")
    push.add_argument("--overwrite", action="store_true", help="replace files of these names that others put there")
    add_allow_option(push)


def add_evaluate(verbs: Verbs, of_running: str) -> None:
    """`ftui evaluate`; `of_running` is what it does to a run in training."""
    text = f"{of_running}; with --data measure what a run has trained, or any model: losses and answers"
    evaluate = add_command(verbs, "evaluate", text, "trained.evaluate:evaluate")
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
    add_value_options(evaluate, tier=False)
    add_allow_option(evaluate)
    add_json_option(evaluate)


def add_export(verbs: Verbs) -> None:
    """`ftui export`."""
    export = add_command(verbs, "export", "write what a run has trained as a GGUF file", "trained.export:export")
    export.add_argument(
        "name", metavar="RUN[@CHECKPOINT]|MODEL_FOLDER", help="a run (otherwise its final/), or a folder with a model"
    )
    export.add_argument(
        "--gguf",
        choices=("f16", "bf16", "q8_0", "q6_k", "q5_k_m", "q4_k_m"),
        required=True,
        help="how its matrices are stored; q8_0 takes half, q4_k_m about a third (by a tool that is told of)",
    )
    export.add_argument(
        "--adapter", action="store_true", help="the adapter alone, for a GGUF file of its base; else it is merged first"
    )
    export.add_argument("--out", metavar="FOLDER", type=Path, help="otherwise a folder in the exports/ of the run")
    export.add_argument("--device", choices=("cpu", "cuda"), help=f"of the merge; {WORK_DEVICE}")
    add_allow_option(export)


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
