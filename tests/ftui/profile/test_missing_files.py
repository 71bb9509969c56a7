"""Files and folders that a profile names and that are not there: all told before an engine starts, with their keys."""

import os
import socket
from collections.abc import Callable
from pathlib import Path

import pytest

from ftui.cli import main
from ftui.errors import ProfileError
from ftui.launch import open_run as opening
from ftui.launch.open_run import open_run
from ftui.profile.layers import examine, file_layer, resolve
from ftui.profile.paths import FILES, FOLDERS, TEMPLATE
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
    assert looked_at == {key for key in (*FILES, *FOLDERS, TEMPLATE) if len(key) == 2}, "a new kind of path: name it"
    fill(path.parent)
    assert examine([file_layer(path)], path).missing_files == ()


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
    if (name, put) == ("t.jinja", endless):
        pytest.skip("where a link leads is its path, and this one is the name of no template")
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
    """And nothing is counted; a run that was begun with them goes on, since its rows may be in the cache."""
    for command in (["--run", str(path)], ["--run", str(path), "--dry-run"]):
        assert main.main(command) == 30
        assert capsys.readouterr().err.count(f"{path}:") == len(ABSENT)
    assert not runs_root().exists() or not list(runs_root().iterdir())
    fill(path.parent)
    run = Run(runs_root() / "p")
    assert open_run(run.folder, resolve(path)).decision == "start"
    (path.parent / "a.jsonl").unlink()
    assert opening.open_run(run.folder, resolve(path)).decision == "resume"


@pytest.mark.parametrize("train", ["mine", "dataset_info.json:mine"])
def test_an_entry_of_dataset_info_is_said_how_to_write(train: str, path: Path) -> None:
    fill(path.parent)
    path.write_text(WHOLE.replace('eval = "c.jsonl"', f'eval = "{train}"'))
    (problem,) = examine([file_layer(path)], path).missing_files
    assert (train == "mine") == ('subset = "mine" }' in problem.fix)
    (path.parent / "dataset_info.json").write_text('{"mine": {}}')
    (problem,) = examine([file_layer(path)], path).missing_files
    assert f'{{ path = "{path.parent / "dataset_info.json"}", subset = "mine" }}' in problem.fix
