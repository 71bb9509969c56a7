"""`ftui cache`: what is kept is listed, what is old is deleted, what is in use stays."""

import json
import os
import shutil
import time
from pathlib import Path

import pytest

from ftui.cli import cache as cache_command
from ftui.cli.main import main
from ftui.dataset import token_cache

DAY = 86400


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("FTUI_CACHE", str(tmp_path / "cache"))
    return tmp_path / "cache"


def make_entry(cache: Path, name: str, *, days: float, sources: list[str] | None = None, size: int = 3000) -> Path:
    folder = cache / "tokens" / name
    folder.mkdir(parents=True)
    counts = {"num_rows": 1200, "num_tokens": 34_567} | ({"sources": sources} if sources else {})
    (folder / "counts.json").write_text(json.dumps(counts))
    (folder / "ids.bin").write_bytes(bytes(size - (folder / "counts.json").stat().st_size))
    used = time.time() - days * DAY
    os.utime(folder / "counts.json", (used, used))
    return folder


def lines(capsys: pytest.CaptureFixture[str], *arguments: str) -> list[str]:
    assert main(["cache", *arguments]) == 0
    return capsys.readouterr().out.splitlines()


def test_what_is_kept_is_listed_the_last_used_first(cache: Path, capsys: pytest.CaptureFixture[str]) -> None:
    make_entry(cache, "a", days=3, sources=["/rows/old.jsonl"])
    make_entry(cache, "b", days=0.1, sources=["/rows/one.jsonl", "/rows/two.csv"], size=5000)
    make_entry(cache, "c", days=40)
    held = token_cache.lock_entry(make_entry(cache, "d", days=2, sources=["owner/name (train)\x1b[2J"]))
    assert held is not None
    heading, *rows, total = lines(capsys)
    assert heading.split() == ["tokens", "of", "used", "rows", "tokens", "size"]
    assert rows[0].split("  ")[0] == "rows/one.jsonl and 1 more"
    assert rows[0].split()[-5:] == ["1,200", "34.6", "k", "4.9", "KiB"] and "2h 24m ago" in rows[0]
    assert "now" in rows[1] and "\x1b" not in rows[1]
    assert rows[2].startswith("rows/old.jsonl") and rows[3].startswith("(by an older ftui)")
    assert total == f"4 entries of tokenised rows in {cache}, 13.7 KiB"


def test_an_empty_cache_is_no_error(cache: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert lines(capsys) == [f"0 entries of tokenised rows in {cache}, 0 B"]
    assert lines(capsys, "--prune") == ["0 entries deleted, 0 B freed."]
    assert not cache.exists()


def test_old_ones_are_deleted_and_those_in_use_are_not(cache: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for name, days in (("new", 1.0), ("old", 31.0), ("used", 60.0)):
        make_entry(cache, name, days=days)
    held = token_cache.lock_entry(cache / "tokens" / "used")
    told = lines(capsys, "--prune")
    assert told[:2] == [
        "1 entry deleted, 2.9 KiB freed.",
        "2 entries left, 5.9 KiB, 1 of them in use by a running process.",
    ]
    assert "tokenises its rows again" in told[2]
    assert sorted(path.name for path in (cache / "tokens").iterdir()) == ["new", "used"]
    assert lines(capsys, "--prune", "--all")[0] == "1 entry deleted, 2.9 KiB freed."
    assert (cache / "tokens" / "used" / "ids.bin").exists()
    del held
    assert lines(capsys, "--prune", "--older-than", "8w")[0] == "1 entry deleted, 2.9 KiB freed."
    assert list((cache / "tokens").iterdir()) == []


def test_what_a_kill_left_is_swept_but_not_what_is_being_written(
    cache: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Not even by a run that is held for hours."""
    for name, hours in ((".partial-old", 3), (".partial-held", 3), (".partial-new", 0), (".trash-old", 3)):
        folder = cache / "tokens" / name
        folder.mkdir(parents=True)
        (folder / "ids.bin").write_bytes(bytes(2048))
        for path in (folder / "ids.bin", folder):
            os.utime(path, (time.time() - hours * 3600,) * 2)
    lock = token_cache.lock_partial(cache / "tokens" / ".partial-held")
    assert lines(capsys, "--prune") == ["0 entries deleted, 4.0 KiB freed."]
    assert {path.name for path in (cache / "tokens").iterdir()} == {".partial-new", ".partial-held"}
    del lock
    assert token_cache.sweep(cache) == 2048


def test_what_another_process_deletes_meanwhile_is_passed_over(
    cache: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("a", "b", "c"):
        make_entry(cache, name, days=40, sources=[f"/rows/{name}.jsonl"])
    is_used, deleted = token_cache._is_used, token_cache.delete_entry

    def late(folder: Path) -> bool:
        shutil.rmtree(cache / "tokens" / "a", ignore_errors=True)
        return is_used(folder)

    def later(entry: token_cache.CacheEntry) -> bool:
        shutil.rmtree(cache / "tokens" / "b", ignore_errors=True)
        return deleted(entry)

    monkeypatch.setattr(token_cache, "_is_used", late)
    assert sorted(line.split()[0] for line in lines(capsys)[1:]) == ["2", "rows/b.jsonl", "rows/c.jsonl"]
    monkeypatch.setattr(cache_command, "delete_entry", later)
    assert lines(capsys, "--prune")[0] == "1 entry deleted, 2.9 KiB freed."
    assert list((cache / "tokens").iterdir()) == []


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["--all"], "only go with --prune"),
        (["--prune", "--older-than", "soon"], "no such time"),
        (["--prune", "--older-than", "3d", "--all"], "two wishes"),
    ],
)
def test_wishes_that_make_no_sense_are_refused(
    arguments: list[str], words: str, cache: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["cache", *arguments]) == 2
    assert words in capsys.readouterr().err
