"""What a run writes, in bytes: its checkpoints (engine/checkpoints/checkpoint.py), its result, its folder at most."""

import math

from ftui.estimate.setup import TrainingSetup
from ftui.estimate.states import FP32, moment_bytes
from ftui.estimate.trained import find_trained

SMALL_FILES = 64 << 10
"""Configs, state, manifest and random generators of a checkpoint."""
TOKEN_BYTES = 75
"""Of tokenizer.json for each entry of the vocabulary, its merge rule included (Llama 3: 17.2 MB for 128 256 entries is
134; Qwen 2.5: 11.4 MB for 151 936 is 75; Llama 2: 1.8 MB for 32 000 is 57; SmolLM2: 3.5 MB for 49 152 is 72)."""

LEDGER_ROW, LEDGER_MOST = 12, 256 << 20
"""Bytes of a row, or of a step, in the ledger (engine/ledger/ledger_file.py), and of all of it."""
TEXT_BYTES = 4
"""Of text for each token."""


def weights_bytes(setup: TrainingSetup) -> int:
    """The file of weights in a checkpoint: the adapter, or the whole model as it is stored."""
    trained, shape = find_trained(setup), setup.shape
    if setup.is_lora:
        own = trained.num_copied * (2 if _is_saved_twice(setup) else 1)
        return FP32 * (trained.num_adapter + own)
    return trained.num_base * setup.trained + (shape.num_parameters - trained.num_base) * setup.storage


def _is_saved_twice(setup: TrainingSetup) -> bool:
    """A tied head is saved under both its names (engine/models/weights.py, adapter_tensors)."""
    shape = setup.shape
    return shape.tied and any(f"{shape.embeddings}.weight".endswith(f"{name}.weight") for name in setup.modules_to_save)


def checkpoint_bytes(setup: TrainingSetup) -> int:
    """One checkpoint: weights, the optimizer's state, the tokenizer, and small files."""
    trained = find_trained(setup)
    small = SMALL_FILES + setup.shape.vocab_size * TOKEN_BYTES
    return weights_bytes(setup) + moment_bytes(setup, trained) + small


def rollout_bytes(setup: TrainingSetup, num_measured: int) -> int:
    """One rollout, if its answers are as long as they may be: of each of their tokens the id, its log-probability and
    about as many bytes of text, and each value that is measured beside it; of prompts ids and text."""
    rows = setup.sampled
    if rows is None:
        return 0
    answers = rows.num_rows * rows.new_tokens * (2 * FP32 + TEXT_BYTES + FP32 * num_measured)
    return answers + rows.num_prompts * rows.prompt_tokens * (FP32 + TEXT_BYTES)


def run_bytes(setup: TrainingSetup, save_total_limit: int) -> int:
    """The run's folder at its most: the checkpoints that are kept, the best one, one that is being written, and the
    result, which has no optimizer's state."""
    small = SMALL_FILES + setup.shape.vocab_size * TOKEN_BYTES
    best = 1 if setup.evaluates else 0
    return (save_total_limit + 1 + best) * checkpoint_bytes(setup) + weights_bytes(setup) + small


def ledger_bytes(setup: TrainingSetup, num_steps: int | None, num_sequences: int | None, per_epoch: int | None) -> int:
    """The losses of all rows: of packed ones as many a step as the epoch has, else those of a step's micro-batches."""
    rows = setup.micro_batch * setup.accumulation * setup.num_processes
    if num_sequences and per_epoch:
        rows = math.ceil(num_sequences / per_epoch)
    return min(LEDGER_MOST, (num_steps or 0) * (1 + rows) * LEDGER_ROW)
