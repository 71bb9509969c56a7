"""`ftui import`: what a file means by its columns, by null, by a builder, by a reference, is what the profile says."""

import tomllib
from pathlib import Path
from typing import Any

import pytest

from ftui.importers import Imported, import_file
from tests.support.imports import settled

LLAMAFACTORY = "model_name_or_path: m/m\nfinetuning_type: lora\ndataset: o/rows\n"
AXOLOTL = "base_model: m/m\ndatasets: [{path: o/rows}]\n"
ENTRY = "base_model: m/m\ndatasets:\n- path: o/rows\n"
TORCHTUNE = "model: {_component_: torchtune.models.llama3.lora_llama3_8b}\ncheckpointer: {checkpoint_dir: m/m}\n"
TRL = "model_name_or_path: m/m\nuse_peft: true\ndataset_name: o/rows\n"


def reasons(done: Imported) -> dict[str, str]:
    return {one.foreign: one.reason for one in done.dropped}


@pytest.mark.parametrize(
    ("text", "source"),
    [
        (ENTRY + "  type: {field_instruction: question, field_input: more, field_output: answer, field_system: sys}",
         {"format": "alpaca",
          "columns": {"instruction": "question", "input": "more", "output": "answer", "system": "sys"}}),
        (ENTRY + "  type: {field_instruction: instruction, field_output: answer}",
         {"format": "alpaca", "columns": {"output": "answer"}}),
        (ENTRY + "  type: chat_template\n  field_messages: dialog\n  field_tools: functions",
         {"format": "messages", "columns": {"messages": "dialog", "tools": "functions"}}),
        (ENTRY + "  type: chat_template\n  message_property_mappings: {role: speaker, content: utterance}",
         {"format": "messages", "columns": {"role": "speaker", "content": "utterance"}}),
        (ENTRY + "  type: chat_template\n  message_field_role: who\n  message_field_content: what",
         {"format": "messages", "columns": {"role": "who", "content": "what"}}),
        (ENTRY + "  type: chat_template\n  field_messages: conversations\n"
         "  message_property_mappings: {role: from, content: value}",
         {"format": "sharegpt"}),
        (ENTRY + "  type: chat_template\n  roles: {user: [customer, user], assistant: [bot], system: [system]}",
         {"format": "messages", "roles": {"customer": "user", "bot": "assistant"}}),
        (ENTRY + "  type: sharegpt\n  roles: {user: [human], assistant: [gpt, bard]}",
         {"format": "sharegpt", "roles": {"bard": "assistant"}}),
        (ENTRY + "  type: completion\n  field: body", {"format": "text", "columns": {"text": "body"}}),
        (ENTRY.replace("datasets", "pretraining_dataset") + "  text_column: body",
         {"format": "text", "columns": {"text": "body"}}),
        (TORCHTUNE + "dataset: {_component_: torchtune.datasets.chat_dataset, source: o/rows,"
         " conversation_column: talk, conversation_style: sharegpt}",
         {"format": "sharegpt", "columns": {"conversations": "talk"}}),
        (TORCHTUNE + "dataset: {_component_: torchtune.datasets.chat_dataset, source: o/rows,"
         " conversation_column: talk, conversation_style: openai, split: full}",
         {"format": "messages", "columns": {"messages": "talk"}, "split": "full"}),
        (TORCHTUNE + "dataset: {_component_: torchtune.datasets.instruct_dataset, source: o/rows,"
         " column_map: {input: question, output: reply}}",
         {"format": "question_answer", "columns": {"answer": "reply"}}),
        (TORCHTUNE + "dataset: {_component_: torchtune.datasets.instruct_dataset, source: o/rows}",
         {"format": "question_answer", "columns": {"question": "input", "answer": "output"}}),
        (TORCHTUNE + "dataset: {_component_: torchtune.datasets.alpaca_dataset, source: o/rows,"
         " column_map: {output: reply}}", {"format": "alpaca", "columns": {"output": "reply"}}),
        (TORCHTUNE + "dataset: {_component_: torchtune.datasets.text_completion_dataset, source: o/rows, column: body}",
         {"format": "text", "columns": {"text": "body"}}),
    ],
)  # fmt: skip
def test_columns_and_speakers_of_other_names_are_carried(text: str, source: dict[str, Any], tmp_path: Path) -> None:
    path = tmp_path / "a.yaml"
    path.write_text(text + "\n")
    done = import_file(path, tmp_path)
    settled(done, path)
    found = tomllib.loads(done.text)["data"]["train"]
    assert found == [{"path": "o/rows"} | source]
    assert not [one for one in done.dropped if one.matters and not one.foreign.endswith("prompt template")]
    if "field_instruction" in text:  # its words are those of `format`, not Alpaca's
        assert "chat_template" not in tomllib.loads(done.text)["data"]


def test_the_column_of_text_that_trl_names(tmp_path: Path) -> None:
    path = tmp_path / "a.yaml"
    path.write_text(TRL + "dataset_text_field: body\n")
    data = tomllib.loads(import_file(path, tmp_path).text)["data"]
    assert data["columns"] == {"text": "body"} and data["format"] == "text"


UNCUT = {
    "trl": TRL + "max_length: null\n",
    "torchtune": TORCHTUNE + "tokenizer: {max_seq_len: null}\ndataset: {_component_: x.chat_dataset, source: o/rows}\n",
    "torchtune, unsaid": TORCHTUNE + "dataset: {_component_: x.chat_dataset, source: o/rows}\n",
}


@pytest.mark.parametrize("text", UNCUT.values(), ids=UNCUT)
@pytest.mark.parametrize("kind", ["folder", "known", "unknown"])
def test_rows_that_are_not_cut_there_are_not_cut_in_silence(text: str, kind: str, tmp_path: Path) -> None:
    name = {"folder": "./base", "known": "Qwen/Qwen3-8B", "unknown": "m/m"}[kind]
    (tmp_path / "base").mkdir()
    (tmp_path / "base" / "config.json").write_text('{"max_position_embeddings": 2222}')
    path = tmp_path / "a.yaml"
    path.write_text(text.replace("m/m", name))
    done = import_file(path, tmp_path)
    settled(done, path)
    length = tomllib.loads(done.text)["data"].get("max_length")
    told = [one.foreign for one in done.dropped if one.matters and "cut" in one.reason]
    if kind == "unknown":
        assert told or [one for one in done.unsaid if "data.max_length" in one and "cut" in one]
    else:
        assert length == {"folder": 2222, "known": 40960}[kind] and not told
    path.write_text(text.replace("m/m", name).replace("null", "77"))
    assert "null" not in text or tomllib.loads(import_file(path, tmp_path).text)["data"]["max_length"] == 77


def test_no_limit_is_none(tmp_path: Path) -> None:
    path = tmp_path / "a.yaml"
    for start in (TRL, LLAMAFACTORY):
        path.write_text(start + "max_grad_norm: null\n")
        assert tomllib.loads(import_file(path, tmp_path).text)["train"]["max_grad_norm"] == "none"


@pytest.mark.parametrize("more", ["", ", train_on_input: true", ", train_on_input: false"])
@pytest.mark.parametrize("builder", ["alpaca_dataset", "alpaca_cleaned_dataset", "slimorca_dataset", "chat_dataset"])
def test_what_torchtunes_builders_train_on(builder: str, more: str, tmp_path: Path) -> None:
    """Its Alpaca builders train on the prompt too where nothing is said, and write Alpaca's words; no other does."""
    path = tmp_path / "a.yaml"
    path.write_text(f"{TORCHTUNE}dataset: {{_component_: torchtune.datasets.{builder}, source: o/rows{more}}}\n")
    done = import_file(path, tmp_path)
    everything = "true" in more or (not more and builder.startswith("alpaca"))
    assert (tomllib.loads(done.text)["data"].get("loss_on", "assistant") == "everything") == everything
    told = [one for one in done.dropped if one.matters and "Alpaca's words" in one.reason]
    assert bool(told) == builder.startswith("alpaca")


# The arguments of unsloth-cli.py (2024 to 2026).
UNSLOTH = """--model_name m/m --max_seq_length 8192 --dtype bfloat16 --load_in_4bit --dataset o/rows --r 64
--lora_alpha 32
--lora_dropout 0.1 --bias none --use_gradient_checkpointing unsloth --random_state 7 --use_rslora --loftq_config 0
--per_device_train_batch_size 4 --per_device_eval_batch_size 4 --gradient_accumulation_steps 8 --warmup_steps 5
--max_steps 400 --learning_rate 2e-6 --optim adamw_8bit --weight_decay 0.005 --lr_scheduler_type linear --seed 7
--packing --report_to tensorboard --logging_steps 1 --eval_steps 5 --output_dir outputs --save_model
--save_method merged_16bit --save_gguf --save_path model --quantization f16 q4_k_m --push_model --push_gguf
--hub_path a/b --hub_token abc"""


def test_every_argument_of_unsloths_command_is_known(tmp_path: Path) -> None:
    path = tmp_path / "train.sh"
    path.write_text("python unsloth-cli.py " + UNSLOTH.replace("\n", " ") + "\n")
    done = import_file(path, tmp_path)
    settled(done, path)
    made = tomllib.loads(done.text)["adapter"]
    assert (made["method"], made["r"], made["lora_alpha"], made["bias"]) == ("qlora", 64, 32, "none")
    assert not [one for one in done.dropped if one.matters], "the scale of an adapter is r and lora_alpha together"


@pytest.mark.parametrize("key", ["save_model", "trainer", "batch", "model_dir", "warm", "loss"])
def test_only_what_is_very_like_a_key_is_said_to_be_meant(key: str, tmp_path: Path) -> None:
    path = tmp_path / "a.yaml"
    path.write_text(f"{LLAMAFACTORY}{key}: 1\n")
    assert "did you mean" not in reasons(import_file(path, tmp_path))[key]


@pytest.mark.parametrize(
    ("start", "line", "key"),
    [
        (AXOLOTL, "lr_scheduler: one_cycle", "lr_scheduler_type"), (AXOLOTL, "optimizer: came_pytorch", "optim"),
        (LLAMAFACTORY, "lr_scheduler_type: one_cycle", "lr_scheduler_type"), (LLAMAFACTORY, "optim: galore", "optim"),
        (TRL, "lr_scheduler_type: one_cycle", "lr_scheduler_type"), (TRL, "learning_rate: x", "learning_rate"),
        (TORCHTUNE + "dataset: {_component_: x.chat_dataset, source: o/rows}\n",
         "lr_scheduler: {_component_: x.get_rex_scheduler}", "lr_scheduler_type"),
    ],
)  # fmt: skip
def test_a_default_in_place_of_what_stands_there_says_so(start: str, line: str, key: str, tmp_path: Path) -> None:
    path = tmp_path / "a.yaml"
    path.write_text(f"{start}{line}\n")
    written = next(one for one in import_file(path, tmp_path).text.split("\n") if one.startswith(f"{key} = "))
    assert "which ftui does not have" in written and line.split(":")[0] in written


@pytest.mark.parametrize(
    ("key", "words"),
    [
        ("output_dir: x", "a folder of its own"), ("resume_from_checkpoint: true", "ftui resume"),
        ("save_adapter_weights_only: true", "the adapter alone"), ("optimizer_in_bwd: true", "after the backward pass"),
        ("log_level: INFO", "recorded"),
        ("tokenizer: {prompt_template: x.Y}", "data.chat_template"),
    ],
)  # fmt: skip
def test_the_reasons_for_torchtunes_keys_are_their_own(key: str, words: str, tmp_path: Path) -> None:
    path = tmp_path / "a.yaml"
    path.write_text(f"{TORCHTUNE}dataset: {{_component_: x.chat_dataset, source: o/rows}}\n{key}\n")
    told = reasons(import_file(path, tmp_path))
    assert words in next(
        reason for name, reason in told.items() if name.split(".")[0] == key.split(":")[0].split(".")[0]
    )
    assert "counts it" not in str(told)


def test_another_key_that_is_referred_to_is_put_in(tmp_path: Path) -> None:
    path = tmp_path / "a.yaml"
    path.write_text(
        "output_dir: ${root}/x\nroot: /data\nmodel: {_component_: torchtune.models.llama3.lora_llama3_8b}\n"
        "checkpointer: {checkpoint_dir: '${root}/base', output_dir: '${output_dir}'}\nepochs: ${number}\nnumber: 2\n"
        "dataset: {_component_: x.chat_dataset, source: o/rows}\nseed: ${seed}\nbatch_size: ${nobody}\n"
    )
    done = import_file(path, tmp_path)
    settled(done, path)
    made = tomllib.loads(done.text)
    assert made["model"]["name_or_path"] == "/data/base" and made["train"]["num_train_epochs"] == 2.0
    assert {one.foreign for one in done.dropped if one.matters} == {"seed", "batch_size"}
    assert "own" in reasons(done)["checkpointer.output_dir"]


@pytest.mark.parametrize(
    ("text", "expected", "dropped"),
    [
        (LLAMAFACTORY + "val_size: 0.1\npredict_with_generate: true\nmax_new_tokens: 256\n"
         "metric_for_best_model: eval_rouge-l",
         {"generate": True, "generate_max_new_tokens": 256, "metric_for_best_model": "rouge_l"}, ""),
        (LLAMAFACTORY + "val_size: 0.1\nmax_new_tokens: 256", {"generate_max_new_tokens": None}, "nothing is answered"),
        (LLAMAFACTORY + "predict_with_generate: true", {"generate": None}, "needs evaluations"),
        (LLAMAFACTORY + "stage: dpo\nval_size: 0.1\npredict_with_generate: true", {"generate": None}, "stage dpo"),
        (AXOLOTL + "val_set_size: 0.1\ndo_causal_lm_eval: true\neval_max_new_tokens: 99",
         {"generate": True, "generate_max_new_tokens": 99}, ""),
    ],
)  # fmt: skip
def test_answers_at_evaluations_are_carried(text: str, expected: Any, dropped: str, tmp_path: Path) -> None:
    path = tmp_path / "a.yaml"
    path.write_text(text + "\n")
    done = import_file(path, tmp_path)
    settled(done, path)
    section = tomllib.loads(done.text).get("eval", {})
    assert {key: section.get(key) for key in expected} == expected
    assert dropped in " ".join(reasons(done).values())
