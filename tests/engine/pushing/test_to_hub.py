"""The real client of the hub pushes to a hub on the loopback."""

import os
import signal
from pathlib import Path

import pytest
from huggingface_hub import HfApi, constants

from ftui.engine.pushing import to_hub
from ftui.engine.pushing.push_result import check_target, push_result
from ftui.errors import FtuiError, ProfileError, PushError, UsageError
from ftui.profile.sections.around.push_target import PushSection
from ftui.runs.journal import Tail
from ftui.runs.records.push_records import PushBegan, Pushed, PushFailed
from ftui.runs.run_folder import Run
from tests.engine.pushing.conftest import MERGED, WEIGHTS, fill_merged, publish
from tests.support.loopback_hub import LoopbackHub, Repository

pytestmark = pytest.mark.filterwarnings("ignore:Use 'content:DeprecationWarning")  # httpx of the hub's library
TO = PushSection(to="hub:us/mine")
NAMES = {".gitattributes", "README.md", "adapter_config.json", "adapter_model.safetensors", "extra/note.txt"}


def push(run: Run, section: PushSection = TO, what: str | None = None) -> Pushed:
    return push_result(run, what, section, lambda detail: None)


def kinds(run: Run) -> list[type]:
    return [type(record) for record in Tail(run.pushes).read()]


def test_a_new_repository_is_private_and_has_every_byte(run: Run, hub: LoopbackHub) -> None:
    pushed = push(run)
    held = hub.repositories["us/mine"]
    assert held.private and set(held.files) == NAMES and held.files["adapter_model.safetensors"] == WEIGHTS
    assert pushed.verified and pushed.commit == held.sha and pushed.place == f"{hub.endpoint}/us/mine"
    assert kinds(run) == [PushBegan, Pushed] and pushed.num_files == 4
    push(run, PushSection(to="hub:me/other", private=False), "checkpoint-4")
    other = hub.repositories["me/other"]
    assert not other.private and set(other.files) == NAMES, "what only a resumed run needs stays here"


def test_what_is_there_is_not_sent_again(run: Run, hub: LoopbackHub) -> None:
    push(run)
    before = len(hub.requests)
    assert push(run).commit == hub.repositories["us/mine"].sha
    assert len(hub.uploads) == 1 and not any("commit" in line for line in hub.requests[before:])
    before = len(hub.requests)
    push_result(run, None, TO, lambda detail: None, unless_done=True)
    assert len(hub.requests) == before, "the records say that it is done"


def test_a_large_result_goes_in_several_commits(run: Run, hub: LoopbackHub, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(to_hub, "PART_BYTES", 5000)
    push(run)
    assert hub.repositories["us/mine"].num_commits == 2 and set(hub.repositories["us/mine"].files) == NAMES


@pytest.mark.slow
def test_wrong_bytes_on_the_hub_are_seen_and_mended(run: Run, hub: LoopbackHub) -> None:
    for name in ("adapter_model.safetensors", "adapter_config.json"):
        hub.damage = {name}
        hub.repositories.clear()
        with pytest.raises(PushError, match=name):
            push(run)
        assert kinds(run)[-1] is PushFailed
        hub.damage = set()
        push(run, TO.model_copy(update={"overwrite": True}))
    assert hub.repositories["us/mine"].files["adapter_model.safetensors"] == WEIGHTS


@pytest.mark.slow
def test_foreign_files_are_neither_replaced_unasked_nor_deleted(run: Run, hub: LoopbackHub) -> None:
    hub.repositories["us/mine"] = Repository(True, {"README.md": b"theirs", "other.txt": b"theirs too"})
    with pytest.raises(UsageError, match=r"README\.md, other\.txt") as refused:
        push(run)
    assert "--overwrite" in refused.value.hint and kinds(run) == [PushFailed]
    push(run, TO.model_copy(update={"overwrite": True}))
    held = hub.repositories["us/mine"].files
    assert held["other.txt"] == b"theirs too" and b"Trained with ftui" in held["README.md"]
    push(run)
    held["README.md"] = b"edited on the hub"
    with pytest.raises(UsageError, match=r"not pushed: README\.md\."):
        push(run)


def test_weights_of_an_earlier_push_go_in_the_commit_of_the_new_ones(run: Run, hub: LoopbackHub) -> None:
    push(run)
    publish(run.exports / "merged", fill=fill_merged)
    push(run, what="merged")
    held = hub.repositories["us/mine"]
    assert set(held.files) == {".gitattributes", "README.md", "extra/note.txt", *MERGED} and held.num_commits == 2


@pytest.mark.slow
def test_weights_of_others_are_not_mixed_with_ours(run: Run, hub: LoopbackHub) -> None:
    hub.repositories["us/mine"] = Repository(True, {"model.safetensors": b"theirs"})
    with pytest.raises(UsageError, match=r"be loaded with final: model\.safetensors") as refused:
        push(run, TO.model_copy(update={"overwrite": True}))
    assert "another target" in refused.value.hint
    assert hub.repositories["us/mine"].files == {"model.safetensors": b"theirs"}


@pytest.mark.parametrize(
    ("error", "caught"), [(RuntimeError("CAS: out of retries"), PushError), (ValueError("x"), ValueError)]
)
def test_however_the_library_fails_it_is_recorded(
    run: Run, hub: LoopbackHub, error: Exception, caught: type[Exception], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The native part of the hub's library raises a bare RuntimeError."""

    def fail(*args: object, **kwargs: object) -> None:
        raise error

    monkeypatch.setattr(HfApi, "create_commit", fail)
    with pytest.raises(caught, match=str(error)):
        push(run)
    assert kinds(run) == [PushBegan, PushFailed]


@pytest.mark.slow
def test_a_public_repository_is_asked_about(run: Run, hub: LoopbackHub) -> None:
    hub.repositories["us/mine"] = Repository(False)
    with pytest.raises(UsageError, match="is public"):
        push(run)
    push(run, PushSection(to="hub:us/mine", private=False))


COMMIT, CREATE = "POST /api/models/us/mine/commit", "POST /api/repos/create"


@pytest.mark.slow
@pytest.mark.parametrize(
    ("refuse", "words"),
    [
        ({"GET /api/whoami": (401, "bad token")}, "does not take the token"),
        ({CREATE: (403, "You don't have the rights")}, "may not write to hub:us/mine. It says: You don't"),
        ({CREATE: (409, "You already created this model repo")}, "taken"),
        ({COMMIT: (403, "Private storage limit reached")}, "no room"),
        ({COMMIT: (429, "slow down")}, "too many requests"),
        ({COMMIT: (422, "what is this")}, "HTTP 422"),
    ],
)
def test_every_refusal_has_its_own_words(
    run: Run, hub: LoopbackHub, refuse: dict[str, tuple[int, str]], words: str
) -> None:
    hub.refuse = refuse
    with pytest.raises(FtuiError) as failed:
        push(run)
    assert words in failed.value.message and failed.value.hint
    assert kinds(run)[-1] is PushFailed
    hub.refuse = {}
    push(run)


def test_a_hub_that_is_away_is_no_fault_before_the_run(
    run: Run, hub: LoopbackHub, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(constants, "ENDPOINT", "http://127.0.0.1:9")
    check_target(TO)
    with pytest.raises(PushError, match="cannot be reached"):
        push(run)


@pytest.mark.parametrize(
    ("to", "role", "token", "words"),
    [
        ("hub:us/mine", "write", "", "no token"),
        ("hub:them/mine", "write", None, "who cannot write to them"),
        ("hub:us/mine", "read", None, "may read"),
        ("{folder}/file/x", "write", None, "no folder"),
        ("command:no-such-program {folder}", "write", None, "no-such-program"),
    ],
)
def test_what_would_be_refused_at_the_end_is_refused_before(
    hub: LoopbackHub, to: str, role: str, token: str | None, words: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    hub.role = role
    monkeypatch.setattr(constants, "HF_TOKEN_PATH", str(tmp_path / "none"))
    if token is not None:
        monkeypatch.setenv("HF_TOKEN", token)
    (tmp_path / "file").touch()
    with pytest.raises(ProfileError, match=r"push\.to: .*" + words):
        check_target(PushSection(to=to if to.startswith("command") else to.format(folder=tmp_path)))


def in_a_process_that_dies(run: Run, hub: LoopbackHub, number: int, *, done: bool) -> bool:
    """Push in a child that is killed at the n-th request, before or after the hub has acted; whether it was."""
    hub.requests.clear()
    pid = os.fork()
    if pid == 0:
        try:
            push(run)
        finally:
            os._exit(0)

    def kill(at: int, is_done: bool) -> None:
        if (at, is_done) == (number, done):
            os.kill(pid, signal.SIGKILL)

    hub.on_request = kill
    _, status = os.waitpid(pid, 0)
    hub.on_request = lambda number, done: None
    return os.WIFSIGNALED(status)


@pytest.mark.slow
@pytest.mark.parametrize("done", [False, True])
def test_a_push_killed_between_any_two_steps_goes_on(run: Run, hub: LoopbackHub, done: bool) -> None:
    number = 0
    while True:
        number += 1
        for kept in (hub.repositories, hub.objects, hub.uploads):
            kept.clear()
        run.pushes.unlink(missing_ok=True)
        if not in_a_process_that_dies(run, hub, number, done=done):
            break
        push(run)
        assert set(hub.repositories["us/mine"].files) == NAMES
        assert len(hub.uploads) == 1 and hub.repositories["us/mine"].num_commits == 1
        assert kinds(run)[-1] is Pushed
    assert number > 10
