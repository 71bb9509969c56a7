"""`ftui import`: no file breaks it, nothing of a file is dropped in silence, and no secret comes along."""

import tomllib
from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st

from ftui.cli.import_profile import import_profile
from ftui.errors import ProfileError
from ftui.importers import import_file
from ftui.importers.rules import NULL
from ftui.importers.tools import axolotl, deepspeed, guides, litgpt, llamafactory, torchtune
from ftui.importers.tools import trl as trl_keys
from ftui.profile.layers import resolve
from tests.support.examples import examples
from tests.support.imports import FILES, settled

SECRET = "hf_" + "a" * 24


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.name)
def test_no_secret_comes_along(path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    secrets = ("hf_abcdefghijklmnopqrstuvwx", "do-not-copy-me", "0123456789abcdef", "top-secret")
    import_profile(path, None, as_json=False)
    import_profile(path, None, as_json=True)
    printed = "".join(capsys.readouterr())
    assert not [secret for secret in secrets if secret in printed]


@pytest.mark.parametrize("key", ["lora_target", "gradient_checkpointing", "optim", "dataset", "run_name", "unknown"])
def test_a_secret_within_a_value_is_not_copied(key: str, tmp_path: Path) -> None:
    """Neither as a value nor in a comment or a reason that quotes it."""
    path = tmp_path / "a.yaml"
    path.write_text(f"model_name_or_path: m/m\nfinetuning_type: lora\nlora_rank: 8\n{key}: {SECRET}\n")
    done = import_file(path, tmp_path)
    assert SECRET not in done.text and SECRET not in str(done.dropped)


@pytest.mark.parametrize(
    ("text", "place"),
    [
        ("a: 1\nb: [2\nc: 3\n", ":3:"),
        ("model_name_or_path: m\nlr: 1\nstage: sft\nlr: 2\n", ":4:1: lr is given twice, first in line 2"),
        ("a: &x [*x, *x]\n", "alias of itself"),
        ("a: &a {<<: *a}\n", "merged into itself"),
        ("b0: &b0 [[1], [2]]\n" + "".join(f"b{n}: &b{n} [*b{n - 1}, *b{n - 1}]\n" for n in range(1, 30)), "more than"),
        ("? [1, 2]\n: 3\n", ":1:3: a key is a text"),
        ("a: 2024-13-45\n", ":1:4:"),
        ("- 1\n- 2\n", "has no keys"),
        ("", "has no keys"),
        ('{"a": "\\ud83d"}', ":1:7: half a character"),
        ("a: 1\n---\nb: 2\n", ":2:1:"),
        ("a: !!python/object/apply:os.system [ls]\n", ":1:4:"),
        ("knows: nothing\nof: training\n", "no shape that can be imported"),
    ],
)  # fmt: skip
def test_a_file_that_cannot_be_read_is_named_with_its_place(text: str, place: str, tmp_path: Path) -> None:
    path = tmp_path / "a.yaml"
    path.write_text(text)
    with pytest.raises(ProfileError) as failed:
        import_file(path, tmp_path)
    assert str(path) in failed.value.message and place in failed.value.message


def test_anchors_and_merged_tables(tmp_path: Path) -> None:
    path = tmp_path / "a.yaml"
    path.write_text(
        "few: &few {lora_rank: 8, lora_alpha: 16}\nlora: {<<: *few, lora_alpha: 64}\n"
        "model: {name: m/m}\ndata: {path: owner/rows}\ntraining: {lr: 1E-4, epochs: 1_0}\n"
    )
    made = tomllib.loads(import_file(path, tmp_path).text)
    assert made["train"] == {"num_train_epochs": 10.0, "learning_rate": 1e-4}
    assert made["adapter"]["r"] == 8


def test_a_shell_script(tmp_path: Path) -> None:
    path = tmp_path / "train.sh"
    path.write_text(
        "#!/bin/bash\nexport WANDB_MODE=offline  # --not this\n"
        "torchrun --nproc_per_node 2 src/train.py \\\n  --stage sft --do_train --model_name_or_path 'm/m' \\\n"
        "  --dataset owner/rows --finetuning_type lora --learning_rate=2e-4 --hub_token abc123 \\\n"
        "  --lora_target q_proj v_proj --fp16 --template llama3 2>&1 | tee log\n"
    )
    done = import_file(path, tmp_path)
    settled(done, path)
    made = tomllib.loads(done.text)
    assert done.kind == "LLaMA-Factory" and "abc123" not in done.text
    assert made["train"]["learning_rate"] == 2e-4 and made["train"]["precision"] == "fp16"
    assert made["adapter"]["target_modules"] == ["q_proj", "v_proj"] and made["data"]["train"] == "owner/rows"
    assert made["hardware"] == {"num_processes": 2}
    path.write_text("train --stage sft --stage pt")
    with pytest.raises(ProfileError, match=r"train\.sh:1: --stage is given twice"):
        import_file(path, tmp_path)


def test_a_folder_whose_name_is_no_utf8(tmp_path: Path) -> None:
    folder = tmp_path / "\udcff"  # the byte FF, as Python has it
    try:
        folder.mkdir()
    except OSError:
        pytest.skip("this file system has no such names")
    path = folder / "a.yaml"
    path.write_text("model_name_or_path: m/m\nfinetuning_type: lora\ndataset: rows.jsonl\n")
    done = import_file(path, tmp_path)
    assert [one.foreign for one in done.dropped if "no UTF-8" in one.reason] == ["dataset: rows.jsonl"]
    assert done.text.encode() and done.missing


PROGRAM = " --model_name_or_path m/m --dataset_name o/rows --use_peft --gradient_accumulation_steps 4"


@pytest.mark.parametrize(
    ("command", "num_processes", "left"),
    [
        ("accelerate launch --num_processes 2 --multi_gpu trl sft", 2, {"multi_gpu"}),
        ("accelerate launch --mixed_precision=no --gradient_accumulation_steps 8 sft.py", None,
         {"gradient_accumulation_steps"}),
        ("accelerate launch --config_file zero3.yaml --module trl.scripts.sft", None, {"config_file", "module"}),
        ("CUDA_VISIBLE_DEVICES=0,1 torchrun --standalone --nproc-per-node=2 -m trl.scripts.sft", 2,
         {"standalone", "CUDA_VISIBLE_DEVICES"}),
        ("python -m torch.distributed.run --nproc_per_node 2 --rdzv_backend c10d train.py", 2, {"rdzv_backend"}),
        ("/usr/bin/deepspeed --num_gpus 4 --master_port 1234 src/train.py --deepspeed z.json", 4, {"master_port"}),
        ("echo deepspeed\ntrl sft", None, set()),
    ],
)  # fmt: skip
def test_a_launchers_arguments_are_not_the_programs(
    command: str, num_processes: int | None, left: set[str], tmp_path: Path
) -> None:
    path = tmp_path / "train.sh"
    path.write_text(f"{command}{PROGRAM}\n")
    done = import_file(path, tmp_path)
    settled(done, path)
    made = tomllib.loads(done.text)
    assert made.get("hardware", {}).get("num_processes") == num_processes
    assert made["train"]["gradient_accumulation_steps"] == 4 and made["model"]["name_or_path"] == "m/m"
    assert {one.foreign for one in done.dropped if one.foreign.startswith("launcher.")} == {
        f"launcher.{x}" for x in left
    }


def test_characters_that_json_writes_in_halves(tmp_path: Path) -> None:
    path = tmp_path / "a.json"
    path.write_text('{"model_name_or_path": "m/m", "finetuning_type": "lora", "dataset": "\\ud83d\\ude80/x.jsonl"}')
    assert tomllib.loads(import_file(path, tmp_path).text)["data"]["train"] == "\U0001f680/x.jsonl"


EXAMPLES = 80
PIECES: list[Any] = [[], {}, ["a", "b"], [1, 2], [None], [[1]], {"a": {"b": 1}}, [{"path": "x"}]]
WORDS = ["", "auto", "none", "true", "2e-4", SECRET]
SCALARS = st.one_of(
    st.none(), st.booleans(), st.integers(-3, 5000), st.floats(), st.text(max_size=12), st.sampled_from(WORDS),
    st.sampled_from(PIECES),
)  # fmt: skip


def _mutated(tree: Any, draw: st.DrawFn) -> Any:
    """The same with some values replaced, keys renamed or left out."""
    if isinstance(tree, dict):
        made: dict[Any, Any] = {}
        for name, value in tree.items():
            fate = draw(st.integers(0, 14))
            if fate == 0:
                continue
            key = draw(st.text(max_size=6)) if fate == 1 else name
            made[key] = draw(SCALARS) if fate == 2 else _mutated(value, draw)
        return made
    if isinstance(tree, list):
        return [_mutated(one, draw) for one in tree]
    return draw(SCALARS) if draw(st.integers(0, 14)) == 0 else tree


@st.composite
def mutations(draw: st.DrawFn) -> str:
    source = draw(st.sampled_from(FILES))
    tree = yaml.safe_load(source.read_text().replace("\t", " "))
    return str(yaml.safe_dump(_mutated(tree, draw), sort_keys=False, allow_unicode=draw(st.booleans())))


TOOLS = {
    "finetuning_type: lora\n": llamafactory.RULES,
    "base_model: m/m\nsequence_len: 512\n": axolotl.RULES,
    "model_name_or_path: m/m\nuse_peft: true\n": trl_keys.RULES,
    "zero_optimization: {stage: 0}\n": deepspeed.RULES,
    "tokenizer: {_component_: x}\n": torchtune.RULES,
    "checkpoint_dir: o/m\nlora_r: 8\ntrain: {epochs: 1}\nquantize: bnb.nf4\n": litgpt.RULES,
    "model_name: m/m\nlr: 1e-4\nepochs: 1\n": guides.RULES,
}
LIKELY = st.sampled_from(
    [1, 2, 0, -1, 0.1, 1.5, True, False, "auto", "none", "no", "steps", "epoch", "lora", "qlora", "full", "freeze", "4",
     "cosine", "adamw_torch", "a=1,b=2", "q_proj,v_proj", "all", "rows", "o/rows", "x.jinja", "bf16", "chatml", "text"]
)  # fmt: skip


@st.composite
def keys_of_a_tool(draw: st.DrawFn) -> str:
    """Some of the keys a tool has, with values that may be right."""
    start = draw(st.sampled_from(sorted(TOOLS)))
    tree: dict[str, Any] = yaml.safe_load(start)
    names = sorted(name for name in TOOLS[start] if "*" not in name)
    for name in draw(st.lists(st.sampled_from(names), max_size=14)):
        table = tree
        *tables, last = name.lstrip(".").split(".")
        for step in tables:
            inner = table.setdefault(step.removesuffix("[]"), [{}] if step.endswith("[]") else {})
            inner = inner[0] if isinstance(inner, list) and inner else inner
            if not isinstance(inner, dict):
                break
            table = inner
        else:
            if last.endswith(NULL):
                table[last.removesuffix(NULL)] = None
            elif last not in table:
                table[last] = draw(LIKELY if draw(st.integers(0, 4)) else SCALARS)
    return str(yaml.safe_dump(tree, sort_keys=False))


@settings(max_examples=examples(EXAMPLES))
@given(text=st.one_of(mutations(), keys_of_a_tool()))
def test_whatever_stands_there_is_reported_and_never_breaks(
    text: str, tmp_path_factory: pytest.TempPathFactory
) -> None:
    folder = tmp_path_factory.mktemp("mutated")
    path, out = folder / "a.yaml", folder / "made.toml"
    path.write_text(text, encoding="utf-8")
    try:
        done = import_file(path, folder)
    except ProfileError as error:
        assert str(path) in error.message
        return
    settled(done, path)
    assert SECRET not in done.text
    out.write_text(done.text, encoding="utf-8")
    if not done.missing:
        resolve(out)
