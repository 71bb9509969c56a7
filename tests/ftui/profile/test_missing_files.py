"""Files and folders that a profile names and that are not there: all told before an engine starts, with their keys."""

import os
import shlex
import socket
from collections.abc import Callable
from pathlib import Path

import pytest

from ftui.cli import main
from ftui.cli.arguments import parser
from ftui.errors import ProfileError
from ftui.launch.fork import ForkOrigin, fork
from ftui.launch.open_run import open_run
from ftui.profile.layers import examine, file_layer, resolve
from ftui.profile.paths import FILES, FOLDERS, TEMPLATE
from ftui.runs.checkpoint_folders import Checkpoint
from ftui.runs.run_folder import Run, runs_root

WHOLE = """\
[run]
stage = "sft"
[model]
name_or_path = "./base"
[adapter]
name_or_path = "./adapter"
[data]
train = ["a.jsonl", {path = "sub/b.jsonl", weight = 2}, "hub/rows"]
eval = "c.jsonl"
chat_template = "t.jinja"
"""
ABSENT = [
    (4, "model.name_or_path", "no folder"), (6, "adapter.name_or_path", "no folder"), (8, "data.train.0", "a.jsonl"),
    (8, "data.train.1.path", "b.jsonl in "), (9, "data.eval", "c.jsonl"), (10, "data.chat_template", "no file"),
]  # fmt: skip


@pytest.fixture
def path(tmp_path: Path) -> Path:
    path = tmp_path / "p.toml"
    path.write_text(WHOLE)
    return path


def fill(folder: Path) -> None:
    for name in ("base", "adapter", "sub"):
        (folder / name).mkdir()
    for name in ("a.jsonl", "sub/b.jsonl", "c.jsonl", "t.jinja"):
        (folder / name).touch()


def test_every_key_with_a_path_is_looked_at(path: Path) -> None:
    found = examine([file_layer(path)], path)
    assert found.profile is not None and not found.problems, "it is whole all the same, and can be edited elsewhere"
    assert [(one.origin and one.origin.line, ".".join(one.key)) for one in found.missing_files] == [
        a[:2] for a in ABSENT
    ]
    for problem, (_, _, words) in zip(found.missing_files, ABSENT, strict=True):
        assert words in problem.message and problem.fix
    looked_at = {problem.key[:2] for problem in found.missing_files}
    known = {key for key in (*FILES, *FOLDERS, TEMPLATE) if len(key) == 2 and key[0] != "rewards"}
    assert looked_at == known, "a new kind of path: name it"
    fill(path.parent)
    assert examine([file_layer(path)], path).missing_files == ()


def test_a_reward_model_is_looked_for(path: Path) -> None:
    path.write_text(
        '[run]\nstage = "grpo"\n[model]\nname_or_path = "m"\n[data]\ntrain = "hub/rows"\n'
        '[rewards]\nreward_funcs = "reward_model"\nreward_model_name_or_path = "runs/rm/final"\n'
    )
    [missing] = examine([file_layer(path)], path).missing_files
    assert missing.key == ("rewards", "reward_model_name_or_path") and "no folder runs/rm/final" in missing.message


@pytest.mark.parametrize(
    ("given", "is_absent"),
    [
        ("owner/name", False), ("gpt2", False), ("a/b/c", True), ("x.gguf", True), ("~/no/such", True),
        ("a\\u0000b", False), ("none", False),
    ],
)  # fmt: skip
def test_names_on_the_hub_are_none(path: Path, given: str, is_absent: bool) -> None:
    path.write_text(f'[run]\nstage = "sft"\n[model]\nname_or_path = "{given}"\n[data]\ntrain = "hub/rows"\n')
    assert [one.key for one in examine([file_layer(path)], path).missing_files] == [
        ("model", "name_or_path")
    ] * is_absent


@pytest.mark.parametrize(
    ("key", "name"), [("data.train", "x.jsonl"), ("data.eval", "x.csv"), ("data.chat_template", "x.jinja")]
)
def test_a_link_to_a_blob_keeps_its_name(key: str, name: str, path: Path, tmp_path: Path) -> None:
    """As in the hub's cache: the kind of a file is in its name, not in its target's."""
    fill(path.parent)
    (tmp_path / "blob").write_text("{}")
    (tmp_path / name).symlink_to("blob")
    profile = resolve(path, overrides=[f"{key}={tmp_path / name}"]).profile
    section, _, field = key.partition(".")
    assert getattr(getattr(profile, section), field) == str(tmp_path / name)


def test_a_new_tokenizer_is_looked_for(path: Path) -> None:
    path.write_text(
        '[run]\nstage = "sft"\n[model.from_scratch]\ntokenizer = "./its"\n[adapter]\nmethod = "full"\n'
        '[data]\ntrain = "hub/rows"\n'
    )
    assert [one.key for one in examine([file_layer(path)], path).missing_files] == [
        ("model", "from_scratch", "tokenizer")
    ]


def test_they_are_told_with_all_that_is_wrong(path: Path) -> None:
    path.write_text(WHOLE + "[train]\nseed = -1\n")
    with pytest.raises(ProfileError) as caught:
        resolve(path)
    lines = [line for line in caught.value.message.split("\n") if line.startswith(f"{path}:")]
    assert [line.split(": ")[1] for line in lines] == [*(key for _, key, _ in ABSENT), "train.seed"]


def pipe(place: Path) -> None:
    os.mkfifo(place)


def endless(place: Path) -> None:
    place.symlink_to("/dev/zero")


def listen(place: Path) -> None:
    with socket.socket(socket.AF_UNIX) as one:
        one.bind(os.path.relpath(place))


@pytest.mark.parametrize(("put", "what"), [(pipe, "a FIFO"), (endless, "a device"), (listen, "a socket")])
@pytest.mark.parametrize("name", ["base", "adapter", "a.jsonl", "sub/b.jsonl", "c.jsonl", "t.jinja"])
def test_what_is_no_file_is_not_waited_for(
    name: str, put: Callable[[Path], None], what: str, path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(path.parent)  # a socket's name has 107 bytes at most
    fill(path.parent)
    place = path.parent / name
    place.rmdir() if place.is_dir() else place.unlink()
    put(place)
    (problem,) = resolve(path).missing_files
    assert f"is {what}, not a regular file" in problem.message and (what == "a device" or name in problem.message)


def test_the_nearest_name_is_told(path: Path) -> None:
    fill(path.parent)
    (path.parent / "a.jsonl").rename(path.parent / "a.json")
    (problem,) = resolve(path).missing_files
    assert problem.fix == "Did you mean a.json?"


def test_no_run_is_begun_without_them(path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """And nothing is counted; nor does a run go on that was begun with them."""
    for command in (["--run", str(path)], ["--run", str(path), "--dry-run"]):
        assert main.main(command) == 30
        assert capsys.readouterr().err.count(f"{path}:") == len(ABSENT)
    assert not runs_root().exists() or not list(runs_root().iterdir())
    fill(path.parent)
    run = Run(runs_root() / "p")
    assert open_run(run.folder, resolve(path)).decision == "start"
    assert open_run(run.folder, resolve(path)).decision == "resume"
    (path.parent / "a.jsonl").unlink()
    with pytest.raises(ProfileError):
        open_run(run.folder, resolve(path))


MOVED = {
    "rows": ('train = "a.jsonl"', "a.jsonl", "data.train=PLACE/a.jsonl"),
    "a name with a blank": ('train = "my rows.jsonl"', "my rows.jsonl", "data.train=PLACE/my rows.jsonl"),
    "one of a list": ('train = ["hub/rows", "a.jsonl"]', "a.jsonl", "data.train.1.path=PLACE/a.jsonl"),
    "one of several tables": (
        'train = [{path = "c.jsonl", weight = 2}, {path = "a.jsonl"}]', "a.jsonl", "data.train.1.path=PLACE/a.jsonl",
    ),
    "a table": ('train = [{path = "a.jsonl", format = "text"}]', "a.jsonl", "data.train.0.path=PLACE/a.jsonl"),
    "rows to evaluate on": ('train = "hub/rows"\neval = "c.jsonl"', "c.jsonl", "data.eval=PLACE/c.jsonl"),
    "the template": (
        'train = "hub/rows"\nchat_template = "t.jinja"', "t.jinja", "data.chat_template=PLACE/t.jinja",
    ),
    "the base": ('train = "hub/rows"', "base", "model.name_or_path=PLACE/base"),
    "the adapter": ('train = "hub/rows"', "adapter", "adapter.name_or_path=PLACE/adapter"),
}  # fmt: skip


@pytest.mark.slow
@pytest.mark.parametrize(("data", "moved", "option"), MOVED.values(), ids=MOVED)
@pytest.mark.parametrize("forked", [False, True])
def test_the_command_that_finds_moved_files_again_is_told(
    data: str, moved: str, option: str, forked: bool, path: Path, tmp_path: Path
) -> None:
    """It is obeyed here; that other content is refused, tests/e2e/test_moved_files.py sees."""
    fill(path.parent)
    (path.parent / "my rows.jsonl").touch()
    path.write_text(WHOLE.partition("train = ")[0] + data + "\n")
    run = Run(runs_root() / "p")
    open_run(run.folder, resolve(path))
    (tmp_path / "its new place").mkdir()
    (path.parent / moved).rename(tmp_path / "its new place" / moved)
    origin = ForkOrigin(run, run.read_facts(), Checkpoint(run.checkpoints / "checkpoint-8", 8))
    with pytest.raises(ProfileError) as caught:
        fork(origin, resolve(run.profile), None, may_differ=True) if forked else open_run(
            run.folder, resolve(run.profile)
        )
    assert moved in caught.value.message
    words = shlex.split(caught.value.hint.partition(": ")[2].partition("\n")[0])
    assert words == ["ftui", "resume", "p", *(["--from=checkpoint-8", "--fork"] if forked else []), "--set", option]
    command = vars(parser().parse_args([word.replace("PLACE", f"{tmp_path}/its new place") for word in words[1:]]))
    assert open_run(run.folder, resolve(run.profile, overrides=command["overrides"])).decision == "resume"
    assert not resolve(run.profile).missing_files, "its own profile names the new place from now on"


def test_all_that_was_moved_is_in_one_command(path: Path) -> None:
    fill(path.parent)
    run = Run(runs_root() / "p")
    open_run(run.folder, resolve(path))
    for name in ("a.jsonl", "sub", "c.jsonl"):
        (path.parent / name).rename(path.parent / f"moved {name}")
    with pytest.raises(ProfileError) as caught:
        open_run(run.folder, resolve(run.profile))
    assert caught.value.hint.count("--set ") == 3


@pytest.mark.parametrize("train", ["mine", "dataset_info.json:mine"])
def test_an_entry_of_dataset_info_is_said_how_to_write(train: str, path: Path) -> None:
    fill(path.parent)
    path.write_text(WHOLE.replace('eval = "c.jsonl"', f'eval = "{train}"'))
    (problem,) = examine([file_layer(path)], path).missing_files
    assert (train == "mine") == ('subset = "mine" }' in problem.fix)
    (path.parent / "dataset_info.json").write_text('{"mine": {}}')
    (problem,) = examine([file_layer(path)], path).missing_files
    assert f'{{ path = "{path.parent / "dataset_info.json"}", subset = "mine" }}' in problem.fix
