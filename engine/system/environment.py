"""The engine's environment, set before torch and transformers are imported."""

import functools
import importlib.metadata
import logging
import os
import sys
import warnings

LIBRARIES = (
    "ftui", "torch", "transformers", "peft", "accelerate", "bitsandbytes", "tokenizers", "safetensors", "numpy",
)  # fmt: skip


def settle_environment() -> None:
    """Take away what would change training behind the profile's back, and silence what would print."""
    for name in [n for n in os.environ if n.startswith("ACCELERATE_")]:
        del os.environ[name]  # accelerate reads precision, accumulation and device placement from these
    os.environ["USE_HUB_KERNELS"] = "0"  # transformers fetches and runs code from the hub by itself,
    sys.modules["kernels"] = None  # type: ignore[assignment]  # and bitsandbytes does wherever `kernels` is importable
    logging.getLogger("bitsandbytes.backends.cpu.ops").setLevel(logging.ERROR)  # it asks for `kernels` in every log
    os.environ["HF_HUB_DISABLE_TELEMETRY"] = "1"
    os.environ["HF_HUB_DISABLE_PROGRESS_BARS"] = "1"
    os.environ["TQDM_DISABLE"] = "1"
    # peft 0.21 asks transformers 5.24 for an old name; a reader of engine.log can do nothing about it.
    warnings.filterwarnings("ignore", ".is_gradient_checkpointing. is deprecated", FutureWarning)
    os.environ.setdefault("TOKENIZERS_PARALLELISM", "true")  # the engine forks no workers
    os.environ.setdefault("TRANSFORMERS_VERBOSITY", "warning")
    # A torch thread that waits for the others spins, by default for very long. Where cores are shared that starves the
    # one it waits for: beside a loop of matrix products, quickstart made 890 and 254 tokens/s on 2 cores by default,
    # 1030 and 957 so (alone about 6000 either way).
    os.environ.setdefault("GOMP_SPINCOUNT", "20000")


@functools.cache
def versions() -> dict[str, str]:
    """Version of Python and of every library that can change a number. Looked up once: it takes 17 ms."""
    import platform

    numbers = {"python": platform.python_version()}
    for name in LIBRARIES:
        distribution = "finetune-tui" if name == "ftui" else name
        try:
            numbers[name] = importlib.metadata.version(distribution)
        except importlib.metadata.PackageNotFoundError:
            numbers[name] = "unknown"  # run from a source tree that is not installed
    return numbers
