"""The client of the helper process: consent, deadlines, giving up, and processes that die or say too much."""

import json
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from ftui.errors import DataError, FtuiError, ProfileError
from ftui.helper.client import Helper
from ftui.profile.consent import REMOTE_CODE
from ftui.profile.schema import Profile
from ftui.profile.serialize import to_toml
from tests.support.stand_in import answer_with, stand_in

CODE = {"name_or_path": "hub/model", "revision": "0123456789abcdef0123456789abcdef01234567", "trust_remote_code": True}
PROFILE = Profile.model_validate({"run": {"stage": "sft"}, "model": CODE, "data": {"train": "rows.jsonl"}})
SLOW = """
import json, sys, time
for line in sys.stdin:
    request = json.loads(line)
    print(json.dumps({"id": request["id"], "detail": "at work"}), flush=True)
    time.sleep(request["params"].get("seconds", 0))
    print(json.dumps({"id": request["id"], "answer": request["params"].get("text")}), flush=True)
"""


@pytest.fixture
def helper() -> Iterator[Helper]:
    client = Helper()
    yield client
    client.close()


def test_no_process_starts_for_code_without_consent(monkeypatch: pytest.MonkeyPatch, helper: Helper) -> None:
    answer_with(monkeypatch, {"answer": 1})
    with pytest.raises(ProfileError, match="brings Python code"):
        helper.ask("count_rows", profile=PROFILE)
    assert helper._process is None
    with pytest.raises(AssertionError):
        helper.ask("count_rows", profile=to_toml(PROFILE))
    assert helper._process is None, "a text does not pass by the consent"
    consenting = Helper(allow=[REMOTE_CODE])
    assert consenting.ask("count_rows", profile=PROFILE) == 1
    consenting.close()


def test_a_problem_is_the_error_that_it_was(monkeypatch: pytest.MonkeyPatch, helper: Helper) -> None:
    problem = {"message": "row 2 is bad", "hint": "mend it", "exit_code": DataError.exit_code}
    answer_with(monkeypatch, {"problem": problem})
    with pytest.raises(DataError) as caught:
        helper.ask("report")
    assert (caught.value.message, caught.value.hint) == ("row 2 is bad", "mend it")


def test_a_deadline_ends_the_process_and_the_next_request_gets_its_own_answer(
    monkeypatch: pytest.MonkeyPatch, helper: Helper
) -> None:
    stand_in(monkeypatch, SLOW)
    with pytest.raises(FtuiError, match=r"no answer within 0\.5 s \(report\)"):
        helper.ask("report", deadline_seconds=0.5, seconds=600, text="late")
    assert helper.ask("report", deadline_seconds=60.0, text="in time") == "in time"


def test_whoever_gives_up_ends_the_process(monkeypatch: pytest.MonkeyPatch, helper: Helper) -> None:
    """Ctrl-C arrives while the answer is awaited: it must not be taken for the answer to the next request."""
    stand_in(monkeypatch, SLOW)
    monkeypatch.setattr("ftui.helper.client.INTERRUPT_SECONDS", 0.2)

    def interrupt(detail: str) -> None:
        raise KeyboardInterrupt

    begin = time.monotonic()
    with pytest.raises(KeyboardInterrupt):
        helper.ask("report", on_detail=interrupt, seconds=600, text="late")
    assert helper._process is None and time.monotonic() - begin < 60
    assert helper.ask("report", text="mine") == "mine"


def test_closing_ends_an_answer_in_the_middle(monkeypatch: pytest.MonkeyPatch, helper: Helper) -> None:
    stand_in(monkeypatch, SLOW)
    at_work, errors = threading.Event(), list[FtuiError]()

    def ask() -> None:
        try:
            helper.ask("report", on_detail=lambda detail: at_work.set(), seconds=600)
        except FtuiError as error:
            errors.append(error)

    asker = threading.Thread(target=ask)
    asker.start()
    assert at_work.wait(60)
    folder = helper._folder
    assert folder.is_dir()
    helper.close()
    asker.join(60)
    assert [error.message for error in errors] == ["Nobody waits for the answer any more."] and not folder.exists()
    with pytest.raises(FtuiError, match="Nobody waits"):
        helper.ask("report")


def test_a_process_that_dies_is_reported_with_its_last_lines(monkeypatch: pytest.MonkeyPatch, helper: Helper) -> None:
    stand_in(monkeypatch, "import sys; print('\\n'.join(map(str, range(9))), file=sys.stderr); sys.exit('no memory')")
    with pytest.raises(FtuiError) as caught:
        helper.ask("report")
    assert caught.value.message == "The helper process ended:\n5\n6\n7\n8\nno memory"


def test_answers_to_others_and_half_lines_are_no_answer(monkeypatch: pytest.MonkeyPatch, helper: Helper) -> None:
    lines = [json.dumps({"id": 99, "answer": "of another"}) + "\\n", json.dumps({"id": 1, "answer": "half"})[:-4]]
    stand_in(monkeypatch, f"import sys; sys.stdin.readline(); sys.stdout.write('{lines[0]}' + '{lines[1]}')")
    with pytest.raises(FtuiError, match="The helper process ended"):
        helper.ask("report")


def test_its_folder_goes_with_it(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    answer_with(monkeypatch, {"answer": 1})
    client = Helper()
    assert client.ask("report") == 1 and len(list(tmp_path.iterdir())) == 1
    client.close()
    assert list(tmp_path.iterdir()) == []
