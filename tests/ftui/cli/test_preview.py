"""`ftui preview`: the report and rows in lines of text, for terminals with and without colours, pipes and programs."""

import json
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ftui.cli import main, preview
from ftui.cli.preview import headline
from ftui.dataset.locations import parse_location
from ftui.dataset.report import Example, Finding, Report, RowLocation
from ftui.dataset.report_text import describe_fix, gravity, percent, sort_findings, tally
from ftui.dataset.row import RowView, Token, Turn
from ftui.dataset.row_text import Signs, layout_row, raw_lines
from ftui.errors import DataError, HardwareError
from ftui.text import cells
from tests.support.evil import EVIL, steers
from tests.support.rows_helper import FINDINGS, MAX_LENGTH, REPORT, SAMPLES, StandIn, sample_of

PROFILE = '[run]\nstage = "sft"\n[model]\nname_or_path = "hub/model"\n[data]\ntrain = "rows.jsonl"\n'
NOT_RED = msgspec.structs.replace(REPORT, findings=FINDINGS[1:])
COLOUR = re.compile(r"\x1b\[[\d;]*m")


@pytest.fixture(autouse=True)
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "80")
    monkeypatch.setattr(preview, "Helper", StandIn)
    Path("mine.toml").write_text(PROFILE)
    Path("rows.jsonl").write_text("{}\n")


def printed(capsys: pytest.CaptureFixture[str], *arguments: str) -> tuple[int, str, str]:
    code = main.main(["preview", "mine.toml", *arguments])
    told = capsys.readouterr()
    return code, told.out, told.err


# -- the command


def test_a_pipe_gets_marks_around_what_is_trained(capsys: pytest.CaptureFixture[str]) -> None:
    code, out, err = printed(capsys, "--rows", "2")
    assert code == 31 and err == "" and "\x1b" not in out
    assert "What stands between [[ and ]] is trained on." in out
    assert "[[In /var/log; `journalctl -e` shows its end. 日本語も読めます。<|im_end|>]]" in "".join(out.split("↵\n"))
    assert out.count("row 1 of 4") == out.count("row 2 of 4") == 1 and "row 3 of 4" not in out
    assert all(cells(line) <= 80 for line in out.split("\n"))
    for words in (
        "helpdesk.jsonl:1",
        "148 tokens, 108 trained (73%)",
        "warning truncated",
        "    helpdesk.jsonl:3  A kernel",
        "data.allow = ",
    ):
        assert words in out, words


@pytest.mark.parametrize(
    ("environment", "coloured"), [({}, True), ({"NO_COLOR": "1"}, False), ({"TERM": "dumb"}, False)]
)
def test_a_terminal_gets_colours(
    environment: dict[str, str], coloured: bool, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("NO_COLOR", raising=False)
    monkeypatch.setenv("TERM", "xterm")
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setattr(sys.stdout, "isatty", lambda: True)
    _, out, _ = printed(capsys, "--rows", "1")
    assert ("\x1b[1m" in out) == coloured == ("[[" not in out)
    assert "\x1b[1;35m<|im_end|>\x1b[m" in out or not coloured, "a special token that is trained on"
    assert all(cells(COLOUR.sub("", line)) <= 80 for line in out.split("\n"))


def test_nothing_red_ends_well(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(StandIn, "report", NOT_RED)
    assert printed(capsys, "--report")[0] == 0
    allowed = [msgspec.structs.replace(FINDINGS[0], allowed=True)]
    monkeypatch.setattr(StandIn, "report", msgspec.structs.replace(REPORT, findings=allowed))
    code, out, _ = printed(capsys, "--report")
    assert code == 0 and "warning (allowed) placeholders" in out and "row 1" not in out


def test_what_else_would_stop_the_run_is_said_below_the_rows_with_its_own_code(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(StandIn, "refusal", HardwareError("There is no GPU here.", hint="Rent one."))
    code, out, err = printed(capsys, "--rows", "1")
    assert code == 33 and "row 1 of 4" in out and "There is no GPU here." in err and "Rent one." in err
    code, out, err = printed(capsys, "--json", "--rows", "1")
    assert code == 33 and json.loads(out)["refusal"] == {"message": "There is no GPU here.", "hint": "Rent one."}


def test_programs_get_json(capsys: pytest.CaptureFixture[str]) -> None:
    code, out, _ = printed(capsys, "--json", "--rows", "1", "--jump", "3")
    told = json.loads(out)
    assert code == 31 and msgspec.convert(told["report"], Report) == REPORT
    (row,), wanted = told["samples"], SAMPLES[2]
    assert (row["number"], row["part"]) == (3, 1), "counted from 1, as --jump counts them"
    assert [Token(**token) for token in row["tokens"]] == wanted.tokens and row["raw"] == wanted.raw


def test_the_first_rows_stand_before_the_report(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    first = [msgspec.structs.replace(one, num_rows=0, num_first=2) for one in SAMPLES[:2]]
    monkeypatch.setattr(StandIn, "first", first)
    code, out, _ = printed(capsys, "--rows", "2")
    assert code == 31 and out.startswith("The first 2 rows; reading the rest")
    assert out.index("row 1 of the first 2") < out.index("row 2 of the first 2") < out.index("warning truncated")
    assert "of 4, helpdesk" not in out, "each row once"
    for others in (["--jump", "2"], ["--report"]):
        assert "of the first" not in printed(capsys, "--rows", "2", *others)[1]
    assert json.loads(printed(capsys, "--rows", "2", "--json")[1])["samples"][1]["num_rows"] == 4


def test_which_rows(capsys: pytest.CaptureFixture[str]) -> None:
    longest = printed(capsys, "--jump", "longest", "--rows", "2")[1]
    assert re.findall(r"^row \d+", longest, re.MULTILINE) == ["row 3", "row 1"]
    assert "row 4 of 4" in printed(capsys, "--jump", "4", "--rows", "9")[1]
    assert "row 1" not in printed(capsys, "--rows", "0")[1]
    for jump in ("0", "5", "nowhere"):
        code, out, err = printed(capsys, "--jump", jump)
        assert code == 2 and out == "" and "There is no" in err
    assert printed(capsys, "--rows", "-1")[0] == 2


def test_rows_from_a_place_on(capsys: pytest.CaptureFixture[str]) -> None:
    """As findings print it; of a file that is here, its whole path is asked for."""
    asked: list[Any] = []

    class Noting(StandIn):
        def ask(self, question: str, **given: Any) -> Any:
            asked.append(given.get("where"))
            return super().ask(question, **given)

    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(preview, "Helper", Noting)
        out = printed(capsys, "--jump", "helpdesk.jsonl:3", "--rows", "9")[1]
        assert re.findall(r"^row \d+", out, re.MULTILINE) == ["row 3", "row 4"]
        assert re.findall(r"^row \d+", printed(capsys, "--jump", "x.parquet, row 2", "--rows", "1")[1], re.MULTILINE)
        printed(capsys, "--jump", "./rows.jsonl:4", "--rows", "1")
    assert [one for one in asked if one] == [
        {"file": "helpdesk.jsonl", "number": 3}, {"file": "x.parquet", "number": 2},
        {"file": str(Path("rows.jsonl").resolve()), "number": 4},
    ]  # fmt: skip


def test_a_place_in_ones_home_is_whole() -> None:
    assert parse_location(" ~/rows.jsonl:3 ") == RowLocation(str(Path.home() / "rows.jsonl"), 3)
    assert parse_location("rows.jsonl") is None and parse_location("17") is None and parse_location("3/2") is None


def test_a_row_of_one_part_has_no_second(capsys: pytest.CaptureFixture[str]) -> None:
    assert "There is no part 2: row 3 has one part." in printed(capsys, "--jump", "3/2")[2]


def test_the_heads_of_rows_that_are_cut_and_of_parts() -> None:
    """What is trained on of a row that is cut is a share of what is kept."""
    assert headline(SAMPLES[2]).endswith(": 220 tokens, 146 of the 160 kept trained (91%), 60 cut")
    part = msgspec.structs.replace(SAMPLES[0], part=1, num_parts=4, num_row_tokens=9000)
    assert ": 148 tokens of the row's 9,000, 108 trained (73%)" in headline(part)


def test_parts_of_a_long_text(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    """Where there is one row, a number is that of a part, and the parts follow; else a slash stands before it."""
    parts = [msgspec.structs.replace(SAMPLES[n % 4], number=0, num_rows=1, part=n, num_parts=9) for n in range(9)]

    class OneText(StandIn):
        report = msgspec.structs.replace(NOT_RED, num_rows=1)

        def ask(self, question: str, **given: Any) -> Any:
            if question in ("first_rows", "report", "check"):
                return super().ask(question, **given)
            by = {"next": 1, "number": 0}[given["jump"]]
            return msgspec.to_builtins(parts[min(8, given["part"] + by)])

    def heads(*arguments: str) -> list[str]:
        return re.findall(r"^row (.*? of 9)", printed(capsys, *arguments)[1], re.MULTILINE)

    monkeypatch.setattr(preview, "Helper", OneText)
    assert heads("--rows", "2") == ["1 of 1, part 1 of 9", "1 of 1, part 2 of 9"]
    assert heads("--jump", "8") == ["1 of 1, part 8 of 9", "1 of 1, part 9 of 9"]
    assert heads("--jump", "1/9", "--rows", "1") == ["1 of 1, part 9 of 9"]
    assert "There is no part 500: row 1 has 9." in printed(capsys, "--jump", "500")[2]
    assert "There is no row 2" in printed(capsys, "--jump", "2/1")[2]
    monkeypatch.setattr(OneText, "report", msgspec.structs.replace(NOT_RED, num_rows=4))
    assert heads("--jump", "1", "--rows", "1") == ["1 of 1, part 1 of 9"]
    assert "There is no row 500" in printed(capsys, "--jump", "500")[2]


def test_marks_that_no_text_has(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    chat = [("user", "a[[0]]"), ("assistant", "b <<< c")]
    monkeypatch.setattr(StandIn, "samples", [sample_of(0, chat, num_rows=1)])
    out = printed(capsys, "--rows", "1")[1]
    assert "What stands between {{{ and }}} is trained on." in out
    assert "{{{b <<< c<|im_end|>}}}" in out and "a[[0]]" in out


def test_how_much_is_not_shown(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    tokens = [Token(n, f" {n}", True, False, n >= MAX_LENGTH) for n in range(MAX_LENGTH + 60)]
    monkeypatch.setattr(StandIn, "samples", [sample(tokens)])
    out = printed(capsys, "--rows", "1")[1]
    assert re.search(r"^10 more tokens -* ?─* cut as well$", out, re.MULTILINE)


def test_errors_have_the_code_of_their_kind(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(StandIn, "problem", DataError("rows.jsonl:1: no object.", hint="One object a line."))
    assert printed(capsys) == (31, "", "error: rows.jsonl:1: no object.\n  hint: One object a line.\n")


def test_code_of_others_is_run_for_whom_says_so(capsys: pytest.CaptureFixture[str]) -> None:
    text = PROFILE.replace("[data]", f'trust_remote_code = true\nrevision = "{"0" * 40}"\n[data]')
    Path("mine.toml").write_text(text)
    assert printed(capsys, "--report")[0] == 30
    assert printed(capsys, "--report", "--allow", "remote-code")[0] == 31


def test_the_command_loads_no_training_library() -> None:
    code = (
        "import ftui.cli.preview, sys; print({'torch', 'numpy', 'transformers', 'textual', 'rich'} & set(sys.modules))"
    )
    environment = os.environ | {"PYTHONPATH": str(Path(__file__).parents[3])}
    ended = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, env=environment)
    assert ended.stdout == "set()\n", ended.stderr


@pytest.mark.parametrize("name", EVIL)
def test_foreign_text_is_only_seen(
    name: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    text = EVIL[name].encode(errors="replace").decode()
    finding = Finding(text, "error", 1, 1, text, text, examples=[Example(RowLocation(text, 1), text)])
    evil = msgspec.structs.replace(REPORT, findings=[finding], special=[text], scripts=[(text, 1.0)])
    monkeypatch.setattr(StandIn, "report", evil)
    monkeypatch.setattr(
        StandIn, "samples", [sample_of(0, [(text, text), ("assistant", text)], num_rows=1, notes=[text])]
    )
    _, out, _ = printed(capsys, "--rows", "1")
    assert not steers(out.replace("\n", "")), [ascii(line) for line in out.split("\n") if steers(line)]
    assert all(cells(line) <= 80 for line in out.split("\n"))


# -- the layout of a row


def sample(tokens: list[Token], turns: list[Turn] | None = None, **changes: Any) -> RowView:
    return msgspec.structs.replace(SAMPLES[0], tokens=tokens, turns=turns or [], num_tokens=len(tokens), **changes)


def texts(found: RowView, width: int = 40, signs: Signs = Signs()) -> list[str]:  # noqa: B008
    return ["".join(piece.text for piece in line.pieces) for line in layout_row(found, width, signs)]


def test_a_new_line_is_seen_and_is_one() -> None:
    found = sample([Token(1, "a\n\nb"), Token(2, "\n"), Token(3, "c")])
    assert texts(found) == ["a↵", "↵", "b↵", "c"]
    assert texts(found, signs=Signs("\\n", "-")) == ["a\\n", "\\n", "b\\n", "c"]


def test_a_turn_stands_below_its_role() -> None:
    found = sample(
        [Token(1, "a"), Token(2, "b", True), Token(3, "c", True)], [Turn("user", 0, 1), Turn("assistant", 1, 3)]
    )
    assert texts(found) == [
        f"user {'─' * 27} 1 token", "a", f"assistant {'─' * 10} 2 tokens, 2 trained", "bc",
    ]  # fmt: skip


def test_what_is_cut_is_told_and_never_called_trained() -> None:
    tokens = [Token(n, f" {n}", True, False, n >= 3) for n in range(5)]
    lines = layout_row(sample(tokens, max_length=3), 40, Signs(around=("[[", "]]")))
    assert [line.is_trained for line in lines] == [True, False, False]
    assert "".join(p.text for p in lines[0].pieces) == "[[ 0 1 2]]"
    assert "cut here: data.max_length = 3" in lines[1].pieces[0].text and "2 lost" in lines[1].pieces[-1].text
    assert {piece.kind for piece in lines[2].pieces} == {"cut"}


pieces = st.text(st.characters(exclude_categories=["Cs"]) | st.sampled_from(" \n日🔥\x1b\u202e"), max_size=12)


@given(st.lists(st.tuples(pieces, st.booleans(), st.booleans()), max_size=12), st.integers(8, 40), st.booleans())
def test_every_character_is_on_a_line_that_fits(each: list[tuple[str, bool, bool]], width: int, marked: bool) -> None:
    tokens = [Token(n, text, target, special) for n, (text, target, special) in enumerate(each)]
    lines = layout_row(sample(tokens), width, Signs(around=("[[", "]]") if marked else ("", "")))
    assert all(sum(cells(piece.text) for piece in line.pieces) <= width for line in lines)
    for number, token in enumerate(tokens):
        kinds = ("trained", "ignored", "trained special", "special")
        seen = "".join(p.text for line in lines for p in line.pieces if p.token == number and p.kind in kinds)
        assert len(seen) >= len(token.text.replace("\n", "")) and not steers(seen)
        trained = any(p.kind.startswith("trained") for line in lines for p in line.pieces if p.token == number)
        assert trained == (token.is_target and bool(token.text))
    assert sum(p.text == "↵" for line in lines for p in line.pieces if p.kind in ("mark", "trained mark")) == sum(
        text.count("\n") for text, _, _ in each
    )


@given(st.text(max_size=200), st.integers(8, 60))
def test_a_raw_row_fits_its_lines(raw: str, width: int) -> None:
    found = sample([], raw=raw.encode(errors="replace").decode())
    assert all(cells(line) <= width and not steers(line) for line in raw_lines(found, width))


# -- the words of the report


@pytest.mark.parametrize(
    ("share", "words"),
    [(0, "0%"), (0.0001, "<0.1%"), (0.004, "0.4%"), (0.41, "41%"), (0.9999, ">99%"), (1, "100%")],
)
def test_shares_round_to_nothing_untrue(share: float, words: str) -> None:
    assert percent(share) == words


def test_findings_stand_by_their_gravity() -> None:
    red, yellow, note = FINDINGS
    allowed = msgspec.structs.replace(red, allowed=True)
    assert sort_findings([note, yellow, red]) == [red, yellow, note] and gravity(allowed) == "warning"
    assert tally(REPORT) == [("error", "1 error"), ("warning", "1 warning"), ("note", "1 note")]
    assert 'data.allow = ["placeholders"]' in describe_fix(red) and "allowed" in describe_fix(allowed)
    assert describe_fix(yellow) == yellow.fix and REPORT.max_length == MAX_LENGTH
