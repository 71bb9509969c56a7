"""`python -P -m ftui.engine.gguf_files.llama_process QUESTIONS ANSWERS`: llama.cpp's own view of a GGUF file.

A process of its own: the library prints, aborts where a file is wrong, and on processors without its instructions it
dies. Its tokenizer is reached at an address of this machine that the library opens for as long as the process lives.
"""

import json
import os
import sys
import threading
import traceback
import urllib.request
from pathlib import Path
from types import TracebackType
from typing import Any

import msgspec

from ftui.system.files import replace_file


class Questions(msgspec.Struct, frozen=True):
    """About `file`, with `adapter` on it if there is one: ids of each text, the likeliest tokens after each prompt."""

    file: str
    texts: list[str]
    prompts: list[list[int]]
    num_likeliest: int
    adapter: str | None = None


class Answers(msgspec.Struct, frozen=True):
    """`tokens` of each text, special ones read as such; `likeliest`: of each prompt, log-probabilities by id."""

    tokens: list[list[int]]
    likeliest: list[dict[int, float]]


def main(arguments: list[str]) -> None:
    """Answer the questions of a file in another one."""
    import xllamacpp

    threading.Thread(target=_end_with_input, daemon=True).start()
    questions = msgspec.json.decode(Path(arguments[0]).read_bytes(), type=Questions)
    parameters = xllamacpp.CommonParams()
    parameters.model.path = questions.file
    if questions.adapter is not None:
        parameters.lora_adapters = [xllamacpp.CommonAdapterLoraInfo(questions.adapter, 1.0)]
    parameters.n_ctx = max([256, *(len(prompt) + 16 for prompt in questions.prompts)])
    parameters.n_parallel = 1
    parameters.n_gpu_layers = 0
    parameters.cpuparams.n_threads = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else 4
    # The file is measured, not what else is rounded: kept keys and values in 16 bits take 0.02 to 0.04 of the 0.05.
    parameters.cache_type_k = parameters.cache_type_v = xllamacpp.ggml_type.GGML_TYPE_F32
    parameters.flash_attn_type = xllamacpp.llama_flash_attn_type.LLAMA_FLASH_ATTN_TYPE_DISABLED
    parameters.warmup = False
    parameters.fit_params = False
    parameters.hostnames = ["127.0.0.1"]
    server = xllamacpp.Server(parameters)
    tokens = [_tokens(server.listening_address, text) for text in questions.texts]
    plain = _tokens(server.listening_address, "a")[-1]
    likeliest = [_likeliest(server, prompt, questions.num_likeliest, plain) for prompt in questions.prompts]
    replace_file(Path(arguments[1]), msgspec.json.encode(Answers(tokens, likeliest)))
    sys.stdout.flush()
    os._exit(0)  # the library's threads may not end


def _end_with_input() -> None:
    """Whoever asks keeps the input open."""
    sys.stdin.buffer.read()
    os._exit(1)


def _end_with(kind: type[BaseException], error: BaseException, trace: TracebackType | None) -> None:
    """Errors are told last: the library would go on printing while it ends."""
    traceback.print_exception(kind, error, trace)
    os._exit(1)


def _tokens(address: str, text: str) -> list[int]:
    question = {"content": text, "add_special": True, "parse_special": True}
    request = urllib.request.Request(
        f"{address}/tokenize", json.dumps(question).encode(), {"Content-Type": "application/json"}
    )
    direct = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    with direct.open(request, timeout=60) as response:
        return [int(token) for token in json.load(response)["tokens"]]


def _likeliest(server: Any, prompt: list[int], number: int, plain: int) -> dict[int, float]:
    """The answer is always the token `plain`: nothing is told of end tokens and of parts of characters.

    The probabilities are those before that choice.
    """
    question = {"prompt": prompt, "n_predict": 1, "n_probs": number, "temperature": 0.0, "cache_prompt": True}
    answer = server.handle_completions(question | {"logit_bias": [[plain, 1e6]]})
    if "choices" not in answer:
        raise RuntimeError(f"llama.cpp gave no answer: {str(answer)[:300]}")
    (place,) = answer["choices"][0]["logprobs"]["content"]
    return {int(entry["id"]): float(entry["logprob"]) for entry in place["top_logprobs"]}


if __name__ == "__main__":
    sys.excepthook = _end_with
    main(sys.argv[1:])
