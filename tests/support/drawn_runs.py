"""A run drawn from a seed: any stage with any method, optimizer, schedule and packing that go together."""

import random
from typing import Any, NamedTuple, get_args

import torch
from transformers import AutoConfig, AutoTokenizer, LlamaForSequenceClassification

from ftui.profile.sections.optimizers import FROM_BITSANDBYTES, Optimizer
from tests.support.bench import Workbench, compare_answers
from tests.support.tiny import write_rows

METHODS: dict[str, tuple[str, tuple[str, ...]]] = {
    "full": ("full", ()),
    "freeze": ("full", ("adapter.method=freeze", "adapter.trainable_layers=1")),
    "lora": ("lora", ()),
    "dora": ("lora", ("adapter.use_dora=true", "adapter.use_rslora=true")),
    "qlora": ("qlora", ()),
    "8bit": ("lora", ("adapter.load_in_8bit=true",)),
}
"""By name: the method of the bench's profile, and what is set on top of it."""
STAGES = ("sft", "pretrain", "dpo", "kto", "orpo", "simpo", "cpo", "rm", "grpo", "ppo")
SAMPLING = ("random", "sequential", "group_by_length")
RATES = {"sgd": 0.1, "adagrad": 1e-2, "adafactor": 1e-2}
USUAL_RATE = 2e-3
OF_ANSWERS = (
    'rewards.reward_funcs=["format"]', 'rewards.pattern="[aeo]"', "data.eval=none", "eval.eval_strategy=no",
)  # fmt: skip
"""Rewards that differ within a group whatever the model is: about a letter is a token."""
OF_STAGES = {
    "grpo": ("grpo.num_generations=2", "grpo.max_completion_length=6"),
    "ppo": ("ppo.num_ppo_epochs=2", "ppo.max_completion_length=6"),
}
BENCH = "$BENCH"
"""Stands for a bench's folder in an override."""
STEERED = ("ppo.target=0.05", "ppo.horizon=40")
"""A coefficient that moves with every rollout: it is state, as are the moments of all scores so far."""
NORMALISED = ("ppo.use_score_norm=true", "ppo.missing_eos_penalty=0.5")
BY_MODEL = (
    'rewards.reward_funcs=["reward_model", "format"]', f'rewards.reward_model_name_or_path="{BENCH}/reward"',
    "rewards.reward_weights=[0.5, 1.0]",
)  # fmt: skip


class DrawnRun(NamedTuple):
    """`method` and `packing` go into the bench's profile, `overrides` on top of it."""

    stage: str
    method: str
    optim: str
    packing: bool
    overrides: tuple[str, ...]
    size: int = 1
    shard: str = "none"

    @property
    def profile_method(self) -> str:
        return METHODS[self.method][0]

    def __str__(self) -> str:
        ranks = f"-{self.size} ranks, shard {self.shard}" if self.size > 1 else ""
        return f"{self.stage}-{self.method}-{self.optim}{'-packed' * self.packing}{ranks}"


def draw_run(seed: int) -> DrawnRun:
    """That of a seed: whatever contradicts another key of it is not drawn."""
    chance = random.Random(f"run {seed}")
    stage, optim = STAGES[seed % len(STAGES)], chance.choice(get_args(Optimizer))
    method = chance.choice([name for name in METHODS if stage != "rm" or name not in ("freeze",)])
    packing = stage in ("sft", "pretrain", "dpo", "kto") and chance.random() < 0.4
    rows, times = chance.choice([(2, 2), (4, 1), (1, 4)])
    overrides = [
        *METHODS[method][1],
        f"train.optim={optim}",
        f"train.learning_rate={RATES.get(optim, USUAL_RATE)}",
        f"train.lr_scheduler_type={chance.choice(['linear', 'cosine', 'constant_with_warmup'])}",
        f"train.per_device_train_batch_size={rows}",
        f"train.gradient_accumulation_steps={times}",
        f"train.seed={seed}",
    ]
    if stage == "ppo":
        may_steer = METHODS[method][0] != "full"
        overrides += [*chance.choice([(), STEERED if may_steer else NORMALISED]), *chance.choice([(), BY_MODEL])]
        overrides += [f"ppo.num_mini_batches={chance.choice([1, 3])}"]
    if not packing and stage in ("sft", "pretrain"):
        overrides.append(f"train.train_sampling_strategy={chance.choice(SAMPLING)}")
    if chance.random() < 0.7:
        return DrawnRun(stage, method, optim, packing, tuple(overrides))
    shard = chance.choice(shards_of(stage, method, optim))
    overrides += [
        "hardware.num_processes=2",
        f"hardware.shard={shard}",
        f"train.per_device_train_batch_size={rows if times > 1 else rows // 2}",  # four rows a step, as without ranks
        f"train.gradient_accumulation_steps={max(1, times // 2)}",
    ]
    return DrawnRun(stage, method, optim, packing, tuple(overrides), size=2, shard=shard)


def shards_of(stage: str, method: str, optim: str) -> tuple[str, ...]:
    """What two ranks can divide among themselves."""
    if method in ("lora", "qlora"):
        return "none", "all"
    if method != "full" or stage in ("rm", "ppo") or optim == "adafactor" or optim in FROM_BITSANDBYTES:
        return ("none",)
    return "none", "all", "state"


def prepare_rows(bench: Workbench, drawn: DrawnRun) -> tuple[str, ...]:
    """Write rows of its stage in the place of the bench's; what its profile needs beside."""
    if drawn.stage == "sft":
        return ()
    if drawn.stage == "pretrain":
        rows: list[dict[str, Any]] = [{"text": f"Row {n} counts from {n} to {n * n + 7} and back."} for n in range(46)]
        stage: tuple[str, ...] = ("run.stage=pretrain",)
    elif drawn.stage in OF_STAGES:
        return prepare_prompts(bench, drawn.stage, drawn.profile_method)
    else:
        return compare_answers(bench, drawn.stage, method=drawn.profile_method)
    write_rows(bench.folder / "rows.jsonl", rows[:-6])
    write_rows(bench.folder / "held_out.jsonl", rows[-6:])
    return stage


def prepare_prompts(bench: Workbench, stage: str, method: str) -> tuple[str, ...]:
    """Write prompts in the place of the bench's rows, and a reward model beside its base; what a profile needs to be of
    a stage that samples answers."""
    rows = [{"prompt": f"count {n} of the ", "answer": str(n)} for n in range(16)]
    write_rows(bench.folder / "rows.jsonl", rows)
    write_reward_model(bench)
    free = ("ppo.kl_coef=0",) if (stage, method) == ("ppo", "full") else ()  # then nothing is left of the start
    dropout = ("adapter.lora_dropout=0.0",) if method != "full" else ()
    return f"run.stage={stage}", *OF_STAGES[stage], *OF_ANSWERS, *free, *dropout


def write_reward_model(bench: Workbench) -> None:
    """A model for sequence classification in `reward`, of the size of the bench's base, with weights from a seed."""
    base, folder = bench.folder / "base", bench.folder / "reward"
    config = AutoConfig.from_pretrained(base, num_labels=1)
    config.initializer_range = 0.15  # scores that differ
    torch.manual_seed(3)
    LlamaForSequenceClassification(config).save_pretrained(folder)
    AutoTokenizer.from_pretrained(base).save_pretrained(folder)
