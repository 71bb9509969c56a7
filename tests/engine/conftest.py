"""What the engine's tests stand on: one thread, no network, a cache of their own, and a tiny Llama in a folder."""

import os
from collections.abc import Iterator
from pathlib import Path

from ftui.engine.system.environment import settle_environment
from ftui.engine.system.libraries import import_libraries

settle_environment()
import_libraries()
os.environ["HF_HUB_OFFLINE"] = "1"

import pytest  # noqa: E402
import torch  # noqa: E402
from accelerate.state import AcceleratorState, GradientState  # noqa: E402

from tests.support.tiny import make_model  # noqa: E402


@pytest.fixture(scope="session", autouse=True)
def one_thread() -> None:
    """The same last bits on every machine, and no fight for its cores."""
    torch.set_num_threads(1)


@pytest.fixture(autouse=True)
def fresh_accelerate() -> Iterator[None]:
    """accelerate keeps precision and device in singletons: one test must not inherit another's."""
    yield
    AcceleratorState._reset_state(reset_partial_state=True)
    GradientState._reset_state()


@pytest.fixture(autouse=True)
def no_waiting_for_the_disk(monkeypatch: pytest.MonkeyPatch) -> None:
    """No test cuts the power. That files are synced, and when, is what test_durability.py looks at."""
    monkeypatch.setattr(os, "fsync", lambda descriptor: None)


@pytest.fixture(autouse=True)
def own_cache(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FTUI_CACHE", str(tmp_path_factory.getbasetemp() / "ftui-cache"))


@pytest.fixture(scope="session")
def model_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A Llama of two layers and width 32 with its tokenizer. Its weights are large, so that 20 steps move it far."""
    return make_model(tmp_path_factory.mktemp("model"))
