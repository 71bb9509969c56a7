"""`ftui export RUN --gguf f16`: what a run has trained, or any model, as a file for llama.cpp, Ollama, LM Studio."""

from collections.abc import Collection
from pathlib import Path

from ftui.cli.trained.named_weights import find_model
from ftui.cli.trained.run_job import run_job
from ftui.helper.gguf_facts import Kind
from ftui.launch.export_job import export_job


def export(name: str, gguf: Kind, adapter: bool, out: Path | None, device: str | None, allow: Collection[str]) -> int:
    """Write the file, and print how it compares with what was trained.

    Raises:
        FtuiError: it cannot be written, or is not what was trained.
    """
    return run_job(export_job(*find_model(name), gguf, alone=adapter, out=out, device=device), allow)
