import os
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ftui.errors import UsageError
from ftui.runs.run_folder import NAME, all_runs, check_name, find_run, name_from, runs_root
from ftui.system.user_folders import known_roots, note_root


@pytest.mark.parametrize("name", ["a", "0", "qwen3-0.6b_lora", "a" * 64])
def test_good_names(name: str) -> None:
    assert check_name(name) == name


@pytest.mark.parametrize("name", ["", ".", "..", "-x", "_x", "A", "a b", "a/b", "a\n", "ä", "a" * 65, "\x1b[2J"])
def test_bad_names(name: str) -> None:
    with pytest.raises(UsageError, match="cannot name a run") as caught:
        check_name(name)
    assert "lower-case" in caught.value.hint


@pytest.mark.parametrize("name", ["hf_abcdefghijklmnopqrst012345", "a-glpat-abcdefghijklmnopqrst", "my-long-secret"])
def test_a_secret_is_no_name(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MY_SECRET", "my-long-secret")
    with pytest.raises(UsageError, match="a password or a token"):
        check_name(name)


@given(st.text())
def test_every_stem_gives_a_good_name(stem: str) -> None:
    assert NAME.fullmatch(name_from(stem))


def test_names_from_stems() -> None:
    assert name_from("My Profile (v2)") == "my-profile-v2"
    assert name_from("日本") == "run"


def test_the_root_is_where_the_environment_says(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    assert runs_root() == tmp_path / "runs"
    monkeypatch.delenv("FTUI_RUNS")
    monkeypatch.chdir(tmp_path)
    assert runs_root() == tmp_path / "runs"
    monkeypatch.setenv("FTUI_RUNS", "else/where")
    assert runs_root() == tmp_path / "else" / "where"


def test_roots_are_noted_once_and_forgotten_with_their_folder(tmp_path: Path) -> None:
    one, two = tmp_path / "one", tmp_path / "tw\u2028o\udc80"
    one.mkdir()
    two.mkdir()
    for root in (one, two, one):
        note_root(root)
    assert known_roots() == [one, two]
    one.rmdir()
    assert known_roots() == [two]
    assert (tmp_path / "state" / "ftui" / "roots").stat().st_mode & 0o777 == 0o600


def test_a_home_that_cannot_be_written_is_no_trouble(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "file"))
    note_root(tmp_path)
    assert known_roots() == []


def test_a_run_is_found_in_any_known_root(make_run: Any, tmp_path: Path) -> None:
    here, there = make_run("mine"), make_run("other", root=tmp_path / "there")
    note_root(tmp_path / "there")
    assert find_run("mine") == here
    assert find_run("other") == there
    assert all_runs() == [here, there]
    with pytest.raises(UsageError, match="no run named 'nobody'"):
        find_run("nobody")
    with pytest.raises(UsageError):
        find_run("..")


def test_a_run_is_found_by_its_folder(make_run: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    run = make_run("mine", root=tmp_path / "unknown")
    monkeypatch.chdir(tmp_path)
    assert find_run("./unknown/mine") == run
    with pytest.raises(UsageError, match="not a readable run"):
        find_run("./unknown")


def test_a_run_in_the_making_is_not_listed(make_run: Any) -> None:
    run = make_run("mine")
    half = run.folder.with_name(".mine.00ff.new")
    half.mkdir()
    (half / "run.json").write_bytes(run.facts.read_bytes())
    assert all_runs() == [run]


def test_a_damaged_run_json_is_named(make_run: Any) -> None:
    run = make_run("mine")
    run.facts.write_bytes(b"{")
    with pytest.raises(UsageError, match="not a readable run"):
        run.read_facts()
    os.unlink(run.facts)
    with pytest.raises(UsageError):
        run.read_facts()
