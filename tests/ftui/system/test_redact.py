import io
import os
import subprocess
import sys
from unittest import mock

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from ftui.system.log_lines import LONGEST_LINE, LogLines
from ftui.system.redact import RedactingStream, redact

HUB = "hf_" + "aB3" * 12
KEY = "0123456789abcdef0123456789abcdef01234567"
SECRET = st.text(st.characters(min_codepoint=33, max_codepoint=0x24F, exclude_characters="*\x85\x7f\xa0"), min_size=8)
TEXT = st.text(st.sampled_from("ab \n:/@hf_?#\r*s3é&=-"), max_size=60)
PIECES = st.lists(
    st.sampled_from(["sk-", "sk-ant-", "?token=", "&key=", "hf_", "ghp_", "a1", "0123456789abcdefghij", "@ ", "://"])
).map("".join)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("clone https://ann:pass@host/x", "clone https://***@host/x"),
        ("https://ghp_abc@host", "https://***@host"),
        ("postgres://ann:p@ss:w@db:5432/x?y=a@b", "postgres://***@db:5432/x?y=a@b"),
        ("a://u:p@h,b://v:q@i", "a://***@h,b://***@i"),
        ("http://localhost:8080/a@b", "http://localhost:8080/a@b"),
        (f"token={HUB}.", "token=hf_***."),
        ("hf_hub_download", "hf_hub_download"),
        (f"sha1 {KEY}", f"sha1 {KEY}"),
        ("nothing to hide", "nothing to hide"),
        ("https://host/x?token=abc&b=2", "https://host/x?token=***&b=2"),
        ("https://host/x?b=2&API_KEY=abc#top", "https://host/x?b=2&API_KEY=***#top"),
        ("https://s3/x?X-Amz-Signature=00ff&X-Amz-Date=1", "https://s3/x?X-Amz-Signature=***&X-Amz-Date=1"),
        ("https://host/x?monkey=abc", "https://host/x?monkey=abc"),
        ("key sk-proj-0123456789abcdefghijklmn-_x.", "key sk-***."),
        ("key sk-ant-api03-0123456789abcdefghijklmn.", "key sk-***."),
        ("sk-learn-classification-of-2-rows", "sk-learn-classification-of-2-rows"),
        ("task-acknowledgementsandmore", "task-acknowledgementsandmore"),
        ("ghp_0123456789abcdefghij glpat-0123456789abcdefghij", "ghp_*** glpat-***"),
        ("AKIA0123456789ABCDEF", "AKIA***"),
        ("wandb_v1_0123456789abcdefghij", "wandb_v1_***"),
    ],
)
def test_known_by_place_or_look(text: str, expected: str) -> None:
    assert redact(text) == expected


@pytest.mark.parametrize("name", ["WANDB_API_KEY", "HF_TOKEN", "my_secret", "DB_PASSWORD_2", "AWS_SECRET_ACCESS_KEY"])
def test_known_by_the_name_of_a_variable(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(name, KEY)
    assert redact(f"x{KEY}y {KEY}") == "x***y ***"
    monkeypatch.setenv(name, "short")
    assert redact(f"short {KEY}") == f"short {KEY}"


@pytest.mark.parametrize("name", ["TOKENIZERS_PARALLELISM", "TOKENIZER_FOLDER", "FTUI_RUNS"])
def test_names_that_only_sound_like_it(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(name, "/data/models/base")
    assert redact("/data/models/base") == "/data/models/base"


def test_other_variables_are_no_secrets(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FTUI_HARMLESS", KEY)
    assert redact(KEY) == KEY


def test_every_line_and_every_spelling_of_a_secret(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PEM_SECRET", "first-line\nsecond-line\n")
    monkeypatch.setenv("QUOTED_PASSWORD", 'it\'s "a\\b" é/x')
    assert redact("first-line\nsecond-line") == "***\n***"
    value = os.environ["QUOTED_PASSWORD"]
    assert redact(repr(value)) == "'***'"
    assert "a" not in redact("it%27s%20%22a%5Cb%22%20%C3%A9%2Fx")


def test_of_a_secret_inside_another_nothing_is_left(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("A_TOKEN", "abcdefgh")
    monkeypatch.setenv("B_TOKEN", "abcdefgh-and-more")
    assert redact("<abcdefgh-and-more>") == "<***>"


@given(SECRET, TEXT, TEXT)
def test_no_secret_survives_whatever_surrounds_it(secret: str, before: str, after: str) -> None:
    with mock.patch.dict(os.environ, {"SOME_API_KEY": secret}):
        assert secret not in redact(before + secret + after)


@given(st.text(st.sampled_from("ab:@3%"), min_size=1), TEXT, TEXT)
def test_no_password_of_a_url_survives(password: str, before: str, after: str) -> None:
    assume(password not in redact(before) + redact(after) + "https://***@host")
    assert password not in redact(f"{before} https://ann:{password}@host {after}")


class Sink(io.StringIO):
    @property
    def encoding(self) -> str:  # type: ignore[override]
        return "latin-1"


@given(
    st.text(st.sampled_from("abc"), min_size=8, max_size=14),
    st.lists(st.one_of(TEXT, PIECES, st.none(), st.text(st.sampled_from("abc"), max_size=9))),
    st.data(),
)
def test_a_stream_hides_what_its_whole_text_hides(secret: str, parts: list[str | None], data: st.DataObject) -> None:
    """However it is cut into writes and flushes; `None` stands for the secret. Nothing else is lost or moved."""
    whole = "".join(secret if part is None else part for part in parts)
    cuts = sorted(data.draw(st.lists(st.integers(0, len(whole)))))
    with mock.patch.dict(os.environ, {"SOME_TOKEN": secret, "OTHER_TOKEN": secret + "ab"}):
        sink, start = Sink(), 0
        stream = RedactingStream(sink)
        for end in [*cuts, len(whole)]:
            stream.write(whole[start:end])
            if data.draw(st.booleans()):
                stream.flush()
                assert secret not in sink.getvalue()
            start = end
        stream.finish()
        log = LogLines()
        assert sink.getvalue() == log.take(redact(whole)) + log.finish()


def test_a_flush_lets_out_all_that_is_no_beginning_of_a_secret(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SOME_TOKEN", "correct-horse")
    sink = Sink()
    stream = RedactingStream(sink)
    stream.write("10% done")
    assert sink.getvalue() == ""
    stream.flush()
    assert sink.getvalue() == "10% done"
    stream.write(" with correct-")
    stream.flush()
    assert sink.getvalue() == "10% done with "
    stream.write("horse")
    stream.flush()
    assert sink.getvalue() == "10% done with ***"
    stream.writelines(["\n", "a\nb"])
    assert sink.getvalue() == "10% done with ***\na\n"


@pytest.mark.slow
def test_a_line_without_end_is_not_kept_for_ever() -> None:
    sink = Sink()
    stream = RedactingStream(sink)
    for _ in range(200):
        stream.write("://" + "x" * 1000)
    assert len(sink.getvalue()) == LONGEST_LINE
    stream.write("\nnext")
    stream.finish()
    assert sink.getvalue().endswith(f" ... {200 * 1003 - LONGEST_LINE:,} more characters\nnext")


def test_everything_else_is_the_streams_own() -> None:
    stream = RedactingStream(Sink())
    assert stream.encoding == "latin-1"
    assert stream.isatty() is False
    with pytest.raises(io.UnsupportedOperation):
        stream.fileno()


def test_what_a_program_prints_is_redacted_to_its_last_word_and_traceback() -> None:
    code = (
        "import sys; from ftui.system.redact import redact_output; redact_output()\n"
        "print('half of', sys.argv[1][:9], end='', flush=True); print(sys.argv[1][9:], 'last h', end='')\n"
        "raise SystemError(sys.argv[1])"
    )
    result = subprocess.run(
        [sys.executable, "-c", code, KEY], env=os.environ | {"X_TOKEN": KEY}, capture_output=True, text=True
    )
    assert result.stdout == "half of *** last h"
    assert result.stderr.endswith("SystemError: ***\n")
