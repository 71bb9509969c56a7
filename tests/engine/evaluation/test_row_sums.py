"""Sums of each row equal those of whole logits, in every layout."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch.nn import functional as F
from transformers import LlamaForCausalLM

from ftui.engine.data.tokens.encode import Sequence
from ftui.engine.evaluation.row_sums import sum_rows
from ftui.engine.generation.conversation import Speaker
from ftui.engine.generation.load_trained import AnsweringModel
from ftui.engine.models.joined_rows import settle_joined_rows
from ftui.engine.objectives.loss import RowLayout
from ftui.engine.system.device import Hardware, find_hardware
from ftui.engine.training.collate import collate
from tests.support.tiny import chats, make_profile, write_rows


def speaker(model: Any, hardware: Hardware) -> Speaker:
    return Speaker(AnsweringModel(model.eval(), None, (), hardware, True), None)  # type: ignore[arg-type]


@pytest.fixture(scope="module")
def hardware(model_folder: Path, tmp_path_factory: pytest.TempPathFactory) -> Hardware:
    rows = write_rows(tmp_path_factory.mktemp("rows") / "rows.jsonl", chats(2))
    return find_hardware(make_profile(model_folder, rows, train={"precision": "fp32"}, hardware={"device": "cpu"}))


@pytest.mark.parametrize("layout", [RowLayout.PADDED, RowLayout.JOINED])
@pytest.mark.parametrize("kept_whole", [False, True], ids=["in chunks", "own head"])
def test_sums_are_those_of_whole_logits(
    model_folder: Path, hardware: Hardware, layout: RowLayout, kept_whole: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    settle_joined_rows()
    monkeypatch.setattr("ftui.engine.evaluation.row_sums.chunk_size", lambda weight: 3)
    if kept_whole:
        monkeypatch.setattr("ftui.engine.objectives.loss.has_plain_head", lambda base: False)
    model, base = (LlamaForCausalLM.from_pretrained(model_folder) for _ in range(2))
    torch.manual_seed(5)
    with torch.no_grad():
        for weight in model.parameters():
            weight.add_(torch.randn_like(weight), alpha=0.05)
    draw = np.random.default_rng(2)
    sequences = [Sequence(draw.integers(5, 60, size).astype(np.int32), draw.random(size) < 0.6) for size in (9, 4, 17)]
    batch = collate([[one] for one in sequences], 0, layout=layout)
    amounts = np.array([one.num_targets for one in sequences])
    found = sum_rows(speaker(model, hardware), batch, amounts, speaker(base, hardware))
    assert found.kl is not None
    for number, one in enumerate(sequences):
        with torch.no_grad():
            ids = torch.from_numpy(one.input_ids.astype(np.int64))[None]
            ours, theirs = (m(input_ids=ids).logits[0, :-1][one.targets[1:]] for m in (model, base))
        ids = ids[0, 1:][torch.from_numpy(one.targets[1:])]
        assert found.nats[number] == pytest.approx(float(F.cross_entropy(ours, ids, reduction="sum")), rel=1e-5)
        assert found.num_right[number] == int((ours.argmax(-1) == ids).sum())
        kl = F.kl_div(ours.log_softmax(-1), theirs.log_softmax(-1), reduction="sum", log_target=True)
        assert found.kl[number] == pytest.approx(float(kl), rel=1e-4)
    assert sum_rows(speaker(model, hardware), batch, amounts).kl is None
