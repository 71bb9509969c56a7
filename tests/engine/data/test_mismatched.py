"""Answers of KTO's rows on each other's prompts: what is counted of all at once is what each of them is."""

from pathlib import Path

import numpy as np
import pytest

from ftui.engine.data.mismatched import mismatch
from ftui.engine.data.stores import store
from ftui.engine.data.stores.sequences import join_sources
from ftui.engine.data.tokens.encode import Encoder
from tests.support.tiny import judged_answers, make_tokenizer, seen, write_rows


@pytest.mark.parametrize("max_length", [512, 90, 40, 24])
@pytest.mark.parametrize("share", [1.0, 0.6, 0.02])
def test_lengths_and_targets_are_those_of_each_row(
    max_length: int, share: float, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of two sources, read seven rows at a time; where some rows are set aside, they keep their own answers."""
    monkeypatch.setattr(store, "_SPANS", 7)
    encoder = Encoder(make_tokenizer(), "kto", frozenset({"<|im_end|>"}), "assistant")
    rows = judged_answers(60)
    files = [write_rows(tmp_path / f"{n}.jsonl", part) for n, part in enumerate((rows[:23], rows[23:]))]
    one, two = (seen([file], encoder, tmp_path / "cache", form="kto", max_length=max_length) for file in files)
    whole = join_sources([one, two])
    indices = np.flatnonzero(np.random.default_rng(0).random(len(whole)) < share)
    indices = indices if len(indices) else np.array([3])
    made = mismatch(whole, indices, max_length, seed=4)
    assert sorted(made.partners[indices]) == indices.tolist()
    assert (made.partners[indices] != indices).all() or len(indices) == 1
    others = np.setdiff1d(np.arange(len(whole)), indices)
    assert (made.partners[others] == others).all()
    told = [(made[int(n)].num_targets, len(made[int(n)].input_ids)) for n in indices]
    assert list(zip(made.num_targets[indices].tolist(), made.lengths[indices].tolist(), strict=True)) == told
    assert max_length > 90 or share < 1 or max(length for _, length in told) == max_length, "some are cut"
