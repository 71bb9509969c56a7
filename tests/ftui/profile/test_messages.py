"""What is wrong with a profile is told in words of a profile: what may stand there, and the fix."""

from pathlib import Path

import pytest

from ftui.errors import FtuiError, ProfileError
from ftui.profile.checks.messages import all_keys
from ftui.profile.layers import examine, resolve, text_layer
from ftui.profile.origins import ProfileFault

HERE = Path("/nowhere/p.toml")
LINES = ("run.stage = 'sft'\n", "model.name_or_path = 'a/b'\n", "data.train = 'r'\n")
WHOLE = "".join(LINES)


def told_of(text: str) -> tuple[ProfileFault, ...]:
    return examine([text_layer(text, HERE)], HERE).problems


@pytest.mark.parametrize(
    ("line", "key"),
    [
        ("train.lr = 1e-4", "train.learning_rate"),
        ("train.bf16 = true", "train.precision"),
        ("train.learning_rte = 1e-4", "train.learning_rate"),
        ("lora.r = 8", "adapter"),
    ],
)
def test_the_fault_of_an_unknown_key_names_the_one_that_was_meant(line: str, key: str) -> None:
    (problem,) = told_of(f"{WHOLE}{line}\n")
    assert problem.meant == tuple(key.split(".")) and key in problem.fix


@pytest.mark.parametrize(
    ("line", "words"),
    [
        ("adapter.target_modules = []", "names no layer"),
        ("adapter.target_modules = ''", "names no layer"),
        ("adapter.target_modules = ['q_proj', '']", "names no layer"),
        ("adapter.layers_to_transform = []", "names no layer"),
        ("adapter.layers_to_transform = [0, -1]", "there is no layer -1"),
        ("adapter.rank_pattern = {q = 1025}", "less than or equal to 1024"),
    ],
)
def test_what_suits_no_model_is_refused(line: str, words: str) -> None:
    (problem,) = told_of(f"{WHOLE}{line}\n")
    assert words in problem.message and problem.fix and problem.origin is not None


@pytest.mark.parametrize(
    ("text", "words", "fix"),
    [
        (WHOLE.replace("run.stage = 'sft'", "run = 'sft'"), "a table, not", "Write [run], and its keys below it."),
        (WHOLE.replace("run.stage = 'sft'", "run = [{stage = 'sft'}]"), "a table, not", "Write [run], and its keys"),
        (WHOLE + "model.from_scratch = 5", "a table, not 5", "Write [model.from_scratch], and its keys"),
        (WHOLE + "train.optim = 5", "or one of", 'The default is "adamw_torch_fused".'),
        (WHOLE + "train.max_steps = true", "a whole number, not true", 'The default is "none".'),
        (WHOLE + "adapter.layers_to_transform = '3'", "a list, not", "Write [3]."),
        (WHOLE + "adapter.modules_to_save = 'lm_head'", "a list, not", 'Write ["lm_head"].'),
        (WHOLE + "data.eval = ''", "is empty", "Write a file, a folder"),
        (WHOLE.replace("data.train = 'r'", "data.train.path = 'r'"), "a list, not", "Write [[data.train]], in two"),
        (WHOLE.replace("data.train = 'r'", "data.train = 5"), "a text or a list, not 5", "Write a file, a folder"),
    ],
)
def test_a_value_of_another_kind_is_told_in_words_of_a_profile(text: str, words: str, fix: str) -> None:
    problems = told_of(text)
    assert len(problems) == 1, problems
    assert words in problems[0].message and problems[0].fix.startswith(fix), problems[0]


@pytest.mark.slow
def test_no_word_of_the_validator_reaches_anybody() -> None:
    """Of every key with a value of every other kind: one fault, its fix, and both short enough to be read."""
    count = 0
    for key in all_keys():
        if {"train", "eval"} & set(key[1:2]) and key[0] == "data" and len(key) > 2:
            continue  # of a list
        text = "".join(line for line in LINES if not line.startswith(".".join(key)))
        for value in ("5", "-5.5", "true", "'?'", "[true]", "{x = true}", "nan", "''"):
            for problem in told_of(f"{text}{'.'.join(key)} = {value}"):
                if problem.key[: len(key)] != key:
                    continue
                count += 1
                assert problem.fix and len(problem.fix) < 200, problem
                for word in ("object", "valid ", "array", "character", "string", "dictionary", "True", "False", "None"):
                    assert word not in f"{problem.message} {problem.fix}", problem
    assert count > 300


def test_what_mends_several_entries_is_told_once(tmp_path: Path) -> None:
    path = tmp_path / "p.toml"
    path.write_text(WHOLE.replace("'r'", "[5, 6, true]"))
    with pytest.raises(ProfileError) as caught:
        resolve(path)
    assert caught.value.message.count("Write a file") == 1 and caught.value.message.count("data.train.") == 3


@pytest.mark.parametrize(
    ("override", "words", "hint"),
    [
        ("run={stage='sft', name='x y'}", "run is a table", """--set 'run.stage="sft"' --set 'run.name="x y"'"""),
        ("adapter=5", "adapter is a table", "--set adapter.KEY=VALUE"),
        ("run.stage.x=1", "run.stage.x is no key", "Set run.stage itself."),
        (
            "data.train.path=x",
            "data.train.path cannot be set",
            "Set data.train.0.path, or data.train to a path or a list.",
        ),
    ],
)
def test_an_override_of_a_table_says_how(override: str, words: str, hint: str, tmp_path: Path) -> None:
    path = tmp_path / "p.toml"
    path.write_text(WHOLE)
    path.with_name("r").touch()
    with pytest.raises(FtuiError) as caught:
        resolve(path, overrides=[override])
    assert words in caught.value.message and caught.value.hint == hint


@pytest.mark.parametrize(
    ("given", "meant"),
    [
        ("llama-3", "llama3"), ("Llama3", "llama3"), ("llama_2", "llama2"), ("chat-ml", "chatml"), ("ChatML", "chatml"),
        ("qwen2.5", "qwen"), ("mistral_v1", "mistral"), ("gemma2", "gemma"), ("phi-3", "phi"), ("alpaca2", "alpaca"),
    ],
)  # fmt: skip
def test_the_template_that_was_meant_is_named(given: str, meant: str) -> None:
    (problem,) = told_of(f"{WHOLE}data.chat_template = '{given}'\n")
    assert problem.fix == f"Did you mean {meant!r}?"


def test_a_template_like_no_other_is_not_guessed_at() -> None:
    (problem,) = told_of(f"{WHOLE}data.chat_template = 'xyz'\n")
    assert "Did you mean" not in problem.fix


def test_a_model_that_is_not_named_is_asked_for() -> None:
    problems = told_of("run.stage = 'sft'\ndata.train = 'rows.jsonl'\n[model]\n")
    (problem,) = [problem for problem in problems if problem.key == ("model",)]
    assert "Leave" not in problem.fix and "model.name_or_path" in problem.fix
