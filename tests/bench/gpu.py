"""One card in eight minutes: exactness, the estimator, speed and memory of ftui beside transformers' Trainer.

    python -m tests.bench.gpu [--model 1b] [--minutes 8] [--only exact_lora speed_qlora] [--json FILE]

From the top of the repository, on a machine with a GPU and no network: the models are made from a config, with random
weights and the tokenizer of quickstart, and train on its rows. Each line of the table is a process of its own; what the
minutes do not suffice for is listed as not run. `--model tiny` does the same on a CPU within a minute or two.

    exact_*      six steps at once, and six with a SIGKILL after the third: every figure and weight the same?
    memory_*     peak reserved by torch in a step, beside what the simulation says of this card
    speed_*      real tokens/s, MFU and peak memory of ftui; trainer_* the same of transformers.Trainer
    cards_*      the same with a rank on each card, where there are several (on a CPU: two ranks)
    peer_copies  does what one card copies to another arrive as it was (on a CPU: stand-ins)?

MFU counts 6 operations a token and trained weight, and 4 for a frozen one (whose gradient is not made), attention left
out, over the dense tflops that `ftui/hardware/devices.py` has for the card.
"""

import argparse
import json
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from typing import Any

from ftui.runs.events import Step
from tests.support import real

ROOT = Path(__file__).parents[2]
QUICKSTART = ROOT / "profiles" / "quickstart"
TOKENIZER, CORPUS = QUICKSTART / "base", QUICKSTART / "corpus.jsonl"
Sections = dict[str, dict[str, Any]]

# Llama 3.2's shapes; `tiny` for a CPU.
SHAPES: dict[str, dict[str, Any]] = {
    "tiny": {"hidden_size": 64, "intermediate_size": 128, "num_hidden_layers": 2, "num_attention_heads": 4,
             "num_key_value_heads": 2, "vocab_size": 8192},
    "1b": {"hidden_size": 2048, "intermediate_size": 8192, "num_hidden_layers": 16, "num_attention_heads": 32,
           "num_key_value_heads": 8, "vocab_size": 128256},
    "3b": {"hidden_size": 3072, "intermediate_size": 8192, "num_hidden_layers": 28, "num_attention_heads": 24,
           "num_key_value_heads": 8, "vocab_size": 128256},
}  # fmt: skip
RANK, ALPHA = 16, 32
LORA: Sections = {"adapter": {"r": RANK, "lora_alpha": ALPHA}}
QLORA: Sections = {"adapter": {"method": "qlora", "r": RANK, "lora_alpha": ALPHA}}
FULL: Sections = {"adapter": {"method": "full"}, "train": {"learning_rate": 1e-5}}
PACKED: Sections = {"data": {"packing": True}, "train": {"per_device_train_batch_size": 1}}
STEPS, WARM_UP, BATCH, MAX_LENGTH = 12, 4, 8, 1024


@dataclass
class Line:
    """A line of the table; `None` where it measures nothing."""

    outcome: str
    tokens_per_second: float | None = None
    mfu: float | None = None
    peak_bytes: int | None = None
    told_bytes: int | None = None


def merged(*parts: Sections) -> Sections:
    """Sections of a profile, the later ones over the earlier ones."""
    names = {name for part in parts for name in part}
    return {name: {key: value for part in parts for key, value in part.get(name, {}).items()} for name in names}


def make_model(folder: Path, shape: str) -> Path:
    """A Llama with random weights in bfloat16 and quickstart's tokenizer."""
    import torch
    from transformers import AutoTokenizer, LlamaConfig, LlamaForCausalLM

    tokenizer: Any = AutoTokenizer.from_pretrained(TOKENIZER)
    torch.manual_seed(0)
    ids = {name: getattr(tokenizer, name) for name in ("bos_token_id", "eos_token_id", "pad_token_id")}
    config = LlamaConfig(**SHAPES[shape], **ids, tie_word_embeddings=True, max_position_embeddings=4096)
    with torch.device("cuda" if torch.cuda.is_available() else "cpu"):
        model: Any = LlamaForCausalLM(config)
    model.to(torch.bfloat16)
    model.save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    return folder


def sections_for(model: Path, rows: Path, *parts: Sections) -> Sections:
    base: Sections = {
        "run": {"stage": "sft"},
        "model": {"name_or_path": model},
        "data": {"train": rows, "max_length": MAX_LENGTH},
        "train": {
            "per_device_train_batch_size": BATCH,
            "max_steps": STEPS,
            "train_sampling_strategy": "group_by_length",
        },
        "checkpoint": {"save_steps": None, "save_minutes": None},
    }  # fmt: skip
    return merged(base, *parts)


def exact(folder: Path, model: Path, parts: tuple[Sections, ...]) -> Line:
    """A run, and one that is killed after its third step and resumed, with deterministic kernels."""
    from tests.support.sameness import measured, same_weights

    steady: Sections = {
        "train": {"max_steps": 6, "full_determinism": True}, "checkpoint": {"save_steps": 3, "save_minutes": None},
    }  # fmt: skip
    sections = sections_for(model, real.INSTRUCTIONS, *parts, steady)
    whole, killed = (real.open_run(folder / name, sections) for name in ("whole", "killed"))
    real.train(whole)
    real.train_until(killed, step=4)
    real.train(killed)
    same_weights(whole.final, killed.final)
    return Line("identical after SIGKILL" if measured(whole) == measured(killed) else "its figures differ")


def memory(folder: Path, model: Path, parts: tuple[Sections, ...]) -> Line:
    """The peak of a few steps beside the simulated one. Documents are cut into rows of full length: none is shorter."""
    from ftui.engine.simulate.profile_memory import simulate
    from ftui.hardware.detect import find_machine
    from ftui.profile.schema import Profile

    rows: Sections = {
        "run": {"stage": "pretrain"}, "data": {"train": CORPUS},
        "train": {"max_steps": WARM_UP, "train_sampling_strategy": "random"},
    }  # fmt: skip
    sections = sections_for(model, CORPUS, *parts, rows)
    card = find_machine().card
    told = simulate(Profile.model_validate_json(json.dumps(sections, default=str)), model, card)
    expected = told.reserved if card.kind == "cuda" else told.process
    peak = peak_bytes(real.train(real.open_run(folder / "run", sections)))
    return Line(f"{peak / expected - 1:+.1%} of what is told", peak_bytes=peak, told_bytes=expected)


def speed(folder: Path, model: Path, parts: tuple[Sections, ...]) -> Line:
    """The steps after the warm-up, from the end of the last of those to the end of the last step."""
    sections = sections_for(model, real.INSTRUCTIONS, *parts)
    steps = real.train(real.open_run(folder / "run", sections))
    tokens = sum(step.num_tokens for step in steps[WARM_UP:])
    rate = tokens / (steps[-1].time - steps[WARM_UP - 1].time)
    is_full = sections["adapter"].get("method") == "full"
    outcome = f"loss {steps[-1].loss:.3f}"
    return Line(outcome, rate, model_flops_share(model, rate, is_full=is_full), peak_bytes(steps))


def on_all_cards(folder: Path, model: Path, parts: tuple[Sections, ...]) -> Line:
    """`speed` with a rank on each card, and the share of the ranks' time that is communication; on a CPU two ranks."""
    import torch

    from ftui.runs.journal import Tail
    from ftui.runs.run_folder import Run
    from ftui.runs.state import communication_share

    number = torch.cuda.device_count() if torch.cuda.is_available() else 2
    if number < 2:
        return Line("not run: there is one card")
    line = speed(folder, model, (*parts, {"hardware": {"num_processes": number}}))
    steps = [record for record in Tail(Run(folder / "run").metrics).read() if isinstance(record, Step)]
    shares = [communication_share(step.ranks) for step in steps[WARM_UP:] if step.ranks is not None]
    line.outcome += f", {number} ranks, {sum(shares) / len(shares):.0%} in communication"
    return line


def peer_copies(folder: Path, model: Path) -> Line:
    """As each run of several GPUs looks at its start (ftui/supervisor/peer_copies.py)."""
    import torch

    from ftui.engine.system.compare_copies import compare_copies

    number = torch.cuda.device_count()
    cards = [torch.device("cuda", index) for index in range(number)] or [torch.device("cpu")] * 2
    if number == 1:
        return Line("not run: there is one card")
    compared, wrong = compare_copies(cards)
    return Line(f"{compared} pairs copy directly" + "".join(f", {a} -> {b} arrives changed" for a, b in wrong))


def peak_bytes(steps: list[Step]) -> int:
    """Reserved by torch on the GPU; without one, resident in the largest process that this one has waited for."""
    import torch

    if torch.cuda.is_available():
        return max(step.memory or 0 for step in steps)
    return real.peak_memory_of_children()


def trainer(folder: Path, model: Path, *, is_full: bool) -> Line:
    """transformers.Trainer with bf16 autocast (fp32 on a CPU), rows of like length together, the same rows."""
    import resource

    import torch
    from peft import get_peft_model
    from transformers import AutoModelForCausalLM, AutoTokenizer, DataCollatorForSeq2Seq, Trainer, TrainingArguments

    from tests.bench.throughput.labels import label_chat
    from tests.bench.throughput.workers.hugging_face import lora
    from tests.bench.throughput.workers.recorder import Recorder, record_trainer

    on_gpu = torch.cuda.is_available()
    tokenizer: Any = AutoTokenizer.from_pretrained(model)
    base = AutoModelForCausalLM.from_pretrained(model, dtype=torch.float32 if is_full or not on_gpu else torch.bfloat16)
    rows = real.conversations(real.INSTRUCTIONS)
    examples: Any = [label_chat(tokenizer, {"messages": messages}, MAX_LENGTH) for messages in rows]
    arguments = TrainingArguments(
        output_dir=str(folder), per_device_train_batch_size=BATCH, max_steps=STEPS, bf16=on_gpu, use_cpu=not on_gpu,
        train_sampling_strategy="group_by_length", save_strategy="no", report_to="none", disable_tqdm=True,
        learning_rate=1e-5 if is_full else 2e-4,
    )  # fmt: skip
    subject = Trainer(
        base if is_full else get_peft_model(base, lora(RANK, ALPHA)), arguments, train_dataset=examples,
        data_collator=DataCollatorForSeq2Seq(tokenizer),
    )  # fmt: skip
    recorder = Recorder(folder / "steps.jsonl")
    record_trainer(recorder)
    subject.train()
    steps = recorder.steps
    rate = sum(step["num_tokens"] for step in steps[WARM_UP:]) / (steps[-1]["time"] - steps[WARM_UP - 1]["time"])
    resident = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
    peak = torch.cuda.max_memory_reserved() if on_gpu else resident
    return Line(f"loss {steps[-1]['loss']:.3f}", rate, model_flops_share(model, rate, is_full=is_full), peak)


def model_flops_share(model: Path, tokens_per_second: float, *, is_full: bool) -> float | None:
    """MFU; `None` where the card's tflops are not known."""
    from ftui.hardware.detect import find_machine
    from ftui.models.config_reader import read_shape

    card = find_machine().card
    shape = read_shape(json.loads((model / "config.json").read_text()))
    if card.tflops is None or shape is None:
        return None
    return tokens_per_second * (6 if is_full else 4) * shape.num_parameters / (card.tflops * 1e12)


def sharded_nf4(folder: Path, model: Path) -> Line:
    """A step of an NF4 base with adapters under FSDP2's `fully_shard` on one rank, beside the same step without it."""
    import torch
    import torch.distributed as dist
    from torch.distributed.fsdp import fully_shard

    from ftui.engine.system.device import find_hardware
    from ftui.profile.schema import Profile

    sections = sections_for(model, real.INSTRUCTIONS, QLORA)
    hardware = find_hardware(Profile.model_validate_json(json.dumps(sections, default=str)))
    ids = torch.arange(2 * 64).reshape(2, 64).to(hardware.device) % 1000
    dist.init_process_group(
        "nccl" if hardware.device.type == "cuda" else "gloo", init_method=f"file://{folder / 'rendezvous'}", rank=0,
        world_size=1,
    )  # fmt: skip
    losses = []
    for shards in (False, True):
        torch.manual_seed(0)
        subject = quantised_with_adapter(model, hardware.compute_dtype, hardware.device)
        if shards:
            for layer in subject.get_base_model().model.layers:
                fully_shard(layer)
        loss = subject(input_ids=ids, labels=ids).loss
        loss.backward()
        losses.append(float(loss))
    dist.destroy_process_group()
    return Line(f"loss {losses[1]:.6f}, unsharded {losses[0]:.6f}")


def quantised_with_adapter(model: Path, dtype: Any, device: Any) -> Any:
    """PEFT's model over an NF4 base whose packed weights lie in tensors of its computing type, as shards need it."""
    from peft import get_peft_model
    from transformers import AutoModelForCausalLM, BitsAndBytesConfig

    from ftui.engine.models.quantization import keep_layout
    from tests.bench.throughput.workers.hugging_face import lora

    packed = BitsAndBytesConfig(
        load_in_4bit=True, bnb_4bit_quant_type="nf4", bnb_4bit_compute_dtype=dtype, bnb_4bit_quant_storage=dtype
    )
    base = AutoModelForCausalLM.from_pretrained(
        model, dtype=dtype, quantization_config=packed, device_map={"": str(device)}
    )
    keep_layout(base)
    return get_peft_model(base, lora(RANK, ALPHA), autocast_adapter_dtype=False).to(dtype)


SHARD: Sections = {"hardware": {"shard": "all"}}
FORGET: Sections = {"train": {"activation_checkpointing": True}}
OPTIMIZERS: dict[str, Sections] = {name: {"train": {"optim": name}} for name in ("adamw_8bit", "paged_adamw_8bit")}
SETTINGS: dict[str, tuple[Sections, ...]] = {
    "lora": (LORA,), "qlora": (QLORA,), "full": (FULL,), "lora_packed": (LORA, PACKED),
    "lora_fp16": (LORA, {"train": {"precision": "fp16"}}),
    "lora_unfused": (LORA, {"adapter": {"use_fused_lora": False}}),
    "full_8bit": (FULL, OPTIMIZERS["adamw_8bit"]), "full_paged": (FULL, OPTIMIZERS["paged_adamw_8bit"]),
    "lora_forgetting": (LORA, FORGET), "qlora_forgetting": (QLORA, FORGET),
    "lora_offloaded": (LORA, FORGET, {"hardware": {"offload": "base"}}),
    "full_offloaded": (FULL, {"hardware": {"offload": "state"}}),
}  # fmt: skip
LINES: dict[str, Callable[[Path, Path], Line]] = {
    **{f"exact_{name}": partial(exact, parts=SETTINGS[name]) for name in ("lora", "qlora", "full")},
    **{
        f"memory_{name}": partial(memory, parts=SETTINGS[name])
        for name in ("lora", "qlora", "full", "lora_forgetting", "qlora_forgetting")
    },
    "speed_lora": partial(speed, parts=SETTINGS["lora"]),
    "trainer_lora": partial(trainer, is_full=False),
    "speed_full": partial(speed, parts=SETTINGS["full"]),
    "trainer_full": partial(trainer, is_full=True),
    **{
        f"speed_{name}": partial(speed, parts=SETTINGS[name])
        for name in ("lora_unfused", "lora_packed", "qlora", "full_8bit", "full_paged", "lora_fp16")
    },
    **{
        f"cards_{name}": partial(on_all_cards, parts=parts)
        for name, parts in {
            "lora": (LORA,),
            "lora_shard": (LORA, SHARD),
            "qlora_shard": (QLORA, SHARD),
            "full": (FULL,),
            "full_shard": (FULL, SHARD),
            "full_shard_state": (FULL, {"hardware": {"shard": "state"}}),
        }.items()
    },
    **{f"speed_{name}": partial(speed, parts=SETTINGS[name]) for name in ("lora_offloaded", "full_offloaded")},
    "sharded_nf4": sharded_nf4,
    "peer_copies": peer_copies,
}
"""In the order of what is most worth knowing: the minutes may not suffice for the last ones."""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", choices=SHAPES, default="1b")
    parser.add_argument("--minutes", type=float, default=8.0, help="none is begun after them")
    parser.add_argument("--only", nargs="+", choices=LINES, default=list(LINES))
    parser.add_argument("--json", type=Path, help="the lines as JSON, renewed after each")
    parser.add_argument("--worker", nargs=3, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.worker:
        name, folder, model = options.worker
        print(json.dumps(asdict(LINES[name](Path(folder), Path(model)))))
        return
    end, lines = time.monotonic() + 60 * options.minutes, dict[str, Line]()
    with tempfile.TemporaryDirectory() as top:
        model = make_model(Path(top) / "model", options.model)
        for name in options.only:
            if time.monotonic() > end:
                lines[name] = Line("not run: the minutes were over")
                continue
            lines[name] = measure(name, Path(top) / name, model)
            print(table({name: lines[name]}), file=sys.stderr, flush=True)
            if options.json:
                options.json.write_text(json.dumps({name: asdict(line) for name, line in lines.items()}, indent=1))
    print(table(lines))


def measure(name: str, folder: Path, model: Path) -> Line:
    """A line by a process of its own; what made it fail is the line's outcome."""
    folder.mkdir()
    try:
        return Line(**real.fresh_process("tests.bench.gpu", "--worker", name, str(folder), str(model)))
    except SystemExit as error:  # fresh_process's: the process has failed, with its last output
        print(error, file=sys.stderr)
        return Line(f"failed: {str(error).strip().splitlines()[-1][:100]}")


def table(lines: dict[str, Line]) -> str:
    """The lines in columns; what was not measured is a dash."""
    rows = [f"{'':18} {'tokens/s':>9} {'MFU':>6} {'peak GiB':>9} {'told GiB':>9}  outcome"]
    for name, line in lines.items():
        rate = "-" if line.tokens_per_second is None else f"{line.tokens_per_second:.1f}"
        mfu = "-" if line.mfu is None else f"{line.mfu:.1%}"
        peak, told = (
            "-" if number is None else f"{number / 2**30:.2f}" for number in (line.peak_bytes, line.told_bytes)
        )
        rows.append(f"{name:18} {rate:>9} {mfu:>6} {peak:>9} {told:>9}  {line.outcome}")
    return "\n".join(rows)


if __name__ == "__main__":
    main()
