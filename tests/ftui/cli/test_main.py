import inspect
import os
import subprocess
import sys
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest

from ftui import __version__
from ftui.cli import control, dry_run, run
from ftui.cli.arguments import GROUPS, parser
from ftui.cli.main import main
from ftui.cli.run import Wishes
from ftui.runs import send_request
from ftui.runs.run_folder import Run, runs_root
from ftui.runs.verbs import CHECKPOINT_VERBS, RUN_VERBS

HEAVY = ("pydantic", "psutil", "torch", "textual", "tomlkit", "msgspec")


def test_the_version_loads_nothing_heavy() -> None:
    code = (
        "import sys; from ftui.cli.main import main\n"
        "try: main(['--version'])\n"
        f"finally: print([m for m in {HEAVY!r} if m in sys.modules])"
    )
    output = subprocess.run([sys.executable, "-P", "-c", code], capture_output=True, text=True, check=True).stdout
    assert output == f"ftui {__version__}\n[]\n"


def test_a_typed_command_is_set_up_without_most_others() -> None:
    every = list(parser().commands)
    assert [verb for verbs in GROUPS.values() for verb in verbs] == every
    for verb in every:
        assert verb in (known := parser(verb).commands) and len(known) < len(every) / 2
    assert list(parser("walk").commands) == every


def test_the_start_page(make_run: Any, capsys: pytest.CaptureFixture[str]) -> None:
    assert main([]) == 0
    output = capsys.readouterr().out
    assert "ftui run quickstart" in output
    assert "tokens/s" not in output
    make_run("mine")
    assert main([]) == 0
    assert "mine" in capsys.readouterr().out


@pytest.mark.parametrize("arguments", [["--nonsense"], ["status"], ["walk"], ["--run"]])
def test_a_wrong_command_line_is_explained(arguments: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert main(arguments) == 2
    error = capsys.readouterr().err
    assert error.startswith("error: ") and "hint: ftui" in error


@pytest.mark.parametrize(
    ("arguments", "hint"),
    [
        (["stauts", "mine"], "Did you mean status?"),
        (["stat", "mine"], "Did you mean status"),
        (["remve"], "Did you mean remove"),
        (["mine.toml"], "`ftui run mine.toml` trains it."),
        (["zebra"], "ftui --help lists them."),
        (["status", "min"], "Did you mean mine or mine-2?"),
        (["log", "mien"], "Did you mean mine"),
        (["remove", "MINE"], "Did you mean mine?"),
        (["attach", "ine-2"], "Did you mean mine-2"),
        (["run", "mien"], "Did you mean mine"),
        (["run", "quikstart"], "Did you mean quickstart?"),
        (["unarchive", "olde"], "Did you mean older?"),
    ],
)
def test_a_misspelt_command_or_run_gets_what_is_like_it(
    arguments: list[str], hint: str, make_run: Any, capsys: pytest.CaptureFixture[str]
) -> None:
    for name in ("mine", "mine-2", "older"):
        make_run(name)
    Run(runs_root() / "older").archived.touch()
    assert main(arguments) in (2, 30) and hint in capsys.readouterr().err


@pytest.mark.parametrize(
    "arguments",
    [
        ["--again"],
        ["--dry-run"],
        ["--name", "x"],
        ["--set", "a.b=1", "runs"],
        ["--run", "x", "runs"],
        ["run", "x", "y"],
        ["resume", "x", "--tier", "l4"],
        ["resume", "x", "--again"],
        ["status", "Nobody"],
    ],
)
def test_a_senseless_command_line_is_explained(arguments: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert main(arguments) == 2
    assert capsys.readouterr().err.startswith("error: ")


def test_an_expected_failure_is_two_lines_and_its_code(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--run", "quikstart\x1b"]) == 30
    error = capsys.readouterr().err
    assert error.startswith("error: There is no profile")
    assert "hint: " in error
    assert "\x1b" not in error and "Traceback" not in error


def test_options_reach_the_command(monkeypatch: pytest.MonkeyPatch) -> None:
    calls: list[Any] = []

    def note(*arguments: Any) -> int:
        calls.append(arguments)
        return 7

    monkeypatch.setattr(run, "run_headless", note)
    options = ["--name", "n", "--set", "a.b=1", "--set", "c.d=2", "--again", "--detach"]
    for spelling in (["--run", "p", *options], ["run", "p", *options], [*options, "--run", "p"], [*options, "--run=p"]):
        assert main(spelling) == 7
        assert calls.pop() == ("p", Wishes(name="n", overrides=["a.b=1", "c.d=2"], again=True, detach=True))
    monkeypatch.setattr(run, "resume_headless", note)
    assert main(["resume", "r", "--from", "checkpoint-4", "--fork", "--set", "a.b=1"]) == 7
    assert calls.pop() == ("r", "checkpoint-4", Wishes(overrides=["a.b=1"], fork=True))


COMMANDS = [
    "", "run p", "resume r", "runs", "attach", "status r", "log r", "set r a=1", "sample r", "checkpoints r",
    "profiles", "estimate p", "profile p", "preview p", "split f --eval 10%", "import f", "cache",
    "keep r", "then-stop r", "notify p", "rollouts r", "make-task", "make-task sums",
    "chat r", "ask r --prompts f", "merge r", "export r --gguf f16", "push r",
    "queue", "queue list", "queue add p", "queue move r 1", "queue remove r s", "queue pause", "queue continue",
    "cluster slurm p", "compare r s", "report r --svg", "serve", "track r --to wandb",
    "blame r",
    "sweep", "sweep start f", "sweep list", "sweep results s", "sweep best s", "sweep import f",
    "sweep pause s", "sweep stop s", "sweep continue s",
    "remove r", "archive r", "unarchive r", "rename r s",
    *(f"{verb} r" for verb in RUN_VERBS), *(f"{verb} r 1" for verb in CHECKPOINT_VERBS),
]  # fmt: skip


@pytest.mark.parametrize("command", COMMANDS)
def test_the_options_of_a_command_are_the_parameters_of_its_handler(command: str) -> None:
    options = vars(parser().parse_args(command.split()))
    module, _, name = options.pop("handler").partition(":")
    parameters = inspect.signature(getattr(import_module(f"ftui.cli.{module}"), name)).parameters
    optional = {name for name, parameter in parameters.items() if parameter.default is not inspect.Parameter.empty}
    shared = parameters["options"].annotation.__annotations__ if "options" in parameters else {}
    assert options.keys() - {"verb"} <= parameters.keys() | shared.keys(), "every option has an effect"
    assert parameters.keys() - optional - {"options"} <= options.keys(), "every parameter is given"


def test_every_command_has_its_handler_looked_at() -> None:
    verbs = next(action.choices for action in parser()._actions if action.dest == "verb")
    assert verbs is not None and set(verbs) == {command.split()[0] for command in COMMANDS if command}


def test_every_verb_sends_its_request(monkeypatch: pytest.MonkeyPatch) -> None:
    calls: list[Any] = []

    def order(verb: str, name: str, prompts: Any = None) -> int:
        calls.append(("order", verb, name, *([] if prompts is None else [prompts])))
        return 0

    def change(name: str, assignments: Any) -> int:
        calls.append(("change", name, assignments))
        return 0

    def on_checkpoint(verb: str, name: str, checkpoint: str) -> int:
        calls.append(("on_checkpoint", verb, name, checkpoint))
        return 0

    for stand_in in (order, change, on_checkpoint):
        monkeypatch.setattr(control, stand_in.__name__, stand_in)
    assert set(RUN_VERBS) == set(send_request.REQUESTS)
    assert set(CHECKPOINT_VERBS) == set(send_request.CHECKPOINT_REQUESTS)
    for verb in send_request.REQUESTS:
        assert main([verb, "r"]) == 0
        assert calls.pop() == ("order", verb, "r", *([[]] if verb == "sample" else []))
    main(["sample", "r", "What?", "Why?"])
    assert calls.pop() == ("order", "sample", "r", ["What?", "Why?"])
    main(["set", "r", "max_steps=10", "save_steps=2"])
    assert calls.pop() == ("change", "r", ["max_steps=10", "save_steps=2"])
    for verb in send_request.CHECKPOINT_REQUESTS:
        main([verb, "r", "120"])
        assert calls.pop() == ("on_checkpoint", verb, "r", "120")


def test_a_dry_run_reaches_the_preview(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    path = tmp_path / "p.toml"
    path.write_text('[run]\nstage = "sft"\n[model]\nname_or_path = "x/y"\n[data]\ntrain = "rows.jsonl"\n')
    path.with_name("rows.jsonl").touch()
    monkeypatch.setattr(dry_run, "preview", lambda resolved, allow: resolved.profile.train.seed)
    assert main(["--run", str(path), "--dry-run", "--set", "train.seed=9"]) == 9
    assert not (tmp_path / "runs").exists()


def test_what_is_made_is_private(monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[int] = []

    def look(*_: Any, **__: Any) -> int:
        seen.append(os.umask(0o077))
        return 0

    monkeypatch.setattr(run, "run_headless", look)
    main(["--run", "p"])
    assert seen == [0o077]


def test_ctrl_c_before_anything_started_is_quiet(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def interrupt(*_: Any, **__: Any) -> int:
        raise KeyboardInterrupt

    monkeypatch.setattr(run, "run_headless", interrupt)
    assert main(["--run", "p"]) == 130
    assert capsys.readouterr() == ("", "")


def test_a_reader_that_leaves_early_is_no_error() -> None:
    code = "import sys; from ftui.cli.main import main; raise SystemExit(main(['profiles']))"
    process = subprocess.Popen(
        [sys.executable, "-P", "-c", code],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        env=os.environ | {"PYTHONUNBUFFERED": "1"},
    )
    assert process.stdout is not None and process.stderr is not None
    process.stdout.close()
    assert process.wait(60) == 141
    assert process.stderr.read() == b""
    process.stderr.close()


def test_a_terminal_without_unicode_gets_escapes(make_run: Any) -> None:
    make_run("a" * 64)
    output = subprocess.run(
        [sys.executable, "-P", "-m", "ftui", "runs"],
        capture_output=True,
        check=True,
        env=os.environ | {"PYTHONIOENCODING": "ascii"},
    ).stdout
    assert b"\\u2026" in output
