"""`ftui import` of shell scripts: variables, the GPUs that they name, and the files that they train with."""

import tomllib
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ftui.errors import ProfileError
from ftui.importers import import_file
from tests.support.examples import examples
from tests.support.imports import settled

REST = " --dataset_name o/rows --use_peft --output_dir out"


def made_of(
    text: str, tmp_path: Path, name: str = "train.sh"
) -> tuple[dict[str, Any], dict[str, str], tuple[str, ...]]:
    """The profile, why what matters is lost, and what is missing."""
    path = tmp_path / name
    path.write_text(text)
    done = import_file(path, tmp_path)
    settled(done, path)
    assert "$" not in tomllib.loads(done.text).get("model", {}).get("name_or_path", "")
    return tomllib.loads(done.text), {one.foreign: one.reason for one in done.dropped if one.matters}, done.missing


@pytest.mark.parametrize(
    "start",
    [
        "MODEL=m/m\n",
        'export MODEL="m/m"\n',
        "OWNER=m; MODEL=${OWNER}/m\n",
        "MODEL=${MODEL:-m/m}\n",
        ": ${MODEL:=m/m}\n",
        "MODEL='m/m'  # which one's it\n",
        "declare MODEL=m/m && cd src\n",
        "if true; then\n  MODEL=m/m\nfi\nMODEL=m/m\n",
        "function go() {\nlocal MODEL=m/m\n",
    ],
)
@pytest.mark.parametrize("use", ["$MODEL", '"${MODEL}"', "=$MODEL", '="$MODEL"', "${MODEL:-other/one}"])
def test_variables_that_a_script_sets_are_put_in(start: str, use: str, tmp_path: Path) -> None:
    gap = "" if use[0] == "=" else " "
    command = f'python sft.py \\\n  --model_name_or_path{gap}{use} \\\n  --learning_rate 1e-4 {REST} "$@"\necho done\n'
    made, lost, missing = made_of(start + command, tmp_path)
    assert made["model"]["name_or_path"] == "m/m" and made["train"]["learning_rate"] == 1e-4
    assert not lost and not missing


@pytest.mark.parametrize(
    ("start", "use"),
    [
        ("", "$MODEL"), ("", '"${MODEL}"'), ("", "$1"), ("", "$(cat name.txt)"), ("", '"$(cat name.txt)"'),
        ("", "`cat name.txt`"), ("MODEL=$(cat name.txt)\n", "$MODEL"), ("MODEL=$1\n", "$MODEL/x"),
        ("MODEL=m/m.gguf\n", "${MODEL%.gguf}"), ("if [ -n \"$1\" ]; then MODEL=a/b; fi\n", "$MODEL"),
        ("for MODEL in a/b c/d; do\n", "$MODEL"),
    ],
)  # fmt: skip
def test_what_the_script_does_not_say_is_missing_and_told(start: str, use: str, tmp_path: Path) -> None:
    made, lost, missing = made_of(f"{start}trl sft --model_name_or_path {use} --learning_rate 1e-4 {REST}\n", tmp_path)
    assert "name_or_path" not in made.get("model", {}) and made["train"]["learning_rate"] == 1e-4
    assert [one for one in missing if one.startswith("model.name_or_path")]
    assert "does not say" in lost["model_name_or_path"]


def test_lists_of_arguments_and_several_in_one(tmp_path: Path) -> None:
    text = (
        "ARGS=(\n  --model_name_or_path m/m  # the base\n  --learning_rate 1e-4\n)\nARGS+=(--lora_r 4)\n"
        'MORE="--lora_alpha 8 --seed 7"\nTARGETS="q_proj v_proj"\nNAME=\'a $1 b\'\n'
        f'trl sft "${{ARGS[@]}}" $MORE --lora_target_modules $TARGETS --run_name "$NAME" {REST} $EXTRA\n'
    )
    made, lost, _ = made_of(text, tmp_path)
    assert made["adapter"]["r"] == 4 and made["adapter"]["lora_alpha"] == 8
    assert made["train"]["learning_rate"] == 1e-4 and made["train"]["seed"] == 7
    assert made["adapter"]["target_modules"] == ["q_proj", "v_proj"]
    assert lost.keys() == {'"$EXTRA"'}


TRL = "--model_name_or_path m/m" + REST
FACTORY = "--model_name_or_path m/m --finetuning_type lora --stage sft --dataset o/rows --do_train"


@pytest.mark.parametrize(
    ("command", "number", "lost"),
    [
        (f"CUDA_VISIBLE_DEVICES=0,1 python sft.py {TRL}", 2, ""),
        (f"export CUDA_VISIBLE_DEVICES=2,3,5\ntrl sft {TRL}", 3, ""),
        (f"CUDA_VISIBLE_DEVICES=0 llamafactory-cli train {FACTORY}", None, ""),
        (f"FORCE_TORCHRUN=1 NPROC_PER_NODE=4 llamafactory-cli train {FACTORY}", 4, ""),
        (f"N=8; FORCE_TORCHRUN=1 NPROC_PER_NODE=$N llamafactory-cli train {FACTORY}", 8, ""),
        (f"FORCE_TORCHRUN=1 llamafactory-cli train {FACTORY}", None, "launcher.FORCE_TORCHRUN"),
        (f"CUDA_VISIBLE_DEVICES=$GPUS llamafactory-cli train {FACTORY}", None, "launcher.CUDA_VISIBLE_DEVICES"),
        (f"NNODES=2 FORCE_TORCHRUN=1 NPROC_PER_NODE=4 llamafactory-cli train {FACTORY}", 8, ""),
        (f"torchrun --nnodes 2 --nproc_per_node 4 sft.py {TRL}", 8, ""),
        (f"torchrun --nproc_per_node gpu sft.py {TRL}", None, "launcher.nproc_per_node"),
        (f"deepspeed --include localhost:0,1,2 sft.py {TRL}", 3, ""),
        (f"CUDA_VISIBLE_DEVICES=0,1,2,3 accelerate launch --num_processes 2 sft.py {TRL}", 2, ""),
    ],
)  # fmt: skip
def test_on_how_many_gpus_is_carried_or_told(command: str, number: int | None, lost: str, tmp_path: Path) -> None:
    """The rows of a step are theirs times as many: never in silence."""
    made, told, _ = made_of(command + "\n", tmp_path)
    assert made.get("hardware", {}).get("num_processes") == number
    assert list(told) == ([lost] if lost else [])


AXOLOTL = "base_model: m/m\ndatasets: [{path: o/rows, type: alpaca}]\nadapter: lora\nlora_r: 4\nlearning_rate: 0.1\n"
TUNE = (
    "model: {_component_: torchtune.models.llama3.lora_llama3_8b}\noptimizer: {_component_: torch.optim.AdamW, lr: 1}\n"
)


@pytest.mark.parametrize(
    ("command", "name", "text", "rate"),
    [
        ("axolotl train x.yml --learning-rate 1e-4", "x.yml", AXOLOTL, 1e-4),
        ("axolotl preprocess x.yml\naxolotl train x.yml", "x.yml", AXOLOTL, 0.1),
        ("accelerate launch -m axolotl.cli.train x.yml --learning_rate=1e-4", "x.yml", AXOLOTL, 1e-4),
        ("CFG=conf/x.yml\naxolotl train $CFG --learning-rate 1e-4", "conf/x.yml", AXOLOTL, 1e-4),
        ("trl sft --config x.yaml --learning_rate 1e-4", "x.yaml", "model_name_or_path: m/m\nuse_peft: true\n", 1e-4),
        ("llamafactory-cli train x.yaml learning_rate=1e-4", "x.yaml",
         "model_name_or_path: m/m\nfinetuning_type: lora\nlearning_rate: 0.1\n", 1e-4),
        ("tune run --nproc_per_node 2 lora_finetune_distributed --config x.yaml optimizer.lr=1e-4", "x.yaml", TUNE,
         1e-4),
    ],
)  # fmt: skip
def test_the_file_that_a_script_trains_with_is_read_with_its_changes(
    command: str, name: str, text: str, rate: float, tmp_path: Path
) -> None:
    with pytest.raises(ProfileError, match="trains with"):
        made_of(command, tmp_path)
    (tmp_path / name).parent.mkdir(exist_ok=True)
    (tmp_path / name).write_text(text)
    made, lost, _ = made_of(command, tmp_path)
    assert made["train"]["learning_rate"] == rate and not lost
    assert made["adapter"]["method"] == "lora"


@pytest.mark.parametrize("name", ["train.py", "train.ipynb"])
def test_programs_are_told_to_be_neither_run_nor_read(name: str, tmp_path: Path) -> None:
    with pytest.raises(ProfileError, match="neither run nor read") as failed:
        made_of("import torch\nmodel = {'lr': 1}\n", tmp_path, name)
    assert "YAML or JSON" in failed.value.hint


@pytest.mark.parametrize("number", ["7" * 5000, "0" + "7" * 5000, "0x" + "f" * 5000, "0b" + "1" * 20_000, "1e400"])
@pytest.mark.parametrize("key", ["some_key", "learning_rate", "per_device_train_batch_size"])
def test_a_number_of_thousands_of_digits_is_told_like_any_other_value(key: str, number: str, tmp_path: Path) -> None:
    """Python does not write it, whichever way it is written."""
    command = f"python sft.py --model_name_or_path m/m --{key} {number}{REST}\n"
    _, lost, _ = made_of(command, tmp_path)
    assert lost[key]


PIECES = st.sampled_from(
    [*"$\"'`#\\;(){}=\n -", "--model_name_or_path ", "--stage sft ", "$MODEL", "${MODEL}", "MODEL=m/m\n", "${X:-a}",
     "A=(", "$@", "${A[@]}", "--finetuning_type lora ", "\\\n", "llamafactory-cli train ", "x.yaml ", "lr=1 ",
     "torchrun --nproc_per_node 2 ", "CUDA_VISIBLE_DEVICES=0,1 ", "if true; then ", "fi\n", "export ", "$(pwd)",
     "--dataset o/rows ", "${A#b}", "--a.b 1 "]
)  # fmt: skip


@settings(max_examples=examples(150))
@given(pieces=st.lists(PIECES, max_size=24))
def test_no_script_breaks_it(pieces: list[str], tmp_path_factory: pytest.TempPathFactory) -> None:
    folder = tmp_path_factory.mktemp("scripts")
    path = folder / "a.sh"
    path.write_text("".join(pieces))
    try:
        done = import_file(path, folder)
    except ProfileError as error:
        assert str(path) in error.message
        return
    settled(done, path)
    tomllib.loads(done.text)
