"""GRPO of TRL and of Axolotl: what its keys become, what rewards are called here, and what is said of the rest."""

import dataclasses
import importlib
import re
import tomllib
from pathlib import Path
from typing import Any

import pytest

from ftui.importers import Imported, import_file
from ftui.importers.tools.grpo.reward_names import THINK
from ftui.profile.sections.sampled_stages import POLICY_STAGES, GrpoSection
from tests.support.imports import FIXTURES, settled
from tests.support.made_profile import checked, lost

TRL = "model_name_or_path: m/m\ndataset_name: o/prompts\nuse_peft: true\n"
AXOLOTL = (
    "base_model: m/m\nadapter: lora\nrl: grpo\nmicro_batch_size: 8\ndatasets: [{path: o/prompts}]\nval_set_size: 0\n"
)
JUDGED = "reward_funcs: [accuracy_reward]\n"


def imported(text: str, folder: Path, name: str = "train.yaml") -> Imported:
    source = folder / name
    source.write_text(text)
    return import_file(source, folder)


@pytest.mark.parametrize(
    ("keys", "grpo", "without"),
    [
        ("num_generations: 4", {"num_generations": 4}, set()),
        ("max_completion_length: 64\ntemperature: 0.7\ntop_p: 0.9\ntop_k: 50\nmin_p: 0.1\nrepetition_penalty: 1.1", {
            "max_completion_length": 64, "temperature": 0.7, "top_p": 0.9, "top_k": 50, "min_p": 0.1,
            "repetition_penalty": 1.1}, set()),
        ("top_k: -1\nmin_p: null", {"top_k": 0}, set()),
        ("beta: 0.04\nepsilon: 0.1\nepsilon_high: 0.28\ndelta: 2", {
            "beta": 0.04, "epsilon": 0.1, "epsilon_high": 0.28, "delta": 2.0}, set()),
        ("loss_type: bnpo\nimportance_sampling_level: sequence", {
            "loss_type": "bnpo", "importance_sampling_level": "sequence"}, set()),
        ("loss_type: cispo", {}, {"loss_type"}),
        ("scale_rewards: false", {"scale_rewards": "none"}, set()),
        ("scale_rewards: true", {"scale_rewards": "group"}, set()),
        ("scale_rewards: batch", {"scale_rewards": "batch"}, set()),
        ("mask_truncated_completions: true\nnum_iterations: 2\nuse_bias_correction_kl: false", {
            "mask_truncated_completions": True, "num_iterations": 2, "use_bias_correction_kl": False}, set()),
        ("use_vllm: true\nvllm_mode: server\nvllm_server_port: 8000", {}, {"use_vllm"}),
        ("sync_ref_model: true\nref_model_sync_steps: 64", {}, {"sync_ref_model"}),
        ("log_completions: true\nuse_vllm: false\nsync_ref_model: false", {}, set()),
        ("generation_kwargs: {length_penalty: 2}", {}, {"generation_kwargs.length_penalty"}),
        # TRL counts micro-batches
        ("gradient_accumulation_steps: 4\nsteps_per_generation: 8", {"steps_per_generation": 2}, set()),
        ("gradient_accumulation_steps: 4\nsteps_per_generation: 2", {"steps_per_generation": 1}, set()),
        ("gradient_accumulation_steps: 4\ngeneration_batch_size: 96", {"steps_per_generation": 3}, set()),
        ("gradient_accumulation_steps: 4\nsteps_per_generation: 6", {}, {"steps_per_generation"}),
    ],
)  # fmt: skip
@pytest.mark.parametrize("tool", ["TRL", "Axolotl"])
def test_its_keys(tool: str, keys: str, grpo: dict[str, Any], without: set[str], tmp_path: Path) -> None:
    """The same in TRL's flat file and in Axolotl's table."""
    lines = f"{JUDGED}{keys}".splitlines()
    flat = [line for line in lines if tool == "TRL" or line.startswith("gradient_")]
    table = [line for line in lines if line not in flat]
    start = TRL if tool == "TRL" else AXOLOTL
    written = start + "\n".join(flat) + ("\ntrl:\n  " + "\n  ".join(table) if table else "")
    made = imported(f"{written}\n", tmp_path)
    values = checked(made, tmp_path)
    assert values["run"]["stage"] == "grpo" and values.get("grpo", {}) == grpo
    assert lost(made) == {name if tool == "TRL" else f"trl.{name}" for name in without}
    assert values["rewards"] == {"reward_funcs": ["maths"], "column": "solution"}
    assert values["train"]["learning_rate"] == 1e-6 and values["adapter"]["lora_dropout"] == 0.0
    assert values["data"]["max_length"] == 1024 + grpo.get("max_completion_length", 512)


def test_a_function_is_named_by_its_file(tmp_path: Path) -> None:
    """A dotted name is a file's where it is there; it is never run by importing."""
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "rewards.py").write_text("raise RuntimeError\ndef short(completions, **_):\n    return []\n")
    made = imported(
        f"{TRL}reward_model_name_or_path: o/judge\nreward_funcs: [mine.rewards.short]\nreward_weights: [1, 0.5]\n",
        tmp_path,
    )
    assert checked(made, tmp_path)["rewards"] == {
        "reward_funcs": ["reward_model", "mine/rewards.py:short"], "reward_model_name_or_path": "o/judge",
        "reward_weights": [1.0, 0.5],
    }  # fmt: skip
    assert not lost(made) and "--allow reward-code" in made.text


@pytest.mark.parametrize(
    ("names", "write"),
    [
        ("[mine.rewards.short]", '"mine/rewards.py:short"'),
        ("[think_format_reward, length]", '"format", "FILE.py:length"'),
    ],
)
def test_a_function_that_is_not_here_is_asked_for(names: str, write: str, tmp_path: Path) -> None:
    made = imported(f"{TRL}reward_funcs: {names}\nreward_weights: [1]\n", tmp_path)
    reason = next(one.reason for one in made.dropped if one.foreign == "reward_funcs")
    assert f"write rewards.reward_funcs = [{write}]" in reason and "--allow reward-code" in reason
    assert lost(made) == {"reward_funcs", "reward_weights"} and not made.refused
    assert [line.partition(":")[0] for line in made.missing] == ["rewards.reward_funcs"]


def test_what_is_missing_is_all_that_is_missing(tmp_path: Path) -> None:
    """Obeyed, the hint makes a profile."""
    made = imported(f"{TRL}reward_funcs: [mine.short]\n", tmp_path)
    (tmp_path / "mine.py").write_text("def short(completions, **_):\n    return []\n")
    hint = re.search(r"write (rewards\.reward_funcs = \[.*?\])", str(made.dropped))
    assert hint is not None
    text = made.text.replace("[rewards]", f"[rewards]\n{hint[1].removeprefix('rewards.')}")
    assert checked(dataclasses.replace(made, text=text, missing=()), tmp_path)["run"]["stage"] == "grpo"


def test_a_model_that_rewards_stands_alone(tmp_path: Path) -> None:
    made = imported("model_name_or_path: m/m\ndataset_name: o/p\nnum_generations: 8\n"
                    "reward_model_name_or_path: o/judge\n", tmp_path)  # fmt: skip
    assert checked(made, tmp_path)["rewards"]["reward_funcs"] == ["reward_model"]
    made = imported(f"{AXOLOTL}trl:\n  reward_funcs: [o/judge]\n", tmp_path, "train.yml")
    assert checked(made, tmp_path)["rewards"]["reward_model_name_or_path"] == "o/judge"


@pytest.mark.parametrize(
    ("keys", "accumulation", "without"),
    [
        ("per_device_train_batch_size: 1", 8, {"gradient_accumulation_steps"}),
        ("per_device_train_batch_size: 6\nnum_generations: 4", 2, {"gradient_accumulation_steps"}),
        ("per_device_train_batch_size: 4", 2, set()),
    ],
)
def test_a_step_has_whole_groups(keys: str, accumulation: int, without: set[str], tmp_path: Path) -> None:
    given = "gradient_accumulation_steps: 1\n" if without else ""
    made = imported(f"{TRL}{JUDGED}{given}{keys}\n", tmp_path)
    assert checked(made, tmp_path)["train"]["gradient_accumulation_steps"] == accumulation
    assert lost(made) == without


def test_processes_share_the_answers(tmp_path: Path) -> None:
    command = "accelerate launch --num_processes 4 grpo.py --model_name_or_path m/m --dataset_name o/p"
    keys = "--reward_funcs accuracy_reward --per_device_train_batch_size 4 --generation_batch_size 64"
    made = imported(f"{command} {keys}\n", tmp_path, "run.sh")
    values = checked(made, tmp_path)
    assert values["hardware"] == {"num_processes": 4} and values["grpo"]["steps_per_generation"] == 4
    assert not lost(made) and values["train"].get("gradient_accumulation_steps", 1) == 1


@pytest.mark.parametrize("text", [
    f"{TRL}{JUDGED}num_generations: many\nmax_completion_length: [1]\nper_device_train_batch_size: x\nbeta: y\n"
    "gradient_accumulation_steps: 0\nsteps_per_generation: 0\ngeneration_batch_size: -1\nreward_weights: {a: 1}\n",
    f"{AXOLOTL}trl: {{num_generations: -4, max_completion_length: 0, reward_funcs: [{{a: 1}}], loss_type: [1]}}\n",
    f"{TRL}num_ppo_epochs: 2\nnum_mini_batches: x\nreward_model_path: o/judge\n",
])  # fmt: skip
def test_what_is_no_number_is_reported(text: str, tmp_path: Path) -> None:
    made = imported(text, tmp_path)
    settled(made, tmp_path / "train.yaml")
    assert tomllib.loads(made.text)["run"]["stage"] in POLICY_STAGES


@pytest.mark.parametrize("launcher", ["--use_deepspeed --zero_stage 3", "--use_fsdp --num_processes 2"])
def test_what_is_divided_there_is_divided_here(launcher: str, tmp_path: Path) -> None:
    command = f"accelerate launch {launcher} grpo.py --model_name_or_path m/m --dataset_name o/p"
    made = imported(f"{command} --reward_funcs accuracy_reward\n", tmp_path, "run.sh")
    assert checked(made, tmp_path)["hardware"] == {"num_processes": 2, "shard": "all"}


def test_full_fine_tuning_stays_what_it_is(tmp_path: Path) -> None:
    made = imported(f"model_name_or_path: m/m\ndataset_name: o/p\n{JUDGED}beta: 0.04\n", tmp_path)
    assert checked(made, tmp_path)["adapter"]["method"] == "full" and not lost(made)
    assert checked(made, tmp_path)["grpo"]["beta"] == 0.04


def test_evaluations_answer_as_often_as_there(tmp_path: Path) -> None:
    evaluated = f"{TRL}{JUDGED}eval_strategy: steps\ndataset_test_split: test\neval_steps: 10\n"
    for more, number in (("", 8), ("num_generations_eval: 2\n", 2)):
        made = imported(f"{evaluated}metric_for_best_model: eval_reward\n{more}", tmp_path)
        values = checked(made, tmp_path)
        assert not lost(made) and values["grpo"]["num_generations_eval"] == number and values["data"]["eval"]
        assert values["eval"]["eval_steps"] == 10 and values["eval"]["metric_for_best_model"] == "reward"
    made = imported(f"{TRL}{JUDGED}num_generations_eval: 2\n", tmp_path)
    assert "num_generations_eval" not in checked(made, tmp_path).get("grpo", {}) and not lost(made)


def test_a_function_that_makes_rows_is_told(tmp_path: Path) -> None:
    rows = "datasets: [{path: o/prompts, type: mine.rows}]"
    made = imported(f"{AXOLOTL.replace('datasets: [{path: o/prompts}]', rows)}trl:\n  {JUDGED}", tmp_path)
    values = checked(made, tmp_path)
    assert values["data"]["train"] == ["o/prompts"] and lost(made) == {"datasets[0].type"}


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("model_name_or_path: m/m\nstage: grpo\nfinetuning_type: lora\ndataset: a\n", "LLaMA-Factory has no GRPO"),
        (f"{TRL}num_generations: 2\nnormalize_advantages: true\n", "RLOO"),
    ],
)
def test_what_is_not_there_is_said(text: str, words: str, tmp_path: Path) -> None:
    assert words in imported(text, tmp_path).refused


@pytest.mark.parametrize(
    ("name", "without", "rewards"),
    [
        ("trl_grpo.yaml", {"use_vllm"}, ["maths", "format"]),
        ("trl_grpo.sh", set(), ["reward_model", "format", "overlong"]),
        ("axolotl_grpo.yml", {
            "trl.use_vllm", "trl.sync_ref_model", "datasets[0].type", "lora_dropout", "chat_template: its words",
        }, ["gsm8k.py:correctness_reward", "gsm8k.py:format_reward"]),
    ],
)  # fmt: skip
def test_whole_files(name: str, without: set[str], rewards: list[str], tmp_path: Path) -> None:
    made = import_file(FIXTURES / name, tmp_path)
    values = checked(made, tmp_path)
    assert values["run"]["stage"] == "grpo" and lost(made) == without
    assert [reward.rpartition("/")[2] for reward in values["rewards"]["reward_funcs"]] == rewards


@pytest.mark.parametrize(
    "answer",
    ["<think>a</think>b", "<think>\na\nb</think>\n\nc", "<think></think>", " <think>a</think>", "<think>a", "b",
     "<think>a</think><think>b</think>", "x\n<think>a</think>b", "<think><think>a</think></think>"],
)  # fmt: skip
def test_the_pattern_of_thinking_is_trls(answer: str) -> None:
    rewards = pytest.importorskip("trl.rewards")
    from ftui.engine.rewards.ready_rewards import ready_reward

    there = rewards.think_format_reward([[{"role": "assistant", "content": answer}]])
    assert ready_reward("format", {"pattern": THINK})([answer]) == there


@pytest.mark.slow
def test_its_defaults_are_ours_or_are_written() -> None:
    """A new release of TRL with other ones shows here; so does a key without a rule."""
    config = importlib.import_module("trl").GRPOConfig

    from ftui.importers.rules import find_wide
    from ftui.importers.tools.trl import RULES

    fields = {field.name: field.default for field in dataclasses.fields(config)}
    assert [name for name in fields if "token" not in name and name not in RULES and not find_wide(RULES, name)] == []
    ours = {name: field.default for name, field in GrpoSection.model_fields.items()}
    differing = {name for name, value in ours.items() if name in fields and fields[name] != value}
    assert differing == {"min_p", "steps_per_generation"}, "None there: none, and one step"
    assert fields["learning_rate"] == 1e-6 and fields["per_device_train_batch_size"] == 8
