"""A checkpoint is whole or it is not there, wherever the process dies or the disk fails while it is saved."""

import json
import subprocess
import sys
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from ftui.runs.run_folder import Run
from tests.faults.conftest import Account
from tests.support.bench import Workbench, opened
from tests.support.shims import compiled
from tests.support.zygote import Zygote, tail_of

SUPPORT = Path(__file__).parents[1] / "support"


@pytest.fixture(scope="session")
def shim(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The compiled shim."""
    return compiled("faultio", tmp_path_factory.mktemp("shim"))


@pytest.fixture
def stride(request: pytest.FixtureRequest) -> int:
    """Every operation in a campaign (`--trials N`), else one in eleven, each fault others: there are eleven faults."""
    return 1 if request.config.getoption("--trials", default=0) else 11


@pytest.fixture
def rarely(stride: int) -> int:
    """For a save by the thread, which does the same operations."""
    return 2 if stride > 1 else 1


def trials(run: Run, bench: Workbench, shim: Path, mode: str, stride: int, *options: str) -> list[dict[str, Any]]:
    """What tests/support/save_trials.py found."""
    result = subprocess.run(
        [sys.executable, str(SUPPORT / "save_trials.py"), str(run.folder), mode, str(stride), *options],
        env=bench.env | {"LD_PRELOAD": str(shim)}, capture_output=True, text=True, timeout=900,
    )  # fmt: skip
    assert result.returncode == 0, result.stderr[-3000:]
    return [json.loads(line) for line in result.stdout.splitlines()]


@pytest.mark.parametrize("thread", [(), ("beside",)], ids=["waited for", "beside steps"])
def test_kill_at_every_write_of_a_save_and_its_rotation(
    workbench: Workbench, shim: Path, account: Account, rarely: int, thread: tuple[str, ...]
) -> None:
    run = opened(workbench, workbench.profile("trials"))
    found = trials(run, workbench, shim, "kill", rarely if thread else 1, *thread)
    total = sum(not trial["half"] for trial in found)
    assert total > (30 if thread else 60), "the shim saw too few operations to have seen them all"
    assert len(found) > 1.1 * total, "and too few writes"
    assert all(trial["killed"] for trial in found)
    assert [trial for trial in found if trial["invalid"]] == []
    assert [trial for trial in found if trial["left"]] == []
    newest = [trial["valid"][0] for trial in found[:total]]
    assert set(newest) == {3, 4}
    assert newest == sorted(newest), "before the rename the old one is newest, from then on the new one"
    account.words += [f"kills while saving: {len(found)} of {len(found)} whole"]


def test_no_write_that_lies_is_certified(workbench: Workbench, shim: Path, stride: int, account: Account) -> None:
    """Half of it, zeros, or one other bit, once or for good, in any file: it is written again, or the save fails."""
    run = opened(workbench, workbench.profile("lying"))
    found = trials(run, workbench, shim, "lie", stride)
    assert all(trial["struck"] for trial in found) and len({trial["operation"] for trial in found}) > 10
    assert {trial["fault"].removesuffix(" for good") for trial in found} == {"short", "zeros", "flip"}
    assert {(trial["fault"].endswith("for good"), trial["end"]) for trial in found} <= {
        (False, "saved"), (True, "DiskError"), (True, "MiswrittenError"), (True, "saved"),
    }  # fmt: skip
    assert any(trial["end"] == "MiswrittenError" for trial in found)
    assert [trial for trial in found if trial["invalid"] or trial["older_changed"] or trial["left"]] == []
    assert all(trial["repaired"] == ["saved", ""] and trial["restored"] for trial in found)
    account.words += [f"writes that lied: {len(found)}, none certified"]


ENDS = {  # of a save, by what has failed
    "ENOSPC": {"saved"}, "EDQUOT": {"saved"}, "half, ENOSPC": {"saved"}, "EINTR": {"saved"},
    "ENOSPC for good": {"saved", "full"}, "EDQUOT for good": {"saved", "full"},
    "half, ENOSPC for good": {"saved", "full"},
    "EIO": {"saved", "DiskError"}, "EIO for good": {"saved", "DiskError"}, "half, EIO": {"saved", "DiskError"},
    "EBUSY": {"saved", "DiskError"},
}  # fmt: skip
CAUSES = {
    "ENOSPC": ("the disk is full", "No space left"), "EDQUOT": ("your quota", "Disk quota exceeded"),
    "EIO": ("Input/output error",), "EBUSY": ("Device or resource busy",),
}  # fmt: skip


@pytest.mark.parametrize("thread", [(), ("beside",)], ids=["waited for", "beside steps"])
def test_every_write_of_a_save_and_its_rotation_fails(
    workbench: Workbench, shim: Path, stride: int, rarely: int, account: Account, thread: tuple[str, ...]
) -> None:
    """Once or for good, half-written or not at all: nothing older is harmed, the cause is named, and after it all goes
    on in the same process."""
    run = opened(workbench, workbench.profile("failing"))
    found = trials(run, workbench, shim, "fail", stride * rarely if thread else stride, *thread)
    assert {trial["fault"] for trial in found} == ENDS.keys()
    for trial in found:
        check(trial)
    for name in ENDS:
        ends = Counter(trial["end"] for trial in found if trial["fault"] == name)
        waited = sum(bool(trial["waits"]) for trial in found if trial["fault"] == name)
        account.words += [f"{name}: {dict(ends)}, {waited} waited for room;"]
        assert sum(trial["struck"] for trial in found if trial["fault"] == name), f"{name} struck nothing"


def check(trial: dict[str, Any]) -> None:
    name, end, words = trial["fault"], trial["end"], trial["words"]
    assert end in ENDS[name], trial
    assert (trial["invalid"], trial["left"], trial["beside"]) == ([], [], []), trial
    assert trial["older_changed"] == [], trial
    assert trial["valid"][:1] == [4] if end == "saved" else set(trial["valid"]) >= {2, 3}, trial
    causes = next((c for word, c in CAUSES.items() if word in name), ())
    for said in [*trial["waits"], *([words] if words else [])]:
        assert any(cause.lower() in said.lower() for cause in causes), trial
    assert end == "saved" or trial["waits"] or words, "no cause is named"
    assert trial["repaired"] == ["saved", ""], trial
    assert trial["restored"], trial
    assert trial["damaged_records"] == 0, trial


@pytest.mark.parametrize("method", ["lora", "full"])
def test_no_pickle_is_written_or_read(workbench: Workbench, zygote: Zygote, tmp_path: Path, method: str) -> None:
    run, seen = opened(workbench, workbench.profile("audited", method=method)), tmp_path / "seen"
    assert zygote.start(run, workbench.env, hooks={"kill": ["optimizer", 7]}).wait() == -9
    assert zygote.start(run, workbench.env, attempt=2, hooks={"audit_pickle": [str(seen)]}).wait() == 0, tail_of(run)
    lines = seen.read_text().splitlines()
    assert lines[0] == "pickle.find_class", "the hook sees one that is meant to be seen"
    assert set(lines[1:]) == {"save", "resume"}
    files = [p.name for folder in (run.checkpoints, run.final) for p in folder.rglob("*") if p.is_file()]
    assert files
    assert {Path(name).suffix for name in files} <= {".safetensors", ".json", ".jinja", ".md"}
