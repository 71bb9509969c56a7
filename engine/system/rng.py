"""The state of every random generator, copied at each step's start so that a save in mid-step is the last boundary."""

import random
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch


@dataclass(frozen=True)
class RngState:
    """States of Python's, numpy's and torch's generators (CPU and, where used, the accelerator)."""

    python: tuple[Any, ...]
    numpy: dict[str, Any]
    torch_cpu: torch.Tensor
    accelerator: torch.Tensor | None

    @classmethod
    def capture(cls, device: torch.device) -> "RngState":
        """The states as they are now, on the CPU and on `device`."""
        return cls(random.getstate(), np.random.get_state(legacy=False), torch.get_rng_state(), _get(device))

    def restore(self, device: torch.device) -> None:
        """Put all generators back; `device` is that of the state."""
        random.setstate(self.python)
        np.random.set_state(self.numpy)
        torch.set_rng_state(self.torch_cpu)
        if self.accelerator is not None:
            getattr(torch, device.type).set_rng_state(self.accelerator)

    def tensors(self) -> dict[str, torch.Tensor]:
        """The parts of the state that are tensors, for safetensors."""
        numpy_key = torch.from_numpy(self.numpy["state"]["key"].astype(np.int64))
        tensors = {"torch_cpu": self.torch_cpu, "numpy_key": numpy_key}
        return tensors if self.accelerator is None else tensors | {"accelerator": self.accelerator}

    def plain(self) -> dict[str, Any]:
        """The parts of the state that are plain values, for JSON."""
        return {
            "python": self.python,
            "numpy": {k: v for k, v in self.numpy.items() if k != "state"} | {"pos": self.numpy["state"]["pos"]},
        }

    @classmethod
    def rebuild(cls, tensors: dict[str, torch.Tensor], plain: dict[str, Any]) -> "RngState":
        """The state that `tensors()` and `plain()` gave."""
        version, internal, gauss = plain["python"]
        numpy_state = {k: v for k, v in plain["numpy"].items() if k != "pos"}
        key = tensors["numpy_key"].numpy().astype(np.uint32)
        numpy_state["state"] = {"key": key, "pos": plain["numpy"]["pos"]}
        return cls((version, tuple(internal), gauss), numpy_state, tensors["torch_cpu"], tensors.get("accelerator"))


def _get(device: torch.device) -> torch.Tensor | None:
    return None if device.type == "cpu" else getattr(torch, device.type).get_rng_state()


def rank_seed(seed: int, rank: int, step: int = 0) -> int:
    """A seed of its own for each rank above 0, and for each step after which a rank joins a run."""
    return int(np.random.SeedSequence([seed, rank, step] if step else [seed, rank]).generate_state(1)[0])


def seed_everything(seed: int) -> None:
    """Seed Python's, numpy's and torch's generators; torch's includes all devices."""
    random.seed(seed)
    np.random.seed(seed % 2**32)
    torch.manual_seed(seed)
