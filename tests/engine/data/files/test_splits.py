"""A folder of a data set: which of its files are trained on, and which are told and offered to evaluate on."""

import json
import tomllib
from pathlib import Path
from typing import Any

import pytest

from ftui.engine.data.files.folders import list_files
from ftui.engine.data.load_rows import load_data
from ftui.engine.data.sources import find_sources
from ftui.engine.inspection.report import make_report
from ftui.engine.training.prepare import prepare
from ftui.errors import DataError
from ftui.profile.sections.data import DataSection
from tests.support.tiny import chats, make_profile, write_rows

CARD = """---
license: mit
configs:
- config_name: default
  data_files:
  - {split: train, path: "data/train-*"}
  - {split: test, path: ["data/test-*", "more/t*.jsonl"]}
---
# Rows
"""
TWO = """---
configs:
- {config_name: en, data_dir: english}
- {config_name: de, data_files: "german/*.jsonl"}
---
"""
# name: (card, files, those trained on, split: files of it, those of none)
FOLDERS: dict[str, tuple[str, list[str], list[str], dict[str, list[str]], list[str]]] = {
    "card": (
        CARD,
        ["data/train-00000-of-00001.jsonl", "data/test-00000-of-00001.jsonl", "more/t1.jsonl", "more/x.jsonl"],
        ["data/train-00000-of-00001.jsonl"],
        {"test": ["data/test-00000-of-00001.jsonl", "more/t1.jsonl"]},
        ["more/x.jsonl"],
    ),
    "card, and a split it does not name": (
        CARD,
        ["data/train-a.jsonl", "data/test-a.jsonl", "data/validation-a.jsonl"],
        ["data/train-a.jsonl"],
        {"test": ["data/test-a.jsonl"], "validation": ["data/validation-a.jsonl"]},
        [],
    ),
    "card with one pattern": (
        '---\nconfigs:\n- {config_name: x, data_files: "rows/*.csv"}\n---\n',
        ["rows/a.csv", "b.csv"], ["rows/a.csv"], {}, ["b.csv"],
    ),
    "card without subsets": ("---\nlicense: mit\n---\n", ["a.jsonl", "b.jsonl"], ["a.jsonl", "b.jsonl"], {}, []),
    "no card": ("", ["a.jsonl", "sub/b.jsonl"], ["a.jsonl", "sub/b.jsonl"], {}, []),
    "shards": (
        "",
        [f"{name}-0000{n}-of-00002.jsonl" for name in ("train", "test", "challenge") for n in (0, 1)],
        ["train-00000-of-00002.jsonl", "train-00001-of-00002.jsonl"],
        {name: [f"{name}-0000{n}-of-00002.jsonl" for n in (0, 1)] for name in ("challenge", "test")},
        [],
    ),
    "shards of one thing": ("", ["part-00000-of-00002.jsonl", "part-00001-of-00002.jsonl"],
                            ["part-00000-of-00002.jsonl", "part-00001-of-00002.jsonl"], {}, []),
    "files": ("", ["train.jsonl", "dev.jsonl", "test.csv"], ["train.jsonl"],
              {"validation": ["dev.jsonl"], "test": ["test.csv"]}, []),
    "other spellings": ("", ["gsm_Training.jsonl", "gsm_val.jsonl", "eval 2.jsonl.gz"], ["gsm_Training.jsonl"],
                        {"validation": ["gsm_val.jsonl"], "test": ["eval 2.jsonl.gz"]}, []),
    "folders": ("", ["train/a.jsonl", "test/b.jsonl", "validation/test-c.jsonl"], ["train/a.jsonl"],
                {"test": ["test/b.jsonl"], "validation": ["validation/test-c.jsonl"]}, []),
    "one beside rows": ("", ["rows.jsonl", "rows_heldout.jsonl"], ["rows.jsonl"], {"test": ["rows_heldout.jsonl"]}, []),
    "train and others": ("", ["extra.jsonl", "train.jsonl"], ["extra.jsonl", "train.jsonl"], {}, []),
    "of no split": ("", ["extra.jsonl", "test.jsonl", "train.jsonl"], ["train.jsonl"], {"test": ["test.jsonl"]},
                    ["extra.jsonl"]),
    "only one": ("", ["test-1.jsonl", "test-2.jsonl"], ["test-1.jsonl", "test-2.jsonl"], {}, []),
    "parts of words": ("", ["contest.jsonl", "devil.jsonl", "trains.jsonl", "value.jsonl"],
                       ["contest.jsonl", "devil.jsonl", "trains.jsonl", "value.jsonl"], {}, []),
    "two words": ("", ["train_test.jsonl", "b.jsonl"], ["b.jsonl", "train_test.jsonl"], {}, []),
    "topics": ("", ["dev.txt", "ops.txt"], ["dev.txt", "ops.txt"], {}, []),
    "documents": ("", ["train.txt", "valid.txt"], ["train.txt"], {"validation": ["valid.txt"]}, []),
}  # fmt: skip


def section_of(values: dict[str, Any]) -> DataSection:
    return DataSection.model_validate_json(json.dumps(values))


def make_folder(top: Path, card: str, files: list[str]) -> Path:
    for number, name in enumerate(files):
        (top / name).parent.mkdir(parents=True, exist_ok=True)
        (top / name).write_text(str(number))
    for name in ("dataset_infos.json", "dataset_info.json"):
        (top / name).write_text("{}")
    if card:
        (top / "README.md").write_text(card)
    return top


@pytest.mark.parametrize("name", FOLDERS)
def test_one_split_of_a_folder_is_read_and_the_others_are_offered(name: str, tmp_path: Path) -> None:
    card, files, trained, others, rest = FOLDERS[name]
    make_folder(tmp_path, card, files)
    listing = list_files(tmp_path)
    assert [file.relative_to(tmp_path).as_posix() for file in listing.files] == trained
    offers = [note.partition("data.eval = ") for note in listing.notes if "its only split" not in note]
    assert [note for note, _, toml in offers if not toml] == (
        [f"{', '.join(str(tmp_path / file) for file in rest)}: of no split, not trained on"] if rest else []
    )
    evaluated = {}
    for note, _, toml in offers:
        if toml:  # obeyed
            section = section_of({"train": str(tmp_path), **tomllib.loads(f"eval = {toml}")})
            (source,) = find_sources(section, lambda detail: None, stage="pretrain", evaluation=True)
            split = note.partition('split "')[2].partition('"')[0]
            evaluated[split] = [Path(str(file)).relative_to(tmp_path).as_posix() for file in source.places]
    assert evaluated == others


@pytest.mark.parametrize(
    ("files", "words"),
    [
        (["test.jsonl"], 'its only split is "test", and it is trained on'),
        (["data/validation-00000-of-00001.jsonl"], 'its only split is "validation"'),
        (["train.jsonl"], ""),
        (["rows.jsonl"], ""),
    ],
)
def test_training_on_what_is_there_to_test_is_said(files: list[str], words: str, tmp_path: Path) -> None:
    make_folder(tmp_path, "", files)
    assert [words in note for note in list_files(tmp_path).notes] == [True] * bool(words)
    assert not list_files(tmp_path, evaluation=True).notes


def test_a_split_may_be_named(tmp_path: Path) -> None:
    make_folder(tmp_path, "", ["train.jsonl", "val.jsonl", "test.jsonl"])

    def names(**options: object) -> list[str]:
        return [file.name for file in list_files(tmp_path, **options).files]  # type: ignore[arg-type]

    assert names(split="test") == ["test.jsonl"]
    assert names(split="val") == names(split="validation") == names(evaluation=True) == ["val.jsonl"]
    with pytest.raises(DataError, match="has no split 'tset': there are test, train, validation"):
        names(split="tset")


def test_subsets_of_a_card(tmp_path: Path) -> None:
    make_folder(tmp_path, TWO, ["english/train.jsonl", "english/test.jsonl", "german/a.jsonl", "german/b.jsonl"])
    with pytest.raises(DataError, match="has several subsets: en, de") as caught:
        list_files(tmp_path)
    source = tomllib.loads("source = " + caught.value.hint.partition("example ")[2].removesuffix("."))["source"]
    (english,) = find_sources(section_of({"train": [source]}), lambda detail: None)
    assert english.places == (tmp_path / "english/train.jsonl",)
    assert list_files(tmp_path, subset="de").files == (tmp_path / "german/a.jsonl", tmp_path / "german/b.jsonl")
    with pytest.raises(DataError, match="has no subset 'fr': its card names en, de"):
        list_files(tmp_path, subset="fr")


@pytest.mark.parametrize(
    ("card", "files", "words"),
    [
        (CARD, ["data/test-1.jsonl"], "of the split 'train' that its card names no file of rows is there"),
        ("---\nconfigs: [\n---\n", ["a.jsonl"], "README.md cannot be read"),
        (
            "",
            ["train_sft-00000-of-00001.jsonl", "test_sft-00000-of-00001.jsonl"],
            "several splits: there are test_sft, train_sft",
        ),
    ],
)
def test_what_cannot_be_meant_is_refused(card: str, files: list[str], words: str, tmp_path: Path) -> None:
    """A clone without its training files must not train on its test files."""
    with pytest.raises(DataError, match=words):
        list_files(make_folder(tmp_path, card, files))


def test_every_command_tells_the_same(model_folder: Path, tmp_path: Path) -> None:
    for name, number in (("train", 40), ("test", 5)):
        write_rows(tmp_path / "rows" / "data" / f"{name}-00000-of-00001.jsonl", chats(number))
    (tmp_path / "rows" / "dataset_infos.json").write_text(json.dumps({"default": {}}))
    profile = make_profile(model_folder, tmp_path / "rows")
    prepared = prepare(profile, tmp_path / "cache", lambda detail: None)  # dry run, estimate, start
    (warning,) = [text for text in prepared.warnings if "to evaluate on it" in text]
    assert 'the split "test"' in warning and prepared.train.num_rows == 40
    read = load_data(profile, tmp_path / "cache", lambda detail: None, weights=False)
    report = make_report(read, profile)
    alone = make_profile(model_folder, tmp_path / "rows" / "data" / "train-00000-of-00001.jsonl")
    same = load_data(alone, tmp_path / "cache", lambda detail: None, weights=False).train.sequences.counts.fingerprint
    assert read.train.sequences.counts.fingerprint == same, "a run begun with all files is refused at a resume"
    assert warning in [finding.message for finding in report.findings]  # preview and its screen
