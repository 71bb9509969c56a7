"""LLaMA-Factory trains as a file of settings says: `python -m ... SPEC.json`, by the Python of its own environment."""

import json
import sys
from pathlib import Path
from typing import Any

from tests.bench.throughput.workers.recorder import Recorder, record_trainer

STAGES = {"pretrain": "pt", "dpo": "dpo"}


def main() -> None:
    spec = json.loads(Path(sys.argv[1]).read_text())
    record_trainer(Recorder(Path(spec["steps"])), is_pairs=spec["method"] == "dpo")
    from llamafactory.data import formatter, template
    from llamafactory.train.tuner import run_exp

    template.register_template(  # smollm2's, but for the line's end after an answer, which the others do not learn
        name="bench",
        format_user=formatter.StringFormatter(
            slots=["<|im_start|>user\n{{content}}<|im_end|>\n<|im_start|>assistant\n"]
        ),
        format_assistant=formatter.StringFormatter(slots=["{{content}}<|im_end|>"]),
        format_system=formatter.StringFormatter(slots=["<|im_start|>system\n{{content}}<|im_end|>\n"]),
        stop_words=["<|im_end|>"],
        default_system="You are a helpful AI assistant named SmolLM, trained by Hugging Face",
    )
    run_exp(arguments(spec))


def arguments(spec: dict[str, Any]) -> dict[str, Any]:
    """The keys of its YAML file."""
    folder, rows = Path(spec["folder"]), Path(spec["rows"])
    if spec["method"] == "dpo":
        rows = _write_ranking(rows, folder)
    (rows.parent / "dataset_info.json").write_text(json.dumps({"rows": _data_set(rows.name, spec["method"])}))
    adapter = {
        "finetuning_type": "lora", "lora_rank": spec["rank"], "lora_alpha": spec["alpha"], "lora_target": "all",
    }  # fmt: skip
    return {
        "stage": STAGES.get(spec["method"], "sft"), "do_train": True, "model_name_or_path": spec["model"],
        "dataset": "rows", "dataset_dir": str(rows.parent), "cutoff_len": spec["max_length"], "template": "bench",
        "output_dir": str(folder / "output"), "num_train_epochs": 1, "per_device_train_batch_size": spec["batch"],
        "learning_rate": spec["learning_rate"], "lr_scheduler_type": "constant", "save_strategy": "no",
        "report_to": "none", "disable_shuffling": True, "use_cpu": True,
        **(adapter if spec["method"] in ("lora", "qlora", "dpo") else {"finetuning_type": "full"}),
        **({"quantization_bit": 4, "quantization_method": "bnb"} if spec["method"] == "qlora" else {}),
        **spec["settings"].get("arguments", {}),
    }  # fmt: skip


def _data_set(name: str, method: str) -> dict[str, Any]:
    if method == "pretrain":
        return {"file_name": name, "columns": {"prompt": "text"}}
    tags = {"role_tag": "role", "content_tag": "content", "user_tag": "user", "assistant_tag": "assistant"}
    chats = {"file_name": name, "formatting": "sharegpt", "tags": tags}
    if method == "dpo":
        return chats | {
            "ranking": True, "columns": {"messages": "prompt", "chosen": "chosen", "rejected": "rejected"},
        }  # fmt: skip
    return chats | {"columns": {"messages": "messages"}}


def _write_ranking(rows: Path, folder: Path) -> Path:
    """The pairs as it wants them: an answer is a turn, not a list of turns."""
    pairs = [json.loads(line) for line in rows.read_text().splitlines()]
    path = folder / "ranking.jsonl"
    singles = ({**row, "chosen": row["chosen"][0], "rejected": row["rejected"][0]} for row in pairs)
    path.write_text("".join(json.dumps(row) + "\n" for row in singles))
    return path


if __name__ == "__main__":
    main()
