"""Pushes into folders and through commands; what a model card says."""

import os
import re
import sys
from pathlib import Path

import pytest
import yaml

from ftui.engine.pushing import to_folder
from ftui.engine.pushing.push_result import push_result
from ftui.errors import FtuiError, PushError, UsageError
from ftui.profile.sections.around.push_target import PushSection, Target, parse_target
from ftui.runs.journal import Tail
from ftui.runs.manifest import fault
from ftui.runs.records.push_records import Pushed, PushFailed
from ftui.runs.reduce import fold
from ftui.runs.run_folder import Run
from ftui.runs.state import RunState
from ftui.system.checked_write import Pieces, write_checked
from ftui.system.files import try_lock
from tests.engine.pushing.conftest import MERGED, WEIGHTS, fill_gguf, fill_merged, publish

FILES = ["README.md", "adapter_config.json", "adapter_model.safetensors", "extra/note.txt"]


def push(run: Run, to: object, what: str | None = None, *, overwrite: bool = False) -> Pushed:
    return push_result(run, what, PushSection(to=str(to), overwrite=overwrite), lambda detail: None)


def files(folder: Path) -> list[str]:
    return sorted(path.relative_to(folder).as_posix() for path in folder.rglob("*") if path.is_file())


def kill_at(monkeypatch: pytest.MonkeyPatch, number: int) -> list[Path]:
    """Be killed in the middle of the n-th file that is copied."""
    copied: list[Path] = []

    def write(path: Path, pieces: Pieces) -> tuple[int, str]:
        copied.append(path)
        if len(copied) == number:
            path.write_bytes(b"half")
            raise KeyboardInterrupt
        return write_checked(path, pieces)

    monkeypatch.setattr(to_folder, "write_checked", write)
    return copied


@pytest.mark.parametrize("what", [None, "final", "checkpoint-4", "4", "exports/small", "small"])
def test_a_folder_gets_every_byte_and_nothing_else(run: Run, tmp_path: Path, what: str | None) -> None:
    run.exports.mkdir()
    if what in ("exports/small", "small"):
        run.final.rename(run.exports / "small")
    pushed = push(run, tmp_path / "volume" / "x", what)
    assert files(tmp_path / "volume") == [f"x/{name}" for name in FILES] and pushed.verified
    assert (tmp_path / "volume/x/adapter_model.safetensors").read_bytes() == WEIGHTS


def test_a_push_cut_short_goes_on(run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing stands under the name before all does, and what was copied is not copied again."""
    copied = kill_at(monkeypatch, 3)
    with pytest.raises(KeyboardInterrupt):
        push(run, tmp_path / "x")
    assert not (tmp_path / "x").exists()
    state = RunState()
    for record in Tail(run.pushes).read():
        state = fold(state, record)
    assert state.pushes[-1].is_pending
    push(run, tmp_path / "x")
    assert files(tmp_path / "x") == FILES and len(copied) == 5 and not list(tmp_path.glob(".partial*"))
    push(run, tmp_path / "x")
    assert len(copied) == 5


def test_foreign_files_in_a_folder_stay(run: Run, tmp_path: Path) -> None:
    (tmp_path / "x").mkdir()
    (tmp_path / "x/theirs.txt").write_text("theirs")
    (tmp_path / "x/README.md").write_text("theirs")
    with pytest.raises(UsageError, match=r"README\.md, theirs\.txt"):
        push(run, tmp_path / "x")
    assert (tmp_path / "x/README.md").read_text() == "theirs"
    push(run, tmp_path / "x", overwrite=True)
    assert files(tmp_path / "x") == sorted([*FILES, "theirs.txt"])
    (tmp_path / "x/adapter_config.json").write_text("edited")
    with pytest.raises(UsageError, match=r"not pushed: adapter_config\.json\."):
        push(run, tmp_path / "x")
    push(run, tmp_path / "x", overwrite=True)
    assert (tmp_path / "x/adapter_config.json").read_text() == '{"r": 4}'


@pytest.mark.parametrize("kind", ["empty", "link"])
def test_a_folder_that_is_there_is_filled_where_it_is(
    run: Run, tmp_path: Path, kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A volume may be mounted there: nothing can be renamed onto it, and what is beside it is another disk."""
    volume = tmp_path / "volume"
    volume.mkdir()
    if kind == "link":
        (tmp_path / "x").symlink_to(volume)
    target = volume if kind == "empty" else tmp_path / "x"
    names, inode = set(os.listdir(tmp_path)), volume.stat().st_ino
    kill_at(monkeypatch, 3)
    with pytest.raises(KeyboardInterrupt):
        push(run, target)
    assert set(os.listdir(tmp_path)) == names
    assert push(run, target).verified and files(volume) == FILES
    assert volume.stat().st_ino == inode and set(os.listdir(tmp_path)) == names


def test_weights_of_an_earlier_push_go(run: Run, tmp_path: Path) -> None:
    """Else the old adapter would be loaded onto the merged model; a GGUF file is loaded by its name, and stays."""
    publish(run.exports / "merged", fill=fill_merged)
    publish(run.exports / "gguf", fill=fill_gguf)
    push(run, tmp_path / "x")
    push(run, tmp_path / "x", "gguf")
    assert files(tmp_path / "x") == sorted([*FILES, "m.gguf"])
    push(run, tmp_path / "x", "merged")
    assert files(tmp_path / "x") == sorted(["README.md", "extra/note.txt", "m.gguf", *MERGED])
    push(run, tmp_path / "x")
    assert files(tmp_path / "x") == sorted([*FILES, "m.gguf"])


@pytest.mark.parametrize(
    "name", ["adapter_config.json", "model.safetensors", "pytorch_model.bin", "chat_template.jinja"]
)
def test_weights_of_others_are_neither_deleted_nor_mixed_with_ours(run: Run, tmp_path: Path, name: str) -> None:
    publish(run.exports / "merged", fill=fill_merged)
    (tmp_path / "x").mkdir()
    (tmp_path / "x" / name).write_text("theirs")
    with pytest.raises(UsageError, match=rf"loaded with exports/merged: {re.escape(name)}") as refused:
        push(run, tmp_path / "x", "merged", overwrite=True)
    assert "another target" in refused.value.hint and files(tmp_path / "x") == [name]


def test_nothing_of_a_push_that_was_killed_gets_into_another(
    run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    publish(run.exports / "merged", fill=fill_merged)
    kill_at(monkeypatch, 3)
    with pytest.raises(KeyboardInterrupt):
        push(run, tmp_path / "volume/x")
    push(run, tmp_path / "volume/x", "merged")
    assert files(tmp_path / "volume") == sorted(f"x/{name}" for name in ["README.md", *MERGED])
    assert os.listdir(tmp_path / "volume") == ["x"]


def test_links_in_a_folder_are_files_of_others(run: Run, tmp_path: Path) -> None:
    """A linked file is somebody's file; through a linked folder something elsewhere would be written to."""
    (tmp_path / "x").mkdir()
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "elsewhere/README.md").write_text("theirs")
    (tmp_path / "x/README.md").symlink_to(tmp_path / "elsewhere/README.md")
    with pytest.raises(UsageError, match=r"not pushed: README\.md"):
        push(run, tmp_path / "x")
    (tmp_path / "x/extra").symlink_to(tmp_path / "elsewhere")
    with pytest.raises(UsageError, match="x/extra is a link"):
        push(run, tmp_path / "x", overwrite=True)
    assert files(tmp_path / "elsewhere") == ["README.md"]
    (tmp_path / "x/extra").unlink()
    push(run, tmp_path / "x", overwrite=True)
    assert (tmp_path / "elsewhere/README.md").read_text() == "theirs" and files(tmp_path / "x") == FILES


def test_a_command_cannot_change_the_run(run: Run, tmp_path: Path) -> None:
    code = (
        "import os, sys; os.chdir(sys.argv[1]); name = 'adapter_model.safetensors'; open(name, 'w'); os.chmod(name, 0)"
    )
    push(run, f'command:{sys.executable} -S -c "{code}" {{folder}}')
    assert fault(run.final) is None and os.access(run.final / "adapter_model.safetensors", os.W_OK)


def test_what_is_damaged_here_is_not_pushed(run: Run, tmp_path: Path) -> None:
    (run.final / "adapter_config.json").write_text('{"r": 5}')
    with pytest.raises(UsageError, match=r"damaged: adapter_config\.json"):
        push(run, tmp_path / "x")
    assert not (tmp_path / "x").exists()


@pytest.mark.parametrize(
    ("code", "problem"),
    [("", ""), ("sys.exit(3)", "exit code 3"), ("os.kill(os.getpid(), 9)", "killed by signal 9")],
)
def test_the_exit_code_of_a_command_decides(run: Run, tmp_path: Path, code: str, problem: str) -> None:
    program = tmp_path / "send.py"
    program.write_text(f"import os, shutil, sys\nshutil.copytree(sys.argv[1], sys.argv[2])\nprint('sent it')\n{code}\n")
    to = f"command:{sys.executable} -S {program} {{folder}} '{tmp_path}/there and back'"
    if problem:
        with pytest.raises(PushError, match=problem) as failed:
            push(run, to)
        assert code != "sys.exit(3)" or "sent it" in failed.value.hint
        assert isinstance(Tail(run.pushes).read()[-1], PushFailed)
    else:
        assert not push(run, to, "checkpoint-4").verified
        assert "sent it" in run.push_log.read_text()
    assert files(tmp_path / "there and back") == FILES
    assert not list(run.folder.glob("ftui-push*"))


def test_a_card_has_measured_facts_only(run: Run, tmp_path: Path) -> None:
    push(run, tmp_path / "a", "final")
    push(run, tmp_path / "b", "checkpoint-4")
    final, checkpoint = ((tmp_path / name / "README.md").read_text() for name in "ab")
    front = yaml.safe_load(final.split("---")[1])
    assert front == {"base_model": "someone/base", "library_name": "peft", "tags": ["ftui"]}
    assert "license" not in final and str(tmp_path) not in final
    for fact in ("3.5000 at step 0, 1.2500 here", "40 rows", "`da7a`", "torch 2.9", "AutoPeftModelForCausalLM"):
        assert fact in final
    assert "3.5000 at step 0, not measured here" in checkpoint and "step 4 of 8" in checkpoint


def test_an_export_has_the_card_of_its_run_with_its_certificate(run: Run, tmp_path: Path) -> None:
    def fill_export(folder: Path) -> None:
        (folder / "model.safetensors").write_bytes(WEIGHTS)
        (folder / "README.md").write_text("of the merge")
        agreement = '"agreement": {"mean_kl": 3.25e-5, "top1": null}, "into_dequantised": null'
        (folder / "certificate.json").write_text(f'{{"base": "/home/me/base", "rows": [1], {agreement}}}')

    publish(run.exports / "final-bf16", fill=fill_export)
    push(run, tmp_path / "x", "final-bf16")
    card = (tmp_path / "x/README.md").read_text()
    assert "| certificate, agreement mean kl | 3.25e-05 |" in card and "| certificate, base | base |" in card
    assert "AutoModelForCausalLM" in card and "evaluation loss as trained" in card and "top1" not in card


@pytest.mark.parametrize(
    ("text", "target"),
    [
        ("hub:me/x-1.b", Target("hub", "me/x-1.b")),
        ("/mnt/a b", Target("folder", "/mnt/a b")),
        ("~/x", Target("folder", "~/x")),
        ("command: rclone copy {folder} r:x ", Target("command", "rclone copy {folder} r:x")),
        ("hub:me", None), ("hub:me/x--y", None), ("hub:me/x.git", None), ("hub:https://a/b", None), ("me/x", None),
        ("command:rclone copy x", None), ("command:{folder}", None), ("command:a 'b {folder}", None), ("", None),
    ],
)  # fmt: skip
def test_targets(text: str, target: Target | None) -> None:
    if target is None:
        with pytest.raises(ValueError, match=r"hub:|\{folder\}|command"):
            parse_target(text)
    else:
        assert parse_target(text) == target


def test_words_of_a_command_stay_words() -> None:
    assert Target("command", "rclone copy {folder} 'r:a b'").command(Path("/x y; rm")) == [
        "rclone", "copy", "/x y; rm", "r:a b",
    ]  # fmt: skip


def test_one_at_a_time(run: Run, tmp_path: Path) -> None:
    lock = try_lock(run.push_lock)
    assert lock is not None
    with pytest.raises(FtuiError, match="Another process"):
        push(run, tmp_path / "x")
    lock.close()
