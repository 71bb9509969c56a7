"""What may lie in host memory (`hardware.offload`, `train.activation_offload`), beside what."""

from collections.abc import Iterator

from ftui.profile.checks.known_values import KnownValues, contradiction
from ftui.profile.origins import ProfileFault
from ftui.profile.sections.optimizers import FROM_BITSANDBYTES


def _offloads_base(values: KnownValues) -> Iterator[ProfileFault]:
    """A layer's weights come to the GPU to compute it, and again to compute it a second time for its backward pass."""
    here, again = "hardware.offload", "train.activation_checkpointing"
    if "base" not in values(here):
        return
    if values("adapter.method") == "full":
        why = 'offload = "base" is for frozen layers, and method = "full" freezes none'
        yield contradiction(f"{here} adapter.method", why, 'Set offload = "state", or method = "lora".')
    if values("adapter.load_in_8bit"):
        why = "bitsandbytes keeps a copy of 8-bit weights on the GPU, so that they cannot be offloaded"
        yield contradiction(f"{here} adapter.load_in_8bit", why, 'Set method = "qlora": 4 bits can be.')
    if values("train.torch_compile"):
        why = "compiled layers do not take weights that come and go"
        yield contradiction(f"{here} train.torch_compile", why, "Set torch_compile = false.")
    if values("hardware.shard") != "none":
        why = f'offload = "base" and shard = "{values("hardware.shard")}": a base that is divided stays on the GPUs'
        yield contradiction(f"{here} hardware.shard", why, "Leave one of them out.")
    details = values(f"{again}_kwargs")
    if not values(again):
        why = 'offload = "base" needs activation_checkpointing: else the GPU keeps each layer for its backward pass'
        yield contradiction(f"{here} {again}", why, "Set train.activation_checkpointing = true.")
    elif details is not None and (details.num_layers is not None or details.every_n_layers != 1):
        why = 'offload = "base" needs activation_checkpointing of all layers: else the GPU keeps those of the others'
        yield contradiction(f"{here} {again}_kwargs", why, "Leave activation_checkpointing_kwargs out.")


def _offloads_state(values: KnownValues) -> Iterator[ProfileFault]:
    optim = values("train.optim")
    if "state" in values("hardware.offload") and optim in FROM_BITSANDBYTES:
        why = f'offload = "state" is for optimizers of torch, and optim = "{optim}" comes from bitsandbytes'
        fix = 'Set optim = "adamw_torch_fused"; or leave offload out: "paged_adamw_8bit" offloads by itself.'
        yield contradiction("hardware.offload train.optim", why, fix)


def _offloads_activations(values: KnownValues) -> Iterator[ProfileFault]:
    if values("train.activation_offload") and values("train.torch_compile"):
        why = "what compiled layers store cannot be offloaded"
        yield contradiction("train.activation_offload train.torch_compile", why, "Set one of them to false.")


CHECKS = (_offloads_base, _offloads_state, _offloads_activations)
