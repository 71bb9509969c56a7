"""What is wrong with a sweep.toml, or with it and its profile together, is named with line, key and fix."""

from pathlib import Path

import pytest

from ftui.errors import ProfileError
from ftui.sweep.start_sweep import read_sweep
from ftui.sweep.sweep_plan import plan_of

GOOD = """profile = "quickstart"
[search]
"train.learning_rate" = { low = 1e-5, high = 1e-3, log = true }
"adapter.r" = [8, 16]
[search.derived]
"adapter.lora_alpha" = "2 * adapter.r"
[method]
sampler = "tpe"
scheduler = "asha"
rungs = [30, 90]
[budget]
trials = 8
"""


def test_a_plan() -> None:
    plan = plan_of(GOOD, Path("lr.toml"))
    assert (plan.name, plan.sampler, plan.rungs, plan.trials) == ("lr", "tpe", (30, 90), 8)
    assert [dimension.key for dimension in plan.space] == ["train.learning_rate", "adapter.r"]
    tables = GOOD.replace('"train.learning_rate" =', "train.learning_rate =")
    assert plan_of(tables, Path("lr.toml")) == plan, "with or without quotes"


@pytest.mark.parametrize(
    ("old", "new", "where", "what"),
    [
        ('profile = "quickstart"\n', "", "", "profile: is missing"),
        ("low = 1e-5, high = 1e-3", "low = 1e-3, high = 1e-5", ":3", "low = 0.001 is not below high"),
        ("low = 1e-5", "low = 0", ":3", "log needs a low above 0"),
        ("low = 1e-5, ", "", ":3", "no low and high that are numbers"),
        ("log = true", "lgo = true", ":3", "Did you mean low or log?"),
        ("log = true", "log = true, step = 1e-4", ":3", "do not go together"),
        ("[8, 16]", "[8]", ":4", "nothing to search"),
        ("[8, 16]", "[8, 16, 8]", ":4", "8 twice"),
        ("[8, 16]", "8", ":4", "a list of values or a range"),
        ('"2 * adapter.r"', "2", ":6", "a rule in quotes"),
        ('"tpe"', '"tpee"', ":8", "Did you mean tpe?"),
        ('"tpe"', '"grid"', ":8", "train.learning_rate is a range"),
        ('"asha"', '"median"', ":9", "There are none, asha, hyperband"),
        ("rungs = [30, 90]\n", "", ":7", "asha needs rungs"),
        ("[30, 90]", "[90, 30]", ":10", "each above the one before"),
        ("rungs", "rung", ":10", "Did you mean rungs?"),
        ("trials = 8", "trials = 0", ":12", "from 1 on"),
        ("trials = 8", "hours = 1", ":11", "no number of trials"),
        ("trials = 8", "trials = 8\nhours = 0", ":13", "above 0"),
        ("trials = 8", "trials = 8\nhuors = 1", ":13", "Did you mean hours?"),
    ],
)
def test_what_is_wrong_with_a_file(old: str, new: str, where: str, what: str) -> None:
    assert old in GOOD
    with pytest.raises(ProfileError) as caught:
        plan_of(GOOD.replace(old, new, 1), Path("lr.toml"))
    text = f"{caught.value.message}\n{caught.value.hint}"
    assert f"lr.toml{where}" in text and what in text


@pytest.mark.parametrize(
    ("old", "new", "where", "what"),
    [
        ("quickstart", "quikstart", ":1", "Did you mean quickstart?"),
        ("train.learning_rate", "train.learning_rat", ":3", "Did you mean train.learning_rate"),
        ("train.learning_rate", "data.max_length", ":3", "changes what the trials are measured by"),
        ("adapter.r\" =", "eval.generate\" =", ":4", "changes what the trials are measured by"),
        ("adapter.r\" = [8, 16]", "model.name_or_path\" = ['a', 'b']", ":4", "Compare models"),
        ("adapter.r\" =", "train.seed\" =", ":4", "luck"),
        ("adapter.r\" =", "train.max_steps\" =", ":4", "different lengths"),
        ("adapter.r\" =", "checkpoint.save_steps\" =", ":4", "no part in what a run learns"),
        ("[8, 16]", "[8, 0]", ":4", "with adapter.r = 0"),
        ("high = 1e-3", "high = -1.0, log = false", "", "not below"),
        ('"2 * adapter.r"', '"2 * adapter.rank"', ":6", "names adapter.rank"),
        ('"2 * adapter.r"', '"adapter.r / 3"', ":6", "lora_alpha"),
        ('"adapter.lora_alpha"', '"adapter.r"', ":6", "is searched and follows"),
    ],
)  # fmt: skip
def test_what_does_not_go_with_the_profile(old: str, new: str, where: str, what: str, tmp_path: Path) -> None:
    path = tmp_path / "lr.toml"
    assert old in GOOD
    text = GOOD.replace(old, new, 1).replace("log = true, log = false", "log = false").replace(", log = true }", " }")
    path.write_text(text if "data.max_length" not in new else text.replace("1e-5", "64").replace("1e-3", "128"))
    with pytest.raises(ProfileError) as caught:
        read_sweep(path)
    said = f"{caught.value.message}\n{caught.value.hint}"
    assert f"lr.toml{where}" in said and what in said


@pytest.mark.parametrize(
    ("line", "what"),
    [("[eval]\nearly_stopping_patience = 2", "early stopping"),
     ("[hardware]\nnum_processes = 2\nnodes = 2", "one machine"),
     ("", "no rows to evaluate on")],
)  # fmt: skip
def test_profiles_that_cannot_be_searched_in(line: str, what: str, tmp_path: Path) -> None:
    (tmp_path / "rows.jsonl").write_text('{"text": "a"}\n')
    ending = "eval_num_rows = 1\n" if line else ""
    (tmp_path / "mine.toml").write_text(
        '[run]\nstage = "pretrain"\n[model]\nname_or_path = "org/model"\n[train]\nmax_steps = 9\n'
        f'[data]\ntrain = "rows.jsonl"\n{ending}{line}\n'
    )
    (tmp_path / "lr.toml").write_text(GOOD.replace("quickstart", "mine.toml"))
    with pytest.raises(ProfileError, match=what):
        read_sweep(tmp_path / "lr.toml")
