"""Requests: whatever bytes lie in the inbox, only a request of the closed list comes out."""

import errno
import json
import os
import re
import stat
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ftui.errors import UsageError
from ftui.runs.requests import (
    LONGEST,
    AnyRequest,
    Delete,
    GenerateSamples,
    Pause,
    Set,
    new_id,
    read_requests,
    remove_request,
    write_request,
)
from ftui.runs.run_folder import Run
from ftui.runs.send_request import address_request, parse_setting
from ftui.runs.state import RunState
from ftui.runs.status import Status
from ftui.system.process_id import this_process
from tests.support.examples import examples

ID = "0123456789abcdef"


@pytest.fixture
def run(tmp_path: Path) -> Run:
    return Run(tmp_path)


def put(run: Run, data: bytes, identity: str = ID, number: int = 1) -> Path:
    run.inbox.mkdir(exist_ok=True)
    path = run.inbox / f"{number:020d}-{identity}.json"
    path.write_bytes(data)
    return path


def request(verb: str, **fields: Any) -> bytes:
    return json.dumps({"verb": verb, "id": ID, "attempt": 1, "token": "t", **fields}).encode()


def test_a_letter_arrives_whole_private_and_in_order(run: Run) -> None:
    assert list(read_requests(run)) == []
    sent: list[AnyRequest] = [
        Pause(id=new_id(), attempt=1, token="t"),
        Delete(id=new_id(), attempt=1, token="t", step=4),
    ]
    for one in sent:
        write_request(run, one)
    found = list(read_requests(run))
    assert [f.request for f in found] == sent
    assert {stat.S_IMODE(f.path.stat().st_mode) for f in found} == {0o600}
    assert stat.S_IMODE(run.inbox.stat().st_mode) == 0o700
    for file in found:
        remove_request(file)
        remove_request(file)
    assert list(run.inbox.iterdir()) == []


@pytest.mark.parametrize("number", [errno.EIO, errno.ESTALE, errno.EROFS, errno.ENOTCONN])
@pytest.mark.parametrize("call", ["open", "listdir", "unlink"])
def test_a_volume_that_fails_ends_no_engine(call: str, number: int, run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    put(run, request("hold"))
    with monkeypatch.context() as patch:
        patch.setattr(os, call, Mock(side_effect=OSError(number, os.strerror(number))))
        for file in read_requests(run):
            remove_request(file)
    (file,) = read_requests(run)
    assert file.request is not None


@pytest.mark.parametrize(
    ("data", "problem"),
    [
        (request("reboot"), "not a control request"),
        (request("hold", command="rm"), "not a control request"),
        (request("hold", path="/etc/passwd"), "not a control request"),
        (request("delete_checkpoint", step="../x"), "not a control request"),
        (request("delete_checkpoint", step=-1), "not a control request"),
        (request("set", learning_rate_factor=1e9), "not a control request"),
        (request("set", max_steps=0), "not a control request"),
        (request("set", learning_rate_factor=float("nan")), "not a control request"),
        (request("sample", prompts=["x" * 9000]), "not a control request"),
        (b"", "not a control request"),
        (b"[" * 60000, "not a control request"),
        (b'{"verb":"hold"', "not a control request"),
        (b"\xff\xfe", "not a control request"),
        (request("hold") + b" " * LONGEST, "longer than 64 KiB"),
        (request("hold").replace(ID.encode(), b"f" * 16), "its id is not the one in its name"),
    ],
)
def test_what_is_no_request_is_named(run: Run, data: bytes, problem: str) -> None:
    put(run, data)
    (found,) = read_requests(run)
    assert found.request is None and problem in found.problem


def test_links_and_folders_are_not_read(run: Run, tmp_path: Path) -> None:
    secret = tmp_path / "secret"
    secret.write_bytes(request("hold"))
    run.inbox.mkdir()
    link = run.inbox / f"{1:020d}-{ID}.json"
    link.symlink_to(secret)
    folder = run.inbox / f"{2:020d}-{'a' * 16}.json"
    folder.mkdir()
    os.mkfifo(run.inbox / f"{3:020d}-{'b' * 16}.json")
    found = list(read_requests(run))
    assert [f.request for f in found] == [None, None, None]
    for file in found:
        remove_request(file)
    assert secret.exists() and folder.exists() and not link.is_symlink()


def test_other_files_are_left_alone(run: Run) -> None:
    run.inbox.mkdir()
    for name in (".tmp", "readme.txt", f"1-{ID}.json", f"{1:020d}-{'G' * 16}.json"):
        (run.inbox / name).write_bytes(request("hold"))
    assert list(read_requests(run)) == []
    assert len(list(run.inbox.iterdir())) == 4


@settings(max_examples=examples(300))
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
    (found,) = read_requests(run)
    assert found.request is not None or found.problem


def test_a_set_says_what_it_sets() -> None:
    change = Set(id=ID, attempt=1, token="t", learning_rate_factor=0.5, save_steps=7)
    assert change.settings == {"learning_rate_factor": 0.5, "save_steps": 7}
    assert GenerateSamples(id=ID, attempt=1, token="t").verb == "sample"


FACTOR, COUNT = "must be a number from 0 to 1000", "must be a whole number from 1 to 10^12"
KEYS = ("max_steps", "save_steps", "eval_steps", "logging_steps")


@pytest.mark.parametrize(
    ("text", "words"),
    [
        *((f"learning_rate_factor={value}", FACTOR) for value in ("-3", "-0.1", "1001", "nan", "inf", "x", "", "1,5")),
        *((f"{key}={value}", COUNT) for key in KEYS for value in ("0", "-1", "1.5", "1e3", "x", "", "9" * 20)),
        *((text, "cannot be set") for text in ("seed=1", "learning_rate=1", "max_steps", "=3", "", "decay_end=3")),
        *((f"decay={value}", "decay must be linear") for value in ("", "cosine", "0", "Linear")),
    ],
)
def test_what_cannot_be_set_is_refused_in_our_words(text: str, words: str) -> None:
    with pytest.raises(UsageError, match=re.escape(words)) as raised:
        parse_setting(text)
    assert raised.value.hint
    assert not re.search(r"Expected|\$\.|`(int|float|str)`", raised.value.message)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("max_step=70", "Did you mean max_steps or"), ("learning_rate=0.1", "Did you mean learning_rate_factor?"),
        ("num_train_epochs=3", "max_steps is where it ends"),
    ],
)  # fmt: skip
def test_what_was_meant_is_named(text: str, words: str) -> None:
    with pytest.raises(UsageError) as raised:
        parse_setting(text)
    assert words in raised.value.hint


@pytest.mark.parametrize("text", ["learning_rate_factor=0", "learning_rate_factor=1e3", "learning_rate_factor=.5"])
def test_the_bounds_of_a_factor_can_be_sent(text: str) -> None:
    msgspec.convert({"verb": "set", "id": ID, "attempt": 1, "token": ""} | dict([parse_setting(text)]), AnyRequest)


@pytest.mark.parametrize(("key", "number"), [(key, number) for key in KEYS for number in (1, 10**12)])
def test_the_bounds_of_a_number_of_steps_can_be_sent(key: str, number: int) -> None:
    fields = dict([parse_setting(f"{key}={number}")])
    assert fields == {key: number}
    msgspec.convert({"verb": "set", "id": ID, "attempt": 1, "token": ""} | fields, AnyRequest)


def test_a_decay_can_be_sent() -> None:
    fields = dict(map(parse_setting, ("max_steps=70", "decay=linear")))
    sent = msgspec.convert({"verb": "set", "id": ID, "attempt": 1, "token": ""} | fields, AnyRequest)
    assert isinstance(sent, Set) and (sent.settings, sent.decay) == ({"max_steps": 70}, "linear")


@pytest.mark.parametrize(
    ("kind", "fields", "words"),
    [
        (GenerateSamples, {"prompts": ("",)}, "prompts must be texts of 1 to 8,192 characters"),
        (GenerateSamples, {"prompts": ("x" * 8193,)}, "prompts must be texts of 1 to 8,192 characters"),
        (Delete, {"step": -1}, "step must be a whole number from 0 on"),
        (Set, {"learning_rate_factor": -3.0}, FACTOR),
    ],
)
def test_what_cannot_be_sent_is_refused_in_our_words(
    kind: Any, fields: dict[str, object], words: str, tmp_path: Path
) -> None:
    status = Status(state=RunState(attempt=1), engine=this_process())
    with pytest.raises(UsageError, match=words) as raised:
        address_request(Run(tmp_path), status, kind, fields)
    assert "Expected" not in raised.value.message
