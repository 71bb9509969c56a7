"""Rows as they are shown: the tokens of the store and their text, what is trained on, who speaks, how to get there."""

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import pytest
from transformers import AutoTokenizer

from ftui.dataset.report import Report
from ftui.dataset.row import RowView
from ftui.engine.data.files import blocks, plain_text
from ftui.engine.inspection import browser
from ftui.engine.services.profile_text import given_profile
from ftui.errors import DataError, ProfileError
from ftui.helper.client import Helper
from ftui.profile.serialize import to_toml
from tests.support.tiny import chats, completions, make_profile, write_rows

CHATS = chats(30)
WORDS = ["the", "a", "kernel", "shell", "daemon", "prints", "reads", "forks", "quietly"]


@pytest.fixture(autouse=True)
def forget() -> None:
    browser._open_browsers.clear()


@pytest.fixture(scope="module")
def bare(model_folder: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Config and tokenizer, no weights."""
    folder = tmp_path_factory.mktemp("bare")
    for path in model_folder.iterdir():
        if path.suffix != ".safetensors":
            shutil.copy(path, folder)
    return folder


Opened = Callable[..., str]


@pytest.fixture
def profile(bare: Path, tmp_path: Path) -> Opened:
    """The text of a profile for some rows."""

    def made(rows: Any, name: str = "rows.jsonl", stage: str = "sft", **data: Any) -> str:
        path = write_rows(tmp_path / name, rows) if isinstance(rows, list) else tmp_path / name
        if isinstance(rows, bytes):
            path.write_bytes(rows)
        return to_toml(make_profile(bare, path, run={"stage": stage}, data=data))

    return made


def sample(text: str, jump: str = "number", **given: Any) -> RowView:
    found = browser.view_row(text, jump, lambda detail: None, **given)
    assert msgspec.convert(msgspec.to_builtins(found), RowView) == found, "it goes over a pipe"
    return found


def text_of(found: RowView, kind: Callable[[Any], bool] = lambda token: True) -> str:
    return "".join(token.text for token in found.tokens if kind(token))


def test_a_conversation_is_what_its_template_makes_of_it(profile: Opened, bare: Path) -> None:
    """The oracle is the tokenizer itself; what is trained on are the answers, each with the mark that ends it."""
    tokenizer, text = AutoTokenizer.from_pretrained(bare), profile(CHATS)
    for number, row in enumerate(CHATS[:8]):
        found = sample(text, number=number)
        assert text_of(found) == tokenizer.apply_chat_template(row["messages"], tokenize=False)
        assert [token.id for token in found.tokens] == tokenizer.apply_chat_template(row["messages"], return_dict=False)
        said = [m["content"] + "<|im_end|>" for m in row["messages"] if m["role"] == "assistant"]
        assert text_of(found, lambda token: token.is_target) == "".join(said)
        assert text_of(found, lambda token: token.is_special) == "<|im_start|><|im_end|>" * len(row["messages"])
        assert [turn.role for turn in found.turns] == [message["role"] for message in row["messages"]]
        for turn, message in zip(found.turns, row["messages"], strict=True):
            assert message["content"] in "".join(token.text for token in found.tokens[turn.start : turn.end])
        assert (found.number, found.num_rows, found.where.number, found.form) == (number, 30, number + 1, "messages")
        assert json.loads(found.raw) == row and found.raw.count("\n") > 5 and found.notes == []
        assert found.num_target_tokens == sum(token.is_target for token in found.tokens)


def test_prompt_and_completion(profile: Opened) -> None:
    rows = completions(3)
    found = sample(profile(rows), number=1)
    assert text_of(found, lambda token: token.is_target) == rows[1]["completion"] + "<|im_end|>"
    assert [turn.role for turn in found.turns] == ["prompt", "completion"]
    assert "".join(token.text for token in found.tokens[: found.turns[1].start]) == rows[1]["prompt"]


def test_every_character_is_told_once(profile: Opened) -> None:
    """Also those of several tokens each."""
    said = "日本語 🔥 e\u0301\t\u00a0x\n\n👩‍💻"
    found = sample(profile([{"prompt": "?", "completion": said}]))
    assert text_of(found) == f"?{said}<|im_end|>" and any(not token.text for token in found.tokens)


def test_what_is_cut_is_not_trained_on(profile: Opened) -> None:
    text = profile(CHATS, max_length=20)
    found = sample(text, "most_truncated")
    assert found.num_tokens == max(len(sample(text, number=n).tokens) for n in range(30)) > 20
    assert [token.is_cut for token in found.tokens] == [n >= 20 for n in range(found.num_tokens)]
    assert found.num_target_tokens == sum(token.is_target for token in found.tokens[:20])
    nothing = sample(profile([{"prompt": "a kernel " * 20, "completion": "x"}], name="late.jsonl", max_length=20))
    assert nothing.num_target_tokens == 0 and "beyond data.max_length = 20" in nothing.notes[-1]
    uncut = sample(profile(CHATS, name="more.jsonl", max_length=2000), "most_truncated")
    assert uncut.num_tokens == found.num_tokens
    assert "No row is cut: none is longer than data.max_length = 2,000" in uncut.notes[0]


def test_jumps_lead_where_they_say(profile: Opened) -> None:
    text = profile(CHATS, max_length=40)
    rows = [sample(text, number=n) for n in range(30)]
    lengths = [one.num_tokens for one in rows]
    shares = [one.num_target_tokens / min(one.num_tokens, 40) for one in rows]
    for rank in range(5):
        assert sample(text, "longest", number=rank).num_tokens == sorted(lengths)[-1 - rank]
        assert sample(text, "shortest", number=rank).num_tokens == sorted(lengths)[rank]
        least = sample(text, "least_trained", number=rank)
        assert least.num_target_tokens / min(least.num_tokens, 40) == pytest.approx(sorted(shares)[rank])
    assert sample(text, "longest", number=30) == sample(text, "longest")
    assert len({sample(text, "random", seed=n).number for n in range(40)}) > 10
    assert [sample(text, "next", number=n).number for n in (0, 28, 29)] == [1, 29, 29]
    assert [sample(text, "previous", number=n).number for n in (29, 1, 0)] == [28, 0, 0]
    assert sample(text, number=99).number == 29 and sample(text, number=-1).number == 0


def test_a_long_text_comes_in_the_parts_the_model_sees(profile: Opened) -> None:
    long = " ".join(WORDS * 12)
    text = profile([{"text": "short one"}, {"text": long}, {"text": "the end"}], stage="pretrain", max_length=32)
    seen, at, parts = [], sample(text), []
    while True:
        seen.append((at.number, at.part))
        parts.append(text_of(at))
        assert len(at.tokens) == at.num_tokens <= 32 and not any(token.is_cut for token in at.tokens)
        assert [token.is_target for token in at.tokens] == [False] + [True] * (at.num_tokens - 1)
        after = sample(text, "next", number=at.number, part=at.part)
        if (after.number, after.part) == seen[-1]:
            break
        at = after
    assert "".join(parts[1:-1]) == long + "<|im_end|>" and [part for _, part in seen] == [0, *range(len(seen) - 2), 0]
    for (number, part), before in zip(seen[1:], seen, strict=False):
        back = sample(text, "previous", number=number, part=part)
        assert (back.number, back.part) == before


def test_no_part_is_a_token_alone(profile: Opened) -> None:
    """As in the run: one token would be predicted from nothing."""
    text = " ".join(WORDS)
    one = sample(profile([{"text": text}], stage="pretrain"))
    whole = one.num_tokens
    assert one.num_row_tokens == whole
    short = profile([{"text": text}], stage="pretrain", max_length=whole - 1)
    assert [sample(short, part=n).num_tokens for n in range(2)] == [whole - 2, 2]
    assert [sample(short, part=n).num_row_tokens for n in range(2)] == [whole, whole], "of all parts together"


def test_tokens_of_somebody_else(profile: Opened, bare: Path) -> None:
    tokenizer = AutoTokenizer.from_pretrained(bare)
    ids = tokenizer("a kernel 日本🔥 reads").input_ids
    found = sample(profile([{"input_ids": ids, "labels": [-100, *ids[1:]]}]))
    assert [token.id for token in found.tokens] == ids and text_of(found) == "a kernel 日本🔥 reads"
    assert [token.is_target for token in found.tokens] == [False] + [True] * (len(ids) - 1)


def test_searching(profile: Opened, tmp_path: Path) -> None:
    rows = [{"text": t} for t in ("Kernel a", "shell", "kernel 日本", 'say "hi"\n', "KERNEL c")]
    text = profile(rows)

    def search(wanted: str, after: int = -1) -> int | None:
        found = browser.search_rows(text, wanted, after, lambda detail: None)
        return None if found is None else found.number

    assert [search("kernel", after) for after in (-1, 0, 1, 2, 3, 4)] == [0, 2, 2, 4, 4, 0]
    assert search("shell", 1) == 1, "all the way round"
    assert (search("日本"), search('"hi"'), search("nowhere")) == (2, 3, None)


def test_files_without_a_row_are_passed_over_by_a_search_too(profile: Opened, tmp_path: Path) -> None:
    """First, between and last in a folder."""
    for name, rows in (("b", [{"text": "kernel a"}]), ("d", [{"text": "shell"}])):
        write_rows(tmp_path / "folder" / f"{name}.jsonl", rows)
    for name in "ace":
        (tmp_path / "folder" / f"{name}.jsonl").touch()
    text = profile(None, name="folder")
    for wanted, number in (("kernel", 0), ("shell", 1), ("nowhere", None)):
        found = browser.search_rows(text, wanted, 0, lambda detail: None)
        assert (None if found is None else found.number) == number


def test_pieces_of_one_long_line_are_searched_apart(profile: Opened, monkeypatch: pytest.MonkeyPatch) -> None:
    """They have the same place, as all of text8 has: of each only the byte at which it begins tells which it is."""
    monkeypatch.setattr(plain_text, "PIECE", 400)
    monkeypatch.setattr(blocks, "LARGE", 400)
    words = [f"w{number:03}" for number in range(400)]
    text = profile(" ".join(words).encode(), name="line.txt", stage="pretrain")
    for wanted in ("w000", "w123", "w250", "w398"):
        found = browser.search_rows(text, wanted, 0, lambda detail: None)
        assert found is not None and found.where.number == 1 and found.num_rows == 5
        ((start, end),) = found.hits
        assert wanted in "".join(token.text for token in found.tokens[start:end])


def test_a_row_by_its_place(profile: Opened, tmp_path: Path) -> None:
    """Rows that are left out have no number; several sources are numbered one after the other."""
    good = [json.dumps({"text": word}).encode() for word in WORDS]
    profile(b"\n".join([good[0], b"{broken", *good[1:4]]) + b"\n", name="one.jsonl")
    profile(b"\n".join(good[4:6]) + b"\n", name="two.jsonl")
    paths = [str(tmp_path / name) for name in ("one.jsonl", "two.jsonl")]
    text = profile([], name="none.jsonl", train=paths, on_bad_row="skip")

    def at(file: str, number: int) -> RowView:
        return sample(text, where={"file": file, "number": number, "unit": "line"})

    assert [(at(paths[0], n).number, json.loads(at(paths[0], n).raw)["text"]) for n in (1, 3, 5)] == [
        (0, WORDS[0]), (1, WORDS[1]), (3, WORDS[3]),
    ]  # fmt: skip
    assert at(paths[1], 2).number == 5 and at(paths[1], 2).source == paths[1]
    for file, number in ((paths[0], 2), (paths[1], 3), ("/elsewhere", 1)):
        with pytest.raises(DataError, match=r"is no row of data\.train"):
            at(file, number)
    assert at(paths[0], 1).where.unit == "line"
    for named in (
        "two.jsonl",
        "./two.jsonl",
        f"{tmp_path.name}/two.jsonl",
        "…o.jsonl",
        "~o.jsonl",
    ):  # as findings print it
        assert at(named, 2).number == 5
    for vague in ("o.jsonl", "…e.jsonl"):
        with pytest.raises(DataError, match=r"is no row of data\.train"):
            at(vague, 2)
    with pytest.raises(DataError, match=r"may be .*one\.jsonl or .*two\.jsonl"):
        at("….jsonl", 1)


def test_what_is_odd_is_told(profile: Opened) -> None:
    rows = [
        {"messages": [{"role": "user", "content": "a"}, {"role": "assistant", "content": "{{name}} is it"}]},
        {"messages": [{"role": "user", "content": "a"}]},
    ]
    text = profile(rows)
    assert any("placeholder" in note for note in sample(text).notes)
    assert any("left out" in note for note in sample(text, number=1).notes)


def test_a_file_that_changes_is_noticed(profile: Opened, tmp_path: Path) -> None:
    text = profile([{"text": "a kernel"}, {"text": "a shell"}])
    sample(text)
    write_rows(tmp_path / "rows.jsonl", [{"text": "a daemon"}])
    assert any("has changed" in note for note in sample(text).notes)
    with pytest.raises(DataError, match="changed"):
        sample(text, number=1)


def test_what_is_wrong_is_told(profile: Opened) -> None:
    with pytest.raises(DataError, match=r"rows\.jsonl:2"):
        sample(profile(b'{"text": "a"}\n{"text": \n'))
    with pytest.raises(DataError, match="is not a string"):
        sample(profile(b'{"text": 1}\n{"text": 2}\n', on_bad_row="skip", format="text"))
    with pytest.raises(ProfileError):
        sample("[run]\n")


@pytest.mark.slow
def test_the_helper_answers_and_tells_how_far_it_is(profile: Opened) -> None:
    """The process itself, once: details come before the answer, and an answer longer than a pipe comes whole."""
    long = [{"text": " ".join(WORDS * 800)}]
    told, helper = list[str](), Helper()
    resolved = given_profile(profile(long))
    try:
        found = msgspec.convert(helper.ask("sample", on_detail=told.append, profile=resolved, jump="longest"), RowView)
        assert found.raw.startswith('{\n  "text": "the a kernel') and len(found.tokens) > 2000 and told
        report = msgspec.convert(helper.ask("report", profile=resolved), Report)
        assert report.num_rows == 1 and any(finding.name == "few_rows" for finding in report.findings)
        assert helper.ask("search", profile=resolved, text="nowhere", after=0) is None
        with pytest.raises(DataError):
            helper.ask("sample", profile=resolved, jump="number", where={"file": "x", "number": 1})
    finally:
        helper.close()


def test_parts_of_a_long_text_are_gone_to_and_searched(profile: Opened) -> None:
    """By their number, at random, and by what stands in them: the tokens of it are told, also over a part's end."""
    words = [f"w{n:03}" for n in range(400)]
    words[250] = "white\nWhale"
    text = profile([{"text": " ".join(words)}], stage="pretrain", max_length=32)
    first = sample(text)
    assert first.num_rows == 1 and first.num_parts > 20
    assert sample(text, part=17).part == 17 and sample(text, part=9999).part == first.num_parts - 1
    seen = {sample(text, "random", seed=seed).part for seed in range(60)}
    assert len(seen) > 15 and max(seen) > first.num_parts * 3 // 4

    def search(wanted: str, part: int) -> RowView | None:
        return browser.search_rows(text, wanted, 0, lambda detail: None, part)

    def said(found: RowView) -> list[str]:
        return ["".join(token.text for token in found.tokens[start:end]) for start, end in found.hits]

    whale = search("white whale", 0)
    assert whale is not None and whale.part > 5 and "white\nWhale".startswith(said(whale)[0].strip())
    ends = [sample(text, part=part) for part in range(first.num_parts)]
    for part in range(1, first.num_parts):
        wanted = text_of(ends[part]).split()[1]  # not the first word: the part before may have its beginning
        found = search(wanted, part - 1)
        assert found is not None and found.part == part and wanted in "".join(said(found)[0]), wanted
        again = search(wanted, part)
        assert again is not None and again.part <= part, "from the start again"
    uncut = sample(text, "most_truncated")
    assert "No row is cut: text is split" in uncut.notes[0]


def test_what_is_found_beyond_the_limit_is_shown(profile: Opened) -> None:
    """Of a row that is cut, the first 2,000 tokens that are lost, more where they are asked for or searched."""
    said = " ".join([*["the daemon forks"] * 1500, "needle", *["a shell"] * 900])
    text = profile([{"prompt": "?", "completion": said}, {"prompt": "?", "completion": "b"}], max_length=40)
    short = sample(text)
    assert len(short.tokens) == 2040 < short.num_tokens and "needle" not in text_of(short)
    whole = sample(text, most_cut=10**6)
    assert len(whole.tokens) == whole.num_tokens and "needle" in text_of(whole)
    found = browser.search_rows(text, "NEEDLE", 1, lambda detail: None)
    assert found is not None and found.number == 0
    ((start, end),) = found.hits
    assert "needle" in "".join(token.text for token in found.tokens[start:end])
    assert all(token.is_cut for token in found.tokens[start:end]) and len(found.tokens) < whole.num_tokens


def test_a_part_of_a_text_is_told_as_it_stands_in_its_file(profile: Opened) -> None:
    """Hard-wrapped lines as they are, from the line on which the part begins; of JSON from where the part does."""
    paragraphs = [[" ".join(f"w{p:02}x{n:02}{m}" for m in range(6)) for n in range(9)] for p in range(20)]
    plain = "\n\n".join("\n".join(lines) for lines in paragraphs) + "\n"
    text = profile(plain.encode(), name="book.txt", stage="pretrain", max_length=200)
    for part in (0, 1, 7, sample(text).num_parts - 1):
        found = sample(text, part=part)
        assert found.raw in plain and found.raw_line is not None
        assert plain.split("\n")[found.raw_line - 1] == found.raw.split("\n")[0]
        inside = text_of(found).removesuffix("<|im_end|>").split()[1:-1]
        assert set(inside) <= set(found.raw.split()) and len(found.raw.split()) < len(inside) + 14
    assert sample(text).raw_line == 1
    as_json = profile([{"text": plain}], name="book.jsonl", stage="pretrain", max_length=200)
    later = sample(as_json, part=5)
    assert "characters before\n" in later.raw and text_of(later).split()[1] in later.raw[:60] and later.raw_line is None
