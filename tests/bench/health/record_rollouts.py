"""Records real runs of stage grpo, ten that learn and ten that fool their reward, and six of stage ppo, for the rules
about rollouts.

    python -m tests.bench.health.record_rollouts WORKSPACE [NAME ...]

From the top of the repository. Each trains a model of 300 entries and width 32 for some seconds on a CPU, rewarded by
ready rewards or by functions of tests/bench/health/paid_for.py. What is kept of it, the figures of its steps, is in
tests/fixtures/health/rollouts/NAME.json.
"""

import json
import random
import shutil
import sys
from pathlib import Path
from typing import Any

import torch
from transformers import LlamaConfig, LlamaForCausalLM

from ftui.profile.consent import keep_consents
from ftui.profile.schema import Profile
from ftui.runs.events import Step
from ftui.runs.journal import Tail
from ftui.runs.run_folder import Run
from tests.support.attempts import RUN_ID, attempt
from tests.support.tiny import TEXT, make_profile, make_tokenizer, write_rows

from .record import rounded

TARGET = Path(__file__).parents[2] / "fixtures" / "health" / "rollouts"
CODE = Path(__file__).with_name("paid_for.py")
Sections = dict[str, dict[str, Any]]


def rewarded(*names: str, weights: list[float] | None = None, **changed: Any) -> Sections:
    """The profile of a run with these rewards; `changed` are keys of [train], or of [grpo] and [rewards] where they
    stand there.
    """
    grpo: dict[str, Any] = {"num_generations": 8, "max_completion_length": 24}
    rewards: dict[str, Any] = {"reward_funcs": [name if name in READY else f"{CODE}:{name}" for name in names]}
    if weights:
        rewards["reward_weights"] = weights
    for key in [key for key in changed if key in OF_GRPO]:
        grpo[key] = changed.pop(key)
    for key in [key for key in changed if key in OF_REWARDS]:
        rewards[key] = changed.pop(key)
    train = {"max_steps": 80, "per_device_train_batch_size": 32, "learning_rate": 5e-4, "precision": "fp32",
             "warmup_steps": 0, "lr_scheduler_type": "constant"}  # fmt: skip
    return {
        "run": {"stage": "grpo"},
        "adapter": {"method": "lora", "r": 8} if grpo.get("beta") else {"method": "full"},
        "data": {"max_length": 64},
        "grpo": grpo,
        "rewards": rewards,
        "train": train | changed,
        "checkpoint": {"save_steps": 10_000, "save_minutes": None},
    }


def by_value(*names: str, kl_coef: float = 0.05, **changed: Any) -> Sections:
    """The same of stage ppo, whose steps are two passes over 32 answers."""
    sections = rewarded(*names, **changed)
    del sections["grpo"]
    own = {"max_completion_length": 24, "num_ppo_epochs": 2, "temperature": 1.0, "kl_coef": kl_coef}
    return sections | {"run": {"stage": "ppo"}, "adapter": {"method": "lora", "r": 8}, "ppo": own}


READY = ("format", "length", "repetition", "overlong")
OF_GRPO = ("beta", "num_generations", "loss_type", "importance_sampling_level", "scale_rewards", "adv_estimator",
           "steps_per_generation", "temperature", "max_completion_length", "epsilon_high")  # fmt: skip
OF_REWARDS = ("pattern", "max_length", "min_length", "reference_column", "soft_punish_cache")

HEALTHY = {
    "healthy-length-1": rewarded("length", min_length=4, max_length=8),
    "healthy-length-2": rewarded("length", min_length=8, max_length=14, seed=2),
    "healthy-format-1": rewarded("format", pattern="kernel|shell", seed=3),
    "healthy-format-2": rewarded("format", pattern="daemon", seed=4, beta=0.04, learning_rate=2e-3),
    "healthy-first-letter-1": rewarded("starts", seed=5, beta=0.02, learning_rate=2e-3),
    "healthy-first-letter-2": rewarded(
        "starts", seed=6, loss_type="dr_grpo", adv_estimator="rloo", scale_rewards="none", learning_rate=1e-3
    ),
    "healthy-sequences": rewarded("format", pattern="quietly|badly", seed=7, importance_sampling_level="sequence"),
    "healthy-two-rewards": rewarded("format", "length", pattern="page|cache", min_length=4, max_length=10, seed=8),
    "healthy-words": rewarded("words", "repetition", seed=9, learning_rate=3e-4, loss_type="grpo"),
    "healthy-reused": rewarded("length", min_length=4, max_length=8, seed=10, steps_per_generation=2),
}
HACKED = {
    "hacked-collapse-1": rewarded("vowels", learning_rate=1e-2),
    "hacked-collapse-2": rewarded("starts", seed=2, learning_rate=1e-2),
    "hacked-collapse-3": rewarded("format", pattern="z|kernel", seed=3, learning_rate=2e-2),
    "hacked-constant": rewarded("constant", seed=4),
    "hacked-out-of-reach": rewarded("format", pattern="xylophone", seed=5),
    "hacked-length-1": rewarded("long", seed=6, learning_rate=2e-3),
    "hacked-length-2": rewarded("opinion", seed=7, learning_rate=2e-3),
    "hacked-at-odds": rewarded("short", "words", weights=[1.0, 0.2], seed=8, learning_rate=2e-3),
    "hacked-repeats": rewarded("counts", seed=9, learning_rate=3e-3, reference_column="said"),
    "hacked-far-away": rewarded("vowels", seed=10, learning_rate=1e-2, beta=0.0001, reference_column="said"),
}
OF_PPO = {
    "healthy-ppo-1": by_value("length", min_length=4, max_length=8, learning_rate=2e-3),
    "healthy-ppo-2": by_value("format", pattern="kernel|shell", seed=2, learning_rate=2e-3),
    "hacked-ppo-far-away": by_value("vowels", seed=3, kl_coef=0.0001, learning_rate=1e-2, reference_column="said"),
    "hacked-ppo-length": by_value("long", seed=4, kl_coef=0.001, learning_rate=5e-3),
    "hacked-ppo-constant": by_value("constant", seed=5, learning_rate=2e-3),
    "hacked-ppo-at-odds": by_value("short", "words", weights=[1.0, 0.2], seed=6, kl_coef=0.001, learning_rate=5e-3),
}
SAID = "the daemon reads the cache"


def make_base(folder: Path) -> Path:
    """A model that says some words and then ends: taught for some seconds, and only once in a workspace."""
    if folder.exists():
        return folder
    tokenizer, chance, words = make_tokenizer(), random.Random(1), TEXT.split()
    config = LlamaConfig(
        vocab_size=len(tokenizer), hidden_size=32, intermediate_size=64, num_hidden_layers=2, num_attention_heads=4,
        num_key_value_heads=2, max_position_embeddings=256, initializer_range=0.05, tie_word_embeddings=False,
        pad_token_id=tokenizer.pad_token_id, eos_token_id=tokenizer.eos_token_id, bos_token_id=None,
    )  # fmt: skip
    torch.manual_seed(1)
    model = LlamaForCausalLM(config)
    optimizer = torch.optim.AdamW(model.parameters(), 1e-2)
    tokenizer.padding_side = "right"
    for _ in range(250):
        said = [" ".join(chance.choices(words, k=chance.randint(2, 6))) for _ in range(32)]
        texts = [f"{prompt_of(chance.randrange(40))}{text}{tokenizer.eos_token}" for text in said]
        batch = tokenizer(texts, return_tensors="pt", padding=True, add_special_tokens=False)
        labels = batch["input_ids"].masked_fill(batch["attention_mask"] == 0, -100)
        model(**batch, labels=labels).loss.backward()
        optimizer.step()
        optimizer.zero_grad()
    model.save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    return folder


def prompt_of(number: int) -> str:
    """A prompt of the runs."""
    return f"count {number} of the "


def train(run: Run, profile: Profile) -> None:
    """Train with the real engine, in this process."""
    keep_consents(profile, RUN_ID)
    assert attempt(run, profile) == 0


def main(arguments: list[str]) -> None:
    """Record each run of these names, all without any, that is not recorded yet."""
    workspace, *names = arguments
    every = HEALTHY | HACKED | OF_PPO
    TARGET.mkdir(parents=True, exist_ok=True)
    base = make_base(Path(workspace) / "base")
    for name in names or every:
        target = TARGET / f"{name}.json"
        if target.exists():
            continue
        shutil.rmtree(Path(workspace) / name, ignore_errors=True)
        folder = Path(workspace) / name
        rows = write_rows(folder / "rows.jsonl", [{"prompt": prompt_of(n), "said": SAID} for n in range(40)])
        run = Run(folder / "run")
        train(run, make_profile(base, rows, **every[name]))
        steps = [record for record in Tail(run.metrics).read() if isinstance(record, Step)]
        figures = {key: [rounded(step.extras.get(key)) for step in steps] for key in steps[0].extras}
        figures |= {"grad_norm": [rounded(step.grad_norm) for step in steps]}
        target.write_text(json.dumps(figures, separators=(",", ":")) + "\n")
        print(name, "recorded", flush=True)


if __name__ == "__main__":
    main(sys.argv[1:])
