from pathlib import Path

import pytest

from ftui.errors import ProfileError
from ftui.profile.layers import resolve
from ftui.profile.presets import find_profile, shipped_presets


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "quickstart.toml").write_text("\n# A small model, in minutes.\n# More.\n[run]\n")
    (tmp_path / "bare.toml").write_text("[run]\n")
    (tmp_path / "notes.txt").write_text("")
    return tmp_path


def test_shipped_profiles_and_their_first_comment(folder: Path) -> None:
    assert [(p.name, p.description) for p in shipped_presets(folder)] == [
        ("quickstart", "A small model, in minutes."),
        ("bare", ""),
    ]


def test_a_profile_by_name_with_or_without_its_ending(folder: Path) -> None:
    assert find_profile("quickstart", folder) == find_profile("quickstart.toml", folder) == folder / "quickstart.toml"


def test_an_existing_file_comes_first(folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    here = tmp_path / "here"
    here.mkdir()
    (here / "quickstart").mkdir()  # a folder of that name is no profile
    monkeypatch.chdir(here)
    assert find_profile("quickstart", folder) == folder / "quickstart.toml"
    (here / "quickstart.toml").write_text("")
    assert find_profile("quickstart.toml", folder) == Path("quickstart.toml")


def test_nearest_names(folder: Path) -> None:
    with pytest.raises(ProfileError, match="no profile 'quikstart'") as caught:
        find_profile("quikstart", folder)
    assert "quickstart" in caught.value.hint
    with pytest.raises(ProfileError) as caught:
        find_profile("zzz", folder)
    assert "ftui profiles" in caught.value.hint


def test_what_ships_is_valid_and_described() -> None:
    presets = shipped_presets()
    assert len(presets) >= 1
    for preset in presets:
        resolve(preset.path)
        assert preset.description
