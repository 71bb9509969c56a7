"""Where a result is to go, as other tools say it."""

import tomllib
from pathlib import Path

import pytest

from ftui.importers import import_file

AXOLOTL = "base_model: Qwen/Qwen2.5-0.5B\ndatasets: [{path: tatsu-lab/alpaca, type: alpaca}]\nmicro_batch_size: 1\n"
TRL = "model_name_or_path: Qwen/Qwen2.5-0.5B\ndataset_name: trl-lib/Capybara\nuse_peft: true\nlora_r: 8\n"
FACTORY = "model_name_or_path: Qwen/Qwen2.5-0.5B\nstage: sft\nfinetuning_type: lora\ndataset: alpaca\ntemplate: qwen\n"


@pytest.mark.parametrize(
    ("base", "keys", "push"),
    [
        (AXOLOTL, "hub_model_id: me/mine", {"to": "hub:me/mine"}),
        (AXOLOTL, "hub_model_id: me/mine\nhub_private_repo: true", {"to": "hub:me/mine", "private": True}),
        (TRL, "push_to_hub: true\nhub_model_id: me/mine", {"to": "hub:me/mine"}),
        (TRL, "push_to_hub: true\nhub_model_id: me/mine\nhub_private_repo: false",
         {"to": "hub:me/mine", "private": False}),
        (TRL, "push_to_hub: false\nhub_model_id: me/mine\nhub_private_repo: false", None),
        (TRL, "push_to_hub: true\nhub_model_id: mine", None),
        (TRL, "push_to_hub: true", None),
        (FACTORY, "push_to_hub: true\nhub_model_id: me/mine", {"to": "hub:me/mine"}),
        (FACTORY, "export_hub_model_id: me/mine", None),
    ],
)  # fmt: skip
def test_where_a_result_is_pushed(base: str, keys: str, push: dict[str, object] | None, tmp_path: Path) -> None:
    path = tmp_path / "theirs.yaml"
    path.write_text(f"{base}{keys}\n")
    made = import_file(path, tmp_path)
    assert not made.refused and tomllib.loads(made.text).get("push") == push
    assert push is not None or all("push" in one.reason for one in made.dropped if one.foreign[:3] == "hub")
