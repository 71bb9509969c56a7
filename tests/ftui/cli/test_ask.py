from pathlib import Path

import pytest

from ftui.cli.main import main
from ftui.errors import UsageError
from ftui.launch.prompt_file import Question
from ftui.tui import open_screens
from tests.support.shelf import finished


@pytest.mark.parametrize("has_screen", [True, False])
def test_answers_on_a_screen_need_one(
    has_screen: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    run, seen = finished(tmp_path / "runs" / "mine"), list[Question]()
    monkeypatch.setattr("ftui.cli.trained.ask.has_screen", lambda: has_screen)

    def show(question: Question) -> int:
        seen.append(question)
        return 0

    monkeypatch.setattr(open_screens, "open_answers", show)
    options = ["--prompts", "p.jsonl", "--against", "base", "--out", "o.jsonl", "--seed", "7", "--screen"]
    code = main(["ask", f"{run.folder}@checkpoint-8", *options])
    if not has_screen:
        assert code == UsageError.exit_code and "--screen needs a terminal" in capsys.readouterr().err and not seen
        return
    (question,) = seen
    assert (code, question.prompts, question.out, question.sampling.seed) == (0, Path("p.jsonl"), Path("o.jsonl"), 7)
    assert (question.whom.checkpoint, question.whom.against) == ("checkpoint-8", "base")
