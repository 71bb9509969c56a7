"""ZeRO and FSDP in the files of other tools: what of them a profile says, and what it does not."""

import json
import re
import tomllib
from pathlib import Path
from typing import Any

import pytest
import yaml

from ftui.importers.convert import import_file
from ftui.importers.draft import Imported

ROOT = Path(__file__).parents[3]
TRL: dict[str, Any] = {
    "model_name_or_path": "m/m", "dataset_name": "o/rows", "use_peft": True, "gradient_checkpointing": True,
}  # fmt: skip
FULL = {name: value for name, value in TRL.items() if name != "use_peft"}


def imported(tmp_path: Path, tree: dict[str, Any], name: str = "theirs.yaml") -> tuple[Imported, dict[str, Any]]:
    path = tmp_path / name
    path.write_text(json.dumps(tree) if name.endswith(".json") else yaml.safe_dump(tree))
    done = import_file(path, tmp_path)
    return done, tomllib.loads(done.text).get("hardware", {})


def table_of_docs() -> list[tuple[str, str, str]]:
    """The rows of the table in docs/scale.md: whose file, what it says, what the profile says."""
    page = (ROOT / "docs" / "scale.md").read_text()
    body = page.partition("## Files of DeepSpeed and FSDP")[2].partition("\n## ")[0]
    rows = re.findall(r"^\| ([^|`]+) \| `([^|]+)` \| ([^|]+) \|$", body, re.MULTILINE)
    assert len(rows) > 15
    return rows


def nested(theirs: str) -> dict[str, Any]:
    """`a.b = 1, c = x` as tables."""
    tree: dict[str, Any] = {}
    for part in theirs.split("`, `"):
        name, _, value = part.partition(" = ")
        *tables, last = name.split(".")
        table = tree
        for step in tables:
            table = table.setdefault(step, {})
        table[last] = yaml.safe_load(value)
    return tree


@pytest.mark.parametrize(("whose", "theirs", "ours"), table_of_docs())
def test_the_table_of_the_docs_is_what_the_import_does(whose: str, theirs: str, ours: str, tmp_path: Path) -> None:
    tree = nested(theirs)
    base = TRL if whose.startswith("trainers") else {"distributed_type": "NO"} if whose == "accelerate" else {}
    done, _ = imported(tmp_path, {**base, **tree}, "ds.json" if whose == "DeepSpeed" else "theirs.yaml")
    made = tomllib.loads(done.text)
    said = re.findall(r"`(\w+)\.(\w+) = ([^`]+)`", ours)
    for section, key, value in said:
        assert made[section][key] == tomllib.loads(f"x = {value}")["x"], done.dropped
    if not said:
        assert "hardware" not in made or made["hardware"].keys() <= {"num_processes"}
        reasons = {one.reason.lower() for one in done.dropped if one.matters == ours.startswith("told: ")}
        words = ours.removeprefix("told: ").removeprefix("not needed: ").lower()
        assert any(words in reason for reason in reasons), reasons


@pytest.mark.parametrize(
    ("tree", "hardware"),
    [
        ({**TRL, "deepspeed": {"zero_optimization": {"stage": 2}}}, {}),
        ({**TRL, "deepspeed": {"zero_optimization": {"stage": 0, "offload_param": {"device": "nvme"}}}},
         {"offload": ["base"]}),
        ({**TRL, "fsdp": "full_shard auto_wrap", "num_processes": 4}, {"shard": "all", "num_processes": 4}),
        (
            {**TRL, "fsdp": ["full_shard", "offload"], "num_processes": 4},
            {"shard": "all", "num_processes": 4, "offload": ["state"]},
        ),
        ({**TRL, "fsdp": "no_shard offload"}, {"offload": ["base", "state"]}),
        ({**TRL, "deepspeed": "examples/deepspeed/ds_z3_config.json", "num_processes": 2},
         {"shard": "all", "num_processes": 2}),
        ({**TRL, "deepspeed": "mine.json", "num_processes": 2}, {"num_processes": 2}),
        ({**TRL, "deepspeed": "mine.json", "fsdp_config": {"reshard_after_forward": "FULL_SHARD"}},
         {"shard": "all", "num_processes": 2}),
        ({"distributed_type": "FSDP", "num_processes": 8, "fsdp_config": {"fsdp_version": 2}},
         {"shard": "all", "num_processes": 8}),
        ({"base_model": "m/m", "adapter": "lora", "datasets": [{"path": "o/rows"}], "fsdp_version": 2},
         {"shard": "all", "num_processes": 2}),
        ({"base_model": "m/m", "adapter": "lora", "datasets": [{"path": "o/rows"}],
          "deepspeed": "deepspeed_configs/zero1.json"}, {}),
        ({**TRL, "fsdp": []}, {}),  # as transformers writes down that it is off
        ({**TRL, "deepspeed": "a" * 300 + ".json"}, {}),
        ({**TRL, "deepspeed": "examples/deepspeed/ds_z2_offload_config.json"}, {"offload": ["state"]}),
        ({"base_model": "m/m", "adapter": "lora", "datasets": [{"path": "o/rows"}], "layer_offloading": True},
         {"offload": ["base"]}),
        ({"base_model": "m/m", "adapter": "lora", "datasets": [{"path": "o/rows"}], "layer_offloading": False}, {}),
    ],
)  # fmt: skip
def test_what_the_profile_says_of_several_gpus(tree: dict[str, Any], hardware: dict[str, Any], tmp_path: Path) -> None:
    """An adapter has little optimizer state to divide, and nothing is offloaded beside what is divided."""
    _, made = imported(tmp_path, tree)
    made = {name: made[name] for name in made if name in ("shard", "offload", "num_processes")}
    if isinstance(made.get("offload"), str):
        made["offload"] = [made["offload"]]
    assert made == hardware


@pytest.mark.parametrize(
    ("machines", "size"), [({"num_machines": 2, "num_processes": 8}, 4), ({"num_processes": 8}, None),
                           ({"num_machines": 2, "num_processes": 2}, None)],
)  # fmt: skip
def test_hybrid_shard_is_that_of_a_machine(machines: dict[str, Any], size: int | None, tmp_path: Path) -> None:
    fsdp = {"fsdp_sharding_strategy": "HYBRID_SHARD"}
    done, made = imported(tmp_path, {"distributed_type": "FSDP", "fsdp_config": fsdp, **machines})
    assert made["shard"] == "all" and made.get("dp_shard_size") == size
    assert any("HYBRID_SHARD divides within a machine" in line for line in done.unsaid) == (
        "num_machines" not in machines
    )


def test_full_fine_tuning_keeps_what_is_offloaded_of_its_state(tmp_path: Path) -> None:
    """It freezes nothing, so that no base is there to offload."""
    _, hardware = imported(tmp_path, {**FULL, "fsdp": "no_shard offload"})
    assert hardware == {"offload": ["state"]}


def test_what_is_said_by_a_part_of_a_value_is_not_lost_silently(tmp_path: Path) -> None:
    for theirs in ({"fsdp": "full_shard offload"}, {"deepspeed": "examples/deepspeed/ds_z3_offload_config.json"}):
        done, hardware = imported(tmp_path, {**FULL, **theirs})
        assert hardware["shard"] == "all" and "offload" not in hardware
        lost = [(one.foreign, one.value) for one in done.dropped if one.matters]
        assert lost == [("hardware.offload", "base"), ("hardware.offload", ["state"])]


def test_layers_offloaded_come_with_checkpointing_unless_the_file_says_none(tmp_path: Path) -> None:
    theirs = {"base_model": "m/m", "adapter": "lora", "datasets": [{"path": "o/rows"}], "layer_offloading": True}
    done, _ = imported(tmp_path, theirs)
    assert tomllib.loads(done.text)["train"]["activation_checkpointing"] is True
    done, hardware = imported(tmp_path, {**theirs, "gradient_checkpointing": False})
    assert hardware == {} and [one.foreign for one in done.dropped if one.matters] == ["layer_offloading"]


def test_a_named_file_is_read(tmp_path: Path) -> None:
    (tmp_path / "configs").mkdir()
    zero = {"zero_optimization": {"stage": 3, "overlap_comm": True, "brand_new": 1}, "bf16": {"enabled": "auto"}}
    (tmp_path / "configs" / "ds.json").write_text(json.dumps(zero))
    for tree in (
        {**TRL, "deepspeed": "configs/ds.json"},
        {"distributed_type": "DEEPSPEED", "deepspeed_config": {"deepspeed_config_file": "configs/ds.json"}},
    ):
        done, hardware = imported(tmp_path, tree)
        assert hardware["shard"] == "all"
        lost = [one.foreign.rpartition(".")[2] for one in done.dropped if one.matters]
        assert lost == ["brand_new"]
    (tmp_path / "configs" / "ds.json").write_text("{")
    done, hardware = imported(tmp_path, {**TRL, "deepspeed": "configs/ds.json"})
    assert "shard" not in hardware and [one.foreign for one in done.dropped if one.matters] == ["deepspeed"]


def test_launchers_say_it_too(tmp_path: Path) -> None:
    script = tmp_path / "train.sh"
    script.write_text(
        "accelerate launch --use_deepspeed --zero_stage 3 --num_processes 4 --zero3_init_flag true sft.py"
        " --model_name_or_path m/m --dataset_name o/rows --use_peft\n"
    )
    assert tomllib.loads(import_file(script, tmp_path).text)["hardware"] == {"shard": "all", "num_processes": 4}
    script.write_text(
        "accelerate launch --use_fsdp --fsdp_reshard_after_forward true --num_processes 4 sft.py"
        " --model_name_or_path m/m --dataset_name o/rows --use_peft\n"
    )
    assert tomllib.loads(import_file(script, tmp_path).text)["hardware"] == {"shard": "all", "num_processes": 4}


SFT = "sft.py --model_name_or_path m/m --dataset_name o/rows --use_peft\n"


@pytest.mark.parametrize(
    ("launcher", "hardware", "lost"),
    [
        ("accelerate launch --config_file acc.yaml", {"shard": "all", "num_processes": 8, "nodes": 2}, []),
        ("accelerate launch --config_file acc.yaml --num_processes 4 --num_machines 1",
         {"shard": "all", "num_processes": 4}, []),
        ("accelerate launch --config_file absent.yaml", {}, ["launcher.config_file"]),
        ("torchrun --nnodes 2 --nproc_per_node 8", {"num_processes": 16, "nodes": 2}, []),
        ("torchrun --nnodes 1 --nproc_per_node 8", {"num_processes": 8}, []),
        ("torchrun --nnodes 1:4 --nproc_per_node 8", {"num_processes": 8}, ["launcher.nnodes"]),
    ],
)  # fmt: skip
def test_the_file_of_a_launcher_is_read_and_machines_are_counted(
    launcher: str, hardware: dict[str, Any], lost: list[str], tmp_path: Path
) -> None:
    """torchrun says the processes of each machine, accelerate those of all."""
    (tmp_path / "ds.json").write_text(json.dumps({"zero_optimization": {"stage": 3}}))
    tables = {"deepspeed_config": {"deepspeed_config_file": "ds.json"}, "mixed_precision": "fp16"}
    theirs = {"distributed_type": "DEEPSPEED", "num_processes": 8, "num_machines": 2, **tables}
    (tmp_path / "acc.yaml").write_text(yaml.safe_dump(theirs))
    (tmp_path / "train.sh").write_text(f"{launcher} {SFT}")
    done = import_file(tmp_path / "train.sh", tmp_path)
    made = tomllib.loads(done.text)
    assert made.get("hardware", {}) == hardware
    assert (made["train"]["precision"] == "fp16") == ("acc.yaml" in launcher)
    assert [one.foreign for one in done.dropped if one.matters] == lost


def test_a_batch_of_all_gpus_says_how_many_there_are(tmp_path: Path) -> None:
    tree = {"train_batch_size": 64, "train_micro_batch_size_per_gpu": 2, "gradient_accumulation_steps": 4}
    _, hardware = imported(tmp_path, {**tree, "zero_optimization": {"stage": 3}}, "ds.json")
    assert hardware == {"num_processes": 8, "shard": "all"}


@pytest.mark.parametrize(
    ("theirs", "stored"),
    [
        ({**TRL, "activation_offloading": True}, True),
        ({**TRL, "activation_offloading": False}, False),
        ({**TRL, "gradient_checkpointing": "unsloth"}, True),
        ({"base_model": "m/m", "datasets": [{"path": "o/rows", "type": "alpaca"}], "adapter": "lora", "lora_r": 8,
          "activation_offloading": "legacy", "gradient_checkpointing": True}, True),
        ({"base_model": "m/m", "datasets": [{"path": "o/rows", "type": "alpaca"}], "adapter": "lora", "lora_r": 8,
          "gradient_checkpointing": "offload"}, True),
    ],
)  # fmt: skip
def test_activations_in_host_memory_are_carried(theirs: dict[str, Any], stored: bool, tmp_path: Path) -> None:
    done, _ = imported(tmp_path, theirs)
    assert tomllib.loads(done.text)["train"].get("activation_offload", False) is stored, done.dropped
    assert tomllib.loads(done.text)["train"]["activation_checkpointing"] is True
