"""The tables of a profile and their keys. The docstring under a key is its help text everywhere."""

from typing import Literal, Self

from pydantic import model_validator

from ftui.profile.fields import Section, conduct, weights
from ftui.profile.scratch import FromScratch


class RunSection(Section):
    """`[run]`: what kind of training this is."""

    stage: Literal["pretrain", "sft"] = weights()
    """`sft` learns the answers of a conversation or a completion; `pretrain` learns every token of plain text."""

    name: str | None = conduct(None)
    """Name of the run's folder. Without it, the profile's file name."""

    format: Literal[1] = conduct(1)
    """Version of the profile's form."""


class ModelSection(Section):
    """`[model]`: the base model: one of `name_or_path` and `from_scratch`."""

    name_or_path: str | None = weights(None)
    """Folder in transformers format (relative to the profile's folder), or a hub id such as `Qwen/Qwen3-0.6B`."""

    revision: str | None = weights(None)
    """Branch, tag or commit of a hub model. Resolved to a commit when the run starts."""

    from_scratch: FromScratch | None = weights(None)
    """Architecture and tokenizer of a new model with random weights."""

    attn_implementation: Literal["auto", "eager", "sdpa", "flash_attention_2"] = weights("auto")
    """Attention kernel; `auto` is transformers' choice: `sdpa`, or `eager` where a model type has no other."""

    @model_validator(mode="after")
    def _no_address(self) -> Self:
        if "://" in (self.name_or_path or ""):  # it could hold a password, and a profile is copied into its run
            raise ValueError("name_or_path is a hub id or a folder, not an address; HF_ENDPOINT names another hub")
        return self

    @model_validator(mode="after")
    def _one_source(self) -> Self:
        if (self.name_or_path is None) == (self.from_scratch is None):
            raise ValueError("give one of name_or_path and from_scratch")
        return self


class AdapterSection(Section):
    """`[adapter]`: which weights are trained."""

    method: Literal["lora", "full"] = weights("lora")
    """`lora` trains small matrices beside the frozen base; `full` trains every weight of the model."""

    r: int = weights(16, ge=1, le=1024)
    """Rank of the LoRA matrices: more learns more and costs more memory."""

    lora_alpha: int = weights(32, ge=1)
    """Scale of the adapter: its output is multiplied by lora_alpha / r."""

    lora_dropout: float = weights(0.0, ge=0, lt=1)
    """Share of the adapter's inputs dropped while training."""

    target_modules: Literal["all-linear"] | tuple[str, ...] = weights("all-linear")
    """Layers that get an adapter: `all-linear`, or a list of names such as `["q_proj", "v_proj"]`."""


class DataSection(Section):
    """`[data]`: the rows. Paths are relative to the profile's folder."""

    train: str | tuple[str, ...] = weights()
    """File or files to train on: `.jsonl`, `.json` or `.txt`."""

    eval: str | tuple[str, ...] | None = conduct(None)
    """File or files to evaluate on."""

    eval_fraction: float | None = weights(None, gt=0, lt=1)
    """Share of the training rows set aside for evaluation (chosen by the seed)."""

    eval_num_rows: int | None = weights(None, ge=1)
    """Number of training rows set aside for evaluation (chosen by the seed)."""

    format: Literal["auto", "alpaca", "messages", "sharegpt", "prompt_completion", "text"] = weights("auto")
    """Form of the rows; `auto` looks at the keys of each file's first row."""

    max_length: int = weights(1024, ge=8)
    """Longest sequence in tokens. Longer rows are cut (`sft`) or split (`pretrain`), and counted."""

    packing: bool = weights(False)
    """Several short rows share one sequence without seeing each other: no padding, fewer steps."""

    @model_validator(mode="after")
    def _one_evaluation_source(self) -> Self:
        given = [k for k in ("eval", "eval_fraction", "eval_num_rows") if getattr(self, k) is not None]
        if len(given) > 1:
            raise ValueError(f"give one of {' and '.join(given)}")
        return self


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


class EvalSection(Section):
    """`[eval]`: how often and how the model is measured."""

    eval_strategy: Literal["no", "steps", "epoch"] = weights("epoch")
    """When to evaluate (where there are rows for it); the end of the run always is."""

    eval_steps: int = weights(100, ge=1)
    """Steps between evaluations with eval_strategy = "steps"."""

    eval_on_start: bool = conduct(True)
    """Evaluate before the first step, so that there is something to compare with."""

    per_device_eval_batch_size: int = conduct(8, ge=1)
    """Sequences that go through the model at once while evaluating."""

    early_stopping_patience: int | None = weights(None, ge=1)
    """End the run after this many evaluations in a row without a better loss."""

    early_stopping_threshold: float = weights(0.0, ge=0)
    """How much lower the loss must be to count as better for early stopping."""

    load_best_model_at_end: bool = weights(True)
    """Put the checkpoint with the lowest evaluation loss in final/, not the last one."""

    sample_prompts: tuple[str, ...] = conduct(())
    """Questions answered (greedily) before the first step and by the final model."""

    sample_max_new_tokens: int = conduct(64, ge=1)
    """Longest sample answer in tokens."""


class CheckpointSection(Section):
    """`[checkpoint]`: when the run is saved and how many checkpoints are kept."""

    save_steps: int | None = conduct(200, ge=1)
    """Steps between checkpoints. "none" = by time only."""

    save_minutes: float | None = conduct(10.0, gt=0)
    """Longest time between checkpoints: what a kill can cost. "none" = by steps only."""

    save_total_limit: int = conduct(3, ge=2)
    """Checkpoints kept (the best one comes on top)."""

    grace_seconds: float = conduct(10.0, ge=0)
    """Time a pre-empted pod leaves between SIGTERM and the end; a save that takes longer is not begun."""

    max_hold_minutes: float = conduct(15.0, ge=0)
    """How long a run waits for room on a full disk before it parks."""


class LogSection(Section):
    """`[log]`: what is printed."""

    logging_steps: int = conduct(10, ge=1)
    """Steps between printed lines. Every step is recorded whatever this says."""


class HardwareSection(Section):
    """`[hardware]`: where it runs."""

    device: Literal["auto", "cpu", "cuda", "mps"] = weights("auto")
    """`auto` takes the GPU where there is one; `cpu` insists."""

    num_threads: int | None = weights(None, ge=1)
    """CPU threads of torch. Without it, every core this process may use."""


class HealthSection(Section):
    """`[health]`: when a sick run is ended."""

    max_bad_steps: int = conduct(3, ge=1)
    """End the run after this many steps in a row whose loss or gradient is NaN or infinite (none is applied)."""

    stall_minutes: float | None = conduct(5.0, gt=0)
    """An engine that stands still for this long (and 20 times its usual pace) is started again. "none" = never."""


class Profile(Section):
    """A whole profile."""

    run: RunSection
    model: ModelSection
    adapter: AdapterSection = AdapterSection()
    data: DataSection
    train: TrainSection = TrainSection()
    eval: EvalSection = EvalSection()
    checkpoint: CheckpointSection = CheckpointSection()
    log: LogSection = LogSection()
    hardware: HardwareSection = HardwareSection()
    health: HealthSection = HealthSection()

    @model_validator(mode="after")
    def _sections_agree(self) -> Self:
        if self.model.from_scratch is not None and self.adapter.method != "full":
            raise ValueError('a model from scratch is trained whole: set adapter.method = "full"')
        return self
