"""What the closed form decides and what must hold of it, whatever the model; its figures: tests/engine."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from ftui.engine.ledger.ledger_file import HEAD, LONGEST, MOST_FILES, ROW, LedgerWriter
from ftui.engine.models import methods
from ftui.engine.system import device as hardware
from ftui.engine.system.device import Hardware
from ftui.estimate import disk
from ftui.estimate.closed_form import FRAGMENTED, LIBRARIES, answering_memory, host_memory, memory
from ftui.estimate.result import PARTS
from ftui.estimate.setup import TrainingSetup, build_setup
from ftui.estimate.states import MOMENTS
from ftui.hardware.devices import CARDS, GiB, find_card
from ftui.models.config_reader import ModelShape, read_shape
from ftui.profile.schema import Profile
from tests.support.published_models import MODELS

Table = dict[str, Any]


def shape(name: str) -> ModelShape:
    found = read_shape(MODELS[name])
    assert found is not None
    return found


def profile_of(**sections: Table) -> Profile:
    base: Table = {"run": {"stage": "sft"}, "model": {"name_or_path": "/model"}, "data": {"train": "rows.jsonl"}}
    return Profile.model_validate(base | {name: base.get(name, {}) | values for name, values in sections.items()})


def setup(name: str = "Llama-3-8B", card: str = "rtx4090", /, **sections: Table) -> TrainingSetup:
    return build_setup(profile_of(**sections), shape(name), find_card(card))


@pytest.mark.parametrize("name", MODELS)
@pytest.mark.parametrize("method", ["lora", "qlora", "full"])
def test_more_is_never_less(name: str, method: str) -> None:
    plain = setup(name, adapter={"method": method})
    base = memory(plain).allocated
    more: list[Table] = [
        {"micro_batch": 8}, {"length": 2048}, {"r": 64}, {"eval_batch": 64}, {"accumulation": 2}, {"optim": "ademamix"},
        {"use_dora": True}, {"lora_dropout": 0.1},
    ]  # fmt: skip
    for changes in more:
        assert memory(replace(plain, **changes)).allocated >= base, changes
    some, all_of_them = (memory(replace(plain, checkpointing=every)).allocated for every in (2, 1))
    assert all_of_them <= some <= base
    assert memory(replace(plain, optim="sgd")).allocated < base


@pytest.mark.parametrize("name", MODELS)
def test_parts_add_up_and_fewer_bits_are_less(name: str) -> None:
    told = {method: memory(setup(name, adapter={"method": method})) for method in ("lora", "qlora", "full")}
    for one in told.values():
        assert tuple(one.breakdown) == PARTS
        assert sum(one.breakdown.values()) == one.process and min(one.breakdown.values()) >= 0
        assert one.low < one.process < one.high
    weights = [told[method].breakdown["weights"] for method in ("qlora", "lora", "full")]
    assert weights == sorted(weights) and told["lora"].allocated < told["full"].allocated


@pytest.mark.parametrize("card", [card.name for card in CARDS])
@pytest.mark.parametrize("dtype", ["auto", "bfloat16", "float32"])
def test_types_are_those_of_the_engine(card: str, dtype: str, monkeypatch: pytest.MonkeyPatch) -> None:
    kind = find_card(card)
    monkeypatch.setattr(hardware, "has_fast_bf16", lambda device: kind.has_bf16)
    precision = hardware.best_precision(torch.device(kind.kind))
    real = Hardware(torch.device(kind.kind), precision, 1, "", None)
    for method in ({"method": "lora"}, {"method": "full"}):
        profile = profile_of(adapter=method, model={"dtype": dtype})
        told = build_setup(profile, shape("Llama-3-8B"), kind)
        stored = methods.storage_dtype(profile, real)
        assert isinstance(stored, torch.dtype)
        assert told.precision == precision
        assert told.compute == real.compute_dtype.itemsize
        assert (told.storage if told.is_lora else told.trained) == stored.itemsize


def test_what_the_engine_knows_is_known_here() -> None:
    from ftui.engine.optim.optimizer import BITS_AND_BYTES, TORCH

    analytic = {"sgd", "rmsprop", "adafactor"}
    assert set(MOMENTS) | analytic == {*TORCH, *BITS_AND_BYTES}


@pytest.mark.parametrize(
    ("name", "card", "sections", "expected"),
    [
        ("Llama-3-8B", "rtx4090", {}, "flash"),
        ("Llama-3-8B", "rtx4090", {"data": {"packing": True}}, "efficient"),
        ("Mistral-7B-v0.1", "rtx4090", {"data": {"max_length": 8192}}, "efficient"),  # its window is 4096
        ("Llama-3-8B", "t4", {}, "efficient"),  # keys are repeated for it
        ("Llama-2-7b", "t4", {}, "efficient"),
        ("Llama-3-8B", "rtx4090", {"train": {"precision": "fp32"}}, "efficient"),
        ("Llama-3-8B", "rtx4090", {"model": {"attn_implementation": "eager"}}, "eager"),
        ("Gemma-2-2b", "h100", {}, "eager"),
        ("Llama-3-8B", "cpu", {}, "flash"),
        ("Llama-3-8B", "mps", {}, "math"),
    ],
)
def test_the_kernel_is_the_one_that_torch_would_take(name: str, card: str, sections: Table, expected: str) -> None:
    assert setup(name, card, **sections).attention == expected


def test_processes_share_what_they_are_told_to() -> None:
    one = setup(adapter={"method": "full"})
    told = {
        how: memory(replace(one, num_processes=4, parallel=how)) for how in ("ddp", "zero1", "zero2", "zero3", "fsdp")
    }
    sizes = [told[how].allocated for how in ("zero3", "zero2", "zero1", "ddp")]
    assert sizes == sorted(sizes) and sizes[0] < sizes[1] < sizes[-1]
    assert told["fsdp"].allocated == told["zero3"].allocated
    assert told["zero1"].breakdown["optimizer"] == told["ddp"].breakdown["optimizer"] // 4
    assert "several processes" in told["ddp"].unvalidated
    assert "zero2, which ftui itself does not run" in told["zero2"].unvalidated


def test_doubts_are_told_and_widen_the_range() -> None:
    sure = memory(setup(train={"precision": "fp32"}))
    doubtful = memory(setup(adapter={"load_in_8bit": True}, train={"optim": "lion_8bit"}))
    assert sure.unvalidated == ()
    assert set(doubtful.unvalidated) == {"autocast on a GPU", "8-bit weights", "the optimizer lion_8bit"}
    assert doubtful.high / doubtful.process > sure.high / sure.process
    assert memory(setup("Mixtral-8x7B", "h200")).unvalidated == ("autocast on a GPU", "mixtures of experts")


def test_memory_of_the_machine() -> None:
    lora, qlora = host_memory(setup()), host_memory(setup(adapter={"method": "qlora"}))
    assert 2 * 8_030_261_248 < lora < 2 * 8_030_261_248 + 4 * GiB  # read in 16 bits, then moved
    assert qlora < 4 * GiB  # read to the card piece by piece
    on_cpu = setup("SmolLM-135M", "cpu")
    assert host_memory(on_cpu) == memory(on_cpu).process


def test_disk_of_a_run() -> None:
    full = setup("SmolLM-135M", adapter={"method": "full"}, data={"eval_fraction": 0.1})
    weights = 4 * 134_515_008
    assert disk.weights_bytes(full) == weights
    assert disk.checkpoint_bytes(full) == pytest.approx(3 * weights, rel=0.01)
    told = disk.run_bytes(full, 3)
    assert told == pytest.approx(5 * 3 * weights + weights, rel=0.01)  # three, the best, one in writing, the result


def test_memory_of_a_process_that_answers() -> None:
    """Llama-3-8B: 8,030,261,248 weights, and 128 KiB of keys and values a token, as its makers' figures have it."""
    card = find_card("rtx4090")
    lora, full = setup(), setup(adapter={"method": "full"})
    weights, token = 8_030_261_248, 128 << 10
    held = card.context + LIBRARIES
    least = (2 * weights + 4096 * token) * FRAGMENTED + held
    assert least < answering_memory(lora, 4096) < least + 2 * GiB
    two = answering_memory(lora, 4096, 2) - answering_memory(lora, 4096)
    assert 4096 * token < two / FRAGMENTED < 4096 * token + GiB, "the base stands once in memory"
    assert answering_memory(setup(adapter={"method": "qlora"}), 4096) < 9 * GiB
    assert answering_memory(full, 4096) > 6 * weights, "float32, and what autocast makes of it"
    assert answering_memory(full, 4096, 2) > 10 * weights, "two models"


def test_disk_of_the_ledger_is_that_of_its_file(tmp_path: Path) -> None:
    """Of a plain run and of a packed one; it never takes more than its files may."""
    writer = LedgerWriter(tmp_path, "f" * 24, 0)
    for step in range(1, 11):
        writer.write(step, np.zeros(20, ROW))
    written = sum(path.stat().st_size for path in tmp_path.iterdir())
    plain = replace(setup(), micro_batch=4, accumulation=5, num_processes=1)
    assert written - HEAD == disk.ledger_bytes(plain, 10, None, None) == disk.ledger_bytes(plain, 10, 200, 10)
    assert disk.ledger_bytes(plain, 10**9, None, None) == MOST_FILES * LONGEST and ROW.itemsize == disk.LEDGER_ROW
    assert disk.ledger_bytes(plain, None, None, None) == 0
