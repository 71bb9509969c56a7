"""What a screen has sent, and the answers in the journal, of which others have asked for some."""

from pathlib import Path

from ftui.runs.events import ControlApplied
from ftui.runs.requests import ControlRequest
from ftui.runs.run_folder import Run
from ftui.tui.state.sent_requests import SentRequest, SentRequests


def test_any_answer_is_taken(tmp_path: Path) -> None:
    """Also one of which the log says nothing: to a question, say."""
    requests = SentRequests(Run(tmp_path), [SentRequest("mine", "pause", 0.0)])
    for kind in ControlRequest.__subclasses__():
        requests.take(ControlApplied(request="others", verb=str(kind.__struct_config__.tag), step=3))
    assert [one.outcome for one in requests.all] == ["sent"]
    requests.take(ControlApplied(request="mine", verb="hold", step=3))
    assert [(one.outcome, one.words) for one in requests.all] == [("applied", "paused at step 3")]
