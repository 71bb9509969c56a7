"""Letters: whatever bytes lie in the inbox, only a letter of the closed list comes out."""

import json
import os
import stat
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ftui.runs.requests import LONGEST, AnyLetter, Delete, Hold, Sample, Set, new_id, remove, send, waiting
from ftui.runs.run_folder import Run

ID = "0123456789abcdef"


@pytest.fixture
def run(tmp_path: Path) -> Run:
    return Run(tmp_path)


def put(run: Run, data: bytes, identity: str = ID, number: int = 1) -> Path:
    run.inbox.mkdir(exist_ok=True)
    path = run.inbox / f"{number:020d}-{identity}.json"
    path.write_bytes(data)
    return path


def letter(verb: str, **fields: Any) -> bytes:
    return json.dumps({"verb": verb, "id": ID, "attempt": 1, "token": "t", **fields}).encode()


def test_a_letter_arrives_whole_private_and_in_order(run: Run) -> None:
    assert list(waiting(run)) == []
    sent: list[AnyLetter] = [Hold(id=new_id(), attempt=1, token="t"), Delete(id=new_id(), attempt=1, token="t", step=4)]
    for one in sent:
        send(run, one)
    found = list(waiting(run))
    assert [f.letter for f in found] == sent
    assert {stat.S_IMODE(f.path.stat().st_mode) for f in found} == {0o600}
    assert stat.S_IMODE(run.inbox.stat().st_mode) == 0o700
    for file in found:
        remove(file)
        remove(file)
    assert list(run.inbox.iterdir()) == []


@pytest.mark.parametrize(
    ("data", "problem"),
    [
        (letter("reboot"), "not a letter"),
        (letter("hold", command="rm"), "not a letter"),
        (letter("hold", path="/etc/passwd"), "not a letter"),
        (letter("delete_checkpoint", step="../x"), "not a letter"),
        (letter("delete_checkpoint", step=-1), "not a letter"),
        (letter("set", learning_rate_factor=1e9), "not a letter"),
        (letter("set", max_steps=0), "not a letter"),
        (letter("set", learning_rate_factor=float("nan")), "not a letter"),
        (letter("sample", prompts=["x" * 9000]), "not a letter"),
        (b"", "not a letter"),
        (b"[" * 60000, "not a letter"),
        (b'{"verb":"hold"', "not a letter"),
        (b"\xff\xfe", "not a letter"),
        (letter("hold") + b" " * LONGEST, "longer than 64 KiB"),
        (letter("hold").replace(ID.encode(), b"f" * 16), "its id is not the one in its name"),
    ],
)
def test_what_is_no_letter_is_named(run: Run, data: bytes, problem: str) -> None:
    put(run, data)
    (found,) = waiting(run)
    assert found.letter is None and problem in found.problem


def test_links_and_folders_are_not_read(run: Run, tmp_path: Path) -> None:
    secret = tmp_path / "secret"
    secret.write_bytes(letter("hold"))
    run.inbox.mkdir()
    link = run.inbox / f"{1:020d}-{ID}.json"
    link.symlink_to(secret)
    folder = run.inbox / f"{2:020d}-{'a' * 16}.json"
    folder.mkdir()
    os.mkfifo(run.inbox / f"{3:020d}-{'b' * 16}.json")
    found = list(waiting(run))
    assert [f.letter for f in found] == [None, None, None]
    for file in found:
        remove(file)
    assert secret.exists() and folder.exists() and not link.is_symlink()


def test_other_files_are_left_alone(run: Run) -> None:
    run.inbox.mkdir()
    for name in (".tmp", "readme.txt", f"1-{ID}.json", f"{1:020d}-{'G' * 16}.json"):
        (run.inbox / name).write_bytes(letter("hold"))
    assert list(waiting(run)) == []
    assert len(list(run.inbox.iterdir())) == 4


@settings(max_examples=300)
@given(st.binary(max_size=400) | st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(
        st.sampled_from(["verb", "id", "attempt", "token", "step", "prompts", "max_steps"]), inner, max_size=6
    ),
    max_leaves=12,
).map(lambda value: json.dumps(value).encode()))  # fmt: skip
def test_no_bytes_do_harm(tmp_path_factory: pytest.TempPathFactory, data: bytes) -> None:
    run = Run(tmp_path_factory.mktemp("run"))
    put(run, data)
    (found,) = waiting(run)
    assert found.letter is not None or found.problem


def test_a_set_says_what_it_sets() -> None:
    change = Set(id=ID, attempt=1, token="t", learning_rate_factor=0.5, save_steps=7)
    assert change.settings == {"learning_rate_factor": 0.5, "save_steps": 7}
    assert Sample(id=ID, attempt=1, token="t").verb == "sample"
