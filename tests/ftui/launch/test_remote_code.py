"""Code that comes with a model is run only for whom said so on the command line; a run then continues it."""

from pathlib import Path
from secrets import token_hex
from typing import Any

import pytest

from ftui.cli import run as headless
from ftui.cli.main import main
from ftui.cli.run import Wishes
from ftui.errors import ProfileError
from ftui.launch import open_run as opening
from ftui.launch.fork import ForkOrigin, fork
from ftui.launch.open_run import create, open_run
from ftui.profile.layers import ResolvedProfile, resolve
from ftui.profile.serialize import to_toml
from ftui.runs.run_folder import Run, runs_root
from ftui.tui.state.launch_plan import LaunchOptions, carry_out, plan_launch
from tests.support.shelf import folder_of
from tests.support.stand_in import answer_with

COMMIT, OTHER = "0123456789abcdef" * 2 + "01234567", "f" * 40
TEXT = f"""
[run]
stage = "sft"
[model]
name_or_path = "hub/model"
revision = "{COMMIT}"
trust_remote_code = true
[data]
train = "rows.jsonl"
"""


@pytest.fixture
def path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(opening, "launch", lambda run, lock, cards: None)
    path = tmp_path / "p.toml"
    path.write_text(TEXT)
    path.with_name("rows.jsonl").touch()
    return path


@pytest.mark.parametrize("revision", ["main", COMMIT[:12], "none"])
def test_a_hub_model_needs_the_full_commit(path: Path, revision: str) -> None:
    with pytest.raises(ProfileError, match="full commit"):
        resolve(path, overrides=[f"model.revision={revision}"])


def test_a_local_folder_needs_no_commit(path: Path, tmp_path: Path) -> None:
    resolved = resolve(path, overrides=[f"model.name_or_path={tmp_path}", "model.revision=none"])
    assert resolved.profile.model.trust_remote_code


def test_a_start_needs_the_allowance_and_a_resume_keeps_it(path: Path) -> None:
    resolved, folder = resolve(path), runs_root() / "mine"
    with pytest.raises(ProfileError) as refusal:
        open_run(folder, resolved)
    assert "--allow remote-code" in refusal.value.hint and refusal.value.exit_code == 30
    assert not folder.exists()
    opened = open_run(folder, resolved, allow=["remote-code"])
    assert opened.decision == "start"
    assert resolve(opened.run.profile).profile.model.trust_remote_code
    assert open_run(folder, resolve(opened.run.profile)).decision == "resume"
    with pytest.raises(ProfileError, match="Python code"):
        open_run(folder, resolve(path, overrides=[f"model.revision={OTHER}"]))


def test_trust_that_comes_later_needs_the_allowance(path: Path) -> None:
    folder = runs_root() / "mine"
    open_run(folder, resolve(path, overrides=["model.trust_remote_code=false"]))
    with pytest.raises(ProfileError, match="Python code"):
        open_run(folder, resolve(path))


@pytest.mark.parametrize(("text", "allow", "words"), [
    (TEXT, "remote-code", "Python code"),
    (TEXT.replace("trust_remote_code = true", "") + "[push]\nto = 'command:sh -c \"id\" {folder}'\n", "push-command",
     "would run a command"),
])  # fmt: skip
def test_a_run_from_another_machine_is_asked_about_again(
    path: Path, text: str, allow: str, words: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path.write_text(text)
    with pytest.raises(ProfileError, match=words):
        open_run(runs_root() / "mine", resolve(path))
    run = open_run(runs_root() / "mine", resolve(path), allow=[allow]).run
    stored = resolve(run.profile)
    assert open_run(run.folder, stored).decision == "resume"
    child = forked(run, stored)
    assert open_run(child.folder, resolve(child.profile)).decision == "resume"
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "elsewhere"))
    for go_on in (lambda **more: forked(run, stored, **more), lambda **more: open_run(run.folder, stored, **more)):
        with pytest.raises(ProfileError, match=f"{words}.*, which nobody has allowed for this run on this machine"):
            go_on()
        go_on(allow=[allow])
    assert open_run(run.folder, stored).decision == "resume"


def forked(parent: Run, resolved: ResolvedProfile, **more: Any) -> Run:
    origin = ForkOrigin(parent, parent.read_facts(), folder_of(parent, 4, target=parent.folder / token_hex(4)))
    return fork(origin, resolved, None, may_differ=True, **more)[0]


def test_a_child_run_goes_on_with_the_code_of_its_parent_and_no_other(path: Path) -> None:
    parent = Run(runs_root() / "mine")
    create(parent, resolve(path))
    with pytest.raises(ProfileError, match="Python code"):
        forked(parent, resolve(path, overrides=[f"model.revision={OTHER}"]))


def test_the_command_line_hands_it_on(
    path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    calls: list[Any] = []

    def note(text: str, wishes: Wishes) -> int:
        calls.append(wishes)
        return 0

    monkeypatch.setattr(headless, "run_headless", note)
    assert main(["--run", str(path), "--allow", "remote-code"]) == 0
    assert calls == [Wishes(overrides=[], allow=("remote-code",))]
    assert main(["--run", str(path), "--allow", "everything"]) == 2
    assert main(["--allow", "remote-code"]) == 2, "alone it means nothing"
    assert main(["--run", str(path), "--allow", "answers_cut_off"]) == 2
    assert "--set 'data.allow=[" in capsys.readouterr().err, "findings of the rows are allowed elsewhere"


def test_a_dry_run_runs_no_code_either(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    answer_with(monkeypatch, {"answer": {}})
    assert main(["--run", str(path), "--dry-run"]) == 30
    assert main(["--run", str(path), "--dry-run", "--allow", "remote-code"]) == 0


def test_the_screens_refuse_before_they_count_and_say_how(path: Path) -> None:
    with pytest.raises(ProfileError) as refusal:
        plan_launch(LaunchOptions(profile=path))
    assert "ftui --run P --allow remote-code" in refusal.value.hint
    run = open_run(runs_root() / "mine", resolve(path), allow=["remote-code"]).run
    run.profile.write_text(to_toml(opening.with_run_name(resolve(path).profile, "mine")))
    prospect = plan_launch(LaunchOptions(run=run))
    assert prospect.act == "resume"
    assert carry_out(LaunchOptions(run=run), prospect) == run
