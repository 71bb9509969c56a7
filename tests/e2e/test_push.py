"""`ftui push` and `[push]` as people use them, on what a real run has trained."""

import json
import sys
from pathlib import Path

import pytest
from peft import PeftConfig

from tests.support.bench import Workbench
from tests.support.loopback_hub import TOKEN, loopback_hub


@pytest.mark.slow
def test_a_run_is_pushed_when_it_has_finished_and_again_on_request(workbench: Workbench) -> None:
    volume = workbench.folder / "volume" / "mine"
    profile = str(workbench.profile("mine"))
    command = f"command:{sys.executable} -c 'import sys; sys.exit(7)' {{folder}}"
    refused = workbench.ftui("run", profile, "--set", f"push.to={json.dumps(command)}")
    assert refused.returncode == 30 and "--allow push-command" in refused.stderr, "a profile may come from elsewhere"
    short = ("--set", "train.max_steps=2", "--set", "eval.eval_on_start=false")
    done = workbench.ftui("run", profile, *short, "--set", f"push.to={volume}")
    assert done.returncode == 0, done.stderr
    assert f"pushed      {volume}" in done.stdout
    assert PeftConfig.from_pretrained(str(volume)).r == 4
    card = (volume / "README.md").read_text()
    assert (
        "| perplexity | " in card
        and "40 rows" in card
        and "not measured at step 0" in card
        and str(workbench.folder) not in card
    )
    assert f"pushed final to {volume}" in workbench.ftui("log", "mine").stdout
    assert f"finished · pushed to {volume}" in workbench.ftui("status", "mine").stdout

    failed = workbench.ftui("push", "mine@checkpoint-2", "--to", command)
    assert failed.returncode == 51 and "exit code 7" in failed.stderr and "Traceback" not in failed.stderr
    with loopback_hub() as hub:
        env = {
            "HF_ENDPOINT": hub.endpoint, "HF_TOKEN": TOKEN, "HF_HUB_OFFLINE": "0", "HF_HUB_DISABLE_XET": "1",
        }  # fmt: skip
        pushed = workbench.ftui("push", "mine", "--to", "hub:us/mine", cwd=None, **env)
        assert pushed.returncode == 0, pushed.stderr
        held = hub.repositories["us/mine"]
        assert held.private and f"commit    {held.sha}" in pushed.stdout
        weights = Path(volume, "adapter_model.safetensors").read_bytes()
        assert held.files["adapter_model.safetensors"] == weights and TOKEN not in pushed.stdout
