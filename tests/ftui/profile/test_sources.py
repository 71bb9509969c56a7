"""Sources of rows in a profile: texts, lists and tables, written and read, located, compared, complained of."""

from pathlib import Path

import pytest

from ftui.cli.dry_run import value_lines
from ftui.errors import ProfileError
from ftui.profile.layers import ResolvedProfile, resolve
from ftui.profile.sections.data import DataSource, sources
from ftui.profile.serialize import fingerprint, flat_values, to_toml, weights_difference
from ftui.text import toml_value
from ftui.tui.state.resolved_values import values_of
from ftui.tui.state.run_list import RunList
from ftui.tui.state.start_choices import find_choices

BASE = """\
[run]
stage = "sft"
[model]
name_or_path = "hub/model"
[data]
max_length = 64
"""
TABLES = """\
[[data.train]]
path = "a.jsonl"

[[data.train]]
path = "own/set"
weight = 0.5
split = "none"
format = "alpaca"
"""


@pytest.fixture
def path(tmp_path: Path) -> Path:
    (tmp_path / "a.jsonl").touch()
    return tmp_path / "p.toml"


def read(path: Path, text: str, *overrides: str) -> ResolvedProfile:
    path.write_text(BASE + text, encoding="utf-8")
    return resolve(path, overrides=overrides)


def test_a_source_is_a_text_a_list_or_tables(path: Path) -> None:
    here = path.parent
    for text, expected in {
        'train = "a.jsonl"': [DataSource(path=f"{here}/a.jsonl")],
        'train = ["a.jsonl", {path = "b.csv", weight = 2}]': [
            DataSource(path=f"{here}/a.jsonl"),
            DataSource(path=f"{here}/b.csv", weight=2),
        ],
        TABLES: [DataSource(path=f"{here}/a.jsonl"), DataSource(path="own/set", weight=0.5, format="alpaca")],
    }.items():
        assert list(sources(read(path, text).profile.data.train)) == expected


def test_what_is_no_file_here_and_looks_like_a_hub_id_is_one(path: Path) -> None:
    (path.parent / "sub").mkdir()
    (path.parent / "sub/there").mkdir()
    here = str(path.parent)
    for given, found in {
        "own/set": "own/set",
        "sub/there": f"{here}/sub/there",
        "sub/rows.jsonl": f"{here}/sub/rows.jsonl",
        "sub/rows.csv.zst": f"{here}/sub/rows.csv.zst",
        "rows": f"{here}/rows",
        "a/b/c": f"{here}/a/b/c",
        "./own/set": f"{here}/own/set",
    }.items():
        assert read(path, f'train = "{given}"').profile.data.train == found
        (source,) = sources(read(path, f'train = [{{path = "{given}"}}]').profile.data.train)
        assert source.path == found


def test_tables_read_back_the_same(path: Path) -> None:
    more = 'eval = [{path = "own/set", split = "test"}]\nchat_template = "own.jinja"\n'
    profile = read(path, more + TABLES).profile
    assert profile.data.chat_template == f"{path.parent}/own.jinja"
    other = path.parent / "elsewhere" / "copy.toml"
    other.parent.mkdir()
    other.write_text(to_toml(profile), encoding="utf-8")
    assert resolve(other).profile == profile
    assert fingerprint(resolve(other).profile) == fingerprint(profile)


def test_what_a_source_is_belongs_to_the_weights_and_where_it_lies_does_not(path: Path) -> None:
    old = read(path, TABLES).profile
    moved = read(
        path, TABLES.replace("a.jsonl", "b.jsonl").replace('"own/set"', '"other/set"\nrevision = "v1"')
    ).profile
    assert weights_difference(old, moved) == []
    assert fingerprint(moved) == fingerprint(old)
    heavier = read(path, TABLES.replace("0.5", "0.75")).profile
    (difference,) = weights_difference(old, heavier)
    assert difference.startswith("data.train: ") and "0.5" in difference and "0.75" in difference
    assert fingerprint(heavier) != fingerprint(old)
    plain = [read(path, f"train = {text}").profile for text in ('"a.jsonl"', '["a.jsonl", "b.jsonl"]')]
    assert fingerprint(plain[0]) == fingerprint(plain[1]), "whether rows have changed is for their hash to say"
    templates = [read(path, f'train = "a.jsonl"\nchat_template = "{t}"').profile for t in ("a.jinja", "b.jinja", "phi")]
    assert weights_difference(templates[0], templates[1]) == []
    assert weights_difference(templates[0], templates[2]) == ['data.chat_template: "a .jinja file" -> "phi"']


@pytest.mark.parametrize(
    ("old", "new", "words", "hint"),
    [
        ("weight = 0.5", "weight = 'x'", ":12: data.train.1.weight: input should be a number", "without quotes"),
        ("weight = 0.5", "weight = 0", ":12: data.train.1.weight: input should be greater than 0", ""),
        ("weight = 0.5", "wieght = 2", ":12: data.train.1.wieght: there is no such key", "data.train.weight?"),
        ('path = "own/set"\n', "", ":11: data.train.1.path: is missing", "Add path to [data.train]"),
        (TABLES, "train = 5", ":7: data.train: input should be a text or a list, not 5", ""),
        (TABLES, "train = ['a', 5]", ":7: data.train.1: input should be a text, not 5", ""),
        (TABLES, "train = []", ":7: data.train: names nothing to train on", ""),
        (
            TABLES,
            "train = 'a'\neval = [{path = 'b', weight = 2}]",
            ":8: data.eval: evaluation rows take no weight",
            "",
        ),
        (TABLES, "train = 'a'\nchat_template = 'chat'", "there is no template 'chat': chatml, llama2", ""),
    ],
)
def test_faults_are_named_by_their_own_line(path: Path, old: str, new: str, words: str, hint: str) -> None:
    with pytest.raises(ProfileError) as caught:
        read(path, TABLES.replace(old, new))
    assert words in caught.value.message
    assert hint in caught.value.hint


def test_an_override_takes_the_place_of_all_tables(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(path.parent)
    resolved = read(path, TABLES, 'data.train=["b.jsonl", {path="c.jsonl", weight=3}]')
    assert [source.weight for source in sources(resolved.profile.data.train)] == [1, 3]
    assert {str(origin) for key, origin in resolved.origins.items() if key[:2] == ("data", "train")} == {"--set"}


def test_screens_show_tables_as_a_profile_spells_them(path: Path) -> None:
    resolved = read(path, TABLES)
    spelt = f'[{{path = "{path.parent}/a.jsonl"}}, {{path = "own/set", weight = 0.5, format = "alpaca"}}]'
    assert toml_value(flat_values(resolved.profile)["data", "train"]) == spelt
    assert any(line.split() == ["train", *spelt.split(), f"{path.name}:7"] for line in value_lines(resolved))
    (value,) = [v for v in values_of(resolved, resolved.profile) if v.name == "data.train"]
    assert value.text == spelt
    again = read(path, TABLES, f"data.train={value.text}").profile
    assert again.data.train == resolved.profile.data.train
    (choice,) = [choice for choice in find_choices(path.parent, RunList()) if choice.profile == path]
    assert choice.words == "sft, hub/model, a.jsonl own/set"
