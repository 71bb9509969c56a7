"""Folders outside of runs: what the environment says goes before the user's own."""

from pathlib import Path

import pytest

from ftui.system.user_folders import cache_folder, prices_file, state_folder

XDG = ("XDG_CACHE_HOME", "XDG_STATE_HOME", "XDG_CONFIG_HOME")


def test_the_folder_of_the_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FTUI_CACHE", str(tmp_path / "chosen"))
    assert cache_folder(tmp_path / "fallback") == tmp_path / "chosen"
    monkeypatch.delenv("FTUI_CACHE")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "home"))
    assert cache_folder(tmp_path / "fallback") == tmp_path / "home" / "ftui"
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "file"))
    assert cache_folder(tmp_path / "fallback") == tmp_path / "fallback"
    assert (tmp_path / "fallback").stat().st_mode & 0o777 == 0o700


def test_without_variables_the_folders_are_in_the_home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("FTUI_CACHE", *XDG):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("HOME", str(tmp_path))
    assert cache_folder() == tmp_path / ".cache" / "ftui"
    assert state_folder() == tmp_path / ".local" / "state" / "ftui"
    assert prices_file() == tmp_path / ".config" / "ftui" / "prices.toml"


def test_variables_name_other_folders(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in XDG:
        monkeypatch.setenv(name, str(tmp_path / name))
    assert state_folder() == tmp_path / "XDG_STATE_HOME" / "ftui"
    assert prices_file() == tmp_path / "XDG_CONFIG_HOME" / "ftui" / "prices.toml"


@pytest.mark.parametrize("name", ["", " ", "relative", "~/home"])
def test_a_variable_that_names_no_whole_path_is_ignored(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("XDG_STATE_HOME", name)
    assert state_folder() == tmp_path / ".local" / "state" / "ftui"
