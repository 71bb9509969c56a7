"""How the training libraries are imported: without the work that they do for others.

CPU seconds of an engine's imports on one core (torch 2.13, transformers 5.24, peft 0.21): 2.6, and by plain import
statements 4.4. torch alone takes 1.
"""

import functools
import gc
import importlib.util
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any


@contextmanager
def quick_imports() -> Iterator[None]:
    """A block that imports libraries. Nothing in it is garbage, and Python would look for some again and again.

    Nor is what it made looked at later: each full search would take 0.2 s for 400,000 objects.
    """
    gc.disable()
    try:
        yield
    finally:
        gc.freeze()
        gc.enable()


def import_libraries() -> None:
    """Import transformers, torch with it, and bitsandbytes where it is installed."""
    _import_transformers()
    if importlib.util.find_spec("bitsandbytes") is not None:
        _import_bitsandbytes()


def _import_transformers() -> None:
    """Import transformers and its list of models, which transformers 5.24 reads from its 1,700 source files twice.

    Once for itself, then for `transformers.models`: 0.3 s.
    """
    import transformers
    from transformers.utils import import_utils

    folder, prefix = Path(str(transformers.__file__)).parent / "models", "models."
    define = import_utils.define_import_structure
    known = define(folder, prefix="models")  # kept by a cache of its own since the first time
    models = {
        needs: {name.removeprefix(prefix): objects for name, objects in files.items() if name.startswith(prefix)}
        for needs, files in known.items()
    }
    setattr(import_utils, "define_import_structure", lambda *arguments: models)  # noqa: B010
    try:
        import transformers.models
    finally:
        setattr(import_utils, "define_import_structure", define)  # noqa: B010


def _import_bitsandbytes() -> None:
    """Import bitsandbytes without torch's compiler, which takes 0.9 s.

    It decorates four functions with `torch.compile`, which loads all of inductor. Here each is compiled when it is
    first called, with the same result, and mostly never.
    """
    import torch

    compile_now = torch.compile

    def compile_later(function: Any = None, **options: Any) -> Any:
        if function is None:
            return functools.partial(compile_later, **options)
        compiled = functools.cache(functools.partial(compile_now, function, **options))
        return functools.wraps(function)(lambda *arguments, **keywords: compiled()(*arguments, **keywords))

    setattr(torch, "compile", compile_later)  # noqa: B010
    try:
        import bitsandbytes

        assert bitsandbytes
    finally:
        setattr(torch, "compile", compile_now)  # noqa: B010
