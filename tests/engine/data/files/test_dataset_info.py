"""Entries of LLaMA-Factory's dataset_info.json: what its own parser makes of them, in our words."""

import json
from pathlib import Path
from typing import Any

import pytest

from ftui.engine.data.files.dataset_info import resolve_entry
from ftui.engine.data.forms.examples import trained_part
from ftui.engine.data.forms.formats import Chat, ColumnNames, to_example
from ftui.engine.data.sources import find_sources
from ftui.errors import DataError
from ftui.profile.sections.data import DataSection, DataSource
from ftui.profile.sections.row_forms import RANKED
from tests.support.data_rows import read_rows

# Columns of which an entry says nothing: beside a question, and what else pairs and verdicts may have
UNREAD = dict.fromkeys(("context", "history", "input", "system", "system_prompt", "tools"), "")
OF_PAIRS = dict.fromkeys(("conversations", "instruction", "messages", "prompt", "margin", *RANKED), "")
OF_VERDICTS = dict.fromkeys(("completion", "instruction", "label", "messages", "output", "prompt"), "") | dict.fromkeys(
    ("answer", "question", "response"), ""
)
USER, ASSISTANT = {"role": "user", "content": "why?"}, {"role": "assistant", "content": "so"}


def entry(folder: Path, value: Any, **source: Any) -> DataSource:
    (folder / "rows.jsonl").touch()
    (folder / "dataset_info.json").write_text(json.dumps({"mine": value}), encoding="utf-8-sig")
    return resolve_entry(DataSource(path=str(folder / "dataset_info.json"), subset="mine", **source))


@pytest.mark.parametrize(
    ("value", "row", "messages"),
    [
        ({}, {"instruction": "why?", "input": "", "output": "so"}, [USER, ASSISTANT]),
        ({"columns": {"prompt": "q", "response": "a"}}, {"q": "why?", "a": "so", "input": "x", "system": "be"},
         [USER, ASSISTANT]),
        (
            {"columns": {"prompt": "q", "query": "more", "response": "a", "system": "s", "history": "h"}},
            {"q": "why?", "more": "", "a": "so", "s": "be", "h": [["1", "2"]]},
            [
                {"role": "system", "content": "be"},
                {"role": "user", "content": "1"},
                {"role": "assistant", "content": "2"},
                USER,
                ASSISTANT,
            ],
        ),
        (
            {"formatting": "sharegpt"},
            {"conversations": [{"from": "human", "value": "why?"}, {"from": "gpt", "value": "so"}]},
            [USER, ASSISTANT],
        ),
        (
            {
                "formatting": "sharegpt",
                "columns": {"messages": "talk"},
                "tags": {"role_tag": "who", "content_tag": "what", "user_tag": "me", "assistant_tag": "system",
                         "system_tag": "rule"},
            },
            {"talk": [{"who": "rule", "what": "be"}, {"who": "me", "what": "why?"}, {"who": "system", "what": "so"}]},
            [{"role": "system", "content": "be"}, USER, ASSISTANT],
        ),
        (
            {"formatting": "openai", "columns": {"messages": "messages"}, "tags": {"role_tag": "role"}},
            {"messages": [USER, ASSISTANT]},
            [USER, ASSISTANT],
        ),
    ],
)  # fmt: skip
def test_rows_of_an_entry(value: dict[str, Any], row: dict[str, Any], messages: list[Any], tmp_path: Path) -> None:
    source = entry(tmp_path, value | {"file_name": "rows.jsonl"})
    assert Path(source.path) == tmp_path / "rows.jsonl"
    (tmp_path / "rows.jsonl").write_text(json.dumps(row))
    (read,) = read_rows(Path(source.path))
    example = to_example(read, str(source.format), ColumnNames(source.columns, source.roles))
    assert vars(example)["messages"] == messages


def test_what_else_an_entry_says(tmp_path: Path) -> None:
    ranked = {"ranking": True, "columns": {"prompt": "q", "chosen": "good", "rejected": "bad"}, "num_samples": 7}
    source = entry(tmp_path, ranked | {"file_name": "rows.jsonl", "subset": "x", "split": "train"})
    assert source.format == "preference" and source.num_samples == 7 and source.subset is source.split is None
    assert source.columns == {"question": "q", "chosen": "good", "rejected": "bad"} | UNREAD | OF_PAIRS
    judged = {"formatting": "sharegpt", "columns": {"messages": "conversations", "kto_tag": "ok"}}
    source = entry(tmp_path, judged | {"hf_hub_url": "o/n", "ms_hub_url": "m/n", "subset": "en", "split": "test"})
    assert (source.path, source.subset, source.split, source.format) == ("o/n", "en", "test", "kto")
    assert source.columns == {"kto_tag": "ok"} | UNREAD | OF_VERDICTS
    texts = entry(tmp_path, {"file_name": "rows.jsonl", "columns": {"prompt": "body"}})
    assert texts.format == "text" and texts.columns == {"text": "body"}


ANSWERS = {"chosen": "so", "rejected": "no"}


@pytest.mark.parametrize(
    ("value", "row"),
    [
        ({"columns": {"prompt": "q", "response": "a"}}, {"q": "why?", "a": "so", "system_prompt": "be"}),
        ({"ranking": True, "columns": {"prompt": "q"} | dict(zip(ANSWERS, ANSWERS, strict=True))},
         {"q": "why?", "prompt": "what?", "conversations": [], **ANSWERS}),
        ({"ranking": True, "columns": {"prompt": "q", "query": "m"} | dict(zip(ANSWERS, ANSWERS, strict=True))},
         {"q": "why?", "m": "", "prompt": "what?", **ANSWERS}),
        ({"ranking": True, "formatting": "sharegpt", "columns": dict(zip(ANSWERS, ANSWERS, strict=True))},
         {"conversations": [{"from": "human", "value": "why?"}], "prompt": "what?", **ANSWERS}),
        ({"columns": {"prompt": "q", "response": "a", "kto_tag": "good"}},
         {"q": "why?", "a": "so", "good": True, "label": False, "messages": [ASSISTANT]}),
    ],
)  # fmt: skip
def test_columns_that_an_entry_does_not_name_are_not_read(
    value: dict[str, Any], row: dict[str, Any], tmp_path: Path
) -> None:
    """Whatever they are called: the prompt is the column that is named, not one that the form would look at first."""
    source = entry(tmp_path, value | {"file_name": "rows.jsonl"})
    (tmp_path / "rows.jsonl").write_text(json.dumps(row))
    (read,) = read_rows(Path(source.path))
    trained = trained_part(to_example(read, str(source.format), ColumnNames(source.columns, source.roles)))
    assert isinstance(trained, Chat) and trained.messages == [USER, ASSISTANT]


def test_the_profile_comes_before_the_entry(tmp_path: Path) -> None:
    columns = {"prompt": "q", "query": "c", "response": "a"}
    mine = {"columns": {"output": "b"}, "num_samples": 3, "weight": 2.0, "encoding": "cp1252"}
    source = entry(tmp_path, {"file_name": "rows.jsonl", "columns": columns, "num_samples": 9}, **mine)
    assert source.columns == UNREAD | {"instruction": "q", "input": "c", "output": "b"} and source.num_samples == 3
    assert (source.weight, source.encoding) == (2.0, "cp1252")
    told = entry(tmp_path, {"file_name": "rows.jsonl", "columns": columns}, format="text")
    assert told.format == "text" and told.columns == {"text": "q"}


@pytest.mark.parametrize(
    ("value", "reason"),
    [
        (
            {"file_name": "rows.jsonl", "columns": {"images": "pictures"}},
            "'mine' has images: only text can be trained on.",
        ),
        ({"ms_hub_url": "o/n"}, "'mine' lies on ModelScope (ms_hub_url), from where nothing is read."),
        ({"script_url": "make.py"}, "'mine' is made by a script (script_url), from where nothing is read."),
        ({"hf_hub_url": "squad"}, "'mine' has the hub's name 'squad'."),
        ({"hf_hub_url": "o/n", "folder": "python"}, "'mine' is one folder of a data set, and these are read whole."),
        ({"file_name": "gone.json"}, "'mine' names gone.json, and there is no such file beside dataset_info.json."),
        ({"file_name": "rows.jsonl", "formatting": "x"}, "'mine' has the formatting 'x'."),
        ({"file_name": "rows.jsonl", "columns": ["a"]}, "'mine' has columns that are no table of names."),
        ({"file_name": "rows.jsonl", "num_samples": "7 of them"}, "'mine' has a value of a wrong kind."),
        ({}, "'mine' names no file (file_name) and no data set of the hub (hf_hub_url)."),
        ("rows.jsonl", "has no data set 'mine'."),
    ],
)
def test_an_entry_that_cannot_be_read_is_refused_by_name(value: Any, reason: str, tmp_path: Path) -> None:
    with pytest.raises(DataError) as caught:
        entry(tmp_path, value)
    assert caught.value.message == f"{tmp_path / 'dataset_info.json'}: {reason}".replace(": has no", " has no")


def test_a_source_of_a_profile(tmp_path: Path) -> None:
    (tmp_path / "folder").mkdir()
    (tmp_path / "folder" / "a.jsonl").write_text("{}")
    (tmp_path / "folder" / "dataset_info.json").write_text("{}")
    entry(tmp_path, {"file_name": "folder", "columns": {"prompt": "q", "response": "a"}, "num_samples": 5})
    given = DataSource(path=str(tmp_path / "dataset_info.json"), subset="mine")
    (found,) = find_sources(DataSection(train=(given,)), lambda words: None)
    assert found.places == (tmp_path / "folder" / "a.jsonl",) and found.form == "question_answer"
    assert found.shape == ColumnNames({"question": "q", "answer": "a"} | UNREAD, {}) and found.num_samples == 5
    with pytest.raises(DataError) as caught:
        find_sources(DataSection(train=str(tmp_path / "dataset_info.json")), lambda words: None)
    assert '{ path = "dataset_info.json", subset = "mine" }. There are mine.' in caught.value.hint
    with pytest.raises(DataError) as caught:
        find_sources(DataSection(train=(given.model_copy(update={"subset": "nine"}),)), lambda words: None)
    assert "Is 'mine' meant?" in caught.value.hint
