"""Where a change puts things: blank lines stay, new keys come above closing remarks, one key takes another's place."""

import difflib

import pytest

from ftui.profile.layers import EXCLUSIVE
from ftui.profile.presets import shipped_presets
from ftui.profile.toml_edit.document import ProfileDocument, remove_key, set_key
from ftui.profile.toml_edit.statements import statements
from ftui.tui.form.edits import with_source, with_value, with_values
from ftui.tui.form.form_fields import all_fields

SPACED = {preset.name: preset.path.read_text().replace("\n\n", "\n\n\n") for preset in shipped_presets()}
SPACED["spaced"] = "[a]\n\nx = 1\ny = 2\n\n\n[b]\nz = 1\n\n\nw = 1\n\n\n# the end\n"


@pytest.mark.parametrize("name", SPACED)
def test_taking_a_key_out_takes_no_blank_line_of_others(name: str) -> None:
    """One at most, and that only where the key stood alone between two."""
    text = SPACED[name]
    for one in statements(text):
        if one.kind != "pair" or len(one.key) > 2:
            continue  # with the last key of a table inside a section that goes too
        own = text[one.start : one.end].splitlines()
        above, below = text[: one.start].split("\n")[-2], text[one.end :].split("\n")[0]
        gone = [
            line[2:]
            for line in difflib.ndiff(text.splitlines(), remove_key(text, one.key).splitlines())
            if line[0] == "-"
        ]
        is_alone = not above.strip() and not below.strip()
        assert [line for line in gone if line.strip()] == own and len(gone) <= len(own) + is_alone, one.key


CLOSED = """\
[data]
train = "a"   # rows
eval_fraction = 0.1   # a tenth

[train]
# how long
  max_steps = 5   # short
seed = 1


# That is all.
# Really.
"""


EPOCHS = next(field for field in all_fields() if field.name == "train.num_train_epochs")


def test_a_new_key_of_the_last_table_stands_above_the_closing_remark() -> None:
    assert set_key(CLOSED, ("train", "optim"), '"sgd"') == CLOSED.replace("seed = 1\n", 'seed = 1\noptim = "sgd"\n')
    own = CLOSED.replace("\n\n\n#", "\n#")
    assert set_key(own, ("train", "optim"), '"sgd"') == own + 'optim = "sgd"\n', "right below its last key: its own"


@pytest.mark.parametrize("form", [lambda text: text, lambda text: text.replace("\n", "\r\n")])
@pytest.mark.parametrize("change", [
    lambda draft: with_value(draft, EPOCHS, EPOCHS.key, "3"),
    lambda draft: with_values(draft, {("train", "num_train_epochs"): 3}),
])  # fmt: skip
def test_a_key_takes_the_place_of_the_one_it_excludes(form, change) -> None:  # type: ignore[no-untyped-def]
    draft = ProfileDocument(form(CLOSED))
    changed = change(draft)
    assert changed.text == form(CLOSED.replace("max_steps = 5   # short", "num_train_epochs = 3"))
    assert changed.undone().text == draft.text


def test_rows_to_evaluate_on_take_the_place_of_a_share() -> None:
    changed = with_source(ProfileDocument(CLOSED), ("data", "eval"), "e.jsonl")
    assert changed.text == CLOSED.replace("eval_fraction = 0.1   # a tenth", 'eval = "e.jsonl"')


@pytest.mark.parametrize("text", [
    "train.max_steps = 5\n", "train = {max_steps = 5}\n", '["train"]\n"max_steps" = 5\n', 
    "\ufeff[train]\nmax_steps = 5\n", "[train]\nmax_steps = 5\nnum_train_epochs = 2\n", "[train]\nmax_steps = 5",
])  # fmt: skip
def test_where_its_line_cannot_be_had_the_values_are_right_all_the_same(text: str) -> None:
    assert EPOCHS.key in EXCLUSIVE[0]
    changed = with_value(ProfileDocument(text), EPOCHS, EPOCHS.key, "3")
    assert "max_steps" not in changed.text and changed.text.count("num_train_epochs = 3") == 1
