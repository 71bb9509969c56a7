"""Rows that are counted without a tokenizer: the same rows and steps, tokens by their bytes."""

import json
from pathlib import Path
from typing import Any

import pytest

from ftui.engine.services import count_rows
from ftui.engine.services.count_rows import count_bytes
from ftui.errors import DataError, DiskFullError
from ftui.profile.layers import resolve
from ftui.profile.serialize import to_toml

CHAT = [{"role": "user", "content": "q" * 80}, {"role": "assistant", "content": "a" * 120}]
CALL = {
    "role": "assistant",
    "content": "",
    "tool_calls": [{"type": "function", "function": {"name": "f", "arguments": {}}}],
}
FORMS: dict[str, tuple[dict[str, Any], str]] = {
    "chat": ({"messages": CHAT}, "sft"),
    "calls of tools": ({"messages": [CHAT[0], CALL, {"role": "tool", "content": "2"}, CHAT[1]]}, "sft"),
    "instructions": ({"instruction": "q" * 80, "output": "a" * 120}, "sft"),
    "completions": ({"prompt": "q" * 80, "completion": "a" * 120}, "sft"),
    "other script": ({"prompt": "\u0436" * 40, "completion": "\u0436" * 60}, "sft"),
    "text": ({"text": "t" * 200}, "pretrain"),
}


def count(folder: Path, row: dict[str, Any], stage: str, *overrides: str, per_token: float = 1.0) -> Any:
    (folder / "rows.jsonl").write_text("".join(json.dumps(row) + "\n" for _ in range(30)))
    path = folder / "p.toml"
    path.write_text(f'[run]\nstage="{stage}"\n[model]\nname_or_path="nobody/here"\n[data]\ntrain="rows.jsonl"\n')
    text = to_toml(resolve(path, overrides=overrides).profile)
    return count_bytes(lambda _: None, text, [per_token / 2, per_token, per_token * 2])


@pytest.mark.parametrize("form", FORMS)
def test_tokens_follow_the_bytes_and_steps_the_rows(form: str, tmp_path: Path) -> None:
    """30 rows of 200 bytes, and the marks of a chat: three epochs in steps of 4."""
    row, stage = FORMS[form]
    found = count(tmp_path, row, stage, "train.num_train_epochs=3", "data.eval_num_rows=2")
    assert (found.num_train_rows, found.num_eval_rows) == (28, 2)
    assert found.max_steps == 21 and found.steps_per_epoch == 7
    each = found.num_train_tokens / 28
    assert 200 <= each <= 200 + (400 if "role" in str(row) else 60)
    assert found.longest == pytest.approx(2 * each, abs=1), "as if it took many tokens"
    fewer = count(tmp_path, row, stage, "train.num_train_epochs=3", "data.eval_num_rows=2", per_token=4.0)
    assert fewer.num_train_tokens == pytest.approx(found.num_train_tokens / 4, abs=1)
    assert fewer.max_steps == 21 and fewer.bytes_per_token == (2.0, 4.0, 8.0)


@pytest.mark.parametrize(("max_length", "cut"), [(40, 30), (512, 0)])
def test_long_rows_are_cut_in_tokens_not_in_bytes(max_length: int, cut: int, tmp_path: Path) -> None:
    found = count(tmp_path, *FORMS["instructions"], f"data.max_length={max_length}", per_token=4.0)
    assert found.num_cut == cut and found.longest <= max_length
    assert found.num_train_tokens <= 30 * max_length


def test_packed_rows_are_filled_by_their_bytes(tmp_path: Path) -> None:
    wide, narrow = (
        count(tmp_path, *FORMS["text"], "data.packing=true", "data.max_length=512", per_token=each)
        for each in (4.0, 1.0)
    )
    assert wide.num_sequences < narrow.num_sequences


def test_rows_that_are_wrong_whatever_the_tokenizer_is_are_refused(tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"rows\.jsonl:1"):
        count(tmp_path, {"messages": "no list"}, "sft")


def test_a_count_ends_before_it_fills_the_disk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(count_rows, "KEPT_FREE", 1 << 60)
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path / "temporary"))
    (tmp_path / "temporary").mkdir()
    with pytest.raises(DiskFullError, match="no room"):
        count(tmp_path, *FORMS["instructions"])
    assert not list((tmp_path / "temporary").iterdir())


@pytest.mark.parametrize("overrides", [[], ["data.eval_num_rows=2"], ["data.eval_fraction=0.1"]])
def test_rows_whose_answers_are_all_cut_away_are_told_as_such(overrides: list[str], tmp_path: Path) -> None:
    row = {"instruction": "q" * 4000, "output": "a"}
    with pytest.raises(DataError, match="none of its rows has a token to train on") as refused:
        count(tmp_path, row, "sft", "data.max_length=64", *overrides)
    assert "data.max_length" in refused.value.hint
