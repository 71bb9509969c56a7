"""Whether llama.cpp answers with a GGUF file as transformers does with what it was made from."""

import importlib.metadata
import math
import os
import subprocess
import sys
import unicodedata
from collections.abc import Sequence
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from platform import machine
from statistics import fmean
from typing import Any

import msgspec
import torch

from ftui.errors import ModelError
from ftui.hardware.cpu import cpu_flags
from ftui.helper.gguf_facts import LEAST_SAME_FIRST, MOST_KL, GgufCertificate
from ftui.supervisor.engine_process import clean_environment
from ftui.system.files import open_private, replace_file
from ftui.system.scratch import scratch

from .llama_process import Answers, Questions
from .sample_texts import comparison_texts
from .vocabulary import Vocabulary

LIBRARY = "xllamacpp"
HOW = "pip install 'finetune-tui[gguf]' brings what measures it."
INSTRUCTIONS = {"avx2", "fma", "f16c", "bmi2"}
"""Without them the library's wheels for x86 end with a signal."""
NUM_LIKELIEST = 20
NUM_ASKED = 60  # for one of the 20 to be among them though both differ
POSITIONS = 4  # of each text
LIMITS = {"f16": 0.05, "bf16": 0.5, "q8_0": 2.5, "q6_k": 3.0, "q5_k_m": 5.0, "q4_k_m": 5.0}
"""How much a log-probability of the 20 likeliest tokens may differ. What is rounded, differs: see docs/after.md."""
LAST_LINES = 4
TINY = 1e-9  # what a probability is taken for at least


@dataclass(frozen=True)
class Reference:
    """What transformers in float32 has for the likeliest tokens after each prompt."""

    prompts: list[list[int]]
    likeliest: list[dict[int, float]]


def why_not_measured() -> str | None:
    """Why there can be no certificate on this machine; `None` where there can."""
    if find_spec(LIBRARY) is None:
        return f"{LIBRARY} is not installed. {HOW}"
    if machine().lower() in ("x86_64", "amd64") and (missing := sorted(INSTRUCTIONS - cpu_flags())):
        return f"this processor has no {', '.join(missing)}, which {LIBRARY} needs."
    return None


def measure_reference(model: Any, texts: Sequence[Sequence[int]]) -> Reference:
    """The likeliest tokens of a model in float32, at some places of each text (token ids)."""
    prompts, likeliest = [], []
    for ids in texts:
        with torch.no_grad():
            log_probs = torch.log_softmax(model(torch.tensor([list(ids)])).logits[0].float(), dim=-1)
        for number in range(1, POSITIONS + 1):
            length = max(1, len(ids) * number // POSITIONS)
            values, indices = log_probs[length - 1].topk(NUM_LIKELIEST)
            prompts.append([int(token) for token in ids[:length]])
            likeliest.append(dict(zip(indices.tolist(), values.tolist(), strict=True)))
    return Reference(prompts, likeliest)


def certify(
    file: Path,
    kind: str,
    tokenizer: Any,
    vocabulary: Vocabulary,
    reference: Reference,
    rows: Sequence[str],
    rows_name: str,
    *,
    adapter: Path | None = None,
) -> GgufCertificate:
    """Compare tokens on 1,000 texts, and log-probabilities after the prompts of `reference`.

    Raises:
        ModelError: llama.cpp cannot load the file.
    """
    special = [token.content for token in tokenizer.added_tokens_decoder.values()]
    texts = [compose(text, vocabulary) for text in comparison_texts(rows, special)]
    questions = Questions(str(file), texts, reference.prompts, NUM_ASKED, None if adapter is None else str(adapter))
    answers = ask_llama(questions, file)
    expected = [tokenizer(text).input_ids for text in texts]
    different = [text for text, ours, theirs in zip(texts, expected, answers.tokens, strict=True) if ours != theirs]
    pairs = list(zip(reference.likeliest, answers.likeliest, strict=True))
    return GgufCertificate(
        num_texts=len(texts),
        num_equal=len(texts) - len(different),
        example=different[0] if different else "",
        rows=rows_name,
        num_places=len(pairs),
        largest_difference=max(largest_difference(ours, theirs) for ours, theirs in pairs),
        limit=LIMITS[kind],
        most_kl=MOST_KL[kind],
        least_same=LEAST_SAME_FIRST[kind],
        num_same_first=sum(_first(ours) == _first(theirs) for ours, theirs in pairs),
        mean_kl=fmean(divergence(ours, theirs) for ours, theirs in pairs),
        versions={name: importlib.metadata.version(name) for name in ("transformers", LIBRARY)},
    )


def _first(likeliest: dict[int, float]) -> int:
    return max(likeliest, key=likeliest.__getitem__)


def compose(text: str, vocabulary: Vocabulary) -> str:
    """The text as a tokenizer that composes characters has it: llama.cpp leaves that to whoever asks it."""
    return unicodedata.normalize("NFC", text) if vocabulary.composes else text


def largest_difference(ours: dict[int, float], theirs: dict[int, float]) -> float:
    """Of a log-probability of our likeliest tokens; one they do not name is at most as likely as their last."""
    last = min(theirs.values())
    return max(abs(value - theirs.get(token, last)) for token, value in ours.items())


def divergence(ours: dict[int, float], theirs: dict[int, float]) -> float:
    """KL in nats of our likeliest tokens, and of all others as one; a token they do not name is as their last."""
    last = min(theirs.values())
    pairs = [(math.exp(value), math.exp(theirs.get(token, last))) for token, value in ours.items()]
    pairs.append((1.0 - sum(p for p, _ in pairs), 1.0 - sum(q for _, q in pairs)))
    return sum(p * math.log(max(p, TINY) / max(q, TINY)) for p, q in pairs)


def ask_llama(questions: Questions, file: Path) -> Answers:
    """The answers of a process that has the library.

    Raises:
        ModelError: it did not answer: its last lines.
    """
    with scratch("gguf") as folder:
        asked, answered, output = folder / "questions.json", folder / "answers.json", folder / "output"
        replace_file(asked, msgspec.json.encode(questions))
        command = [sys.executable, "-P", "-m", "ftui.engine.gguf_files.llama_process", str(asked), str(answered)]
        printed = open_private(output, os.O_WRONLY)
        try:
            with subprocess.Popen(
                command, stdin=subprocess.PIPE, stdout=printed, stderr=printed, env=clean_environment()
            ) as process:  # its input stays open for as long as this process lives
                code = process.wait()
        finally:
            os.close(printed)
        if code == 0 and answered.is_file():
            return msgspec.json.decode(answered.read_bytes(), type=Answers)
        lines = output.read_text(errors="backslashreplace").strip().splitlines()[-LAST_LINES:]
    ended = f"signal {-code}" if code < 0 else f"exit code {code}"
    raise ModelError(f"llama.cpp cannot load {file.name} ({ended}):\n" + "\n".join(lines))
