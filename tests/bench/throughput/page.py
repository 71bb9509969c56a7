"""The page that says what was measured, on what, and with which settings."""

import datetime
import json
import platform
import statistics
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

from tests.bench.throughput import agreement
from tests.bench.throughput import contestants as table
from tests.bench.throughput.contestants import ALL, METHODS, TOOLS
from tests.bench.throughput.materials import BLOCK
from tests.bench.throughput.session import Result, Session

FLAGS = ("avx2", "avx512f", "avx512_bf16", "avx512_fp16", "amx_bf16")  # what torch's matrix products choose by
PACKAGES = {
    "ftui": ("torch", "transformers", "peft", "trl", "accelerate", "bitsandbytes"),
    "llamafactory": ("llamafactory", "torch", "transformers", "peft", "trl", "accelerate", "bitsandbytes"),
    "litgpt": ("litgpt", "lightning", "torch", "bitsandbytes"),
}
WHAT = {
    "lora": "LoRA (r 16 on all linear layers) on SmolLM2-135M-Instruct",
    "qlora": "QLoRA (the same beside a base in NF4, double quantised) on SmolLM2-135M-Instruct",
    "full": "Full fine-tuning of SmolLM2-135M-Instruct",
    "pretrain": "Pretraining a Llama with random weights (8 layers of width 384)",
    "dpo": "DPO of pairs with LoRA (r 16 on all linear layers) on SmolLM2-135M-Instruct",
}
INTRODUCTION = """# Benchmarks

Made by `python -m tests.bench.throughput --write docs/benchmarks.md`; not edited by hand.

How fast ftui trains on a CPU beside other tools, each **as it comes** (`default`) and with the **best settings** found
for it (`best`). Rounds alternate: all contestants of a method train on the same rows, one after the other, each in a
process of its own; every second round goes backwards. A figure is the median of the rounds, in brackets the lowest and
the highest. Peers as they come take part in every second round.

- *tokens/s*: tokens without padding, over the time from the end of the warm-up step to the end of the last step.
- *target tokens/s*: only those that are learned (answers; all tokens in pretraining).
- *memory*: the peak of all processes of the command together; what they share counts once.
- *first step*: from the start of the command to the end of the first step: imports, tokens, model, one step.
- *x*: the rate of ftui's fastest row over that of this one: above 1, ftui is faster.
"""
OF_PAIRS = """Tokens are those of both sequences of a pair, each with its prompt, however often the prompt is computed.
The reference model's log-probabilities are measured before the first step by ftui and by TRL with
`precompute_ref_log_probs` (they are part of *first step*), and within each step by the others.
"""
TASK = """## Settings

What the task gives to all: {rows} rows a round ({steps} steps of {batch} rows; of dpo {pairs} pairs a step) in the
file's order, which is random for `default`; for `best`, rows of like length share a step. AdamW (betas 0.9 and 0.999,
no weight decay), one epoch, a constant learning rate ({rates}). LoRA, QLoRA and DPO: r {rank},
lora_alpha {alpha}, all linear layers but the head, no dropout; NF4 with double quantisation. Chats are seeded rows of
quickstart's instructions, at most {length} tokens; answers are learned, prompts are not. Pretraining takes pieces of
{block} tokens of quickstart's corpus, and a tokenizer that exists. Pairs are questions of OpenAI's grade-school-math
(MIT) with one right and one wrong solution by a language model (its `example_model_solutions.jsonl`); DPO has TRL's
default loss, beta 0.1. No evaluation. ftui writes its checkpoint and
`final/`, the others save their result or nothing.

Weights: `stored` are bfloat16 to fine-tune and float32 to pretrain; `float32` is a copy of the same weights in float32.
LitGPT gets the float32 copy in its own form, its rows as token ids, as it has no prompt style for this model, and a
constant learning rate in place of its warm-up, which cannot be switched off. It does not clip gradients when it
fine-tunes; the others clip at norm 1.
Each tool's own keys, beside that:
"""
INSTALL = """## To run it again

LLaMA-Factory and LitGPT pin other versions of transformers than ftui. Each gets an environment of its own:

```
python -m venv llamafactory && llamafactory/bin/pip install torch==2.13.0 bitsandbytes omegaconf einops fire \\
    matplotlib scipy sentencepiece sse-starlette tiktoken uvicorn fastapi av hf-transfer modelscope pandas protobuf \\
    pydantic 'transformers<=5.6.0' 'peft<=0.18.1' 'trl<=0.24.0' 'accelerate<=1.11.0' 'datasets<=4.0.0' 'tyro<0.9' \\
    'torchdata<=0.11.0' && llamafactory/bin/pip install --no-deps llamafactory==0.9.5 torchaudio
python -m venv litgpt && litgpt/bin/pip install torch==2.13.0 litgpt==0.5.13 'bitsandbytes<0.50' requests
```

LLaMA-Factory imports torchaudio, which has no build for this torch: delete `torchaudio/lib/_torchaudio.so` from its
environment, text needs none of it. Then:

```
python -m tests.bench.throughput --python llamafactory=llamafactory/bin/python litgpt=litgpt/bin/python \\
    --write docs/benchmarks.md
```
"""


@dataclass(frozen=True)
class Facts:
    """What is told of the machine and the tools."""

    machine: str
    versions: dict[str, dict[str, str]]
    absent: dict[str, str]
    is_quick: bool


def read_facts(pythons: dict[str, str], absent: dict[str, str], *, is_quick: bool) -> Facts:
    versions = {
        tool: _versions(pythons.get(tool, sys.executable), names)
        for tool, names in PACKAGES.items()
        if tool not in absent
    }
    return Facts(_machine(), versions, absent, is_quick)


def _machine() -> str:
    import psutil

    info = Path("/proc/cpuinfo")
    text = info.read_text() if info.exists() else ""
    fields = dict(line.split(":", 1) for line in text.splitlines() if ":" in line)
    values = {key.strip(): value.strip() for key, value in fields.items()}
    flags = values.get("flags", "").split()
    known = ", ".join(f"{flag} {'yes' if flag in flags else 'no'}" for flag in FLAGS)
    memory = psutil.virtual_memory().total / 2**30
    name = values.get("model name", platform.machine())
    return f"{psutil.cpu_count()} cores of {name} ({known}), {memory:.0f} GiB of memory, {platform.system()}"


def _versions(python: str, packages: tuple[str, ...]) -> dict[str, str]:
    code = (
        "import json, sys; from importlib.metadata import version;"
        "print(json.dumps({n: version(n) for n in sys.argv[1:]} | {'python': sys.version.split()[0]}))"
    )
    return dict(json.loads(subprocess.check_output([python, "-c", code, *packages], text=True)))


def page(session: Session, facts: Facts) -> str:
    parts = [INTRODUCTION]
    if facts.is_quick:
        parts.append("**A quick run with tiny models: it shows that everything works, and measures nothing.**\n")
    parts += [_conditions(session, facts), tables(session), _agreement(session), _absences(session, facts)]
    parts += [_settings(session), INSTALL]
    return "\n".join(parts)


def _conditions(session: Session, facts: Facts) -> str:
    date = datetime.datetime.now(datetime.UTC).date().isoformat()
    lines = [f"Measured on {date}, on {facts.machine}."]
    for tool, versions in facts.versions.items():
        who = "ftui, Trainer and TRL" if tool == "ftui" else TOOLS[tool]
        lines.append(f"- {who}: {', '.join(f'{name} {number}' for name, number in versions.items())}")
    shares = [result.share_of_others for result in session.results]
    if shares:
        lines.append(
            f"- Other programs took {statistics.median(shares):.0%} of the CPU meanwhile ({max(shares):.0%} at most)."
        )
    return "\n".join([lines[0], "", *lines[1:], ""])


def tables(session: Session) -> str:
    """A table per method, the fastest contestant first, and what they say of the goals."""
    parts = []
    for method in METHODS:
        cells = [cell for cell in dict.fromkeys(r.cell for r in session.results) if ALL[cell].method == method]
        if cells:
            parts += [f"## {WHAT[method]}\n", *([OF_PAIRS] if method == "dpo" else []), _table(session, cells), ""]
    return "\n".join(parts)


def _table(session: Session, cells: list[str]) -> str:
    of = {cell: [result for result in session.results if result.cell == cell] for cell in cells}
    rates = {cell: statistics.median(r.tokens_per_second for r in results) for cell, results in of.items()}
    own = max((rate for cell, rate in rates.items() if ALL[cell].tool == "ftui"), default=None)
    lines = [
        "| | tokens/s | target tokens/s | memory, GiB | first step, s | x | rounds |",
        "|---|---|---|---|---|---|---|",
    ]
    for cell in sorted(cells, key=rates.__getitem__, reverse=True):
        results = of[cell]
        contestant = ALL[cell]
        columns = [
            f"{TOOLS[contestant.tool]}, {contestant.kind}",
            _spread([r.tokens_per_second for r in results], 0),
            _spread([r.target_tokens_per_second for r in results], 0),
            _spread([r.peak_bytes / 2**30 for r in results], 2),
            _spread([r.first_step_seconds for r in results], 1),
            "" if own is None else f"{own / rates[cell]:.2f}",
            str(len(results)),
        ]
        lines.append(f"| {' | '.join(columns)} |")
    return "\n".join(lines) + "\n" + _verdict(of, rates)


def _spread(values: list[float], digits: int) -> str:
    middle, low, high = statistics.median(values), min(values), max(values)
    return f"{middle:.{digits}f}" + ("" if len(values) == 1 else f" ({low:.{digits}f} to {high:.{digits}f})")


def _verdict(of: dict[str, list[Result]], rates: dict[str, float]) -> str:
    """ftui's fastest row beside the fastest row of others, in speed and memory."""
    own = [cell for cell in rates if ALL[cell].tool == "ftui"]
    others = [cell for cell in rates if ALL[cell].tool != "ftui"]
    if not own or not others:
        return ""
    mine, best = max(own, key=rates.__getitem__), max(others, key=rates.__getitem__)
    memory = {cell: statistics.median(r.peak_bytes for r in of[cell]) for cell in (mine, best)}
    text = (
        f"\nThe fastest peer is {TOOLS[ALL[best].tool]}, {ALL[best].kind}: ftui does {rates[mine] / rates[best]:.2f}"
        f" times its tokens/s in {memory[mine] / memory[best]:.2f} times its memory."
    )
    plain = f"{ALL[mine].method}/trl_default"
    return text + (f" Of TRL as it comes, {rates[mine] / rates[plain]:.2f} times.\n" if plain in rates else "\n")


def _agreement(session: Session) -> str:
    lines = [
        "## Do the losses agree?\n",
        "The largest relative difference from ftui over all rounds: of the loss of the first step, whose weights are",
        "the same everywhere (where both take the same rows in it; in dpo that loss is ln 2, so the log-probabilities",
        "of chosen and of rejected answers are compared), and of the mean loss over all target tokens (pairs).",
        f"Allowed are {agreement.FIRST_STEP[True]:g} and {agreement.MEAN[True]:g} in float32 (dpo: "
        f"{agreement.MEAN_OF_PAIRS:g}), "
        f"{agreement.FIRST_STEP[False]:g} and {agreement.MEAN[False]:g} where something is rounded to bfloat16.\n",
        *(f"- {finding.text}" for finding in agreement.compare(session.results)), "",
    ]  # fmt: skip
    return "\n".join(lines)


def _absences(session: Session, facts: Facts) -> str:
    lines = [f"- {TOOLS.get(name, name)}: {reason}" for name, reason in facts.absent.items()]
    lines += [f"- {cell}: `{reason}`" for cell, reason in session.failures.items()]
    return "\n".join(["## What could not be measured\n", *(lines or ["Everything could."]), ""])


def _settings(session: Session) -> str:
    rates = ", ".join(f"{method} {rate:g}" for method, rate in table.LEARNING_RATES.items())
    steps = session.num_steps + session.warm_up
    batch = table.batch("lora")
    text = TASK.format(
        rows=steps * batch, steps=steps, batch=batch, pairs=table.batch("dpo"), rates=rates, block=BLOCK,
        rank=table.RANK, alpha=table.ALPHA, length=table.MAX_LENGTH,
    )  # fmt: skip
    lines = ["| | weights | order | differs from the defaults in |", "|---|---|---|---|"]
    for cell in dict.fromkeys([*(r.cell for r in session.results), *session.failures]):
        contestant = ALL[cell]
        settings = json.dumps(contestant.settings) if contestant.settings else "nothing"
        lines.append(f"| {cell} | {contestant.model} | {contestant.order} | `{settings}` |")
    return "\n".join([text, *lines, ""])
