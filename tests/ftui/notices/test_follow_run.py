"""Notices arrive once each, also where a service or this process is away for a while; addresses stand nowhere."""

import io
import json
import logging
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, HTTPServer
from typing import Any

import pytest

from ftui.errors import ProfileError
from ftui.notices import follow_run
from ftui.notices.follow_run import PAUSES, Notices, NoticeSettings
from ftui.notices.notice_text import Notice
from ftui.notices.sender import Sender
from ftui.runs.events import CheckpointSaved, EvaluationDone
from ftui.runs.run_folder import Run

ADDRESS = "json://canary-user:canary-secret@127.0.0.1:1/canary-topic"


class FakeSender:
    """Takes what comes while `is_up`."""

    def __init__(self) -> None:
        self.taken: list[tuple[str, str]] = []
        self.is_up = True

    def send(self, name: str, notice: Notice) -> bool:
        if self.is_up:
            self.taken.append((name, notice.event))
        return self.is_up


@pytest.fixture
def run(make_run: Any) -> Run:
    made: Run = make_run("mine")
    made.notices.mkdir()
    return made


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """What time it is; tests move it on."""
    now = [1_000_000.0]
    monkeypatch.setattr("ftui.notices.follow_run.time.time", lambda: now[0])
    return now


def saved(step: int, time: float = 1_000_000.0) -> CheckpointSaved:
    return CheckpointSaved(step=step, path="p", tags=[], num_bytes=1, seconds=0.1, time=time)


def notices(run: Run, sender: Any, **options: Any) -> Notices:
    addresses = {"A": ADDRESS, "B": ADDRESS}
    return Notices(run, NoticeSettings(frozenset({"checkpoint"}), addresses, **options), sender)


def look(told: Notices) -> bool:
    told.read()
    return told.send()


def test_each_notice_goes_to_everybody_once(run: Run, append: Any, clock: list[float]) -> None:
    sender = FakeSender()
    told = notices(run, sender)
    evaluation = EvaluationDone(step=1, epoch=0.1, loss=1.0, num_target_tokens=1, seconds=0.1, best=True)
    append(run.journal, saved(1), evaluation, attempt=1)
    assert look(told) and look(told)
    assert sender.taken == [("A", "checkpoint"), ("B", "checkpoint")], "others are not asked for"
    assert look(notices(run, sender)) and len(sender.taken) == 2, "another process knows what was sent"
    append(run.journal, saved(2), attempt=1)
    look(notices(run, sender))
    assert len(sender.taken) == 4


def test_what_was_not_taken_is_sent_later_by_whoever_comes(run: Run, append: Any, clock: list[float]) -> None:
    sender = FakeSender()
    sender.is_up = False
    append(run.journal, saved(1), attempt=1)
    assert not look(notices(run, sender))
    sender.is_up = True
    later = notices(run, sender)
    assert not look(later), "not at once"
    clock[0] += PAUSES[0]
    assert look(later) and len(sender.taken) == 2


def test_a_service_that_never_answers_is_given_up_and_told_of(run: Run, append: Any, clock: list[float]) -> None:
    sender = FakeSender()
    sender.is_up = False
    told = notices(run, sender)
    append(run.journal, saved(1), attempt=1)
    look(told)
    for pause in PAUSES:
        assert not look(told)
        clock[0] += pause
    assert look(told) and not sender.taken
    note = json.loads((run.notices / "process.json").read_text())["note"]
    assert "given up" in note and "env:B" in note


def test_after_the_end_each_is_tried_every_few_seconds_until_it_is_taken(
    run: Run, append: Any, clock: list[float]
) -> None:
    """However long its pause was: the process that would have tried it later is about to end."""
    sender = FakeSender()
    sender.is_up = False
    told = notices(run, sender)
    append(run.journal, saved(1), attempt=1)
    for pause in (0.0, *PAUSES[:3]):
        clock[0] += pause
        look(told)
    for _ in range(2 * len(PAUSES)):
        clock[0] += PAUSES[0]
        assert not told.send(hurry=True), "it is not given up either"
    sender.is_up = True
    assert not told.send(hurry=True), "but not without any pause"
    clock[0] += PAUSES[0]
    assert told.send(hurry=True) and len(sender.taken) == 2


def test_old_news_are_no_news(run: Run, append: Any, clock: list[float]) -> None:
    sender = FakeSender()
    append(run.journal, saved(1, clock[0] - follow_run.OLD_SECONDS - 1), attempt=1)
    assert look(notices(run, sender)) and not sender.taken


def test_addresses_stand_in_no_file(run: Run, append: Any, clock: list[float]) -> None:
    sender = FakeSender()
    sender.is_up = False
    append(run.journal, saved(1), attempt=1)
    look(notices(run, sender, unset=("C",)))
    text = "".join(path.read_text() for path in run.notices.iterdir())
    assert "canary" not in text and "not set here: C" in text


@contextmanager
def service(status: int) -> Iterator[tuple[int, list[Any]]]:
    """A webhook on the loopback address that answers everything with `status`."""
    got: list[Any] = []

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            got.append(json.loads(self.rfile.read(int(self.headers["content-length"]))))
            self.send_response(status)
            self.end_headers()

        def log_message(self, *_: Any) -> None:
            pass

    with HTTPServer(("127.0.0.1", 0), Handler) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        try:
            yield server.server_address[1], got
        finally:
            server.shutdown()
            thread.join()


@pytest.mark.parametrize("status", [200, 500])
def test_apprise_sends_it(status: int, monkeypatch: pytest.MonkeyPatch) -> None:
    logged = io.StringIO()
    monkeypatch.setattr(logging.root, "handlers", [logging.StreamHandler(logged)])
    monkeypatch.setattr(logging.root, "level", logging.DEBUG)
    with service(status) as (port, got):
        address = f"json://canary-user:canary-secret@127.0.0.1:{port}/canary-topic"
        sent = Sender({"A": address}).send("A", Notice("ended", "mine has finished", "<b> *x* step 9", "success"))
    assert sent == (status == 200)
    assert (got[0]["title"], got[0]["message"], got[0]["type"]) == ("mine has finished", "<b> *x* step 9", "success")
    assert "canary" not in logged.getvalue()


def test_what_is_no_address_is_not_repeated() -> None:
    with pytest.raises(ProfileError) as caught:
        Sender({"NTFY_URL": "canary-secret"})
    assert "canary" not in f"{caught.value.message}{caught.value.hint}" and "NTFY_URL" in caught.value.message
