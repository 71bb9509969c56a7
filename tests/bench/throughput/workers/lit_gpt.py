"""LitGPT trains as a file of settings says: `python -m ... SPEC.json`, by the Python of its own environment."""

import json
import sys
from pathlib import Path
from typing import Any

import litgpt.finetune.full
import litgpt.finetune.lora
import litgpt.pretrain
import torch
from lightning.fabric.wrappers import _FabricOptimizer
from litgpt.args import EvalArgs, TrainArgs
from litgpt.data import DataModule, get_sft_collate_fn
from litgpt.prompts import Default
from torch.utils.data import DataLoader

from tests.bench.throughput.workers.recorder import Recorder

SCRIPTS = {
    "lora": litgpt.finetune.lora,
    "qlora": litgpt.finetune.lora,
    "full": litgpt.finetune.full,
    "pretrain": litgpt.pretrain,
}


class Tokens(DataModule):  # type: ignore[misc]
    """Rows of token ids and labels, in the file's order: its prompt styles have none for this model."""

    prompt_style = Default()

    def __init__(self, path: Path, num_rows: int | None = None) -> None:
        super().__init__()
        self.rows = [json.loads(line) for line in path.read_text().splitlines()][:num_rows]

    def connect(self, tokenizer: Any = None, batch_size: int = 1, max_seq_length: int | None = None, **_: Any) -> None:
        self.batch_size = batch_size

    def train_dataloader(self) -> Any:
        samples: Any = [self.sample(row["input_ids"], row["labels"]) for row in self.rows]
        return DataLoader(samples, batch_size=self.batch_size, collate_fn=get_sft_collate_fn())

    def val_dataloader(self) -> Any:
        return self._first()

    def _first(self) -> Any:
        row = self.rows[0]
        samples: Any = [self.sample(row["input_ids"], row["labels"])]
        return DataLoader(samples, collate_fn=get_sft_collate_fn())

    def sample(self, ids: list[int], labels: list[int]) -> dict[str, Any]:
        count = {"raw": len(ids), "raw_plus_prompt_template": len(ids)}
        return {"input_ids": torch.tensor(ids), "labels": torch.tensor(labels), "token_counts": count}


class Blocks(Tokens):
    """Rows of one length as bare tensors, as the pretraining script wants them."""

    def train_dataloader(self) -> Any:
        samples: Any = [torch.tensor(row["input_ids"]) for row in self.rows]
        return DataLoader(samples, batch_size=self.batch_size)

    def _first(self) -> Any:
        samples: Any = [torch.tensor(self.rows[0]["input_ids"])]
        return DataLoader(samples)


def main() -> None:
    spec = json.loads(Path(sys.argv[-1]).read_text())
    if sys.argv[1] == "--convert":
        convert(Path(spec["model"]), Path(spec["converted"]))
        return
    script = SCRIPTS[spec["method"]]
    record(script, Recorder(Path(spec["steps"])))
    train(spec, script)


def train(spec: dict[str, Any], script: Any) -> None:
    settings = spec["settings"]
    rows, num_rows = Path(spec["rows"]), spec["num_rows"]
    is_pretraining = spec["method"] == "pretrain"
    sizes = {"global_batch_size": spec["batch"], **settings.get("train", {})}
    optimizer = {
        "class_path": "torch.optim.AdamW",
        "init_args": {"lr": spec["learning_rate"], "weight_decay": 0.0, "betas": (0.9, 0.999)},
    }
    common: dict[str, Any] = {
        "out_dir": Path(spec["folder"]) / "out", "optimizer": optimizer, "devices": 1,
        "eval": EvalArgs(10**9, max_new_tokens=None if is_pretraining else 1, max_iters=1, final_validation=False),
        **settings.get("arguments", {}),
    }  # fmt: skip
    if is_pretraining:
        length = spec["max_length"] - 1
        sizes = {
            "micro_batch_size": 4,
            "max_norm": 1.0,
            "max_tokens": num_rows * length,
            "max_seq_length": length,
            "lr_warmup_steps": 0,
            "min_lr": spec["learning_rate"],
            "save_interval": None,
            "tie_embeddings": True,
        } | sizes
        folder = Path(spec["converted"])
        from litgpt.config import Config

        script.setup(
            "pico",
            model_config=Config.from_file(folder / "model_config.yaml"),
            initial_checkpoint_dir=folder,
            data=Blocks(rows),
            train=TrainArgs(**sizes),
            logger_name="csv",
            **common,
        )
        return
    sizes = {
        "micro_batch_size": 1,
        "epochs": 1,
        "lr_warmup_steps": 1,
        "save_interval": None,
        "max_steps": num_rows // spec["batch"],
    } | sizes
    if spec["method"] == "qlora":
        common["quantize"] = "bnb.nf4-dq"
    if "lora" in spec["method"]:
        common |= {"lora_r": spec["rank"], "lora_alpha": spec["alpha"], "lora_dropout": 0.0}
        common |= {f"lora_{name}": True for name in ("query", "key", "value", "projection", "mlp")}
    script.setup(Path(spec["converted"]), data=Tokens(rows), train=TrainArgs(**sizes), **common)


def record(script: Any, recorder: Recorder) -> None:
    """Note every training micro-batch and the end of every step; the rate stays what it is from the first step on."""
    loss, step = script.chunked_cross_entropy, _FabricOptimizer.step
    batches: list[int] = []
    iterator = script.CycleIterator.__next__

    def following(self: Any) -> Any:
        batch = iterator(self)
        is_plain = isinstance(batch, torch.Tensor)
        batches.append(batch[:, 1:].numel() if is_plain else int(batch["token_counts"]["raw"].sum()))
        return batch

    def cross_entropy(logits: Any, targets: Any, **options: Any) -> Any:
        mean = loss(logits, targets, **options)
        if torch.is_grad_enabled() and not mean.is_meta:  # it counts FLOPs of meta tensors, and validates
            num_targets = int((targets != -100).sum())
            recorder.add(float(mean) * num_targets, batches[-1], num_targets)
        return mean

    def stepped(self: Any, *arguments: Any, **options: Any) -> Any:
        result = step(self, *arguments, **options)
        recorder.end_step()
        return result

    def constant(optimizer: Any, **_: Any) -> Any:
        return torch.optim.lr_scheduler.ConstantLR(optimizer, factor=1.0)

    script.CycleIterator.__next__ = following
    script.chunked_cross_entropy = cross_entropy
    script.get_lr_scheduler = constant
    script.get_lr = lambda rate, *_: rate
    script.merge_lora = lambda **_: None
    _FabricOptimizer.step = stepped


def convert(source: Path, folder: Path) -> None:
    """LitGPT's form of a Llama in transformers' form."""
    from litgpt.config import Config
    from litgpt.scripts.convert_hf_checkpoint import copy_weights_hf_llama
    from litgpt.utils import save_config
    from safetensors.torch import load_file

    shape = json.loads((source / "config.json").read_text())
    config = Config(
        name="SmolLM2-135M-Instruct", block_size=shape["max_position_embeddings"], vocab_size=shape["vocab_size"],
        padded_vocab_size=shape["vocab_size"], n_layer=shape["num_hidden_layers"], n_head=shape["num_attention_heads"],
        n_embd=shape["hidden_size"], n_query_groups=shape["num_key_value_heads"], rotary_percentage=1.0,
        parallel_residual=False, bias=False, norm_class_name="RMSNorm", mlp_class_name="LLaMAMLP",
        intermediate_size=shape["intermediate_size"], norm_eps=shape["rms_norm_eps"],
        rope_base=int((shape.get("rope_parameters") or shape)["rope_theta"]),
    )  # fmt: skip
    weights: dict[str, torch.Tensor] = {}
    copy_weights_hf_llama(config, {}, weights, load_file(source / "model.safetensors"))
    folder.mkdir(parents=True, exist_ok=True)
    torch.save(weights, folder / "lit_model.pth")
    save_config(config, folder)
    for name in ("config.json", "generation_config.json", "tokenizer.json", "tokenizer_config.json"):
        (folder / name).write_bytes((source / name).read_bytes())


if __name__ == "__main__":
    main()
