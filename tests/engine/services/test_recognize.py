"""What the form says of a folder is what a run reads of it."""

import json
from pathlib import Path

import pytest

from ftui.engine.data.files.folders import list_files
from ftui.engine.services.recognize import describe_folder
from ftui.errors import DataError


def make(top: Path, *names: str, **texts: str) -> Path:
    for name in names:
        (top / name).parent.mkdir(parents=True, exist_ok=True)
        (top / name).write_text('{"text": "a"}\n')
    for name, text in texts.items():
        (top / f"{name}.json").write_text(text)
    return top


@pytest.mark.parametrize(("names", "first", "left_out"), [
    (("a.jsonl", "b.jsonl"), "2 files of rows to train on: a.jsonl, b.jsonl", []),
    (("train.jsonl", "test.jsonl"), "1 file of rows to train on: train.jsonl", ['the split "test", not trained on']),
    (("train/a.jsonl", "train/b.jsonl", "dev/c.jsonl"), "2 files of rows to train on: train/a.jsonl, train/b.jsonl",
     ['the split "validation", not trained on']),
    (("data/train-00000-of-00002.jsonl", "data/train-00001-of-00002.jsonl", "data/test-00000-of-00001.jsonl"),
     "2 files of rows to train on: data/train-00000-of-00002.jsonl, data/train-00001-of-00002.jsonl",
     ['the split "test", not trained on']),
    (("a.jsonl", "b.jsonl", "c.jsonl", "d.jsonl", "e.jsonl"),
     "5 files of rows to train on: a.jsonl, b.jsonl, c.jsonl and 2 more", []),
])  # fmt: skip
def test_splits_and_shards_are_told(tmp_path: Path, names: tuple[str, ...], first: str, left_out: list[str]) -> None:
    words = describe_folder(lambda detail: None, str(make(tmp_path, *names)))
    assert words[0] == first and words[1:] == [note.replace(f"{tmp_path}/", "") for note in list_files(tmp_path).notes]
    assert len(words[1:]) == len(left_out) and all(part in word for part, word in zip(left_out, words[1:], strict=True))


def test_a_data_set_of_save_to_disk_is_told_by_its_splits(tmp_path: Path) -> None:
    make(tmp_path, dataset_dict=json.dumps({"splits": ["train", "test"]}))
    for split in ("train", "test"):
        (tmp_path / split).mkdir()
        (tmp_path / split / "data-00000-of-00001.arrow").write_bytes(b"x")
        (tmp_path / split / "state.json").write_text(
            json.dumps({"_data_files": [{"filename": "data-00000-of-00001.arrow"}]})
        )
    first, other = describe_folder(lambda detail: None, str(tmp_path))
    assert first == "1 file of rows to train on: train/data-00000-of-00001.arrow" and 'the split "test"' in other


@pytest.mark.parametrize(("names", "words"), [((), "There is no file of rows in"), (("a.pdf",), "no file of rows")])
def test_what_a_run_would_refuse_is_refused(tmp_path: Path, names: tuple[str, ...], words: str) -> None:
    with pytest.raises(DataError, match=words):
        describe_folder(lambda detail: None, str(make(tmp_path, *names)))
