"""How often a step waits for its device: once, whatever it consists of. On a GPU each wait leaves it without work."""

from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
import torch
from torch.overrides import TorchFunctionMode
from torch.utils._python_dispatch import TorchDispatchMode

from ftui.engine.health import watch
from ftui.engine.training import forward_backward, step
from ftui.profile.schema import Profile
from tests.support.tiny import chats, make_profile, train_run, write_rows

VALUES = {"_local_scalar_dense", "is_nonzero", "nonzero", "masked_select", "equal", "_unique2", "unique_consecutive"}
COPIES = {"tolist", "numpy", "cpu"}  # which are no operation where the tensor is on the CPU, as here
STEPS, MICRO_BATCHES = 2, 3


class ValueCounter(TorchDispatchMode):
    """Counts the operations whose result the host needs: values, truths, and shapes that depend on values."""

    def __init__(self, counts: Counter[str]) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self._counts = counts

    def __torch_dispatch__(self, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        name = function._schema.name.removeprefix("aten::")
        by_mask = name.startswith("index") and any(tensor.dtype == torch.bool for tensor in _indices(args))
        self._counts[name] += name in VALUES or by_mask
        return function(*args, **(kwargs or {}))


class CopyCounter(TorchFunctionMode):
    """Counts the methods that copy a tensor to the host."""

    def __init__(self, counts: Counter[str]) -> None:
        super().__init__()
        self._counts = counts

    def __torch_function__(self, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        name = getattr(function, "__name__", "")
        self._counts[name] += name in COPIES
        return function(*args, **(kwargs or {}))


def _indices(args: Any) -> list[torch.Tensor]:
    lists = [arg for arg in args if isinstance(arg, list | tuple)]
    return [t for values in lists for t in values if isinstance(t, torch.Tensor)]


@contextmanager
def counted_steps(patch: pytest.MonkeyPatch) -> Iterator[list[Counter[str]]]:
    """What the steps taken in the block wait for, a counter each."""
    run_step, counters = step.StepRunner.run, list[Counter[str]]()

    def counted(self: step.StepRunner, boundary: Any) -> None:
        counters.append(Counter())
        with ValueCounter(counters[-1]), CopyCounter(counters[-1]):
            run_step(self, boundary)

    with patch.context() as patched:
        patched.setattr(watch, "CHECKED_STEPS", 0)  # the first steps look for dead adapters, which waits once more
        patched.setattr(step.StepRunner, "run", counted)
        yield counters


@pytest.fixture
def profile(model_folder: Path, tmp_path: Path) -> Any:
    def make(sections: dict[str, dict[str, Any]]) -> Profile:
        train = {"max_steps": STEPS, "per_device_train_batch_size": 2, "gradient_accumulation_steps": MICRO_BATCHES}
        rows = write_rows(tmp_path / "rows.jsonl", chats(STEPS * 2 * MICRO_BATCHES))
        data = {"padding_free": False} | sections.get("data", {})  # joined rows are for CPUs, where nothing waits
        return make_profile(model_folder, rows, **sections | {"data": data, "train": train | sections.get("train", {})})

    return make


@pytest.mark.parametrize(
    "sections",
    [
        {"adapter": {"method": "lora", "lora_dropout": 0.1}},
        {"data": {"packing": True}},
        {"train": {"precision": "fp16"}},
        {"train": {"precision": "bf16", "max_grad_norm": None}},
        {"train": {"activation_checkpointing": True}},
    ],
    ids=["lora", "packed", "fp16", "bf16, unclipped", "checkpointed"],
)
def test_a_step_waits_once(
    profile: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, sections: dict[str, dict[str, Any]]
) -> None:
    with counted_steps(monkeypatch) as counters:
        train_run(tmp_path / "run", profile(sections))
    assert [+counter for counter in counters] == [Counter(numpy=1)] * STEPS


def test_a_wait_in_a_micro_batch_is_seen(profile: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The counters do count: with a loss that is looked at in each micro-batch there are so many more."""
    backpropagate = forward_backward.backpropagate

    def looking(*arguments: Any) -> Any:
        loss = backpropagate(*arguments)
        assert loss.sums["targets"].isfinite()
        return loss

    monkeypatch.setattr(forward_backward, "backpropagate", looking)
    with counted_steps(monkeypatch) as counters:
        train_run(tmp_path / "run", profile({}))
    assert [counter.total() for counter in counters] == [1 + MICRO_BATCHES] * STEPS
