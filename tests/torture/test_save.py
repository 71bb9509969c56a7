"""A checkpoint is whole or it is not there, wherever the process dies while it is saved."""

import json
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.bench import Workbench, opened

SUPPORT = Path(__file__).parents[1] / "support"


@pytest.fixture(scope="session")
def shim(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The compiled shim."""
    compiler = shutil.which("gcc") or shutil.which("cc")
    if sys.platform != "linux" or compiler is None:
        pytest.skip("killing at every I/O operation needs Linux and a C compiler")
    library = tmp_path_factory.mktemp("shim") / "faultio.so"
    source = str(SUPPORT / "faultio.c")
    subprocess.run([compiler, "-shared", "-fPIC", "-O1", "-Wall", "-Werror", "-o", library, source, "-ldl"], check=True)
    return library


@pytest.mark.torture
def test_kill_at_every_write_of_a_save_and_its_rotation(workbench: Workbench, shim: Path) -> None:
    run = opened(workbench, workbench.profile("trials"))
    result = subprocess.run(
        [sys.executable, str(SUPPORT / "save_trials.py"), str(run.folder)],
        env=workbench.env | {"LD_PRELOAD": str(shim)}, capture_output=True, text=True, timeout=600,
    )  # fmt: skip
    assert result.returncode == 0, result.stderr[-3000:]
    trials = [json.loads(line) for line in result.stdout.splitlines()]
    total = trials[0]["total"]
    assert total > 60, "the shim saw too few operations to have seen them all"
    assert len(trials) == 2 * total
    assert all(trial["killed"] for trial in trials)
    assert [trial for trial in trials if trial["invalid"]] == []
    assert [trial for trial in trials if trial["left"]] == []
    newest = [trial["newest"] for trial in trials[:total]]
    assert set(newest) == {3, 4}
    assert newest == sorted(newest), "before the rename the old one is newest, from then on the new one"


AUDIT = """
import sys, traceback
seen = []
active = False

def hook(event, arguments):
    if active and event.split(".")[0] in ("pickle", "marshal"):
        stack = traceback.extract_stack()
        if not any("importlib" in frame.filename for frame in stack):    # importing a module reads its .pyc
            seen.append((event, stack[-2].filename))

sys.addaudithook(hook)
import ftui.engine.checkpoint as checkpoint
import ftui.engine.recipe as recipe
from ftui.engine import __main__ as engine

def watched(function):
    def wrapped(*arguments, **options):
        global active
        active = True
        try:
            return function(*arguments, **options)
        finally:
            active = False
    return wrapped

calls = []
def counted(name, function):
    def wrapped(*arguments, **options):
        calls.append(name)
        return watched(function)(*arguments, **options)
    return wrapped

checkpoint.fill = counted("save", checkpoint.fill)
recipe.restore = counted("resume", recipe.restore)
code = engine.main([sys.argv[1]])
import pickle
active = True
pickle.loads(pickle.dumps(AssertionError))    # the hook does see one
active = False
print(code, sorted(set(calls)), [event for event, _ in seen])
"""


@pytest.mark.torture
@pytest.mark.parametrize("method", ["lora", "full"])
def test_no_pickle_is_written_or_read(workbench: Workbench, method: str) -> None:
    run = opened(workbench, workbench.profile("audited", method=method))
    assert workbench.murder(run, "optimizer", 7) == -9
    result = subprocess.run(
        [sys.executable, "-c", AUDIT, str(run.folder)], env=workbench.env, capture_output=True, text=True, timeout=300
    )
    assert result.returncode == 0, result.stderr[-3000:]
    assert result.stdout.splitlines()[-1] == "0 ['resume', 'save'] ['pickle.find_class']"
    files = [p.name for folder in (run.checkpoints, run.final) for p in folder.rglob("*") if p.is_file()]
    assert files
    assert {Path(name).suffix for name in files} <= {".safetensors", ".json", ".jinja", ".md"}
