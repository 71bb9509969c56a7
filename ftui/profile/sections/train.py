"""`[train]`: steps, optimizer, learning rate, precision."""

from typing import Any, Literal

from pydantic import field_validator

from ftui.profile.sections.fields import Section, conduct, weights
from ftui.profile.sections.optimizers import OptimArgs, Optimizer
from ftui.profile.sections.schedulers import NOT_OFFERED, Scheduler, SchedulerKwargs


class ActivationCheckpointingKwargs(Section):
    """`[train.activation_checkpointing_kwargs]`: which activations are recomputed."""

    every_n_layers: int = weights(1, ge=1)
    """Recompute the activations of every n-th layer only: 2 saves about half the memory at half the cost in time."""

    num_layers: int | None = weights(None, ge=1)
    """Recompute those of the first n layers only: no more of them than memory asks for. `ftui estimate --fit` counts
    them."""


class TrainSection(Section):
    """`[train]`: the optimizer's steps. Keys as in transformers' TrainingArguments."""

    max_steps: int | None = weights(None, ge=1, le=10**12)
    """Number of steps (optimizer updates). Give this or num_train_epochs."""

    num_train_epochs: float | None = weights(None, gt=0, le=10**9)
    """Number of passes over the rows. Give this or max_steps; with neither, 1."""

    per_device_train_batch_size: int = weights(4, ge=1)
    """Micro-batch: sequences that pass through the model at once. Memory grows with it."""

    gradient_accumulation_steps: int = weights(1, ge=1)
    """Micro-batches per step. Effective batch = per_device_train_batch_size x this x hardware.num_processes."""

    effective_batch: int | None = weights(None, ge=1)
    """Sequences per step over all processes, whatever gradient_accumulation_steps says. A run that goes on with another
    hardware.num_processes keeps its own. Default: that product."""

    learning_rate: float = weights(2e-4, ge=0)
    """Peak learning rate."""

    lr_scheduler_type: Scheduler = weights("cosine")
    """Shape of the learning rate after the warm-up. `constant` and `reduce_lr_on_plateau` with warmup_steps warm up
    too; the latter then drops each time the evaluation loss stops improving."""

    lr_scheduler_kwargs: SchedulerKwargs | None = weights(None)
    """Options of the schedule, such as `{ num_cycles = 2 }`."""

    warmup_steps: float = weights(0.03, ge=0)
    """Steps over which the learning rate rises from 0: a number of steps, or a share of all steps if below 1."""

    optim: Optimizer = weights("adamw_torch_fused")
    """Optimizer. The default is the fastest AdamW. Optimizers with `8bit`, `paged` or `bnb` in their name, lion and
    ademamix come from bitsandbytes. 8-bit moments take a quarter of the memory; paged moments move to host memory when
    the GPU is full (on a CPU, paging has no effect)."""

    optim_args: OptimArgs | None = weights(None)
    """Options of the optimizer, such as `{ momentum = 0.9 }` for `sgd`."""

    weight_decay: float = weights(0.0, ge=0)
    """Weight decay per step. Norms and biases are excluded."""

    adam_beta1: float = weights(0.9, ge=0, lt=1)
    """Decay of the first moment of AdamW, lion and ademamix."""

    adam_beta2: float = weights(0.999, ge=0, lt=1)
    """Decay of the second moment of AdamW and ademamix, and of lion's only moment."""

    adam_epsilon: float = weights(1e-8, gt=0)
    """Added to the denominator of AdamW and ademamix."""

    max_grad_norm: float | None = weights(1.0, gt=0)
    """Largest norm of the gradient; a larger gradient is scaled down to it. "none" = no clipping."""

    precision: Literal["auto", "bf16", "fp16", "fp32"] = weights("auto")
    """`auto` is bf16 where that is fast (GPUs since Ampere, CPUs with AMX), fp16 on older NVIDIA GPUs, and fp32
    elsewhere. fp16 scales the loss, and skips a step that overflows."""

    tf32: bool = weights(False)
    """Round fp32 matrix products to 10 bits of mantissa: faster on NVIDIA GPUs since Ampere."""

    activation_checkpointing: bool = weights(False)
    """Recompute activations in the backward pass instead of storing them: much less memory, about a third slower."""

    activation_checkpointing_kwargs: ActivationCheckpointingKwargs | None = weights(None)
    """`{ every_n_layers = 2 }` recomputes the activations of every second layer only, `{ num_layers = 8 }` those of the
    first 8: each layer that is not recomputed saves a third of its time, and takes memory instead."""

    activation_offload: bool = conduct(False)
    """Keep in host memory what layers store for the backward pass (with activation_checkpointing: their inputs). The
    losses stay the same; each byte goes to the host and comes back once a micro-batch."""

    torch_compile: bool = weights(False)
    """Compile the layers for training: slower start, faster steps. Needs a C++ compiler; a resume is not EXACT."""

    use_liger_kernel: bool = weights(False)
    """Liger's Triton kernels for norms, rotary positions and MLPs (needs the package liger-kernel and a GPU)."""

    neftune_noise_alpha: float | None = weights(None, gt=0)
    """Size of the noise added to embeddings while training (NEFTune); 5 is common. "none" = no noise."""

    label_smoothing_factor: float = weights(0.0, ge=0, lt=1)
    """Share of each target's probability that is spread over the whole vocabulary while training."""

    train_sampling_strategy: Literal["random", "group_by_length", "sequential"] = weights("random")
    """Order of the rows in an epoch. `group_by_length` puts rows of similar length in one step (less padding)."""

    seed: int = weights(42, ge=0, le=2**63 - 1)
    """Seed for the order of rows, dropout and new weights."""

    data_seed: int | None = weights(None, ge=0, le=2**63 - 1)
    """Seed for the order of rows and for the choice of evaluation rows. Default: `seed`."""

    full_determinism: bool = weights(False)
    """Use deterministic kernels only: slower on a GPU, but required there for an EXACT resume."""

    @property
    def rows_seed(self) -> int:
        """The seed for every choice of rows."""
        return self.seed if self.data_seed is None else self.data_seed

    @field_validator("lr_scheduler_type", mode="before")
    @classmethod
    def _is_offered(cls, kind: Any) -> Any:
        if isinstance(kind, str) and kind in NOT_OFFERED:
            raise ValueError(f"{kind} is not offered: {NOT_OFFERED[kind]}")
        return kind
