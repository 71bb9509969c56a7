"""Layers, origins and complaints of a profile: every error names file, line, key and what to write instead."""

from pathlib import Path

import pytest

from ftui.cli.dry_run import value_lines
from ftui.errors import ProfileError, UsageError
from ftui.profile.layers import ProfileLayer, ResolvedProfile, resolve
from ftui.profile.reference import reference
from ftui.profile.schema import Profile
from ftui.profile.serialize import fingerprint, flat_values, keep_batch, to_toml, weights_difference

BASE = """\
[run]
stage = "sft"

[model]
name_or_path = "hub/model"

[data]
train = "rows.jsonl"
"""


@pytest.fixture
def path(tmp_path: Path) -> Path:
    (tmp_path / "rows.jsonl").touch()
    return tmp_path / "p.toml"


def read(path: Path, text: str = "", *overrides: str) -> ResolvedProfile:
    path.write_text(BASE + text, encoding="utf-8")
    return resolve(path, overrides=overrides)


def complaint(path: Path, text: str, *overrides: str) -> ProfileError:
    with pytest.raises(ProfileError) as caught:
        read(path, text, *overrides)
    return caught.value


def test_layers_the_later_wins_and_every_value_knows_its_origin(path: Path) -> None:
    below = ProfileLayer("tier", {("train", "learning_rate"): 1.0, ("train", "weight_decay"): 0.5}, path.parent)
    path.write_text(BASE + "[train]\nlearning_rate = 2e-4\nseed = 1\n")
    resolved = resolve(path, overrides=["train.seed=7"], below=[below])
    train = resolved.profile.train
    assert (train.weight_decay, train.learning_rate, train.seed) == (0.5, 2e-4, 7)
    assert str(resolved.origin(("train", "weight_decay"))) == "tier"
    assert str(resolved.origin(("train", "learning_rate"))) == f"{path}:10"
    assert str(resolved.origin(("train", "seed"))) == "--set"
    assert str(resolved.origin(("train", "optim"))) == "default"


@pytest.mark.parametrize(
    ("text", "where", "what"),
    [
        ("[train]\nlearning_rate = -1\n", ":10: train.learning_rate", "greater than or equal to 0"),
        ("[train]\n\nseed = 1.5\n", ":11: train.seed", "a whole number, not 1.5"),
        ("[adapter]\nmethod = 'prompt'\n", ":10: adapter.method", "'lora', 'qlora', 'full' or 'freeze'"),
        ("[train]\nlearning_rate = nan\n", ":10: train.learning_rate", "finite"),
        ("[train]\nlearning_rate = inf\n", ":10: train.learning_rate", "finite"),
        ("[model.from_scratch]\nhidden_size = 4\n", ":10: model.from_scratch.hidden_size", "8"),
        ("[trane]\nseed = 1\n", "trane", "no such key"),
    ],
)
def test_a_wrong_value_is_named_with_file_line_and_key(path: Path, text: str, where: str, what: str) -> None:
    message = complaint(path, text).message
    assert str(path) in message
    assert where in message
    assert what in message


def test_every_fault_gets_its_line(path: Path) -> None:
    message = complaint(path, "[train]\nseed = -1\nadam_beta1 = 2.0\n").message
    assert f"{path}:10: train.seed" in message
    assert f"{path}:11: train.adam_beta1" in message


def test_a_wrong_override_is_named(path: Path) -> None:
    assert complaint(path, "", "train.seed=-1").message.startswith("--set: train.seed")


def test_a_quoted_number_is_explained(path: Path) -> None:
    error = complaint(path, '[train]\nlearning_rate = "2e-4"\n')
    assert f"{path}:10: train.learning_rate" in error.message
    assert "without quotes" in error.hint


def test_a_misspelt_key_gets_the_nearest_name(path: Path) -> None:
    error = complaint(path, "[train]\nlearing_rate = 1e-4\n")
    assert f"{path}:10: train.learing_rate: there is no such key" in error.message
    assert "train.learning_rate" in error.hint


@pytest.mark.parametrize(
    ("section", "old", "new"),
    [
        ("train", "warmup_ratio", "warmup_steps"),
        ("data", "max_seq_length", "data.max_length"),
        ("adapter", "lora_r", "adapter.r"),
    ],
)
def test_an_old_spelling_gets_the_new_one(path: Path, section: str, old: str, new: str) -> None:
    text = BASE + f"[{section}]\n{old} = 1\n" if section != "data" else BASE + f"{old} = 1\n"
    path.write_text(text)
    with pytest.raises(ProfileError) as caught:
        resolve(path)
    assert new in caught.value.hint


def test_a_missing_key_and_a_missing_table(path: Path) -> None:
    path.write_text("[run]\n[model]\nname_or_path = 'x'\n")
    with pytest.raises(ProfileError) as caught:
        resolve(path)
    assert "run.stage: is missing" in caught.value.message
    assert "data: is missing" in caught.value.message


def test_one_of_an_exclusive_pair_clears_the_other_below(path: Path) -> None:
    resolved = read(path, "[train]\nnum_train_epochs = 3.0\n", "train.max_steps=5")
    assert (resolved.profile.train.max_steps, resolved.profile.train.num_train_epochs) == (5, None)
    assert str(resolved.origin(("train", "num_train_epochs"))) == "default"


def test_both_of_an_exclusive_pair_in_one_layer_are_refused(path: Path) -> None:
    error = complaint(path, "[train]\nmax_steps = 1\nnum_train_epochs = 1.0\n")
    assert "max_steps and num_train_epochs" in error.message
    assert "eval" in complaint(path, "eval_fraction = 0.1\neval_num_rows = 5\n").message


def test_none_turns_a_key_off(path: Path) -> None:
    resolved = read(path, '[train]\nmax_grad_norm = "none"\n[checkpoint]\nsave_steps = "none"\n')
    assert resolved.profile.train.max_grad_norm is None
    assert resolved.profile.checkpoint.save_steps is None
    assert "train.seed" in complaint(path, '[train]\nseed = "none"\n').message


def test_a_byte_order_mark_and_windows_line_ends_are_read(path: Path) -> None:
    path.write_bytes(b"\xef\xbb\xbf" + BASE.replace("\n", "\r\n").encode() + b"[train]\r\nseed = 3\r\n")
    resolved = resolve(path)
    assert resolved.profile.train.seed == 3
    assert str(resolved.origin(("train", "seed"))) == f"{path}:10"


@pytest.mark.parametrize("raw", [b"\xff\xfe[\x00r\x00", b"[run\n", b"a = " + b"[" * 20_000, b"run = 1\n"])
def test_what_is_not_a_profile_is_refused_by_name(path: Path, raw: bytes) -> None:
    path.write_bytes(raw)
    with pytest.raises(ProfileError, match=r"p\.toml"):
        resolve(path)


def test_an_absent_profile_is_refused_by_name(path: Path) -> None:
    with pytest.raises(ProfileError, match="no profile"):
        resolve(path)


@pytest.mark.parametrize("override", ["seed=1", "train.seed", ".seed=1", "train.=1"])
def test_an_override_of_the_wrong_form(path: Path, override: str) -> None:
    with pytest.raises(UsageError, match=r"section\.key=value"):
        read(path, "", override)


def test_overrides_are_toml_values_or_bare_words(path: Path) -> None:
    profile = read(path, "", "run.name=mine", "train.learning_rate=1e-3", 'adapter.target_modules=["q", "v"]').profile
    assert (profile.run.name, profile.train.learning_rate) == ("mine", 1e-3)
    assert profile.adapter.target_modules == ("q", "v")


def test_paths_are_relative_to_the_profiles_folder(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (path.parent / "base").mkdir()
    monkeypatch.chdir("/")
    path.write_text(BASE.replace('"hub/model"', '"base"').replace('"rows.jsonl"', '["a.jsonl", "sub/b.jsonl"]'))
    profile = resolve(path).profile
    assert profile.model.name_or_path == str(path.parent / "base")
    assert profile.data.train == (str(path.parent / "a.jsonl"), str(path.parent / "sub/b.jsonl"))
    assert read(path).profile.model.name_or_path == "hub/model"


@pytest.mark.parametrize(
    "text",
    [
        "",
        "eval_fraction = 0.25\n[train]\nmax_steps = 7\n[adapter]\ntarget_modules = ['q_proj']\n",
        "[train]\nnum_train_epochs = 2.0\nmax_grad_norm = 'none'\n[eval]\nsample_prompts = ['a\\u2028b', '\"']\n",
    ],
)
def test_what_is_written_reads_back_the_same(path: Path, text: str) -> None:
    profile = read(path, text).profile
    other = path.with_name("copy.toml")
    other.write_text(to_toml(profile), encoding="utf-8")
    assert resolve(other).profile == profile
    assert fingerprint(resolve(other).profile) == fingerprint(profile)


def test_a_model_from_scratch_reads_back_the_same(path: Path) -> None:
    path.write_text(
        BASE.replace('name_or_path = "hub/model"', "[model.from_scratch]\nvocab_size = 500")
        + "[adapter]\nmethod = 'full'\n"
    )
    profile = resolve(path).profile
    path.write_text(to_toml(profile))
    assert resolve(path).profile == profile


def test_only_what_affects_the_weights_is_a_difference(path: Path) -> None:
    old = read(path).profile
    assert weights_difference(old, read(path, "[log]\nlogging_steps = 1\n[checkpoint]\nsave_steps = 5\n").profile) == []
    moved = read(path, "", "data.train=elsewhere/rows.jsonl").profile
    assert weights_difference(old, moved) == []
    assert fingerprint(moved) == fingerprint(old)
    new = read(path, "[train]\nlearning_rate = 1e-3\n[adapter]\nr = 8\n").profile
    assert weights_difference(old, new) == ["adapter.r: 16 -> 8", "train.learning_rate: 0.0002 -> 0.001"]
    assert fingerprint(new) != fingerprint(old)


@pytest.mark.parametrize(
    ("begun", "asked", "batch", "micro_batch", "accumulation"),
    [  # keys of the run's own profile and of what is asked for; examples of a step, of a micro-batch, and its passes
        ("2 1 2", "2 1 1", 4, 2, 2),  # micro-batch, accumulation, processes
        ("2 1 1", "2 1 2", 2, 1, 1),
        ("2 1 2", "2 1 3", 4, 2, 1),
        ("2 4 4", "2 4 3", 32, 2, 6),
        ("8 1 1", "8 1 3", 8, 3, 1),
        ("2 1 2", "2 2 1", 4, 2, 2),  # the same batch, divided by hand
        ("2 1 1 4", "2 1 2", 4, 2, 1),  # back again, by the profile it began with
        ("2 1 1 5", "2 1 3", 5, 2, 1),
        ("2 1 1 5", "2 1 3 5", 5, 2, 1),
    ],
)
def test_another_number_of_processes_shares_the_same_batch(
    begun: str, asked: str, batch: int, micro_batch: int, accumulation: int, path: Path
) -> None:
    def of(numbers: str) -> Profile:
        size, steps, processes, *own = numbers.split()
        keys = [f"train.per_device_train_batch_size={size}", f"train.gradient_accumulation_steps={steps}"]
        keys += [f"hardware.num_processes={processes}", *(f"train.effective_batch={n}" for n in own)]
        return read(path, "", *keys).profile

    old = of(begun)
    new = keep_batch(old, of(asked))
    assert (new.effective_batch, new.micro_batch, new.accumulation) == (batch, micro_batch, accumulation)
    assert new.hardware.num_processes == of(asked).hardware.num_processes
    assert weights_difference(old, new) == [] and fingerprint(old) == fingerprint(new)
    assert keep_batch(new, old) == old and keep_batch(old, new) == new


@pytest.mark.parametrize("asked", ["4 1 1", "2 3 1", "2 1 1 6"])
def test_a_batch_that_is_asked_for_is_a_difference(asked: str, path: Path) -> None:
    size, steps, processes, *own = asked.split()
    keys = [f"train.per_device_train_batch_size={size}", f"train.gradient_accumulation_steps={steps}"]
    keys += [f"hardware.num_processes={processes}", *(f"train.effective_batch={n}" for n in own)]
    old = read(path, "", "train.per_device_train_batch_size=2", "hardware.num_processes=2").profile
    new = read(path, "", *keys).profile
    assert keep_batch(old, new) == new
    assert weights_difference(old, new) and fingerprint(old) != fingerprint(new)


def test_the_order_of_patterns_is_a_difference(path: Path) -> None:
    """PEFT takes the first pattern that fits a layer."""
    one = read(path, "[adapter.alpha_pattern]\nq_proj = 64\n'.*_proj' = 8\n").profile
    other = read(path, "[adapter.alpha_pattern]\n'.*_proj' = 8\nq_proj = 64\n").profile
    assert len(weights_difference(one, other)) == 1
    assert fingerprint(one) != fingerprint(other)
    path.write_text(to_toml(one))
    assert fingerprint(resolve(path).profile) == fingerprint(one)


def test_a_new_key_stops_no_run_that_was_begun_without_it(path: Path) -> None:
    """This hash stands in the checkpoints of released versions: a key that is added must not change it."""
    profile = read(path, "[train]\nlearning_rate = 1e-3\n[adapter]\nr = 8\n").profile
    assert fingerprint(profile) == "6a695cd3536488b5c01b6c1f7787304f82f3ff5894fb3adb0d2c3297b47c6fb7"


@pytest.mark.parametrize(
    ("text", "hint"),
    [
        ("[lora]\nr = 3\n", "Did you mean [adapter]?"),
        ("[Train]\nseed = 1\n", "Did you mean [train]?"),
        ("[trane]\nseed = 1\n", "Did you mean [train]?"),
        ("[zebra]\nseed = 1\n", "The tables are [run], [model]"),
        ("[train]\noptim = 'adamw'\n", "Did you mean 'adamw_"),
        ("[eval]\neval_strategy = 'step'\n", "Did you mean 'steps'?"),
        ("[adapter]\nmethod = 'quantised'\n", 'The default is "lora".'),
    ],
)
def test_a_wrong_name_gets_the_nearest_right_one(path: Path, text: str, hint: str) -> None:
    with pytest.raises(ProfileError) as caught:
        read(path, text)
    assert caught.value.hint.startswith(hint) and bool(caught.value.hint) == bool(hint)


def test_flat_has_every_key_once(path: Path) -> None:
    values = flat_values(read(path).profile)
    assert values[("data", "train")].endswith("rows.jsonl")
    assert {key for key in values if len(key) < 2} == {("curriculum",)}


STAGED = """
[[curriculum]]
sort_by = "loss"
fraction = 0.3
learning_rate = "none"

[[curriculum]]
num_train_epochs = 2
"""


def test_stages_are_a_list_of_tables(path: Path) -> None:
    resolved = read(path, STAGED)
    first, second = resolved.profile.curriculum
    assert (first.sort_by, first.fraction, first.learning_rate, second.num_train_epochs) == ("loss", 0.3, None, 2)
    assert str(resolved.origin(("curriculum", "1", "num_train_epochs"))) == f"{path}:16"
    path.write_text(to_toml(resolved.profile))
    assert resolve(path).profile == resolved.profile
    assert read(path, STAGED, "curriculum=none").profile.curriculum == ()
    (other,) = read(path, STAGED, 'curriculum=[{fraction = 0.5, order = "descending"}]').profile.curriculum
    assert (other.fraction, other.order) == (0.5, "descending")
    assert "[[curriculum]]" not in to_toml(read(path).profile)
    assert weights_difference(read(path, STAGED).profile, read(path).profile) == [
        'curriculum: [{sort_by = "loss", fraction = 0.3}, {num_train_epochs = 2.0}] -> "none"'
    ]
    assert fingerprint(read(path, STAGED + "fraction = 1.0\n").profile) == fingerprint(resolved.profile)
    lines = "\n".join(value_lines(resolved))
    assert "[curriculum]\n  curriculum" in lines and "curriculum" not in "\n".join(value_lines(read(path)))


@pytest.mark.parametrize(
    ("text", "where", "what"),
    [
        ("[[curriculum]]\nfraction = 2\n", ":10: curriculum.0.fraction", "less than or equal to 1"),
        ("[[curriculum]]\n[[curriculum]]\nsortby = 'loss'\n", ":11: curriculum.1.sortby", "there is no such key"),
        ("[curriculum]\nfraction = 1\n", ":10: curriculum", "is a list of tables: write [[curriculum]]"),
        ("[train]\nnum_train_epochs = 3\n[[curriculum]]\n", ":11: curriculum", "has num_train_epochs of its own"),
    ],
)
def test_a_faulty_stage_is_told_where_it_stands(path: Path, text: str, where: str, what: str) -> None:
    error = complaint(path, text)
    assert where in error.message and what in error.message


def test_of_a_list_it_has_to_be_said_which_table_is_meant(path: Path) -> None:
    error = complaint(path, STAGED, "curriculum.fraction=0.5")
    assert "curriculum: is a list of tables" in error.message and error.hint == "Set curriculum.0.fraction."


def test_what_is_no_part_of_a_text_learns_every_token(path: Path) -> None:
    error = complaint(path, "[[curriculum]]\nsort_by = 'target_share'\n", "run.stage=pretrain")
    assert "curriculum.0.sort_by" in error.message and "length" in error.hint


def test_the_reference_page_is_current() -> None:
    page = Path(__file__).parents[3] / "docs" / "profile.md"
    assert page.read_text(encoding="utf-8").strip() == reference().strip(), (
        "docs/profile.md is stale: python -m ftui.profile.reference > docs/profile.md"
    )


@pytest.mark.parametrize("head", ["data", "checkpoint"])
def test_a_key_written_as_messages_name_it_is_told_where_it_belongs(path: Path, head: str) -> None:
    line = 'data.allow = ["placeholders"]\n'
    text = BASE.replace("[data]\n", f"[data]\n{line}") if head == "data" else f"{BASE}[checkpoint]\n{line}"
    path.write_text(text)
    with pytest.raises(ProfileError) as caught:
        resolve(path)
    told = f"{caught.value.message} {caught.value.hint}"
    assert 'Below [data], write it without "data.": allow = ["placeholders"].' in told
