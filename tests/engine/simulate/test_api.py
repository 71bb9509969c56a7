"""The simulated answer: it adds up, grows with what makes it grow, and stays what it was for twelve presets."""

from typing import Any

import pytest
from transformers import LlamaConfig

from ftui.engine.simulate.profile_memory import simulate
from ftui.errors import ModelError
from ftui.estimate.result import PARTS, Memory
from ftui.hardware.devices import MiB, find_card
from tests.support.simulated import A100, CPU, T4, config, profile

CHECKPOINTED: dict[str, Any] = {"activation_checkpointing": True}
LLAMA: dict[str, Any] = {  # Llama 3.2 1B
    "vocab_size": 128256, "hidden_size": 2048, "intermediate_size": 8192, "num_hidden_layers": 16,
    "num_attention_heads": 32, "num_key_value_heads": 8, "max_position_embeddings": 131072, "tie_word_embeddings": True,
}  # fmt: skip


@pytest.fixture(autouse=True)
def known_host(monkeypatch: pytest.MonkeyPatch) -> None:
    """tests/engine/simulate/test_real_runs.py measures it; here it would cost ten seconds."""
    monkeypatch.setattr("ftui.engine.simulate.profile_memory.resident_bytes", lambda folder, threads: 400 * MiB)


def answer(card: str = "a100-80", *, num_layers: int = 4, **sections: Any) -> Memory:
    chosen = LlamaConfig(**LLAMA | {"num_hidden_layers": num_layers})
    return simulate(profile(**sections), chosen, find_card(card))


# Card, sections of the profile, and MiB allocated and reserved. With torch 2.13, transformers 5.24, PEFT 0.21 and
# bitsandbytes 0.50: where an upgrade changes them, look at what it changed before writing down what it comes to now.
GOLDEN: dict[str, tuple[str, dict[str, Any], int, int]] = {
    "4090 qlora": (
        "rtx4090",
        {
            "adapter": {"method": "qlora"},
            "data": {"max_length": 2048},
            "train": {"per_device_train_batch_size": 2, **CHECKPOINTED},
        },
        2093,
        2392,
    ),
    "a40 lora": ("a40", {"adapter": {"r": 32}, "train": {"per_device_train_batch_size": 4}}, 9621, 9766),
    "a100-40 lora": (
        "a100-40",
        {
            "adapter": {"r": 64},
            "data": {"max_length": 4096},
            "train": {"per_device_train_batch_size": 4, **CHECKPOINTED},
        },
        6140,
        6650,
    ),
    "a100-80 full": (
        "a100-80",
        {
            "adapter": {"method": "full"},
            "data": {"max_length": 2048},
            "train": {"per_device_train_batch_size": 4, "gradient_accumulation_steps": 2},
        },
        40653,
        40866,
    ),
    "a100-80 full, 8-bit moments": (
        "a100-80",
        {"adapter": {"method": "full"}, "train": {"optim": "adamw_8bit", **CHECKPOINTED}},
        15370,
        15930,
    ),
    "h100 full, packed": (
        "h100",
        {"adapter": {"method": "full"}, "data": {"packing": True, "max_length": 4096}, "train": {**CHECKPOINTED}},
        22184,
        24186,
    ),
    "h200 dora": ("h200", {"adapter": {"use_dora": True, "lora_dropout": 0.05}}, 19576, 20200),
    "t4 qlora": (
        "t4",
        {"adapter": {"method": "qlora"}, "train": {"per_device_train_batch_size": 1, **CHECKPOINTED}},
        1842,
        1952,
    ),
    "t4 lora": ("t4", {"data": {"max_length": 512}, "train": {"per_device_train_batch_size": 1}}, 3962, 4024),
    "l4 8 bits": ("l4", {"adapter": {"load_in_8bit": True}, "train": {"per_device_train_batch_size": 2}}, 5402, 5518),
    "rtx5090 freeze": (
        "rtx5090",
        {"adapter": {"method": "freeze", "trainable_layers": 4}, "train": {"per_device_train_batch_size": 2}},
        6783,
        6842,
    ),
    "cpu lora": ("cpu", {"train": {"precision": "bf16", "per_device_train_batch_size": 1}}, 4711, 5334),
}


@pytest.mark.parametrize("name", GOLDEN)
def test_presets_stay_what_they_were(name: str) -> None:
    card, sections, allocated, reserved = GOLDEN[name]
    found = answer(card, num_layers=16, **sections)
    assert (found.allocated // MiB, found.reserved // MiB) == (allocated, reserved)


def test_parts_add_up() -> None:
    for chosen in ({"method": "qlora"}, {"method": "full"}):
        for card in (A100, T4, CPU):
            found = simulate(profile(adapter=chosen, data={"max_length": 64}), config("llama"), card)
            assert set(found.breakdown) == set(PARTS)
            assert sum(found.breakdown.values()) == found.process
            assert found.allocated <= found.reserved <= found.process and found.low < found.process < found.high
    assert found.breakdown["optimizer"] == pytest.approx(2 * found.breakdown["weights"], rel=0.05)


def test_more_takes_more() -> None:
    """Rows, length, rank, layers' memory and bits: each in the direction that everybody expects."""
    base: dict[str, Any] = {"data": {"max_length": 512}, "train": {"per_device_train_batch_size": 2}}

    def process(**sections: Any) -> int:
        return answer(**{name: base.get(name, {}) | sections.get(name, {}) for name in {*base, *sections}}).process

    plain = process()
    assert process(train={"per_device_train_batch_size": 3}) > plain
    assert process(data={"max_length": 640}) > plain
    assert process(adapter={"r": 64}) > plain
    half = CHECKPOINTED | {"activation_checkpointing_kwargs": {"every_n_layers": 2}}
    assert process(train=CHECKPOINTED) < process(train=half) < plain
    assert process(adapter={"method": "qlora"}) < process(adapter={"load_in_8bit": True}) < plain
    assert process(adapter={"method": "qlora", "bnb_4bit_use_double_quant": False}) > process(
        adapter={"method": "qlora"}
    )
    assert process(adapter={"method": "full"}) > plain
    assert process(train={"optim": "adamw_8bit"}, adapter={"method": "full"}) < process(adapter={"method": "full"})


def test_evaluation_counts_where_there_is_one() -> None:
    sections: dict[str, Any] = {
        "data": {"max_length": 512, "eval_num_rows": 8},
        "train": {"per_device_train_batch_size": 1},
    }
    without = answer(data={"max_length": 512}, train={"per_device_train_batch_size": 1})
    narrow = answer(**sections, eval={"per_device_eval_batch_size": 1})
    assert narrow.allocated == without.allocated and narrow.phase != "evaluation"
    wide = answer(**sections, eval={"per_device_eval_batch_size": 256})
    assert wide.phase == "evaluation" and wide.process > without.process


def test_longest_row_is_what_counts() -> None:
    chosen, small = profile(data={"max_length": 256}), profile(data={"max_length": 64})
    full, shorter = (simulate(chosen, config("llama"), A100, longest=longest) for longest in (None, 64))
    assert shorter.process == simulate(small, config("llama"), A100).process < full.process


def test_gradients_of_a_second_micro_batch_are_added_to_those_of_the_first() -> None:
    once, twice = (
        answer(adapter={"method": "full"}, data={"max_length": 512}, train={"gradient_accumulation_steps": n})
        for n in (1, 2)
    )
    weights = once.breakdown["optimizer"] / 2  # two moments of each
    assert twice.allocated - once.allocated == pytest.approx(weights, rel=0.02)
    assert once.phase == twice.phase == "forward"  # the head's gradient is made there
    assert twice.breakdown["gradients"] - once.breakdown["gradients"] == pytest.approx(weights, rel=0.02)


def test_what_nobody_has_measured_is_said() -> None:
    assert "several processes" in answer(hardware={"num_processes": 2}).unvalidated
    assert "autocast on a GPU" in answer().unvalidated
    assert answer(train={"precision": "fp32"}).unvalidated == ()
    paged = answer(train={"optim": "paged_adamw_8bit"}, adapter={"method": "full"})
    assert paged.low < 0.75 * paged.process - paged.breakdown["optimizer"] * 0.7
    assert "the optimizer paged_adamw_8bit" in paged.unvalidated


def test_the_engine_s_own_functions_are_what_is_simulated(monkeypatch: pytest.MonkeyPatch) -> None:
    """A change of the loss changes the estimate."""
    before = answer(data={"max_length": 1024})
    monkeypatch.setattr("ftui.engine.objectives.chunked_head.CHUNK_BYTES", 1 << 30)
    assert answer(data={"max_length": 1024}).process > before.process + 512 * MiB


def test_a_model_that_brings_code_is_not_simulated() -> None:
    chosen = profile(model={"name_or_path": "/x", "trust_remote_code": True}, data={"max_length": 64})
    with pytest.raises(ModelError, match="own Python code"):
        simulate(chosen, config("llama"), A100)


def test_a_new_model_needs_no_folder() -> None:
    chosen = profile(
        model={"name_or_path": None, "from_scratch": {"size": "tiny"}}, adapter={"method": "full"},
        data={"max_length": 128},
    )  # fmt: skip
    assert simulate(chosen, None, A100).breakdown["weights"] > 2_700_000 * 4
