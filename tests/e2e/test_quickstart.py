"""The first thing anybody runs, as they run it: installed, without the checkout, an empty home, no network."""

import json
import os
import re
import shutil
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]

# Never imports ftui. Recomputes from final/ what ftui printed: mean loss over the answers' tokens, and the sample.
RECOMPUTE = """
import json, sys
import torch
from peft import AutoPeftModelForCausalLM, PeftModel
from transformers import AutoTokenizer
final, rows, prompt, max_new_tokens = sys.argv[1], sys.argv[2], sys.argv[3], int(sys.argv[4])
torch.set_num_threads(1)
model = AutoPeftModelForCausalLM.from_pretrained(final).eval()
tokenizer = AutoTokenizer.from_pretrained(final)

def loss():
    total, count = 0.0, 0
    for line in open(rows):
        messages = json.loads(line)["messages"]
        before = tokenizer.apply_chat_template(messages[:-1], add_generation_prompt=True)["input_ids"]
        whole = tokenizer.apply_chat_template(messages)["input_ids"]
        assert whole[:len(before)] == before
        answer = len(whole) - len(before) - 1    # without the line break after the end of the turn
        labels = [-100] * len(before) + whole[len(before):len(before) + answer] + [-100]
        with torch.no_grad():
            out = model(input_ids=torch.tensor([whole]), labels=torch.tensor([labels]))
        total, count = total + float(out.loss) * answer, count + answer
    return total / count

def sample():
    inputs = tokenizer.apply_chat_template(
        [{"role": "user", "content": prompt}], add_generation_prompt=True, return_tensors="pt", return_dict=True)
    with torch.no_grad():
        output = model.generate(**inputs, do_sample=False, max_new_tokens=max_new_tokens)
    return tokenizer.decode(output[0, inputs["input_ids"].shape[1]:], skip_special_tokens=True).strip()

after = {"loss": loss(), "sample": sample()}
with model.disable_adapter():
    before = {"loss": loss(), "sample": sample()}
assert "ftui" not in sys.modules
print(json.dumps({"before": before, "after": after}))
"""


@dataclass(frozen=True)
class Installed:
    """ftui as its wheel installs it, in a folder of its own; the checkout it was built from is gone."""

    site: Path

    def run(self, folder: Path, *arguments: str) -> "subprocess.CompletedProcess[str]":
        """In an empty folder with an empty home, an environment of three names, and no network."""
        home = folder / "home"
        home.mkdir(parents=True)
        env = ["env", "-i", f"PYTHONPATH={self.site}", f"HOME={home}", "COLUMNS=120"]
        command = [*no_network(), *env, sys.executable, "-m", "ftui", *arguments]
        return subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=1500)


def no_network() -> list[str]:
    """A command that takes the network away, where this machine lets us."""
    unshare = shutil.which("unshare")
    if unshare and subprocess.run([unshare, "--net", "true"], capture_output=True).returncode == 0:
        return [unshare, "--net"]
    return []


@pytest.fixture(scope="session")
def installed(tmp_path_factory: pytest.TempPathFactory) -> Installed:
    folder = tmp_path_factory.mktemp("installed")
    copy, wheels, site = folder / "checkout", folder / "wheels", folder / "site"
    ignore = shutil.ignore_patterns(".git", "*.egg-info", "build", "__pycache__", ".*_cache", "runs")
    shutil.copytree(ROOT, copy, symlinks=True, ignore=ignore)
    pip = [sys.executable, "-m", "pip", "--quiet", "--disable-pip-version-check"]
    subprocess.run([*pip, "wheel", "--no-deps", "-w", wheels, copy], check=True, capture_output=True)
    shutil.rmtree(copy)
    wheel = next(wheels.glob("*.whl"))
    subprocess.run([*pip, "install", "--no-deps", "--target", site, wheel], check=True, capture_output=True)
    return Installed(site)


def final_record(run: Path) -> dict[str, float]:
    lines = [json.loads(line) for line in (run / "journal.jsonl").read_bytes().split(b"\n") if line]
    record: dict[str, float] = next(line for line in lines if line["kind"] == "run_finished")
    return record


def test_quickstart_anywhere_and_its_numbers_are_true(installed: Installed, tmp_path: Path) -> None:
    # A quarter of it, in one thread beside other tests: the whole has been run before these tests.
    short = ("--set", "train.num_train_epochs=0.5", "--set", "hardware.num_threads=1")
    result = installed.run(tmp_path / "empty", "--run", "quickstart", *short)
    assert result.returncode == 0, result.stdout + result.stderr
    run = tmp_path / "empty" / "runs" / "quickstart"
    ended = final_record(run)
    assert ended["loss_final"] < ended["loss_before"] - 0.03
    printed = re.search(r"evaluation +loss ([\d.]+) at step 0 -> ([\d.]+)", result.stdout)
    assert printed, result.stdout

    profile = (installed.site / "ftui" / "profiles" / "recipes" / "quickstart.toml").read_text()
    prompt = json.loads(re.search(r"sample_prompts = (\[.*\])", profile)[1])[0]  # type: ignore[index]
    rows = installed.site / "ftui" / "profiles" / "quickstart" / "eval.jsonl"
    env = {k: v for k, v in os.environ.items() if k != "PYTHONPATH"} | {"HF_HUB_OFFLINE": "1"}
    check = subprocess.run(
        [sys.executable, "-c", RECOMPUTE, str(run / "final"), str(rows), prompt, "64"],
        capture_output=True, text=True, env=env, cwd=tmp_path, timeout=900,
    )  # fmt: skip
    assert check.returncode == 0, check.stderr
    true = json.loads(check.stdout.splitlines()[-1])
    assert float(printed[1]) == pytest.approx(true["before"]["loss"], abs=2e-4)
    assert float(printed[2]) == pytest.approx(true["after"]["loss"], abs=2e-4)
    assert true["before"]["sample"].split()[:8] == sampled(run, 0).split()[:8]
    assert true["after"]["sample"] == sampled(run, -1)
    flat = " ".join(result.stdout.split())
    assert " ".join(true["after"]["sample"].split())[:60] in flat


def sampled(run: Path, index: int) -> str:
    lines = [json.loads(line) for line in (run / "journal.jsonl").read_bytes().split(b"\n") if line]
    return str([line["completion"] for line in lines if line["kind"] == "sampled"][index])


def test_a_learning_rate_of_zero_changes_nothing_and_says_so(installed: Installed, tmp_path: Path) -> None:
    options = ["--name", "still"]
    for setting in ("train.learning_rate=0", "train.max_steps=3", "hardware.num_threads=1"):
        options += ["--set", setting]
    result = installed.run(tmp_path / "empty", "--run", "quickstart", *options)
    assert result.returncode == 0, result.stdout + result.stderr
    run = tmp_path / "empty" / "runs" / "still"
    ended = final_record(run)
    assert ended["loss_final"] == ended["loss_before"]
    assert "unchanged: the learning rate is 0" in result.stdout
    assert sampled(run, 0) == sampled(run, -1)
