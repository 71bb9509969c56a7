"""A run's base is asked for as it was trained on."""

from pathlib import Path

import pytest

from ftui.engine.models.files.trained_base import pin_base
from tests.support.tiny import make_profile

COMMIT = "0123456789abcdef0123456789abcdef01234567"


@pytest.mark.parametrize(
    ("trained_on", "revision"), [(COMMIT, COMMIT), ("ab" * 32, "main"), ("from scratch", "main"), ("", "main")]
)
def test_the_commit_of_the_run_is_asked_for(trained_on: str, revision: str, tmp_path: Path) -> None:
    profile = make_profile(tmp_path, tmp_path, model={"name_or_path": "some/model", "revision": "main"})
    assert pin_base(profile, trained_on).model.revision == revision
