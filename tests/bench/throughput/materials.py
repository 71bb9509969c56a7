"""What every contestant trains on: models, rows in a file's order, and the same rows as token ids."""

import json
import random
import shutil
import subprocess
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.bench.throughput.labels import label_chat, label_pair, label_text
from tests.support import real

QUICKSTART = real.ROOT / "profiles" / "quickstart"
PAIRS = real.ROOT.parent / "shared" / "realdata" / "preference_gsm8k_solutions.jsonl"
ROLES = {"prompt": "user", "chosen": "assistant", "rejected": "assistant"}
BLOCK = 256  # tokens of a row to pretrain on, its end token included
# SmolLM2's own template, but without the line's end after an answer: some tools learn it and others do not.
TEMPLATE = (
    "{% for message in messages %}{% if loop.first and message['role'] != 'system' %}{{ '<|im_start|>system\\nYou are "
    "a helpful AI assistant named SmolLM, trained by Hugging Face<|im_end|>\\n' }}{% endif %}{{ '<|im_start|>' + "
    "message['role'] + '\\n' + message['content'] + '<|im_end|>' }}{% if not loop.last %}{{ '\\n' }}{% endif %}"
    "{% endfor %}{% if add_generation_prompt %}{{ '\\n<|im_start|>assistant\\n' }}{% endif %}"
)
SHAPES: dict[str, dict[str, Any]] = {  # ftui's size `small`; `quick` says only whether everything works
    "small": {"hidden_size": 384, "intermediate_size": 1024, "num_hidden_layers": 8, "num_attention_heads": 6,
              "num_key_value_heads": 2},
    "quick": {"hidden_size": 64, "intermediate_size": 128, "num_hidden_layers": 2, "num_attention_heads": 4,
              "num_key_value_heads": 2},
}  # fmt: skip


@dataclass(frozen=True)
class Model:
    """A model in bfloat16 or float32, the same in float32, and the same in LitGPT's form (if it takes part)."""

    stored: Path
    float32: Path
    lit_gpt: Path


def make_models(folder: Path, *, is_quick: bool, lit_gpt: str | None) -> dict[str, Model]:
    """The models of the methods: SmolLM2-135M-Instruct to fine-tune, one with random weights to pretrain.

    Args:
        folder: where they are made; those that lie there already are kept.
        is_quick: a tiny model with random weights in both places.
        lit_gpt: the Python that has LitGPT, if any.
    """
    models = {}
    for name in ("chat", "new"):
        model = Model(folder / name, folder / f"{name}-float32", folder / f"{name}-litgpt")
        models[name] = model
        if not model.float32.exists():
            if name == "chat" and not is_quick:
                shutil.copytree(real.smollm2(), model.stored, dirs_exist_ok=True)
            else:
                _make_random(model.stored, "quick" if is_quick else "small")
            (model.stored / "chat_template.jinja").write_text(TEMPLATE)
            _copy_in_float32(model)
        if lit_gpt and not model.lit_gpt.exists():
            spec = folder / "convert.json"
            spec.write_text(json.dumps({"model": str(model.float32), "converted": str(model.lit_gpt)}))
            command = [lit_gpt, "-m", "tests.bench.throughput.workers.lit_gpt", "--convert", str(spec)]
            subprocess.run(command, cwd=real.ROOT, check=True, capture_output=True)
    return models


def _make_random(folder: Path, shape: str) -> None:
    import torch
    from transformers import AutoTokenizer, LlamaConfig, LlamaForCausalLM

    tokenizer: Any = AutoTokenizer.from_pretrained(QUICKSTART / "base")
    ids = {name: getattr(tokenizer, name) for name in ("bos_token_id", "eos_token_id", "pad_token_id")}
    config = LlamaConfig(
        **SHAPES[shape], **ids, vocab_size=len(tokenizer), tie_word_embeddings=True, max_position_embeddings=1024
    )
    torch.manual_seed(0)
    model: Any = LlamaForCausalLM(config)
    model.save_pretrained(folder)
    tokenizer.save_pretrained(folder)


def _copy_in_float32(model: Model) -> None:
    import torch
    from transformers import AutoModelForCausalLM

    weights: Any = AutoModelForCausalLM.from_pretrained(model.stored, dtype=torch.float32)
    weights.save_pretrained(model.float32)
    for path in model.stored.iterdir():
        if not (model.float32 / path.name).exists():
            shutil.copy(path, model.float32)


def write_rows(
    folder: Path, model: Path, method: str, num_rows: int, batch: int, seed: int, pairs: Path | None
) -> dict[str, Path]:
    """The same rows in two orders: `random`, and `grouped` (rows of like length share a step, the steps shuffled).

    Beside each file lies one of token ids and labels, `.tokens`. Files that lie there already are kept. `pairs` is the
    file that the rows of `dpo` come from.
    """
    files = {order: folder / order / "rows.jsonl" for order in ("random", "grouped")}
    if all(file.exists() for file in files.values()):
        return files
    from transformers import AutoTokenizer

    tokenizer: Any = AutoTokenizer.from_pretrained(model)
    rows, tokens = _rows_and_tokens(tokenizer, method, num_rows, seed, pairs)
    order = sorted(range(num_rows), key=lambda number: count_tokens(tokens[number])[0])
    steps = [order[start : start + batch] for start in range(0, num_rows, batch)]
    random.Random(seed).shuffle(steps)
    orders = {"random": list(range(num_rows)), "grouped": [number for step in steps for number in step]}
    for name, numbers in orders.items():
        for suffix, values in (("jsonl", rows), ("tokens", tokens)):
            lines = (json.dumps(values[number]) + "\n" for number in numbers)
            (folder / name).mkdir(parents=True, exist_ok=True)
            (folder / name / f"rows.{suffix}").write_text("".join(lines))
    return files


def _rows_and_tokens(
    tokenizer: Any, method: str, num_rows: int, seed: int, pairs: Path | None
) -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
    if method == "pretrain":
        texts = blocks(tokenizer, num_rows, seed)
        return texts, [label_text(tokenizer, row) for row in texts]
    if method == "dpo":
        assert pairs is not None, "without pairs there is no dpo"
        rows = random.Random(seed).sample(read_pairs(pairs), num_rows)
        return rows, [label_pair(tokenizer, row) for row in rows]
    single = [messages for messages in real.conversations(real.INSTRUCTIONS) if len(messages) == 2]
    chats = [{"messages": messages} for messages in random.Random(seed).sample(single, num_rows)]
    return chats, [label_chat(tokenizer, row) for row in chats]


def read_pairs(path: Path) -> list[dict[str, Any]]:
    """Pairs of a JSONL file, `prompt`, `chosen` and `rejected` as messages; texts become turns, equal answers go."""
    rows = [json.loads(line) for line in path.read_text().split("\n") if line]
    return [
        {name: _turns(row[name], role) for name, role in ROLES.items()}
        for row in rows if row["chosen"] != row["rejected"]
    ]  # fmt: skip


def _turns(given: str | list[dict[str, Any]], role: str) -> list[dict[str, Any]]:
    return [{"role": role, "content": given}] if isinstance(given, str) else given


def count_tokens(tokens: dict[str, Any]) -> tuple[int, int]:
    """Tokens and target tokens of a line of a `.tokens` file; of a pair, those of both sequences, each with its prompt.

    The first token of a sequence is no target: nothing comes before it.
    """
    sides = [tokens] if "labels" in tokens else [tokens["chosen"], tokens["rejected"]]
    targets = sum(label != -100 for side in sides for label in side["labels"][1:])
    return sum(len(side["input_ids"]) for side in sides), targets


def blocks(tokenizer: Any, num_rows: int, seed: int) -> list[dict[str, Any]]:
    """Pieces of quickstart's corpus that are one token shorter than a block, also when they are tokenised again."""
    texts = [json.loads(line)["text"] for line in (QUICKSTART / "corpus.jsonl").read_text().splitlines()]
    random.Random(seed).shuffle(texts)
    pieces: list[dict[str, Any]] = []
    for text in texts:
        ids = tokenizer(text, verbose=False).input_ids  # far longer than the model reads
        for start in range(0, len(ids) - BLOCK, BLOCK):
            piece = tokenizer.decode(ids[start : start + BLOCK - 1])
            if len(tokenizer(piece).input_ids) == BLOCK - 1 and piece == piece.strip():
                pieces.append({"text": piece})
        if len(pieces) >= num_rows:
            return pieces[:num_rows]
    raise ValueError(f"The corpus has {len(pieces)} blocks of {BLOCK} tokens, fewer than {num_rows}.")
