"""A whole run among traps: pickles and code beside its base model, a umask of 0, secrets in the environment."""

import os
import pickle
import stat
import subprocess
import sys
from pathlib import Path

from ftui.runs.run_folder import Run
from tests.support.bench import Workbench
from tests.support.driving import wait_until

SECRETS = {
    "HF_TOKEN": "hf_canaryCanaryCanaryCanary01", "WANDB_API_KEY": "canary-wandb-0123456789",
    "MY_PASSWORD": "a-canary-of-mine-42", "SOMETHING_ELSE": "not-even-named-a-secret-canary",
}  # fmt: skip
PICKLES = ("pytorch_model.bin", "training_args.bin", "optimizer.pt", "scheduler.pt", "rng_state.pth", "scaler.pt")
CODE = ("modeling_llama.py", "tokenization_llama.py", "conftest.py", "sitecustomize.py", "torch.py", "ftui.py")


class Trap:
    """Runs a command where somebody unpickles it."""

    def __init__(self, mark: Path) -> None:
        self.mark = mark

    def __reduce__(self) -> tuple[object, ...]:
        return os.system, (f"touch {self.mark}",)


def lay_traps(folder: Path, mark: Path) -> None:
    for name in PICKLES:
        (folder / name).write_bytes(pickle.dumps(Trap(mark)))
    for name in CODE:
        (folder / name).write_text(f"import pathlib; pathlib.Path({str(mark)!r}).touch()\n")


def command_lines(run: Run) -> str:
    """Of every process that has to do with the run."""
    found = []
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            text = path.read_bytes().replace(b"\0", b" ").decode(errors="replace")
        except OSError:
            continue
        if str(run.folder) in text:
            found.append(text)
    return "\n".join(found)


def test_nothing_is_run_told_or_left_open(workbench: Workbench) -> None:
    mark = workbench.folder / "OWNED"
    lay_traps(workbench.folder / "base", mark)
    lay_traps(workbench.folder, mark)  # the folder that the program is started in
    profile, run = workbench.profile("among-traps"), workbench.run("among-traps")
    options = ("--set", "train.num_train_epochs=2", "--set", "eval.generate=true")
    before = os.umask(0)
    try:
        process = subprocess.Popen(
            [sys.executable, "-P", "-m", "ftui", "--run", str(profile), *options], cwd=workbench.folder,
            env=workbench.env | SECRETS, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
        )  # fmt: skip
    finally:
        os.umask(before)
    wait_until(lambda: run.metrics.exists() or process.poll() is not None)
    seen = command_lines(run)
    printed, _ = process.communicate(timeout=300)
    assert process.returncode == 0, printed
    assert str(run.folder) in seen, "engine and supervisor were looked at"
    assert not mark.exists()
    made = [path for name in ("runs", "cache", "state") for path in (workbench.folder / name).rglob("*")]
    assert len(made) > 40
    assert [path for path in made if stat.S_IMODE(path.lstat().st_mode) & 0o077] == []
    assert {path.name for path in run.final.iterdir()}.isdisjoint({*PICKLES, *CODE})
    written = b"".join(path.read_bytes() for path in made if path.is_file())
    for secret in SECRETS.values():
        assert secret.encode() not in written and secret not in printed + seen
