"""transformers' Trainer and TRL's SFTTrainer train as a file of settings says: `python -m ... SPEC.json`."""

import json
import sys
from pathlib import Path
from typing import Any

from tests.bench.throughput.labels import label_chat, label_text
from tests.bench.throughput.workers.recorder import Recorder, record_trainer


def main() -> None:
    spec = json.loads(Path(sys.argv[1]).read_text())
    is_pairs = spec["method"] == "dpo"
    record_trainer(Recorder(Path(spec["steps"])), is_pairs=is_pairs)
    {"trainer": trainer, "trl": trl_dpo if is_pairs else trl}[spec["tool"]](spec).train()


def trainer(spec: dict[str, Any]) -> Any:
    from transformers import AutoTokenizer, DataCollatorForSeq2Seq, Trainer, TrainingArguments

    tokenizer: Any = AutoTokenizer.from_pretrained(spec["model"])
    rows = [json.loads(line) for line in Path(spec["rows"]).read_text().splitlines()]
    label = label_text if spec["method"] == "pretrain" else label_chat
    model = _base(spec)
    if "lora" in spec["method"]:
        from peft import get_peft_model, prepare_model_for_kbit_training

        if spec["method"] == "qlora":
            model = prepare_model_for_kbit_training(model, use_gradient_checkpointing=False)
        model = get_peft_model(model, lora(spec["rank"], spec["alpha"]))
    examples: Any = [label(tokenizer, row) for row in rows]
    return Trainer(
        model, TrainingArguments(**_arguments(spec)), train_dataset=examples,
        data_collator=DataCollatorForSeq2Seq(tokenizer),
    )  # fmt: skip


def trl(spec: dict[str, Any]) -> Any:
    from datasets import Dataset
    from trl.trainer.sft_config import SFTConfig
    from trl.trainer.sft_trainer import SFTTrainer

    rows = [json.loads(line) for line in Path(spec["rows"]).read_text().splitlines()]
    if spec["method"] != "pretrain":
        rows = [{"prompt": row["messages"][:-1], "completion": row["messages"][-1:]} for row in rows]
    config = SFTConfig(**_arguments(spec), max_length=spec["max_length"], model_init_kwargs=_init(spec))
    return SFTTrainer(
        spec["model"], config, train_dataset=Dataset.from_list(rows),
        peft_config=lora(spec["rank"], spec["alpha"]) if "lora" in spec["method"] else None,
    )  # fmt: skip


def trl_dpo(spec: dict[str, Any]) -> Any:
    from datasets import Dataset
    from trl.trainer.dpo_config import DPOConfig
    from trl.trainer.dpo_trainer import DPOTrainer

    rows = [json.loads(line) for line in Path(spec["rows"]).read_text().splitlines()]
    config = DPOConfig(**_arguments(spec), max_length=spec["max_length"], model_init_kwargs=_init(spec))
    return DPOTrainer(
        spec["model"], None, config, train_dataset=Dataset.from_list(rows),
        peft_config=lora(spec["rank"], spec["alpha"]),
    )  # fmt: skip


def lora(rank: int, alpha: int) -> Any:
    from peft import LoraConfig

    return LoraConfig(r=rank, lora_alpha=alpha, target_modules="all-linear", task_type="CAUSAL_LM")


def _base(spec: dict[str, Any]) -> Any:
    from transformers import AutoModelForCausalLM

    return AutoModelForCausalLM.from_pretrained(spec["model"], **_init(spec))


def _init(spec: dict[str, Any]) -> dict[str, Any]:
    """Options of `from_pretrained`."""
    import torch
    from transformers import BitsAndBytesConfig

    options = dict(spec["settings"].get("model", {}))
    if spec["method"] == "qlora":
        quantization = {"load_in_4bit": True, "bnb_4bit_quant_type": "nf4", "bnb_4bit_use_double_quant": True}
        dtype = spec["settings"].get("bnb_4bit_compute_dtype")
        options["quantization_config"] = BitsAndBytesConfig(
            **quantization, **({"bnb_4bit_compute_dtype": getattr(torch, dtype)} if dtype else {})
        )
    return options


def _arguments(spec: dict[str, Any]) -> dict[str, Any]:
    return {
        "output_dir": spec["folder"], "per_device_train_batch_size": spec["batch"], "num_train_epochs": 1,
        "learning_rate": spec["learning_rate"], "lr_scheduler_type": "constant", "save_strategy": "no",
        "report_to": "none", "disable_tqdm": True, "use_cpu": True, "train_sampling_strategy": "sequential",
        **spec["settings"].get("arguments", {}),
    }  # fmt: skip


if __name__ == "__main__":
    main()
