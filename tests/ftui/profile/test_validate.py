"""Everything that is wrong with a profile is told at once: place, key, reason and the fix; and nothing ever crashes."""

import contextlib
from collections.abc import Sequence
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ftui.cli import main
from ftui.errors import ProfileError
from ftui.profile.aliases import OTHER_NAMES
from ftui.profile.checks.messages import all_keys
from ftui.profile.layers import ProfileExamination, ProfileLayer, examine, override_layer, resolve, text_layer
from ftui.profile.presets import shipped_presets
from ftui.profile.schema import Profile
from ftui.profile.serialize import to_toml
from tests.support.examples import examples

HERE = Path("/nowhere/p.toml")
BASE = {"run": ['stage = "sft"'], "model": ['name_or_path = "hub/model"'], "data": ['train = "rows.jsonl"']}

# A table, a wrong line in it, and a part of what is told. All of them can be wrong at the same time, each by itself.
PLANTS = (
    ("", "learning_rate = 1e-4", "no such key"),
    ("run", 'nane = "x"', "run.name"),
    ("run", "format = 2", "1"),
    ("run", "name = '../x'", "lower-case letters, digits"),
    ("model", 'dtype = "int8"', "'float32'"),
    ("model", "trust_remote_code = 1", "true or false, not "),
    ("model", "max_length = 8", "data.max_length"),
    ("adapter", "r = 0", "greater than or equal to 1"),
    ("adapter", "lora_rank = 8", "adapter.r"),
    ("adapter", "lora_dropout = 1.0", "less than 1"),
    ("adapter", "target_modules = 5", "a text or a list, not 5"),
    ("adapter", "exclude_modules = ['a', 5]", "a text, not 5"),
    ("adapter", "rank_pattern = {q = 0}", "greater than or equal to 1, not 0"),
    ("adapter", "alpha_pattern = {q = -1}", "Or leave q out."),
    ("adapter", "init_lora_weights = 'pissa'", "rewrites the base"),
    ("adapter", "layers_to_transform = [1, 'x']", "a whole number, not "),
    ("data", "eval = 5", "a text or a list, not 5"),
    ("data", "chat_template = 'chat'", "there is no template"),
    ("data", "max_length = 7", "greater than or equal to 8"),
    ("data", "packing = 'yes'", "true or false, not "),
    ("train", 'learning_rate = "2e-4"', "without quotes"),
    ("train", "weight_decay = nan", "finite"),
    ("train", "adam_epsilon = inf", "finite"),
    ("train", "adam_beta1 = 1.5", "less than 1"),
    ("train", "seed = 2024-07-26", "a date or a time"),
    ("train", "gradient_checkpointing = true", "activation_checkpointing"),
    ("train", "bf16 = true", "precision"),
    ("train", "optim = 'adamw'", "adamw_"),
    ("train", "lr_scheduler_type = 'greedy'", "is not offered"),
    ("eval", "eval_steps = 2.5", "a whole number"),
    ("eval", "early_stopping_patience = 0", "greater than or equal to 1"),
    ("checkpoint", "save_total_limit = 1", "greater than or equal to 2"),
    ("checkpoint", "save_minutes = -1", "greater than 0"),
    ("log", "report_to = 'tensorbord'", "'tensorbord': Did you mean tensorboard?"),
    ("hardware", "device = 'gpu'", "'cuda'"),
    ("hardware", "num_processes = true", "a whole number, not "),
    ("hardware", "engine = 'deepspeed'", "hardware.shard and hardware.offload do what ZeRO does"),
    ("health", "stall_minutes = 'long'", "a number, not "),
    ("trainer", "epochs = 3", "no such key"),
)
# Pairs that contradict each other, in words of what is told.
CONTRADICTIONS = (
    ("model.from_scratch = {size = 'tiny'}\nadapter.method = 'full'", ("one of name_or_path and from_scratch",)),
    ("train.max_steps = 1\ntrain.num_train_epochs = 1", ("one of max_steps and num_train_epochs",)),
    ("data.eval_fraction = 0.1\ndata.eval_num_rows = 5", ("one of eval_fraction and eval_num_rows",)),
    ("adapter.method = 'full'\nadapter.r = 16", ('"full" does not use r',)),
    ("adapter.method = 'full'\nadapter.r = 8\nadapter.lora_alpha = 8", ("does not use r", "does not use lora_alpha")),
    ("adapter.method = 'freeze'\nadapter.use_dora = true", ("give one of them", "does not use use_dora")),
    ("eval.load_best_model_at_end = true", ("load_best_model_at_end = true needs evaluations",)),
    ("eval.early_stopping_patience = 2", ("eval.early_stopping_patience needs evaluations",)),
    ("checkpoint.save_strategy = 'best'", ("needs evaluations",)),
    ("hardware.device = 'mps'\ntrain.optim = 'adamw_8bit'", ("which does not support hardware.device",)),
    ("hardware.device = 'mps'\nadapter.method = 'qlora'", ("which does not support hardware.device",)),
    ("hardware.device = 'mps'\nadapter.load_in_8bit = true", ("which does not support hardware.device",)),
    (
        "data.packing = true\nmodel.attn_implementation = 'flash_attention_2'\nhardware.device = 'cpu'",
        ("packed rows would then attend to each other",),
    ),
    (
        "data.packing = true\nmodel.attn_implementation = 'flash_attention_2'\ntrain.precision = 'fp32'",
        ("packed rows would then attend to each other",),
    ),
    ("hardware.nodes = 3\nhardware.num_processes = 2", ("num_processes = 2 cannot be shared by nodes = 3",)),
    ("hardware.nodes = 2", ("num_processes = 1 cannot be shared by nodes = 2",)),
    ("hardware.shard = 'all'", ("set num_processes to 2 or more",)),
    ("hardware.shard = 'state'\nhardware.num_processes = 2", ("is for full fine-tuning",)),
    (
        "hardware.shard = 'all'\nhardware.num_processes = 2\nadapter.method = 'freeze'\nadapter.trainable_layers = 1",
        ('is built for method = "lora"',),
    ),
    (
        "hardware.shard = 'state'\nhardware.num_processes = 2\nadapter.method = 'full'\ntrain.optim = 'adafactor'\n"
        "hardware.offload = 'state'\ntrain.activation_offload = true",
        ("is built for whole weights only", "moments that are divided", "shard and activation_offload"),
    ),
    (
        "hardware.shard = 'all'\nhardware.num_processes = 2\nadapter.use_dora = true\nadapter.bias = 'all'",
        ("shard and use_dora", "shard and bias"),
    ),
    ("hardware.dp_shard_size = 2\nhardware.num_processes = 4", ("each process has all of it",)),
    (
        "hardware.dp_shard_size = 4\nhardware.shard = 'all'\nhardware.num_processes = 6",
        ("num_processes = 6 cannot be divided into groups of dp_shard_size = 4",),
    ),
    ("hardware.offload = 'base'\nadapter.method = 'full'\ntrain.activation_checkpointing = true", ("freezes none",)),
    ("hardware.offload = ['base', 'state']", ("needs activation_checkpointing: else",)),
    (
        "hardware.offload = 'base'\ntrain.activation_checkpointing = true\n"
        "train.activation_checkpointing_kwargs = {num_layers = 3}",
        ("needs activation_checkpointing of all layers",),
    ),
    (
        "hardware.offload = 'base'\ntrain.activation_checkpointing = true\ntrain.torch_compile = true\n"
        "adapter.load_in_8bit = true",
        ("keeps a copy of 8-bit weights", "do not take weights that come and go"),
    ),
    ("hardware.offload = 'state'\ntrain.optim = 'adamw_8bit'", ("comes from bitsandbytes",)),
    ("train.activation_offload = true\ntrain.torch_compile = true", ("cannot be offloaded",)),
    ("train.bf16 = true\ntrain.fp16 = true", ("contradict each other", "contradict each other")),
    ("train.activation_checkpointing_kwargs = {every_n_layers = 2}", ("needs activation_checkpointing = true",)),
    (
        "train.activation_checkpointing = true\ntrain.activation_checkpointing_kwargs = "
        "{every_n_layers = 2, num_layers = 3}",
        ("both say which layers",),
    ),
    ("train.lr_scheduler_kwargs = {power = 2.0, num_cycles = 1}", ("power is not for",)),
    ("train.optim_args = {momentum = 0.5}\ntrain.optim = 'adagrad'", ("momentum is not for",)),
    ("train.lr_scheduler_type = 'cosine_with_min_lr'", ("needs one of",)),
    ("train.lr_scheduler_type = 'polynomial'\ntrain.learning_rate = 1e-8", ("must be less than learning_rate",)),
    ("data.columns = {instrucion = 'a'}", ("columns names 'instrucion', which no form has",)),
    ("data.format = 'text'\ndata.columns = {output = 'a'}", ('which format = "text" does not have',)),
    ("data.columns = {prompt = 'a', completion = 'a'}", ("columns names 'a' twice",)),
    ("data.format = 'alpaca'\ndata.roles = {bot = 'assistant'}", ("roles name the speakers of turns",)),
    (
        "data.eval = [{path = 'e.jsonl', format = 'kto', columns = {verdict = 'a'}}]",
        ("columns names 'verdict', which format = \"kto\"",),
    ),
)


def text_of(plants: Sequence[tuple[str, str, str]]) -> str:
    """A profile with these lines in their tables."""
    tables: dict[str, list[str]] = {"": []} | {name: [*lines] for name, lines in BASE.items()}
    for table, line, _ in plants:
        tables.setdefault(table, []).append(line)
    parts = [[f"[{name}]", *lines] if name else lines for name, lines in tables.items()]
    return "\n".join(line for part in parts for line in part)


def look(text: str, *above: ProfileLayer, below: Sequence[ProfileLayer] = ()) -> ProfileExamination:
    return examine([*below, text_layer(text, HERE), *above], HERE)


@settings(max_examples=examples(60))
@given(st.lists(st.sampled_from(PLANTS), unique=True, max_size=len(PLANTS)))
def test_as_many_faults_are_told_as_are_there(plants: list[tuple[str, str, str]]) -> None:
    text = text_of(plants)
    found = look(text)
    assert (found.profile is None) == bool(plants)
    lines = text.split("\n")
    told = {lines[p.origin.line - 1]: p for p in found.problems if p.origin is not None and p.origin.line is not None}
    assert len(found.problems) == len(plants)
    for _, line, words in plants:
        problem = told[line]
        assert words in f"{problem.message} {problem.fix}", problem
        assert problem.message and problem.fix, "every fault has its fix"


@pytest.mark.parametrize(("text", "words"), CONTRADICTIONS)
def test_what_contradicts_each_other_is_told_with_the_way_out(text: str, words: tuple[str, ...]) -> None:
    found = look("\n".join(["run.stage = 'sft'", "model.name_or_path = 'a/b'", "data.train = 'r.jsonl'", text]))
    assert len(found.problems) == len(words), found.problems
    for problem, part in zip(found.problems, words, strict=True):
        assert part in problem.message and problem.fix
        assert problem.origin is not None and (problem.origin.line or 0) > 1, "told where something is written"


def test_columns_the_wrong_way_round_are_turned() -> None:
    given = "data.columns = {Frage = 'question', 'Die Antwort' = 'answer'}"
    (problem,) = look(f"run.stage = 'sft'\nmodel.name_or_path = 'a/b'\ndata.train = 'r.jsonl'\n{given}").problems
    assert problem.fix == 'Swap the names: columns = {question = "Frage", answer = "Die Antwort"}.'
    (problem,) = look(
        f"run.stage = 'sft'\nmodel.name_or_path = 'a/b'\ndata.train = 'r.jsonl'\n{given[:-10]} 'x'}}"
    ).problems
    assert problem.fix.count("instruction") == 1 and "'Frage', 'Die Antwort'" in problem.message


def test_plain_text_is_no_conversation() -> None:
    told = "run.stage = 'pretrain'\nmodel.name_or_path = 'a/b'\ndata.train = 'r.jsonl'\ndata.format = "
    (problem,) = look(told + "'messages'").problems
    assert 'trains on plain text, and format = "messages" is none' in problem.message
    assert not look(told + "'tokenized'").problems


def test_contradictions_are_told_beside_wrong_values() -> None:
    """A table that has a wrong value is still looked at, but for what depends on that value."""
    found = look(
        "model.name_or_path = 'a/b'\ndata.train = 'r'\nadapter = {method = 'full', r = 8, lora_alpha = 0}\n"
        "train = {max_steps = 1, num_train_epochs = 2.0, seed = -1, lr_scheduler_kwargs = {min_lr = -1.0}}\n"
        "eval.lr_scheduler_type = 'linear'"
    )
    assert sorted(".".join(problem.key) for problem in found.problems) == [
        "adapter.lora_alpha", "adapter.r", "eval.lr_scheduler_type", "run", "train.lr_scheduler_kwargs.min_lr",
        "train.max_steps", "train.seed",
    ]  # fmt: skip


def test_lines_are_counted_through_values_of_several_lines() -> None:
    text = """\
run.stage = "sft"
model.name_or_path = "a/b"
[eval]
sample_prompts = [
  "b\\" ]",  # ]
  ["train"],
]
eval_delay = -1
[data]
train = [
  { path = 'x' },
]
format = \'\'\'
[train]
seed = 1
\'\'\'
[ train ]
'seed' = -1
"""
    lines = {p.key[-1]: p.origin.line for p in look(text).problems if p.origin is not None}
    assert lines == {"1": 4, "eval_delay": 8, "format": 13, "seed": 18}


def test_a_copy_with_every_key_wishes_for_nothing(tmp_path: Path) -> None:
    """A run's own profile names `load_best_model_at_end = true` and `r = 16` because every key is written out."""
    path = tmp_path / "p.toml"
    path.write_text("run.stage = 'sft'\nmodel.name_or_path = 'a/b'\ndata.train = 'r'\nadapter.method = 'full'\n")
    copy = tmp_path / "copy.toml"
    copy.write_text(to_toml(resolve(path).profile))
    assert resolve(copy).profile == resolve(path).profile
    with pytest.raises(ProfileError, match="does not use r"):
        resolve(copy, overrides=["adapter.r=8"])


def test_a_method_chosen_above_drops_what_only_suits_another(tmp_path: Path) -> None:
    path = tmp_path / "p.toml"
    path.write_text(
        "run.stage = 'sft'\nmodel.name_or_path = 'a/b'\ndata.train = 'r'\nadapter = {r = 8, bias = 'all'}\n"
    )
    adapter = resolve(path, overrides=["adapter.method=full"]).profile.adapter
    assert (adapter.method, adapter.r, adapter.bias) == ("full", 16, "none")


def test_a_table_and_a_key_of_it_in_two_layers() -> None:
    text = text_of([("adapter", "rank_pattern = {q_proj = 4}", "")])
    assert (profile := look(text, override_layer(["adapter.rank_pattern={k_proj = 2}"])).profile) is not None
    assert profile.adapter.rank_pattern == {"k_proj": 2}
    found = look(text.replace("[data]", "[data_]"), override_layer(["data.train=x"]))
    assert [problem.key for problem in found.problems] == [("data_",)]
    found = look("data.train = 'r'\nrun.stage = 'sft'\nmodel = 5", override_layer(["model.name_or_path=a/b"]))
    assert [problem.message for problem in found.problems] == ["is a table, not 5"]


def test_the_command_line_tells_all_of_them_and_ends_with_30(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "p.toml"
    path.write_text(text_of(PLANTS))
    path.with_name("rows.jsonl").touch()
    assert main.main(["--run", str(path), "--dry-run"]) == 30
    error = capsys.readouterr().err
    assert error.count(f"{path}:") == len(PLANTS) and "Traceback" not in error


@pytest.mark.parametrize(
    ("override", "key"),
    [
        ("data.train=\udcff.jsonl", "data.train"),  # what Python makes of the byte FF on a command line
        ("data.train=[{path = 'a', subset = '\udcff'}]", "data.train"),
        ("model.name_or_path=/\udcff/base", "model.name_or_path"),
        ("adapter.rank_pattern={'\udcff' = 2}", "adapter.rank_pattern"),
        ("tra\udcffin.seed=1", "tra\udcffin.seed"),
    ],
)
def test_bytes_that_are_no_utf8_are_told_by_their_key(override: str, key: str) -> None:
    found = look(text_of([]), override_layer([override]), override_layer(["train.seed=-1"]))
    assert [".".join(problem.key) for problem in found.problems] == [key, "train.seed"]
    assert "not UTF-8" in found.problems[0].message and found.problems[0].fix


@pytest.mark.parametrize(
    ("override", "words"),
    [
        ("train.optim=adam", ("should be 'adamw_torch', ", "more (docs/profile.md)", "mean 'adamw_torch'?")),
        ("train.optim=AdamW", ("mean 'adamw_torch'?",)),
        ("train.optim=adamw_hf", ("mean 'adamw_torch'?",)),
        ("train.optim=AdamW8bit", ("mean 'adamw_8bit'?",)),
        ("train.lr_scheduler_type=cosine_annealing", ("should be 'cosine', ", "mean 'cosine'?")),
        ("hardware.device=gpu", ("should be 'auto', 'cpu', 'cuda' or 'mps'", "mean 'cuda'?")),
        ("adapter.lora_dropout=5", ("or equal to 0 and less than 1, not 5", "default is 0.0")),
        ("adapter.r=0", ("or equal to 1 and less than or equal to 1024, not 0",)),
        ("data.train=[{path = 'x', weight = 0}]", ("greater than 0 and less than or equal to 1000000, not 0",)),
        ("train.lr_scheduler_kwargs={min_lr_rate = 0.1}", ('set lr_scheduler_type = "cosine_with_min_lr"',)),
    ],
)
def test_a_wrong_value_is_told_with_what_was_meant_and_what_is_allowed(override: str, words: tuple[str, ...]) -> None:
    found = look(text_of([]), override_layer([override]))
    assert len(found.problems) == 1
    told = f"{found.problems[0].message} {found.problems[0].fix}"
    assert all(part in told for part in words), told
    assert len(told) < 250


def test_other_names_of_values_are_for_values_that_there_are() -> None:
    for key, names in OTHER_NAMES.items():
        for other, name in names.items():
            found = look(text_of([]), override_layer([f"{'.'.join(key)}={name}"]))
            assert not [one for one in found.problems if "input should be" in one.message], (key, name)
            assert other == other.lower() and other != name


ODD = ['"none"', "true", "nan", "-inf", "1979-05-27T07:32:00Z", "07:32:00", "1e400", "0x1F", '""', "{}", "[]"]
PLAIN = st.characters(codec="utf-8", exclude_categories=["Cc"], exclude_characters='"\\')
VALUES = st.recursive(
    st.one_of(
        st.sampled_from(ODD),
        st.integers().map(str),
        st.floats(allow_nan=False, allow_infinity=False).map(repr),
        st.text(PLAIN, max_size=8).map('"{}"'.format),
    ),
    lambda inner: st.one_of(
        st.lists(inner, max_size=3).map(lambda each: f"[{', '.join(each)}]"),
        st.dictionaries(st.sampled_from(["path", "weight", "size", "min_lr", "x"]), inner, max_size=3).map(
            lambda table: f"{{{', '.join(f'{k} = {v}' for k, v in table.items())}}}"
        ),
    ),
    max_leaves=5,
)  # fmt: skip
DOTTED = "run.stage = 'sft'\nmodel.revision = 'main'\nmodel.name_or_path = 'a/b'\ndata.train = 'r.jsonl'\n"
KEYS = st.one_of(
    st.sampled_from([".".join(key) for key in all_keys()]), st.sampled_from([*Profile.model_fields, "a.b", '"".x'])
)


@settings(max_examples=examples(150))
@given(st.dictionaries(KEYS, VALUES, max_size=8), st.booleans())
def test_no_toml_makes_it_crash(lines: dict[str, str], based: bool) -> None:
    text = "\n".join(f"{key} = {value}" for key, value in lines.items())
    check(f"{DOTTED if based else ''}{text}")


@settings(max_examples=examples(100))
@given(st.data())
def test_no_slip_of_the_finger_makes_it_crash(data: st.DataObject) -> None:
    text = data.draw(st.sampled_from([preset.path.read_text() for preset in shipped_presets()]))
    for _ in range(data.draw(st.integers(1, 4))):
        at = data.draw(st.integers(0, len(text)))
        cut = data.draw(st.integers(0, 12))
        text = text[:at] + data.draw(st.text(max_size=4)) + text[at + cut :]
    check(text)


@pytest.mark.parametrize(
    "raw", ["seed = " + "9" * 5000, "a" + ".a" * 3000 + " = 1", "x = " + "{a = " * 400 + "1" + "}" * 400]
)
def test_what_is_far_too_large_is_no_crash(raw: str) -> None:
    check("[train]\n" + raw)


@pytest.mark.parametrize(
    "text", ["0 = 1", "[0]\nbeta = 0.1", "[train]\n7 = 1", "[[curriculum]]\n7 = 1", "[7.7]\n7 = 1"]
)
def test_a_key_of_digits_is_told_like_others(text: str) -> None:
    problems = examine([text_layer(text, HERE)], HERE).problems
    assert any(problem.message == "there is no such key" and problem.key[-1].isdigit() for problem in problems)


def check(text: str) -> None:
    """Either a profile, or problems in words."""
    with contextlib.suppress(ProfileError):
        found = examine([text_layer(text, HERE)], HERE)
        assert (found.profile is None) == bool(found.problems)
        assert all(problem.message for problem in found.problems)
