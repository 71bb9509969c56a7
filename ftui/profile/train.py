"""`[train]`: steps, optimizer, learning rate, precision."""

from typing import Literal, Self

from pydantic import model_validator

from ftui.profile.fields import Section, weights


class TrainSection(Section):
    """`[train]`: the optimizer's steps. Spelling of transformers' TrainingArguments."""

    max_steps: int | None = weights(None, ge=1)
    """Number of steps (optimizer updates). One of this and num_train_epochs."""

    num_train_epochs: float | None = weights(None, gt=0)
    """Number of passes over the rows. One of this and max_steps; without both, 1."""

    per_device_train_batch_size: int = weights(4, ge=1)
    """Micro-batch: sequences that go through the model at once. Memory grows with it."""

    gradient_accumulation_steps: int = weights(1, ge=1)
    """Micro-batches per step. Effective batch = per_device_train_batch_size x this."""

    learning_rate: float = weights(2e-4, ge=0)
    """Highest learning rate."""

    lr_scheduler_type: Literal["linear", "cosine", "constant", "constant_with_warmup"] = weights("cosine")
    """Shape of the learning rate after the warm-up. `constant` with warmup_steps warms up too."""

    warmup_steps: float = weights(0.03, ge=0)
    """Steps over which the learning rate rises from 0: a number of steps, or below 1 a share of all steps."""

    optim: Literal["adamw_torch"] = weights("adamw_torch")
    """Optimizer."""

    weight_decay: float = weights(0.0, ge=0)
    """Decay of the weights per step (norms and biases are left out)."""

    adam_beta1: float = weights(0.9, ge=0, lt=1)
    """Decay of AdamW's first moment."""

    adam_beta2: float = weights(0.999, ge=0, lt=1)
    """Decay of AdamW's second moment."""

    adam_epsilon: float = weights(1e-8, gt=0)
    """Added to the denominator of AdamW."""

    max_grad_norm: float | None = weights(1.0, gt=0)
    """Longest gradient; a longer one is scaled down to it. "none" = no clipping."""

    precision: Literal["auto", "bf16", "fp32"] = weights("auto")
    """`auto` is bf16 where that is the faster one (GPUs since Ampere, CPUs with AMX), else fp32."""

    activation_checkpointing: bool = weights(False)
    """Forget activations and compute them again in the backward pass: much less memory, about a third slower."""

    train_sampling_strategy: Literal["random", "group_by_length", "sequential"] = weights("random")
    """Order of the rows in an epoch; `group_by_length` puts rows of like length in one step (less padding)."""

    seed: int = weights(42, ge=0)
    """Seed of the order of rows, of dropout and of new weights."""

    full_determinism: bool = weights(False)
    """Deterministic kernels only: slower on a GPU, and there the only way to an EXACT resume."""

    @model_validator(mode="after")
    def _one_end(self) -> Self:
        if self.max_steps is not None and self.num_train_epochs is not None:
            raise ValueError("give one of max_steps and num_train_epochs")
        return self
