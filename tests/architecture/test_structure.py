"""Rules about the code, each checked here so that it stays a rule."""

import ast
import os
import re
import subprocess
import sys
import tomllib
from collections import Counter
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest

from ftui.system.user_folders import cache_folder, prices_file, state_folder
from tests.support.replayed import replay

ROOT = Path(__file__).parents[2]
FOLDERS = ("ftui", "tui", "engine", "profiles")
MAX_LINES_A_FILE = 400
MAX_LINES_A_FUNCTION = 50
MAX_MODULES_A_FOLDER = 16
# What is over a ceiling, and why it is better so. These lists may only get shorter.
LONG_FILES: dict[str, str] = {}
LONG_FUNCTIONS: dict[str, str] = {}
FULL_FOLDERS = {"ftui/runs": 17}
# Classes whose name another class has, too. The number may only fall.
CLASS_HOMONYMS = 7

TRAINING_STACK = {"torch", "transformers", "peft", "accelerate", "datasets", "numpy"}
SCREEN_STACK = {"textual", "rich"}


def sources() -> list[Path]:
    """Every module, each under its own folder and not under the link that hangs it in the package."""
    paths = [path for folder in FOLDERS for path in (ROOT / folder).rglob("*.py")]
    paths = [path for path in paths if not any(part.is_symlink() for part in path.parents)]
    assert len(paths) > 40, "the search for source files finds too little to mean anything"
    return paths


@cache
def nodes(path: Path) -> list[ast.AST]:
    """What a module is made of, parsed once for all rules."""
    return list(ast.walk(ast.parse(path.read_text())))


@pytest.fixture(scope="module", autouse=True)
def forgotten() -> Iterator[None]:
    """A million nodes: every full collection of garbage in the tests to come would walk through them."""
    yield
    nodes.cache_clear()


def functions(path: Path) -> Iterator[tuple[str, int]]:
    for node in nodes(path):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            assert node.end_lineno is not None
            yield f"{path.relative_to(ROOT)}:{node.name}", node.end_lineno - node.lineno + 1


def test_files_stay_small() -> None:
    long = {str(p.relative_to(ROOT)): n for p in sources() if (n := len(p.read_text().splitlines())) > MAX_LINES_A_FILE}
    assert long.keys() == LONG_FILES.keys(), f"over {MAX_LINES_A_FILE} lines: split the file, do not raise the ceiling"


def test_folders_stay_small() -> None:
    counts = Counter(str(path.parent.relative_to(ROOT)) for path in sources() if path.stem != "__init__")
    full = {folder: count for folder, count in counts.items() if count > MAX_MODULES_A_FOLDER}
    assert full == FULL_FOLDERS, f"over {MAX_MODULES_A_FOLDER} modules: make a package of some of them"


def test_a_module_is_found_by_its_name() -> None:
    """No two share one. A command or a screen may be called as what it shows: their folders are looked in for that."""
    apart = ("ftui/cli/", "tui/screens/")
    names = [path.stem for path in sources() if not str(path.relative_to(ROOT)).startswith(apart)]
    twice = {name for name, count in Counter(names).items() if count > 1}
    assert twice <= {"__init__", "__main__"}


def test_a_class_is_found_by_its_name() -> None:
    places: dict[str, list[str]] = {}
    for path in sources():
        for node in nodes(path):
            if isinstance(node, ast.ClassDef):
                places.setdefault(node.name, []).append(str(path.relative_to(ROOT)))
    twice = {name: files for name, files in places.items() if len(files) > 1}
    assert len(twice) <= CLASS_HOMONYMS, f"one class of a name is enough: {twice}"


def test_every_folder_of_modules_is_a_package() -> None:
    """Without its __init__.py, neither the wheel nor the import contract would see it."""
    folders = {path.parent for path in sources() if path.relative_to(ROOT).parts[0] != "profiles"}
    assert [folder for folder in folders if not (folder / "__init__.py").is_file()] == []


def test_functions_stay_small() -> None:
    long = {name: n for p in sources() for name, n in functions(p) if n > MAX_LINES_A_FUNCTION}
    assert long.keys() == LONG_FUNCTIONS.keys(), f"over {MAX_LINES_A_FUNCTION} lines: {long}"


def test_no_module_is_named_for_nothing() -> None:
    vague = {"utils", "util", "helpers", "common", "misc", "manager", "base"}
    assert [p for p in sources() if p.stem in vague] == []


def test_the_folders_hang_in_the_package() -> None:
    for name in ("tui", "engine", "profiles"):
        assert os.readlink(ROOT / "ftui" / name) == f"../{name}"


@pytest.mark.parametrize("package", ["tui", "engine"])
def test_a_package_refuses_another_name(package: str) -> None:
    result = subprocess.run([sys.executable, "-c", f"import {package}"], cwd=ROOT, capture_output=True, text=True)
    assert result.returncode != 0
    assert f"import them under that name\n" in result.stderr or f"import it under that name\n" in result.stderr  # noqa: F541


def loaded_by(code: str, env: dict[str, str] | None = None) -> set[str]:
    """Top-level modules in a fresh interpreter after running `code`."""
    program = f"{code}\nimport sys; print('|'.join({{m.split('.')[0] for m in sys.modules}}))"
    result = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True, env=os.environ | (env or {})
    )
    return set(result.stdout.splitlines()[-1].split("|"))


@cache
def loaded_with(module: str) -> set[str]:
    return loaded_by(f"import {module}")


GROUND = [
    "ftui.cli.main",
    "ftui.cli.run",
    "ftui.cli.runs",
    "ftui.cli.dry_run",
    "ftui.cli.preview",
    "ftui.supervisor.supervise",
    "ftui.runs.checkpoint_folders",
    "ftui.tui",
]


@pytest.mark.parametrize("module", GROUND)
def test_no_training_stack_outside_the_engine(module: str) -> None:
    assert loaded_with(module) & TRAINING_STACK == set()


@pytest.mark.parametrize("module", GROUND[:-1])
def test_commands_that_print_never_load_the_screens(module: str) -> None:
    assert loaded_with(module) & SCREEN_STACK == set()


SCREENS_AT_WORK = """
import asyncio, os, sys, time
from pathlib import Path
started = []
CHILDREN = ("subprocess.Popen", "os.fork", "os.forkpty", "os.posix_spawn", "os.exec", "os.system")
sys.addaudithook(lambda event, arguments: started.append(event) if event in CHILDREN else None)
import ftui.tui.app
from ftui.tui.screens.monitor import MonitorScreen
from ftui.tui.screens.runs import RunsScreen
from ftui.system.user_folders import cache_folder, prices_file, state_folder
from tests.support.replayed import replay
from tests.support.shown_app import shown_app

async def main():
    async with shown_app() as shown:
        assert isinstance(shown.screen, RunsScreen) and not shown.screen.run_list.rows
    for name, living in (("wiki-style-finished", False), ("wiki-style-lora", True)):
        run = replay(name, Path(os.environ["FTUI_RUNS"]), living=living)
        async with shown_app() as shown:
            await shown.press("down", "enter")
            assert isinstance(shown.screen, MonitorScreen)
            await shown.pilot.pause(1.5)
            await shown.press("escape")
            assert isinstance(shown.screen, RunsScreen)

asyncio.run(main())
assert started == [], started
"""


@pytest.mark.slow
def test_screens_that_watch_stay_light_and_start_nothing(tmp_path: Path) -> None:
    """The list of runs and the live view, empty and full."""
    places = {"FTUI_RUNS": str(tmp_path / "runs"), "XDG_STATE_HOME": str(tmp_path), "PYTHONPATH": str(ROOT)}
    loaded = loaded_by(SCREENS_AT_WORK, places)
    assert loaded & SCREEN_STACK == SCREEN_STACK, "the screens did run"
    assert loaded & (TRAINING_STACK | {"pydantic", "tomlkit"}) == set()


@pytest.mark.parametrize(("screen", "others"), [
    ("ftui.tui.screens.monitor", {"runs", "dialogs", "checkpoints", "start", "help", "log", "editor", "rows"}),
    ("ftui.tui.screens.runs", {"monitor", "dialogs", "checkpoints", "start", "help", "log", "editor", "rows"}),
])  # fmt: skip
def test_a_first_screen_loads_no_other_and_no_needless_library(screen: str, others: set[str]) -> None:
    """Each library takes 2 to 30 ms of the first frame, or MiB of memory."""
    code = (
        "import sys, ftui.cli.attach, ftui.tui.open_screens as opening\n"
        f"with opening._no_ssl():\n    import ftui.tui.app\nimport {screen}\nprint('|'.join(sys.modules))"
    )
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    loaded = set(result.stdout.strip().split("|"))
    assert {f"ftui.tui.screens.{name}" for name in others} & loaded == set()
    assert {"ssl", "hashlib", "secrets", "json", "pygments", "markdown_it", "ftui.tui.palette"} & loaded == set()


PRINTING = [
    "runs", "status RUN", "status RUN --json", "checkpoints RUN", "checkpoints RUN --json", "log RUN", "profiles",
    "cache", "--help", "attach --help", "attach RUN --plain", "",
]  # fmt: skip


@pytest.mark.parametrize("command", PRINTING)
def test_a_command_that_prints_loads_neither_screens_nor_training(command: str, tmp_path: Path) -> None:
    run = replay("wiki-style-finished", tmp_path / "runs")
    places = {"FTUI_RUNS": str(tmp_path / "runs"), "XDG_STATE_HOME": str(tmp_path)}
    arguments = command.replace("RUN", run.name).split()
    call = f"try: assert main({arguments}) == 0\nexcept SystemExit as end: assert not end.code"
    code = f"from ftui.cli.main import main\n{call}"
    assert loaded_by(code, places) & (SCREEN_STACK | TRAINING_STACK) == set()


@pytest.mark.parametrize("command", ["runs", "runs --json", "status RUN", "status RUN --json"])
def test_a_look_at_runs_loads_little(command: str, tmp_path: Path) -> None:
    """Each of these takes 1 to 10 ms of the 60 that such a command may take; another module may need it, not these."""
    run = replay("wiki-style-finished", tmp_path / "runs")
    places = {"FTUI_RUNS": str(tmp_path / "runs"), "XDG_STATE_HOME": str(tmp_path)}
    code = f"from ftui.cli.main import main\nassert main({command.replace('RUN', run.name).split()}) == 0"
    needless = {"asyncio", "dataclasses", "difflib", "hashlib", "inspect", "json", "platformdirs", "psutil", "secrets"}
    needless |= {"subprocess", "threading", "tomllib", "typing_extensions"}
    assert loaded_by(code, places) & needless == set()
    assert "typing_extensions" in loaded_by(f"{code}\nimport typing_extensions", places), "others still have it"


def test_the_entry_point_loads_no_pydantic() -> None:
    code = "import ftui.cli.main\ntry: ftui.cli.main.main(['--version'])\nexcept SystemExit: pass"
    assert loaded_by(code) & {"pydantic", "psutil"} == set()


def test_the_supervisor_stays_light() -> None:
    assert loaded_by("import ftui.supervisor.supervise") & {"pydantic", "tomlkit"} == set()


@pytest.mark.slow
def test_the_engine_never_loads_the_screens() -> None:
    assert loaded_by("import ftui.engine.recipe") & SCREEN_STACK == set()


def test_every_module_has_a_layer() -> None:
    """The contracts are exhaustive; this keeps them from being emptied."""
    contracts = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["importlinter"]["contracts"]
    assert len(contracts) >= 4
    layers = next(c for c in contracts if c["type"] == "layers")
    assert layers["exhaustive"] is True
    named = {name for layer in layers["layers"] for name in re.split(r"\s*[|:]\s*", layer)}
    here = {p.stem for p in (ROOT / "ftui").iterdir() if p.suffix == ".py" or p.is_dir()}
    assert here - {"__init__", "__main__", "__pycache__", "profiles"} <= named


def test_nothing_swallows_exceptions() -> None:
    """`except Exception: pass` and its kin. The broad catches are of processes that tell another what they caught, and
    of whoever lets a library read a file that may hold anything, or runs a person's own code, and names the file; a
    push records how it ended, and raises it again."""
    broad = []
    for path in sources():
        for node in nodes(path):
            if isinstance(node, ast.ExceptHandler) and (node.type is None or ast.unparse(node.type) == "Exception"):
                broad.append(str(path.relative_to(ROOT)))
            if isinstance(node, ast.ExceptHandler) and ast.unparse(node.body[0]) == "pass":
                broad.append(f"{path.relative_to(ROOT)}:{node.lineno} (pass)")
    known = ["engine/__main__.py", "engine/models/files/blame.py", "engine/pushing/push_result.py"]
    known.append("engine/services/server.py")
    assert sorted(broad) == [*known, "ftui/evaluation/own_measures.py"]


def test_the_engine_reads_and_writes_no_pickle() -> None:
    calls = []
    for path in sources():
        for node in nodes(path):
            if isinstance(node, ast.Call) and ast.unparse(node.func) in {"torch.load", "torch.save", "pickle.load"}:
                calls.append(str(path.relative_to(ROOT)))
            if isinstance(node, ast.Import | ast.ImportFrom) and "pickle" in ast.unparse(node):
                calls.append(str(path.relative_to(ROOT)))
    assert calls == []


WRITES_ELSEWHERE = {
    "ftui/system/files.py": "the one way",
    "ftui/system/volume.py": "tries a volume in a folder just made",
    "ftui/cli/main.py": "/dev/null",
    "ftui/helper/client.py": "a temporary folder of its own",
    "tui/screens/editor/profile_file.py": "a temporary folder for $EDITOR",
    "engine/checkpoints/checkpoint.py": "a scratch folder just made: `publish` writes its files",
    "engine/checkpoints/export.py": "a scratch folder just made: `publish` writes its files",
    "engine/merging/merge_run.py": "a scratch folder just made, whose files `StagedExport` writes",
    "engine/models/weights.py": "a scratch folder just made: `publish` writes its files",
    "engine/models/files/gguf.py": "a folder of the cache just made",
    "engine/models/files/hub.py": "/dev/null",
    "engine/training/peak_memory.py": "/proc",
    "engine/data/stores/worker_pool.py": "a temporary folder of its own",
    "engine/services/count_rows.py": "a temporary folder of its own",
    "engine/services/split_rows.py": "files of the user's choice, which must not exist yet",
    "profiles/quickstart/build_data.py": "not part of the program",
    "profiles/quickstart/build_pairs.py": "not part of the program",
}


def opens_for_writing(call: ast.Call) -> bool:
    """Whether a call makes or opens a file to be written by another way than `ftui.system.files`."""
    function = ast.unparse(call.func)
    texts = [ast.unparse(argument) for argument in call.args]
    if function.startswith("os."):
        is_reading = function == "os.open" and any("O_RDONLY" in text for text in texts[1:2])
        return not is_reading and function in {"os.open", "os.truncate", "os.mkfifo", "os.mknod", "os.symlink"}
    if function == "open" or function.endswith(".open"):
        mode = texts[1:2] if function == "open" else texts[:1]
        return any(re.fullmatch(r"'[a-z+]+'", text) and set(text) & set("wax+") for text in mode)
    name = function.rpartition(".")[2]
    writers = {"write_bytes", "write_text", "touch", "symlink_to", "hardlink_to", "save_file", "save_pretrained"}
    return name in writers or function in {
        f"shutil.{kind}" for kind in ("copy", "copy2", "copyfile", "copytree", "move")
    }


def test_files_are_opened_for_writing_in_one_place() -> None:
    """`open_private`, `replace_file` and `write_checked` look before they touch; any other way follows links."""
    found = set()
    for path in sources():
        calls = [node for node in nodes(path) if isinstance(node, ast.Call)]
        if any(opens_for_writing(call) for call in calls):
            found.add(str(path.relative_to(ROOT)))
    assert found == WRITES_ELSEWHERE.keys()


@pytest.mark.slow
def test_no_code_is_fetched_from_the_hub(tmp_path: Path) -> None:
    """`kernels` downloads and runs code as soon as a library imports it: to the engine it is not there."""
    (tmp_path / "kernels.py").write_text("raise SystemExit('kernels was imported')")
    code = (
        "from ftui.engine.__main__ import import_libraries; import_libraries();"
        "import ftui.engine.recipe, sys, torch, bitsandbytes; assert sys.modules['kernels'] is None"
    )
    assert "torch" in loaded_by(code, {"PYTHONPATH": f"{tmp_path}:{os.environ.get('PYTHONPATH', '')}"})


PRINT_PLACES = "from ftui.system.user_folders import *; print(state_folder(), cache_folder(), prices_file(), sep='\\n')"


def test_tests_and_what_they_start_stay_out_of_the_users_folders() -> None:
    """Where no fixture says more (`_leave_home` of tests/conftest.py): lists of runs, caches, prices of cards."""
    started = subprocess.run([sys.executable, "-c", PRINT_PLACES], capture_output=True, text=True, check=True)
    places = [str(state_folder()), str(cache_folder()), str(prices_file())]
    assert started.stdout.splitlines() == places
    assert [place for place in places if Path(place).is_relative_to(Path.home())] == []
