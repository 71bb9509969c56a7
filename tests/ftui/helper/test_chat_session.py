"""Which weights a name stands for."""

import shutil
from pathlib import Path

import pytest

from ftui.errors import UsageError
from ftui.helper.chat_session import BASE, find_side
from ftui.runs.checkpoint_folders import read_manifest
from tests.support.shelf import finished


def test_a_name_finds_its_weights(tmp_path: Path) -> None:
    """Also what was set aside: where it is whole, it answers."""
    run = finished(tmp_path / "runs" / "mine")
    for root in (run.superseded, run.quarantine):
        shutil.copytree(run.final, root / "checkpoint-4-0123abcd")
    assert find_side(run, None).folder == run.final and find_side(run, BASE).folder is None
    base = read_manifest(run.final).fingerprints["base_model"]
    assert base and {find_side(run, name).trained_on for name in (None, "final", BASE)} == {base}
    aside = find_side(run, "superseded/checkpoint-4-0123abcd")
    assert aside.folder == run.superseded / "checkpoint-4-0123abcd" and aside.seal == find_side(run, "final").seal
    (run.quarantine / "checkpoint-4-0123abcd" / "weights.bin").write_bytes(b"damaged")
    with pytest.raises(UsageError, match="quarantine/checkpoint-4-0123abcd of mine is damaged"):
        find_side(run, "quarantine/checkpoint-4-0123abcd")
    for wrong, words in (("superseded/checkpoint-5", "names no checkpoint"), ("77", "has no checkpoint-77")):
        with pytest.raises(UsageError, match=words):
            find_side(run, wrong)
