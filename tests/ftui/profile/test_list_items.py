"""`--set` names a key of one table of a list as errors name it: curriculum.0.fraction, data.train.1.weight."""

from pathlib import Path
from typing import Any

import pytest

from ftui.errors import ProfileError
from ftui.profile.layers import ResolvedProfile, resolve
from ftui.profile.sections.data import DataSource

HEAD = 'run.stage = "sft"\nmodel.name_or_path = "a/b"\n'
STAGES = '[[curriculum]]\nfraction = 0.5\n[[curriculum]]\nsort_by = "target_share"\n'
TRAIN = {
    "text": 'data.train = "a.jsonl"\n',
    "list": 'data.train = ["a.jsonl", "b.jsonl"]\n',
    "tables": '[[data.train]]\npath = "a.jsonl"\nroles = {x = "user"}\n[[data.train]]\npath = "b.jsonl"\n',
}


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    for name in "abc":
        (tmp_path / f"{name}.jsonl").touch()
    return tmp_path


def resolved(folder: Path, text: str, *overrides: str) -> ResolvedProfile:
    path = folder / "p.toml"
    path.write_text(HEAD + text)
    return resolve(path, overrides=overrides)


def complaint(folder: Path, text: str, *overrides: str) -> ProfileError:
    with pytest.raises(ProfileError) as caught:
        resolved(folder, text, *overrides)
    return caught.value


def test_keys_of_stages(folder: Path) -> None:
    found = resolved(
        folder, TRAIN["text"] + STAGES, "curriculum.0.fraction=0.2", "curriculum.1.learning_rate=1e-5",
        "curriculum.0.num_train_epochs=2", "curriculum.0.fraction=0.3",
    )  # fmt: skip
    first, second = found.profile.curriculum
    assert (first.fraction, first.num_train_epochs, first.sort_by) == (0.3, 2.0, "length")
    assert (second.fraction, second.learning_rate, second.sort_by) == (1.0, 1e-5, "target_share")
    assert str(found.origin(("curriculum", "0", "fraction"))) == "--set"
    assert str(found.origin(("curriculum", "1", "sort_by"))).endswith("p.toml:7")


@pytest.mark.parametrize("form", TRAIN)
@pytest.mark.parametrize("section", ["train", "eval"])
def test_keys_of_sources_however_they_are_written(form: str, section: str, folder: Path) -> None:
    text = TRAIN[form].replace("train", section) + ('[data]\ntrain = "c.jsonl"\n' if section == "eval" else "")
    text = text.replace("data.eval = ", "data.train = 'c.jsonl'\ndata.eval = ").partition("[data]")[0]
    if section == "eval" and form == "tables":
        text = 'data.train = "c.jsonl"\n' + text
    found = resolved(folder, text, f"data.{section}.0.encoding=cp1252", f'data.{section}.0.roles.y="assistant"')
    first = getattr(found.profile.data, section)[0]
    assert isinstance(first, DataSource) and first.encoding == "cp1252" and first.path == str(folder / "a.jsonl")
    assert first.roles == ({"x": "user"} if form == "tables" else {}) | {"y": "assistant"}
    others = getattr(found.profile.data, section)[1:]
    assert [one.path for one in others] == ([] if form == "text" else [str(folder / "b.jsonl")])


def test_values_are_those_of_any_override(folder: Path) -> None:
    """Paths are relative to where the command was given, "none" is nothing."""
    (folder / "sub").mkdir()
    path = folder / "sub" / "p.toml"
    path.write_text(f"{HEAD}data.train = [{{path = '../a.jsonl', num_samples = 3}}, '../b.jsonl']\n")
    found = resolve(path, overrides=["data.train.1.path=c.jsonl", "data.train.0.num_samples=none"])
    assert [one.path for one in found.profile.data.train] == [str(folder / name) for name in ("a.jsonl", "c.jsonl")]  # type: ignore[union-attr]
    assert found.profile.data.train[0].num_samples is None  # type: ignore[union-attr]


@pytest.mark.parametrize(
    ("override", "message", "hint"),
    [
        ("curriculum.0.fraction=7", "--set: curriculum.0.fraction: input should be greater than 0", ""),
        ("curriculum.1.fraktion=1", "--set: curriculum.1.fraktion: there is no such key", "curriculum.fraction"),
        ("curriculum.2.fraction=1", "there is no curriculum.2: they are numbered 0 to 1", ""),
        ("curriculum.fraction=1", "curriculum: is a list of tables: say which one", "Set curriculum.0.fraction."),
        ("curriculum.1=2", "curriculum: is a list of tables: say which one", "Set curriculum.1.KEY."),
        ("data.train.1.weight=2", "--set: data.train.1.weight: there is no data.train.1: there is only 0", ""),
        ("data.train.weight=2", "data.train.weight cannot be set by itself", "Set data.train.0.weight, or"),
        ("data.train.0=c.jsonl", "data.train.0 cannot be set by itself", "Set data.train.0.KEY, or data.train to"),
        ('data.train.0.path="a\\u0000"', "--set: data.train.0.path: ", ""),
        ("model.name_or_path.0.x=1", "model.name_or_path", ""),
    ],
)  # fmt: skip
def test_what_is_wrong_is_said_of_the_override(override: str, message: str, hint: str, folder: Path) -> None:
    error = complaint(folder, TRAIN["text"] + STAGES, override)
    assert message in error.message and hint in error.hint
    assert "not [" not in error.message, "the list is no fault"


def test_the_list_of_a_layer_is_not_written_to(folder: Path) -> None:
    """A second reading of the same file has what stands in it."""
    text = TRAIN["tables"] + STAGES
    before: Any = resolved(folder, text).profile
    assert resolved(folder, text, "curriculum.0.fraction=0.1", "data.train.0.weight=3").profile != before
    assert resolved(folder, text).profile == before
