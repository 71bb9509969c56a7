"""What is asked of a machine before its processes meet, and how gradients are put together to be sent."""

from dataclasses import replace

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from ftui.engine.distributed import process_group
from ftui.engine.distributed.process_group import _buckets, join
from ftui.engine.system.device import Hardware
from ftui.errors import HardwareError, ProfileError
from ftui.profile.schema import Profile


def of_processes(number: int, shard: str = "none") -> Profile:
    tables = {"run": {"stage": "sft", "name": "mine"}, "model": {"name_or_path": "a/b"}, "data": {"train": "r"}}
    return Profile.model_validate(tables | {"hardware": {"num_processes": number, "shard": shard}})


GPU = Hardware(torch.device("cuda"), "bf16", 1, "one GPU", None)


@pytest.mark.parametrize(
    ("device", "gpus", "words", "shard", "keys"),
    [
        ("cuda", 2, "2 GPUs", "all", "hardware.num_processes=2"),
        ("cuda", 1, "1 GPU:", "none", "hardware.num_processes=1"),
        ("cuda", 1, "1 GPU:", "all", "hardware.num_processes=1 --set hardware.shard=none"),
        ("mps", 0, "one MPS device", "none", "hardware.num_processes=1"),
    ],
)
def test_more_processes_than_devices_are_refused(
    device: str, gpus: int, words: str, shard: str, keys: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Before they try to meet: the ranks without a GPU would never come. One process alone divides nothing."""
    monkeypatch.setenv("WORLD_SIZE", "4")
    monkeypatch.setattr(process_group, "num_nvidia_gpus", lambda: gpus)
    with pytest.raises(HardwareError, match=words) as caught:
        join(replace(GPU, device=torch.device(device)), of_processes(4, shard))
    assert f"`ftui resume mine --set {keys}`" in caught.value.hint


@pytest.mark.parametrize(("started", "wanted"), [("2", 1), ("1", 2), ("2", 3)])
def test_other_ranks_than_the_profile_asks_for_are_refused(
    started: str, wanted: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("WORLD_SIZE", started)
    with pytest.raises(ProfileError, match=f"{wanted}, but {started} were started"):
        join(GPU, of_processes(wanted))


@given(st.lists(st.tuples(st.integers(1, 9), st.sampled_from([torch.float32, torch.bfloat16])), max_size=12))
def test_buckets_keep_order_and_type_and_are_not_too_large(kinds: list[tuple[int, torch.dtype]]) -> None:
    grads = [torch.full((size,), float(number), dtype=dtype) for number, (size, dtype) in enumerate(kinds)]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(process_group, "BUCKET_BYTES", 32)
        found = list(_buckets(grads))
    assert [id(grad) for bucket in found for grad in bucket] == [id(grad) for grad in grads]
    for bucket in found:
        assert len({grad.dtype for grad in bucket}) == 1
        assert sum(grad.numel() * grad.element_size() for grad in bucket[:-1]) < 32
