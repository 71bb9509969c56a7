"""A base read into shards: together they are what transformers loads, and no rank has much more than its own part."""

import weakref
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest
import torch
import torch.distributed as dist
from peft import LoraConfig, get_peft_model
from torch.distributed.tensor import DTensor
from torch.nn import functional as F
from torch.testing._internal.distributed.fake_pg import FakeStore
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves
from transformers import AutoConfig, AutoModelForCausalLM

from ftui.engine.distributed.gather_shards import gatherer, list_shards
from ftui.engine.distributed.load_shards import load_shards
from ftui.engine.distributed.process_group import ProcessGroup
from ftui.engine.distributed.sharded_base import fill_up
from ftui.engine.generation.load_trained import AnsweringModel
from ftui.engine.models.load_model import load_model
from ftui.engine.models.model_parts import ModelParts
from ftui.engine.models.quantization import quantized_loading
from ftui.engine.objectives.chunked_head import chunked_cross_entropy
from ftui.engine.simulate.meta_model import make_meta_model
from ftui.engine.system.device import Hardware
from ftui.errors import ModelError
from ftui.profile.schema import HardwareSection
from ftui.profile.sections.adapter import AdapterSection
from ftui.profile.sections.model import ModelSection
from tests.support.tiny import chats, make_profile, write_rows

CPU = Hardware(torch.device("cpu"), "fp32", 1, "a CPU", None)
SIZES: dict[str, Any] = {
    "vocab_size": 301, "hidden_size": 64, "intermediate_size": 96, "num_hidden_layers": 3, "num_attention_heads": 4,
    "num_key_value_heads": 2, "max_position_embeddings": 64,
}  # fmt: skip

GEMMA4 = {"head_dim": 16, "global_head_dim": 16, "vocab_size_per_layer_input": 301, "hidden_size_per_layer_input": 8}


@contextmanager
def rank_of(rank: int, size: int) -> Iterator[ProcessGroup]:
    """A rank whose others are only imagined: what is gathered is not asked for."""
    dist.init_process_group("fake", store=FakeStore(), rank=rank, world_size=size)
    try:
        yield ProcessGroup(rank, size)
    finally:
        dist.destroy_process_group()


@contextmanager
def only_rank() -> Iterator[ProcessGroup]:
    """A rank that has all rows of what is divided, and gathers them from itself."""
    store = dist.HashStore()  # type: ignore[attr-defined]
    dist.init_process_group("gloo", store=store, rank=0, world_size=1)
    try:
        yield ProcessGroup()
    finally:
        dist.destroy_process_group()


def save_model(folder: Path, kind: str, **more: Any) -> Path:
    torch.manual_seed(3)
    model = AutoModelForCausalLM.from_config(AutoConfig.for_model(kind, **SIZES | more), dtype=torch.float32)
    for name, buffer in model.named_buffers():
        if name.endswith("layer_scalar"):  # of gemma4: a trained number that is no parameter
            buffer.fill_(0.5)
    model.save_pretrained(folder / kind, max_shard_size="100KB")
    return folder / kind


def contents(model: Any) -> dict[str, torch.Tensor]:
    """What this process has of each weight and constant."""
    found = {name: getattr(weight, "_local_tensor", weight).detach() for name, weight in model.named_parameters()}
    for path, module in model.named_modules():
        if (state := getattr(module, "quant_state", None)) is not None:
            found |= {f"{path}.{key}": value for key, value in state.as_dict(packed=True).items()}
    return found | dict(model.named_buffers())


@pytest.mark.slow
@pytest.mark.parametrize(
    ("kind", "method", "precision", "size", "more"),
    [
        ("llama", "lora", "fp32", 2, {"tie_word_embeddings": True}),
        ("qwen2", "lora", "bf16", 3, {}),
        ("gpt2", "lora", "fp32", 2, {}),
        ("gemma4_text", "lora", "fp32", 2, GEMMA4),
        ("qwen2", "qlora", "bf16", 2, {}),
        ("llama", "qlora", "fp32", 3, {"intermediate_size": 72}),
    ],
)
def test_shards_together_are_the_model(
    kind: str, method: str, precision: str, size: int, more: dict[str, Any], tmp_path: Path
) -> None:
    folder, hardware = save_model(tmp_path, kind, **more), replace(CPU, precision=precision)
    section, dtype = ModelSection(name_or_path=str(folder)), hardware.compute_dtype
    options = quantized_loading(AdapterSection(method=method), hardware)  # type: ignore[arg-type]
    whole = contents(load_model(folder, section, dtype, hardware=hardware, **options))
    parts, states = [], []
    for rank in range(size):
        torch.manual_seed(5)
        with rank_of(rank, size) as ranks:
            quantization = options.get("quantization")
            model = load_shards(folder, section, dtype, ranks, hardware=hardware, quantization=quantization)
            parts.append(contents(model))
            states.append(torch.get_rng_state())
    torch.manual_seed(5)
    assert all(torch.equal(state, torch.get_rng_state()) for state in states), "the adapter is drawn from it"
    divided = 0
    for name, tensor in whole.items():
        own = [part[name] for part in parts]
        is_divided = own[0].shape != tensor.shape
        divided += is_divided
        for one in [torch.cat(own)] if is_divided else own:
            assert one.dtype == tensor.dtype and torch.equal(one, tensor), name
    assert divided >= 3 * 7 + (kind != "gpt2")


class Counter(TorchDispatchMode):
    """Bytes of the storages that are alive, and the most there were at once; what is on `meta` takes none."""

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.now = self.peak = 0
        self._alive: set[int] = set()

    def __torch_dispatch__(self, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        result = function(*args, **(kwargs or {}))
        for tensor in tree_leaves((args, kwargs, result)):
            if type(tensor) is torch.Tensor and tensor.device.type == "cpu":
                self._note(tensor.untyped_storage())
        return result

    def _note(self, storage: torch.UntypedStorage) -> None:
        if storage._cdata not in self._alive:
            self._alive.add(storage._cdata)
            self.now += storage.nbytes()
            self.peak = max(self.peak, self.now)
            weakref.finalize(storage, self._free, storage._cdata, storage.nbytes())

    def _free(self, key: int, size: int) -> None:
        self._alive.discard(key)
        self.now -= size


@pytest.mark.parametrize(("method", "most_tensors"), [("lora", 1.1), ("qlora", 2.1)])
def test_a_rank_never_has_more_than_its_part_and_two_tensors(method: str, most_tensors: float, tmp_path: Path) -> None:
    """The largest tensor is a twelfth of the model. Constants of 4 bits stay whole, a sixteenth of it."""
    folder = save_model(tmp_path, "llama", intermediate_size=1024, vocab_size=1024, num_hidden_layers=4)
    section = ModelSection(name_or_path=str(folder))
    options = quantized_loading(AdapterSection(method=method), CPU)  # type: ignore[arg-type]
    with rank_of(1, 2) as ranks, Counter() as counter:
        model = load_shards(
            folder, section, torch.float32, ranks, hardware=CPU, quantization=options.get("quantization")
        )
        own = {id(t.untyped_storage()): t.untyped_storage().nbytes() for t in contents(model).values()}
    largest = max(weight.numel() for weight in model.parameters()) * 4
    assert sum(own.values()) * 1.5 < sum(weight.numel() for weight in model.parameters()) * 4
    assert counter.peak <= sum(own.values()) + most_tensors * largest


def test_a_head_with_a_bias_is_gathered_and_let_go_of(tmp_path: Path) -> None:
    """By the loss, which takes its tensors, and by its own forward pass: three steps are those of whole weights."""
    folder = save_model(tmp_path, "phi")
    section = ModelSection(name_or_path=str(folder))
    whole = load_model(folder, section, torch.float32, hardware=CPU).requires_grad_(True)
    with only_rank() as ranks:
        divided = load_shards(folder, section, torch.float32, ranks, hardware=CPU, trained=True)
        parts: Any = SimpleNamespace(model=divided, optimizer=torch.optim.SGD(divided.parameters(), lr=0.1))
        assert len(list_shards(parts)) == len(list(divided.parameters()))
        ids = torch.arange(18).reshape(2, 9)
        losses = []
        for model in (whole, divided):
            optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
            for step in range(3):
                if step == 1:
                    loss = F.cross_entropy(model(input_ids=ids).logits.flatten(0, 1), ids.flatten())
                else:
                    hidden = model.base_model(input_ids=ids)[0].flatten(0, 1)
                    loss = chunked_cross_entropy(model.get_output_embeddings(), hidden, ids.flatten(), 0.0).loss / 18
                loss.backward()
                optimizer.step()
                optimizer.zero_grad()
                losses.append(loss.item())
        assert losses[3:] == pytest.approx(losses[:3], rel=1e-6) and losses[5] < losses[3]
        assert all(isinstance(weight, DTensor) for weight in divided.parameters())


def test_casts_of_gathered_layers_are_not_kept(tmp_path: Path) -> None:
    """In a pass for others, in answers and where log-probabilities are measured: it would be those of all layers."""
    folder, hardware, nothing = save_model(tmp_path, "llama"), replace(CPU, precision="bf16"), cast(Any, None)
    section, kept = ModelSection(name_or_path=str(folder)), list[bool]()
    with only_rank() as ranks:
        model = load_shards(folder, section, torch.float32, ranks, hardware=hardware, trained=True)
        parts = ModelParts(model, nothing, nothing, nothing, hardware)
        model.base_model.register_forward_pre_hook(lambda *_: kept.append(torch.is_autocast_cache_enabled()))
        fill_up(parts, 1, backward=False)
        for block in (parts.autocast(), AnsweringModel(model, nothing, (), hardware, True).answering(None)):
            with block:
                model(input_ids=torch.arange(4)[None])
    assert kept == [False] * 3


def test_tensors_of_another_shape_than_the_model_says_are_refused(tmp_path: Path) -> None:
    """Of an embedding with more rows in the file the first ones would be taken."""
    folder = save_model(tmp_path, "llama")
    config = folder / "config.json"
    config.write_text(config.read_text().replace('"vocab_size": 301', '"vocab_size": 300'))
    with rank_of(1, 2) as ranks, pytest.raises(ModelError, match=r"\[301, 64\] in the file, not \[300, 64\]"):
        load_shards(folder, ModelSection(name_or_path=str(folder)), torch.float32, ranks, hardware=CPU)


def test_a_frozen_base_is_in_no_checkpoint(tmp_path: Path) -> None:
    """So a save beside the steps is a copy of the adapter, which is whole on each rank."""
    folder = save_model(tmp_path, "llama")
    with rank_of(0, 2) as ranks:
        model: Any = load_shards(folder, ModelSection(name_or_path=str(folder)), torch.float32, ranks, hardware=CPU)
        adapted: Any = get_peft_model(model, LoraConfig(target_modules=["q_proj"]))
        trained = [weight for weight in adapted.parameters() if weight.requires_grad]
        parts: Any = SimpleNamespace(model=adapted, optimizer=torch.optim.SGD(trained, lr=0.1))
        assert trained and gatherer(parts, ranks) is None


SHARDED = {"num_processes": 2, "shard": "all"}
REFUSED: dict[str, tuple[str, dict[str, Any], dict[str, Any]]] = {
    "experts": ("qwen3_moe", {"num_experts": 4, "moe_intermediate_size": 32, "head_dim": 16}, {}),
    "Embeddings and head": ("llama", {}, {"target_modules": ["q_proj", "lm_head"]}),
}


@pytest.mark.parametrize("words", REFUSED)
def test_what_cannot_be_sharded_is_refused_before_it_is_read(words: str, tmp_path: Path) -> None:
    kind, sizes, adapter = REFUSED[words]
    config = AutoConfig.for_model(kind, **SIZES | sizes)
    rows = write_rows(tmp_path / "rows.jsonl", chats(2))
    profile = make_profile(tmp_path, rows, adapter={"method": "lora"} | adapter, hardware=SHARDED)
    with pytest.raises(ModelError, match=words):
        make_meta_model(profile, config, CPU)
    whole = profile.model_copy(update={"hardware": HardwareSection()})
    assert make_meta_model(whole, config, CPU).model is not None
